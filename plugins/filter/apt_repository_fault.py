# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.trainyard.cluster.plugins.module_utils._apt_repository import fault_kind

DOCUMENTATION = r"""
name: apt_repository_fault
short_description: Why apt can't use a package repository
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Finds the line that tells most among those apt prints for one fault, and says it in a few words.
positional: _input
options:
  _input:
    description: What C(apt-get update) or C(apt-helper) printed as errors, in the locale C.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: Say why the repository can't be used
  ansible.builtin.fail:
    msg: "{{ (update.stderr | trainyard.cluster.apt_repository_fault).reason }}"
  when: update.rc != 0
"""
RETURN = r"""
_value:
  description: The kind of fault and the words for it, both empty where the text tells of none.
  type: dict
  contains:
    kind:
      description: One of conflict, locked, key, signature, component, expired, unreachable, missing and other.
      type: str
    reason:
      description: Part of a sentence.
      type: str
      sample: no package lists are there (404 Not Found)
"""


def apt_repository_fault(output: str) -> dict[str, str]:
    """Return a fault's kind and words; see DOCUMENTATION."""
    kind, reason = fault_kind(output)
    return {"kind": kind, "reason": reason}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., dict[str, str]]]:
        return {"apt_repository_fault": apt_repository_fault}
