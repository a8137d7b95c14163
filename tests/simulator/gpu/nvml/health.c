/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * Errors and repairs of memory, and the numbered fields.
 */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

/* --- ECC: keys ecc.LIFETIME.TYPE.LOCATION --- */

static bool ecc_on(nvmlDevice_t device) { return sim_flag(device, "ecc.current"); }

unsigned long long sim_ecc_errors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime,
                                  const char *location)
{
    char key[80];
    snprintf(key, sizeof key, "ecc.%s.%s.%s", lifetime == NVML_VOLATILE_ECC ? "volatile" : "aggregate",
             type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? "corrected" : "uncorrected", location);
    return (unsigned long long)sim_value(device, key, 0);
}

static unsigned long long ecc_total(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime)
{
    return sim_ecc_errors(device, type, lifetime, "dram") + sim_ecc_errors(device, type, lifetime, "sram");
}

static bool ecc_arguments(nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime)
{
    return (unsigned)type < NVML_MEMORY_ERROR_TYPE_COUNT && (unsigned)lifetime < NVML_ECC_COUNTER_TYPE_COUNT;
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime,
                                             unsigned long long *count)
{
    ENTER(device);
    NEED(count);
    if (!ecc_arguments(type, lifetime))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!ecc_on(device))
        return NVML_ERROR_NOT_SUPPORTED;
    *count = ecc_total(device, type, lifetime);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                                 nvmlEccCounterType_t lifetime, nvmlMemoryLocation_t location,
                                                 unsigned long long *count)
{
    ENTER_EITHER(device, false);
    NEED(count);
    if (!ecc_arguments(type, lifetime))
        return NVML_ERROR_INVALID_ARGUMENT;
    /* Since Ampere the counters are those of DRAM and SRAM; the older places are not told apart. The parts that MIG makes
     * of a GPU show what the whole has. */
    if (!ecc_on(device) || (location != NVML_MEMORY_LOCATION_DRAM && location != NVML_MEMORY_LOCATION_SRAM))
        return NVML_ERROR_NOT_SUPPORTED;
    *count = sim_ecc_errors(device, type, lifetime, location == NVML_MEMORY_LOCATION_DRAM ? "dram" : "sram");
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status)
{
    ENTER(device);
    NEED(status);
    if (status->version != nvmlEccSramErrorStatus_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!ecc_on(device) || !sim_flag(device, "ecc.sram_status"))
        return NVML_ERROR_NOT_SUPPORTED;
    memset(status, 0, sizeof *status);
    status->version = nvmlEccSramErrorStatus_v1;
    status->volatileCor = sim_ecc_errors(device, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, "sram");
    status->aggregateCor = sim_ecc_errors(device, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC, "sram");
    status->volatileUncSecDed = sim_ecc_errors(device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, "sram");
    status->aggregateUncSecDed = sim_ecc_errors(device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC, "sram");
    status->aggregateUncBucketL2 = status->aggregateUncSecDed;
    status->bThresholdExceeded = sim_flag(device, "ecc.sram_threshold_exceeded");
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t lifetime)
{
    ENTER(device);
    nvmlReturn_t allowed = sim_may_set();
    if (allowed != NVML_SUCCESS)
        return allowed;
    if ((unsigned)lifetime >= NVML_ECC_COUNTER_TYPE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!ecc_on(device))
        return NVML_ERROR_NOT_SUPPORTED;
    struct sim_change volatile_keys[] = {{.key = "ecc.volatile.corrected.dram"},
                                         {.key = "ecc.volatile.corrected.sram"},
                                         {.key = "ecc.volatile.uncorrected.dram"},
                                         {.key = "ecc.volatile.uncorrected.sram"}};
    struct sim_change aggregate_keys[] = {{.key = "ecc.aggregate.corrected.dram"},
                                          {.key = "ecc.aggregate.corrected.sram"},
                                          {.key = "ecc.aggregate.uncorrected.dram"},
                                          {.key = "ecc.aggregate.uncorrected.sram"}};
    return sim_change(device->slot, lifetime == NVML_VOLATILE_ECC ? volatile_keys : aggregate_keys, 4)
               ? NVML_SUCCESS
               : NVML_ERROR_UNKNOWN;
}

/* --- row remapping --- */

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                           unsigned int *pending, unsigned int *failure)
{
    ENTER(device);
    NEED(correctable);
    NEED(uncorrectable);
    NEED(pending);
    NEED(failure);
    if (sim_flag(device, "mig.current") || sim_get_unsigned(device, "remapped.correctable", correctable) != NVML_SUCCESS)
        return NVML_ERROR_NOT_SUPPORTED;
    *uncorrectable = (unsigned)sim_value(device, "remapped.uncorrectable", 0);
    *pending = sim_flag(device, "remapped.pending");
    *failure = sim_flag(device, "remapped.failure");
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *banks)
{
    ENTER(device);
    NEED(banks);
    if (sim_get_unsigned(device, "remapped.banks.max", &banks->max) != NVML_SUCCESS)
        return NVML_ERROR_NOT_SUPPORTED;
    banks->high = (unsigned)sim_value(device, "remapped.banks.high", 0);
    banks->partial = (unsigned)sim_value(device, "remapped.banks.partial", 0);
    banks->low = (unsigned)sim_value(device, "remapped.banks.low", 0);
    banks->none = (unsigned)sim_value(device, "remapped.banks.none", 0);
    return NVML_SUCCESS;
}

/* --- numbered fields --- */

/* Known to drivers newer than the nvml.h that this is built with (NVML API reference, "Field Value Enums"). */
#define FIELD_RESET_STATUS 226
#define FIELD_DRAIN_AND_RESET_STATUS 227
#define FIELD_RECOVERY_ACTION 230
/* The same two under the numbers that drivers 535 and 550 gave them. */
#define FIELD_RESET_STATUS_550 197
#define FIELD_DRAIN_AND_RESET_STATUS_550 198

static const char *const recovery_actions[] = {"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset"};

static unsigned recovery_action(nvmlDevice_t device)
{
    char text[32] = "";
    sim_text(device->slot, "recovery_action", text, sizeof text);
    for (unsigned i = 0; i < sizeof recovery_actions / sizeof *recovery_actions; i++)
        if (strcmp(text, recovery_actions[i]) == 0)
            return i;
    return 0;
}

static void put_unsigned(nvmlFieldValue_t *field, double value)
{
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.ullVal = 0;
    field->value.uiVal = (unsigned)value;
    field->nvmlReturn = NVML_SUCCESS;
}

static void put_long(nvmlFieldValue_t *field, double value)
{
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field->value.ullVal = (unsigned long long)value;
    field->nvmlReturn = NVML_SUCCESS;
}

static void put_signed(nvmlFieldValue_t *field, double value)
{
    field->valueType = NVML_VALUE_TYPE_SIGNED_INT;
    field->value.ullVal = 0;
    field->value.siVal = (int)value;
    field->nvmlReturn = NVML_SUCCESS;
}

/* Fields that are one key. */
static const struct {
    unsigned id;
    const char *key;
    double scale;
} plain_fields[] = {
    {NVML_FI_DEV_ECC_CURRENT, "ecc.current", 1},
    {NVML_FI_DEV_REMAPPED_COR, "remapped.correctable", 1},
    {NVML_FI_DEV_REMAPPED_UNC, "remapped.uncorrectable", 1},
    {NVML_FI_DEV_REMAPPED_PENDING, "remapped.pending", 1},
    {NVML_FI_DEV_REMAPPED_FAILURE, "remapped.failure", 1},
    {NVML_FI_DEV_PCIE_REPLAY_COUNTER, "pcie.replays", 1},
    {NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER, "pcie.replay_rollovers", 1},
    {NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, "pcie.errors.correctable", 1},
    {NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, "pcie.errors.non_fatal", 1},
    {NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR, "pcie.errors.fatal", 1},
    {NVML_FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ, "pcie.errors.unsupported_requests", 1},
    {NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER, "pcie.errors.l0_to_recovery", 1},
    {NVML_FI_DEV_POWER_MIN_LIMIT, "power.min", 1000},
    {NVML_FI_DEV_POWER_MAX_LIMIT, "power.max", 1000},
    {NVML_FI_DEV_POWER_DEFAULT_LIMIT, "power.default", 1000},
    {NVML_FI_DEV_NVLINK_LINK_COUNT, "nvlink.count", 1},
    {NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, "nvlink.speed", 1},
    {NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, "mig.resetless", 1},
    {NVML_FI_DEV_PERF_POLICY_POWER, "violation.power", 1},
    {NVML_FI_DEV_PERF_POLICY_THERMAL, "violation.thermal", 1},
    {NVML_FI_DEV_PERF_POLICY_SYNC_BOOST, "violation.sync_boost", 1},
    {NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT, "violation.board_limit", 1},
    {NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION, "violation.low_utilization", 1},
    {NVML_FI_DEV_PERF_POLICY_RELIABILITY, "violation.reliability", 1},
};

/* Temperatures below the limit ("T.Limit"): the distance to temperature.gpu_max or memory_max. */
static const struct {
    unsigned id;
    const char *from, *to;
} limit_fields[] = {
    {NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, "temperature.gpu_max", "temperature.shutdown"},
    {NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, "temperature.gpu_max", "temperature.slowdown"},
    {NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, "temperature.gpu_max", "temperature.gpu_max"},
    {NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, "temperature.memory_max", "temperature.memory_max"},
};

/* Runs of fields, one for each link, ended by their total. */
static const struct {
    unsigned first, count;   /* links 0 to count - 1 */
    unsigned second, second_count; /* the links behind them */
    unsigned total;
    const char *kind;
} link_fields[] = {
    {NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0, 6, NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L6, 6,
     NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, "crc_flit"},
    {NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L0, 6, NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L6, 6,
     NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, "crc_data"},
    {NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0, 6, NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6, 6,
     NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, "replay"},
    {NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L0, 6, NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L6, 6,
     NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, "recovery"},
    {NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_L0, 12, 0, 0, NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL, "ecc_data"},
};

static bool link_field(nvmlDevice_t device, nvmlFieldValue_t *field)
{
    unsigned links = sim_nvlink_count(device);
    for (size_t i = 0; i < sizeof link_fields / sizeof *link_fields; i++) {
        unsigned id = field->fieldId, link = links;
        if (id >= link_fields[i].first && id < link_fields[i].first + link_fields[i].count)
            link = id - link_fields[i].first;
        else if (link_fields[i].second_count && id >= link_fields[i].second &&
                 id < link_fields[i].second + link_fields[i].second_count)
            link = link_fields[i].count + id - link_fields[i].second;
        else if (id != link_fields[i].total)
            continue;
        if (!links || (link >= links && id != link_fields[i].total))
            return false;
        double errors = 0;
        for (unsigned l = 0; l < links; l++)
            if (id == link_fields[i].total || l == link)
                errors += (double)sim_nvlink_errors(device, l, link_fields[i].kind);
        put_long(field, errors);
        return true;
    }
    return false;
}

/* Fields that take a link's number in scopeId. */
static bool scoped_link_field(nvmlDevice_t device, nvmlFieldValue_t *field)
{
    unsigned link = field->scopeId;
    if (link >= sim_nvlink_count(device))
        return false;
    bool active = sim_nvlink_active(device, link);
    switch (field->fieldId) {
    case NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: put_long(field, (double)sim_nvlink_errors(device, link, "replay")); return true;
    case NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY:
        put_long(field, (double)sim_nvlink_errors(device, link, "recovery"));
        return true;
    case NVML_FI_DEV_NVLINK_ERROR_DL_CRC: put_long(field, (double)sim_nvlink_errors(device, link, "crc_flit")); return true;
    case NVML_FI_DEV_NVLINK_GET_SPEED: put_unsigned(field, active ? sim_value(device, "nvlink.speed", 0) : 0); return true;
    case NVML_FI_DEV_NVLINK_GET_STATE: put_unsigned(field, active); return true;
    case NVML_FI_DEV_NVLINK_GET_VERSION: put_unsigned(field, sim_value(device, "nvlink.version", 0)); return true;
    case NVML_FI_DEV_NVLINK_GET_POWER_STATE: put_unsigned(field, 0); return true;
    case NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID: put_unsigned(field, link); return true;
    case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX:
    case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX:
    case NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX:
    case NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX: put_long(field, sim_value(device, "nvlink.throughput", 0)); return true;
    default: return false;
    }
}

static bool speed_field(nvmlDevice_t device, nvmlFieldValue_t *field)
{
    unsigned id = field->fieldId, link;
    if (id >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 && id <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L5)
        link = id - NVML_FI_DEV_NVLINK_SPEED_MBPS_L0;
    else if (id >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 && id <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L11)
        link = 6 + id - NVML_FI_DEV_NVLINK_SPEED_MBPS_L6;
    else
        return false;
    if (link >= sim_nvlink_count(device))
        return false;
    put_unsigned(field, sim_nvlink_active(device, link) ? sim_value(device, "nvlink.speed", 0) : 0);
    return true;
}

static bool ecc_field(nvmlDevice_t device, nvmlFieldValue_t *field)
{
    nvmlMemoryErrorType_t type;
    nvmlEccCounterType_t lifetime;
    const char *location = NULL;
    switch (field->fieldId) {
    case NVML_FI_DEV_ECC_SBE_VOL_DEV: location = "dram"; /* fall through */
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL: type = NVML_MEMORY_ERROR_TYPE_CORRECTED, lifetime = NVML_VOLATILE_ECC; break;
    case NVML_FI_DEV_ECC_DBE_VOL_DEV: location = "dram"; /* fall through */
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL: type = NVML_MEMORY_ERROR_TYPE_UNCORRECTED, lifetime = NVML_VOLATILE_ECC; break;
    case NVML_FI_DEV_ECC_SBE_AGG_DEV: location = "dram"; /* fall through */
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL: type = NVML_MEMORY_ERROR_TYPE_CORRECTED, lifetime = NVML_AGGREGATE_ECC; break;
    case NVML_FI_DEV_ECC_DBE_AGG_DEV: location = "dram"; /* fall through */
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL: type = NVML_MEMORY_ERROR_TYPE_UNCORRECTED, lifetime = NVML_AGGREGATE_ECC; break;
    default: return false;
    }
    if (!ecc_on(device))
        return false;
    put_long(field, (double)(location ? sim_ecc_errors(device, type, lifetime, location) : ecc_total(device, type, lifetime)));
    return true;
}

static bool computed_field(nvmlDevice_t device, nvmlFieldValue_t *field)
{
    double value;
    switch (field->fieldId) {
    case NVML_FI_DEV_ECC_PENDING:
        if (!sim_number(device->slot, "ecc.current", &value))
            return false;
        put_unsigned(field, sim_value(device, "ecc.pending", value));
        return true;
    case NVML_FI_DEV_MEMORY_TEMP:
        if (!sim_memory_temperature(device, &value))
            return false;
        put_unsigned(field, value);
        return true;
    case NVML_FI_DEV_ENERGY:
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: put_long(field, sim_energy(device) * 1000); return true;
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
        if (field->scopeId != NVML_POWER_SCOPE_GPU)
            return false;
        put_unsigned(field, sim_power_draw(device) * 1000 + 0.5);
        return true;
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
        if (field->scopeId != NVML_POWER_SCOPE_GPU)
            return false;
        put_unsigned(field, sim_power_limit(device) * 1000 + 0.5);
        return true;
    case FIELD_RESET_STATUS:
    case FIELD_RESET_STATUS_550: put_unsigned(field, recovery_action(device) == 1 || recovery_action(device) == 2); return true;
    case FIELD_DRAIN_AND_RESET_STATUS:
    case FIELD_DRAIN_AND_RESET_STATUS_550:
        if (!sim_flag(device, "drain_and_reset_status"))
            return false;
        put_unsigned(field, recovery_action(device) >= 3);
        return true;
    case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:
        put_unsigned(field, sim_switch_links(device));
        return true;
    case FIELD_RECOVERY_ACTION: put_unsigned(field, recovery_action(device)); return true;
    case NVML_FI_DEV_C2C_LINK_COUNT: put_unsigned(field, 0); return true;
    default: return false;
    }
}

static bool plain_field(nvmlDevice_t device, nvmlFieldValue_t *field)
{
    for (size_t i = 0; i < sizeof plain_fields / sizeof *plain_fields; i++) {
        double value;
        if (plain_fields[i].id != field->fieldId)
            continue;
        bool power = field->fieldId >= NVML_FI_DEV_POWER_MIN_LIMIT && field->fieldId <= NVML_FI_DEV_POWER_DEFAULT_LIMIT;
        if ((power && field->scopeId != NVML_POWER_SCOPE_GPU) || !sim_number(device->slot, plain_fields[i].key, &value))
            return false;
        put_unsigned(field, value * plain_fields[i].scale);
        return true;
    }
    for (size_t i = 0; i < sizeof limit_fields / sizeof *limit_fields; i++) {
        double from, to;
        if (limit_fields[i].id != field->fieldId)
            continue;
        if (!sim_number(device->slot, limit_fields[i].from, &from) || !sim_number(device->slot, limit_fields[i].to, &to))
            return false;
        put_signed(field, from - to);
        return true;
    }
    return false;
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields)
{
    ENTER(device);
    NEED(fields);
    if (count < 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        nvmlFieldValue_t *field = &fields[i];
        field->timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
        field->latencyUsec = 0;
        bool known = plain_field(device, field) || computed_field(device, field) || ecc_field(device, field) ||
                     link_field(device, field) || speed_field(device, field) || scoped_link_field(device, field);
        if (!known) {
            field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
            if (getenv("SIMGPU_LOG"))
                fprintf(stderr, "simgpu: field %u scope %u\n", field->fieldId, field->scopeId);
        }
    }
    return NVML_SUCCESS;
}
