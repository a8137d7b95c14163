# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Xids, SXids and errors of the fabric manager in a kernel log or the fabric manager's own log.

An Xid is the driver's numbered report of a GPU fault, an SXid the NVSwitch driver's.
Format: NVIDIA's "Xid Errors" and "Fabric Manager User Guide", the print statements of the open kernel modules, and
captures of drivers 384 to 590; before a message stands whatever dmesg, journalctl, syslog or /dev/kmsg put there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Optional

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

# A look for plain words is many times faster than a pattern, and most lines of a log hold none of these.
_EVENT_WORDS = "Xid ("
_EVENT = re.compile(
    r"Xid \((?:PCI:)?\s*(?P<pci>[0-9A-Fa-f:.]*)(?P<part>[^)]*)\)\s*:\s*(?P<code>\d{1,6})\b[,:]?\s*(?P<text>.*)"
)
_SWITCH = re.compile(r"nvidia-nvswitch(\d{1,3}): S?$")
_INSTANCE = re.compile(r"GPU-(C?)I:(\d{1,3})")
_PROCESS = re.compile(r"pid=\s*'?(?P<pid>[^',\s]*)'?(?:,\s*name=(?P<name>.*?))?(?:,\s|,?$)")
_CHANNEL = re.compile(r"\b(?:Ch|[Cc]hannel)\s+(?:ID\s+)?(?P<channel>(?:0x)?[0-9A-Fa-f]{1,16})\b")
# Before driver 340 Xid 13 printed bare numbers: channel, class, registers.
_BARE_CHANNEL = re.compile(r"^(?P<channel>[0-9a-f]{4})(?: [0-9a-f]{8}){2}")
# NVLink 5 prints -1 where no single link is meant.
_LINK = re.compile(r"\bLink\s+(\d{1,3})\b", re.IGNORECASE)
_FATALITY = re.compile(r"^(Non-?fatal|Fatal)\b", re.IGNORECASE)
_SWITCH_DETAIL = re.compile(r"^(?:Severity (?P<severity>\d{1,2}) Engine instance (?P<instance>\d{1,3})|Data \{)")
_UUID = re.compile(r"GPU at (?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+): (?P<uuid>GPU-[0-9A-Fa-f-]{8,40})")
_FM_LINE = re.compile(r"\[(?P<level>CRITICAL|FATAL|ERROR)\] \[tid \d+\] (?P<text>.*)")
_FM_SYSLOG = re.compile(r"\bnv-fabricmanager(?:\[\d+\])?: (?P<text>.*)")
_FM_ERROR = re.compile(r"\b(?:errors?|failed|failure|fatal|don't match|doesn't match)\b", re.IGNORECASE)
_FM_SWITCH = re.compile(
    r"detected NVSwitch (?P<fatal>non-fatal|fatal) error (?P<code>\d{1,6})\b(?:.*?pci bus id (?P<pci>[0-9A-Fa-f:.]+))?"
    r"(?:.*?physical id (?P<number>\d{1,3}))?(?:.*?port (?P<port>\d{1,3}))?",
    re.IGNORECASE,
)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ISO = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[T ](?P<time>\d{2}:\d{2}:\d{2})(?:[.,](?P<fraction>\d{1,9}))?"
    r"\s?(?P<zone>Z|UTC|[+-]\d{2}:?\d{2})?"
)
_WORDED = re.compile(
    rf"(?:\b(?P<weekday>{'|'.join(_WEEKDAYS)}),? )?\s*\b(?P<month>{'|'.join(_MONTHS)})\s+(?P<day>\d{{1,2}})\s+"
    r"(?:(?P<before>(?:19|20)\d{2})\s+)?(?P<time>\d{2}:\d{2}:\d{2})(?:\.(?P<fraction>\d{1,9}))?"
    r"(?:(?:\s+(?P<zone>[A-Z]{3,4}))?\s+(?P<after>(?:19|20)\d{2})\b)?"
)
_MONOTONIC = re.compile(r"\[\s*(\d{1,10}\.\d{1,9})(?:\s+[TC]\d+)?\]")
_KMSG = re.compile(r"^\s*(?:<\d{1,3}>)?\d{1,3},\d+,(\d{1,17}),[^;]*;")
_EPOCH = re.compile(r"^\s*(\d{9,10}\.\d{3,6}) ")
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
    gpu: int | None
    uuid: str | None
    gpu_instance: int | None
    compute_instance: int | None
    switch: int | None
    link: int | None
    time: str | None
    monotonic_seconds: float | None
    pid: int | None
    process_name: str | None
    channel: str | None
    text: str
    continuation: bool
    line: str


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


# By PCI address and code the links of the SXids so far and what the last of them means.
_Heads = dict[tuple[Optional[str], int], dict[int, Meaning]]


def parse_kernel_log(lines: Iterable[str], clock: Clock | None = None) -> KernelLog:
    """Read the events in a log, in its order; other lines are passed over. Raises nothing, whatever the lines are."""
    times = _Times(clock or Clock(datetime.now(timezone.utc)))
    events: list[XidEvent] = []
    uuids: dict[str, str] = {}
    heads: _Heads = {}
    for line in lines:
        start = line.find(_EVENT_WORDS)
        while start >= 0:
            match = _EVENT.match(line, start)
            if match:
                events.append(_event(match, line, times, heads))
                break
            start = line.find(_EVENT_WORDS, start + 1)
        if "GPU at" in line:
            match = _UUID.search(line)
            address = _address(match["pci"]) if match else None
            if match and address:
                uuids[address] = match["uuid"]
        elif "[tid " in line or "nv-fabricmanager" in line:
            found = _fabric_manager(line, times)
            if found:
                events.append(found)
    return KernelLog(events, uuids)


@lru_cache(maxsize=256)
def _address(printed: str) -> str | None:
    old = _OLD_ADDRESS.match(printed.lower())
    return pci_bus_id(f"{old[1]}:{old[2]}" if old else printed)


def _event(match: re.Match[str], line: str, times: _Times, heads: _Heads) -> XidEvent:
    code, text = int(match["code"]), match["text"].strip()
    address = _address(match["pci"])
    prefix = line[: match.start()]
    stamp = times.of(prefix)
    if prefix.endswith("S"):
        switch = _SWITCH.search(prefix)
        detail = _SWITCH_DETAIL.match(text)
        earlier = heads.setdefault((address, code), {})
        instance = int(detail["instance"]) if detail and detail["instance"] else None
        # Lines get lost, so the first that is seen of an error may be one that gives details.
        continuation = bool(detail and earlier and (instance is None or instance in earlier))
        if continuation:
            meaning = list(earlier.values())[-1] if instance is None else earlier[instance]
        else:
            meaning = of_sxid(code, _fatal(text, detail))
            earlier[instance if instance is not None else _link(text) or 0] = meaning
        return _made(
            SXID,
            code,
            meaning,
            stamp=stamp,
            text=text,
            line=line,
            address=address,
            switch=int(switch[1]) if switch else None,
            link=instance if instance is not None else _link(text),
            continuation=continuation,
        )
    process = _PROCESS.match(text) if text.startswith("pid") else None
    channel = _CHANNEL.search(text) if "Ch" in text or "channel" in text else _BARE_CHANNEL.match(text)
    instances = {kind: int(number) for kind, number in _INSTANCE.findall(match["part"])} if match["part"] else {}
    pid = process["pid"] if process else None
    name = process["name"] if process else None
    return _made(
        XID,
        code,
        of_xid(code, text),
        stamp=stamp,
        text=text,
        line=line,
        address=address,
        link=_link(text),
        pid=int(pid) if pid and pid.isascii() and pid.isdigit() and len(pid) < 11 else None,
        process_name=None if name in {None, "", "<unknown>", "'<unknown>'"} else name,
        channel=channel["channel"] if channel else None,
        gpu_instance=instances.get(""),
        compute_instance=instances.get("C"),
    )


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
    match = _FM_LINE.search(line)
    if match is None:
        match = _FM_SYSLOG.search(line)
        if match is None or not _FM_ERROR.search(match["text"]):
            return None
    text = match["text"].strip()
    switch = _FM_SWITCH.search(text)
    code = int(switch["code"]) if switch else None
    fatal = switch["fatal"].lower() == "fatal" if switch else None
    return _made(
        FABRIC_MANAGER,
        code,
        of_fabric_manager(code, fatal, text),
        stamp=times.of(line[: match.start()]),
        text=text,
        line=line,
        address=_address(switch["pci"]) if switch and switch["pci"] else None,
        switch=int(switch["number"]) if switch and switch["number"] else None,
        link=int(switch["port"]) if switch and switch["port"] else None,
    )


def _made(
    kind: str,
    code: int | None,
    meaning: Meaning,
    *,
    stamp: tuple[str | None, float | None],
    text: str,
    line: str,
    address: str | None = None,
    switch: int | None = None,
    link: int | None = None,
    pid: int | None = None,
    process_name: str | None = None,
    channel: str | None = None,
    gpu_instance: int | None = None,
    compute_instance: int | None = None,
    continuation: bool = False,
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
        None,
        None,
        gpu_instance,
        compute_instance,
        switch,
        link,
        stamp[0],
        stamp[1],
        pid,
        process_name,
        channel,
        text,
        continuation,
        (without_escapes(line) if "\x1b" in line else line).rstrip(),
    )


class _Times:
    """Reads what stands before a message. Errors come in bursts, so the last answer is kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._prefix: str | None = None
        self._answer: tuple[str | None, float | None] = (None, None)

    def of(self, prefix: str) -> tuple[str | None, float | None]:
        """Return the time in ISO 8601 and the seconds since the boot, each None where the prefix doesn't say."""
        if prefix != self._prefix:
            self._prefix = prefix
            self._answer = self._read(prefix)
        return self._answer

    def _read(self, prefix: str) -> tuple[str | None, float | None]:
        monotonic = self._monotonic(prefix)
        when = _iso(prefix) or self._worded(prefix) or _epoch(prefix)
        if when is None and monotonic is not None and self._clock.boot is not None:
            when = self._clock.boot + timedelta(seconds=monotonic)
        return (None if when is None else when.isoformat()), monotonic

    @staticmethod
    def _monotonic(prefix: str) -> float | None:
        match = _KMSG.match(prefix)
        if match:
            return int(match[1]) / 1e6
        match = _MONOTONIC.search(prefix)
        return float(match[1]) if match else None

    def _worded(self, prefix: str) -> datetime | None:
        match = _WORDED.search(prefix)
        if match is None:
            return None
        year = match["before"] or match["after"]
        if year:
            return _local(int(year), match)
        # No year: the newest that isn't in the future and, where a weekday is named, has the day on it. 28 years hold
        # every combination.
        newest = self._clock.now + timedelta(days=1)
        for candidate in range(newest.year, newest.year - 28, -1):
            when = _local(candidate, match)
            if when is None or when > newest:
                continue
            if match["weekday"] is None or when.weekday() == _WEEKDAYS.index(match["weekday"]):
                return when
        return None


def _iso(prefix: str) -> datetime | None:
    match = _ISO.search(prefix)
    if match is None:
        return None
    zone = match["zone"] or ""
    zone = "+00:00" if zone in {"Z", "UTC"} else zone if ":" in zone or not zone else f"{zone[:3]}:{zone[3:]}"
    fraction = f".{match['fraction']:0<6}"[:7] if match["fraction"] else ""
    try:
        when = datetime.fromisoformat(f"{match['date']}T{match['time']}{fraction}{zone}")
        return when if zone else when.astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def _local(year: int, match: re.Match[str]) -> datetime | None:
    hour, minute, second = (int(part) for part in match["time"].split(":"))
    month = _MONTHS.index(match["month"]) + 1
    micro = int(f"{match['fraction']:0<6}"[:6]) if match["fraction"] else 0
    try:
        when = datetime(year, month, int(match["day"]), hour, minute, second, micro)
        return when.replace(tzinfo=timezone.utc) if match["zone"] in {"UTC", "GMT"} else when.astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def _epoch(prefix: str) -> datetime | None:
    match = _EPOCH.match(prefix)
    return datetime.fromtimestamp(float(match[1]), timezone.utc) if match else None
