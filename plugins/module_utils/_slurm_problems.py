# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What a person must know about a Slurm cluster, and what to do about it.

Sources of the rules: slurm.conf(5) (ReturnToService), sinfo(1) (node states), and the reasons that slurmctld and slurmd
of Slurm 22.05 to 25.05 give.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_records import (
    Controller,
    Node,
    Partition,
    is_held,
)

CRITICAL = "critical"
WARNING = "warning"
INFO = "info"

_RESUME = "then resume it (scontrol update nodename={node} state=resume)."
# Reasons of Slurm and of this collection: pattern, code, what it means, what to do.
_REASONS = (
    (
        re.compile(r"gres/gpu count (?:reported|too) low|^GPU missing:|gres/gpu.*(?:invalid|missing)", re.IGNORECASE),
        "gpus_missing",
        "{node} has fewer GPUs than Slurm is configured for.",
        "Look at the GPUs on {node} (nvidia-smi, kernel log), repair them or correct the declaration, " + _RESUME,
    ),
    (
        re.compile(r"^Low (?:RealMemory|CPUs|socket|TmpDisk|Cores)", re.IGNORECASE),
        "node_smaller_than_declared",
        "{node} has less memory, cores or disk than Slurm is configured for.",
        "Look for a dead memory module or processor on {node}, or correct the declaration, " + _RESUME,
    ),
    (
        re.compile(r"unexpectedly rebooted", re.IGNORECASE),
        "node_rebooted",
        "{node} rebooted and nobody had asked for that.",
        "Find the cause in the logs of {node} (power, kernel panic), " + _RESUME,
    ),
    (
        re.compile(r"^Kill task failed", re.IGNORECASE),
        "node_kill_task_failed",
        "A job's process on {node} can't be killed, mostly since it waits for a GPU or a file system.",
        "Look for processes in state D on {node}; reboot it if they stay, " + _RESUME,
    ),
    (
        re.compile(r"\b(?:Prolog|Epilog) error|^batch job complete failure|launch failed", re.IGNORECASE),
        "node_prolog_failed",
        "A job could not be started or cleaned up on {node}.",
        "Read /var/log/slurm/slurmd.log on {node}, correct what it names, " + _RESUME,
    ),
)
# Nodes that are away on purpose.
_POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})
_AWAY = _POWER | {"CLOUD", "DYNAMIC_FUTURE"}
_RELEASE = re.compile(r"([0-9]+)\.([0-9]+)")


@dataclass(frozen=True)
class SlurmProblem:
    """A finding. severity: "critical", "warning" or "info". node: its name, None for the whole cluster."""

    severity: str
    code: str
    node: str | None
    message: str
    evidence: str
    action: str


def of_controllers(controllers: Iterable[Controller]) -> Iterator[SlurmProblem]:
    """Yield what is wrong with the controllers."""
    controllers = list(controllers)
    silent = [one for one in controllers if not one.responding]
    if controllers and len(silent) == len(controllers):
        yield SlurmProblem(
            CRITICAL,
            "controller_down",
            None,
            "No controller answers: no job starts, and nothing can be asked.",
            ", ".join(f"{one.mode} at {one.name} is DOWN" for one in silent),
            f"Start slurmctld on {silent[0].name} (systemctl status slurmctld, /var/log/slurm/slurmctld.log there).",
        )
        return
    for one in silent:
        yield SlurmProblem(
            WARNING,
            "controller_not_responding",
            None,
            f"The {one.mode} controller on {one.name} does not answer; another one does the work.",
            f"{one.mode} at {one.name} is DOWN",
            f"Start slurmctld on {one.name}, so that the next failure has somebody to take over.",
        )


def of_partitions(partitions: Iterable[Partition]) -> Iterator[SlurmProblem]:
    """Yield the partitions that start no jobs."""
    for one in partitions:
        if one.state not in ("UP", None):
            yield SlurmProblem(
                WARNING,
                "partition_not_up",
                None,
                f"Partition {one.name} is {one.state}.",
                f"State={one.state}",
                f"If that is not meant, set it up again (scontrol update partitionname={one.name} state=up).",
            )


def of_nodes(nodes: Iterable[Node], controller_version: str | None) -> Iterator[SlurmProblem]:
    """Yield what is wrong with each node, the gravest first and one for a cause."""
    for node in nodes:
        problem = _of_node(node)
        if problem:
            yield problem
        own, controller = _release(node.version), _release(controller_version)
        if own and controller and own > controller:
            yield SlurmProblem(
                CRITICAL,
                "slurmd_newer_than_controller",
                node.name,
                f"{node.name} runs a newer Slurm than the controller, which Slurm does not support.",
                f"slurmd {node.version}, slurmctld {controller_version}",
                "Upgrade the controller first.",
            )


def _release(version: str | None) -> tuple[int, int] | None:
    match = _RELEASE.match(version or "")
    return (int(match[1]), int(match[2])) if match else None


def _of_node(node: Node) -> SlurmProblem | None:
    name, flags, reason = node.name, set(node.flags), node.reason or ""
    by = f" by {node.reason_user}" if node.reason_user else ""
    evidence = "+".join([node.state or "?", *node.flags])
    if reason:
        evidence += f", reason: {reason}" + (f" [{node.reason_user}]" if node.reason_user else "")
    resume = _RESUME.format(node=name)

    def problem(severity: str, code: str, message: str, action: str) -> SlurmProblem:
        return SlurmProblem(severity, code, name, message, evidence, action)

    if is_held(node.state, node.flags):
        for pattern, code, message, action in _REASONS:
            if pattern.search(reason):
                return problem(CRITICAL, code, message.format(node=name), action.format(node=name))
    if "INVALID_REG" in flags:
        return problem(
            CRITICAL,
            "node_invalid_registration",
            f"{name} registered with other hardware or another configuration than the controller has for it.",
            f"Compare slurmd -C on {name} with its declaration, and restart slurmd there.",
        )
    if node.held_by_trainyard:
        return problem(
            INFO,
            "node_held_by_trainyard",
            f"trainyard.cluster {'took' if node.state == 'DOWN' else 'drained'} {name}"
            f"{' down' if node.state == 'DOWN' else ''}; it gets no new jobs.",
            f"Let the play that did it resume it, or run slurm_node with state: resumed for {name}.",
        )
    if "REBOOT_ISSUED" in flags:
        return problem(
            INFO,
            "node_rebooting",
            f"{name} reboots, as {node.reason_user or 'somebody'} asked for.",
            f"Nothing, unless it stays so (sinfo -n {name}).",
        )
    if "NOT_RESPONDING" in flags and (node.state == "DOWN" or not flags & _POWER):
        return problem(
            CRITICAL if node.state == "DOWN" else WARNING,
            "node_not_responding",
            f"slurmd on {name} does not answer.",
            f"See that {name} is switched on and reachable, and that slurmd runs there (systemctl status slurmd).",
        )
    if node.state in ("DOWN", "ERROR"):
        return problem(CRITICAL, "node_down", f"{name} is down and runs no jobs.", f"Do away with the reason, {resume}")
    if flags & {"DRAIN", "FAIL"}:
        busy = node.state in ("ALLOCATED", "MIXED") or "COMPLETING" in flags
        return problem(
            WARNING,
            "node_draining" if busy else "node_drained",
            f"{name} was drained{by} and takes no new jobs{'; its last ones still run' if busy else ''}.",
            f"Ask whoever drained it, or do away with the reason, {resume}",
        )
    if not node.responding and node.state != "FUTURE" and not flags & _AWAY:
        return problem(
            CRITICAL,
            "node_not_registered",
            f"{name} has not registered with the controller since that started.",
            f"See that {name} is switched on and that slurmd runs there (/var/log/slurm/slurmd.log).",
        )
    return None
