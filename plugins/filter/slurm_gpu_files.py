# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm

DOCUMENTATION = r"""
name: slurm_gpu_files
short_description: Device files of the GPUs of a node
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - The GPUs of a declared node are C(/dev/nvidia0), C(/dev/nvidia1) and so on.
positional: _input, name
options:
  _input:
    description: Declared nodes, as in the variable C(slurm_nodes) of the role slurm.
    type: list
    elements: dict
    required: true
  name:
    description: The node's name.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: Which files are the GPUs of gpu1?
  ansible.builtin.debug:
    msg: "{{ slurm_nodes | trainyard.cluster.slurm_gpu_files('gpu1') }}"
"""
RETURN = r"""
_value:
  description: The files; none where no such node is declared.
  type: list
  elements: path
  sample: [/dev/nvidia0, /dev/nvidia1]
"""


def slurm_gpu_files(nodes: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    return _slurm.gpu_files(nodes, name)


class FilterModule:
    """The filter, by its name in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_gpu_files": slurm_gpu_files}
