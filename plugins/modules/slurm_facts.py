#!/usr/bin/python
# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_facts
short_description: Report a Slurm cluster's controllers, nodes, partitions and jobs, and what is wrong with them
version_added: 0.1.0
description:
  - Asks C(scontrol) and C(squeue), by JSON where the release has it (23.02 and later) and by text where not. Changes
    nothing.
  - A cluster that does not answer gives C(ansible_facts.slurm.controller_responding) false, null lists and a problem
    that says why. The module fails only where O(required) asks for more.
  - A value that Slurm doesn't have is null, whatever is printed in its place. No limit is null too, with a field of
    its own that says so (C(max_time_unlimited)).
author: Trainyard contributors (@trainyard)
options:
  gather:
    description: What to ask for. Jobs can be many; leave them out where they aren't needed.
    type: list
    elements: str
    choices: [nodes, partitions, jobs]
    default: [nodes, partitions, jobs]
  timeout:
    description: Seconds to wait for each call of a command.
    type: int
    default: 60
  required:
    description: Fail if no controller answers, or if one doesn't tell what O(gather) asks for.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Reads only.
  diff_mode:
    support: none
    description: Reads only.
"""

EXAMPLES = r"""
- name: Look at the cluster
  trainyard.cluster.slurm_facts:
    required: true

- name: Show what is wrong with it
  ansible.builtin.debug:
    var: ansible_facts.slurm.problems

- name: Name the nodes that somebody drained
  ansible.builtin.debug:
    msg: "{{ drained | map(attribute='name') | trainyard.cluster.hostlist_fold }}"
  vars:
    drained: "{{ ansible_facts.slurm.nodes | selectattr('drained') }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts, under the key C(slurm).
  returned: success
  type: dict
  contains:
    slurm:
      description: What is known about the cluster.
      type: dict
      returned: always
      contains:
        version:
          description: Version of the controller, or of this machine's commands where that does not answer.
          type: str
        cluster_name:
          description: Name of the cluster.
          type: str
        source:
          description: V(json) or V(text), which the nodes were read from; null without nodes.
          type: str
        controllers:
          description: The controllers, the primary first.
          type: list
          elements: dict
          contains:
            name:
              description: Host name.
              type: str
            mode:
              description: V(primary), V(backup), V(backup1) and so on.
              type: str
            responding:
              description: Whether it answers.
              type: bool
        controller_responding:
          description: Whether at least one controller answers.
          type: bool
        nodes:
          description: The nodes; null where they were not asked for or not told.
          type: list
          elements: dict
          contains:
            name:
              description: Name of the node.
              type: str
            state:
              description: V(IDLE), V(ALLOCATED), V(MIXED), V(DOWN), V(ERROR), V(FUTURE) or V(UNKNOWN).
              type: str
            flags:
              description: What Slurm adds to the state in its long names, as V(DRAIN) and V(NOT_RESPONDING).
              type: list
              elements: str
            address:
              description: Where slurmd is reached.
              type: str
            hostname:
              description: Host name.
              type: str
            architecture:
              description: Architecture.
              type: str
            os:
              description: Operating system as slurmd tells.
              type: str
            version:
              description: Version of slurmd.
              type: str
            reason:
              description: Why the node is drained or down.
              type: str
            reason_user:
              description: Who gave the reason; Slurm's own user if Slurm itself did.
              type: str
            reason_epoch_seconds:
              description: Seconds since 1970 (UTC) when the reason was given.
              type: int
            boot_epoch_seconds:
              description: Seconds since 1970 (UTC) of the node's boot.
              type: int
            slurmd_start_epoch_seconds:
              description: Seconds since 1970 (UTC) of slurmd's start; null if it has not registered.
              type: int
            last_busy_epoch_seconds:
              description: Seconds since 1970 (UTC) when a job was there last.
              type: int
            cpus:
              description: CPUs as Slurm counts them.
              type: int
            cpus_effective:
              description: CPUs that jobs may use.
              type: int
            cpus_allocated:
              description: CPUs that jobs have.
              type: int
            cpu_load:
              description: Load average.
              type: float
            sockets:
              description: Processor sockets.
              type: int
            cores_per_socket:
              description: Cores of a socket.
              type: int
            threads_per_core:
              description: Hardware threads of a core.
              type: int
            memory_mib:
              description: Memory that jobs may use in MiB.
              type: int
            memory_allocated_mib:
              description: Memory that jobs have in MiB.
              type: int
            memory_free_mib:
              description: Free memory in MiB as the operating system counts.
              type: int
            tmp_disk_mib:
              description: Size of the temporary disk in MiB.
              type: int
            weight:
              description: Weight; nodes with the smallest are used first.
              type: int
            gres:
              description: Generic resources as configured.
              type: list
              elements: dict
              contains:
                name:
                  description: Name, as V(gpu).
                  type: str
                type:
                  description: Type, as V(h100); null without one.
                  type: str
                count:
                  description: How many.
                  type: int
                indexes:
                  description: Which of them are in use; null if not told.
                  type: list
                  elements: int
            gres_used:
              description: Generic resources in use; null if not told.
              type: list
              elements: dict
              contains:
                name:
                  description: Name, as V(gpu).
                  type: str
                type:
                  description: Type, as V(h100); null without one.
                  type: str
                count:
                  description: How many.
                  type: int
                indexes:
                  description: Which of them are in use; null if not told.
                  type: list
                  elements: int
            gpus:
              description: GPUs as configured.
              type: int
            gpus_used:
              description: GPUs in use; null if not told.
              type: int
            partitions:
              description: Names of its partitions.
              type: list
              elements: str
            features_available:
              description: Features as configured.
              type: list
              elements: str
            features_active:
              description: Features at present.
              type: list
              elements: str
            comment:
              description: An operator's comment.
              type: str
            extra:
              description: An operator's or a program's note.
              type: str
            responding:
              description: Whether slurmd has registered and answers.
              type: bool
            available:
              description:
                - Whether Slurm may start jobs there, as far as room is left.
                - One that Slurm switched off to save power is switched on for them.
              type: bool
            drained:
              description: Whether it is drained or draining.
              type: bool
            held_by_trainyard:
              description: Whether this collection drained it or took it down.
              type: bool
        partitions:
          description: The partitions; null where they were not asked for or not told.
          type: list
          elements: dict
          contains:
            name:
              description: Name of the partition.
              type: str
            state:
              description: V(UP), V(DOWN), V(DRAIN) or V(INACTIVE).
              type: str
            nodes:
              description: Its nodes in Slurm's syntax; see P(trainyard.cluster.hostlist_expand#filter).
              type: str
            node_count:
              description: Number of nodes.
              type: int
            cpus:
              description: Number of CPUs.
              type: int
            memory_mib:
              description: Memory of all nodes in MiB.
              type: int
            gpus:
              description: Number of GPUs; null unless Slurm accounts for GPUs (AccountingStorageTRES).
              type: int
            default:
              description: Whether jobs go there that name none.
              type: bool
            hidden:
              description: Whether it is hidden from users.
              type: bool
            max_time_minutes:
              description: Longest time of a job in minutes; null without a limit.
              type: int
            max_time_unlimited:
              description: Whether there is no such limit.
              type: bool
            default_time_minutes:
              description: Time of a job that asks for none, in minutes.
              type: int
            max_nodes:
              description: Most nodes of a job; null without a limit.
              type: int
            max_nodes_unlimited:
              description: Whether there is no such limit.
              type: bool
            min_nodes:
              description: Fewest nodes of a job.
              type: int
            default_memory_per_cpu_mib:
              description: Memory for each CPU of a job that asks for none, in MiB.
              type: int
            default_memory_per_node_mib:
              description: Memory on each node of a job that asks for none, in MiB.
              type: int
            priority_tier:
              description: Priority tier.
              type: int
            priority_job_factor:
              description: Priority factor of its jobs.
              type: int
            preempt_mode:
              description: How its jobs are preempted.
              type: str
            qos:
              description: Its quality of service.
              type: str
            allow_accounts:
              description: Accounts that may use it; null if all may.
              type: list
              elements: str
            allow_groups:
              description: Groups that may use it; null if all may.
              type: list
              elements: str
            allow_qos:
              description: Qualities of service that may use it; null if all may.
              type: list
              elements: str
        jobs:
          description: The jobs that are not over; null where they were not asked for or not told.
          type: list
          elements: dict
          contains:
            id:
              description: Number of the job.
              type: int
            state:
              description: V(RUNNING), V(PENDING) and so on.
              type: str
            flags:
              description: What Slurm adds to the state, as V(COMPLETING).
              type: list
              elements: str
            array_job_id:
              description: Number of the job array.
              type: int
            array_task:
              description: Task or tasks of the array, as V(28) or V(1-3).
              type: str
            name:
              description: Name of the job.
              type: str
            user:
              description: Name of the user.
              type: str
            user_id:
              description: Number of the user.
              type: int
            account:
              description: Account.
              type: str
            partition:
              description: Partition, or several that it waits for.
              type: str
            qos:
              description: Quality of service.
              type: str
            reason:
              description: Why it does not run.
              type: str
            nodes:
              description: Names of the nodes that it has.
              type: list
              elements: str
            node_count:
              description: Number of nodes that it has or wants.
              type: int
            cpus:
              description: CPUs that it has or wants.
              type: int
            memory_mib:
              description: Memory that it has on all nodes in MiB; null while it has none.
              type: int
            gpus:
              description: GPUs that it has; null while it has none.
              type: int
            gpus_requested:
              description: GPUs that it asked for; null if not told.
              type: int
            allocations:
              description: What it has on its nodes.
              type: list
              elements: dict
              contains:
                nodes:
                  description: Names of nodes on which it has the same.
                  type: list
                  elements: str
                gres:
                  description: Generic resources on each of them.
                  type: list
                  elements: dict
                  contains:
                    name:
                      description: Name, as V(gpu).
                      type: str
                    type:
                      description: Type, as V(h100); null without one.
                      type: str
                    count:
                      description: How many.
                      type: int
                    indexes:
                      description: Which of them are in use; null if not told.
                      type: list
                      elements: int
                cpu_ids:
                  description: CPUs on each of them, as a list of ranges.
                  type: str
                memory_mib:
                  description: Memory on each of them in MiB.
                  type: int
            batch_host:
              description: The node on which its script runs.
              type: str
            priority:
              description: Priority.
              type: int
            submit_epoch_seconds:
              description: Seconds since 1970 (UTC) of its submission.
              type: int
            start_epoch_seconds:
              description: Seconds since 1970 (UTC) of its start, or expected start.
              type: int
            end_epoch_seconds:
              description: Seconds since 1970 (UTC) of its end at the latest.
              type: int
            time_limit_minutes:
              description: Time limit in minutes; null without one.
              type: int
            time_limit_unlimited:
              description: Whether it has no time limit; null and V(false) is not told.
              type: bool
        jobs_by_node:
          description: Ids of the jobs on each node that has some; null like RV(ansible_facts.slurm.jobs).
          type: dict
        problems:
          description: What a person must know, the gravest of a node alone.
          type: list
          elements: dict
          contains:
            severity:
              description: V(critical), V(warning) or V(info).
              type: str
            code:
              description:
                - A stable name.
                - Of the cluster, V(slurm_missing), V(slurm_not_answering), V(authentication_failed),
                  V(client_version_differs), V(controller_down), V(controller_not_responding), V(partition_not_up).
                - Of a node, V(gpus_missing), V(node_smaller_than_declared), V(node_invalid_registration),
                  V(node_rebooted), V(node_kill_task_failed), V(node_prolog_failed), V(node_not_responding),
                  V(node_not_registered), V(node_down), V(node_drained), V(node_draining), V(node_held_by_trainyard),
                  V(node_rebooting), V(slurmd_newer_than_controller).
              type: str
            node:
              description: Name of the node; null for the cluster.
              type: str
            message:
              description: What is wrong, in a sentence.
              type: str
            evidence:
              description: What Slurm printed.
              type: str
            action:
              description: What to do.
              type: str
  sample:
    slurm:
      version: 24.11.5
      cluster_name: trainyard
      source: json
      controllers:
        - {name: head, mode: primary, responding: true}
      controller_responding: true
      nodes:
        - name: gpu1
          state: MIXED
          flags: []
          cpus: 96
          cpus_allocated: 24
          memory_mib: 2000000
          gpus: 8
          gpus_used: 2
          partitions: [train]
          drained: false
      partitions:
        - name: train
          state: UP
      jobs:
        - id: 4711
          state: RUNNING
          user: ann
          nodes: [gpu1]
          gpus: 2
      jobs_by_node: {gpu1: [4711]}
      problems: []
"""

import os
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.trainyard.cluster.plugins.module_utils._command import run_command
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_ask import forget_preferences
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_facts import collect, find_missing


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gather": {
                "type": "list",
                "elements": "str",
                "choices": ["nodes", "partitions", "jobs"],
                "default": ["nodes", "partitions", "jobs"],
            },
            "timeout": {"type": "int", "default": 60},
            "required": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if module.params["timeout"] < 1:
        module.fail_json(msg=f"timeout: {module.params['timeout']} is no number of seconds to wait; give 1 or more")
    forget_preferences(os.environ)
    facts = collect(run_command, module.params["gather"], module.params["timeout"])
    missing = find_missing(facts)
    if missing and module.params["required"]:
        module.fail_json(msg=missing)
    module.exit_json(ansible_facts={"slurm": asdict(facts)})


if __name__ == "__main__":
    main()
