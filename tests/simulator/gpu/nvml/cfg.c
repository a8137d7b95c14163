/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * The five functions of libnvidia-cfg.so.1 that the real nvidia-persistenced calls: it keeps a GPU persistent by
 * holding it open. NVIDIA describes the interface in nvidia-cfg.h of the nvidia-persistenced sources.
 *
 * The daemon then asks the device node for NUMA memory; nothing is behind a simulated node, so that it logs "failed to
 * online memory" and closes the GPU again. Here a GPU stays persistent until the daemon ends all the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define API __attribute__((visibility("default")))
#define MAX_GPUS 32

struct pci_device {
    int domain, bus, slot, function;
};

static bool opened[MAX_GPUS];

static int attached(int *slots)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    int count = 0;
    if (!sim_text(SIM_MACHINE, "driver.gpus", list, sizeof list))
        return 0;
    for (char *item; count < MAX_GPUS && (item = strtok_r(rest, ",", &rest));)
        slots[count++] = atoi(item);
    return count;
}

static int address(int slot, struct pci_device *device)
{
    char text[32];
    unsigned domain, bus, number;
    if (!sim_text(slot, "pci.bus_id", text, sizeof text) || sscanf(text, "%x:%x:%x", &domain, &bus, &number) != 3)
        return 0;
    *device = (struct pci_device){(int)domain, (int)bus, (int)number, 0};
    return 1;
}

API int nvCfgGetPciDevices(int *count, struct pci_device **devices)
{
    int slots[MAX_GPUS], found = attached(slots);
    char version[64];
    if (!sim_text(SIM_MACHINE, "driver.loaded", version, sizeof version))
        return 0;
    *devices = calloc(MAX_GPUS, sizeof **devices);
    if (!*devices)
        return 0;
    *count = 0;
    for (int i = 0; i < found; i++)
        *count += address(slots[i], &(*devices)[*count]);
    return 1;
}

static int keep(int slot, const char *mode)
{
    struct sim_change change = {.key = "persistence_mode"};
    snprintf(change.value, sizeof change.value, "%s", mode);
    return sim_change(slot, &change, 1);
}

API int nvCfgOpenPciDevice(int domain, int bus, int number, int function, void **handle)
{
    int slots[MAX_GPUS], found = attached(slots);
    (void)function;
    for (int i = 0; i < found; i++) {
        struct pci_device device;
        double lost;
        if (!address(slots[i], &device) || device.domain != domain || device.bus != bus || device.slot != number)
            continue;
        if (slots[i] < 0 || slots[i] >= MAX_GPUS || (sim_number(slots[i], "lost", &lost) && lost != 0))
            return 0;
        opened[slots[i]] = true;
        *handle = &opened[slots[i]];
        return keep(slots[i], "1");
    }
    return 0;
}

API int nvCfgCloseDevice(void *handle) { return handle != NULL; }

__attribute__((destructor)) static void daemon_ends(void)
{
    for (int slot = 0; slot < MAX_GPUS; slot++)
        if (opened[slot])
            keep(slot, "0");
}

API unsigned nvCfgEnableUVMPersistence(void *handle)
{
    (void)handle;
    return 0;
}

API unsigned nvCfgDisableUVMPersistence(void *handle)
{
    (void)handle;
    return 0;
}
