/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * The simulated machine as two files of key=value lines below $SIMGPU_ROOT/var/lib/simgpu:
 *   hardware  written once by `simgpu install` from a profile: gpu.KEY for every GPU, gpu.SLOT.KEY for one
 *   state     what differs from it now: settings made through NVML, faults made with `simgpu set`
 * Both are read again as soon as they change, so that a running exporter sees what `simgpu` or nvidia-smi did.
 */
#ifndef SIMGPU_STATE_H
#define SIMGPU_STATE_H

#include <stdbool.h>
#include <stddef.h>

#define SIM_MACHINE (-1) /* in place of a slot: a key of the whole machine, such as driver.loaded */
#define SIM_VALUE_SIZE 1024

struct sim_change {
    const char *key;
    char value[256]; /* an empty value removes the key: the hardware's own value counts again */
};

/* False when neither file has the key. The state's value outranks the hardware's, one GPU's that of all. */
bool sim_text(int slot, const char *key, char *value, size_t size);
bool sim_number(int slot, const char *key, double *value);
/* Changes keys of one GPU at once, safe against other writers. False when the state can't be written. */
bool sim_change(int slot, const struct sim_change *changes, size_t count);
/* $SIMGPU_ROOT, empty on a test host. */
const char *sim_root(void);

#endif
