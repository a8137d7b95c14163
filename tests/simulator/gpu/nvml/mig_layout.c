/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * What mig.h describes, from the keys and back.
 */
#include "mig.h"

#include <stdlib.h>

/* --- what the GPU offers --- */

static bool read_profile(char *row, struct mig_profile *profile)
{
    int read = 0;
    *profile = (struct mig_profile){0};
    if (sscanf(row, "%31s %u %u %u %u %u %u %u %u %u %u%n", profile->name, &profile->id, &profile->most, &profile->slices,
               &profile->size, &profile->mib, &profile->multiprocessors, &profile->copy, &profile->decoder, &profile->jpeg,
               &profile->ofa, &read) != 11)
        return false;
    char *rest = row + read;
    for (char *start; profile->start_count < MIG_MAX_STARTS && (start = strtok_r(rest, " ", &rest));)
        profile->starts[profile->start_count++] = (unsigned)atoi(start);
    return profile->start_count > 0;
}

unsigned mig_profiles(nvmlDevice_t gpu, struct mig_profile *profiles)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    unsigned count = 0;
    if (!sim_text(gpu->slot, "mig.profiles", list, sizeof list))
        return 0;
    for (char *row; count < MIG_MAX_PROFILES && (row = strtok_r(rest, ",", &rest));)
        count += read_profile(row, &profiles[count]);
    return count;
}

bool mig_profile_by_id(nvmlDevice_t gpu, unsigned id, struct mig_profile *profile)
{
    struct mig_profile profiles[MIG_MAX_PROFILES];
    unsigned count = mig_profiles(gpu, profiles);
    for (unsigned i = 0; i < count; i++)
        if (profiles[i].id == id) {
            *profile = profiles[i];
            return true;
        }
    return false;
}

/* NVML counts kinds of instances by their compute slices; those of one slice come with media engines and with more
 * memory too. Compute instances are counted alike. */
static unsigned kind_of(unsigned slices, bool media, bool large)
{
    static const unsigned kinds[] = {
        [1] = NVML_GPU_INSTANCE_PROFILE_1_SLICE, [2] = NVML_GPU_INSTANCE_PROFILE_2_SLICE,
        [3] = NVML_GPU_INSTANCE_PROFILE_3_SLICE, [4] = NVML_GPU_INSTANCE_PROFILE_4_SLICE,
        [6] = NVML_GPU_INSTANCE_PROFILE_6_SLICE, [7] = NVML_GPU_INSTANCE_PROFILE_7_SLICE,
        [8] = NVML_GPU_INSTANCE_PROFILE_8_SLICE,
    };
    if (media)
        return slices == 1 ? NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 : NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1;
    if (slices == 1 && large)
        return NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2;
    return slices < sizeof kinds / sizeof *kinds ? kinds[slices] : NVML_GPU_INSTANCE_PROFILE_COUNT;
}

bool mig_profile_by_kind(nvmlDevice_t gpu, unsigned kind, struct mig_profile *profile)
{
    struct mig_profile profiles[MIG_MAX_PROFILES];
    unsigned count = mig_profiles(gpu, profiles);
    for (unsigned i = 0; i < count; i++)
        if (kind_of(profiles[i].slices, strchr(profiles[i].name, '+'), profiles[i].size > 1) == kind) {
            *profile = profiles[i];
            return true;
        }
    return false;
}

/* --- what there is --- */

/* Numbers run through a tree: the whole GPU is 0, its halves are 1 and 2, its quarters 3 to 6, its eighths 7 and more. */
unsigned mig_instance_id(const struct mig_profile *profile, unsigned start)
{
    return MIG_MEMORY_SLICES / profile->size - 1 + start / profile->size;
}

static void read_compute(char *list, struct mig_instance *instance)
{
    for (char *item; instance->compute_count < MIG_MAX_COMPUTE && (item = strtok_r(list, "+", &list));) {
        struct mig_compute *compute = &instance->compute[instance->compute_count];
        instance->compute_count += sscanf(item, "%u/%u/%u", &compute->id, &compute->profile, &compute->start) == 3;
    }
}

static int by_instance_id(const void *a, const void *b)
{
    const struct mig_instance *one = a, *two = b;
    return (one->id > two->id) - (one->id < two->id);
}

void mig_read_layout(nvmlDevice_t gpu, struct mig_layout *layout)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    *layout = (struct mig_layout){0};
    if (!sim_text(gpu->slot, "mig.layout", list, sizeof list))
        return;
    for (char *item; layout->count < MIG_MEMORY_SLICES && (item = strtok_r(rest, ",", &rest));) {
        struct mig_instance *instance = &layout->instances[layout->count];
        struct mig_profile profile;
        int read = 0;
        if (sscanf(item, "%u:%u%n", &instance->profile, &instance->start, &read) != 2 ||
            !mig_profile_by_id(gpu, instance->profile, &profile))
            continue;
        instance->id = mig_instance_id(&profile, instance->start);
        if (item[read] == ':')
            read_compute(item + read + 1, instance);
        layout->count++;
    }
    qsort(layout->instances, layout->count, sizeof *layout->instances, by_instance_id);
}

nvmlReturn_t mig_write_layout(nvmlDevice_t gpu, const struct mig_layout *layout)
{
    char text[SIM_VALUE_SIZE] = "";
    size_t length = 0;
    for (unsigned i = 0; i < layout->count; i++) {
        const struct mig_instance *instance = &layout->instances[i];
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%u:%u", i ? "," : "", instance->profile,
                                   instance->start);
        for (unsigned c = 0; c < instance->compute_count; c++)
            length += (size_t)snprintf(text + length, sizeof text - length, "%c%u/%u/%u", c ? '+' : ':',
                                       instance->compute[c].id, instance->compute[c].profile, instance->compute[c].start);
    }
    return sim_set_text(gpu, "mig.layout", text);
}

struct mig_instance *mig_instance_by_id(struct mig_layout *layout, unsigned id)
{
    for (unsigned i = 0; i < layout->count; i++)
        if (layout->instances[i].id == id)
            return &layout->instances[i];
    return NULL;
}

struct mig_compute *mig_compute_by_id(struct mig_instance *instance, unsigned id)
{
    for (unsigned i = 0; instance && i < instance->compute_count; i++)
        if (instance->compute[i].id == id)
            return &instance->compute[i];
    return NULL;
}

bool sim_mig_divided(nvmlDevice_t gpu)
{
    struct mig_layout layout;
    mig_read_layout(gpu, &layout);
    return layout.count > 0;
}

/* --- compute instances --- */

unsigned mig_compute_slices(const struct mig_profile *profile, unsigned kind)
{
    for (unsigned slices = 1; slices <= profile->slices; slices++)
        if (kind_of(slices, false, false) == kind)
            return slices;
    return 0;
}

/* A part of a GPU instance bears its size in front: MIG 1c.3g.40gb. */
void mig_compute_name(const struct mig_profile *profile, unsigned slices, char *name, size_t size)
{
    if (slices == profile->slices)
        snprintf(name, size, "MIG %s", profile->name);
    else
        snprintf(name, size, "MIG %uc.%s", slices, profile->name);
}

/* Part of what the GPU instance has; the processors of its slices are shared out evenly. */
unsigned mig_compute_multiprocessors(const struct mig_profile *profile, unsigned slices)
{
    return slices == profile->slices ? profile->multiprocessors : profile->multiprocessors / profile->slices / 2 * 2 * slices;
}
