# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""A Slurm cluster as it is declared: its lines of configuration, and what is wrong with it.

Formats: the manual pages slurm.conf(5), gres.conf(5), scontrol(1) and squeue(1) of Slurm 22.05 and 24.11.
Nothing here looks at a machine; what was read from one comes in as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm_hostlist

_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<number>\d+)\Z")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\Z")
_CLUSTER = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z")
_GPU_TYPE = re.compile(r"[a-z0-9][a-z0-9_.-]*\Z")
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_TIME = re.compile(r"UNLIMITED\Z|INFINITE\Z|\d+\Z|(\d+-)?\d{1,2}(:\d{2}){1,2}\Z|\d+-\d{1,2}\Z")
# What slurmctld, slurmd and this collection write as the reason; other words are an administrator's.
_OWN_REASON = re.compile(
    r"GPU missing|gres|Low (RealMemory|CPUs|socket|TmpDisk|Cores)|Invalid|Not responding|Prolog|Kill task|Duplicate",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Gpu:
    """GPUs of one Slurm type in a node."""

    type: str
    count: int


@dataclass(frozen=True)
class Node:
    """A node as declared.

    memory_mib: what jobs may use; address: where slurmd is reached, None if the name resolves.
    """

    name: str
    address: str | None
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    gpus: tuple[Gpu, ...] = field(default=())

    @property
    def cpus(self) -> int:
        """CPUs as Slurm counts them: hardware threads."""
        return self.sockets * self.cores_per_socket * self.threads_per_core

    @property
    def gpu_count(self) -> int:
        """GPUs of all types."""
        return sum(gpu.count for gpu in self.gpus)

    @property
    def hardware(self) -> str:
        """The node's line without its name."""
        gres = ",".join(f"gpu:{gpu.type}:{gpu.count}" for gpu in self.gpus)
        return (
            f"CPUs={self.cpus} Sockets={self.sockets} CoresPerSocket={self.cores_per_socket} "
            f"ThreadsPerCore={self.threads_per_core} "
            f"RealMemory={self.memory_mib}{f' Gres={gres}' if gres else ''} State=UNKNOWN"
        )


def parse_nodes(declared: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Take the declaration, which find_problems() has nothing to say about, into Node."""
    return [
        Node(
            name=str(node["name"]),
            address=str(node["address"]) if node.get("address") and node["address"] != node["name"] else None,
            sockets=int(node["sockets"]),
            cores_per_socket=int(node["cores_per_socket"]),
            threads_per_core=int(node.get("threads_per_core") or 1),
            memory_mib=int(node["memory_mib"]),
            gpus=tuple(Gpu(str(gpu["type"]), int(gpu["count"])) for gpu in node.get("gpus") or []),
        )
        for node in declared
    ]


def fold(names: Iterable[str]) -> str:
    """Fold host names into Slurm's bracket form: gpu1, gpu2, login -> gpu[1-2],login.

    Only the number at a name's end is folded, since slurm.conf wants the bracket there; its leading zeros are kept.
    """
    matches = {name: _NUMBERED.match(name) for name in names}
    # gpu08 makes gpu10 a number of two digits too, so that the two fold into one bracket
    padded = {
        (match["stem"], len(match["number"])) for match in matches.values() if match and match["number"].startswith("0")
    }
    stems: dict[tuple[str, int], list[int]] = {}
    for name, match in matches.items():
        if match:
            width = len(match["number"])
            stems.setdefault((match["stem"], width if (match["stem"], width) in padded else 1), []).append(
                int(match["number"])
            )
        else:
            stems.setdefault((name, 0), [])
    return ",".join(_fold_stem(stem, width, numbers) for (stem, width), numbers in stems.items())


def _fold_stem(stem: str, width: int, numbers: list[int]) -> str:
    if not numbers:
        return stem
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [f"{first:0{width}}" + (f"-{last:0{width}}" if last > first else "") for first, last in runs]
    return stem + (texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]")


def expand(hosts: str) -> list[str]:
    """Expand Slurm's bracket form into names, the reverse of fold(); "(null)", "None" and "" are no host.

    Raises HostlistError.
    """
    return [] if hosts in ("", "(null)", "None assigned") else _slurm_hostlist.expand(hosts)


def node_lines(nodes: Sequence[Node]) -> list[str]:
    """NodeName lines of slurm.conf: nodes alike share a line, a node with an address of its own has its own."""
    alike: dict[str, list[str]] = {}
    for node in nodes:
        alike.setdefault((f"NodeAddr={node.address} " if node.address else "") + node.hardware, []).append(node.name)
    return [f"NodeName={fold(names)} {rest}" for rest, names in alike.items()]


def gres_lines(nodes: Sequence[Node]) -> list[str]:
    """Lines of gres.conf: which device files are the GPUs of each type, counted up in the order of declaration."""
    alike: dict[tuple[Gpu, ...], list[str]] = {}
    for node in nodes:
        if node.gpus:
            alike.setdefault(node.gpus, []).append(node.name)
    lines = []
    for gpus, names in alike.items():
        first = 0
        for gpu in gpus:
            last = first + gpu.count - 1
            files = f"[{first}-{last}]" if last > first else str(first)
            lines.append(f"NodeName={fold(names)} Name=gpu Type={gpu.type} File=/dev/nvidia{files}")
            first = last + 1
    return lines


def gpu_files(declared: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    """Device files of the GPUs of the node of that name, none if it is not declared."""
    own = parse_nodes(node for node in declared if str(node["name"]) == name)
    return [f"/dev/nvidia{number}" for node in own for number in range(node.gpu_count)]


def gpu_types(nodes: Iterable[Node]) -> list[str]:
    """GPU types of the cluster, each once, sorted."""
    return sorted({gpu.type for node in nodes for gpu in node.gpus})


def partition_lines(partitions: Sequence[Mapping[str, Any]], nodes: Sequence[Node]) -> list[str]:
    """PartitionName lines, with the share of a node that a job gets when it asks for none.

    The share is the smallest among the partition's nodes, so that as many jobs fit on each node as it has CPUs or GPUs.
    """
    by_name = {node.name: node for node in nodes}
    lines = []
    for partition in partitions:
        members = [by_name[name] for name in dict.fromkeys(partition["nodes"])]
        default = _is_true(partition.get("default", len(partitions) == 1))
        words = [
            f"PartitionName={partition['name']}",
            f"Nodes={fold(node.name for node in members)}",
            f"Default={'YES' if default else 'NO'}",
            f"MaxTime={partition.get('max_time') or 'UNLIMITED'}",
            f"DefMemPerCPU={min(node.memory_mib // node.cpus for node in members)}",
        ]
        shares = [node for node in members if node.gpu_count]
        if shares:
            # with DefMemPerCPU this is the GPU's share of the memory too; DefMemPerGPU can't stand beside that
            words.append(f"DefCpuPerGPU={max(1, min(node.cpus // node.gpu_count for node in shares))}")
        lines.append(" ".join([*words, "State=UP"]))
    return lines


def find_problems(
    cluster_name: str,
    nodes: Sequence[Mapping[str, Any]],
    partitions: Sequence[Mapping[str, Any]],
    uids: Mapping[str, int],
) -> list[str]:
    """Say what is wrong with a declaration, one sentence a fault that names what to write; empty if nothing is.

    uids: user or group id by the name of the variable that declares it.
    """
    problems = []
    if not _CLUSTER.match(cluster_name):
        problems.append(
            f"slurm_cluster_name is '{cluster_name}': write lower-case letters, digits, - and _, a letter first, "
            "at most 40 characters, "
            "since the accounting database names its tables after it."
        )
    problems.extend(_node_problems(nodes))
    problems.extend(_partition_problems(partitions, {str(node.get("name")) for node in nodes}))
    if nodes and not partitions:
        problems.append(
            "slurm_partitions is empty: declare at least one partition, as {name: train, nodes: [the names in "
            "slurm_nodes]}."
        )
    if any(int(uids[f"slurm_munge_{kind}"]) == int(uids[f"slurm_{kind}"]) for kind in ("uid", "gid")):
        problems.append(
            "munge and slurm share an id: give slurm_munge_uid, slurm_munge_gid, slurm_uid and slurm_gid numbers "
            "of their own."
        )
    return problems


def _node_problems(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    problems = []
    seen: set[str] = set()
    by_address: dict[str, str] = {}
    for node in nodes:
        name = str(node.get("name", ""))
        if not _HOST.match(name):
            problems.append(
                f"slurm_nodes holds a node named '{name}': write the machine's own short host name, without a domain."
            )
        if name in seen:
            problems.append(f"slurm_nodes holds {name} twice: keep one of the two.")
        seen.add(name)
        address = str(node.get("address") or "")
        if address and address in by_address:
            problems.append(
                f"Nodes {by_address[address]} and {name} have the same address {address}: give each its own."
            )
        by_address.setdefault(address, name)
        for key, what in (
            ("sockets", "its number of processor sockets"),
            ("cores_per_socket", "the cores of one socket"),
            ("memory_mib", "the memory that jobs may use, in MiB"),
        ):
            if not _is_count(node.get(key)):
                problems.append(
                    f"Node {name} declares {key} as {node.get(key)!r}: write {what} as a whole number above 0."
                )
        if not _is_count(node.get("threads_per_core", 1)):
            problems.append(
                f"Node {name} declares threads_per_core as {node['threads_per_core']!r}: write 1, or 2 with "
                "hyper-threading on."
            )
        for gpu in node.get("gpus") or []:
            if not _GPU_TYPE.match(str(gpu.get("type") or "")):
                problems.append(
                    f"Node {name} declares a GPU type {gpu.get('type')!r}: write a short lower-case name such as h100."
                )
            if not _is_count(gpu.get("count")):
                problems.append(
                    f"Node {name} declares {gpu.get('count', 'no count')} GPUs of type {gpu.get('type')!r}: "
                    "write how many it has, or leave the entry out of gpus if it has none."
                )
    return problems


def _partition_problems(partitions: Sequence[Mapping[str, Any]], known: set[str]) -> list[str]:
    problems = []
    seen: set[str] = set()
    for partition in partitions:
        name = str(partition.get("name", ""))
        if not _PARTITION.match(name) or name.upper() == "DEFAULT":
            problems.append(
                f"slurm_partitions holds a partition named '{name}': write letters, digits, -, _ and ., and not "
                "DEFAULT."
            )
        if name in seen:
            problems.append(f"slurm_partitions holds {name} twice: keep one of the two.")
        seen.add(name)
        if not partition.get("nodes"):
            problems.append(f"Partition {name} has no nodes: name at least one node of slurm_nodes in it.")
        unknown = [str(node) for node in partition.get("nodes") or [] if str(node) not in known]
        if unknown:
            problems.append(
                f"Partition {name} names {fold(unknown)}, which slurm_nodes does not hold: correct the name, or "
                "declare the node in slurm_nodes."
            )
        if not _TIME.match(str(partition.get("max_time") or "UNLIMITED")):
            problems.append(
                f"Partition {name} has the max_time '{partition['max_time']}': write UNLIMITED or "
                "days-hours:minutes:seconds, as 7-00:00:00."
            )
    defaults = [str(partition.get("name")) for partition in partitions if _is_true(partition.get("default", False))]
    if len(defaults) > 1:
        problems.append(f"Partitions {' and '.join(defaults)} are both default: leave default: true on one of them.")
    return problems


@dataclass(frozen=True)
class Expected:
    """What a machine must be, for find_machine_problems()."""

    cluster_name: str
    controller_host: str
    is_controller: bool
    is_node: bool
    constrain: bool
    nodes: Sequence[Mapping[str, Any]]
    partitions: Sequence[Mapping[str, Any]]
    users: Mapping[str, tuple[int, int]]


def find_machine_problems(host: str, state: str, expected: Expected) -> list[str]:
    """Say why this machine can't be what is declared, one sentence a fault; empty if it can.

    state: the lines that the role's preflight step reads from the machine, each of them a keyword and its values.
    """
    lines = [line.split(" ", 1) for line in state.splitlines() if " " in line]
    values: dict[str, list[str]] = {}
    for key, value in lines:
        values.setdefault(key, []).append(value.strip())
    problems = _id_problems(host, values, expected)
    problems.extend(_place_problems(host, values, expected))
    if expected.is_controller:
        problems.extend(_job_problems(values.get("job", []), values.get("node", []), expected))
    return problems


def _id_problems(host: str, values: Mapping[str, list[str]], expected: Expected) -> list[str]:
    problems = []
    for kind, number, variable in (("passwd", 0, "uid"), ("group", 1, "gid")):
        for entry in dict.fromkeys(values.get(kind, [])):
            name, _password, rest = entry.partition(":")
            actual = int(rest.split(":")[1])
            for user, ids in expected.users.items():
                option = f"slurm_munge_{variable}" if user == "munge" else f"slurm_{variable}"
                what = "user" if kind == "passwd" else "group"
                if name == user and actual != ids[number]:
                    problems.append(
                        f"The {what} {user} has the id {actual} on {host}, and {option} is {ids[number]}: "
                        f"set {option} to {actual} if all machines have it so, or change the id there."
                    )
                if name != user and actual == ids[number]:
                    problems.append(
                        f"The id {actual} belongs to the {what} {name} on {host}, and {option} wants it for "
                        f"{user}: set {option} to a free one."
                    )
    return problems


def _place_problems(host: str, values: Mapping[str, list[str]], expected: Expected) -> list[str]:
    problems = []
    own = values.get("hostname", [""])[0]
    if expected.is_node and own not in [str(node.get("name")) for node in expected.nodes]:
        problems.append(
            f"{host} calls itself {own}, a name that slurm_nodes does not hold: declare it there, or set the "
            "machine's host name to its name there."
        )
    if expected.is_controller and own != expected.controller_host:
        problems.append(
            f"{host} calls itself {own}, and slurm_controller_host is {expected.controller_host}: write the "
            "controller's own short host name."
        )
    if not expected.is_controller and values.get("slurmctld") == ["active"]:
        problems.append(
            f"{host} runs slurmctld, and the controller is {expected.controller_host}: two controllers would hand "
            "out the same nodes twice. "
            "Stop and disable slurmctld there, or name this machine as the controller."
        )
    missing = set(gpu_files(expected.nodes, own)).difference(*(line.split() for line in values.get("devices", [])))
    if expected.is_node and missing and "slurmd" in values:
        problems.append(
            f"{host} runs slurmd, which could not start again and would lose its jobs, "
            f"since {', '.join(sorted(missing))} is missing: drain the node, and repair it once its jobs have ended."
        )
    if not expected.is_controller and "unmanaged" in values:
        problems.append(
            f"{host} has a {values['unmanaged'][0]} that this role did not write, and it outranks what the "
            "controller hands out: move it out of the way."
        )
    old = values.get("clustername", [expected.cluster_name])[0]
    if expected.is_controller and old != expected.cluster_name:
        problems.append(
            f"/var/lib/slurm/slurmctld on {host} holds the jobs of the cluster {old}, and slurm_cluster_name is "
            f"{expected.cluster_name}: "
            "write the old name, or move that folder away to start with no jobs."
        )
    allowed = {str(expected.users["slurm"][0]), "0"}
    for entry in values.get("owner", []):
        uid, _space, path = entry.partition(" ")
        if uid not in allowed:
            problems.append(
                f"{path} on {host} belongs to the user id {uid} and not to slurm ({expected.users['slurm'][0]}): "
                "move it away, or change its owner."
            )
    if expected.is_node and expected.constrain and values.get("cgroup") not in (None, ["cgroup2fs"]):
        problems.append(
            f"{host} mounts cgroups of version 1, and Slurm holds jobs to their GPUs by version 2: "
            "take systemd.unified_cgroup_hierarchy=0 off the kernel command line and reboot."
        )
    return problems


def _job_problems(jobs: Iterable[str], running: Iterable[str], expected: Expected) -> list[str]:
    """Find jobs that the declaration would end.

    Slurm cancels the jobs of a partition that is gone, and fails those on a node that is gone or smaller.
    """
    nodes = {str(node.get("name")) for node in expected.nodes}
    partitions = {str(partition.get("name")) for partition in expected.partitions}
    problems = []
    for job in jobs:
        number, queues, hosts = [*job.split(" "), "", ""][:3]
        gone = [host for host in expand(hosts) if host not in nodes]
        if gone:
            problems.append(
                f"Job {number} runs on {fold(gone)}, which slurm_nodes no longer holds: drain the node, and "
                "remove it once its jobs have ended."
            )
        if queues and not partitions.intersection(queues.split(",")):
            problems.append(
                f"Job {number} is in the partition {queues}, which slurm_partitions no longer holds: Slurm would "
                "cancel it. Let it end first."
            )
    declared = {str(node["name"]): node for node in expected.nodes}
    for line in dict.fromkeys(running):
        name, cpus, memory_mib, gres = [*line.split(" "), "", "", ""][:4]
        if name not in declared:
            continue
        node = parse_nodes([declared[name]])[0]
        gpus = sum(int(count) for count in re.findall(r"gpu:(?:[^:,(]+:)?(\d+)", gres))
        if node.cpus < int(cpus) or node.memory_mib < int(memory_mib) or node.gpu_count < gpus:
            problems.append(
                f"Node {name} runs jobs, and slurm_nodes declares less CPUs, memory or GPUs than Slurm shares out "
                "there: "
                "drain the node, and change its declaration once its jobs have ended."
            )
    return problems


def node_problem(shown: str) -> str:
    """Say why a node is of no use to jobs for a cause in the machine or its declaration; empty if there is none.

    shown: `scontrol -o show node NAME`, and where slurmd does not answer on the node a line Complaint=, the last error
    in its log. A node that an administrator drained or took down is left in peace.
    """
    name = _value(shown, "NodeName") or "The node"
    states = (_value(shown, "State") or "").split("+")
    reason_match = re.search(r"\bReason=(.*?)(?: \[|\s+\w+=|$)", shown, re.MULTILINE)
    reason = reason_match[1].strip() if reason_match else ""
    complaint = re.search(r"^Complaint=(.*)", shown, re.MULTILINE)
    if not states[0]:
        return f"The controller did not tell about this node: {shown.strip() or 'no answer'}."
    if "INVALID_REG" in states or states[0] == "INVAL":
        return f"{name} is not what slurm_nodes declares; Slurm says: {reason or 'invalid registration'}."
    unusable = "DRAIN" in states or states[0].startswith(("DOWN", "DRAIN", "FAIL"))
    if unusable and _OWN_REASON.match(reason):
        return f"Slurm keeps {name} from jobs ({'+'.join(states)}), with the reason: {reason}."
    if complaint:
        last = complaint[1] or "none"
        return f"slurmd on {name} does not answer; the last error in its /var/log/slurm/slurmd.log is: {last}"
    if not is_registered(shown):
        return f"{name} has not registered with the controller ({'+'.join(states)}): see its /var/log/slurm/slurmd.log."
    return ""


def is_registered(shown: str) -> bool:
    """Whether slurmd on the node has registered with the controller, and answered when last asked."""
    state = _value(shown, "State") or ""
    started = _value(shown, "SlurmdStartTime") or ""
    return (
        bool(state) and "*" not in state and not state.startswith("UNKNOWN") and started not in ("", "None", "Unknown")
    )


def _value(shown: str, key: str) -> str | None:
    match = re.search(rf"(?:^|\s){key}=(\S+)", shown)
    return match[1] if match else None


def _is_true(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "yes", "1", "on")


def _is_count(value: object) -> bool:
    return not isinstance(value, bool) and str(value).isdigit() and int(str(value)) > 0
