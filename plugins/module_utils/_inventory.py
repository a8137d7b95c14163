# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What an inventory declares about a cluster, and what is wrong with it.

Groups and variables in, plain data and sentences out. No machine is asked, and every host is looked at once: the time
grows with the number of hosts, not with its square.

Each fault is a sentence that names the variable, the hosts and the value found, and says what to write where.
Hosts with the same fault share a sentence.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils import _accounts

CONTROLLER = "slurm_controller"
NODES = "gpu_nodes"
BACKUP = "backup_server"
MONITORING = "monitoring_server"
GROUPS = (CONTROLLER, NODES, BACKUP, MONITORING)
_ONE_HOST = (CONTROLLER, BACKUP, MONITORING)
# What a host is for. Watching the others is no purpose of its own: the controller or the backup server may do it too.
_PURPOSES = (CONTROLLER, NODES, BACKUP)

SHARED_DIRECTORY = "/shared"
# The defaults of the roles node_exporter and dcgm_exporter.
NODE_EXPORTER_PORT = 9100
DCGM_EXPORTER_PORT = 9400
PARTITIONS: list[dict[str, Any]] = [{"name": "train", "nodes": [NODES], "default": True}]

# Names that this collection's modules return as facts. Facts outrank inventory variables.
FACT_NAMES = ("gpu", "nccl", "site_machine", "slurm", "xid")

_NUMBERED = re.compile(r"(.*?)(\d*)", re.DOTALL)
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_CLUSTER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_GPU_MODEL = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_PARTITION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MAX_TIME = re.compile(r"UNLIMITED|\d+-\d{1,2}:[0-5]\d:[0-5]\d")

_UNDEFINED = re.compile(r"'(\w+)' is undefined")
_WRAPPING = re.compile(r"A captured exception marker was tripped: ")
# Ansible knows these only where a task or a role uses the variable.
_LATER = ("hostvars", "role_name", "role_path")

# How Ansible reaches a machine. It computes them before a task starts, and one that fails there hides all faults.
_CONNECTION = (
    "ansible_become",
    "ansible_become_exe",
    "ansible_become_flags",
    "ansible_become_method",
    "ansible_become_user",
    "ansible_connection",
    "ansible_host",
    "ansible_pipelining",
    "ansible_port",
    "ansible_private_key_file",
    "ansible_python_interpreter",
    "ansible_remote_tmp",
    "ansible_shell_executable",
    "ansible_ssh_common_args",
    "ansible_ssh_executable",
    "ansible_ssh_extra_args",
    "ansible_ssh_host",
    "ansible_ssh_pipelining",
    "ansible_ssh_port",
    "ansible_ssh_private_key_file",
    "ansible_ssh_timeout",
    "ansible_ssh_user",
    "ansible_timeout",
    "ansible_user",
)
_SECRETS = (
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
)

_AT_THE_NODE = "at the host or in group_vars/gpu_nodes.yml"
_FOR_ALL = "in group_vars/all.yml"


@dataclass(frozen=True)
class _Number:
    """A whole number that every GPU node declares."""

    what: str
    lowest: int
    highest: int
    example: int
    hint: str
    default: int | None = None


_NUMBERS = {
    "node_sockets": _Number("number of CPU sockets", 1, 64, 2, "lscpu prints it"),
    "node_cores_per_socket": _Number("number of cores in a socket", 1, 1024, 48, "lscpu prints it"),
    "node_threads_per_core": _Number("number of threads in a core", 1, 8, 2, "lscpu prints it", default=1),
    "node_memory_mib": _Number("memory for jobs in MiB", 4096, 67108864, 1900000, "a little less than free -m prints"),
    "node_gpu_count": _Number("number of GPUs", 1, 64, 8, "nvidia-smi -L lists them"),
}
_MODEL = "node_gpu_model"
# Roles that share one apt source, which therefore must be told the same: each has a variable of its own for these.
_SHARED_SOURCE = ("nvidia_driver", "cuda", "dcgm_exporter")
_SHARED_SOURCE_OPTIONS = ("repository_url", "repository_key_fingerprint")
_ACCOUNTS = "cluster_users_accounts"

NODE_VARIABLES = (*_NUMBERS, _MODEL)
CLUSTER_VARIABLES = ("cluster_name", "cluster_shared_directory", "cluster_partitions", _ACCOUNTS)


@dataclass
class Site:
    """What the inventory declares.

    faults: sentences; empty when the rest can be relied upon.
    nodes: each GPU node by its name: name, sockets, cores_per_socket, threads_per_core, memory_mib and gpus, a list of
        {type, count}. A value that is missing or wrong, and so is a fault, is left out.
    partitions: name, nodes (host names), default, max_time.
    arguments: by host, the variables of roles that the inventory sets and that can be computed now; those that need
        facts can't.
    accounts: the declared accounts.
    targets: what Prometheus scrapes, in the form of prometheus_targets: the node exporter of every host, the DCGM
        exporter of every GPU node.
    """

    faults: list[str] = field(default_factory=list)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    partitions: list[dict[str, Any]] = field(default_factory=list)
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts: list[dict[str, Any]] = field(default_factory=list)
    targets: list[dict[str, str]] = field(default_factory=list)


def read_site(
    groups: Mapping[str, Sequence[str]],
    hostvars: Mapping[str, Mapping[str, Any]],
    role_variables: Iterable[str] = (),
) -> Site:
    """Return what the inventory declares together with all its faults.

    groups: host names by group, as Ansible's `groups`.
    hostvars: variables by host name, as Ansible's `hostvars`; one that can't be computed raises when it is read.
    role_variables: names that the roles read, to tell a misspelt variable from one that is somebody else's.
    """
    if not any(groups.values()):
        return Site(
            [
                "The inventory has no host: write the machines into the groups slurm_controller and gpu_nodes of its "
                "hosts file, and give that file to ansible-playbook with -i."
            ]
        )
    faults = Faults()
    of_roles = set(role_variables)
    members = list(dict.fromkeys(host for group in GROUPS for host in groups.get(group, ())))
    gpu_nodes = set(groups.get(NODES, ()))
    # To ask for a secret may take long, and most groups have one for all.
    asked_for_secrets = {groups[group][0] for group in GROUPS if groups.get(group)}
    spelling = _Spelling([*NODE_VARIABLES, *CLUSTER_VARIABLES, *of_roles])
    common: dict[str, _Common] = {name: _Common(name) for name in CLUSTER_VARIABLES}
    addresses: dict[tuple[str, str], list[str]] = {}
    nodes: dict[str, dict[str, Any]] = {}
    arguments: dict[str, dict[str, Any]] = {}

    _check_groups(groups, faults)
    for host in members:
        variables = _Variables(host, hostvars[host], faults)
        _check_variable_names(variables, spelling, faults)
        own = sorted(variables.names & of_roles)
        arguments[host] = {name: value for name in own for value in variables.known(name)}
        for value in common.values():
            value.add(variables)
        for name in (*_CONNECTION, *(_SECRETS if host in asked_for_secrets else ())):
            variables.known(name)
        address = _plain_address(variables.first("ansible_host", "ansible_ssh_host") or host)
        port = variables.first("ansible_port", "ansible_ssh_port") or 22
        addresses.setdefault((address, str(port)), []).append(host)
        if host in gpu_nodes:
            nodes[host] = _declared_node(variables, faults)

    for host in gpu_nodes & set(arguments):
        _check_shared_source(host, arguments[host], faults)
    _check_host_names(members, faults)
    for (address, _port), hosts in addresses.items():
        if len(hosts) > 1:
            faults.say(
                f"ansible_host is {address} for {fold(hosts)}: two machines can't share an address; "
                "write each host's own one there."
            )
    _check_cluster_name(common["cluster_name"], faults)
    _check_shared_directory(common["cluster_shared_directory"], faults)
    accounts = _declared_accounts(common[_ACCOUNTS], faults)
    partitions = _declared_partitions(common["cluster_partitions"], groups, faults)
    targets = list(_targets(arguments, gpu_nodes))
    return Site(faults.sentences(), nodes, partitions, arguments, accounts, targets)


def _targets(arguments: Mapping[str, Mapping[str, Any]], gpu_nodes: set[str]) -> Iterator[dict[str, str]]:
    for host, own in arguments.items():
        for job, port, has_it in (
            ("node", own.get("node_exporter_port") or NODE_EXPORTER_PORT, True),
            ("dcgm", own.get("dcgm_exporter_port") or DCGM_EXPORTER_PORT, host in gpu_nodes),
        ):
            if has_it:
                yield {"job": job, "instance": str(host), "address": f"{host}:{port}"}


class Faults:
    """Collects sentences; those that differ in nothing but the host become one."""

    def __init__(self) -> None:
        self._sentences: dict[str, list[str]] = {}

    def say(self, sentence: str) -> None:
        """Add a sentence that names its hosts already."""
        self._sentences.setdefault(sentence, [])

    def add(self, host: str, sentence: str) -> None:
        """Add a sentence about a host, which is named where the sentence says HOSTS."""
        self._sentences.setdefault(sentence, []).append(host)

    def sentences(self) -> list[str]:
        return [
            sentence.replace("HOSTS", fold(dict.fromkeys(hosts)), 1) if hosts else sentence
            for sentence, hosts in self._sentences.items()
        ]


def fold(hosts: Iterable[str], limit: int = 8) -> str:
    """Name hosts in a sentence: three neighbours and more as gpu[1-3], of many parts the first `limit`."""
    runs: list[tuple[str, str, str]] = []  # what stands before the number, first and last number as written
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        before, number = (match[1], match[2]) if match else (host, "")
        if runs and number and runs[-1][0] == before and _next(runs[-1][2]) == number:
            runs[-1] = (before, runs[-1][1], number)
        else:
            runs.append((before, number, number))
    names: list[str] = []
    for before, first, last in runs:
        if first == last:
            names.append(before + first)
        elif _next(first) == last:
            names += [before + first, before + last]
        else:
            names.append(f"{before}[{first}-{last}]")
    if len(names) > limit:
        names = [*names[:limit], f"{len(names) - limit} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def with_text_keys(value: Any) -> Any:
    """Return a value with text for all keys: YAML takes `no: x` and `5: x` for a truth value and a number."""
    if isinstance(value, Mapping):
        return {str(key): with_text_keys(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [with_text_keys(entry) for entry in value]
    return value


def _next(number: str) -> str:
    return str(int(number) + 1).zfill(len(number)) if number else ""


class _Variables:
    """The variables of one host. One that can't be computed counts as unset and becomes a fault, once."""

    def __init__(self, host: str, variables: Mapping[str, Any], faults: Faults) -> None:
        self.host = host
        self.names = set(variables)
        self.broken: set[str] = set()
        self._variables = variables
        self._faults = faults

    def get(self, name: str) -> Any:
        if name not in self.names:
            return None
        try:
            value = self._variables[name]
            repr(value)  # Ansible computes a value's parts when they are looked at
            return value
        except Exception as error:  # whatever a template of the user's may raise
            self._faults.add(self.host, f"{name} of HOSTS can't be computed: {_why(error)}; correct what it refers to.")
            self.names.discard(name)
            self.broken.add(name)
            return None

    def known(self, name: str) -> list[Any]:
        """Return a variable's value, or nothing while it can't be computed. One that needs facts may yet be."""
        if name not in self.names:
            return []
        try:
            value = self._variables[name]
            repr(value)
        except Exception as error:  # whatever a template of the user's may raise
            undefined = _UNDEFINED.search(str(error))
            if undefined and not undefined[1].startswith("ansible_") and undefined[1] not in _LATER:
                self._faults.add(self.host, f"{name} of HOSTS can't be computed: {_why(error)}; define {undefined[1]}.")
            return []
        return [value]

    def first(self, *names: str) -> Any:
        """Return the first variable's value that is there and known."""
        return next((value for name in names for value in self.known(name) if value), None)


def _why(error: Exception) -> str:
    """Return an error's text without Ansible's words for its own parts."""
    text = _WRAPPING.sub("", str(error)).rstrip(".")
    return "it can't be decrypted" if "vault exception marker" in text else text


class _Spelling:
    """Tells a misspelt name from one that belongs to somebody else: each name is compared once, not once a host."""

    def __init__(self, known: Iterable[str]) -> None:
        self._meant: dict[str, str | None] = dict.fromkeys(known)
        self._known: dict[str, list[str]] = {}  # what follows the first word, by that word
        for name in sorted(self._meant):
            first, _separator, rest = name.partition("_")
            self._known.setdefault(first, []).append(rest)

    def meant(self, name: str) -> str | None:
        if name not in self._meant:
            first, _separator, rest = name.partition("_")
            close = difflib.get_close_matches(rest, self._known.get(first, ()), 1, 0.75)
            self._meant[name] = f"{first}_{close[0]}" if close else None
        return self._meant[name]


class _Common:
    """A variable that must have one value on all hosts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_broken = False  # somewhere it can't be computed, which is a fault already
        self._values: dict[str, tuple[Any, list[str]]] = {}

    def add(self, variables: _Variables) -> None:
        value = variables.get(self.name)
        if self.name in variables.broken:
            self.is_broken = True
            return
        self._values.setdefault(repr(value), (value, []))[1].append(variables.host)

    def value(self, faults: Faults) -> Any:
        """Return the value, or None when it isn't set. Several values are a fault, and the first one is returned."""
        values = list(self._values.values())
        if len(values) > 1:
            found = ", ".join(
                f"{'unset' if value is None else repr(value)} for {fold(hosts)}" for value, hosts in values[:4]
            )
            faults.say(f"{self.name} differs between hosts ({found}): set it once, {_FOR_ALL}.")
        return next((with_text_keys(value) for value, _hosts in values if value is not None), None)


def _check_groups(groups: Mapping[str, Sequence[str]], faults: Faults) -> None:
    for group, what in ((CONTROLLER, "the machine that runs Slurm's controller"), (NODES, "the machines with GPUs")):
        if not groups.get(group):
            close = difflib.get_close_matches(
                group, [name for name in groups if groups[name] and name not in GROUPS], 1, 0.75
            )
            hint = f" The inventory has a group {close[0]}: did you mean {group}?" if close else ""
            faults.say(f"Group {group} has no host: write {what} there, in the inventory's hosts file.{hint}")
    for group in _ONE_HOST:
        hosts = groups.get(group, ())
        if len(hosts) > 1:
            faults.say(
                f"Group {group} has {len(hosts)} hosts ({fold(hosts)}), and one is supported: "
                "leave the one that is to do it."
            )
    home: dict[str, str] = {}
    for group in _PURPOSES:
        for host in groups.get(group, ()):
            if host in home:
                faults.add(
                    host, f"HOSTS can't be both in group {home[host]} and in group {group}: take it out of one of them."
                )
            home.setdefault(host, group)


def _check_variable_names(variables: _Variables, spelling: _Spelling, faults: Faults) -> None:
    for name in sorted(variables.names):
        meant = spelling.meant(name)
        if meant and meant not in variables.names:
            faults.add(variables.host, f"{name} is set for HOSTS, but nothing reads it: did you mean {meant}?")
    for name in FACT_NAMES:
        # A fact of that name shows up among the variables too, once its module ran.
        if name in variables.names and name not in (variables.get("ansible_facts") or {}):
            faults.add(
                variables.host,
                f"{name} is set for HOSTS, but a module of this collection returns a fact of that name, which would "
                f"take its place: choose another name, such as site_{name}.",
            )


def _check_shared_source(host: str, own: Mapping[str, Any], faults: Faults) -> None:
    for option in _SHARED_SOURCE_OPTIONS:
        names = [f"{role}_{option}" for role in _SHARED_SOURCE]
        values = [own.get(name) for name in names]
        if len(set(map(str, values))) > 1:
            found = ", ".join(
                f"{name} is {'unset' if value is None else repr(value)}" for name, value in zip(names, values)
            )
            faults.add(
                host,
                f"{found} for HOSTS: these roles share NVIDIA's repository, so write one and the same value for all.",
            )


def _check_host_names(members: Iterable[str], faults: Faults) -> None:
    short: dict[str, list[str]] = {}
    for host in members:
        if not _is_address(host):
            short.setdefault(host.split(".", 1)[0].lower(), []).append(host)
        if not _HOST_NAME.fullmatch(host):
            faults.add(
                host,
                "HOSTS: a host's name in the inventory must be the machine's own short name (hostname -s prints it), "
                "made of letters, digits and hyphens; write a longer name or an address as its ansible_host.",
            )
    for hosts in short.values():
        if len(hosts) > 1:
            faults.say(
                f"{fold(hosts)} have the same short name, which Slurm can't tell apart: "
                "give each machine a name of its own."
            )


def _plain_address(value: Any) -> str:
    """Return an address in one spelling, a name in lower case."""
    text = str(value).strip().strip("[]").lower()
    return str(ipaddress.ip_address(text)) if _is_address(text) else text


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _declared_node(variables: _Variables, faults: Faults) -> dict[str, Any]:
    numbers = {name: _number(name, variables, faults) for name in _NUMBERS}
    node: dict[str, Any] = {
        name.removeprefix("node_"): number
        for name, number in numbers.items()
        if number is not None and name != "node_gpu_count"
    }
    gpus = {"type": _gpu_model(variables, faults), "count": numbers["node_gpu_count"]}
    return {
        "name": str(variables.host),
        **node,
        "gpus": [{key: value for key, value in gpus.items() if value is not None}],
    }


def _number(name: str, variables: _Variables, faults: Faults) -> int | None:
    rule = _NUMBERS[name]
    value = variables.get(name)
    if value is None:
        if rule.default is None and name not in variables.broken:
            faults.add(
                variables.host,
                f"{name} isn't set for HOSTS: write the {rule.what} ({rule.hint}) {_AT_THE_NODE}, "
                f"such as {name}: {rule.example}.",
            )
        return rule.default
    number = int(value) if re.fullmatch(r"\d{1,12}", str(value)) and not isinstance(value, bool) else -1
    if rule.lowest <= number <= rule.highest:
        return number
    faults.add(
        variables.host,
        f"{name} is {value!r} for HOSTS: write the {rule.what}, a whole number from {rule.lowest} to {rule.highest} "
        f"({rule.hint}), {_AT_THE_NODE}, such as {name}: {rule.example}.",
    )
    return None


def _gpu_model(variables: _Variables, faults: Faults) -> str | None:
    value = variables.get(_MODEL)
    if isinstance(value, str) and _GPU_MODEL.fullmatch(value):
        return str(value)
    if _MODEL in variables.broken:
        return None
    found = "isn't set" if value is None else f"is {value!r}"
    faults.add(
        variables.host,
        f"{_MODEL} {found} for HOSTS: write the GPU's short name for Slurm in lower-case letters, digits and hyphens "
        f"{_AT_THE_NODE}, such as {_MODEL}: h100.",
    )
    return None


def _check_cluster_name(common: _Common, faults: Faults) -> None:
    value = common.value(faults)
    if value is None and common.is_broken:
        return
    if not (isinstance(value, str) and _CLUSTER_NAME.fullmatch(value)):
        found = "isn't set" if value is None else f"is {value!r}"
        faults.say(
            f"cluster_name {found}: write a name of at most 40 lower-case letters, digits, hyphens and underscores "
            f"that begins with a letter {_FOR_ALL}, such as cluster_name: trainyard."
        )


def _check_shared_directory(common: _Common, faults: Faults) -> None:
    value = common.value(faults)
    if value is not None and not (
        isinstance(value, str) and re.fullmatch(r"(/[A-Za-z0-9._-]+)+", value) and "/.." not in value
    ):
        faults.say(
            f"cluster_shared_directory is {value!r}: write the absolute path of the directory that is mounted on all "
            f"machines, without spaces and without a slash at its end, {_FOR_ALL}, "
            f"such as cluster_shared_directory: {SHARED_DIRECTORY}."
        )


def _declared_accounts(common: _Common, faults: Faults) -> list[dict[str, Any]]:
    value = common.value(faults)
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence):
        faults.say(
            f"{_ACCOUNTS} is {value!r}: write a list {_FOR_ALL}, such as {_ACCOUNTS}: [{{name: trainer, uid: 2000}}]."
        )
        return []
    accounts: list[dict[str, Any]] = []
    for entry in value:
        if isinstance(entry, Mapping):
            accounts.append(dict(entry))
        else:
            faults.say(f"{_ACCOUNTS} holds {entry!r}: write name and uid for it, such as {{name: trainer, uid: 2000}}.")
    for fault in _accounts.declaration_faults(accounts):
        faults.say(fault)
    return accounts


def _declared_partitions(common: _Common, groups: Mapping[str, Sequence[str]], faults: Faults) -> list[dict[str, Any]]:
    declared = common.value(faults)
    if declared is None:
        declared = PARTITIONS
    elif isinstance(declared, str) or not isinstance(declared, Sequence) or not declared:
        faults.say(
            f"cluster_partitions is {declared!r}: write a list {_FOR_ALL}, such as "
            f"cluster_partitions: [{{name: train, nodes: [{NODES}], default: true}}]."
        )
        return []
    gpu_nodes = set(groups.get(NODES, ()))
    partitions: list[dict[str, Any]] = []
    for partition in declared:
        if not isinstance(partition, Mapping):
            faults.say(
                f"cluster_partitions holds {partition!r}: write name and nodes for it, such as "
                f"{{name: train, nodes: [{NODES}], default: true}}."
            )
            continue
        name = partition.get("name")
        if not (isinstance(name, str) and _PARTITION_NAME.fullmatch(name)) or name.upper() == "DEFAULT":
            faults.say(
                f"cluster_partitions has a partition named {name!r}: "
                "write a name of letters and digits other than DEFAULT."
            )
            name = str(name)
        max_time = "UNLIMITED" if partition.get("max_time") is None else partition["max_time"]
        if not (isinstance(max_time, str) and _MAX_TIME.fullmatch(max_time)):
            faults.say(
                f"Partition {name} in cluster_partitions has max_time {max_time!r}: write UNLIMITED, or days, hours, "
                'minutes and seconds in quotes, such as max_time: "2-12:00:00".'
            )
        default = False if partition.get("default") is None else partition["default"]
        if not isinstance(default, bool):
            faults.say(f"Partition {name} in cluster_partitions has default {default!r}: write true or false.")
        unknown = sorted(set(partition) - {"name", "nodes", "default", "max_time"})
        if unknown:
            faults.say(
                f"Partition {name} in cluster_partitions has {', '.join(unknown)}: "
                "only name, nodes, default and max_time are read."
            )
        nodes = list(dict.fromkeys(_partition_nodes(str(name), partition.get("nodes"), groups, gpu_nodes, faults)))
        partitions.append({"name": str(name), "nodes": nodes, "default": default is True, "max_time": str(max_time)})
    names = [partition["name"] for partition in partitions]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        faults.say(f"cluster_partitions has {names.count(name)} partitions named {name}: give each a name of its own.")
    defaults = [partition["name"] for partition in partitions if partition["default"]]
    if partitions and len(defaults) != 1:
        found = (
            f"has {len(defaults)} default partitions ({', '.join(defaults)})"
            if defaults
            else "has no default partition"
        )
        faults.say(f"cluster_partitions {found}: write default: true at exactly one, where jobs go that name none.")
    return partitions


def _partition_nodes(
    name: str, declared: Any, groups: Mapping[str, Sequence[str]], gpu_nodes: set[str], faults: Faults
) -> Iterator[str]:
    if isinstance(declared, str) or not isinstance(declared, Sequence) or not declared:
        faults.say(
            f"Partition {name} in cluster_partitions has nodes {declared!r}: write a list of GPU nodes or groups of "
            f"them, such as nodes: [{NODES}]."
        )
        return
    for entry in declared:
        hosts = groups.get(entry, (entry,)) if isinstance(entry, str) else ()
        others = [host for host in hosts if host not in gpu_nodes]
        if entry == NODES and not gpu_nodes:
            continue  # said already: the group has no host
        if isinstance(entry, str) and entry not in groups and entry not in gpu_nodes:
            close = difflib.get_close_matches(entry, [*gpu_nodes, *groups], 1, 0.75)
            hint = f"; did you mean {close[0]}?" if close else "."
            faults.say(
                f"Partition {name} in cluster_partitions names {entry}, which is neither a host of group {NODES} nor a "
                f"group: write one of these in its nodes{hint}"
            )
        elif others or not hosts:
            what = f"{fold(others)}, not in group {NODES}" if others else "no host"
            faults.say(
                f"Partition {name} in cluster_partitions names group {entry}, which holds {what}: "
                "write hosts with GPUs, or groups of nothing else, in its nodes."
            )
        else:
            yield from (str(host) for host in hosts)
