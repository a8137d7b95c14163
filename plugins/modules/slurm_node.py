#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain Slurm nodes, take them down and resume them, without getting in anybody's way
version_added: 0.1.0
description:
  - Drains nodes and waits until their jobs have ended, so that something can be done to them that would hurt a job.
  - The reason that Slurm keeps begins with C(trainyard:), which operators see in C(sinfo -R). By it this module knows
    later which nodes it drained. It is a part of the controller's state, so that a backup controller has it too.
  - A node that was drained or taken down before keeps its reason, whoever gave it. Only nodes with C(trainyard:) are
    resumed. The others are left alone, with a warning, and C(nodes[].left_alone) is true.
  - A node that Slurm itself took down (it did not answer, for instance) is drained too, since it could come back in
    the middle of the work. Slurm's reason is kept behind ours.
  - Runs on any machine with Slurm's commands whose user may change nodes, as root on the controller.
author: Trainyard contributors (@trainyard)
options:
  nodes:
    description: Names of nodes, or lists of them in Slurm's syntax (V(gpu[01-16,20])).
    type: list
    elements: str
    required: true
  state:
    description:
      - V(drained) lets jobs end and starts no new ones.
      - V(down) takes the nodes out of service altogether, and drains them too, so that they stay so. Where Slurm is set
        to return nodes to service by itself (C(ReturnToService=2)), it shows one that answers as drained afterwards.
      - V(resumed) puts nodes back into service that this module drained or took down.
    type: str
    choices: [drained, down, resumed]
    required: true
  reason:
    description:
      - Why, in one line without double quotation marks. Required for V(drained) and V(down).
      - With V(resumed), only nodes that were drained for this reason are resumed. So a node that was drained for
        another one, a broken GPU say, stays out of service when an upgrade ends.
    type: str
  wait:
    description:
      - With V(drained) and V(down), wait until no job holds on to the nodes.
      - Without it, V(drained) returns at once, and V(down) fails while there are jobs.
    type: bool
    default: true
  timeout:
    description: Seconds to wait. Fails after that, naming the jobs that still run; the nodes stay drained.
    type: int
    default: 3600
  poll:
    description: Seconds from one look at the nodes to the next.
    type: int
    default: 10
  kill_jobs:
    description: With V(down), don't wait. Slurm ends the jobs on the nodes.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Says what would change and does not wait.
  diff_mode:
    support: full
    description: A line for each node that changes, before and after.
"""

EXAMPLES = r"""
- name: Let the jobs on two nodes end, and start no new ones
  trainyard.cluster.slurm_node:
    nodes: gpu[01-02]
    state: drained
    reason: driver 580
    timeout: 86400
  delegate_to: ctl

- name: Put back into service what was drained for the driver, and nothing else
  trainyard.cluster.slurm_node:
    nodes: gpu[01-02]
    state: resumed
    reason: driver 580
  delegate_to: ctl

- name: Keep jobs from a node with a broken GPU, and don't wait for those that run
  trainyard.cluster.slurm_node:
    nodes: [gpu07]
    state: drained
    reason: Xid 79 on GPU 3
    wait: false
  delegate_to: ctl
"""

RETURN = r"""
nodes:
  description: The nodes, as they are afterwards.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the node.
      type: str
    state:
      description: 'V(IDLE), V(ALLOCATED), V(MIXED), V(DOWN), V(ERROR), V(FUTURE) or V(UNKNOWN).'
      type: str
    flags:
      description: What Slurm adds to the state, as V(DRAIN) and V(NOT_RESPONDING).
      type: list
      elements: str
    reason:
      description: The reason that Slurm keeps; null without one.
      type: str
      sample: 'trainyard: driver 580'
    reason_user:
      description: Who gave the reason.
      type: str
    held_by_trainyard:
      description: Whether the node is drained or down with a reason of this collection.
      type: bool
    left_alone:
      description: Whether nothing was done since the node was drained or down for another reason.
      type: bool
    jobs:
      description: Jobs that still hold on to the node; empty with O(state=resumed).
      type: list
      elements: str
"""

import os
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils._command import run_command
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_ask import forget_preferences
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_node import (
    Request,
    UnfinishedError,
    apply,
    find_request_fault,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import SlurmError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "down", "resumed"], "required": True},
            "reason": {"type": "str"},
            "wait": {"type": "bool", "default": True},
            "timeout": {"type": "int", "default": 3600},
            "poll": {"type": "int", "default": 10},
            "kill_jobs": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    request = Request(**module.params)
    fault = find_request_fault(request)
    if fault:
        module.fail_json(msg=fault)
    forget_preferences(os.environ)
    try:
        result = apply(run_command, request, module.check_mode)
    except SlurmError as error:
        module.fail_json(msg=str(error), changed=isinstance(error, UnfinishedError))
    for warning in result.warnings:
        module.warn(warning)
    module.exit_json(
        changed=result.changed,
        nodes=[asdict(node) for node in result.nodes],
        diff={"before": result.before, "after": result.after},
    )


if __name__ == "__main__":
    main()
