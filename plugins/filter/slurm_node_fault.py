# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm

DOCUMENTATION = r"""
name: slurm_node_fault
short_description: A sentence about why a node is of no use to jobs
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Tells a fault of the machine or its declaration from what an administrator did, which is no fault.
positional: _input
options:
  _input:
    description:
      - What C(scontrol --oneliner show node) printed for the node, and a line C(Complaint=) with the last error in
        slurmd's log where slurmd does not answer.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: Is the node as declared?
  ansible.builtin.debug:
    msg: "{{ shown.stdout | trainyard.cluster.slurm_node_fault }}"
"""
RETURN = r"""
_value:
  description: The sentence; empty when there is no fault.
  type: str
  sample: "Slurm keeps gpu1 from jobs (IDLE+DRAIN), with the reason: GPU missing: /dev/nvidia7."
"""


def slurm_node_fault(shown: str) -> str:
    return _slurm.node_problem(shown)


class FilterModule:
    """The filter, by its name in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_node_fault": slurm_node_fault}
