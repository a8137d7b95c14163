# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ansible_collections.trainyard.cluster.plugins.plugin_utils import _roles

DOCUMENTATION = r"""
name: role_options
short_description: The options of several roles of this collection in one argument specification
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Joins the options of the roles' C(meta/argument_specs.yml), to learn a default for example.
positional: _input
options:
  _input:
    description: Names of roles, without the collection's name.
    type: list
    elements: str
    required: true
"""
EXAMPLES = r"""
- name: Which user id will slurm have if nobody says otherwise?
  ansible.builtin.debug:
    msg: "{{ (['slurm'] | trainyard.cluster.role_options).slurm_uid.default }}"
"""
RETURN = r"""
_value:
  description: Options by name, as in an argument specification.
  type: dict
  sample: {slurm_node: {type: bool, default: false, description: Whether this machine is a node.}}
"""


def role_options(roles: Iterable[str]) -> dict[str, Any]:
    """Filter `role_options`."""
    return _roles.options(roles)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name of the filter."""
        return {"role_options": role_options}
