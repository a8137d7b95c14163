/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * What one GPU is and does: identity, memory, PCIe, temperature, power, clocks, utilisation.
 */
#include "internal.h"

#include <stdlib.h>

/* --- identity: answered from the driver's memory, for a lost GPU too --- */

#define CACHED_TEXT(function, key)                                                      \
    API nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned int length)     \
    {                                                                                   \
        ENTER_CACHED(device);                                                           \
        return sim_get_text(device, key, text, length);                                 \
    }
#define TEXT(function, key)                                                             \
    API nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned int length)     \
    {                                                                                   \
        ENTER(device);                                                                  \
        return sim_get_text(device, key, text, length);                                 \
    }
#define NUMBER(function, key)                                                           \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *value)                 \
    {                                                                                   \
        ENTER(device);                                                                  \
        return sim_get_unsigned(device, key, value);                                    \
    }

/* MIG devices have a name and a UUID of their own. */
static nvmlReturn_t give(const char *own, char *text, unsigned length)
{
    NEED(text);
    return snprintf(text, length, "%s", own) < (int)length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned int length)
{
    char whole[160], name[96] = "";
    ENTER_EITHER(device, true);
    if (!mig.gpu)
        return sim_get_text(device, "name", text, length);
    sim_text(device->slot, "name", name, sizeof name);
    snprintf(whole, sizeof whole, "%s %s", name, mig.name);
    return give(whole, text, length);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int length)
{
    ENTER_EITHER(device, true);
    return mig.gpu ? give(mig.uuid, text, length) : sim_get_text(device, "uuid", text, length);
}

CACHED_TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetBoardPartNumber, "board.part_number")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom.image")

NUMBER(nvmlDeviceGetModuleId, "module_id")
NUMBER(nvmlDeviceGetMultiGpuBoard, "board.multi_gpu")
NUMBER(nvmlDeviceGetNumGpuCores, "cores")
NUMBER(nvmlDeviceGetMemoryBusWidth, "memory.bus_width")
NUMBER(nvmlDeviceGetIrqNum, "irq")
NUMBER(nvmlDeviceGetNumFans, "fan.count")
NUMBER(nvmlDeviceGetFanSpeed, "fan.speed")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.generation.max")
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.generation.gpu_max")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.width.max")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replays")
NUMBER(nvmlDeviceGetAccountingBufferSize, "accounting.buffer_size")

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    ENTER_EITHER(device, true);
    NEED(index);
    if (mig.gpu) {
        *index = mig.index;
        return NVML_SUCCESS;
    }
    return sim_index(device, index) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* Minors count the GPUs that the driver found, those hidden from this process included. */
API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    ENTER_CACHED(device);
    NEED(minor);
    if (!sim_text(SIM_MACHINE, "driver.gpus", list, sizeof list))
        return NVML_ERROR_UNKNOWN;
    *minor = 0;
    for (char *item; (item = strtok_r(rest, ",", &rest)); ++*minor)
        if (atoi(item) == device->slot)
            return NVML_SUCCESS;
    return NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t named(nvmlDevice_t device, const char *key, const char *const *names, size_t count, unsigned *value)
{
    char text[64];
    nvmlReturn_t result = sim_get_text(device, key, text, sizeof text);
    NEED(value);
    if (result != NVML_SUCCESS)
        return result;
    for (size_t i = 0; i < count; i++)
        if (names[i] && strcmp(names[i], text) == 0) {
            *value = (unsigned)i;
            return NVML_SUCCESS;
        }
    return NVML_ERROR_UNKNOWN;
}

API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type)
{
    static const char *const brands[] = {
        [NVML_BRAND_QUADRO] = "quadro",         [NVML_BRAND_TESLA] = "tesla",
        [NVML_BRAND_GEFORCE] = "geforce",       [NVML_BRAND_TITAN] = "titan",
        [NVML_BRAND_QUADRO_RTX] = "quadro_rtx", [NVML_BRAND_NVIDIA_RTX] = "nvidia_rtx",
        [NVML_BRAND_NVIDIA] = "nvidia",         [NVML_BRAND_GEFORCE_RTX] = "geforce_rtx",
    };
    unsigned value;
    ENTER(device);
    NEED(type);
    nvmlReturn_t result = named(device, "brand", brands, sizeof brands / sizeof *brands, &value);
    if (result == NVML_SUCCESS)
        *type = (nvmlBrandType_t)value;
    return result;
}

API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture)
{
    static const char *const names[] = {
        [NVML_DEVICE_ARCH_VOLTA] = "volta", [NVML_DEVICE_ARCH_TURING] = "turing", [NVML_DEVICE_ARCH_AMPERE] = "ampere",
        [NVML_DEVICE_ARCH_ADA] = "ada",     [NVML_DEVICE_ARCH_HOPPER] = "hopper", [10] = "blackwell",
    };
    ENTER(device);
    return named(device, "architecture", names, sizeof names / sizeof *names, architecture);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    char text[32];
    ENTER(device);
    NEED(major);
    NEED(minor);
    nvmlReturn_t result = sim_get_text(device, "compute_capability", text, sizeof text);
    if (result != NVML_SUCCESS)
        return result;
    return sscanf(text, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

static void address(nvmlDevice_t device, unsigned *domain, unsigned *bus, unsigned *slot)
{
    char text[32] = "";
    *domain = *bus = *slot = 0;
    sim_text(device->slot, "pci.bus_id", text, sizeof text);
    sscanf(text, "%x:%x:%x", domain, bus, slot);
}

static unsigned hexadecimal(nvmlDevice_t device, const char *key)
{
    char text[32] = "";
    sim_text(device->slot, key, text, sizeof text);
    return (unsigned)strtoul(text, NULL, 16);
}

/* The board's number that nvidia-smi prints is bus and slot, 0x1800 for 18:00.0. */
API nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *id)
{
    unsigned domain, bus, slot;
    ENTER(device);
    NEED(id);
    address(device, &domain, &bus, &slot);
    *id = bus << 8 | slot;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTER_CACHED(device);
    NEED(pci);
    memset(pci, 0, sizeof *pci);
    address(device, &pci->domain, &pci->bus, &pci->device);
    pci->pciDeviceId = hexadecimal(device, "pci.device_id");
    pci->pciSubSystemId = hexadecimal(device, "pci.subsystem_id");
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff, pci->device & 0xff);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
    nvmlPciInfo_t known;
    ENTER_CACHED(device);
    NEED(pci);
    nvmlDeviceGetPciInfo_v3(device, &known);
    pci->domain = known.domain;
    pci->bus = known.bus;
    pci->device = known.device;
    pci->pciDeviceId = known.pciDeviceId;
    pci->pciSubSystemId = known.pciSubSystemId;
    unsigned class_code = hexadecimal(device, "pci.class");
    pci->baseClass = class_code >> 16;
    pci->subClass = class_code >> 8 & 0xff;
    memcpy(pci->busId, known.busId, sizeof pci->busId);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t *type)
{
    ENTER(device);
    NEED(type);
    *type = NVML_BUS_TYPE_PCIE;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object, char *text, unsigned int length)
{
    static const char *const keys[NVML_INFOROM_COUNT] = {"inforom.oem", "inforom.ecc", "inforom.power"};
    ENTER(device);
    if ((unsigned)object >= NVML_INFOROM_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    return sim_get_text(device, keys[object], text, length);
}

API nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device)
{
    ENTER(device);
    return sim_flag(device, "inforom.corrupted") ? NVML_ERROR_CORRUPTED_INFOROM : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t device, unsigned int *checksum)
{
    ENTER(device);
    NEED(checksum);
    *checksum = 0x5117 + (unsigned)device->slot;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled, unsigned int *by_default)
{
    ENTER(device);
    NEED(enabled);
    NEED(by_default);
    *enabled = *by_default = sim_flag(device, "gsp");
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    ENTER(device);
    if (!sim_flag(device, "gsp"))
        return NVML_ERROR_NOT_SUPPORTED;
    return nvmlSystemGetDriverVersion(version, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}

API nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode)
{
    ENTER(device);
    NEED(mode);
    *mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    ENTER(device);
    NEED(mode);
    *mode = NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *active)
{
    return nvmlDeviceGetDisplayMode(device, active);
}

/* --- memory --- */

struct memory {
    unsigned long long total, reserved, used, free;
};

static bool memory_of(nvmlDevice_t device, const struct sim_mig_device *mig, struct memory *memory)
{
    double total;
    if (mig->gpu) {
        *memory = (struct memory){.total = mig->mib * MIB, .free = mig->mib * MIB};
        return true;
    }
    if (!sim_number(device->slot, "memory.total", &total))
        return false;
    memory->total = (unsigned long long)total * MIB;
    memory->reserved = (unsigned long long)sim_value(device, "memory.reserved", 0) * MIB;
    memory->used = (unsigned long long)sim_value(device, "memory.used", 0) * MIB;
    unsigned long long taken = memory->reserved + memory->used;
    memory->free = taken < memory->total ? memory->total - taken : 0;
    return true;
}

/* The first version counts reserved memory as used. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    struct memory memory;
    ENTER_EITHER(device, false);
    NEED(info);
    if (!memory_of(device, &mig, &memory))
        return NVML_ERROR_NOT_SUPPORTED;
    info->total = memory.total;
    info->free = memory.free;
    info->used = memory.total - memory.free;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    struct memory memory;
    ENTER_EITHER(device, false);
    NEED(info);
    if (info->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!memory_of(device, &mig, &memory))
        return NVML_ERROR_NOT_SUPPORTED;
    info->total = memory.total;
    info->reserved = memory.reserved;
    info->free = memory.free;
    info->used = memory.used;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *info)
{
    double total;
    ENTER_EITHER(device, false);
    NEED(info);
    if (!sim_number(device->slot, "bar1.total", &total))
        return NVML_ERROR_NOT_SUPPORTED;
    info->bar1Total = (unsigned long long)(mig.gpu ? total * mig.part : total) * MIB;
    info->bar1Used = mig.gpu ? 0 : (unsigned long long)sim_value(device, "bar1.used", 0) * MIB;
    info->bar1Free = info->bar1Total - info->bar1Used;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory)
{
    ENTER(device);
    NEED(memory);
    memset(memory, 0, sizeof *memory);
    return NVML_SUCCESS;
}

/* --- PCIe --- */

API nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    ENTER(device);
    if (sim_get_unsigned(device, "pcie.generation.current", generation) == NVML_SUCCESS)
        return NVML_SUCCESS;
    return sim_get_unsigned(device, sim_load(device) > 0 ? "pcie.generation.max" : "pcie.generation.idle", generation);
}

API nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    ENTER(device);
    if (sim_get_unsigned(device, "pcie.width.current", width) == NVML_SUCCESS)
        return NVML_SUCCESS;
    return sim_get_unsigned(device, "pcie.width.max", width);
}

/* Megabytes per second of one lane, by generation. */
API nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int *speed)
{
    static const unsigned rates[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    unsigned generation;
    nvmlReturn_t result = nvmlDeviceGetCurrPcieLinkGeneration(device, &generation);
    NEED(speed);
    if (result != NVML_SUCCESS)
        return result;
    if (generation >= sizeof rates / sizeof *rates)
        return NVML_ERROR_UNKNOWN;
    *speed = rates[generation];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *value)
{
    ENTER(device);
    if ((unsigned)counter >= NVML_PCIE_UTIL_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    return sim_get_unsigned(device, counter == NVML_PCIE_UTIL_TX_BYTES ? "pcie.tx" : "pcie.rx", value);
}

/* --- temperature and fans --- */

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius)
{
    ENTER(device);
    NEED(celsius);
    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = (unsigned)sim_temperature(device);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type, unsigned int *celsius)
{
    static const char *const keys[NVML_TEMPERATURE_THRESHOLD_COUNT] = {
        [NVML_TEMPERATURE_THRESHOLD_SHUTDOWN] = "temperature.shutdown",
        [NVML_TEMPERATURE_THRESHOLD_SLOWDOWN] = "temperature.slowdown",
        [NVML_TEMPERATURE_THRESHOLD_MEM_MAX] = "temperature.memory_max",
        [NVML_TEMPERATURE_THRESHOLD_GPU_MAX] = "temperature.gpu_max",
        [NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN] = "temperature.target_min",
        [NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR] = "temperature.target",
        [NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX] = "temperature.target_max",
    };
    ENTER(device);
    if ((unsigned)type >= NVML_TEMPERATURE_THRESHOLD_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    return sim_get_unsigned(device, keys[type], celsius);
}

API nvmlReturn_t nvmlDeviceGetThermalSettings(nvmlDevice_t device, unsigned int sensor, nvmlGpuThermalSettings_t *settings)
{
    (void)sensor;
    ENTER(device);
    NEED(settings);
    memset(settings, 0, sizeof *settings);
    settings->count = 1;
    settings->sensor[0].controller = NVML_THERMAL_CONTROLLER_GPU_INTERNAL;
    settings->sensor[0].target = NVML_THERMAL_TARGET_GPU;
    settings->sensor[0].currentTemp = (int)sim_temperature(device);
    settings->sensor[0].defaultMaxTemp = (int)sim_value(device, "temperature.shutdown", 0);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed)
{
    ENTER(device);
    if (fan >= sim_value(device, "fan.count", 0))
        return sim_flag(device, "fan.count") ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    return sim_get_unsigned(device, "fan.speed", speed);
}

/* --- power --- */

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    ENTER(device);
    NEED(milliwatts);
    *milliwatts = (unsigned)(sim_power_draw(device) * 1000 + 0.5);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    ENTER(device);
    NEED(milliwatts);
    *milliwatts = (unsigned)(sim_power_limit(device) * 1000 + 0.5);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

API nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    ENTER(device);
    return sim_get_scaled(device, "power.default", 1000, milliwatts);
}

API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *min, unsigned int *max)
{
    ENTER(device);
    nvmlReturn_t result = sim_get_scaled(device, "power.min", 1000, min);
    return result == NVML_SUCCESS ? sim_get_scaled(device, "power.max", 1000, max) : result;
}

API nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    ENTER(device);
    NEED(mode);
    *mode = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules)
{
    ENTER(device);
    NEED(millijoules);
    *millijoules = (unsigned long long)(sim_energy(device) * 1000);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, nvmlPowerSource_t *source)
{
    ENTER(device);
    NEED(source);
    *source = NVML_POWER_SOURCE_AC;
    return NVML_SUCCESS;
}

/* --- clocks and performance --- */

API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state)
{
    unsigned value;
    ENTER(device);
    NEED(state);
    if (sim_get_unsigned(device, sim_load(device) > 0 ? "pstate.load" : "pstate.idle", &value) != NVML_SUCCESS)
        return NVML_ERROR_NOT_SUPPORTED;
    *state = (nvmlPstates_t)value;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *state)
{
    return nvmlDeviceGetPerformanceState(device, state);
}

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    ENTER(device);
    NEED(mhz);
    if ((unsigned)type >= NVML_CLOCK_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mhz = sim_clock(device, type);
    return *mhz ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static const char *clock_key(nvmlClockType_t type, const char *graphics, const char *memory, const char *video)
{
    return type == NVML_CLOCK_MEM ? memory : type == NVML_CLOCK_VIDEO ? video : graphics;
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    ENTER(device);
    return sim_get_unsigned(device, clock_key(type, "clock.graphics.max", "clock.memory.max", "clock.video.max"), mhz);
}

API nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    ENTER(device);
    if (type != NVML_CLOCK_GRAPHICS && type != NVML_CLOCK_SM)
        return NVML_ERROR_NOT_SUPPORTED;
    return sim_get_unsigned(device, "clock.graphics.customer_boost", mhz);
}

API nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    ENTER(device);
    return sim_get_unsigned(
        device, clock_key(type, "clock.graphics.application_default", "clock.memory.application_default", "none"), mhz);
}

API nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    nvmlReturn_t result = nvmlDeviceGetDefaultApplicationsClock(device, type, mhz);
    if (result == NVML_SUCCESS)
        (void)sim_get_unsigned(device, clock_key(type, "clock.graphics.application", "clock.memory.application", "none"), mhz);
    return result;
}

API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned int *mhz)
{
    switch (id) {
    case NVML_CLOCK_ID_CURRENT: return nvmlDeviceGetClockInfo(device, type, mhz);
    case NVML_CLOCK_ID_APP_CLOCK_TARGET: return nvmlDeviceGetApplicationsClock(device, type, mhz);
    case NVML_CLOCK_ID_APP_CLOCK_DEFAULT: return nvmlDeviceGetDefaultApplicationsClock(device, type, mhz);
    case NVML_CLOCK_ID_CUSTOMER_BOOST_MAX: return nvmlDeviceGetMaxCustomerBoostClock(device, type, mhz);
    default: return NVML_ERROR_INVALID_ARGUMENT;
    }
}

static nvmlReturn_t listed(unsigned *count, unsigned room, unsigned needed)
{
    *count = needed;
    return needed > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *clocks)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    unsigned needed = 0;
    ENTER(device);
    NEED(count);
    nvmlReturn_t result = sim_get_text(device, "clock.memory.supported", list, sizeof list);
    if (result != NVML_SUCCESS)
        return result;
    for (char *item; (item = strtok_r(rest, ",", &rest)); needed++)
        if (clocks && needed < *count)
            clocks[needed] = (unsigned)atoi(item);
    return listed(count, clocks ? *count : 0, needed);
}

API nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory, unsigned int *count,
                                                      unsigned int *clocks)
{
    unsigned needed = 0, step, supported[32], memory_count = 32;
    ENTER(device);
    NEED(count);
    nvmlReturn_t result = nvmlDeviceGetSupportedMemoryClocks(device, &memory_count, supported);
    if (result != NVML_SUCCESS)
        return result;
    bool known = false;
    for (unsigned i = 0; i < memory_count; i++)
        known = known || supported[i] == memory;
    if (!known)
        return NVML_ERROR_NOT_FOUND;
    if (sim_get_unsigned(device, "clock.graphics.step", &step) != NVML_SUCCESS || !step)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned most = (unsigned)sim_value(device, "clock.graphics.max", 0);
    unsigned least = (unsigned)sim_value(device, "clock.graphics.min", 0);
    for (unsigned mhz = most; mhz >= least && mhz; mhz = mhz > step ? mhz - step : 0, needed++)
        if (clocks && needed < *count)
            clocks[needed] = mhz;
    return listed(count, clocks ? *count : 0, needed);
}

API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    ENTER(device);
    NEED(reasons);
    *reasons = sim_throttle_reasons(device);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons);
}

API nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    ENTER(device);
    NEED(reasons);
    *reasons = 0x1ff;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return nvmlDeviceGetSupportedClocksThrottleReasons(device, reasons);
}

API nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *time)
{
    static const char *const keys[NVML_PERF_POLICY_COUNT] = {
        [NVML_PERF_POLICY_POWER] = "violation.power",
        [NVML_PERF_POLICY_THERMAL] = "violation.thermal",
        [NVML_PERF_POLICY_SYNC_BOOST] = "violation.sync_boost",
        [NVML_PERF_POLICY_BOARD_LIMIT] = "violation.board_limit",
        [NVML_PERF_POLICY_LOW_UTILIZATION] = "violation.low_utilization",
        [NVML_PERF_POLICY_RELIABILITY] = "violation.reliability",
        [NVML_PERF_POLICY_TOTAL_APP_CLOCKS] = "violation.application_clocks",
        [NVML_PERF_POLICY_TOTAL_BASE_CLOCKS] = "violation.base_clocks",
    };
    ENTER(device);
    NEED(time);
    if ((unsigned)policy >= NVML_PERF_POLICY_COUNT || !keys[policy])
        return NVML_ERROR_INVALID_ARGUMENT;
    time->referenceTime = (unsigned long long)sim_value(device, "energy.since", 0) * 1000000ULL;
    time->violationTime = (unsigned long long)sim_value(device, keys[policy], 0);
    return NVML_SUCCESS;
}

/* --- utilisation --- */

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    ENTER(device);
    NEED(rates);
    if (sim_flag(device, "mig.current")) /* there is none for the whole GPU then */
        return NVML_ERROR_NOT_SUPPORTED;
    rates->gpu = (unsigned)sim_value(device, "utilization.gpu", 0);
    rates->memory = (unsigned)sim_value(device, "utilization.memory", 0);
    return NVML_SUCCESS;
}

#define SAMPLED(function, key)                                                                      \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *percent, unsigned int *period)     \
    {                                                                                               \
        ENTER(device);                                                                              \
        NEED(percent);                                                                              \
        NEED(period);                                                                               \
        if (sim_flag(device, "mig.current"))                                                        \
            return NVML_ERROR_NOT_SUPPORTED;                                                        \
        *percent = (unsigned)sim_value(device, key, 0);                                             \
        *period = 167000;                                                                           \
        return NVML_SUCCESS;                                                                        \
    }

SAMPLED(nvmlDeviceGetEncoderUtilization, "utilization.encoder")
SAMPLED(nvmlDeviceGetDecoderUtilization, "utilization.decoder")
SAMPLED(nvmlDeviceGetJpgUtilization, "utilization.jpeg")
SAMPLED(nvmlDeviceGetOfaUtilization, "utilization.ofa")

API nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions, unsigned int *fps, unsigned int *latency)
{
    ENTER(device);
    NEED(sessions);
    NEED(fps);
    NEED(latency);
    *sessions = *fps = *latency = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *stats)
{
    ENTER(device);
    NEED(stats);
    memset(stats, 0, sizeof *stats);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count, nvmlEncoderSessionInfo_t *sessions)
{
    (void)sessions;
    ENTER(device);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count, nvmlFBCSessionInfo_t *sessions)
{
    (void)sessions;
    ENTER(device);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long last_seen,
                                      nvmlValueType_t *value_type, unsigned int *count, nvmlSample_t *samples)
{
    unsigned value;
    ENTER(device);
    NEED(value_type);
    NEED(count);
    switch (type) {
    case NVML_TOTAL_POWER_SAMPLES: value = (unsigned)(sim_power_draw(device) * 1000); break;
    case NVML_GPU_UTILIZATION_SAMPLES: value = (unsigned)sim_value(device, "utilization.gpu", 0); break;
    case NVML_MEMORY_UTILIZATION_SAMPLES: value = (unsigned)sim_value(device, "utilization.memory", 0); break;
    case NVML_ENC_UTILIZATION_SAMPLES: value = (unsigned)sim_value(device, "utilization.encoder", 0); break;
    case NVML_DEC_UTILIZATION_SAMPLES: value = (unsigned)sim_value(device, "utilization.decoder", 0); break;
    case NVML_PROCESSOR_CLK_SAMPLES: value = sim_clock(device, NVML_CLOCK_SM); break;
    case NVML_MEMORY_CLK_SAMPLES: value = sim_clock(device, NVML_CLOCK_MEM); break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples) {
        *count = 1;
        return NVML_SUCCESS;
    }
    if (*count < 1)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    *count = 1;
    samples[0].timeStamp = last_seen + 1;
    samples[0].sampleValue.uiVal = value;
    return NVML_SUCCESS;
}
