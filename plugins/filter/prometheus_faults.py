# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _prometheus

DOCUMENTATION = r"""
name: prometheus_faults
short_description: Sentences about what is wrong with what Prometheus is told
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Looks for targets, durations, addresses and labels that Prometheus would refuse or take for something else.
  - Needs no machine.
positional: _input, durations, listen_address, ports, external_labels
options:
  _input:
    description: Targets, as in the variable C(prometheus_targets) of the role prometheus.
    type: list
    elements: dict
    required: true
  durations:
    description: Durations by the names of the role's variables. Zero is accepted where the name ends with C(_for).
    type: dict
    required: true
  listen_address:
    description: The address to listen on.
    type: str
    required: true
  ports:
    description: Ports by the names of the role's variables.
    type: dict
    required: true
  external_labels:
    description: Labels of all that Prometheus sends out.
    type: dict
    required: true
"""
EXAMPLES = r"""
- name: What is wrong with these targets?
  ansible.builtin.debug:
    msg: >-
      {{ prometheus_targets | trainyard.cluster.prometheus_faults({'prometheus_scrape_interval': '15s'}, '0.0.0.0',
      {'prometheus_port': 9090}, {}) }}
"""
RETURN = r"""
_value:
  description: One sentence a fault; empty when there is none.
  type: list
  elements: str
  sample: ["The target 'gpu1' of job 'node' in prometheus_targets is there twice: leave one."]
"""


def prometheus_faults(
    targets: Iterable[Mapping[str, Any]],
    durations: Mapping[str, str],
    listen_address: str,
    ports: Mapping[str, int],
    external_labels: Mapping[str, Any],
) -> list[str]:
    """Return the sentences; see DOCUMENTATION."""
    return _prometheus.faults(targets, durations, listen_address, ports, external_labels)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"prometheus_faults": prometheus_faults}
