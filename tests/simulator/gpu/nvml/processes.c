/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * The processes that hold a GPU: key processes, "PID:MIB[:G]" separated by commas; G marks one that draws. On a GPU that MIG
 * divides they hold its first device.
 */
#include "internal.h"

#define MAX_PROCESSES 64

struct process {
    unsigned pid;
    unsigned long long bytes;
};

bool sim_in_use(nvmlDevice_t device)
{
    char list[SIM_VALUE_SIZE];
    return sim_text(device->slot, "processes", list, sizeof list);
}

/* Returns how many there are, which may be more than there is room for. mig: the part of the GPU that is asked for. */
static unsigned processes_of(nvmlDevice_t device, const struct sim_mig_device *mig, bool graphics, struct process *found,
                             unsigned room)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    unsigned count = 0;
    if (mig->gpu && mig->index)
        return 0;
    if (!sim_text(device->slot, "processes", list, sizeof list))
        return 0;
    for (char *item; (item = strtok_r(rest, ",", &rest));) {
        unsigned pid;
        unsigned long long mib = 0;
        char kind = 'C';
        if (sscanf(item, "%u:%llu:%c", &pid, &mib, &kind) < 2 || (kind == 'G') != graphics)
            continue;
        if (count < room)
            found[count] = (struct process){pid, mib * MIB};
        count++;
    }
    return count;
}

/* The structure grew once: version 1 ends behind the memory, 2 and 3 name the MIG instance. */
#define PROCESSES(function, type, is_graphics)                                                          \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, type *infos)                    \
    {                                                                                                   \
        struct process found[MAX_PROCESSES];                                                            \
        ENTER_EITHER(device, false);                                                                    \
        NEED(count);                                                                                    \
        unsigned needed = processes_of(device, &mig, is_graphics, found, MAX_PROCESSES), room = *count; \
        *count = needed;                                                                                \
        if (!needed)                                                                                    \
            return NVML_SUCCESS;                                                                        \
        if (needed > room || needed > MAX_PROCESSES)                                                    \
            return NVML_ERROR_INSUFFICIENT_SIZE;                                                        \
        NEED(infos);                                                                                    \
        for (unsigned i = 0; i < needed; i++) {                                                         \
            memset(&infos[i], 0xff, sizeof infos[i]); /* no instance */                                 \
            infos[i].pid = found[i].pid;                                                                \
            infos[i].usedGpuMemory = found[i].bytes;                                                    \
        }                                                                                               \
        return NVML_SUCCESS;                                                                            \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, false)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, false)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, true)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, true)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, true)

/* What nvidia-smi asks its private functions for: the same with the name. Its size and places were found by watching
 * nvidia-smi 535 and 550 read it. */
struct sim_private_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute;
    unsigned long long unknown;
    char name[4096];
};

static nvmlReturn_t private_processes(nvmlDevice_t device, bool graphics, unsigned *count, struct sim_private_process *list)
{
    struct process found[MAX_PROCESSES];
    ENTER_EITHER(device, false);
    NEED(count);
    NEED(list);
    unsigned needed = processes_of(device, &mig, graphics, found, MAX_PROCESSES), room = *count;
    *count = needed;
    if (needed > room || needed > MAX_PROCESSES)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < needed; i++) {
        list[i] = (struct sim_private_process){found[i].pid, found[i].bytes, NO_INSTANCE, NO_INSTANCE, 0, ""};
        if (mig.gpu) {
            list[i].instance = device->instance;
            list[i].compute = device->compute;
        }
        if (nvmlSystemGetProcessName(found[i].pid, list[i].name, sizeof list[i].name) != NVML_SUCCESS)
            strcpy(list[i].name, "[Not Found]");
    }
    return NVML_SUCCESS;
}

nvmlReturn_t sim_private_compute_processes(nvmlDevice_t device, unsigned *count, struct sim_private_process *list)
{
    return private_processes(device, false, count, list);
}

nvmlReturn_t sim_private_graphics_processes(nvmlDevice_t device, unsigned *count, struct sim_private_process *list)
{
    return private_processes(device, true, count, list);
}

nvmlReturn_t sim_private_mps_processes(nvmlDevice_t device, unsigned *count, struct sim_private_process *list)
{
    ENTER_EITHER(device, false);
    (void)list;
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    (void)infos;
    ENTER(device);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                 unsigned int *count, unsigned long long last_seen)
{
    struct process found[MAX_PROCESSES];
    ENTER_EITHER(device, false);
    NEED(count);
    unsigned needed = processes_of(device, &mig, false, found, MAX_PROCESSES), room = *count;
    *count = needed;
    if (!needed)
        return NVML_ERROR_NOT_FOUND;
    if (!samples || needed > room || needed > MAX_PROCESSES)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < needed; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){.pid = found[i].pid,
                                                      .timeStamp = last_seen + 1,
                                                      .smUtil = (unsigned)sim_value(device, "utilization.gpu", 0) / needed};
    return NVML_SUCCESS;
}
