# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm

DOCUMENTATION = r"""
name: slurm_faults
short_description: Sentences about what is wrong with a declared Slurm cluster
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Looks for values that Slurm would refuse or take for something else, and for names that nothing stands behind.
  - Needs no machine.
positional: _input, partitions, cluster_name, ids
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
    required: true
  cluster_name:
    description: The cluster's name.
    type: str
    required: true
  ids:
    description: User and group ids by the names of the role's variables that declare them.
    type: dict
    required: true
"""
EXAMPLES = r"""
- name: What is wrong with this cluster?
  ansible.builtin.debug:
    msg: "{{ slurm_nodes | trainyard.cluster.slurm_faults(slurm_partitions, slurm_cluster_name, ids) }}"
  vars:
    ids: {slurm_munge_uid: 966, slurm_munge_gid: 966, slurm_uid: 64030, slurm_gid: 64030}
"""
RETURN = r"""
_value:
  description: One sentence a fault; empty when there is none.
  type: list
  elements: str
  sample: ["Partition train names gpu9, which slurm_nodes does not hold: correct the name ..."]
"""


def slurm_faults(
    nodes: Sequence[Mapping[str, Any]],
    partitions: Sequence[Mapping[str, Any]],
    cluster_name: str,
    ids: Mapping[str, int],
) -> list[str]:
    return _slurm.find_problems(cluster_name, nodes, partitions, ids)


class FilterModule:
    """The filter, by its name in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_faults": slurm_faults}
