# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _machine_faults

DOCUMENTATION = r"""
name: machine_faults
short_description: Sentences about machines that can't be parts of one cluster
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Compares what M(trainyard.cluster.machine_facts) found on each machine with what it must be and with the others.
  - A machine that wasn't reached isn't among them, and is no fault of the others.
positional: _input
options:
  _input:
    description: C(ansible_facts.site_machine) of each machine, by its name in the inventory.
    type: dict
    required: true
  unreachable:
    description: Machines that weren't reached. While they are down their names may be unknown to the others.
    type: list
    elements: str
    default: []
  clock_tolerance_seconds:
    description:
      - How far a clock may be from the others' median.
      - Leave some seconds for the start of the module, which looks like a difference.
    type: float
    default: 10
"""
EXAMPLES = r"""
- name: What keeps these machines from being a cluster?
  ansible.builtin.debug:
    msg: "{{ {inventory_hostname: ansible_facts['site_machine']} | trainyard.cluster.machine_faults }}"
"""
RETURN = r"""
_value:
  description: One sentence a fault; empty when there is none.
  type: list
  elements: str
  sample: ["/shared on gpu2 is not there: mount the shared file system there ..."]
"""


def machine_faults(
    machines: Mapping[str, Mapping[str, Any]], unreachable: Iterable[str] = (), clock_tolerance_seconds: float = 10
) -> list[str]:
    """Filter `machine_faults`."""
    return _machine_faults.machine_faults(machines, unreachable, clock_tolerance_seconds)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name of the filter."""
        return {"machine_faults": machine_faults}
