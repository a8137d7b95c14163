# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _prometheus

DOCUMENTATION = r"""
name: prometheus_choice
short_description: A template of Prometheus that chooses a text by the value of a label
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Joins texts into one template for a label or an annotation of an alert.
positional: _input, label, field, otherwise
options:
  _input:
    description: The kinds, each with its C(codes) and its texts. A code is of one kind alone.
    type: list
    elements: dict
    required: true
  label:
    description: The label whose value is one of the codes.
    type: str
    required: true
  field:
    description: The key of the text.
    type: str
    required: true
  otherwise:
    description: The text for every other value.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: How severe is an Xid?
  ansible.builtin.debug:
    msg: "{{ kinds | trainyard.cluster.prometheus_choice('xid', 'severity', 'warning') }}"
  vars:
    kinds: [{codes: [48, 79], severity: critical}]
"""
RETURN = r"""
_value:
  description: The template.
  type: str
"""


def prometheus_choice(kinds: Sequence[Mapping[str, Any]], label: str, field: str, otherwise: str) -> str:
    """Return the template; see DOCUMENTATION."""
    return _prometheus.choice(kinds, label, field, otherwise)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"prometheus_choice": prometheus_choice}
