# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm

DOCUMENTATION = r"""
name: slurm_configuration
short_description: Lines of slurm.conf and gres.conf from declared nodes and partitions
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Turns O(_input) and O(partitions), in which P(trainyard.cluster.slurm_faults#filter) finds no fault, into lines of
    Slurm's configuration. Nodes alike share a line.
  - A job that asks for no memory and no CPUs gets its share of the partition's smallest node.
positional: _input, partitions
options:
  _input:
    description: Declared nodes, as in the variable C(slurm_nodes) of the role slurm.
    type: list
    elements: dict
    required: true
  partitions:
    description: Declared partitions, as in the variable C(slurm_partitions) of the role slurm.
    type: list
    elements: dict
    default: []
"""
EXAMPLES = r"""
- name: What does Slurm read about the nodes?
  ansible.builtin.debug:
    msg: "{{ (slurm_nodes | trainyard.cluster.slurm_configuration(slurm_partitions)).node_lines }}"
"""
RETURN = r"""
_value:
  description: The lines, and what belongs to them.
  type: dict
  contains:
    node_lines:
      description: Lines NodeName of slurm.conf.
      type: list
      elements: str
      sample:
        - NodeName=gpu[1-2] CPUs=96 Sockets=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=2000000
          Gres=gpu:h100:8 State=UNKNOWN
    partition_lines:
      description: Lines PartitionName of slurm.conf.
      type: list
      elements: str
      sample:
        - PartitionName=train Nodes=gpu[1-2] Default=YES MaxTime=UNLIMITED DefMemPerCPU=20833 DefCpuPerGPU=12 State=UP
    gres_lines:
      description: Lines of gres.conf.
      type: list
      elements: str
      sample: ["NodeName=gpu[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-7]"]
    gpu_types:
      description: GPU types of the cluster, each once.
      type: list
      elements: str
      sample: [h100]
"""


def slurm_configuration(
    nodes: Sequence[Mapping[str, Any]], partitions: Sequence[Mapping[str, Any]] = ()
) -> dict[str, list[str]]:
    parsed = _slurm.parse_nodes(nodes)
    return {
        "node_lines": _slurm.node_lines(parsed),
        "partition_lines": _slurm.partition_lines(partitions, parsed),
        "gres_lines": _slurm.gres_lines(parsed),
        "gpu_types": _slurm.gpu_types(parsed),
    }


class FilterModule:
    """The filter, by its name in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_configuration": slurm_configuration}
