/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * What the parts of the simulated libnvidia-ml.so.1 share.
 */
#ifndef SIMGPU_INTERNAL_H
#define SIMGPU_INTERNAL_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h> /* Debian package libnvidia-ml-dev (non-free), fetched at build time */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "state.h"

#define API __attribute__((visibility("default")))
#define MAX_GPUS 32
#define MIB (1024ULL * 1024ULL)
#define NO_INSTANCE 0xffffffffu /* in place of the number of an instance */

struct nvmlDevice_st {
    int slot;                   /* place in the machine: the number that simgpu takes and that keys bear */
    nvmlDevice_t gpu;           /* of a MIG device the GPU that it is part of, NULL for a GPU */
    unsigned instance, compute; /* of a MIG device */
};

/* SIMGPU_LOG=1 writes the name of each function called to stderr. */
void sim_trace(const char *function);

/* The GPUs this process may use, in the order of their index. */
unsigned sim_gpu_count(void);
nvmlDevice_t sim_gpu(unsigned index);
bool sim_index(nvmlDevice_t device, unsigned *index);

/* Handle check at the head of a function: CACHED for what a lost GPU's driver still answers. */
nvmlReturn_t sim_check(nvmlDevice_t device, bool cached);
#define ENTER_AS(device, cached)                              \
    do {                                                      \
        sim_trace(__func__);                                  \
        nvmlReturn_t checked_ = sim_check((device), (cached)); \
        if (checked_ != NVML_SUCCESS)                         \
            return checked_;                                  \
    } while (0)
#define ENTER(device) ENTER_AS(device, false)
#define ENTER_CACHED(device) ENTER_AS(device, true)
/* Of functions that answer for a part of a GPU too: `mig` tells which, its gpu is NULL for a whole one. */
#define ENTER_EITHER(device, cached)                                                                           \
    struct sim_mig_device mig;                                                                                 \
    do {                                                                                                       \
        sim_trace(__func__);                                                                                   \
        nvmlReturn_t checked_ = sim_mig_device((device), &mig) ? NVML_SUCCESS : sim_check((device), (cached)); \
        if (checked_ != NVML_SUCCESS)                                                                          \
            return checked_;                                                                                   \
    } while (0)
#define NEED(pointer)                          \
    do {                                       \
        if (!(pointer))                        \
            return NVML_ERROR_INVALID_ARGUMENT; \
    } while (0)

/* One key of a GPU; NOT_SUPPORTED when neither its profile nor its state has it. */
nvmlReturn_t sim_get_text(nvmlDevice_t device, const char *key, char *text, unsigned length);
nvmlReturn_t sim_get_unsigned(nvmlDevice_t device, const char *key, unsigned *value);
nvmlReturn_t sim_get_scaled(nvmlDevice_t device, const char *key, double scale, unsigned *value);
nvmlReturn_t sim_get_long(nvmlDevice_t device, const char *key, unsigned long long *value);
bool sim_flag(nvmlDevice_t device, const char *key);
double sim_value(nvmlDevice_t device, const char *key, double otherwise);

/* A setting: root only, as in the driver. */
nvmlReturn_t sim_may_set(void);
nvmlReturn_t sim_set_text(nvmlDevice_t device, const char *key, const char *value);
nvmlReturn_t sim_set_number(nvmlDevice_t device, const char *key, double value);

/* Values that follow from others. */
double sim_load(nvmlDevice_t device); /* 0 idle to 1 busy */
double sim_power_limit(nvmlDevice_t device);
double sim_power_draw(nvmlDevice_t device); /* watts */
double sim_energy(nvmlDevice_t device);     /* joules since the driver was loaded */
double sim_temperature(nvmlDevice_t device);
bool sim_memory_temperature(nvmlDevice_t device, double *celsius);
unsigned long long sim_throttle_reasons(nvmlDevice_t device);
unsigned sim_clock(nvmlDevice_t device, nvmlClockType_t type); /* MHz; 0 when there is none */
unsigned long long sim_ecc_errors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime,
                                  const char *location);
bool sim_nvlink_active(nvmlDevice_t device, unsigned link);
unsigned sim_nvlink_count(nvmlDevice_t device);
unsigned sim_switch_links(nvmlDevice_t device); /* active links to NVSwitches */
unsigned long long sim_nvlink_errors(nvmlDevice_t device, unsigned link, const char *kind);

bool sim_in_use(nvmlDevice_t device); /* by a process */
/* What nvidia-smi asks for instead of the public functions. */
struct sim_private_process;
nvmlReturn_t sim_private_compute_processes(nvmlDevice_t device, unsigned *count, struct sim_private_process *list);
nvmlReturn_t sim_private_graphics_processes(nvmlDevice_t device, unsigned *count, struct sim_private_process *list);
nvmlReturn_t sim_private_mps_processes(nvmlDevice_t device, unsigned *count, struct sim_private_process *list);

/* Part of a GPU that MIG divides. */
struct sim_mig_device {
    nvmlDevice_t gpu;
    unsigned index;
    unsigned long long mib; /* memory */
    double part;            /* of the GPU's memory */
    char name[48], uuid[64];
    nvmlDeviceAttributes_t attributes;
};
/* False for a handle of a GPU, and for one of a MIG device that is gone; found->gpu is NULL then. */
bool sim_mig_device(nvmlDevice_t device, struct sim_mig_device *found);
bool sim_mig_divided(nvmlDevice_t gpu);

/* Between two PCI devices, GPUs or network cards: 0 PIX, 1 PXB, 2 PHB, 3 NODE, 4 SYS, 4 + N for N NVLinks. */
nvmlReturn_t sim_path_between(const char *one, const char *two, int *path);

struct sim_xid {
    unsigned long sequence;
    int slot;
    unsigned code;
};
/* The oldest Xid reported after `sequence`; false when there is none. */
bool sim_next_xid(unsigned long sequence, struct sim_xid *xid);
unsigned long sim_last_xid(void);

#endif
