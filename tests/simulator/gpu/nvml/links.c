/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * NVLink, fabric, and the places of GPUs in the machine.
 */
#include "internal.h"

#include <stdlib.h>

unsigned sim_nvlink_count(nvmlDevice_t device) { return (unsigned)sim_value(device, "nvlink.count", 0); }

bool sim_nvlink_active(nvmlDevice_t device, unsigned link)
{
    char key[48];
    snprintf(key, sizeof key, "nvlink.%u.active", link);
    return sim_value(device, key, 1) != 0;
}

unsigned long long sim_nvlink_errors(nvmlDevice_t device, unsigned link, const char *kind)
{
    char key[48];
    snprintf(key, sizeof key, "nvlink.%u.%s", link, kind);
    return (unsigned long long)sim_value(device, key, 0);
}

static nvmlReturn_t check_link(nvmlDevice_t device, unsigned link)
{
    unsigned count = sim_nvlink_count(device);
    if (!count)
        return NVML_ERROR_NOT_SUPPORTED;
    return link < count ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

#define ENTER_LINK(device, link)                             \
    do {                                                     \
        ENTER(device);                                       \
        nvmlReturn_t linked_ = check_link((device), (link)); \
        if (linked_ != NVML_SUCCESS)                         \
            return linked_;                                  \
    } while (0)

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active)
{
    ENTER_LINK(device, link);
    NEED(active);
    *active = sim_nvlink_active(device, link) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    ENTER_LINK(device, link);
    return sim_get_unsigned(device, "nvlink.version", version);
}

API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
                                               unsigned int *result)
{
    ENTER_LINK(device, link);
    NEED(result);
    if ((unsigned)capability >= NVML_NVLINK_CAP_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *result = capability != NVML_NVLINK_CAP_SLI_BRIDGE && sim_nvlink_active(device, link);
    return NVML_SUCCESS;
}

/* The links spread over the NVSwitches of the machine as far as they go. */
API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    char list[SIM_VALUE_SIZE], *rest = list, *switches[16];
    unsigned count = 0;
    ENTER_LINK(device, link);
    NEED(pci);
    if (!sim_nvlink_active(device, link) || !sim_text(device->slot, "nvlink.switches", list, sizeof list))
        return NVML_ERROR_NOT_SUPPORTED;
    for (char *item; count < 16 && (item = strtok_r(rest, ",", &rest));)
        switches[count++] = item;
    if (!count)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    sscanf(switches[link % count], "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    if (sim_text(device->slot, "nvlink.switch_device_id", list, sizeof list))
        pci->pciDeviceId = (unsigned)strtoul(list, NULL, 16);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff, pci->device & 0xff);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
{
    ENTER_LINK(device, link);
    NEED(type);
    *type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                                 unsigned long long *value)
{
    static const char *const kinds[NVML_NVLINK_ERROR_COUNT] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
    ENTER_LINK(device, link);
    NEED(value);
    if ((unsigned)counter >= NVML_NVLINK_ERROR_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *value = sim_nvlink_errors(device, link, kinds[counter]);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceResetNvLinkErrorCounters(nvmlDevice_t device, unsigned int link)
{
    static const char *const kinds[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
    char keys[5][48];
    struct sim_change changes[5];
    ENTER_LINK(device, link);
    nvmlReturn_t allowed = sim_may_set();
    if (allowed != NVML_SUCCESS)
        return allowed;
    for (size_t i = 0; i < 5; i++) {
        snprintf(keys[i], sizeof keys[i], "nvlink.%u.%s", link, kinds[i]);
        changes[i] = (struct sim_change){.key = keys[i]};
    }
    return sim_change(device->slot, changes, 5) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

/* --- fabric: what the fabric manager made of the NVSwitches --- */

static nvmlReturn_t fabric(nvmlDevice_t device, unsigned char *cluster, nvmlReturn_t *status, unsigned *clique,
                           nvmlGpuFabricState_t *state)
{
    static const char *const states[] = {"not_supported", "not_started", "in_progress", "completed"};
    char text[32];
    if (!sim_text(device->slot, "fabric.state", text, sizeof text))
        return NVML_ERROR_NOT_SUPPORTED;
    memset(cluster, 0, NVML_GPU_FABRIC_UUID_LEN);
    *clique = (unsigned)sim_value(device, "fabric.clique", 0);
    *status = (nvmlReturn_t)sim_value(device, "fabric.status", NVML_SUCCESS);
    *state = NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
    for (unsigned i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(states[i], text) == 0)
            *state = (nvmlGpuFabricState_t)i;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    ENTER(device);
    NEED(info);
    return fabric(device, info->clusterUuid, &info->status, &info->cliqueId, &info->state);
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    ENTER(device);
    NEED(info);
    if (info->version != nvmlGpuFabricInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    info->healthMask = (unsigned)sim_value(device, "fabric.health_mask", 0);
    return fabric(device, info->clusterUuid, &info->status, &info->cliqueId, &info->state);
}

/* --- places --- */

API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t two, nvmlGpuTopologyLevel_t *level)
{
    static const struct {
        const char *name;
        nvmlGpuTopologyLevel_t level;
    } levels[] = {{"internal", NVML_TOPOLOGY_INTERNAL}, {"pix", NVML_TOPOLOGY_SINGLE},     {"pxb", NVML_TOPOLOGY_MULTIPLE},
                  {"phb", NVML_TOPOLOGY_HOSTBRIDGE},    {"node", NVML_TOPOLOGY_NODE},      {"sys", NVML_TOPOLOGY_SYSTEM}};
    char text[16] = "node";
    ENTER(one);
    ENTER(two);
    NEED(level);
    *level = NVML_TOPOLOGY_SYSTEM;
    if (one == two)
        *level = NVML_TOPOLOGY_INTERNAL;
    else if (sim_value(one, "numa_node", 0) == sim_value(two, "numa_node", 0)) {
        sim_text(one->slot, "topology.same_node", text, sizeof text);
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
            if (strcmp(levels[i].name, text) == 0)
                *level = levels[i].level;
    }
    return NVML_SUCCESS;
}

/* A network card is known by its address only; the kernel says where it is. */
static int numa_node_of(nvmlDevice_t device, const char *address)
{
    unsigned domain, bus, slot, function;
    char path[256];
    int node = -1;
    if (device)
        return (int)sim_value(device, "numa_node", 0);
    if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return -1;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%04x:%02x:%02x.%x/numa_node", sim_root(), domain, bus, slot, function);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%d", &node) != 1)
            node = -1;
        fclose(file);
    }
    return node;
}

unsigned sim_switch_links(nvmlDevice_t device)
{
    char list[SIM_VALUE_SIZE];
    unsigned active = 0;
    if (!sim_text(device->slot, "nvlink.switches", list, sizeof list))
        return 0;
    for (unsigned link = 0; link < sim_nvlink_count(device); link++)
        active += sim_nvlink_active(device, link);
    return active;
}

nvmlReturn_t sim_path_between(const char *one, const char *two, int *path)
{
    nvmlDevice_t a = NULL, b = NULL;
    sim_trace(__func__);
    NEED(one);
    NEED(two);
    NEED(path);
    (void)nvmlDeviceGetHandleByPciBusId_v2(one, &a);
    (void)nvmlDeviceGetHandleByPciBusId_v2(two, &b);
    if (a && b) {
        nvmlGpuTopologyLevel_t level;
        unsigned links = sim_switch_links(a), others = sim_switch_links(b);
        if (links && others) { /* through the NVSwitches */
            *path = 4 + (int)(links < others ? links : others);
            return NVML_SUCCESS;
        }
        nvmlReturn_t result = nvmlDeviceGetTopologyCommonAncestor(a, b, &level);
        if (result == NVML_SUCCESS)
            *path = level >= NVML_TOPOLOGY_SINGLE ? (int)level / 10 - 1 : 0;
        return result;
    }
    *path = numa_node_of(a, one) == numa_node_of(b, two) ? 3 : 4;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned int *count,
                                                  nvmlDevice_t *devices)
{
    unsigned found = 0;
    ENTER(device);
    NEED(count);
    for (unsigned i = 0; i < sim_gpu_count(); i++) {
        nvmlGpuTopologyLevel_t between;
        nvmlDevice_t other = sim_gpu(i);
        if (other == device || nvmlDeviceGetTopologyCommonAncestor(device, other, &between) != NVML_SUCCESS || between > level)
            continue;
        if (devices && found < *count)
            devices[found] = other;
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t two, nvmlGpuP2PCapsIndex_t capability,
                                        nvmlGpuP2PStatus_t *status)
{
    ENTER(one);
    ENTER(two);
    NEED(status);
    bool linked = sim_nvlink_count(one) && sim_nvlink_count(two);
    if (capability == NVML_P2P_CAPS_INDEX_NVLINK && !linked)
        *status = NVML_P2P_STATUS_NOT_SUPPORTED;
    else
        *status = sim_flag(one, "p2p") && sim_flag(two, "p2p") ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t two, int *same)
{
    ENTER(one);
    ENTER(two);
    NEED(same);
    *same = one == two;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    (void)node; /* the GPU's own memory as a NUMA node: Grace Hopper only */
    ENTER(device);
    return NVML_ERROR_NOT_SUPPORTED;
}

/* "0-55,112-167" as bits. */
static void set_bits(char *list, unsigned long *bits, unsigned words)
{
    const unsigned width = 8 * sizeof *bits;
    char *rest = list;
    memset(bits, 0, words * sizeof *bits);
    for (char *item; (item = strtok_r(rest, ",", &rest));) {
        unsigned first, last;
        int fields = sscanf(item, "%u-%u", &first, &last);
        if (fields < 1)
            continue;
        if (fields == 1)
            last = first;
        for (unsigned bit = first; bit <= last && bit < words * width; bit++)
            bits[bit / width] |= 1UL << bit % width;
    }
}

API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *bits)
{
    char list[SIM_VALUE_SIZE];
    ENTER(device);
    NEED(bits);
    NEED(words);
    if (!sim_text(device->slot, "cpus", list, sizeof list))
        return NVML_ERROR_NOT_SUPPORTED;
    set_bits(list, bits, words);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long *bits,
                                                     nvmlAffinityScope_t scope)
{
    (void)scope;
    return nvmlDeviceGetCpuAffinity(device, words, bits);
}

API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *bits,
                                             nvmlAffinityScope_t scope)
{
    unsigned node;
    (void)scope;
    ENTER(device);
    NEED(bits);
    NEED(words);
    nvmlReturn_t result = sim_get_unsigned(device, "numa_node", &node);
    if (result != NVML_SUCCESS)
        return result;
    memset(bits, 0, words * sizeof *bits);
    if (node < words * 8 * sizeof *bits)
        bits[node / (8 * sizeof *bits)] |= 1UL << node % (8 * sizeof *bits);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count, nvmlDevice_t *devices)
{
    unsigned found = 0;
    sim_trace(__func__);
    NEED(count);
    for (unsigned i = 0; i < sim_gpu_count(); i++) {
        unsigned long bits[16];
        if (cpu >= 16 * 8 * sizeof *bits || nvmlDeviceGetCpuAffinity(sim_gpu(i), 16, bits) != NVML_SUCCESS ||
            !(bits[cpu / (8 * sizeof *bits)] >> cpu % (8 * sizeof *bits) & 1))
            continue;
        if (devices && found < *count)
            devices[found] = sim_gpu(i);
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}
