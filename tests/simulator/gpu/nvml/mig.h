/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * GPUs divided by MIG: which instances a GPU offers and which it has.
 *
 * Hardware key mig.profiles: what it offers, separated by commas, each a row of blank-separated columns:
 *   NAME ID MOST SLICES SIZE MIB SM COPY DECODER JPEG OFA START...
 * MOST: how many of it at most. SLICES, SIZE: of compute and of memory. START: the memory slices where one may begin, in
 * the order in which the driver tries them.
 * State key mig.layout: its GPU instances, separated by commas, each PROFILE:START[:COMPUTE[+COMPUTE...]]; a compute
 * instance is ID/PROFILE/START, its start counted in compute slices of its GPU instance.
 */
#ifndef SIMGPU_MIG_H
#define SIMGPU_MIG_H

#include "internal.h"

#define MIG_MEMORY_SLICES 8
#define MIG_MAX_COMPUTE 8
#define MIG_MAX_INSTANCES 15 /* numbers of GPU instances are below */
#define MIG_MAX_PROFILES 10
#define MIG_MAX_STARTS 8
#define MIG_MAX_DEVICES 7

struct mig_profile {
    char name[32];
    unsigned id, most, slices, size, mib, multiprocessors, copy, decoder, jpeg, ofa;
    unsigned starts[MIG_MAX_STARTS], start_count;
};

struct mig_compute {
    unsigned id, profile, start;
};

struct mig_instance {
    unsigned id, profile, start;
    struct mig_compute compute[MIG_MAX_COMPUTE];
    unsigned compute_count;
};

struct mig_layout {
    struct mig_instance instances[MIG_MEMORY_SLICES];
    unsigned count;
};

unsigned mig_profiles(nvmlDevice_t gpu, struct mig_profile *profiles);
bool mig_profile_by_id(nvmlDevice_t gpu, unsigned id, struct mig_profile *profile);
/* kind: NVML_GPU_INSTANCE_PROFILE_*, which tells instances apart by their compute slices */
bool mig_profile_by_kind(nvmlDevice_t gpu, unsigned kind, struct mig_profile *profile);
/* The number of a GPU instance follows from its place. */
unsigned mig_instance_id(const struct mig_profile *profile, unsigned start);

/* The GPU instances in the order of their numbers. */
void mig_read_layout(nvmlDevice_t gpu, struct mig_layout *layout);
nvmlReturn_t mig_write_layout(nvmlDevice_t gpu, const struct mig_layout *layout);
struct mig_instance *mig_instance_by_id(struct mig_layout *layout, unsigned id);
struct mig_compute *mig_compute_by_id(struct mig_instance *instance, unsigned id);

/* kind: NVML_COMPUTE_INSTANCE_PROFILE_*, which is a compute instance's profile too. Its compute slices; 0 where a GPU
 * instance of the profile can't hold one. */
unsigned mig_compute_slices(const struct mig_profile *profile, unsigned kind);
unsigned mig_compute_multiprocessors(const struct mig_profile *profile, unsigned slices);
void mig_compute_name(const struct mig_profile *profile, unsigned slices, char *name, size_t size);

#endif
