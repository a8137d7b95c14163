# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Xids, SXids and errors of the fabric manager in a kernel log or the fabric manager's own log.

An Xid is the driver's numbered report of a GPU fault, an SXid the NVSwitch driver's.
Format: NVIDIA's "Xid Errors" and "Fabric Manager User Guide", the print statements of the open kernel modules, and
captures of drivers 384 to 590; before a message stands whatever dmesg, journalctl, syslog or /dev/kmsg put there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple, Optional

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import pci_bus_id, without_escapes
from ansible_collections.trainyard.cluster.plugins.module_utils._xid_catalogue import (
    Meaning,
    of_fabric_manager,
    of_sxid,
    of_xid,
)

XID = "xid"
SXID = "sxid"
FABRIC_MANAGER = "fabric_manager"
# The Xid of a GPU that the driver can't reach any more.
LOST = 79

# A look for plain words is many times faster than a pattern, and most lines of a log hold none of these.
_EVENT_WORD = "Xid"
# Up to driver 173 there is no address. The text begins with the process, in quotation marks if it isn't known.
_EVENT = re.compile(
    r"Xid(?: \((?:PCI:)?\s*([0-9A-Fa-f:.]*)([^)]*)\)\s*|(?<=NVRM: Xid)):\s*(\d{1,6})\b[,:]?\s*"
    r"((?:pid=\s*'?(?:(\d{1,10})(?!\d))?[^,]*(?:,\s*|$))?(?:name=([^,]*(?:,[^,\s][^,]*)*))?(.*))",
    re.ASCII,
)
_NO_NAME = frozenset({None, "", "<unknown>", "'<unknown>'"})
_LOST_WORDS = "fallen off the bus"
_LOST = re.compile(r"NVRM: (?P<text>.*fallen off the bus.*)")
_LOST_GPU = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?"
    r"(?P<pci>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)\b"
)
# Lines of the message that says so when a driver is loaded, and how far from an Xid 79 the same may be said again.
_LOST_LINES = 3
_LOST_AGAIN = 20
_SWITCH = re.compile(r"nvidia-nvswitch(\d{1,3}):? S?$")
_INSTANCE = re.compile(r"GPU-(C?)I:(\d{1,3})")
_CHANNEL = re.compile(r"\b(?:Ch(?:I[Dd])?|[Cc]hannel)\s+(?:ID\s+)?(?P<channel>(?:0x)?[0-9A-Fa-f]{1,16})\b")
# Before driver 340 Xid 13 printed bare numbers: channel, class, registers.
_BARE_CHANNEL = re.compile(r"^(?P<channel>[0-9a-f]{4})(?: [0-9a-f]{8}){2}")
# NVLink 5 prints -1 where no single link is meant.
_LINK = re.compile(r"\bLink\s+(\d{1,3})\b", re.IGNORECASE)
_FATALITY = re.compile(r"^(Non-?fatal|Fatal)\b", re.IGNORECASE)
_SWITCH_DETAIL = re.compile(r"^(?:Severity (?P<severity>\d{1,2}) Engine instance (?P<instance>\d{1,3})|Data \{)")
_UUID = re.compile(r"GPU at (?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+): (?P<uuid>GPU-[0-9A-Fa-f-]{8,40})")
_FM_LINE = re.compile(r"\[(?P<level>CRITICAL|FATAL|ERROR)\] \[tid \d+\] (?P<text>.*)")
# The script that starts it passes on what it prints, and then says in quotation marks which command failed.
_FM_SYSLOG = re.compile(r"\b(?:nv-fabricmanager|nvidia-fabricmanager-start\.sh)(?:\[\d+\])?: (?P<text>[^\"].*)")
_FM_ERROR = re.compile(
    r"\b(?:errors?|failed|failure|fatal|invalid value|abort(?:ed|ing)|don't match|doesn't match)\b", re.IGNORECASE
)
_FM_SWITCH = re.compile(
    r"detected NVSwitch (?P<fatal>non-fatal|fatal) error (?P<code>\d{1,6})\b(?:.*?pci bus id (?P<pci>[0-9A-Fa-f:.]+))?"
    r"(?:.*?physical id (?P<number>\d{1,3}))?(?:.*?port (?P<port>\d{1,3}))?",
    re.IGNORECASE,
)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ISO = re.compile(r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2})(?:[.,](\d{1,9}))?\s?(Z|UTC|[+-]\d{2}:?\d{2})?", re.ASCII)
_WORDED = re.compile(
    rf"\b(?P<month>{'|'.join(_MONTHS)})\s+(?P<day>\d{{1,2}})\s+(?:(?P<before>(?:19|20)\d{{2}})\s+)?"
    r"(?P<time>\d{2}:\d{2}:\d{2})(?:\.(?P<fraction>\d{1,9}))?"
    r"(?:(?:\s+(?P<zone>[A-Z]{3,4}))?\s+(?P<after>(?:19|20)\d{2})\b)?",
    re.ASCII,
)
_WEEKDAY = re.compile(rf"\b({'|'.join(_WEEKDAYS)}),?\s+$")
# Behind it may stand who wrote the line, or the time since the line before (dmesg -d).
_MONOTONIC = re.compile(r"\[\s*(\d{1,10}\.\d{1,9})(?:\s+[TC]\d+|\s*<\s*[\d.]+\s*>)?\s*\]")
_KMSG = re.compile(r"^\s*(?:<\d{1,3}>)?\d{1,3},\d+,(\d{1,17}),[^;]*;")
_EPOCH = re.compile(r"^\s*(\d{9,10}\.\d{3,6}) ")
# journalctl, Docker and Kubernetes, and what log shippers make of them.
_JSON_TIMES = ("__REALTIME_TIMESTAMP", "time", "timestamp", "@timestamp", "ts")
# An epoch of ten digits; what is more counts smaller units.
_LAST_SECOND = 9_999_999_999
_JSON_MESSAGES = ("MESSAGE", "log", "message", "msg")
_OLD_ADDRESS = re.compile(r"^00([0-9a-f]{2}):([0-9a-f]{2})$")


# Not frozen: in a storm of Xids a third of the time would go into that.
@dataclass
class XidEvent:
    """A line that reports an error.

    kind: "xid" (GPU), "sxid" (NVSwitch) or "fabric_manager". code: None where the fabric manager names no number.
    name, severity ("critical", "warning", "info"), meaning, action, advice: of the catalogue.
    pci_bus_id: as sysfs names the device; the function is 0 where the log leaves it out. gpu: index, None where this
    isn't known. gpu_instance, compute_instance: of MIG. switch, link: number of the NVSwitch and of the NVLink.
    time: ISO 8601, None where the line bears none. monotonic_seconds: since the boot, where the line bears it.
    continuation: the line only adds details to an event before it, so it isn't counted. line: the whole line.
    """

    kind: str
    code: int | None
    name: str
    severity: str
    meaning: str
    action: str
    advice: str | None
    pci_bus_id: str | None
    time: str | None
    monotonic_seconds: float | None
    text: str
    line: str
    gpu: int | None = None
    uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    switch: int | None = None
    link: int | None = None
    pid: int | None = None
    process_name: str | None = None
    channel: str | None = None
    continuation: bool = False


@dataclass(frozen=True)
class KernelLog:
    """What a log says. uuids: of GPUs by PCI address."""

    events: list[XidEvent]
    uuids: dict[str, str]


@dataclass(frozen=True)
class Clock:
    """How to read times.

    now: to find the year where the log has none. boot: when the machine started, None where the log may be of another
    boot or machine; times since the boot stay None then.
    """

    now: datetime
    boot: datetime | None = None


# Time in ISO 8601, seconds since the boot.
_Stamp = tuple[Optional[str], Optional[float]]
# By PCI address and code the links of the SXids so far and what the last of them means.
_Heads = dict[tuple[Optional[str], int], dict[int, Meaning]]


@dataclass
class _State:
    """What was read so far. lost: by PCI address the number of the newest line that says that the GPU is lost."""

    times: _Times
    heads: _Heads = field(default_factory=dict)
    lost: dict[str | None, int] = field(default_factory=dict)


def parse_kernel_log(lines: Sequence[str], clock: Clock | None = None) -> KernelLog:
    """Read the events in a log, in its order; other lines are passed over. Raises nothing, whatever the lines are."""
    state = _State(_Times(clock or Clock(datetime.now(timezone.utc))))
    events: list[XidEvent] = []
    uuids: dict[str, str] = {}
    for number, line in enumerate(lines):
        found: XidEvent | None = None
        if _EVENT_WORD in line:
            found = _numbered(line, number, state)
        if found is None and _LOST_WORDS in line:
            found = _lost(lines, number, state)
        if found is None and ("[tid " in line or "fabricmanager" in line):
            found = _fabric_manager(line, state.times)
        if found is not None:
            events.append(found)
        elif "GPU at" in line:
            match = _UUID.search(line)
            address = _address(match["pci"]) if match else None
            if match and address:
                uuids[address] = match["uuid"]
    return KernelLog(events, uuids)


@lru_cache(maxsize=256)
def _address(printed: str) -> str | None:
    old = _OLD_ADDRESS.match(printed.lower())
    return pci_bus_id(f"{old[1]}:{old[2]}" if old else printed)


def _numbered(line: str, number: int, state: _State) -> XidEvent | None:
    """Read an Xid or SXid."""
    message = _message(line) if '"' in line or "\x1b" in line else line
    match = _EVENT.search(message)
    if match is None:
        return None
    printed, part, digits, text, pid, name, rest = match.groups()
    address, code = _address(printed) if printed else None, int(digits)
    prefix = message[: match.start()]
    stamp = state.times.of(prefix)
    if prefix.endswith("S"):
        meaning, link, continuation = _sxid(code, text, state.heads.setdefault((address, code), {}))
        event = _event(SXID, code, meaning, address, stamp=stamp, text=text, line=line)
        switch = _SWITCH.search(prefix)
        event.switch = int(switch[1]) if switch else None
        event.link, event.continuation = link, continuation
        return event
    if code == LOST:
        state.lost[address] = number
    meaning, channel, link = _details(code, rest)
    event = _event(XID, code, meaning, address, stamp=stamp, text=text, line=line)
    event.pid = int(pid) if pid else None
    event.process_name = None if name in _NO_NAME else name
    event.channel, event.link = channel, link
    if part:
        instances = {kind: int(instance) for kind, instance in _INSTANCE.findall(part)}
        event.gpu_instance, event.compute_instance = instances.get(""), instances.get("C")
    return event


@lru_cache(maxsize=1024)
def _details(code: int, text: str) -> tuple[Meaning, str | None, int | None]:
    """Return meaning, channel and link. Xids come in storms: a program that dies has one for each channel and GPU."""
    channel = _CHANNEL.search(text) if "Ch" in text or "channel" in text else _BARE_CHANNEL.match(text)
    return of_xid(code, text), channel[1] if channel else None, _link(text)


def _event(
    kind: str, code: int | None, meaning: Meaning, address: str | None, *, stamp: _Stamp, text: str, line: str
) -> XidEvent:
    return XidEvent(
        kind,
        code,
        meaning.name,
        meaning.severity,
        meaning.meaning,
        meaning.action,
        meaning.advice,
        address,
        stamp[0],
        stamp[1],
        text.rstrip(),
        (without_escapes(line) if "\x1b" in line else line).rstrip(),
    )


def _message(line: str) -> str:
    """Return the line without colours and without what a program wrapped it in, JSON or quotation marks."""
    if "\x1b" in line:
        line = without_escapes(line)
    try:
        record = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        record = None
    if record:
        words = {key: value for key, value in record.items() if isinstance(value, str)}
        when = next((_json_time(record[key]) for key in _JSON_TIMES if key in record), "")
        texts = [words[key] for key in _JSON_MESSAGES if key in words]
        message = next((text for text in (*texts, *words.values()) if _EVENT.search(text)), (*texts, line)[0])
        # The kernel's own time is nearer than that of a program that passed the line on.
        return message if _ISO.search(message[:60]) else f"{when} {message}"
    before, driver, message = line.partition("NVRM: ")
    if before.count('"') % 2:
        message = message.partition('"')[0].removesuffix("\\n")
    return before + driver + message


def _json_time(value: object) -> str:
    """Return a time of a JSON record as a log would print it; a number is seconds, or smaller units."""
    try:
        number = float(str(value))
    except ValueError:
        return str(value)
    units = (unit for unit in (1, 1e3, 1e6, 1e9) if number / unit <= _LAST_SECOND)
    return f"{number / next(units, 1):.6f}"


def _sxid(code: int, text: str, earlier: dict[int, Meaning]) -> tuple[Meaning, int | None, bool]:
    """Return meaning, link, and whether the line adds to an earlier one. earlier: their meanings by link, added to."""
    detail = _SWITCH_DETAIL.match(text)
    link = int(detail["instance"]) if detail and detail["instance"] else _link(text)
    # Lines get lost, so the first that is seen of an error may be one that gives details.
    if detail and earlier and (link is None or link in earlier):
        return list(earlier.values())[-1] if link is None else earlier[link], link, True
    meaning = earlier[link or 0] = of_sxid(code, _fatal(text, detail))
    return meaning, link, False


def _lost(lines: Sequence[str], number: int, state: _State) -> XidEvent | None:
    """Read a line that says in words alone that a GPU is lost, which is Xid 79.

    The driver prints it below an Xid 79, where it says nothing new, and without one where the GPU is gone when the
    driver is loaded, or halted for a security fault; before driver 340 always without.
    """
    message = _message(lines[number])
    match = _LOST.search(message)
    if match is None:
        return None
    gpu = _LOST_GPU.search(message)
    prefix = message[: match.start()]
    for earlier in reversed(lines[max(0, number - _LOST_LINES + 1) : number]):
        if gpu is None and "The NVIDIA GPU" in earlier:
            message = _message(earlier)
            gpu = _LOST_GPU.search(message)
            prefix = message[: gpu.start()] if gpu else prefix
    address = _address(gpu["pci"]) if gpu else None
    before = state.lost.get(address)
    state.lost[address] = number
    if before is not None and number - before <= _LOST_AGAIN:
        return None
    meaning = of_xid(LOST, match["text"])
    return _event(XID, LOST, meaning, address, stamp=state.times.of(prefix), text=match["text"], line=lines[number])


def _link(text: str) -> int | None:
    match = _LINK.search(text) if "ink" in text else None
    return int(match[1]) if match else None


def _fatal(text: str, detail: re.Match[str] | None) -> bool | None:
    match = _FATALITY.match(text)
    if match:
        return match[1].lower() == "fatal"
    if detail and detail["severity"]:
        return detail["severity"] != "0"
    return None


def _fabric_manager(line: str, times: _Times) -> XidEvent | None:
    message = _message(line)
    match = _FM_LINE.search(message)
    if match is None:
        match = _FM_SYSLOG.search(message)
        if match is None or not _FM_ERROR.search(match["text"]):
            return None
    text = match["text"]
    switch = _FM_SWITCH.search(text)
    code = int(switch["code"]) if switch else None
    fatal = switch["fatal"].lower() == "fatal" if switch else None
    address = _address(switch["pci"]) if switch and switch["pci"] else None
    stamp = times.of(message[: match.start()])
    meaning = of_fabric_manager(code, fatal, text)
    event = _event(FABRIC_MANAGER, code, meaning, address, stamp=stamp, text=text, line=line)
    event.switch = int(switch["number"]) if switch and switch["number"] else None
    event.link = int(switch["port"]) if switch and switch["port"] else None
    return event


class _Second(NamedTuple):
    """A second as words name it."""

    weekday: str | None
    month: str
    day: str
    time: str
    zone: str | None
    year: str | None


class _Times:
    """Reads what stands before a message. Errors come in bursts, so that answers are kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._prefix: str | None = None
        self._answer: _Stamp = (None, None)
        # By what names a second: what stands before and after its fraction in ISO 8601, nothing if it is no time.
        self._seconds: dict[tuple[str | None, ...], tuple[str, str]] = {}

    def of(self, prefix: str) -> _Stamp:
        """Return the time in ISO 8601 and the seconds since the boot, each None where the prefix doesn't say."""
        if prefix != self._prefix:
            self._prefix = prefix
            monotonic = _monotonic(prefix) if "[" in prefix or ";" in prefix else None
            when = (self._iso(prefix) or self._worded(prefix) or _epoch(prefix)) if ":" in prefix else None
            if when is None and monotonic is not None and self._clock.boot is not None:
                when = (self._clock.boot + timedelta(seconds=monotonic)).isoformat()
            self._answer = when, monotonic
        return self._answer

    def _iso(self, prefix: str) -> str | None:
        match = _ISO.search(prefix)
        if match is None:
            return None
        second, fraction, zone = match.groups()
        halves = self._seconds.get((second, zone))
        if halves is None:
            halves = self._seconds[second, zone] = _halves(_iso_second(second, zone or ""))
        return _with_fraction(halves, fraction)

    def _worded(self, prefix: str) -> str | None:
        match = _WORDED.search(prefix)
        if match is None:
            return None
        weekday = _WEEKDAY.search(prefix[: match.start()]) if match.start() else None
        month, day, before, clock, fraction, zone, after = match.groups()
        second = _Second(weekday[1] if weekday else None, month, day, clock, zone, before or after)
        halves = self._seconds.get(second)
        if halves is None:
            halves = self._seconds[second] = _halves(self._worded_second(second))
        return _with_fraction(halves, fraction)

    def _worded_second(self, second: _Second) -> datetime | None:
        if second.year:
            return _local(int(second.year), second)
        # No year: the newest that isn't in the future and, where a weekday is named, has the day on it. 28 years hold
        # every combination.
        newest = self._clock.now + timedelta(days=1)
        for year in range(newest.year, newest.year - 28, -1):
            when = _local(year, second)
            if when is None or when > newest:
                continue
            if second.weekday is None or when.weekday() == _WEEKDAYS.index(second.weekday):
                return when
        return None


def _monotonic(prefix: str) -> float | None:
    match = _KMSG.match(prefix)
    if match:
        return int(match[1]) / 1e6
    match = _MONOTONIC.search(prefix)
    return float(match[1]) if match else None


def _iso_second(second: str, zone: str) -> datetime | None:
    offset = "+00:00" if zone in {"Z", "UTC"} else zone if ":" in zone or not zone else f"{zone[:3]}:{zone[3:]}"
    try:
        when = datetime.fromisoformat(second + offset)
        return when if zone else when.astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def _local(year: int, named: _Second) -> datetime | None:
    hour, minute, second = (int(part) for part in named.time.split(":"))
    try:
        when = datetime(year, _MONTHS.index(named.month) + 1, int(named.day), hour, minute, second)
        return when.replace(tzinfo=timezone.utc) if named.zone in {"UTC", "GMT"} else when.astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def _halves(when: datetime | None) -> tuple[str, str]:
    written = when.isoformat() if when else ""
    return written[:19], written[19:]


def _with_fraction(halves: tuple[str, str], fraction: str | None) -> str | None:
    before, after = halves
    if not before:
        return None
    return f"{before}.{fraction[:6].ljust(6, '0')}{after}" if fraction and fraction.strip("0") else before + after


def _epoch(prefix: str) -> str | None:
    match = _EPOCH.match(prefix)
    return datetime.fromtimestamp(float(match[1]), timezone.utc).isoformat() if match else None
