#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_settings
short_description: Set power limits, clocks, compute mode, ECC and MIG of NVIDIA GPUs
version_added: 0.1.0
description:
  - Sets what is named and leaves the rest alone. Without any setting it only reports.
  - Every value is checked for every chosen GPU against what that card takes before anything is set. One refused value
    means that no GPU is changed. All faults are named at once.
  - ECC, MIG mode and MIG instances are not changed while a process holds the GPU. The module ends no process and resets
    no GPU. What waits for a reset or a reboot is returned in RV(pending), and isn't set again while it waits.
  - Drain the node first where a scheduler sends jobs. One that has not opened its GPU yet shows no process.
  - After setting, the GPUs are asked again. A setting that the driver did not take is a failure.
  - Power limits, compute mode, locked clocks and MIG instances are gone after a reboot or when the driver is loaded
    again, and from the Hopper generation on MIG mode too. Without persistence mode the driver may forget limits and
    clocks as soon as nothing uses the GPU.
  - The driver doesn't tell what clocks are locked. What this module locked is noted in
    C(/run/trainyard/gpu_settings.json), for this load of the driver only, so that a second run changes nothing and the
    first one after a reboot or a GPU reset that changed a mode sets them again. Clocks that were locked or reset by
    other means meanwhile are not noticed. Without a note, V(default) resets them once.
author: Trainyard contributors (@trainyard)
options:
  gpus:
    description: Indices, UUIDs or PCI bus ids of the GPUs. All of the machine if left out.
    type: list
    elements: str
  persistence_mode:
    description: Whether the driver stays initialised while nothing uses the GPU.
    type: bool
  power_limit:
    description: Watts, or V(default) for the vendor's default limit of each card.
    type: str
  compute_mode:
    description:
      - How many processes may compute on the GPU, any number, one, or none.
      - In MIG mode only V(default) is possible.
    type: str
    choices: [default, exclusive_process, prohibited]
  ecc:
    description: Whether the GPU's memory corrects errors. Takes effect after a reset of the GPU or a reboot.
    type: bool
  mig:
    description:
      - Whether the GPU can be divided into instances. V(false) removes the instances that there are.
      - With GPUs of the Ampere generation the driver resets the GPU for it if nothing uses it, and the change waits for
        a reset or reboot otherwise.
    type: bool
  mig_layout:
    description:
      - Profiles of the GPU instances, such as V(3g.40gb), in any order. Each gets its default compute instance.
      - All instances of the GPU are replaced if they are not these. An empty list removes them.
      - Needs MIG mode, so write O(mig=true) beside it. Older drivers list a card's profiles in MIG mode only. Names are
        then checked after the mode was switched on.
    type: list
    elements: str
  graphics_clocks:
    description:
      - Locks the clock of the processors, in MHz. One number, or the lowest and the highest.
      - V(default) takes the lock back.
    type: list
    elements: str
  memory_clocks:
    description: Locks the clock of the memory, in the same way.
    type: list
    elements: str
  defaults:
    description:
      - Gives each card the vendor's defaults of power limit, compute mode, both clocks and MIG mode, but for those
        that another option sets. MIG instances are removed.
      - O(ecc) and O(persistence_mode) are left alone. The driver doesn't say whether ECC is on by default, and
        persistence mode is the business of the daemon C(nvidia-persistenced).
    type: bool
    default: false
  nvidia_smi:
    description: The command, as a name to be found in the search path or as a path.
    type: str
    default: nvidia-smi
  timeout:
    description: Seconds to wait for each call of C(nvidia-smi), which a sick GPU can make hang.
    type: int
    default: 60
  root:
    description: The directory that holds the machine's C(/proc), C(/sys) and C(/run).
    type: path
    default: /
attributes:
  check_mode:
    support: full
    description: Checks all values and says what would change.
  diff_mode:
    support: full
    description: A line for each setting of each GPU that changes, before and after.
"""

EXAMPLES = r"""
- name: Limit the power of all GPUs, and keep the limit while they are idle
  trainyard.cluster.gpu_settings:
    persistence_mode: true
    power_limit: 500

- name: Lock the clocks of two GPUs for a benchmark
  trainyard.cluster.gpu_settings:
    gpus: [0, "0000:2a:00.0"]
    graphics_clocks: 1500
    memory_clocks: 2619

- name: Keep the processors between two clocks
  trainyard.cluster.gpu_settings:
    graphics_clocks: [1000, 1500]

- name: Divide every GPU in two
  trainyard.cluster.gpu_settings:
    mig: true
    mig_layout: [4g.40gb, 3g.40gb]

- name: Switch ECC on
  trainyard.cluster.gpu_settings:
    ecc: true
  register: memory

- name: Say what is left to do
  ansible.builtin.debug:
    msg: "GPU {{ item.gpu }}: {{ item.setting }} needs a {{ item.needs }}. {{ item.how }}"
  loop: "{{ memory.pending }}"

- name: Give the vendor's defaults back
  trainyard.cluster.gpu_settings:
    defaults: true
"""

RETURN = r"""
gpus:
  description: The chosen GPUs, as they are afterwards. In check mode, as they would be.
  returned: success
  type: list
  elements: dict
  contains:
    index:
      description: Number of the GPU, as C(nvidia-smi) counts.
      type: int
      sample: 0
    uuid:
      description: UUID of the GPU.
      type: str
      sample: GPU-d90dc8b3-f9bc-57e8-85b7-5cd276216445
    pci_bus_id:
      description: Address of the GPU as in C(/sys/bus/pci/devices).
      type: str
      sample: '0000:18:00.0'
    model:
      description: Product name.
      type: str
      sample: NVIDIA H100 80GB HBM3
    persistence_mode:
      description: Whether persistence mode is on; null where the GPU has none.
      type: bool
      sample: true
    power_limit_watts:
      description: Power limit in watts; null where the card has none.
      type: float
      sample: 500.0
    compute_mode:
      description: 'V(default), V(exclusive_process) or V(prohibited).'
      type: str
      sample: default
    ecc_current:
      description: Whether ECC is in force; null where the card has none.
      type: bool
      sample: true
    ecc_pending:
      description: Whether ECC is in force after the next reset.
      type: bool
      sample: true
    mig_current:
      description: Whether MIG mode is in force; null where the card has none.
      type: bool
      sample: false
    mig_pending:
      description: Whether MIG mode is in force after the next reset.
      type: bool
      sample: false
    mig_layout:
      description:
        - Profiles of the GPU instances; null out of MIG mode.
        - Behind a name, in parentheses, the compute instances that are there instead of the default one.
      type: list
      elements: str
      sample: [3g.40gb, 4g.40gb]
    graphics_clocks_mhz:
      description:
        - Lowest and highest clock that this module locked, in MHz.
        - Empty when it took the lock back, null when it did neither.
      type: list
      elements: int
      sample: [1000, 1500]
    memory_clocks_mhz:
      description: The same of the memory.
      type: list
      elements: int
      sample: []
pending:
  description: What waits for a reset or reboot on the chosen GPUs, whoever set it.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: Number of the GPU.
      type: int
      sample: 0
    setting:
      description: 'V(ecc), V(mig) or V(mig_layout).'
      type: str
      sample: ecc
    needs:
      description: 'V(reset) of the GPU, or V(reboot) where a GPU can not be reset alone.'
      type: str
      sample: reset
    how:
      description: What to do, in sentences.
      type: str
      sample: Reboot the machine.
"""

import os
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils._command import run_command
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_settings import (
    COMPUTE_MODES,
    Machine,
    Request,
    SettingsError,
    apply,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gpus": {"type": "list", "elements": "str"},
            "persistence_mode": {"type": "bool"},
            "power_limit": {"type": "str"},
            "compute_mode": {"type": "str", "choices": list(COMPUTE_MODES)},
            "ecc": {"type": "bool"},
            "mig": {"type": "bool"},
            "mig_layout": {"type": "list", "elements": "str"},
            "graphics_clocks": {"type": "list", "elements": "str"},
            "memory_clocks": {"type": "list", "elements": "str"},
            "defaults": {"type": "bool", "default": False},
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "timeout": {"type": "int", "default": 60},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    wishes = dict(module.params)
    nvidia_smi, timeout, root = (wishes.pop(name) for name in ("nvidia_smi", "timeout", "root"))
    if timeout < 1:
        module.fail_json(msg=f"timeout: {timeout} is no number of seconds to wait; give 1 or more")
    machine = Machine(run_command, nvidia_smi, timeout, root, is_root=os.geteuid() == 0)
    try:
        result = apply(machine, Request(**wishes), module.check_mode)
    except SettingsError as error:
        module.fail_json(msg=str(error), changed=error.changed)
    for warning in result.warnings:
        module.warn(warning)
    module.exit_json(
        changed=result.changed,
        gpus=[asdict(gpu) for gpu in result.gpus],
        pending=[asdict(pending) for pending in result.pending],
        diff={"before": result.before, "after": result.after},
    )


if __name__ == "__main__":
    main()
