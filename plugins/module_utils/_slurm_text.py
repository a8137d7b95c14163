# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What scontrol prints as text: nodes, partitions, jobs, controllers, the configuration.

Each has two forms, a record a line (`scontrol -o`) or several lines. Read the several lines where there is a choice: a
reason or a job's name may hold anything, and ends there with its line.
Sources: scontrol(1), and captures of Slurm 20.11 to 25.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_hostlist import HostlistError, expand
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_records import (
    Allocation,
    Controller,
    Job,
    Node,
    Partition,
    gpus_in,
    judge,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import (
    State,
    asked_gpus,
    boolean,
    count_gres,
    epoch_seconds,
    integer,
    is_unlimited,
    mebibytes,
    minutes,
    number,
    parse_gres,
    parse_state,
    parse_tres,
    text,
    tres_gpus,
    words,
)

_START = re.compile(r"^[ \t]*(?:[<>+-][ \t]*)?(?=(NodeName|PartitionName|JobId)=)", re.MULTILINE)
_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z0-9_/:.-]*)=")
# Values in which a person or a machine may have put blanks.
_FREE = frozenset(
    {"OS", "Reason", "Comment", "Extra", "JobName", "Name", "Command", "WorkDir", "StdErr", "StdIn", "StdOut"}
    | {"AdminComment", "SystemComment"}
)
# The name of a user of a directory may hold blanks and an "@", but ends before the next key.
_USER_ID = "UserId"
_REASON_BY = re.compile(r"(?P<words>.*?)\s*\[(?P<user>[^\[\]]+)@(?P<time>[^\s@\[\]]+)\]\s*\Z", re.DOTALL)
_REASON_ON_LINE = re.compile(r"\sReason=(?P<reason>.*?\[[^\[\]]+@[0-9T:-]+\])(?=\s|\Z)")
_CONTROLLER = re.compile(
    r"^Slurmctld\((?P<mode>[^()\s]+)\) (?:at (?P<name>\S+) )?(?:is|are) (?P<state>\S+)", re.MULTILINE
)
_SETTING = re.compile(r"^([A-Za-z][\w.:/()-]*)[ \t]*=[ \t]*(.*?)[ \t]*$")
# Before 20.02 the last one was GRES_IDX.
_ALLOCATION = re.compile(r"\sNodes=(\S+) CPU_IDs=(\S+) Mem=([0-9]+) GRES(?:_IDX)?=(\S*)")
_USER = re.compile(r"(?P<name>.+)\((?P<id>[0-9]{1,10})\)\Z")


def parse_records(output: str) -> tuple[list[Node], list[Partition], list[Job]]:
    """Return the nodes, partitions and jobs in the output; lines that belong to none are passed over.

    Raises SlurmError.
    """
    nodes: list[Node] = []
    partitions: list[Partition] = []
    jobs: list[Job] = []
    starts = list(_START.finditer(output))
    ends = [match.start() for match in starts[1:]] + [len(output)]
    for start, end in zip(starts, ends):
        record = output[start.end() : end]
        if start[1] == "NodeName":
            nodes.extend(_nodes(record))
        elif start[1] == "PartitionName":
            partitions.extend(_partitions(record))
        else:
            jobs.extend(_jobs(record))
    return nodes, partitions, jobs


def parse_controllers(output: str) -> list[Controller]:
    """Return the controllers of `scontrol ping`; before Slurm 18.08 two of them share a line."""
    controllers: list[Controller] = []
    for match in _CONTROLLER.finditer(output):
        names = (match["name"] or "").split("/")
        states = match["state"].split("/")
        for place, mode in enumerate(match["mode"].split("/")):
            name = text(names[place]) if place < len(names) else None
            if name:
                controllers.append(Controller(name, mode, place < len(states) and states[place] == "UP"))
    return controllers


def parse_configuration(output: str) -> dict[str, str | None]:
    """Return the settings of `scontrol show config` by name; the first of a name counts."""
    settings: dict[str, str | None] = {}
    for line in output.splitlines():
        match = _SETTING.match(line)
        if match:
            settings.setdefault(match[1], text(match[2]))
    return settings


def _values(record: str, free: frozenset[str] = _FREE) -> dict[str, str]:
    """Return a record's values by key. The first of a key counts: what follows may be a person's words.

    free: keys in whose values there may be blanks.
    """
    values: dict[str, str] = {}
    lines = record.rstrip().splitlines()
    for line in lines:
        keys = list(_KEY.finditer(line))
        for place, key in enumerate(keys):
            name = key[1]
            end = keys[place + 1].start() if place + 1 < len(keys) else len(line)
            if name in free and len(lines) > 1:
                values.setdefault(name, line[key.end() :].strip())
                break
            value = line[key.end() : end].strip()
            values.setdefault(name, value if name in free or name == _USER_ID else value.split(" ", 1)[0])
        if len(lines) == 1 and "Reason" in free:
            reason = _REASON_ON_LINE.search(line)
            if reason:
                values["Reason"] = reason["reason"]
    return values


def _nodes(record: str) -> Iterator[Node]:
    values = _values(record)
    get = values.get
    state = parse_state(get("State") or "") if get("State") else State(None, [])
    reason, reason_user, reason_time = _reason(get("Reason"))
    gres = parse_gres(get("Gres"))
    used = parse_gres(get("GresUsed")) if "GresUsed" in values else None
    used = [] if used is None and not gres and "CfgTRES" in values else used
    allocated = get("AllocTRES")
    gpus_used = count_gres(used) if used is not None else None
    if gpus_used is None and tres_gpus(get("CfgTRES")) is not None:
        gpus_used = tres_gpus(allocated) or 0
    started = epoch_seconds(get("SlurmdStartTime"))
    for name in _names(get("NodeName")):
        yield Node(
            name=name,
            state=state.base,
            flags=state.flags,
            address=text(get("NodeAddr")),
            hostname=text(get("NodeHostName")),
            architecture=text(get("Arch")),
            os=text(get("OS")),
            version=text(get("Version")),
            reason=reason,
            reason_user=reason_user,
            reason_epoch_seconds=reason_time,
            boot_epoch_seconds=epoch_seconds(get("BootTime")),
            slurmd_start_epoch_seconds=started,
            last_busy_epoch_seconds=epoch_seconds(get("LastBusyTime")),
            cpus=integer(get("CPUTot") or get("CPUs") or get("Procs")),
            cpus_effective=integer(get("CPUEfctv")),
            cpus_allocated=integer(get("CPUAlloc")),
            cpu_load=number(get("CPULoad")),
            sockets=integer(get("Sockets")),
            cores_per_socket=integer(get("CoresPerSocket")),
            threads_per_core=integer(get("ThreadsPerCore")),
            memory_mib=integer(get("RealMemory")),
            memory_allocated_mib=integer(get("AllocMem")),
            memory_free_mib=integer(get("FreeMem")),
            tmp_disk_mib=integer(get("TmpDisk")),
            weight=integer(get("Weight")),
            gres=gres,
            gres_used=used,
            gpus=count_gres(gres),
            gpus_used=gpus_used,
            partitions=words(get("Partitions")),
            features_available=words(get("AvailableFeatures") or get("Features")),
            features_active=words(get("ActiveFeatures")),
            comment=text(get("Comment")),
            extra=text(get("Extra")),
            **judge(state.base, state.flags, reason, started is not None or "SlurmdStartTime" not in values),
        )


def _reason(raw: str | None) -> tuple[str | None, str | None, int | None]:
    """Take the reason apart: words, who gave it, when."""
    match = _REASON_BY.match(raw or "")
    if match is None:
        return text(raw), None, None
    return text(match["words"]), text(match["user"]), epoch_seconds(match["time"])


def _names(hostlist: str | None) -> list[str]:
    """Return the names in a list of hosts, as it is if it can't be expanded, since a report must not fail for that."""
    value = text(hostlist)
    if value is None:
        return []
    try:
        return expand(value)
    except HostlistError:
        return [value]


def _partitions(record: str) -> Iterator[Partition]:
    values = _values(record)
    get = values.get
    name = text(get("PartitionName"))
    if name is None:
        return
    tres = parse_tres(get("TRES"))
    yield Partition(
        name=name,
        state=text(get("State")),
        nodes=text(get("Nodes")),
        node_count=integer(get("TotalNodes")),
        cpus=integer(get("TotalCPUs")),
        memory_mib=mebibytes(tres.get("mem")),
        gpus=tres_gpus(get("TRES")),
        default=boolean(get("Default")),
        hidden=boolean(get("Hidden")),
        max_time_minutes=minutes(get("MaxTime")),
        max_time_unlimited=is_unlimited(get("MaxTime")),
        default_time_minutes=minutes(get("DefaultTime")),
        max_nodes=integer(get("MaxNodes")),
        max_nodes_unlimited=is_unlimited(get("MaxNodes")),
        min_nodes=integer(get("MinNodes")),
        default_memory_per_cpu_mib=integer(get("DefMemPerCPU")),
        default_memory_per_node_mib=integer(get("DefMemPerNode")),
        priority_tier=integer(get("PriorityTier")),
        priority_job_factor=integer(get("PriorityJobFactor")),
        preempt_mode=text(get("PreemptMode")),
        qos=text(get("QoS")),
        allow_accounts=_allowed(get("AllowAccounts")),
        allow_groups=_allowed(get("AllowGroups")),
        allow_qos=_allowed(get("AllowQos")),
    )


def _allowed(raw: str | None) -> list[str] | None:
    return None if raw is None or raw == "ALL" else words(raw)


def _jobs(record: str) -> Iterator[Job]:
    values = _values(record, _FREE - {"Reason"})  # a job's reason is one of Slurm's own words
    get = values.get
    number_of_job = integer(get("JobId"))
    if number_of_job is None:
        return
    user = _USER.match(get(_USER_ID) or "")
    allocations = [
        Allocation(_names(nodes), parse_gres(gres), text(cpus), integer(memory))
        for nodes, cpus, memory, gres in _ALLOCATION.findall(record)
    ]
    # Before 23.02 one list, TRES, stands for what the job has or wants.
    state = text(get("JobState"))
    nodes = _names(get("NodeList"))
    allocated = get("AllocTRES") if "AllocTRES" in values else (get("TRES") if nodes else None)
    requested = get("ReqTRES") or get("TRES")
    gpus = tres_gpus(allocated)
    node_count = integer(get("NumNodes"))
    yield Job(
        id=number_of_job,
        state=state,
        array_job_id=integer(get("ArrayJobId")),
        array_task=text(get("ArrayTaskId")),
        name=text(get("JobName") or get("Name")),
        user=user["name"] if user else None,
        user_id=int(user["id"]) if user else None,
        account=text(get("Account")),
        partition=text(get("Partition")),
        qos=text(get("QOS")),
        reason=text(get("Reason")),
        nodes=nodes,
        node_count=node_count,
        cpus=integer(get("NumCPUs")),
        memory_mib=mebibytes(parse_tres(allocated).get("mem")),
        gpus=gpus_in(allocations) if gpus is None and allocations else gpus,
        gpus_requested=asked_gpus(requested, get("TresPerJob"), get("TresPerNode"), node_count),
        allocations=allocations,
        batch_host=text(get("BatchHost")),
        priority=integer(get("Priority")),
        submit_epoch_seconds=epoch_seconds(get("SubmitTime")),
        start_epoch_seconds=epoch_seconds(get("StartTime")),
        end_epoch_seconds=epoch_seconds(get("EndTime")),
        time_limit_minutes=minutes(get("TimeLimit")),
        time_limit_unlimited=is_unlimited(get("TimeLimit")),
    )
