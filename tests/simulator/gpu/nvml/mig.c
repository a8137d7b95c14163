/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * Dividing a GPU by MIG: GPU instances, and the compute instances in them.
 */
#include "mig.h"

#include <stdlib.h>

/* Handles name a place; whether something is there is looked up each time. */
struct nvmlGpuInstance_st {
    nvmlDevice_t gpu;
    unsigned id;
};
struct nvmlComputeInstance_st {
    nvmlGpuInstance_t instance;
    unsigned id;
};

static struct nvmlGpuInstance_st instance_handles[MAX_GPUS][MIG_MAX_INSTANCES];
static struct nvmlComputeInstance_st compute_handles[MAX_GPUS][MIG_MAX_INSTANCES][MIG_MAX_COMPUTE];

static nvmlGpuInstance_t instance_handle(nvmlDevice_t gpu, unsigned id)
{
    nvmlGpuInstance_t handle = &instance_handles[gpu->slot][id];
    *handle = (struct nvmlGpuInstance_st){gpu, id};
    return handle;
}

static nvmlComputeInstance_t compute_handle(nvmlGpuInstance_t instance, unsigned id)
{
    nvmlComputeInstance_t handle = &compute_handles[instance->gpu->slot][instance->id][id];
    *handle = (struct nvmlComputeInstance_st){instance, id};
    return handle;
}

static nvmlReturn_t listed(unsigned *count, unsigned found)
{
    *count = found;
    return NVML_SUCCESS;
}

/* --- profiles of GPU instances --- */

/* What a GPU offers is told out of MIG mode too; nvidia-smi 535 doesn't ask then, 550 does. */
API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int kind,
                                                      nvmlGpuInstanceProfileInfo_v2_t *info)
{
    struct mig_profile profile;
    ENTER(device);
    NEED(info);
    if (info->version != nvmlGpuInstanceProfileInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (kind >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!mig_profile_by_kind(device, kind, &profile))
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlGpuInstanceProfileInfo_v2_t){.version = info->version,
                                              .id = profile.id,
                                              .sliceCount = profile.slices,
                                              .instanceCount = profile.most,
                                              .multiprocessorCount = profile.multiprocessors,
                                              .copyEngineCount = profile.copy,
                                              .decoderCount = profile.decoder,
                                              .jpegCount = profile.jpeg,
                                              .ofaCount = profile.ofa,
                                              .memorySizeMB = profile.mib};
    snprintf(info->name, sizeof info->name, "MIG %s", profile.name);
    return NVML_SUCCESS;
}

static int by_start(const void *a, const void *b)
{
    const nvmlGpuInstancePlacement_t *one = a, *two = b;
    return (one->start > two->start) - (one->start < two->start);
}

API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profile_id,
                                                               nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
    struct mig_profile profile;
    ENTER(device);
    NEED(count);
    if (!mig_profile_by_id(device, profile_id, &profile))
        return NVML_ERROR_NOT_SUPPORTED;
    if (!placements)
        return listed(count, profile.start_count);
    if (*count < profile.start_count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < profile.start_count; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){profile.starts[i], profile.size};
    qsort(placements, profile.start_count, sizeof *placements, by_start);
    return listed(count, profile.start_count);
}

/* --- room --- */

/* Which memory slices are taken, a bit each, how many compute slices are left, and how many instances of the profile
 * there are. */
struct room {
    unsigned taken, slices, alike;
};

static struct room room_beside(nvmlDevice_t gpu, const struct mig_layout *layout, unsigned profile_id)
{
    struct mig_profile profiles[MIG_MAX_PROFILES], profile;
    struct room room = {0};
    unsigned count = mig_profiles(gpu, profiles);
    for (unsigned i = 0; i < count; i++)
        room.slices = profiles[i].slices > room.slices ? profiles[i].slices : room.slices;
    for (unsigned i = 0; i < layout->count; i++)
        if (mig_profile_by_id(gpu, layout->instances[i].profile, &profile)) {
            room.taken |= ((1u << profile.size) - 1) << layout->instances[i].start;
            room.slices -= profile.slices < room.slices ? profile.slices : room.slices;
            room.alike += profile.id == profile_id;
        }
    return room;
}

static bool fits(const struct room *room, const struct mig_profile *profile, unsigned start)
{
    return room->alike < profile->most && profile->slices <= room->slices &&
           !(room->taken & ((1u << profile->size) - 1) << start);
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profile_id, unsigned int *count)
{
    struct mig_profile profile;
    struct mig_layout layout;
    ENTER(device);
    NEED(count);
    if (!mig_profile_by_id(device, profile_id, &profile))
        return NVML_ERROR_NOT_SUPPORTED;
    mig_read_layout(device, &layout);
    struct room room = room_beside(device, &layout, profile_id);
    *count = 0;
    for (unsigned i = 0; sim_flag(device, "mig.current") && i < profile.start_count; i++)
        if (fits(&room, &profile, profile.starts[i])) {
            room.taken |= ((1u << profile.size) - 1) << profile.starts[i];
            room.slices -= profile.slices;
            room.alike++;
            ++*count;
        }
    return NVML_SUCCESS;
}

/* --- GPU instances --- */

#define ENTER_MIG_MODE(gpu)                  \
    do {                                     \
        ENTER(gpu);                          \
        if (!sim_flag((gpu), "mig.current")) \
            return NVML_ERROR_NOT_SUPPORTED; \
    } while (0)

static nvmlReturn_t create_instance(nvmlDevice_t device, unsigned profile_id, unsigned wanted, nvmlGpuInstance_t *handle)
{
    struct mig_profile profile;
    struct mig_layout layout;
    ENTER_MIG_MODE(device);
    nvmlReturn_t allowed = sim_may_set();
    NEED(handle);
    if (allowed != NVML_SUCCESS)
        return allowed;
    if (!mig_profile_by_id(device, profile_id, &profile))
        return NVML_ERROR_NOT_SUPPORTED;
    mig_read_layout(device, &layout);
    struct room room = room_beside(device, &layout, profile_id);
    for (unsigned i = 0; i < profile.start_count; i++) {
        unsigned start = profile.starts[i];
        if ((wanted != NO_INSTANCE && wanted != start) || !fits(&room, &profile, start))
            continue;
        layout.instances[layout.count++] =
            (struct mig_instance){.id = mig_instance_id(&profile, start), .profile = profile_id, .start = start};
        *handle = instance_handle(device, mig_instance_id(&profile, start));
        return mig_write_layout(device, &layout);
    }
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

API nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstance_t *instance)
{
    return create_instance(device, profile_id, NO_INSTANCE, instance);
}

API nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile_id,
                                                          const nvmlGpuInstancePlacement_t *placement,
                                                          nvmlGpuInstance_t *instance)
{
    NEED(placement);
    return create_instance(device, profile_id, placement->start, instance);
}

/* What a handle of an instance stands for; NOT_FOUND when it is gone. */
static nvmlReturn_t enter_instance(const char *function, nvmlGpuInstance_t handle, struct mig_layout *layout,
                                   struct mig_instance **instance, struct mig_profile *profile)
{
    sim_trace(function);
    NEED(handle);
    nvmlReturn_t result = sim_check(handle->gpu, false);
    if (result != NVML_SUCCESS)
        return result;
    mig_read_layout(handle->gpu, layout);
    *instance = mig_instance_by_id(layout, handle->id);
    return *instance && mig_profile_by_id(handle->gpu, (*instance)->profile, profile) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

#define ENTER_INSTANCE(handle)                                                                    \
    struct mig_layout layout;                                                                     \
    struct mig_instance *instance;                                                                \
    struct mig_profile profile;                                                                   \
    do {                                                                                          \
        nvmlReturn_t entered_ = enter_instance(__func__, (handle), &layout, &instance, &profile); \
        if (entered_ != NVML_SUCCESS)                                                             \
            return entered_;                                                                      \
    } while (0)

API nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle)
{
    ENTER_INSTANCE(handle);
    nvmlReturn_t allowed = sim_may_set();
    if (allowed != NVML_SUCCESS)
        return allowed;
    if (instance->compute_count || sim_in_use(handle->gpu))
        return NVML_ERROR_IN_USE;
    *instance = layout.instances[--layout.count];
    return mig_write_layout(handle->gpu, &layout);
}

API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstance_t *instances,
                                           unsigned int *count)
{
    struct mig_profile profile;
    struct mig_layout layout;
    ENTER_MIG_MODE(device);
    NEED(count);
    NEED(instances);
    if (!mig_profile_by_id(device, profile_id, &profile))
        return NVML_ERROR_NOT_SUPPORTED;
    mig_read_layout(device, &layout);
    unsigned found = 0;
    for (unsigned i = 0; i < layout.count; i++)
        if (layout.instances[i].profile == profile_id)
            instances[found++] = instance_handle(device, layout.instances[i].id);
    return listed(count, found);
}

API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info)
{
    ENTER_INSTANCE(handle);
    NEED(info);
    *info = (nvmlGpuInstanceInfo_t){handle->gpu, instance->id, instance->profile, {instance->start, profile.size}};
    return NVML_SUCCESS;
}

/* --- compute instances: a kind is its own profile number --- */

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned int kind,
                                                               unsigned int engines, nvmlComputeInstanceProfileInfo_v2_t *info)
{
    ENTER_INSTANCE(handle);
    NEED(info);
    if (info->version != nvmlComputeInstanceProfileInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (kind >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT || engines >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned slices = mig_compute_slices(&profile, kind);
    if (!slices)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlComputeInstanceProfileInfo_v2_t){
        .version = info->version,
        .id = kind,
        .sliceCount = slices,
        .instanceCount = profile.slices / slices,
        .multiprocessorCount = mig_compute_multiprocessors(&profile, slices),
        .sharedCopyEngineCount = profile.copy,
        .sharedDecoderCount = profile.decoder,
        .sharedJpegCount = profile.jpeg,
        .sharedOfaCount = profile.ofa,
    };
    mig_compute_name(&profile, slices, info->name, sizeof info->name);
    return NVML_SUCCESS;
}

static unsigned compute_taken(const struct mig_instance *instance, const struct mig_profile *profile)
{
    unsigned taken = 0;
    for (unsigned i = 0; i < instance->compute_count; i++)
        taken |= ((1u << mig_compute_slices(profile, instance->compute[i].profile)) - 1) << instance->compute[i].start;
    return taken;
}

/* The first compute slice from which on `slices` are free; NO_INSTANCE when there is none. */
static unsigned free_slices(unsigned taken, const struct mig_profile *profile, unsigned slices)
{
    for (unsigned start = 0; slices && start + slices <= profile->slices; start++)
        if (!(taken & ((1u << slices) - 1) << start))
            return start;
    return NO_INSTANCE;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle, unsigned int kind,
                                                                    unsigned int *count)
{
    ENTER_INSTANCE(handle);
    NEED(count);
    unsigned slices = mig_compute_slices(&profile, kind), taken = compute_taken(instance, &profile), start;
    if (!slices)
        return NVML_ERROR_NOT_SUPPORTED;
    for (*count = 0; (start = free_slices(taken, &profile, slices)) != NO_INSTANCE; ++*count)
        taken |= ((1u << slices) - 1) << start;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t handle, unsigned int kind,
                                                                     nvmlComputeInstancePlacement_t *placements,
                                                                     unsigned int *count)
{
    ENTER_INSTANCE(handle);
    NEED(count);
    unsigned slices = mig_compute_slices(&profile, kind);
    if (!slices)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned found = profile.slices - slices + 1;
    if (placements && *count < found)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned start = 0; placements && start < found; start++)
        placements[start] = (nvmlComputeInstancePlacement_t){start, slices};
    return listed(count, found);
}

static nvmlReturn_t create_compute(nvmlGpuInstance_t handle, unsigned kind, unsigned wanted, nvmlComputeInstance_t *made)
{
    ENTER_INSTANCE(handle);
    nvmlReturn_t allowed = sim_may_set();
    NEED(made);
    if (allowed != NVML_SUCCESS)
        return allowed;
    unsigned slices = mig_compute_slices(&profile, kind), taken = compute_taken(instance, &profile), id = 0;
    if (!slices)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned start = wanted == NO_INSTANCE ? free_slices(taken, &profile, slices) : wanted;
    if (start == NO_INSTANCE || start + slices > profile.slices || taken & ((1u << slices) - 1) << start)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    while (mig_compute_by_id(instance, id))
        id++;
    instance->compute[instance->compute_count++] = (struct mig_compute){id, kind, start};
    *made = compute_handle(handle, id);
    return mig_write_layout(handle->gpu, &layout);
}

API nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned int kind, nvmlComputeInstance_t *made)
{
    return create_compute(handle, kind, NO_INSTANCE, made);
}

API nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t handle, unsigned int kind,
                                                                   const nvmlComputeInstancePlacement_t *placement,
                                                                   nvmlComputeInstance_t *made)
{
    NEED(placement);
    return create_compute(handle, kind, placement->start, made);
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned int kind,
                                                    nvmlComputeInstance_t *compute, unsigned int *count)
{
    ENTER_INSTANCE(handle);
    NEED(compute);
    NEED(count);
    unsigned found = 0;
    for (unsigned i = 0; i < instance->compute_count; i++)
        if (instance->compute[i].profile == kind)
            compute[found++] = compute_handle(handle, instance->compute[i].id);
    return listed(count, found);
}

API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info)
{
    NEED(handle);
    NEED(info);
    ENTER_INSTANCE(handle->instance);
    struct mig_compute *compute = mig_compute_by_id(instance, handle->id);
    if (!compute)
        return NVML_ERROR_NOT_FOUND;
    *info = (nvmlComputeInstanceInfo_t){handle->instance->gpu,
                                        handle->instance,
                                        compute->id,
                                        compute->profile,
                                        {compute->start, mig_compute_slices(&profile, compute->profile)}};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle)
{
    NEED(handle);
    ENTER_INSTANCE(handle->instance);
    nvmlReturn_t allowed = sim_may_set();
    if (allowed != NVML_SUCCESS)
        return allowed;
    struct mig_compute *compute = mig_compute_by_id(instance, handle->id);
    if (!compute)
        return NVML_ERROR_NOT_FOUND;
    if (sim_in_use(handle->instance->gpu))
        return NVML_ERROR_IN_USE;
    *compute = instance->compute[--instance->compute_count];
    return mig_write_layout(handle->instance->gpu, &layout);
}
