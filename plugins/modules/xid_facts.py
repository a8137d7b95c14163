#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: xid_facts
short_description: Report the errors of GPUs, NVSwitches and the fabric manager that the logs hold, and what to do
version_added: 0.1.0
description:
  - Reads the kernel log for Xids (GPU) and SXids (NVSwitch), and the fabric manager's log for its errors.
    Changes nothing.
  - Each error is explained by NVIDIA's published catalogue and bears the action that the catalogue asks for.
    An unknown code is reported as V(unknown), never left out.
  - Where the driver says in words alone that a GPU has fallen off the bus, this is an Xid 79 as well.
  - For each GPU and NVSwitch a verdict says the most severe action that its errors ask for.
author: Trainyard contributors (@trainyard)
options:
  source:
    description:
      - V(journal) is systemd's journal, V(dmesg) the kernel's ring buffer, V(file) a log file.
      - Another user than root may not be allowed to read the first two.
    type: str
    choices: [journal, dmesg, file]
    default: journal
  path:
    description:
      - The file, needed for O(source=file). It may come from C(dmesg), C(journalctl), a syslog daemon, C(/dev/kmsg) or
        the fabric manager, also as lines of JSON, and may be compressed by gzip, bzip2 or xz.
      - Of a file above 64 MiB the end is read.
    type: path
  since:
    description:
      - Leave out what is older. A time in ISO 8601 (V(2026-11-30T08:00:00+01:00); without an offset it is the machine's
        own time), or how long ago (V(90m), V(24h), V(7d)).
      - An event whose time isn't known stays in.
      - Without it the journal and O(fabric_manager_log) are read from the start of the machine, anything else whole.
    type: str
  limit:
    description:
      - Return this many events, the newest. Groups and verdicts speak of all.
      - V(0) returns all, which may be megabytes.
    type: int
    default: 1000
  fabric_manager_log:
    description:
      - The fabric manager's own log, read besides O(source=journal) and O(source=dmesg).
      - Passed over where it isn't there.
    type: path
    default: /var/log/fabricmanager.log
  root:
    description: The directory that holds the machine's C(/proc), from which indices and UUIDs of the GPUs are taken.
    type: path
    default: /
  timeout:
    description: Seconds to wait for C(journalctl) or C(dmesg).
    type: int
    default: 60
attributes:
  check_mode:
    support: full
    description: Reads only.
  diff_mode:
    support: none
    description: Reads only.
"""

EXAMPLES = r"""
- name: What did the GPUs report since the machine started?
  trainyard.cluster.xid_facts:

- name: Stop where a GPU needs more than a restart of its program
  ansible.builtin.assert:
    that: ansible_facts.xid.gpus | selectattr('severity', 'equalto', 'critical') | length == 0
    fail_msg: "{{ ansible_facts.xid.gpus | map(attribute='message') | join('; ') }}"

- name: Read a log that somebody sent, the last day of it
  trainyard.cluster.xid_facts:
    source: file
    path: /var/tmp/kern.log
    since: 24h
"""

RETURN = r"""
ansible_facts:
  description: The facts, under the key C(xid).
  returned: success
  type: dict
  contains:
    xid:
      description: What the logs say.
      type: dict
      returned: always
      contains:
        source:
          description: Where it was read.
          type: str
        path:
          description: The file, null for another source.
          type: str
        since:
          description: Where the reading begins, in ISO 8601; null where nothing was left out.
          type: str
        catalogue:
          description: NVIDIA's documents, with their version, from which names, severities and actions are.
          type: str
        events_total:
          description: Number of events, those beyond O(limit) included.
          type: int
        events:
          description: The newest events, in the log's order.
          type: list
          elements: dict
          contains:
            kind:
              description: V(xid) (GPU), V(sxid) (NVSwitch) or V(fabric_manager).
              type: str
            code:
              description: Number of the error; null where the fabric manager names none.
              type: int
            name:
              description: NVIDIA's name of the error, V(unknown) where its catalogue has none.
              type: str
            severity:
              description: V(critical) (no job belongs on the device), V(warning) or V(info).
              type: str
            meaning:
              description: What happened.
              type: str
            action:
              description:
                - What to do, by NVIDIA's catalogue.
                - From the least to the most severe, V(ignore), V(restart the application), V(contact support),
                  V(update the driver), V(reset the GPU), V(reboot), V(check cabling) (and seat), V(RMA).
              type: str
            advice:
              description: What else to know or do; null where there is nothing.
              type: str
            pci_bus_id:
              description: Address as in C(/sys/bus/pci/devices).
              type: str
            gpu:
              description: Index of the GPU as nvidia-smi counts; null where it isn't known.
              type: int
            uuid:
              description: Identifier of the GPU, from the log or the driver.
              type: str
            gpu_instance:
              description: GPU instance of MIG.
              type: int
            compute_instance:
              description: Compute instance of MIG.
              type: int
            switch:
              description: Number of the NVSwitch.
              type: int
            link:
              description: Number of the NVLink.
              type: int
            time:
              description:
                - When, in ISO 8601. Null where the line bears no time.
                - A time since the start of the machine is turned into this for O(source=dmesg) alone.
              type: str
            monotonic_seconds:
              description: Seconds since the start of the machine, where the line bears them.
              type: float
            pid:
              description: Process that the driver names.
              type: int
            process_name:
              description: Name of that process.
              type: str
            channel:
              description: Channel of the GPU, as printed.
              type: str
            text:
              description: What follows the code.
              type: str
            continuation:
              description: Whether the line only adds details to an event before it. Groups don't count such lines.
              type: bool
            line:
              description: The whole line.
              type: str
        groups:
          description: The events by kind, code and device, in the order in which they began.
          type: list
          elements: dict
          contains:
            kind: {type: str, description: 'As in C(events).'}
            code: {type: int, description: 'As in C(events).'}
            name: {type: str, description: 'As in C(events).'}
            severity: {type: str, description: 'The worst of its events.'}
            action: {type: str, description: 'The most severe of its events.'}
            pci_bus_id: {type: str, description: 'As in C(events).'}
            gpu: {type: int, description: 'As in C(events).'}
            uuid: {type: str, description: 'As in C(events).'}
            count: {type: int, description: 'Number of events.'}
            first: {type: str, description: 'Time of the first, in ISO 8601.'}
            last: {type: str, description: 'Time of the last, in ISO 8601.'}
            process_names: {type: list, elements: str, description: 'Processes named, ten at most.'}
        gpus:
          description: A verdict for each GPU that has events.
          type: list
          elements: dict
          contains: &verdict
            kind: {type: str, description: 'V(gpu) or V(nvswitch).'}
            pci_bus_id: {type: str, description: 'Address as in C(/sys/bus/pci/devices).'}
            gpu: {type: int, description: 'Index of the GPU; null for an NVSwitch.'}
            uuid: {type: str, description: 'Identifier of the GPU.'}
            severity: {type: str, description: 'The worst of its events.'}
            action: {type: str, description: 'The most severe that its events ask for.'}
            codes: {type: list, elements: int, description: 'Its codes, the most severe first.'}
            count: {type: int, description: 'Number of its events.'}
            last: {type: str, description: 'Time of the last, in ISO 8601.'}
            message: {type: str, description: 'The action and the codes that ask for it.'}
        switches:
          description: A verdict for each NVSwitch that has events.
          type: list
          elements: dict
          contains: *verdict
  sample:
    xid:
      source: journal
      path: null
      since: null
      catalogue: Xid Errors, catalogue of Xids 1 to 172, November 2026; Fabric Manager User Guide DU-09883-001_v1.3
      events_total: 1
      events:
        - kind: xid
          code: 79
          name: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS
          severity: critical
          meaning: The driver can't reach the GPU over PCIe any more.
          action: reboot
          advice: If it is lost again, check its seat, power and PCIe riser, then have it replaced (RMA).
          pci_bus_id: "0000:5d:00.0"
          gpu: 3
          uuid: GPU-f1906b9b-557a-e961-045c-9fe4be3ce012
          time: "2026-11-30T08:14:03.552642+00:00"
          pid: null
          process_name: null
          text: pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
      groups:
        - kind: xid
          code: 79
          count: 1
          first: "2026-11-30T08:14:03.552642+00:00"
          last: "2026-11-30T08:14:03.552642+00:00"
      gpus:
        - kind: gpu
          pci_bus_id: "0000:5d:00.0"
          gpu: 3
          severity: critical
          action: reboot
          codes: [79]
          count: 1
          message: "reboot: Xid 79 (1)"
      switches: []
"""

from dataclasses import asdict
from datetime import datetime

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils._command import run_command
from ansible_collections.trainyard.cluster.plugins.module_utils._xid_facts import (
    SOURCES,
    Request,
    XidError,
    collect,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "str", "choices": list(SOURCES), "default": "journal"},
            "path": {"type": "path"},
            "since": {"type": "str"},
            "limit": {"type": "int", "default": 1000},
            "fabric_manager_log": {"type": "path", "default": "/var/log/fabricmanager.log"},
            "root": {"type": "path", "default": "/"},
            "timeout": {"type": "int", "default": 60},
        },
        required_if=[("source", "file", ["path"])],
        supports_check_mode=True,
    )
    for name, least, what in (
        ("timeout", 1, "no number of seconds to wait; give 1 or more"),
        ("limit", 0, "no number of events; give 0 (all) or more"),
    ):
        if module.params[name] < least:
            module.fail_json(msg=f"{name}: {module.params[name]} is {what}")
    try:
        facts = collect(run_command, Request(**module.params), datetime.now().astimezone())
    except XidError as error:
        module.fail_json(msg=str(error))
    module.exit_json(ansible_facts={"xid": asdict(facts)})


if __name__ == "__main__":
    main()
