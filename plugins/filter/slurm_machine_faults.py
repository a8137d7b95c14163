# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm

DOCUMENTATION = r"""
name: slurm_machine_faults
short_description: Sentences about why a machine can't become a part of a declared Slurm cluster
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Compares what the role slurm reads from a machine before it changes anything with what is declared.
  - Finds jobs that the declaration would end too.
positional: _input, host, expected
options:
  _input:
    description: What the role's preflight step read from the machine.
    type: str
    required: true
  host:
    description: The machine's name, for the sentences.
    type: str
    required: true
  expected:
    description:
      - What the machine must be, with the keys C(cluster_name), C(controller_host), C(is_controller), C(is_node),
        C(constrain), C(nodes), C(partitions) and C(users), the ids of user and group by name.
    type: dict
    required: true
"""
EXAMPLES = r"""
- name: What stands in the way on this machine?
  ansible.builtin.debug:
    msg: "{{ state.stdout | trainyard.cluster.slurm_machine_faults(inventory_hostname, expected) }}"
"""
RETURN = r"""
_value:
  description: One sentence a fault; empty when there is none.
  type: list
  elements: str
  sample: ["The user munge has the id 120 on gpu1, and slurm_munge_uid is 966 ..."]
"""


def slurm_machine_faults(state: str, host: str, expected: Mapping[str, Any]) -> list[str]:
    users = {name: (int(ids[0]), int(ids[1])) for name, ids in expected["users"].items()}
    return _slurm.find_machine_problems(host, state, _slurm.Expected(**{**expected, "users": users}))


class FilterModule:
    """The filter, by its name in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_machine_faults": slurm_machine_faults}
