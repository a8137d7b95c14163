# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _accounts, _inventory, _slurm
from ansible_collections.trainyard.cluster.plugins.plugin_utils import _roles

DOCUMENTATION = r"""
name: site
short_description: What an inventory declares about a cluster, and its faults
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Reads the groups C(slurm_controller), C(gpu_nodes), C(backup_server) and C(monitoring_server), and the variables
    C(node_*) and C(cluster_*) of their hosts. No machine is asked.
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
    targets:
      description: What Prometheus scrapes, in the form of C(prometheus_targets).
      type: list
      elements: dict
      sample: [{job: dcgm, instance: gpu1, address: "gpu1:9400"}]
"""

# The role's variables that its preflight looks at before it asks a machine.
_SLURM = (
    "slurm_cluster_name",
    "slurm_gid",
    "slurm_munge_gid",
    "slurm_munge_uid",
    "slurm_nodes",
    "slurm_partitions",
    "slurm_uid",
)


def site(
    groups: Mapping[str, Sequence[str]],
    hostvars: Mapping[str, Mapping[str, Any]],
    roles: Mapping[str, Sequence[str]] | None = None,
    given: Iterable[str] = (),
) -> dict[str, Any]:
    """Filter `site`."""
    site = _inventory.read_site(groups, hostvars, _roles.options(_roles.names()))
    faults = site.faults + _roles.argument_faults(groups, site.arguments, roles or {}, set(given))
    faults += _slurm_faults(site, set(given))
    return {"faults": faults, "nodes": site.nodes, "partitions": site.partitions, "targets": site.targets}


def _slurm_faults(site: _inventory.Site, given: set[str]) -> list[str]:
    """What the role slurm says of its own variables, and of accounts beside its services' accounts."""
    faults: dict[str, None] = {}
    seen: list[dict[str, Any]] = []
    for arguments in site.arguments.values():
        own = {name: value for name, value in arguments.items() if name in _SLURM and value is not None}
        if own in seen:
            continue
        seen.append(own)
        values = _roles.valid_values("slurm", own, given)
        if values is None:
            continue  # told with the other arguments
        if own:
            faults.update(dict.fromkeys(_declaration_faults(site, own, values)))
        services = {
            "munge": {"uid": values["slurm_munge_uid"], "gid": values["slurm_munge_gid"]},
            "slurm": {"uid": values["slurm_uid"], "gid": values["slurm_gid"]},
        }
        faults.update(dict.fromkeys(_accounts.service_faults(site.accounts, services)))
    return list(faults)


def _declaration_faults(site: _inventory.Site, own: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    # What the inventory leaves to the playbook was looked at already: it takes part by its names alone.
    nodes = (
        values["slurm_nodes"]
        if own.get("slurm_nodes")
        else [{"name": name, "sockets": 1, "cores_per_socket": 1, "memory_mib": 1} for name in site.nodes]
    )
    partitions = values["slurm_partitions"] if own.get("slurm_partitions") else site.partitions
    shape = [*_no_lists("slurm_nodes", nodes, "gpus"), *_no_lists("slurm_partitions", partitions, "nodes")]
    return shape or _slurm.find_problems(str(values.get("slurm_cluster_name") or "cluster"), nodes, partitions, values)


def _no_lists(name: str, entries: Any, key: str) -> Iterator[str]:
    """Argument specifications let text pass for a list, and the role then takes it apart into letters."""
    if isinstance(entries, str) or not all(isinstance(entry, Mapping) for entry in entries):
        yield f"{name} is {entries!r}: write a list of mappings."
        return
    for entry in entries:
        value = entry.get(key)
        if value is not None and not isinstance(value, list):
            yield f"{name} holds {entry.get('name')} with {key} {value!r}: write a list."


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name of the filter."""
        return {"site": site}
