# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Values as Slurm's commands print them: states, GRES, times, sizes.

One rule for all of them: whatever Slurm prints in place of a value that it does not have becomes None.
Sources: the manual pages sinfo(1) (node state codes), scontrol(1) and gres.conf(5) of Slurm 20.11 to 25.11.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass


class SlurmError(ValueError):
    """The text is no output of Slurm that can be read; the message is a sentence."""


_NO_VALUE = frozenset({"", "(null)", "n/a", "n/s", "none", "unknown", "not_set", "none assigned"})
_UNLIMITED = frozenset({"unlimited", "infinite"})
_BASES = frozenset({"IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE", "UNKNOWN"})
# What one letter behind a state means (scontrol before 21.08, and sinfo).
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
# Words that sinfo prints instead of base and flags. Some don't tell the base: a drained node may be idle or down.
_WORDS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "ALLOC": ("ALLOCATED", ()),
    "MIX": ("MIXED", ()),
    "UNK": ("UNKNOWN", ()),
    "ERR": ("ERROR", ()),
    "FUTR": ("FUTURE", ()),
    "DRAINED": (None, ("DRAIN",)),
    "DRAIN": (None, ("DRAIN",)),
    "DRAINING": (None, ("DRAIN",)),
    "DRNG": (None, ("DRAIN",)),
    "FAIL": (None, ("FAIL",)),
    "FAILING": (None, ("FAIL",)),
    "FAILG": (None, ("FAIL",)),
    "COMP": (None, ("COMPLETING",)),
    "COMPLETING": (None, ("COMPLETING",)),
    "MAINT": (None, ("MAINTENANCE",)),
    "RESV": (None, ("RESERVED",)),
    "PLND": (None, ("PLANNED",)),
    "INVAL": (None, ("INVALID_REG",)),
    "INVALID": (None, ("INVALID_REG",)),
    "BLOCK": (None, ("BLOCKED",)),
    "NPC": (None, ("PERFCTRS",)),
    "PERFCTRS": (None, ("PERFCTRS",)),
    "BOOT": (None, ("REBOOT_ISSUED",)),
    "REBOOT": (None, ("REBOOT_REQUESTED",)),
    "POW_UP": (None, ("POWERING_UP",)),
    "POW_DN": (None, ("POWERING_DOWN",)),
    "NO_RESPOND": (None, ("NOT_RESPONDING",)),
    "POWER": (None, ("POWERED_DOWN",)),
    "POWERED_DOWN": (None, ("POWERED_DOWN",)),
}
_GRES = re.compile(r"([A-Za-z_][\w.-]*)((?::[^:(),]+|:\(null\))*)((?:\([^()]*\))*)\Z")
_INDEXES = re.compile(r"\(IDX:([0-9,-]+)\)")
_COUNT = re.compile(r"([0-9]{1,15})([KkMmGgTtPp]?)\Z")
_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTP]?)[cn+]?\Z")
_DURATION = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?\Z")
_TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\Z")


@dataclass(frozen=True)
class State:
    """A node's state.

    base: IDLE, ALLOCATED, MIXED, DOWN, ERROR, FUTURE or UNKNOWN; None where the output does not tell.
    flags: Slurm's long names (DRAIN, NOT_RESPONDING, MAINTENANCE and so on), sorted.
    """

    base: str | None
    flags: list[str]


@dataclass(frozen=True)
class Gres:
    """A generic resource: name ("gpu"), type ("h100", None if it has none), count, and the indexes in use if told."""

    name: str
    type: str | None
    count: int
    indexes: list[int] | None


def text(raw: object) -> str | None:
    """Return the words, or None where Slurm has none."""
    value = str(raw).strip() if isinstance(raw, (str, int, float)) and not isinstance(raw, bool) else ""
    return None if value.casefold() in _NO_VALUE else value


def integer(raw: object) -> int | None:
    """Return a whole number; words in place of it (UNLIMITED, N/A) and none at all are None."""
    match = re.match(r"-?[0-9]{1,18}(?![0-9.])", str(raw).strip()) if isinstance(raw, (str, int)) else None
    return int(match[0]) if match and not isinstance(raw, bool) else None


def number(raw: object) -> float | None:
    """Return a number with or without a fraction."""
    match = re.match(r"[0-9]{1,18}(?:\.[0-9]{1,18})?(?![0-9.])", str(raw).strip())
    return float(match[0]) if match and not isinstance(raw, bool) else None


def is_unlimited(raw: object) -> bool:
    """Say whether the value's place is taken by the word for no limit."""
    return isinstance(raw, str) and raw.strip().casefold() in _UNLIMITED


def boolean(raw: object) -> bool | None:
    """Return what YES, NO, 1 and 0 say."""
    return {"yes": True, "1": True, "true": True, "no": False, "0": False, "false": False}.get(str(raw).strip().lower())


def mebibytes(raw: object) -> int | None:
    """Return a size in MiB, which is the unit where none is given: "187000M", "512G", "126000+"."""
    match = _SIZE.match(str(raw).strip())
    return int(float(match[1]) * _FACTORS[match[2] or "M"] / _FACTORS["M"]) if match else None


def minutes(raw: object) -> int | None:
    """Return a time limit in minutes: "7-00:00:00", "12:00:00", "30:00" (minutes and seconds), "90"."""
    match = _DURATION.match(str(raw).strip())
    if match is None:
        return None
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None:
        return days * 1440 + (first or 0) * 60 + (second or 0)
    if third is not None:
        return (first or 0) * 60 + (second or 0)
    return first


def epoch_seconds(raw: object) -> int | None:
    """Return a time as seconds since 1970; Slurm's commands print the local time of the machine they run on."""
    match = _TIME.match(str(raw).strip())
    if match is None:
        return None
    try:
        year, month, day, hour, minute, second = map(int, match.groups())
        return int(time.mktime((year, month, day, hour, minute, second, 0, 0, -1)))
    except (OverflowError, ValueError):
        return None


def words(raw: object) -> list[str]:
    """Return the parts of a list with commas."""
    value = text(raw)
    return [part.strip() for part in value.split(",") if part.strip()] if value else []


def parse_state(raw: str | Iterable[str]) -> State:
    """Return base and flags of "IDLE+DRAIN", "down*", ["IDLE", "DRAIN"] and the like.

    Raises SlurmError where there is no state in it.
    """
    parts = raw.split("+") if isinstance(raw, str) else [str(part) for part in raw]
    base: str | None = None
    flags: set[str] = set()
    for part in parts:
        word = part.strip().upper()
        while word and word[-1] in _SUFFIXES:
            flags.add(_SUFFIXES[word[-1]])
            word = word[:-1]
        if not word:
            continue
        if not re.match(r"[A-Z][A-Z0-9_]*\Z", word):
            raise SlurmError(f"'{str(part)[:40]}' is no node state that Slurm prints.")
        if word in _BASES:
            base = base or word
        else:
            found, more = _WORDS.get(word, (None, (word,)))
            base = base or found
            flags.update(more)
    if base is None and not flags:
        raise SlurmError("A node's state is empty.")
    return State(base, sorted(flags))


def parse_gres(raw: object) -> list[Gres]:
    """Return the resources of "gpu:h100:8(IDX:0-7),shard:16"; parts that are none are passed over."""
    value = text(raw)
    return [one for part in _outside_parentheses(value or "") for one in [_one_gres(part)] if one]


def _outside_parentheses(value: str) -> list[str]:
    return re.findall(r"(?:[^,()]|\([^()]*\))+", value)


def _one_gres(part: str) -> Gres | None:
    match = _GRES.match(part.strip().removeprefix("gres/").removeprefix("gres:"))
    if match is None:
        return None
    fields = [field for field in match[2].split(":")[1:] if field != "no_consume"]
    counted = _COUNT.match(fields[-1]) if fields else None
    if counted:
        fields.pop()
    kind = text(fields[0]) if fields else None
    listed = _INDEXES.search(match[3])
    indexes = _numbers(listed[1]) if listed else None
    return Gres(
        name=match[1],
        type=kind,
        count=int(counted[1]) * _FACTORS[counted[2].upper()] if counted else len(indexes or [0]),
        indexes=indexes,
    )


def _numbers(runs: str) -> list[int] | None:
    numbers: list[int] = []
    for run in runs.split(","):
        first, _dash, last = run.partition("-")
        if not first.isdigit() or not (last or first).isdigit() or len(run) > 12:
            return None
        if not 0 <= int(last or first) - int(first) < 4096:
            return None
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def count_gres(resources: Iterable[Gres], name: str = "gpu") -> int:
    """Return how many of one kind there are, of all types."""
    return sum(one.count for one in resources if one.name == name)


def parse_tres(raw: object) -> dict[str, str]:
    """Return the parts of "cpu=34,mem=187000M,gres/gpu=8" by name."""
    return dict(part.split("=", 1) for part in words(raw) if "=" in part)


def tres_gpus(raw: object) -> int | None:
    """Return the GPUs in a TRES list; types (gres/gpu:h100) are parts of the sum.

    None where the list has none: unless AccountingStorageTRES names gres/gpu, Slurm leaves GPUs out of it.
    """
    parts = parse_tres(raw)
    total = integer(parts.get("gres/gpu"))
    typed = [integer(value) or 0 for name, value in parts.items() if name.startswith("gres/gpu:")]
    return total if total is not None else (sum(typed) if typed else None)


def asked_gpus(tres: object, per_job: object, per_node: object, node_count: int | None) -> int | None:
    """Return the GPUs that a job asks for: as TRES list, or else as what it wants for itself or on each node."""
    total = tres_gpus(tres)
    if total is None and text(per_job):
        return count_gres(parse_gres(per_job))
    if total is None and text(per_node) and node_count is not None:
        return count_gres(parse_gres(per_node)) * node_count
    return total
