# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _inventory
from ansible_collections.trainyard.cluster.plugins.plugin_utils import _roles

DOCUMENTATION = r"""
name: site
short_description: What an inventory declares about a cluster, and its faults
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Reads the groups C(slurm_controller), C(gpu_nodes) and C(backup_server), and the variables C(node_*) and
    C(cluster_*) of their hosts. No machine is asked.
  - Compares the variables of roles that the inventory sets with the roles' argument specifications, as the roles do
    later when they start, except those that can't be computed before facts are gathered.
  - Looks at each host once, so it takes seconds for 10,000 of them. Do it once in a play and keep the result.
positional: _input, hostvars, roles, given
options:
  _input:
    description: Host names by group, Ansible's C(groups).
    type: dict
    required: true
  hostvars:
    description: Variables by host name, Ansible's C(hostvars).
    type: dict
    required: true
  roles:
    description: Names of this collection's roles that run on the hosts of a group, by group.
    type: dict
    default: {}
  given:
    description: Variables of roles that the playbook sets where the inventory doesn't.
    type: list
    elements: str
    default: []
"""
EXAMPLES = r"""
- name: What is wrong with this inventory?
  ansible.builtin.debug:
    msg: "{{ (groups | trainyard.cluster.site(hostvars, roles={'gpu_nodes': ['cuda']})).faults }}"
"""
RETURN = r"""
_value:
  description: What is declared. While there are faults, the rest can't be relied upon.
  type: dict
  contains:
    faults:
      description: Sentences that name variable, host and value, and say what to write where.
      type: list
      elements: str
      sample: ["cluster_name isn't set: write a name ..."]
    nodes:
      description: The hardware of each GPU node, by its name.
      type: dict
      sample:
        gpu1:
          name: gpu1
          sockets: 2
          cores_per_socket: 48
          threads_per_core: 1
          memory_mib: 1900000
          gpus: [{type: h100, count: 8}]
    partitions:
      description: Partitions with the names of their hosts.
      type: list
      elements: dict
      sample: [{name: train, nodes: [gpu1, gpu2], default: true, max_time: UNLIMITED}]
"""


def site(
    groups: Mapping[str, Sequence[str]],
    hostvars: Mapping[str, Mapping[str, Any]],
    roles: Mapping[str, Sequence[str]] | None = None,
    given: Iterable[str] = (),
) -> dict[str, Any]:
    """Filter `site`."""
    site = _inventory.read_site(groups, hostvars, _roles.options(_roles.names()))
    faults = site.faults + _roles.argument_faults(groups, site.arguments, roles or {}, set(given))
    return {"faults": faults, "nodes": site.nodes, "partitions": site.partitions}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name of the filter."""
        return {"site": site}
