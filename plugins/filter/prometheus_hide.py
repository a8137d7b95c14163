# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _prometheus

DOCUMENTATION = r"""
name: prometheus_hide
short_description: A complaint without the secrets that it repeats
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Takes every text of a structure out of what a checker printed, save what stands under the key C(name).
positional: _input, secrets
options:
  _input:
    description: What the checker printed.
    type: str
    required: true
  secrets:
    description: What it was given, Alertmanager's receivers for example.
    type: raw
    required: true
"""
EXAMPLES = r"""
- name: What does amtool complain of?
  ansible.builtin.debug:
    msg: "{{ check.stderr | trainyard.cluster.prometheus_hide(prometheus_alertmanager_receivers) }}"
"""
RETURN = r"""
_value:
  description: The same with an ellipsis for each such text.
  type: str
"""


def prometheus_hide(text: str, secrets: Any) -> str:
    """Return the text without the secrets; see DOCUMENTATION."""
    return _prometheus.hide(text, secrets)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"prometheus_hide": prometheus_hide}
