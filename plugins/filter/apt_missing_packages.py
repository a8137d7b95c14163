# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable

from ansible_collections.trainyard.cluster.plugins.module_utils._apt_repository import missing_packages

DOCUMENTATION = r"""
name: apt_missing_packages
short_description: The packages that a machine's package sources don't have
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Reads what M(ansible.builtin.apt) said when it failed.
positional: _input
options:
  _input:
    description: The module's message.
    type: str
    required: true
  wanted:
    description: The packages that were asked for, a version pinned as C(name=version).
    type: list
    elements: str
    required: true
"""
EXAMPLES = r"""
- name: Say what is missing
  ansible.builtin.fail:
    msg: "{{ result.msg | trainyard.cluster.apt_missing_packages(wanted=packages) | join(', ') }}"
"""
RETURN = r"""
_value:
  description: The packages that were not found, as asked for; empty where the module failed for another reason.
  type: list
  elements: str
  sample: [cuda-toolkit-13-0]
"""


def apt_missing_packages(message: str, wanted: Iterable[str]) -> list[str]:
    """Return the packages that were not found; see DOCUMENTATION."""
    return missing_packages(message, wanted)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"apt_missing_packages": apt_missing_packages}
