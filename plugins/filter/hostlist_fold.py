# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ansible_collections.trainyard.cluster.plugins.plugin_utils._hostlist import expand, fold

DOCUMENTATION = r"""
name: hostlist_fold
short_description: Names of hosts as a list in Slurm's syntax
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Sorts the names, takes each once and folds the numbers at their ends into brackets.
  - What comes out can stand in C(slurm.conf) and in every command of Slurm. So only numbers at the end of a name are
    folded, in one bracket, and leading zeros are kept.
requirements:
  - ClusterShell (Python package on the controller)
positional: _input
options:
  _input:
    description: Names, or lists in Slurm's syntax (V(gpu[01-16,20])), or one text with commas.
    type: raw
    required: true
seealso:
  - plugin: trainyard.cluster.hostlist_expand
    plugin_type: filter
"""
EXAMPLES = r"""
- name: gpu[01-03],login
  ansible.builtin.debug:
    msg: "{{ ['gpu02', 'gpu01', 'login', 'gpu03'] | trainyard.cluster.hostlist_fold }}"
"""
RETURN = r"""
_value:
  description: The list; empty without a name.
  type: str
"""


_NUMBERED = re.compile(r"(.*?)([0-9]+)\Z")
_DIGITS = re.compile(r"([0-9]+)")
# Longer numbers are serial numbers, that no range counts through.
_MAX_DIGITS = 9


def hostlist_fold(hosts: Any) -> str:
    numbers: dict[tuple[str, bool], list[str]] = {}
    for name in set(expand("hostlist_fold", hosts)):
        match = _NUMBERED.match(name)
        if match and len(match[2]) <= _MAX_DIGITS:
            numbers.setdefault((match[1], True), []).append(match[2])
        else:
            numbers.setdefault((name, False), [])
    return ",".join(
        stem + _brackets(numbers[stem, numbered])
        for stem, numbered in sorted(numbers, key=lambda key: (_natural(key[0]), key[1]))
    )


def _brackets(numbers: list[str]) -> str:
    if len(numbers) < 2:
        return "".join(numbers)
    return f"[{fold(numbers)}]"


def _natural(stem: str) -> list[tuple[int, str]]:
    """Return what rack9 comes before rack10 by."""
    return [(int(part), part) if part.isdigit() else (-1, part) for part in _DIGITS.split(stem)]


class FilterModule:
    """The filter, by its name in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"hostlist_fold": hostlist_fold}
