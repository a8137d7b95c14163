# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What Slurm knows about nodes, partitions, jobs and controllers, however it was asked.

None is a value that Slurm does not have or did not tell. Where there may be no limit, a field of its own says so
(max_time_unlimited), and the number is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypedDict

from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import Gres, count_gres

# Begins the reason of a node that this collection drained or took down. It is kept where Slurm keeps the reason: in the
# controller's state, which a backup controller takes over, and in sight of everybody (sinfo -R).
MARK = "trainyard: "
# A node in one of these gets no new job until somebody, or Slurm, says so.
_HELD = frozenset({"DRAIN", "FAIL", "INVALID_REG"})
_NOT_READY = frozenset({"MAINTENANCE", "POWER_DOWN", "POWERING_DOWN", "REBOOT_ISSUED"})


@dataclass(frozen=True)
class Node:
    """A node. Sizes in MiB, times in seconds since 1970 (UTC).

    state: IDLE, ALLOCATED, MIXED, DOWN, ERROR, FUTURE or UNKNOWN; flags: DRAIN, NOT_RESPONDING and so on.
    gpus_used: None where the output does not tell what is in use.
    """

    name: str
    state: str | None
    flags: list[str]
    address: str | None = None
    hostname: str | None = None
    architecture: str | None = None
    os: str | None = None
    version: str | None = None
    reason: str | None = None
    reason_user: str | None = None
    reason_epoch_seconds: int | None = None
    boot_epoch_seconds: int | None = None
    slurmd_start_epoch_seconds: int | None = None
    last_busy_epoch_seconds: int | None = None
    cpus: int | None = None
    cpus_effective: int | None = None
    cpus_allocated: int | None = None
    cpu_load: float | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    memory_mib: int | None = None
    memory_allocated_mib: int | None = None
    memory_free_mib: int | None = None
    tmp_disk_mib: int | None = None
    weight: int | None = None
    gres: list[Gres] = field(default_factory=list)
    gres_used: list[Gres] | None = None
    gpus: int = 0
    gpus_used: int | None = None
    partitions: list[str] = field(default_factory=list)
    features_available: list[str] = field(default_factory=list)
    features_active: list[str] = field(default_factory=list)
    comment: str | None = None
    extra: str | None = None
    responding: bool = True
    available: bool = True
    drained: bool = False
    held_by_trainyard: bool = False


def is_held(state: str | None, flags: list[str]) -> bool:
    """Say whether the node is kept from jobs: drained, down or failed."""
    return state in ("DOWN", "ERROR") or not _HELD.isdisjoint(flags)


class Judgement(TypedDict):
    """The fields of Node that follow from its state."""

    responding: bool
    available: bool
    drained: bool
    held_by_trainyard: bool


def judge(state: str | None, flags: list[str], reason: str | None, is_registered: bool = True) -> Judgement:
    """Return the fields of Node that follow from its state.

    responding: slurmd answers, as far as Slurm says; before slurmd registers Slurm calls a node IDLE that may be off.
    available: Slurm may start jobs there; where it saves power it switches the node on for them.
    """
    held = is_held(state, flags)
    responding = is_registered and "NOT_RESPONDING" not in flags and state not in ("UNKNOWN", "FUTURE")
    return {
        "responding": responding,
        "available": state in ("IDLE", "MIXED", "ALLOCATED")
        and (responding or "POWERED_DOWN" in flags)
        and not held
        and _NOT_READY.isdisjoint(flags),
        "drained": "DRAIN" in flags,
        "held_by_trainyard": held and (reason or "").startswith(MARK),
    }


@dataclass(frozen=True)
class Partition:
    """A partition. nodes: as Slurm writes it (filter hostlist_expand). allow_*: None where everybody may.

    default and hidden are None where the output does not tell.
    """

    name: str
    state: str | None
    nodes: str | None = None
    node_count: int | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    default: bool | None = None
    hidden: bool | None = None
    max_time_minutes: int | None = None
    max_time_unlimited: bool = False
    default_time_minutes: int | None = None
    max_nodes: int | None = None
    max_nodes_unlimited: bool = False
    min_nodes: int | None = None
    default_memory_per_cpu_mib: int | None = None
    default_memory_per_node_mib: int | None = None
    priority_tier: int | None = None
    priority_job_factor: int | None = None
    preempt_mode: str | None = None
    qos: str | None = None
    allow_accounts: list[str] | None = None
    allow_groups: list[str] | None = None
    allow_qos: list[str] | None = None


@dataclass(frozen=True)
class Allocation:
    """A job's share of nodes that it uses alike. nodes: their names; memory_mib: on each of them."""

    nodes: list[str]
    gres: list[Gres]
    cpu_ids: str | None = None
    memory_mib: int | None = None


def gpus_in(allocations: Iterable[Allocation]) -> int:
    """Return the GPUs in shares of nodes."""
    return sum(len(one.nodes) * count_gres(one.gres) for one in allocations)


@dataclass(frozen=True)
class Job:
    """A job. state: PENDING, RUNNING and so on; flags: what Slurm adds to it (COMPLETING, CONFIGURING, REQUEUED).

    gpus and memory_mib: what it has, None while it has nothing. gpus_requested: None also if it asks for GPUs by
    task or socket, and Slurm does not count them.
    """

    id: int
    state: str | None
    flags: list[str] = field(default_factory=list)
    array_job_id: int | None = None
    array_task: str | None = None
    name: str | None = None
    user: str | None = None
    user_id: int | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    reason: str | None = None
    nodes: list[str] = field(default_factory=list)
    node_count: int | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    gpus_requested: int | None = None
    allocations: list[Allocation] = field(default_factory=list)
    batch_host: str | None = None
    priority: int | None = None
    submit_epoch_seconds: int | None = None
    start_epoch_seconds: int | None = None
    end_epoch_seconds: int | None = None
    time_limit_minutes: int | None = None
    time_limit_unlimited: bool = False


@dataclass(frozen=True)
class Controller:
    """A controller (slurmctld). mode: "primary", "backup", "backup1" and so on."""

    name: str
    mode: str
    responding: bool


@dataclass(frozen=True)
class Row:
    """A line of a table of sinfo, squeue or sdiag, by what its columns look like. Not told is None.

    cpus_*: of sinfo's column allocated/idle/other/total. gpus: of a TRES list. nodes: as Slurm writes it. words: the
    line's columns.
    """

    words: list[str]
    nodes: str | None = None
    state: str | None = None
    flags: list[str] = field(default_factory=list)
    gres: list[list[Gres]] = field(default_factory=list)
    gpus: int | None = None
    cpus_allocated: int | None = None
    cpus_idle: int | None = None
    cpus_other: int | None = None
    cpus_total: int | None = None


@dataclass(frozen=True)
class Output:
    """What an output of Slurm's commands held."""

    nodes: list[Node] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    controllers: list[Controller] = field(default_factory=list)
    configuration: dict[str, str | None] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
