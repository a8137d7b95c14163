# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm

DOCUMENTATION = r"""
name: cluster_faults
short_description: Sentences about nodes that Slurm doesn't show as the inventory declares them
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Compares what C(scontrol --oneliner show node) prints with the declared nodes.
  - A node that an administrator drained is no fault.
positional: _input, nodes
options:
  _input:
    description: What C(scontrol --oneliner show node) printed.
    type: str
    required: true
  nodes:
    description: The declared nodes that are to be there, with their name and gpus.
    type: list
    elements: dict
    required: true
"""
EXAMPLES = r"""
- name: Is every node what the inventory says?
  ansible.builtin.debug:
    msg: >-
      {{ shown.stdout | trainyard.cluster.cluster_faults([{'name': 'gpu1', 'gpus': [{'type': 'h100', 'count': 8}]}]) }}
"""
RETURN = r"""
_value:
  description: One sentence a fault; empty when there is none.
  type: list
  elements: str
  sample: ["Slurm gives gpu1 gpu:h100:7, and the inventory declares gpu:h100:8 ..."]
"""

_NAME = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
_GRES = re.compile(r"\bGres=(\S+)")


def cluster_faults(shown: str, nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Filter `cluster_faults`."""
    lines = {match[1]: line for line in shown.splitlines() if (match := _NAME.match(line))}
    faults = []
    for node in nodes:
        name = str(node["name"])
        if name not in lines:
            faults.append(
                f"Slurm doesn't know {name}: run slurm.yml without --limit, so that the controller learns of it."
            )
            continue
        problem = _slurm.node_problem(lines[name])
        if problem:
            faults.append(problem)
        gres = _GRES.search(lines[name])
        found = sorted(re.findall(r"gpu:[^:,(]+:\d+", gres[1])) if gres else []
        declared = sorted(f"gpu:{gpu['type']}:{gpu['count']}" for gpu in node["gpus"])
        if found != declared:
            faults.append(
                f"Slurm gives {name} {' and '.join(found) or 'no GPU'}, and the inventory declares "
                f"{' and '.join(declared)}: correct node_gpu_model and node_gpu_count, or run slurm.yml."
            )
    return faults


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name of the filter."""
        return {"cluster_faults": cluster_faults}
