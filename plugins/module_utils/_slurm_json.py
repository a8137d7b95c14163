# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What scontrol, squeue, sinfo and slurmrestd print as JSON.

The shapes differ from one data_parser to the next: numbers are plain (before v0.0.40) or {set, infinite, number},
states are words with flags beside them or lists. All are read, so that no release has to be known.
Sources: captures of data_parser v0.0.38 to v0.0.44 (Slurm 22.05 to 25.11).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_hostlist import HostlistError, expand
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_records import (
    Allocation,
    Controller,
    Job,
    Node,
    Output,
    Partition,
    gpus_in,
    judge,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import (
    SlurmError,
    State,
    asked_gpus,
    count_gres,
    mebibytes,
    parse_gres,
    parse_state,
    parse_tres,
    text,
    tres_gpus,
    words,
)

_START = re.compile(r"^[ \t]*[{\[]", re.MULTILINE)
# Slurm's own marks for "no value" and "no limit" in 32 and 64 bits; nothing that we read grows as large.
_NO_NUMBER = frozenset({0xFFFFFFFE, 0xFFFFFFFF})
_MAX = 2**53


def parse_json(output: str) -> Output:
    """Return what the JSON holds; lines in front of it (a warning) are passed over.

    Raises SlurmError where there is no JSON, or none of Slurm's.
    """
    start = _START.search(output)
    if start is None:
        raise SlurmError("There is no JSON in the output.")
    try:
        document, _end = json.JSONDecoder().raw_decode(output, start.end() - 1)
    except (ValueError, RecursionError) as error:
        raise SlurmError(f"The output breaks off or is no JSON ({str(error)[:80]}).") from error
    return _output(document)


def _output(document: Any) -> Output:
    if isinstance(document, list):
        document = {"jobs" if any("job_id" in _dict(one) for one in document) else "nodes": document}
    document = _dict(document)
    if "job_id" in document:
        document = {"jobs": [document]}
    elif "name" in document and ("hostname" in document or "real_memory" in document):
        document = {"nodes": [document]}
    known = {"nodes", "jobs", "partitions", "pings", "sinfo", "errors", "meta"}.intersection(document)
    errors = [text(_dict(error).get("description") or _dict(error).get("error")) for error in _list(document, "errors")]
    found = Output(
        nodes=[node for one in _list(document, "nodes") for node in _node(one)]
        + [node for one in _list(document, "sinfo") for node in _sinfo_nodes(one)],
        partitions=[partition for one in _list(document, "partitions") for partition in _partition(one)],
        jobs=[job for one in _list(document, "jobs") for job in _job(one)],
        controllers=[controller for one in _list(document, "pings") for controller in _controller(one)],
        configuration=_meta(document),
    )
    if not known or (any(errors) and not (found.nodes or found.partitions or found.jobs or found.controllers)):
        raise SlurmError(f"Slurm says: {errors[0]}." if any(errors) else "The JSON is none of Slurm's.")
    return found


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = document.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _float(value: object) -> float | None:
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # A number may be too large for a float, or no number at all.
    return float(value) if abs(value) < _MAX and math.isfinite(value) else None


def _int(value: object) -> int | None:
    found = _float(value)
    return None if found is None or found < 0 or found in _NO_NUMBER else int(found)


def _time(value: object) -> int | None:
    """Return seconds since 1970; Slurm writes 0 for never."""
    return _int(value) or None


def _infinite(value: object) -> bool:
    return bool(value.get("infinite")) if isinstance(value, dict) else False


def _state(value: object, flags: object = None) -> State:
    parts = value if isinstance(value, list) else [value]
    more = flags if isinstance(flags, list) else []
    names = [str(part) for part in [*parts, *more] if isinstance(part, str) and part]
    return parse_state("+".join(names)) if names else State(None, [])


def _texts(value: object) -> list[str]:
    if isinstance(value, list):
        return [part for part in value if isinstance(part, str) and part]
    return words(value)


def _names(value: object) -> list[str]:
    hostlist = text(value)
    if hostlist is None:
        return []
    try:
        return expand(hostlist)
    except HostlistError:
        return [hostlist]


def _node(one: dict[str, Any]) -> Iterable[Node]:
    name = text(one.get("name"))
    if name is None:
        return
    state = _state(one.get("state"), one.get("state_flags"))
    reason = text(one.get("reason"))
    gres = parse_gres(one.get("gres"))
    used = parse_gres(one.get("gres_used")) if "gres_used" in one else None
    load = _float(one.get("cpu_load"))
    started = _time(one.get("slurmd_start_time"))
    yield Node(
        name=name,
        state=state.base,
        flags=state.flags,
        address=text(one.get("address")),
        hostname=text(one.get("hostname")),
        architecture=text(one.get("architecture")),
        os=text(one.get("operating_system")),
        version=text(one.get("version") or one.get("slurmd_version")),
        reason=reason,
        reason_user=text(one.get("reason_set_by_user")),
        reason_epoch_seconds=_time(one.get("reason_changed_at")),
        boot_epoch_seconds=_time(one.get("boot_time")),
        slurmd_start_epoch_seconds=started,
        last_busy_epoch_seconds=_time(one.get("last_busy")),
        cpus=_int(one.get("cpus")),
        cpus_effective=_int(one.get("effective_cpus")),
        cpus_allocated=_int(one.get("alloc_cpus")),
        cpu_load=None if load is None or load < 0 or load in _NO_NUMBER else load / 100,
        sockets=_int(one.get("sockets")),
        cores_per_socket=_int(one.get("cores")),
        threads_per_core=_int(one.get("threads")),
        memory_mib=_int(one.get("real_memory")),
        memory_allocated_mib=_int(one.get("alloc_memory")),
        memory_free_mib=_int(one.get("free_mem") if "free_mem" in one else one.get("free_memory")),
        tmp_disk_mib=_int(one.get("temporary_disk")),
        weight=_int(one.get("weight")),
        gres=gres,
        gres_used=used,
        gpus=count_gres(gres),
        gpus_used=None if used is None else count_gres(used),
        partitions=_texts(one.get("partitions")),
        features_available=_texts(one.get("features")),
        features_active=_texts(one.get("active_features")),
        comment=text(one.get("comment")),
        extra=text(one.get("extra")),
        **judge(state.base, state.flags, reason, started is not None or "slurmd_start_time" not in one),
    )


def _sinfo_nodes(one: dict[str, Any]) -> Iterable[Node]:
    """Read an entry of `sinfo --json`, which speaks of all nodes that are alike."""
    state = _state(_dict(one.get("node")).get("state"))
    gres = parse_gres(_dict(one.get("gres")).get("total"))
    told = _dict(one.get("gres")).get("used")
    used = parse_gres(told) if told is not None else None
    reason = _dict(one.get("reason"))
    cpus = _dict(one.get("cpus"))
    memory = _dict(one.get("memory"))
    features = _dict(one.get("features"))
    nodes = _dict(one.get("nodes"))
    partition = text(_dict(one.get("partition")).get("name"))
    words_of_reason = text(reason.get("description"))
    alone = len(_texts(nodes.get("nodes"))) == 1
    for name in _texts(nodes.get("nodes")):
        yield Node(
            name=name,
            state=state.base,
            flags=state.flags,
            reason=words_of_reason,
            reason_user=text(reason.get("user")),
            reason_epoch_seconds=_time(reason.get("time")),
            cpus=_int(cpus.get("total")) if alone else None,
            cpus_allocated=_int(cpus.get("allocated")) if alone else None,
            memory_mib=_int(memory.get("minimum")),
            memory_free_mib=_int(_dict(memory.get("free")).get("minimum")),
            gres=gres,
            gres_used=used,
            gpus=count_gres(gres),
            gpus_used=None if used is None else count_gres(used),
            partitions=[partition] if partition else [],
            features_available=words(features.get("total")),
            features_active=words(features.get("active")),
            **judge(state.base, state.flags, words_of_reason),
        )


def _partition(one: dict[str, Any]) -> Iterable[Partition]:
    name = text(one.get("name"))
    if name is None:
        return
    maximums, defaults = _dict(one.get("maximums")), _dict(one.get("defaults"))
    nodes, priority = _dict(one.get("nodes")), _dict(one.get("priority"))
    tres = _dict(one.get("tres")).get("configured")
    states = _texts(_dict(one.get("partition")).get("state") or one.get("state"))
    qos = _dict(one.get("qos"))
    yield Partition(
        name=name,
        state=states[0] if states else None,
        nodes=text(nodes.get("configured")) if isinstance(one.get("nodes"), dict) else text(one.get("nodes")),
        node_count=_int(nodes.get("total") if nodes else one.get("total_nodes")),
        cpus=_int(_dict(one.get("cpus")).get("total") if "cpus" in one else one.get("total_cpus")),
        memory_mib=mebibytes(parse_tres(tres).get("mem")),
        gpus=tres_gpus(tres),
        max_time_minutes=_int(maximums.get("time")),
        max_time_unlimited=_infinite(maximums.get("time")),
        default_time_minutes=_int(defaults.get("time")),
        max_nodes=_int(maximums.get("nodes")),
        max_nodes_unlimited=_infinite(maximums.get("nodes")),
        min_nodes=_int(_dict(one.get("minimums")).get("nodes")),
        default_memory_per_cpu_mib=_int(defaults.get("partition_memory_per_cpu")),
        default_memory_per_node_mib=_int(defaults.get("partition_memory_per_node")),
        priority_tier=_int(priority.get("tier")),
        priority_job_factor=_int(priority.get("job_factor")),
        qos=text(qos.get("assigned")),
        allow_accounts=words(_dict(one.get("accounts")).get("allowed")) or None,
        allow_groups=words(_dict(one.get("groups")).get("allowed")) or None,
        allow_qos=words(qos.get("allowed")) or None,
    )


def _job(one: dict[str, Any]) -> Iterable[Job]:
    number = _int(one.get("job_id"))
    if number is None:
        return
    # sacct and slurmdbd nest the state, the times and the resources.
    recorded, times, tres = _dict(one.get("state")), _dict(one.get("time")), _dict(one.get("tres"))
    states = _texts(one.get("job_state") or recorded.get("current"))
    nodes = _names(one.get("nodes"))
    details = [detail for detail in one.get("gres_detail") or [] if isinstance(detail, str)]
    memory = _memory_by_node(_dict(one.get("job_resources")))
    allocations = [
        Allocation([name], parse_gres(details[place] if len(details) == len(nodes) else None), None, memory.get(name))
        for place, name in enumerate(nodes)
        if details or memory
    ]
    allocated = one.get("tres_alloc_str") or _tres(tres.get("allocated"))
    requested = one.get("tres_req_str") or _tres(tres.get("requested"))
    array_job, array_task = _array(one)
    gpus = tres_gpus(allocated)
    node_count = _int(one.get("node_count", one.get("allocation_nodes")))
    limit = one.get("time_limit", times.get("limit"))
    yield Job(
        id=number,
        state=states[0] if states else None,
        flags=states[1:],
        array_job_id=array_job,
        array_task=array_task,
        name=text(one.get("name")),
        user=text(one.get("user_name") or one.get("user")),
        user_id=_int(one.get("user_id")),
        account=text(one.get("account")),
        partition=text(one.get("partition")),
        qos=text(one.get("qos")),
        reason=text(one.get("state_reason") or recorded.get("reason")),
        nodes=nodes,
        node_count=node_count,
        cpus=_int(one.get("cpus", _dict(one.get("required")).get("CPUs"))),
        memory_mib=mebibytes(parse_tres(allocated).get("mem")),
        gpus=gpus_in(allocations) if gpus is None and nodes and "gres_detail" in one else gpus,
        gpus_requested=asked_gpus(requested, one.get("tres_per_job"), one.get("tres_per_node"), node_count),
        allocations=allocations,
        batch_host=text(one.get("batch_host")),
        priority=_int(one.get("priority")),
        submit_epoch_seconds=_time(one.get("submit_time", times.get("submission"))),
        start_epoch_seconds=_time(one.get("start_time", times.get("start"))),
        end_epoch_seconds=_time(one.get("end_time", times.get("end"))),
        time_limit_minutes=_int(limit),
        time_limit_unlimited=_infinite(limit),
    )


def _memory_by_node(resources: dict[str, Any]) -> dict[str, int | None]:
    nodes = resources.get("nodes")
    newer = _list(nodes, "allocation") if isinstance(nodes, dict) else []
    memory = {str(one.get("name")): _int(_dict(one.get("memory")).get("allocated")) for one in newer}
    memory.update(
        {str(one.get("nodename")): _int(one.get("memory_allocated")) for one in _list(resources, "allocated_nodes")}
    )
    return memory


def _array(one: dict[str, Any]) -> tuple[int | None, str | None]:
    """Return the array's job and the task in it; Slurm writes 0 where there is no array."""
    nested = _dict(one.get("array"))
    job = _time(one.get("array_job_id", nested.get("job_id")))
    if job is None:
        return None, None
    task = _int(one.get("array_task_id", nested.get("task_id")))
    return job, text(one.get("array_task_string", nested.get("task"))) or (None if task is None else str(task))


def _tres(resources: object) -> str:
    """Return a list of resources as Slurm's commands write it: "cpu=2,mem=512M,gres/gpu:h100=4"."""
    parts = []
    for one in resources if isinstance(resources, list) else []:
        kind, name, count = (text(_dict(one).get("type")), text(_dict(one).get("name")), _int(_dict(one).get("count")))
        if kind and count is not None:
            parts.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(parts)


def _controller(one: dict[str, Any]) -> Iterable[Controller]:
    name = text(one.get("hostname"))
    if name:
        yield Controller(name, text(one.get("mode")) or "primary", one.get("pinged") == "UP")


def _meta(document: dict[str, Any]) -> dict[str, str | None]:
    """Return the cluster's name and version under the names that `scontrol show config` has for them."""
    meta = _dict(document.get("meta"))
    slurm = _dict(meta.get("slurm") or meta.get("Slurm"))
    found = {"ClusterName": text(slurm.get("cluster")), "SLURM_VERSION": text(slurm.get("release"))}
    return {key: value for key, value in found.items() if value}
