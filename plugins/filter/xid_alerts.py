# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.trainyard.cluster.plugins.module_utils import _xid_catalogue

DOCUMENTATION = r"""
name: xid_alerts
short_description: What an alert says of each Xid
version_added: 0.1.0
author: Trainyard contributors (@trainyard)
description:
  - Lists the Xids of NVIDIA's published catalogue with their severity and with what to do on a node of a cluster, from
    the same source as M(trainyard.cluster.xid_facts).
  - Numbers that aren't in use are left out.
positional: _input
options:
  _input:
    description: By severity, the numbers that get this one in place of the catalogue's; C({}) changes none.
    type: dict
    required: true
seealso:
  - plugin: trainyard.cluster.prometheus_choice
    plugin_type: filter
"""
EXAMPLES = r"""
- name: What is to be done about each Xid, when faults of users' programs shall wake nobody?
  ansible.builtin.debug:
    msg: "{{ {'info': [13, 31]} | trainyard.cluster.xid_alerts }}"
"""
RETURN = r"""
_value:
  description: The kinds, each with C(codes), C(severity) (V(critical), V(warning), V(info)) and C(action), a text.
  type: list
  elements: dict
  sample:
    - codes: [79]
      severity: critical
      action: >-
        The driver can't reach the GPU over PCIe any more. Drain the node and reboot it. If it is lost again, check its
        seat, power and PCIe riser, then have it replaced (RMA).
"""


def xid_alerts(severities: Mapping[str, Sequence[int]]) -> list[dict[str, object]]:
    """Return what an alert says of each Xid; see DOCUMENTATION."""
    try:
        return _xid_catalogue.alerts(severities)
    except ValueError as error:
        raise AnsibleFilterError(f"xid_alerts: {error}") from error


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., list[dict[str, object]]]]:
        return {"xid_alerts": xid_alerts}
