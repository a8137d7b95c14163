# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.trainyard.cluster.plugins.plugin_utils._hostlist import expand

DOCUMENTATION = r"""
name: hostlist_expand
short_description: The names in a list of hosts in Slurm's syntax
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Does what C(scontrol show hostnames) does, without Slurm. The order is the list's, and a name that is there twice
    comes twice (filter C(unique)).
  - Knows Slurm's syntax alone, in which C(@), C(!), C(&), C(*) and steps (C([0-10/2])) mean nothing, and refuses them.
  - Refuses a list of more than 65536 hosts, as Slurm does.
requirements:
  - ClusterShell (Python package on the controller)
positional: _input
options:
  _input:
    description: The list, or several of them. Nothing at all is no host.
    type: raw
    required: true
seealso:
  - plugin: trainyard.cluster.hostlist_fold
    plugin_type: filter
"""
EXAMPLES = r"""
- name: gpu01, gpu02, gpu07 and login
  ansible.builtin.debug:
    msg: "{{ 'gpu[01-02,07],login' | trainyard.cluster.hostlist_expand }}"
"""
RETURN = r"""
_value:
  description: The names.
  type: list
  elements: str
"""


def hostlist_expand(hosts: Any) -> list[str]:
    return expand("hostlist_expand", hosts)


class FilterModule:
    """The filter, by its name in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"hostlist_expand": hostlist_expand}
