/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * Start, versions, handles, events: what concerns the driver and not one GPU.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct nvmlDevice_st slots[MAX_GPUS];
static nvmlDevice_t visible[MAX_GPUS];
static unsigned visible_count;
static unsigned users;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

void sim_trace(const char *function)
{
    static int on = -1;
    if (on < 0)
        on = getenv("SIMGPU_LOG") != NULL;
    if (on)
        fprintf(stderr, "simgpu: %s\n", function);
}

/* The version of the user space libraries: `simgpu driver mismatch` or, as on a real machine, the installed
 * package, which an upgrade changes while the old kernel module stays loaded. */
static bool library_version(char *version, size_t size)
{
    if (sim_text(SIM_MACHINE, "library.version", version, size))
        return true;
    char pattern[512];
    glob_t found;
    bool known = false;
    snprintf(pattern, sizeof pattern, "%s/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.[0-9]*.*", sim_root());
    if (glob(pattern, 0, NULL, &found) == 0) {
        const char *name = strstr(found.gl_pathv[found.gl_pathc - 1], ".so.");
        snprintf(version, size, "%s", name + strlen(".so."));
        known = true;
        globfree(&found);
    }
    return known || sim_text(SIM_MACHINE, "driver.loaded", version, size);
}

/* A GPU is there for a process that may open its device node. Nothing is behind a simulated node, so that an
 * allowed open ends in ENXIO; the device cgroup of a Slurm job or container refuses with EPERM. */
static bool node_usable(const char *name)
{
    char path[64];
    if (*sim_root()) /* a test without device nodes */
        return true;
    snprintf(path, sizeof path, "/dev/%s", name);
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0)
        close(file);
    return file >= 0 || errno == ENXIO || errno == ENODEV;
}

static void find_gpus(void)
{
    char list[SIM_VALUE_SIZE], *rest = list;
    visible_count = 0;
    if (!sim_text(SIM_MACHINE, "driver.gpus", list, sizeof list))
        return;
    int minor = 0;
    for (char *item; (item = strtok_r(rest, ",", &rest)) && minor < MAX_GPUS; minor++) {
        char node[24];
        int slot = atoi(item);
        snprintf(node, sizeof node, "nvidia%d", minor);
        if (slot < 0 || slot >= MAX_GPUS || !node_usable(node))
            continue;
        slots[slot].slot = slot;
        visible[visible_count++] = &slots[slot];
    }
}

static nvmlReturn_t start(void)
{
    char loaded[64], library[64];
    if (!sim_text(SIM_MACHINE, "driver.loaded", loaded, sizeof loaded))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (library_version(library, sizeof library) && strcmp(loaded, library) != 0)
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    if (!node_usable("nvidiactl"))
        return errno == ENOENT ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_NO_PERMISSION;
    find_gpus();
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    sim_trace(__func__);
    pthread_mutex_lock(&guard);
    nvmlReturn_t result = users ? NVML_SUCCESS : start();
    if (result == NVML_SUCCESS)
        users++;
    pthread_mutex_unlock(&guard);
    return result;
}

API nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

API nvmlReturn_t nvmlShutdown(void)
{
    sim_trace(__func__);
    pthread_mutex_lock(&guard);
    nvmlReturn_t result = users ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (users)
        users--;
    pthread_mutex_unlock(&guard);
    return result;
}

API const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_ALREADY_INITIALIZED: return "Already Initialized";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_INSUFFICIENT_POWER: return "Insufficient External Power";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_IRQ_ISSUE: return "Interrupt Request Issue";
    case NVML_ERROR_LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_CORRUPTED_INFOROM: return "Corrupted infoROM";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_OPERATING_SYSTEM: return "GPU access blocked by the operating system";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    case NVML_ERROR_NO_DATA: return "No data";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Version mismatch between input and output structs";
    case NVML_ERROR_DEPRECATED: return "Requested functionality has been deprecated";
    case NVML_ERROR_NOT_READY: return "System is not in ready state";
    case NVML_ERROR_GPU_NOT_FOUND: return "No GPUs were found";
    case NVML_ERROR_INVALID_STATE: return "Invalid state";
    default: return "Unknown Error";
    }
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    char text[64];
    sim_trace(__func__);
    NEED(version);
    if (!sim_text(SIM_MACHINE, "driver.loaded", text, sizeof text))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(version, text);
    return NVML_SUCCESS;
}

/* NVML's own version is the driver's behind the number of its interface. */
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[64];
    sim_trace(__func__);
    NEED(version);
    if (!library_version(text, sizeof text))
        return NVML_ERROR_UNKNOWN;
    return snprintf(version, length, "12.%s", text) < (int)length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    double number;
    sim_trace(__func__);
    NEED(version);
    if (!sim_number(SIM_MACHINE, "driver.cuda", &number))
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    *version = (int)number;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[64], command[SIM_VALUE_SIZE] = "";
    sim_trace(__func__);
    NEED(name);
    NEED(length);
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    size_t got = fread(command, 1, sizeof command - 1, file);
    fclose(file);
    if (!got)
        return NVML_ERROR_NOT_FOUND;
    snprintf(name, length, "%s", command);
    return NVML_SUCCESS;
}

unsigned sim_gpu_count(void) { return visible_count; }

nvmlDevice_t sim_gpu(unsigned index) { return index < visible_count ? visible[index] : NULL; }

bool sim_index(nvmlDevice_t device, unsigned *index)
{
    for (unsigned i = 0; i < visible_count; i++)
        if (visible[i] == device) {
            *index = i;
            return true;
        }
    return false;
}

nvmlReturn_t sim_check(nvmlDevice_t device, bool cached)
{
    unsigned index;
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || !sim_index(device, &index))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!cached && sim_flag(device, "lost"))
        return NVML_ERROR_GPU_IS_LOST;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    sim_trace(__func__);
    NEED(count);
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    *count = visible_count;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

/* A process that asks for a GPU after it fell off the bus gets no handle; one that has a handle learns that the
 * GPU is lost. */
static nvmlReturn_t attach(nvmlDevice_t found, nvmlDevice_t *device)
{
    if (sim_flag(found, "lost"))
        return NVML_ERROR_UNKNOWN;
    *device = found;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    sim_trace(__func__);
    NEED(device);
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    nvmlDevice_t found = sim_gpu(index);
    return found ? attach(found, device) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t find_by(const char *key, const char *wanted, nvmlDevice_t *device)
{
    char text[SIM_VALUE_SIZE];
    NEED(wanted);
    NEED(device);
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    for (unsigned i = 0; i < visible_count; i++)
        if (sim_text(visible[i]->slot, key, text, sizeof text) && strcmp(text, wanted) == 0)
            return attach(visible[i], device);
    return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    sim_trace(__func__);
    return find_by("uuid", uuid, device);
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    sim_trace(__func__);
    return find_by("serial", serial, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device)
{
    unsigned domain = 0, bus, slot;
    char wanted[32];
    sim_trace(__func__);
    NEED(text);
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(text, "%x:%x", &bus, &slot) != 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    snprintf(wanted, sizeof wanted, "%04x:%02x:%02x.0", domain, bus, slot);
    return find_by("pci.bus_id", wanted, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(text, device);
}

API nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count)
{
    sim_trace(__func__);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlUnitGetCount(unsigned int *count)
{
    sim_trace(__func__);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *count, nvmlHwbcEntry_t *entries)
{
    (void)entries;
    sim_trace(__func__);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

/* Events: an Xid put in by `simgpu xid` reaches those who wait for one. */
struct nvmlEventSet_st {
    unsigned long sequence;
    unsigned long long types;
    bool slots[MAX_GPUS];
};

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    sim_trace(__func__);
    NEED(set);
    struct nvmlEventSet_st *created = calloc(1, sizeof *created);
    if (!created)
        return NVML_ERROR_MEMORY;
    created->sequence = sim_last_xid();
    *set = created;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    sim_trace(__func__);
    free(set);
    return NVML_SUCCESS;
}

#define SUPPORTED_EVENTS (nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError)

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    ENTER(device);
    NEED(types);
    *types = SUPPORTED_EVENTS;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    ENTER(device);
    NEED(set);
    if (types & ~SUPPORTED_EVENTS)
        return NVML_ERROR_NOT_SUPPORTED;
    set->types |= types;
    set->slots[device->slot] = true;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout)
{
    const struct timespec pause = {0, 100 * 1000 * 1000};
    sim_trace(__func__);
    NEED(set);
    NEED(data);
    for (unsigned waited = 0;; waited += 100) {
        struct sim_xid xid;
        while (sim_next_xid(set->sequence, &xid)) {
            set->sequence = xid.sequence;
            if (xid.slot < 0 || xid.slot >= MAX_GPUS || !set->slots[xid.slot] ||
                !(set->types & nvmlEventTypeXidCriticalError))
                continue;
            *data = (nvmlEventData_t){.device = &slots[xid.slot],
                                      .eventType = nvmlEventTypeXidCriticalError,
                                      .eventData = xid.code,
                                      .gpuInstanceId = 0xffffffff,
                                      .computeInstanceId = 0xffffffff};
            return NVML_SUCCESS;
        }
        if (waited >= timeout)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout)
{
    return nvmlEventSetWait_v2(set, data, timeout);
}

/* nvidia-smi takes a table of private functions from here: the first word is the table's size. Without a table it
 * refuses to start ("Mismatch in versions"); where the table ends too early it prints "Uninitialized". The few
 * functions below were found by watching nvidia-smi 535 and 550 call them; the others answer NOT_SUPPORTED. */
static nvmlReturn_t not_supported(void)
{
    sim_trace("private function");
    return NVML_ERROR_NOT_SUPPORTED;
}

/* 80: the address of a GPU by index, for messages about one that gives no handle. */
static nvmlReturn_t address_by_index(unsigned index, char *text, unsigned length)
{
    char address[32];
    nvmlDevice_t device = sim_gpu(index);
    sim_trace(__func__);
    NEED(device);
    NEED(text);
    nvmlReturn_t result = sim_get_text(device, "pci.bus_id", address, sizeof address);
    if (result != NVML_SUCCESS)
        return result;
    for (char *c = address; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'f' ? *c - 'a' + 'A' : *c);
    return snprintf(text, length, "%s", address) < (int)length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

/* 230 */
static nvmlReturn_t gpu_part_number(nvmlDevice_t device, char *text, unsigned length)
{
    ENTER(device);
    return sim_get_text(device, "board.gpu_part_number", text, length);
}

/* 239: the distance to the temperature at which the GPU slows down. */
static nvmlReturn_t temperature_margin(nvmlDevice_t device, int *celsius)
{
    double most;
    ENTER(device);
    NEED(celsius);
    if (!sim_number(device->slot, "temperature.gpu_max", &most))
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = (int)(most - sim_temperature(device));
    return NVML_SUCCESS;
}

/* 241: how the GPU reaches the memory of processes; 0 is none of the known ways. */
static nvmlReturn_t addressing_mode(nvmlDevice_t device, unsigned *mode)
{
    ENTER(device);
    NEED(mode);
    *mode = 0;
    return NVML_SUCCESS;
}

#define TABLE_SLOTS 512

API nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id)
{
    static void *functions[1 + TABLE_SLOTS];
    static const struct {
        unsigned slot;
        void *function;
    } known[] = {{22, (void *)sim_path_between},
                 {80, (void *)address_by_index},
                 {212, (void *)sim_private_compute_processes},
                 {213, (void *)sim_private_mps_processes},
                 {214, (void *)sim_private_graphics_processes},
                 {230, (void *)gpu_part_number},
                 {239, (void *)temperature_margin},
                 {241, (void *)addressing_mode}};
    (void)id;
    sim_trace(__func__);
    NEED(table);
    pthread_mutex_lock(&guard);
    functions[0] = (void *)sizeof functions;
    for (size_t i = 0; i < TABLE_SLOTS; i++)
        functions[1 + i] = (void *)not_supported;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        functions[1 + known[i].slot] = known[i].function;
    pthread_mutex_unlock(&guard);
    *table = functions;
    return NVML_SUCCESS;
}
