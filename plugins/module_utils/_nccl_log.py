# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What NCCL wrote about itself (NCCL_DEBUG=WARN or INFO) in the output of a job.

Format: the print statements of NCCL 2.5 to 2.30 and of the AWS OFI plugin, and captures of these releases. A line may
bear what mpirun, srun or a time stamp put before it, and two processes may have written into one line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import without_escapes

# "host:pid:thread [gpu] file.cc:12 (function) NCCL WARN "; file and function only where something went wrong. It is
# looked for from its end: a pattern that is tried at every letter of a long line takes four times as long.
_LEVEL = re.compile(r"NCCL (INFO|WARN|ERROR) ")
_GPU_AND_PLACE = re.compile(
    r"\[(?P<gpu>-?\d{1,4})\] (?:(?P<file>[\w./-]+):(?P<line>\d{1,6}) (?:\((?P<function>\w+)\) )?)?$"
)
_PLACE = re.compile(r"(?:^|\s)(?P<file>[\w./-]+\.\w+):(?P<line>\d{1,6}) (?:\((?P<function>\w+)\) )?$")
# Two numbers alone are a process and its thread, of a line whose beginning is lost.
_WRITER = re.compile(r"(?!\d+:\d+$)(?P<host>\w[\w.-]*):(?P<pid>\d{1,10})(?::\d{1,10})?$")
# vLLM writes it as pip does.
_VERSION = re.compile(
    r"(?:NCCL version |\bnccl==)(?P<version>\d{1,3}(?:\.\d{1,3}){1,3})(?:\+cuda(?P<cuda>\d{1,3}\.\d{1,3}))?"
)
_DRIVER = re.compile(r"^cudaDriverVersion (\d{4,6})")
_ADDRESS = re.compile(r"(?:\[\d{1,4}\])?(?P<name>[A-Za-z][\w.@-]*):(?P<address>[0-9A-Fa-f][0-9A-Fa-f.:%\w]*)<\d+>")
_HCA = re.compile(r"\[\d{1,4}\]\s?(?P<name>[A-Za-z][\w.+@-]*?):(?P<port>\d{1,3})/(?P<layer>IB|RoCE)\b")
_VIRTUAL = re.compile(r"Made virtual device \[\d{1,4}\] name=(?P<name>\S+)")
_POINTER = re.compile(r"\bcomm (0x[0-9a-fA-F]+)")
_RANK = re.compile(
    r"\brank (?P<rank>\d{1,7}) n[rR]anks (?P<ranks>\d{1,7})(?: cudaDev (?P<gpu>\d{1,4}))?(?: nvmlDev \d{1,4})?"
    r"(?: busId (?P<bus>[0-9a-fA-F]{1,12}))?(?: commId (?P<comm>0x[0-9a-fA-F]{1,32}))?"
    r"(?: localSize \d+ used \d+ bytes)?(?: - (?P<state>[\w ]{1,40}))?"
)
# Before 2.7 connections were called rings, and the channels had no total. RCCL names the communicator behind them.
_CHANNEL = re.compile(
    r"^(?:Channel|Ring) \d{1,4}(?:/\d{1,4})? ?: \d+(?:\[\w+\])? -> \d+(?:\[\w+\])? "
    r"(?:\[(?:send|receive)\] )?via (?P<via>.+?)(?: comm 0x.*)?$"
)
_CHANNELS = re.compile(r"^Channel (?P<index>\d{1,4})(?:/(?P<total>\d{1,4}))? ?:(?: +-?\d+)+\s*$")
_COLLECTIVE = re.compile(r"^(\d{1,4}) coll channels")
_SETTING = re.compile(r"^(?P<name>NCCL_\w+) set (?:by environment )?to (?P<value>.*?)\.?$")
_NETWORK = re.compile(r"^Using network (.+?)\s*$")
_PROVIDER = re.compile(r"[Ss]elected [Pp]rovider is ([\w;-]+)")
_GDR_FLAG = re.compile(r"\bGDR ([01])\b")
_GDR_STATE = re.compile(r"GPU Direct RDMA (Enabled|Disabled)")
_TRACE = re.compile(r"^(?P<file>[\w./-]+\.\w+):(?P<line>\d{1,6}) -> (?P<code>\d{1,3})\b")
_DEVICE = re.compile(r"(?:\bon dev |^NET/IB : )(?P<port>[A-Za-z][\w.-]*):\d{1,3}\b|\bhca (?P<hca>[A-Za-z][\w.-]*)$")
# Errors that programs report in words of their own.
_REPORTED = re.compile(
    r"(?:NCCL error|NCCL failure|nccl(?:UnhandledCudaError|SystemError|InternalError|InvalidUsage|InvalidArgument|"
    r"RemoteError)|NET/IB : Got completion|Watchdog caught collective operation timeout)\b"
)
_REPORTED_AT = re.compile(r"(?P<file>[\w./-]+\.(?:cc|cu|h|c|cpp)):(?P<line>\d{1,6})\b")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
_MOST_NAMES = 20
# Of longer texts no part is looked at that a pattern would try again from each letter.
_HOST_LETTERS = 300
_BODY_LETTERS = 2000
_INTERESTING = (
    "Channel", "Ring ", "comm ", "ncclCommInit", "Bootstrap", "NET/", "Using network", "NCCL", "cudaDriver",
    "Connected", "GPU Direct", "[Service", "[Rank", *"0123456789",
)  # fmt: skip
_WORDS = ("NCCL", "nccl", "NET/", "TOPO/NET", "on dev ")

_KINDS = (
    ("duplicate_gpu", re.compile(r"Duplicate GPU detected|Multiple Ranks are using the same GPU")),
    ("no_socket_interface", re.compile(r"no (?:socket |IP |usable listening )?interface found", re.IGNORECASE)),
    ("version_mismatch", re.compile(r"Mismatched NCCL version|NCCL version mismatch")),
    (
        "ib_completion",
        re.compile(r"Got completion .{0,200}?(?:with error|status)|async (?:fatal )?event|transport retry", re.I),
    ),
    ("ib_connection", re.compile(r"ibv_(?:modify_qp|reg_mr|create_qp|open_device)\w* failed|Call to ibv_\w+ failed")),
    (
        "remote_process_gone",
        re.compile(
            r"ncclRemoteError|Connection closed by|remote process exited|Connection re(?:fused|set)|Broken pipe"
        ),
    ),
    (
        "peer_unreachable",
        re.compile(r"No route to host|(?:Network|Host) is unreachable|Software caused connection abort"),
    ),
    ("timeout", re.compile(r"timed? ?out", re.IGNORECASE)),
    ("cuda_failure", re.compile(r"Cuda failure|Cuda error|ncclUnhandledCudaError", re.IGNORECASE)),
    ("invalid_usage", re.compile(r"ncclInvalid(?:Usage|Argument)|invalid (?:usage|argument)", re.IGNORECASE)),
    (
        "system_error",
        re.compile(r"ncclSystemError|unhandled system error|No space left|Cannot allocate memory|Permission denied"),
    ),
)


@dataclass(frozen=True)
class NcclRank:
    """A rank of a communicator; None where no line says it. state: "Init COMPLETE" and the like."""

    rank: int
    ranks: int
    host: str | None
    pid: int | None
    gpu: int | None
    pci_bus_id: str | None
    communicator: str | None
    state: str | None


@dataclass(frozen=True)
class NcclHca:
    """A port that NCCL chose. port, layer ("IB" or "RoCE"): None where only the name is printed."""

    name: str
    port: int | None
    layer: str | None


@dataclass(frozen=True)
class NcclMessage:
    """A warning or error, with all that differ from it in numbers alone.

    severity: "error" or "warning" (NCCL's WARN may mean either). kind: what is known of it, None where nothing is.
    file, line, function: in NCCL's source. text: of the first. device: the HCA it names. hosts, ranks: that wrote it.
    """

    severity: str
    kind: str | None
    file: str | None
    line: int | None
    function: str | None
    text: str
    device: str | None
    count: int
    hosts: list[str]
    ranks: list[int]


@dataclass(frozen=True)
class NcclLog:
    """What a log says. None and [] are: the log doesn't say.

    cuda_driver_version: newest CUDA version of the driver. bootstrap_interfaces, socket_interfaces, hcas: chosen ones.
    networks: as NCCL calls them, "IB", "Socket", "AWS Libfabric". gdr: whether HCAs read and write GPU memory.
    channels: of the largest communicator. transports: connections by way, such as "P2P/IPC" and "NET/IB/GDRDMA".
    settings: variables that NCCL took. failed_at: places in NCCL's source on the way of an error, with their number.
    """

    versions: list[str]
    cuda_versions: list[str]
    cuda_driver_version: str | None
    hosts: list[str]
    ranks: list[NcclRank]
    rank_count: int | None
    bootstrap_interfaces: list[str]
    socket_interfaces: list[str]
    hcas: list[NcclHca]
    networks: list[str]
    provider: str | None
    gdr: bool | None
    channels: int | None
    transports: dict[str, int]
    settings: dict[str, str]
    messages: list[NcclMessage]
    failed_at: dict[str, int]


@dataclass
class _Message:
    severity: str
    text: str
    file: str | None
    line: int | None
    function: str | None
    device: str | None = None
    count: int = 0
    hosts: dict[str, None] = field(default_factory=dict)
    writers: dict[tuple[str | None, int | None, int | None], None] = field(default_factory=dict)


@dataclass(frozen=True)
class _Writer:
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None


@dataclass(frozen=True)
class _Place:
    file: str | None = None
    line: int | None = None
    function: str | None = None


@dataclass
class _State:
    versions: dict[str, None] = field(default_factory=dict)
    cuda_versions: dict[str, None] = field(default_factory=dict)
    driver: str | None = None
    hosts: dict[str, None] = field(default_factory=dict)
    ranks: dict[tuple[str | None, int | None, str | None, int], NcclRank] = field(default_factory=dict)
    bootstrap: dict[str, None] = field(default_factory=dict)
    sockets: dict[str, None] = field(default_factory=dict)
    hcas: dict[tuple[str, int | None], NcclHca] = field(default_factory=dict)
    virtual: dict[str, None] = field(default_factory=dict)
    networks: dict[str, None] = field(default_factory=dict)
    provider: str | None = None
    gdr_flag: bool | None = None
    channels: int | None = None
    transports: Counter[str] = field(default_factory=Counter)
    settings: dict[str, str] = field(default_factory=dict)
    messages: dict[tuple[str | None, int | None, str], _Message] = field(default_factory=dict)
    last: _Message | None = None
    failed_at: Counter[str] = field(default_factory=Counter)


def parse_nccl_log(lines: Iterable[str]) -> NcclLog:
    """Read a job's output; lines that aren't NCCL's are passed over. Raises nothing, whatever the lines are."""
    state = _State()
    for line in lines:
        if not any(word in line for word in _WORDS):
            continue
        plain = without_escapes(line) if "\x1b" in line else line
        statements = _statements(plain)
        for before, level, body in statements:
            _statement(state, before, level, body.rstrip())
        if not statements:
            _bare(state, plain.strip())
    return _finished(state)


def _statements(line: str) -> list[tuple[str, str, str]]:
    """Return of each statement of a line what stands before it, its level and its text."""
    levels = list(_LEVEL.finditer(line))
    found = []
    start = 0
    for number, level in enumerate(levels):
        end = len(line)
        if number + 1 < len(levels):
            # The writer of the next statement stands before it: "host:pid:thread [gpu] ".
            following = levels[number + 1].start()
            bracket = line.rfind(" [", level.end(), following)
            end = max(line.rfind(" ", level.end(), following if bracket < 0 else bracket) + 1, level.end())
        found.append((line[start : level.start()], level[1], line[level.end() : end]))
        start = end
    return found


def _statement(state: _State, before: str, level: str, body: str) -> None:
    if level == "INFO" and not body.startswith(_INTERESTING) and _TRACE.match(body) is None:
        return
    place = _GPU_AND_PLACE.search(before, max(0, before.rfind("[")))
    writer = _Writer()
    if place:
        match = _WRITER.search(before[: place.start()].rstrip().rpartition(" ")[2][-_HOST_LETTERS:])
        if match:
            writer = _Writer(_host(state, match["host"], before), int(match["pid"]), int(place["gpu"]))
    if level == "INFO":
        _information(state, body, writer)
        return
    place = place or _PLACE.search(before[-300:])
    where = _Place()
    if place and place["file"]:
        # The AWS OFI plugin names its function in place of the file.
        file = place["file"] if "." in place["file"] else None
        where = _Place(file, int(place["line"]), place["function"] if file else place["file"])
    _message(state, "warning", body, writer, where)


def _host(state: _State, printed: str, before: str) -> str:
    """Return the writer's host; where two lines ran into one, the end of the other sticks to its name."""
    if printed not in state.hosts and not before.startswith(printed):
        printed = next((known for known in state.hosts if printed.endswith(known)), printed)
    state.hosts[printed] = None
    return printed


def _bare(state: _State, body: str) -> None:
    """Read a line without NCCL's header: its version, an error as a program reports it, or an abridged log."""
    version = _VERSION.search(body)
    if version:
        _version(state, version)
    if _REPORTED.search(body):
        place = _REPORTED_AT.search(body[:_BODY_LETTERS])
        where = _Place(place["file"], int(place["line"])) if place else _Place()
        _message(state, "error", body, _Writer(), where)
    elif state.last is not None and state.last.device is None and body.find("on dev ") >= 0:
        state.last.device = _device(body)  # the rest of a wrapped warning
    elif body.startswith(("NET/", "NCCL_", "TOPO/NET")):
        _information(state, body, _Writer())


def _information(state: _State, body: str, writer: _Writer) -> None:
    first = body.partition(" ")[0]
    if first in {"Channel", "Ring"}:
        _channel(state, body)
    elif first.startswith(("comm", "ncclCommInit", "[Rank")):
        _rank(state, body, writer)
    elif first.startswith("Bootstrap"):
        _bootstrap(state, body)
    elif first.startswith("NET/"):
        _net(state, first, body)
    elif first == "Using":
        network = _NETWORK.match(body)
        if network:
            state.networks[network[1]] = None
    elif first.startswith("NCCL_"):
        setting = _SETTING.match(body)
        if setting:
            state.settings[setting["name"]] = setting["value"]
    elif first == "cudaDriverVersion":
        driver = _DRIVER.match(body)
        if driver:
            number = int(driver[1])
            state.driver = f"{number // 1000}.{number % 1000 // 10}"
    elif first == "NCCL":
        version = _VERSION.search(body)
        if version:
            _version(state, version)
    elif first.isdecimal():
        channels = _COLLECTIVE.match(body)
        if channels:
            state.channels = max(state.channels or 0, int(channels[1]))
    elif first in {"Connected", "GPU"}:
        _gdr(state, body)
    elif first == "[Service":
        if "Connection closed" in body:
            _message(state, "warning", body, writer, _Place())
    else:
        place = _TRACE.match(body)
        if place:
            state.failed_at[f"{place['file']}:{place['line']}"] += 1


def _channel(state: _State, body: str) -> None:
    match = _CHANNEL.match(body)
    if match:
        # "NET/IB/3/GDRDMA(PCI)/Shared": the number is the HCA's, the rest how it goes.
        parts = [part.partition("(")[0].strip() for part in match["via"].split("/") if not part.strip().isdecimal()]
        kept = [part for part in parts[:2] if part] + [part for part in parts[2:] if part == "GDRDMA"]
        state.transports["/".join(kept)] += 1
        return
    match = _CHANNELS.match(body)
    if match:
        state.channels = max(state.channels or 0, int(match["total"] or int(match["index"]) + 1))


def _rank(state: _State, body: str, writer: _Writer) -> None:
    match = _RANK.search(body)
    if match is None:
        return
    pointer = _POINTER.search(body)
    key = (writer.host, writer.pid, pointer[1] if pointer else None, int(match["rank"]))
    earlier = state.ranks.get(key)
    # A communicator is named when it begins, when it is ready and when it ends; not every line has every field.
    state.ranks[key] = NcclRank(
        rank=int(match["rank"]),
        ranks=int(match["ranks"]),
        host=writer.host,
        pid=writer.pid,
        gpu=int(match["gpu"]) if match["gpu"] else earlier.gpu if earlier else writer.gpu,
        pci_bus_id=_bus_id(match["bus"]) or (earlier.pci_bus_id if earlier else None),
        communicator=match["comm"] or (earlier.communicator if earlier else None),
        state=match["state"].strip() if match["state"] else earlier.state if earlier else None,
    )


def _bus_id(printed: str | None) -> str | None:
    """Return "0000:1c:00.0" for "1c000": NCCL packs domain, bus, device and function into one number."""
    if printed is None:
        return None
    number = int(printed, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0x7:x}"


def _bootstrap(state: _State, body: str) -> None:
    if "Using" in body:
        for match in _ADDRESS.finditer(body):
            state.bootstrap[match["name"]] = None


def _net(state: _State, first: str, body: str) -> None:
    """Read what a network transport says: NET/IB and NET/Socket, or the name of a plugin."""
    if "Using [" in body:
        chosen, _semicolon, outside = body.partition("; OOB")
        hcas = [(match["name"], int(match["port"]), match["layer"]) for match in _HCA.finditer(chosen)]
        for name, port, layer in hcas:
            state.hcas[name, port] = NcclHca(name, port, layer)
        if not hcas:
            state.sockets.update(dict.fromkeys(match["name"] for match in _ADDRESS.finditer(chosen)))
        state.bootstrap.update(dict.fromkeys(match["name"] for match in _ADDRESS.finditer(outside)))
    elif first == "NET/OFI":
        provider = _PROVIDER.search(body)
        if provider:
            state.provider = provider[1]
    else:
        virtual = _VIRTUAL.search(body)
        if virtual:
            state.virtual[virtual["name"]] = None
        _gdr(state, body)


def _gdr(state: _State, body: str) -> None:
    flag = _GDR_FLAG.search(body)
    if flag:
        state.gdr_flag = bool(state.gdr_flag) or flag[1] == "1"
    said = _GDR_STATE.search(body)
    if said:
        state.gdr_flag = bool(state.gdr_flag) or said[1] == "Enabled"


def _version(state: _State, match: re.Match[str]) -> None:
    state.versions[match["version"]] = None
    if match["cuda"]:
        state.cuda_versions[match["cuda"]] = None


def _message(state: _State, severity: str, body: str, writer: _Writer, place: _Place) -> None:
    text = body.strip()
    key = (place.file, place.line, _NUMBER.sub("#", text))
    message = state.messages.get(key)
    if message is None:
        message = state.messages[key] = _Message(severity, text, place.file, place.line, place.function)
    message.count += 1
    if writer.host is not None:
        message.hosts[writer.host] = None
    message.writers[writer.host, writer.pid, writer.gpu] = None
    message.device = message.device or _device(text)
    state.last = message


def _device(text: str) -> str | None:
    match = _DEVICE.search(text)
    return (match["port"] or match["hca"]) if match else None


def _finished(state: _State) -> NcclLog:
    ranks = sorted(state.ranks.values(), key=lambda rank: (-rank.ranks, rank.rank, rank.host or ""))
    by_writer = {(rank.host, rank.pid, rank.gpu): rank.rank for rank in reversed(ranks)}
    over_net = {way: number for way, number in state.transports.items() if way.startswith("NET/")}
    gdr = any("GDRDMA" in way for way in over_net) if over_net else state.gdr_flag
    if gdr and set(state.networks) == {"Socket"}:
        gdr = False  # NCCL prints "GDR 1" where no connection leaves the machine, whatever the network
    # The names of physical ports tell more than those of the devices that NCCL merged out of them.
    hcas = list(state.hcas.values()) or [NcclHca(name, None, None) for name in state.virtual if "+" not in name]
    return NcclLog(
        versions=list(state.versions),
        cuda_versions=list(state.cuda_versions),
        cuda_driver_version=state.driver,
        hosts=sorted(state.hosts),
        ranks=ranks,
        rank_count=max((rank.ranks for rank in ranks), default=None),
        bootstrap_interfaces=list(state.bootstrap),
        socket_interfaces=list(state.sockets),
        hcas=hcas,
        networks=list(state.networks),
        provider=state.provider,
        gdr=gdr,
        channels=state.channels,
        transports=dict(sorted(state.transports.items())),
        settings=dict(sorted(state.settings.items())),
        messages=[_message_of(message, by_writer) for message in state.messages.values()],
        failed_at=dict(state.failed_at.most_common()),
    )


def _message_of(message: _Message, by_writer: dict[tuple[str | None, int | None, int | None], int]) -> NcclMessage:
    ranks = {by_writer[writer] for writer in message.writers if writer in by_writer}
    return NcclMessage(
        severity=message.severity,
        kind=next((kind for kind, pattern in _KINDS if pattern.search(message.text)), None),
        file=message.file,
        line=message.line,
        function=message.function,
        text=message.text,
        device=message.device,
        count=message.count,
        hosts=sorted(message.hosts)[:_MOST_NAMES],
        ranks=sorted(ranks)[:_MOST_NAMES],
    )
