# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.trainyard.cluster.plugins.module_utils._accounts import account_faults

DOCUMENTATION = r"""
name: account_faults
short_description: Say what stands against creating accounts with declared ids on a machine
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Compares declared accounts with each other and with the machine's users and groups.
positional: _input
options:
  _input:
    description: The accounts, with name, uid and, where it is another number, gid.
    type: list
    elements: dict
    required: true
  passwd:
    description: What C(getent passwd) printed, at least for the names and uids of the accounts.
    type: str
    required: true
  group:
    description: What C(getent group) printed, at least for the names and gids of the accounts.
    type: str
    required: true
  host:
    description: The machine's name, for the sentences.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: Stop if an account can't be created
  ansible.builtin.assert:
    that: faults | length == 0
    fail_msg: "{{ faults | join(' ') }}"
  vars:
    faults: >-
      {{ cluster_users_accounts | trainyard.cluster.account_faults(passwd=passwd.stdout, group=group.stdout,
      host=inventory_hostname) }}
"""
RETURN = r"""
_value:
  description: A sentence for each fault.
  type: list
  elements: str
"""


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"account_faults": account_faults}
