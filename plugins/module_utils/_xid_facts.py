# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What the kernel log and the fabric manager's log of a machine say about its GPUs, in one structure with a verdict."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from importlib import import_module
from typing import BinaryIO

from ansible_collections.trainyard.cluster.plugins.module_utils._command import RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import read_text
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import pci_bus_id
from ansible_collections.trainyard.cluster.plugins.module_utils._xid import (
    FABRIC_MANAGER,
    SXID,
    XID,
    Clock,
    KernelLog,
    XidEvent,
    parse_kernel_log,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._xid_catalogue import (
    CRITICAL,
    INFO,
    VERSION,
    WARNING,
    most_severe,
)

JOURNAL = "journal"
DMESG = "dmesg"
FILE = "file"
SOURCES = (JOURNAL, DMESG, FILE)

# A log that grew for months is read from its end.
_MOST_BYTES = 64 * 1024 * 1024
_MOST_LINES = 200_000
# By what the file begins with: the module of the standard library, or why its lines can't be read and what to give.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "lzma"}
_NO_LINES = {
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; unpack it (zstd --decompress), and give that file",
    b"LPKSHHRH": "is the journal's own file; give what journalctl --file prints of it",
}
_MOST_PROCESSES = 10
_SEVERITIES = (INFO, WARNING, CRITICAL)
_AGO = re.compile(r"^\s*(\d{1,9})\s*(s|m|h|d)\s*$")
_AGO_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_UUID = re.compile(r"^GPU UUID:\s*(GPU-\S+)", re.MULTILINE)


class XidError(ValueError):
    """What was asked for can't be read or understood; the message is a sentence that says what to do."""


@dataclass(frozen=True)
class Group:
    """Events of one kind and code on one device. first, last: times, None where the log has none."""

    kind: str
    code: int | None
    name: str
    severity: str
    action: str
    pci_bus_id: str | None
    gpu: int | None
    uuid: str | None
    count: int
    first: str | None
    last: str | None
    process_names: list[str]


@dataclass(frozen=True)
class Verdict:
    """What to do about a device: the most severe action of its events.

    kind: "gpu" or "nvswitch". codes: its codes, the most severe first. last: time of its last event.
    """

    kind: str
    pci_bus_id: str | None
    gpu: int | None
    uuid: str | None
    severity: str
    action: str
    codes: list[int]
    count: int
    last: str | None
    message: str


@dataclass(frozen=True)
class XidFacts:
    """events: the newest of them, in the logs' order; events_total counts all. groups and verdicts speak of all.

    catalogue: NVIDIA's documents, with their version, that the meanings are from.
    """

    source: str
    path: str | None
    since: str | None
    catalogue: str
    events: list[XidEvent]
    events_total: int
    groups: list[Group]
    gpus: list[Verdict]
    switches: list[Verdict]


@dataclass(frozen=True)
class Request:
    """What to read.

    since: as the user gave it. limit: the most events to hand out, 0 for all. fabric_manager_log: read besides the
    kernel log where it exists, None for not at all.
    """

    source: str = JOURNAL
    path: str | None = None
    since: str | None = None
    limit: int = 1000
    fabric_manager_log: str | None = None
    root: str = "/"
    timeout: float = 60


def collect(run: RunCommand, request: Request, now: datetime) -> XidFacts:
    """Read the log; raise XidError where it can't be read."""
    begin = _since(request.since, now)
    clock = Clock(now, _boot(request.root) if request.source == DMESG else None)
    log = parse_kernel_log(_lines(run, request, begin), clock)
    events = list(log.events)
    if request.fabric_manager_log is not None and request.source != FILE:
        # This file outlives a reboot, which mends much; the kernel log is asked for since then.
        written = parse_kernel_log(_tail(request.fabric_manager_log, missing_is_empty=True), clock).events
        events += _since_then(written, begin or _boot(request.root))
    events = _since_then(events, begin)
    _name_gpus(events, log, machine_gpus(request.root))
    groups = _groups(events)
    return XidFacts(
        source=request.source,
        path=request.path,
        since=begin.isoformat() if begin else None,
        catalogue=VERSION,
        events=_newest(events, request.limit),
        events_total=len(events),
        groups=groups,
        gpus=_verdicts(groups, "gpu", (XID,)),
        switches=_verdicts(groups, "nvswitch", (SXID, FABRIC_MANAGER)),
    )


def _newest(events: list[XidEvent], limit: int) -> list[XidEvent]:
    """Return that many, in their order; where a time isn't known the last ones. limit: 0 is all."""
    if not limit or len(events) <= limit:
        return events
    if any(event.time is None for event in events):
        return events[-limit:]
    places = sorted(range(len(events)), key=lambda place: datetime.fromisoformat(events[place].time or ""))
    return [events[place] for place in sorted(places[-limit:])]


def _since_then(events: Iterable[XidEvent], begin: datetime | None) -> list[XidEvent]:
    """Return the events but for those that are known to be older."""
    return [
        event for event in events if begin is None or event.time is None or datetime.fromisoformat(event.time) >= begin
    ]


def _since(words: str | None, now: datetime) -> datetime | None:
    if words is None:
        return None
    ago = _AGO.match(words)
    try:
        if ago:
            return now - timedelta(**{_AGO_UNITS[ago[2]]: int(ago[1])})
        when = datetime.fromisoformat(words.strip().replace("Z", "+00:00"))
        return when if when.tzinfo else when.astimezone()
    except (ValueError, OverflowError, OSError):
        raise XidError(
            f"since: {words!r} is no time; write one like 2026-11-30T08:00:00+01:00, or how long ago: 90m, 24h, 7d"
        ) from None


def _boot(root: str) -> datetime | None:
    """Return when the machine started, by its own clock of now."""
    match = re.search(r"^btime (\d{1,12})$", _whole(os.path.join(root, "proc/stat")), re.MULTILINE)
    return datetime.fromtimestamp(int(match[1]), timezone.utc).astimezone() if match else None


def _whole(path: str) -> str:
    # read_text would cut /proc/stat of a machine with many interrupts.
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4 * 1024 * 1024)
    except OSError:
        return ""


def _lines(run: RunCommand, request: Request, begin: datetime | None) -> list[str]:
    if request.source == FILE:
        if request.path is None:
            raise XidError("path: nothing is given, though source is file; give the log's file")
        return _tail(request.path)
    command = ["dmesg"] if request.source == DMESG else _journal(begin)
    result = run(command, request.timeout)
    boot = _boot(request.root)
    if request.source == JOURNAL and begin is None and boot and not (result.out or result.missing or result.timed_out):
        # A kernel is never silent. In a container the journal's boot bears another ID than the kernel's.
        result = run(_journal(boot), request.timeout)
    if result.missing:
        raise XidError(f"source: {command[0]} can't be run ({result.err}); give source: file and the log's path")
    if result.timed_out:
        raise XidError(f"timeout: {command[0]} gave no answer within {request.timeout:g} seconds; give more")
    if result.rc != 0:
        said = " ".join(result.err.split())[:200] or f"it ended with status {result.rc}"
        raise XidError(
            f"source: {command[0]} can't read the kernel log ({said}); become root, or give source: file and a path"
        )
    return result.out.split("\n")


def _journal(begin: datetime | None) -> list[str]:
    """Return the command. What another user writes under the kernel's name isn't asked for."""
    when = ["--boot"] if begin is None else [f"--since=@{int(begin.timestamp())}"]
    return [
        "journalctl",
        "--no-pager",
        "--quiet",
        "--output=short-iso-precise",
        f"--lines={_MOST_LINES}",
        *when,
        "_TRANSPORT=kernel",
        "+",
        "SYSLOG_IDENTIFIER=kernel",
        "_UID=0",
        "+",
        "_SYSTEMD_UNIT=nvidia-fabricmanager.service",
    ]


def _tail(path: str, missing_is_empty: bool = False) -> list[str]:
    try:
        # Reading from a pipe or /dev/kmsg would never end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise XidError(f"path: {path} is no regular file; give a log file, or write source: dmesg")
        with open(path, "rb") as file:
            content = _end(path, file)
    except FileNotFoundError as error:
        if missing_is_empty:
            return []
        raise XidError(f"path: {path} can't be read ({error.strerror}); give the log's file") from None
    except OSError as error:
        raise XidError(f"path: {path} can't be read ({error.strerror}); give a file that this user may read") from None
    # Control characters other than the line end are no end of a line.
    return content.decode("utf-8", "replace").split("\n")


def _end(path: str, file: BinaryIO) -> bytes:
    """Return the end of a log; one that logrotate compressed is unpacked."""
    begin = file.read(8)
    for magic, why in _NO_LINES.items():
        if begin.startswith(magic):
            raise XidError(f"path: {path} {why}")
    packed = next((module for magic, module in _COMPRESSED.items() if begin.startswith(magic)), None)
    if packed is None:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _MOST_BYTES))
        return file.read(_MOST_BYTES)
    file.seek(0)
    end = b""
    try:
        # Only here: a small Python may lack one of them.
        unpacked = import_module(packed).open(file)
        for block in iter(lambda: unpacked.read(_MOST_BYTES), b""):
            end = (end + block)[-_MOST_BYTES:]
    except Exception as error:  # each module has its own
        raise XidError(f"path: {path} can't be unpacked ({error}); unpack it with {packed}'s command") from None
    return end


def machine_gpus(root: str) -> dict[str, tuple[int, str | None]]:
    """Return index and UUID of the GPUs that the driver holds, by address; nvidia-smi counts in the bus's order."""
    found = {}
    for folder in glob.glob(os.path.join(glob.escape(root), "proc/driver/nvidia/gpus/*")):
        address = pci_bus_id(os.path.basename(folder))
        if address is not None:
            match = _UUID.search(read_text(os.path.join(folder, "information")) or "")
            found[address] = match[1] if match else None
    return {address: (index, found[address]) for index, address in enumerate(sorted(found))}


def _name_gpus(events: Sequence[XidEvent], log: KernelLog, machine: dict[str, tuple[int, str | None]]) -> None:
    for event in events:
        if event.kind != XID or event.pci_bus_id is None:
            continue
        index, uuid = machine.get(event.pci_bus_id, (None, None))
        logged = log.uuids.get(event.pci_bus_id)
        if logged is None or uuid is None or logged == uuid:
            event.gpu, event.uuid = index, logged or uuid
        else:
            event.uuid = logged  # another machine's log, or another board sat there then


@dataclass
class _Growing:
    events: list[XidEvent] = field(default_factory=list)
    count: int = 0


def _groups(events: Iterable[XidEvent]) -> list[Group]:
    growing: dict[tuple[str, int | None, str | None, str | None, str | None], _Growing] = {}
    for event in events:
        words = event.name if event.code is None else None
        group = growing.setdefault((event.kind, event.code, words, event.pci_bus_id, event.uuid), _Growing())
        group.events.append(event)
        group.count += not event.continuation
    return [_group(group) for group in growing.values()]


def _group(group: _Growing) -> Group:
    first = group.events[0]
    times = [event.time for event in group.events if event.time]
    names = dict.fromkeys(event.process_name for event in group.events if event.process_name)
    return Group(
        kind=first.kind,
        code=first.code,
        name=first.name,
        severity=_worst(event.severity for event in group.events),
        action=most_severe([event.action for event in group.events]),
        pci_bus_id=first.pci_bus_id,
        gpu=first.gpu,
        uuid=first.uuid,
        count=group.count,
        first=times[0] if times else None,
        last=times[-1] if times else None,
        process_names=list(names)[:_MOST_PROCESSES],
    )


def _worst(severities: Iterable[str]) -> str:
    return max(severities, key=_SEVERITIES.index, default=INFO)


def _verdicts(groups: Sequence[Group], kind: str, kinds: Sequence[str]) -> list[Verdict]:
    devices: dict[tuple[str | None, str | None], list[Group]] = {}
    for group in groups:
        # An error of the fabric manager as a whole is nobody's in particular.
        if group.kind in kinds and (group.kind != FABRIC_MANAGER or group.pci_bus_id is not None):
            devices.setdefault((group.pci_bus_id, group.uuid), []).append(group)
    return [_verdict(kind, devices[key]) for key in sorted(devices, key=str)]


def _verdict(kind: str, groups: Sequence[Group]) -> Verdict:
    first = groups[0]
    action = most_severe([group.action for group in groups])
    ordered = sorted(groups, key=lambda group: _SEVERITIES.index(group.severity), reverse=True)
    reasons = [
        f"{'Xid' if group.kind == XID else 'SXid'} {group.code} ({group.count})"
        for group in ordered
        if group.action == action
    ]
    last = max((group.last for group in groups if group.last), key=datetime.fromisoformat, default=None)
    return Verdict(
        kind=kind,
        pci_bus_id=first.pci_bus_id,
        gpu=first.gpu,
        uuid=first.uuid,
        severity=_worst(group.severity for group in groups),
        action=action,
        codes=list(dict.fromkeys(group.code for group in ordered if group.code is not None)),
        count=sum(group.count for group in groups),
        last=last,
        message=f"{action}: {', '.join(reasons)}",
    )
