#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_facts
short_description: Report what must be alike on all machines of a cluster
version_added: 0.1.0
description:
  - Returns a machine's name, platform, clock, name resolution, the ids of some users and the state of the shared
    directory as facts. Changes nothing.
  - The filter P(trainyard.cluster.machine_faults#filter) compares the answers of several machines.
author: Trainyard contributors (@trainyard)
options:
  time:
    description: The time on the controller, in seconds since 1970, which this machine's clock is compared with.
    type: float
    required: true
  names:
    description: Host names to resolve.
    type: list
    elements: str
    default: []
  accounts:
    description: Users that are to have the same ids on all machines.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The user's name.
        type: str
        required: true
      uid:
        description: The id that the user is to have.
        type: int
        required: true
      gid:
        description: The id of the user's own group. The same as O(accounts[].uid) if left out.
        type: int
  shared_directory:
    description: A directory that is to be mounted and writable.
    type: path
attributes:
  check_mode: {support: full, description: Reads only.}
  diff_mode: {support: none, description: Reads only.}
"""
EXAMPLES = r"""
- name: What does each machine say about itself and the others?
  trainyard.cluster.machine_facts:
    time: "{{ now().timestamp() }}"
    names: [ctl, "{{ inventory_hostname }}"]
    accounts: [{name: trainer, uid: 2000}]
    shared_directory: /shared
"""
RETURN = r"""
ansible_facts:
  description: The answers under the key C(site_machine). What isn't there is null or absent.
  returned: always
  type: dict
  contains:
    site_machine:
      description: One machine's answers.
      type: dict
      contains:
        name: {description: The machine's own short name., type: str, sample: gpu1}
        platform_id: {description: C(ID) of os-release., type: str, sample: debian}
        platform_version: {description: C(VERSION_ID) of os-release., type: str, sample: "13"}
        architecture: {description: The machine's architecture., type: str, sample: x86_64}
        clock_offset_seconds: {description: How far its clock is ahead of O(time)., type: float, sample: 0.4}
        addresses: {description: Addresses by name., type: dict, sample: {ctl: [198.18.0.2]}}
        accounts:
          description: The ids wanted.
          type: list
          elements: dict
          sample: [{name: trainer, uid: 2000, gid: 2000}]
        users: {description: The ids found by user., type: dict, sample: {trainer: {uid: 2000, gid: 2000}}}
        holders:
          description: Users and groups by the ids wanted.
          type: dict
          sample: {uid: {"2000": trainer}, gid: {"2000": trainer}}
        shared_directory:
          description: The directory's path, mount point, file system and problem.
          type: dict
          sample: {path: /shared, mount_point: /shared, file_system: nfs4, problem: null}
"""

import platform
import socket
import time
from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils import _machine


def main() -> None:
    account_spec = {
        "name": {"type": "str", "required": True},
        "uid": {"type": "int", "required": True},
        "gid": {"type": "int"},
    }
    module = AnsibleModule(
        argument_spec={
            "time": {"type": "float", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
            "accounts": {"type": "list", "elements": "dict", "options": account_spec, "default": []},
            "shared_directory": {"type": "path"},
        },
        supports_check_mode=True,
    )
    offset = time.time() - module.params["time"]
    release = _machine.os_release(_read("/etc/os-release"))
    wanted = [
        {**account, "gid": account["uid"] if account["gid"] is None else account["gid"]}
        for account in module.params["accounts"]
    ]
    path = module.params["shared_directory"]
    directory = asdict(_machine.shared_directory(path, _read("/proc/self/mountinfo"))) if path else None
    machine = {
        "name": socket.gethostname().split(".", 1)[0],
        "platform_id": release.get("ID"),
        "platform_version": release.get("VERSION_ID"),
        "architecture": platform.machine(),
        "clock_offset_seconds": round(offset, 3),
        "addresses": _machine.addresses(module.params["names"]),
        "accounts": wanted,
        "users": _machine.users(account["name"] for account in wanted),
        "holders": _machine.holders(wanted),
        "shared_directory": directory,
    }
    module.exit_json(ansible_facts={"site_machine": machine})


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


if __name__ == "__main__":
    main()
