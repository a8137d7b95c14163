/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * What an administrator sets, within the bounds that the driver checks, and how it is read back.
 */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

#define ENTER_SETTING(device)                       \
    do {                                            \
        ENTER(device);                              \
        nvmlReturn_t allowed_ = sim_may_set();      \
        if (allowed_ != NVML_SUCCESS)               \
            return allowed_;                        \
    } while (0)

#define SWITCH(get, set, key)                                                       \
    API nvmlReturn_t get(nvmlDevice_t device, nvmlEnableState_t *mode)              \
    {                                                                               \
        ENTER(device);                                                              \
        NEED(mode);                                                                 \
        *mode = sim_flag(device, key) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED; \
        return NVML_SUCCESS;                                                        \
    }                                                                               \
    API nvmlReturn_t set(nvmlDevice_t device, nvmlEnableState_t mode)               \
    {                                                                               \
        ENTER_SETTING(device);                                                      \
        if (mode != NVML_FEATURE_ENABLED && mode != NVML_FEATURE_DISABLED)          \
            return NVML_ERROR_INVALID_ARGUMENT;                                     \
        return sim_set_number(device, key, mode);                                   \
    }

SWITCH(nvmlDeviceGetPersistenceMode, nvmlDeviceSetPersistenceMode, "persistence_mode")
SWITCH(nvmlDeviceGetAccountingMode, nvmlDeviceSetAccountingMode, "accounting.mode")

API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    (void)pids;
    ENTER(device);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device)
{
    ENTER_SETTING(device);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    ENTER(device);
    NEED(mode);
    *mode = (nvmlComputeMode_t)sim_value(device, "compute_mode", NVML_COMPUTEMODE_DEFAULT);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
    ENTER_SETTING(device);
    if ((unsigned)mode >= NVML_COMPUTEMODE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD) /* went away with CUDA 8 */
        return NVML_ERROR_NOT_SUPPORTED;
    return sim_set_number(device, "compute_mode", mode);
}

/* --- power --- */

API nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int milliwatts)
{
    ENTER_SETTING(device);
    double watts = milliwatts / 1000.0;
    if (watts < sim_value(device, "power.min", 0) || watts > sim_value(device, "power.max", 0))
        return NVML_ERROR_INVALID_ARGUMENT;
    /* The draw may follow the limit: what was used until now is counted at the old one. */
    struct sim_change changes[] = {{.key = "power.limit"}, {.key = "energy.base"}, {.key = "energy.since"}};
    snprintf(changes[0].value, sizeof changes[0].value, "%.2f", watts);
    snprintf(changes[1].value, sizeof changes[1].value, "%.0f", sim_energy(device));
    snprintf(changes[2].value, sizeof changes[2].value, "%lld", (long long)time(NULL));
    return sim_change(device->slot, changes, 3) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

API nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, nvmlPowerValue_v2_t *power)
{
    ENTER(device);
    NEED(power);
    if (power->version != nvmlPowerValue_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (power->powerScope != NVML_POWER_SCOPE_GPU)
        return NVML_ERROR_NOT_SUPPORTED;
    return nvmlDeviceSetPowerManagementLimit(device, power->powerValueMw);
}

/* --- clocks --- */

static nvmlReturn_t set_two(nvmlDevice_t device, const char *one, unsigned first, const char *two, unsigned second)
{
    struct sim_change changes[] = {{.key = one}, {.key = two}};
    snprintf(changes[0].value, sizeof changes[0].value, "%u", first);
    snprintf(changes[1].value, sizeof changes[1].value, "%u", second);
    return sim_change(device->slot, changes, 2) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t forget_two(nvmlDevice_t device, const char *one, const char *two)
{
    struct sim_change changes[] = {{.key = one}, {.key = two}};
    return sim_change(device->slot, changes, 2) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

API nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int min, unsigned int max)
{
    ENTER_SETTING(device);
    if (min > max || !max)
        return NVML_ERROR_INVALID_ARGUMENT;
    return set_two(device, "clock.locked.min", min, "clock.locked.max", max);
}

API nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
    ENTER_SETTING(device);
    return forget_two(device, "clock.locked.min", "clock.locked.max");
}

API nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int min, unsigned int max)
{
    ENTER_SETTING(device);
    if (min > max || !max)
        return NVML_ERROR_INVALID_ARGUMENT;
    return set_two(device, "clock.locked_memory.min", min, "clock.locked_memory.max", max);
}

API nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
    ENTER_SETTING(device);
    return forget_two(device, "clock.locked_memory.min", "clock.locked_memory.max");
}

API nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memory, unsigned int graphics)
{
    unsigned clocks[512], count = 512, ignored;
    ENTER_SETTING(device);
    if (nvmlDeviceGetDefaultApplicationsClock(device, NVML_CLOCK_GRAPHICS, &ignored) != NVML_SUCCESS)
        return NVML_ERROR_NOT_SUPPORTED;
    if (nvmlDeviceGetSupportedGraphicsClocks(device, memory, &count, clocks) != NVML_SUCCESS)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < count; i++)
        if (clocks[i] == graphics)
            return set_two(device, "clock.memory.application", memory, "clock.graphics.application", graphics);
    return NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device)
{
    ENTER_SETTING(device);
    return forget_two(device, "clock.memory.application", "clock.graphics.application");
}

API nvmlReturn_t nvmlDeviceSetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type, int *celsius)
{
    ENTER_SETTING(device);
    NEED(celsius);
    double low, high;
    if (type != NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR || !sim_number(device->slot, "temperature.target_min", &low) ||
        !sim_number(device->slot, "temperature.target_max", &high))
        return NVML_ERROR_NOT_SUPPORTED;
    if (*celsius < low || *celsius > high)
        return NVML_ERROR_INVALID_ARGUMENT;
    return sim_set_number(device, "temperature.target", *celsius);
}

/* --- modes that wait for a GPU reset --- */

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
    double now;
    ENTER(device);
    NEED(current);
    NEED(pending);
    if (!sim_number(device->slot, "ecc.current", &now))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = now != 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    *pending = sim_value(device, "ecc.pending", now) != 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    double by_default;
    ENTER(device);
    NEED(mode);
    if (!sim_number(device->slot, "ecc.default", &by_default))
        return NVML_ERROR_NOT_SUPPORTED;
    *mode = by_default != 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
    double now;
    ENTER_SETTING(device);
    if (!sim_number(device->slot, "ecc.current", &now))
        return NVML_ERROR_NOT_SUPPORTED;
    if (mode != NVML_FEATURE_ENABLED && mode != NVML_FEATURE_DISABLED)
        return NVML_ERROR_INVALID_ARGUMENT;
    return sim_set_number(device, "ecc.pending", mode);
}

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    double now;
    ENTER(device);
    NEED(current);
    NEED(pending);
    if (!sim_number(device->slot, "mig.current", &now))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = now != 0;
    *pending = sim_value(device, "mig.pending", now) != 0;
    return NVML_SUCCESS;
}

/* Where the GPU needs no reset for it (mig.resetless) the mode changes at once, unless a process uses the GPU
 * or it is divided. */
API nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *status)
{
    double now;
    ENTER_SETTING(device);
    NEED(status);
    if (!sim_number(device->slot, "mig.current", &now))
        return NVML_ERROR_NOT_SUPPORTED;
    if (mode > NVML_DEVICE_MIG_ENABLE)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool busy = sim_in_use(device) || sim_mig_divided(device);
    struct sim_change changes[] = {{.key = "mig.pending"}, {.key = "mig.current"}};
    snprintf(changes[0].value, sizeof changes[0].value, "%u", mode);
    snprintf(changes[1].value, sizeof changes[1].value, "%u", mode);
    *status = busy ? NVML_ERROR_IN_USE : sim_flag(device, "mig.resetless") ? NVML_SUCCESS : NVML_ERROR_RESET_REQUIRED;
    return sim_change(device->slot, changes, *status == NVML_SUCCESS ? 2 : 1) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

/* --- draining, by PCI address --- */

static nvmlDevice_t by_address(const nvmlPciInfo_t *pci)
{
    nvmlPciInfo_t known;
    for (unsigned i = 0; pci && i < sim_gpu_count(); i++)
        if (nvmlDeviceGetPciInfo_v3(sim_gpu(i), &known) == NVML_SUCCESS && known.domain == pci->domain &&
            known.bus == pci->bus && known.device == pci->device)
            return sim_gpu(i);
    return NULL;
}

API nvmlReturn_t nvmlDeviceQueryDrainState(nvmlPciInfo_t *pci, nvmlEnableState_t *state)
{
    sim_trace(__func__);
    NEED(state);
    nvmlDevice_t device = by_address(pci);
    NEED(device);
    *state = sim_flag(device, "drain") ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceModifyDrainState(nvmlPciInfo_t *pci, nvmlEnableState_t state)
{
    nvmlDevice_t device = by_address(pci);
    ENTER_SETTING(device);
    return sim_set_number(device, "drain", state);
}
