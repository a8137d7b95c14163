# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Values as nvidia-smi prints them.

One rule for all of them: whatever the driver prints in place of a value it does not have becomes None.
Source: nvidia-smi's manual page and captures of drivers 384 to 610.
"""

from __future__ import annotations

import re

# In lower case, without the square brackets that some releases put round them.
_NO_VALUE = frozenset(
    {
        "",
        "-",
        "n/a",
        "na",
        "nan",
        "err!",
        "error",
        "unknown",
        "unknown error",
        "not found",
        "function not found",
        "not supported",
        "not available",
        "not applicable",
        "not ready",
        "no permission",
        "insufficient permission",
        "insufficient permissions",
        "requested functionality has been deprecated",
        "deprecated",
        "timeout",
        "uninitialized",
        "invalid argument",
        "gpu is lost",
        "gpu requires reset",
        "gpu requires restart",
        "reset required",
    }
)
_LOST = frozenset({"gpu is lost"})
_NEEDS_RESET = frozenset({"gpu requires reset", "gpu requires restart", "reset required"})
_FAILED = frozenset({"err!", "unknown error"})
_NUMBER = re.compile(r"([-+]?[0-9]{1,18}(?:\.[0-9]{1,18})?)(?![0-9])\s*([A-Za-z%/]*)")
_MIB = {"": 1.0, "b": 1 / 1048576, "kb": 1 / 1024, "kib": 1 / 1024, "mb": 1.0, "mib": 1.0, "gb": 1024.0, "gib": 1024.0}
_PCI = re.compile(r"^(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?$")
# ECMA-48: topo -m underlines its head line, even into a pipe.
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def _plain(raw: str | None) -> str:
    value = " ".join((raw or "").split())
    if value[:1] == "[" and value[-1:] == "]" and value[1:-1].strip().casefold() in _NO_VALUE:
        return value[1:-1].strip()
    return value


def text(raw: str | None) -> str | None:
    """Return the words, or None where the driver has none."""
    value = _plain(raw)
    return None if value.casefold().rstrip(".") in _NO_VALUE else value


def version(raw: str | None) -> str | None:
    """Return a version without what drivers from 610 on say behind it ("610.62 [Deprecated; ...]")."""
    return text(_plain(raw).partition(" [")[0])


def number(raw: str | None) -> float | None:
    """Return the number in front of a unit: "67.03 W" is 67.03, "N/A" is None."""
    match = _NUMBER.match(_plain(raw))
    return float(match[1]) if match else None


def integer(raw: str | None) -> int | None:
    """Return the whole number in front of a unit: "16x" is 16, "-7 C" is -7, "N/A" is None."""
    value = number(raw)
    return None if value is None else int(value)


def mebibytes(raw: str | None) -> int | None:
    """Return a size in MiB. Drivers before 331 print MB and mean MiB."""
    match = _NUMBER.match(_plain(raw))
    if match is None or match[2].casefold() not in _MIB:
        return None
    return int(float(match[1]) * _MIB[match[2].casefold()])


def boolean(raw: str | None) -> bool | None:
    """Return what Yes, No, Active, Not Active, Enabled, Disabled and their like say."""
    value = _plain(raw).casefold()
    if value in {"yes", "active", "enabled", "on", "true", "1"}:
        return True
    if value in {"no", "not active", "disabled", "off", "false", "0"}:
        return False
    return None


def pci_bus_id(raw: str | None) -> str | None:
    """Return the address as /sys/bus/pci/devices names it: domain (4 digits or more), bus, device, function."""
    match = _PCI.match(_plain(raw).lower())
    if match is None:
        return None
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def is_lost(raw: str | None) -> bool:
    """Say whether the value's place is taken by the report that the GPU is gone from the bus."""
    return _plain(raw).casefold() in _LOST


def needs_reset(raw: str | None) -> bool:
    """Say whether the value's place is taken by the report that the GPU must be reset."""
    return _plain(raw).casefold() in _NEEDS_RESET


def is_failure(raw: str | None) -> bool:
    """Say whether the driver tried to read the value and failed, as opposed to having none."""
    return _plain(raw).casefold() in _FAILED


def without_escapes(output: str) -> str:
    """Return the text without terminal escape sequences."""
    return _ESCAPE.sub("", output)
