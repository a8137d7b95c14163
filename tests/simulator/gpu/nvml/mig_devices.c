/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * The devices that MIG makes of a GPU: one for each compute instance, counted through all its GPU instances.
 */
#include "mig.h"

/* A handle names a place; whether something is there is looked up each time. */
static struct nvmlDevice_st device_handles[MAX_GPUS][MIG_MAX_INSTANCES][MIG_MAX_COMPUTE];

static unsigned devices_of(nvmlDevice_t gpu, nvmlDevice_t *devices)
{
    struct mig_layout layout;
    unsigned found = 0;
    mig_read_layout(gpu, &layout);
    for (unsigned i = 0; i < layout.count; i++)
        for (unsigned c = 0; c < layout.instances[i].compute_count && found < MIG_MAX_DEVICES; c++) {
            unsigned instance = layout.instances[i].id, compute = layout.instances[i].compute[c].id;
            nvmlDevice_t device = &device_handles[gpu->slot][instance][compute];
            *device = (struct nvmlDevice_st){gpu->slot, gpu, instance, compute};
            devices[found++] = device;
        }
    return found;
}

bool sim_mig_device(nvmlDevice_t device, struct sim_mig_device *found)
{
    struct mig_layout layout;
    struct mig_profile profile;
    nvmlDevice_t devices[MIG_MAX_DEVICES];
    *found = (struct sim_mig_device){0};
    if (!device || !device->gpu || sim_check(device->gpu, false) != NVML_SUCCESS)
        return false;
    mig_read_layout(device->gpu, &layout);
    struct mig_instance *instance = mig_instance_by_id(&layout, device->instance);
    struct mig_compute *compute = mig_compute_by_id(instance, device->compute);
    if (!compute || !mig_profile_by_id(device->gpu, instance->profile, &profile))
        return false;
    unsigned count = devices_of(device->gpu, devices), slices = mig_compute_slices(&profile, compute->profile);
    found->gpu = device->gpu;
    found->mib = profile.mib;
    found->part = (double)profile.size / MIG_MEMORY_SLICES;
    while (found->index < count && devices[found->index] != device)
        found->index++;
    found->attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = mig_compute_multiprocessors(&profile, slices),
                                                 .sharedCopyEngineCount = profile.copy,
                                                 .sharedDecoderCount = profile.decoder,
                                                 .sharedJpegCount = profile.jpeg,
                                                 .sharedOfaCount = profile.ofa,
                                                 .gpuInstanceSliceCount = profile.slices,
                                                 .computeInstanceSliceCount = slices,
                                                 .memorySizeMB = profile.mib};
    mig_compute_name(&profile, slices, found->name, sizeof found->name);
    char gpu[64] = "";
    sim_text(device->slot, "uuid", gpu, sizeof gpu);
    /* Of its own, and the same whenever it is made again in the same place: the GPU's with the place in the middle. */
    snprintf(found->uuid, sizeof found->uuid, "MIG-%.8s-%02x%02x%s", gpu + strlen("GPU-"), device->instance, device->compute,
             gpu + strlen("GPU-00000000-0000"));
    return true;
}

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    ENTER(device);
    NEED(count);
    *count = sim_flag(device, "mig.current") ? (unsigned)sim_value(device, "mig.instances", 0) : 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    nvmlDevice_t devices[MIG_MAX_DEVICES];
    ENTER(device);
    NEED(mig);
    if (index >= devices_of(device, devices))
        return NVML_ERROR_NOT_FOUND;
    *mig = devices[index];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    struct sim_mig_device mig;
    sim_trace(__func__);
    NEED(device);
    NEED(is_mig);
    *is_mig = sim_mig_device(device, &mig);
    return *is_mig ? NVML_SUCCESS : sim_check(device, true);
}

#define ENTER_MIG_DEVICE(device)              \
    struct sim_mig_device mig;                \
    sim_trace(__func__);                      \
    if (!sim_mig_device((device), &mig))      \
        return NVML_ERROR_INVALID_ARGUMENT

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *gpu)
{
    ENTER_MIG_DEVICE(device);
    NEED(gpu);
    *gpu = mig.gpu;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    ENTER_MIG_DEVICE(device);
    NEED(id);
    *id = device->instance;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    ENTER_MIG_DEVICE(device);
    NEED(id);
    *id = device->compute;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    ENTER_MIG_DEVICE(device);
    NEED(attributes);
    *attributes = mig.attributes;
    return NVML_SUCCESS;
}
