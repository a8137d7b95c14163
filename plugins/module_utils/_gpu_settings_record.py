# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What clocks were locked, since the driver doesn't tell.

The record lies in /run, which a boot empties. It names the load of the kernel module that it speaks of and the modes
that only a reset of the GPU changes: the driver forgets the clocks with both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PATH = "run/trainyard/gpu_settings.json"

# Lowest and highest clock in MHz; empty: not locked.
Clocks = list[int]


@dataclass(frozen=True)
class Entry:
    """Of one GPU: the locked clocks (None: not known) and the modes that were in force when they were locked."""

    graphics: Clocks | None
    memory: Clocks | None
    ecc: bool | None
    mig: bool | None


def read_record(root: str) -> dict[str, Entry]:
    """Return what is known by the GPUs' UUIDs; nothing that was written before the driver was loaded."""
    try:
        with open(os.path.join(root, _PATH), encoding="utf-8") as file:
            content = json.load(file)
        if content["driver"] != _driver_load(root):
            return {}
        return {
            str(uuid): Entry(_clocks(entry["graphics"]), _clocks(entry["memory"]), entry["ecc"], entry["mig"])
            for uuid, entry in content["gpus"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}  # the clocks are then set once more


def write_record(root: str, entries: Mapping[str, Entry]) -> None:
    """Put the record in place in one step. Raises OSError."""
    path = os.path.join(root, _PATH)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    gpus = {uuid: vars(entry) for uuid, entry in sorted(entries.items())}
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump({"driver": _driver_load(root), "gpus": gpus}, file, indent=2)
    os.replace(f"{path}.new", path)


def _driver_load(root: str) -> str:
    """Return what tells one load of the module from the next: sysfs numbers its folders anew each time."""
    try:
        return str(os.stat(os.path.join(root, "sys/module/nvidia")).st_ino)
    except OSError:
        return ""


def _clocks(value: Any) -> Clocks | None:
    return None if value is None else [int(clock) for clock in value]
