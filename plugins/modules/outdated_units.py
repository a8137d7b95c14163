#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: outdated_units
short_description: Find systemd units that run on files since replaced
version_added: 0.1.0
description:
  - Compares when a unit's main process started with when the files that it read were changed, and its program and
    libraries with those on the disk. Changes nothing.
  - A change is whatever C(stat) calls one, of owner, mode and hard links too, so that a file of old that was put back
    is noticed.
  - A play that restarts what this module names restarts nothing without need, and makes good what a play before it that
    was cut short left behind. Handlers do neither.
  - A file that isn't there asks for nothing.
author: Trainyard contributors (@trainyard)
options:
  units:
    description: The units and what they read.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the unit; C(.service) may be left out.
        type: str
        required: true
      files:
        description: Files that it reads when it starts.
        type: list
        elements: path
        default: []
      unit_files:
        description: Its unit file and drop-ins, as far as the play writes them. systemd has to have read them, too.
        type: list
        elements: path
        default: []
      reload_files:
        description: Files that it also reads when it reloads.
        type: list
        elements: path
        default: []
      reload_mark:
        description: File that the play touches after each reload, in C(/run) where it goes with the process.
        type: path
      mapped:
        description:
          - Regular expression for paths of libraries in the memory of the process. Those that were replaced since ask
            for a restart.
          - Without it, only the program counts.
        type: str
attributes:
  check_mode:
    support: full
    description: Reads only.
  diff_mode:
    support: none
    description: Reads only.
"""
EXAMPLES = r"""
- name: Find out whether the daemon runs on files since replaced
  trainyard.cluster.outdated_units:
    units:
      - name: prometheus
        files: [/etc/default/prometheus]
        reload_files: [/etc/prometheus/prometheus.yml]
        reload_mark: /run/prometheus-reloaded
  register: outdated

- name: Start it now and at every boot
  ansible.builtin.systemd_service:
    name: prometheus
    state: "{{ 'restarted' if 'prometheus' in outdated.restart else 'started' }}"
    enabled: true
    daemon_reload: "{{ outdated.daemon_reload }}"
"""
RETURN = r"""
units:
  description: What was found, by the name that was given.
  returned: success
  type: dict
  sample:
    prometheus:
      running: true
      daemon_reload: false
      restart: [/etc/default/prometheus is newer than the process]
      reload: []
restart:
  description: Names of the units that have to start anew.
  returned: success
  type: list
  elements: str
  sample: [prometheus]
reload:
  description: Names of the units that have to read a file again, and need no restart.
  returned: success
  type: list
  elements: str
  sample: []
daemon_reload:
  description: Whether systemd has to read unit files again.
  returned: success
  type: bool
  sample: false
"""

import re
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils._command import run_command
from ansible_collections.trainyard.cluster.plugins.module_utils._systemd_units import SystemdError, Watched, units


def main() -> None:
    paths = {"type": "list", "elements": "path", "default": []}
    module = AnsibleModule(
        argument_spec={
            "units": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "files": paths,
                    "unit_files": paths,
                    "reload_files": paths,
                    "reload_mark": {"type": "path"},
                    "mapped": {"type": "str"},
                },
            }
        },
        supports_check_mode=True,
    )

    try:
        states = units(run_command, [Watched(**unit) for unit in module.params["units"]])
    except SystemdError as error:
        module.fail_json(msg=f"units: {error}")
    except re.error as error:
        module.fail_json(msg=f"units: mapped is no regular expression: {error}")
    module.exit_json(
        changed=False,
        units={state.name: {key: value for key, value in asdict(state).items() if key != "name"} for state in states},
        restart=[state.name for state in states if state.restart],
        reload=[state.name for state in states if state.reload and not state.restart],
        daemon_reload=any(state.daemon_reload for state in states),
    )


if __name__ == "__main__":
    main()
