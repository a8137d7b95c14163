# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _prometheus

DOCUMENTATION = r"""
name: prometheus_target_groups
short_description: Targets in the form of Prometheus's service discovery from files
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Makes a target group of each target, with its job and instance as labels.
  - Takes time in proportion to the number of targets.
positional: _input
options:
  _input:
    description: Targets, as in the variable C(prometheus_targets) of the role prometheus.
    type: list
    elements: dict
    required: true
"""
EXAMPLES = r"""
- name: What will Prometheus read?
  ansible.builtin.debug:
    msg: "{{ prometheus_targets | trainyard.cluster.prometheus_target_groups }}"
"""
RETURN = r"""
_value:
  description: The content of the file, as YAML.
  type: str
  sample: '- {"targets": ["gpu1:9100"], "labels": {"job": "node", "instance": "gpu1"}}'
"""


def prometheus_target_groups(targets: Iterable[Mapping[str, Any]]) -> str:
    """Return the content of the file; see DOCUMENTATION."""
    return _prometheus.target_groups(targets)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"prometheus_target_groups": prometheus_target_groups}
