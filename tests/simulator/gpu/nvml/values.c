/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * From keys to values: reading, setting, and what follows from other values.
 */
#include "internal.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

nvmlReturn_t sim_get_text(nvmlDevice_t device, const char *key, char *text, unsigned length)
{
    char value[SIM_VALUE_SIZE];
    NEED(text);
    if (!sim_text(device->slot, key, value, sizeof value))
        return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(value) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(text, value);
    return NVML_SUCCESS;
}

nvmlReturn_t sim_get_scaled(nvmlDevice_t device, const char *key, double scale, unsigned *value)
{
    double number;
    NEED(value);
    if (!sim_number(device->slot, key, &number))
        return NVML_ERROR_NOT_SUPPORTED;
    *value = (unsigned)(number * scale + 0.5);
    return NVML_SUCCESS;
}

nvmlReturn_t sim_get_unsigned(nvmlDevice_t device, const char *key, unsigned *value)
{
    return sim_get_scaled(device, key, 1, value);
}

nvmlReturn_t sim_get_long(nvmlDevice_t device, const char *key, unsigned long long *value)
{
    double number;
    NEED(value);
    if (!sim_number(device->slot, key, &number))
        return NVML_ERROR_NOT_SUPPORTED;
    *value = (unsigned long long)number;
    return NVML_SUCCESS;
}

double sim_value(nvmlDevice_t device, const char *key, double otherwise)
{
    double number;
    return sim_number(device->slot, key, &number) ? number : otherwise;
}

bool sim_flag(nvmlDevice_t device, const char *key) { return sim_value(device, key, 0) != 0; }

nvmlReturn_t sim_may_set(void) { return geteuid() == 0 ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION; }

nvmlReturn_t sim_set_text(nvmlDevice_t device, const char *key, const char *value)
{
    struct sim_change change = {.key = key};
    snprintf(change.value, sizeof change.value, "%s", value);
    return sim_change(device->slot, &change, 1) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t sim_set_number(nvmlDevice_t device, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.10g", value);
    return sim_set_text(device, key, text);
}

double sim_load(nvmlDevice_t device) { return sim_value(device, "utilization.gpu", 0) / 100; }

static double between(nvmlDevice_t device, const char *idle, const char *busy)
{
    double low = sim_value(device, idle, 0);
    return low + (sim_value(device, busy, low) - low) * sim_load(device);
}

double sim_power_limit(nvmlDevice_t device)
{
    return sim_value(device, "power.limit", sim_value(device, "power.default", 0));
}

double sim_power_draw(nvmlDevice_t device)
{
    double watts, limit = sim_power_limit(device);
    if (sim_number(device->slot, "power.draw", &watts))
        return watts;
    watts = between(device, "power.idle", "power.load");
    return watts > limit ? limit : watts;
}

double sim_energy(nvmlDevice_t device)
{
    double since = sim_value(device, "energy.since", 0);
    if (!since && !sim_number(SIM_MACHINE, "driver.loaded_at", &since))
        return 0;
    double elapsed = (double)time(NULL) - since;
    return sim_value(device, "energy.base", 0) + (elapsed > 0 ? elapsed : 0) * sim_power_draw(device);
}

double sim_temperature(nvmlDevice_t device)
{
    double celsius;
    return sim_number(device->slot, "temperature.gpu", &celsius)
               ? celsius
               : between(device, "temperature.idle", "temperature.load");
}

bool sim_memory_temperature(nvmlDevice_t device, double *celsius)
{
    if (sim_number(device->slot, "temperature.memory", celsius))
        return true;
    *celsius = between(device, "temperature.memory_idle", "temperature.memory_load");
    return *celsius > 0;
}

static const struct {
    const char *name;
    unsigned long long bit;
} throttle_names[] = {
    {"idle", nvmlClocksThrottleReasonGpuIdle},
    {"applications_clocks", nvmlClocksThrottleReasonApplicationsClocksSetting},
    {"sw_power_cap", nvmlClocksThrottleReasonSwPowerCap},
    {"hw_slowdown", nvmlClocksThrottleReasonHwSlowdown},
    {"sync_boost", nvmlClocksThrottleReasonSyncBoost},
    {"sw_thermal", nvmlClocksThrottleReasonSwThermalSlowdown},
    {"hw_thermal", nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksThrottleReasonHwSlowdown},
    {"hw_power_brake", nvmlClocksThrottleReasonHwPowerBrakeSlowdown | nvmlClocksThrottleReasonHwSlowdown},
    {"display", nvmlClocksThrottleReasonDisplayClockSetting},
};

unsigned long long sim_throttle_reasons(nvmlDevice_t device)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    unsigned long long reasons = 0;
    if (!sim_text(device->slot, "throttle", list, sizeof list)) {
        if (sim_load(device) == 0)
            return nvmlClocksThrottleReasonGpuIdle;
        double wanted = between(device, "power.idle", "power.load");
        return wanted > sim_power_limit(device) ? nvmlClocksThrottleReasonSwPowerCap : nvmlClocksThrottleReasonNone;
    }
    for (char *item; (item = strtok_r(rest, ",", &rest));)
        for (size_t i = 0; i < sizeof throttle_names / sizeof *throttle_names; i++)
            if (strcmp(item, throttle_names[i].name) == 0)
                reasons |= throttle_names[i].bit;
    return reasons;
}

static const char *const clock_names[NVML_CLOCK_COUNT] = {"graphics", "graphics", "memory", "video"};

unsigned sim_clock(nvmlDevice_t device, nvmlClockType_t type)
{
    char idle[48], busy[48], explicit_key[48];
    double mhz;
    if ((unsigned)type >= NVML_CLOCK_COUNT)
        return 0;
    snprintf(explicit_key, sizeof explicit_key, "clock.%s.current", clock_names[type]);
    if (sim_number(device->slot, explicit_key, &mhz))
        return (unsigned)mhz;
    snprintf(idle, sizeof idle, "clock.%s.idle", clock_names[type]);
    snprintf(busy, sizeof busy, "clock.%s.max", clock_names[type]);
    mhz = sim_load(device) > 0 ? sim_value(device, busy, 0) : sim_value(device, idle, 0);
    if (type == NVML_CLOCK_MEM || type == NVML_CLOCK_VIDEO)
        return (unsigned)mhz;
    /* Locked clocks hold while the GPU works; an idle GPU rises to their lower end. */
    double low = sim_value(device, "clock.locked.min", 0), high = sim_value(device, "clock.locked.max", 0);
    double most = sim_value(device, busy, 0), least = sim_value(device, "clock.graphics.min", 0);
    if (high > 0) {
        low = low > most ? most : low < least ? least : low;
        high = high > most ? most : high < least ? least : high;
        mhz = mhz < low ? low : mhz > high ? high : mhz;
    }
    if (sim_throttle_reasons(device) & (nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown))
        mhz = mhz / 2 > least ? mhz / 2 : least;
    return (unsigned)mhz;
}

unsigned long sim_last_xid(void)
{
    struct sim_xid xid = {0};
    while (sim_next_xid(xid.sequence, &xid))
        ;
    return xid.sequence;
}

bool sim_next_xid(unsigned long sequence, struct sim_xid *xid)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    if (!sim_text(SIM_MACHINE, "xid.events", list, sizeof list))
        return false;
    for (char *item; (item = strtok_r(rest, ",", &rest));) {
        struct sim_xid found;
        if (sscanf(item, "%lu:%d:%u", &found.sequence, &found.slot, &found.code) == 3 && found.sequence > sequence) {
            *xid = found;
            return true;
        }
    }
    return false;
}
