# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What `nvidia-smi nvlink -s` (state and speed) and `nvlink -e` (error counters) print.

Format: captures of drivers 470 to 590, and public reports of NVLink 5 on drivers 570 to 595.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_GPU = re.compile(r"^GPU (\d{1,4}): ")
_LINK = re.compile(r"^\s*Link (\d{1,3}): (.+?)\s*$")
# Blackwell may say more behind it (a sleeping link).
_SPEED = re.compile(r"^([0-9]{1,6}(?:\.[0-9]{1,6})?) GB/s(?=$|[\s,;(])")
_COUNTER = re.compile(r"^(.+?): ([0-9]{1,18})$")
# The first three up to NVLink 4, the others from NVLink 5 (Blackwell) on, which counts recoveries under another name.
_COUNTERS = {
    "replay errors": "replay",
    "crc errors": "crc",
    "recovery errors": "recovery",
    "total link recovery events": "recovery",
    "link recovery failed events": "recovery_failed",
    "effective errors": "effective",
}
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)


@dataclass(frozen=True)
class LinkState:
    """A link: its speed in GB/s in one direction, None while inactive."""

    link: int
    speed: float | None


@dataclass(frozen=True)
class GpuLinks:
    """The links of a GPU. all_inactive: the driver names none because none is active."""

    gpu: int
    all_inactive: bool
    links: list[LinkState]


def parse_status(output: str) -> list[GpuLinks]:
    """Read `nvlink -s`; GPUs without NVLink are left out."""
    result: list[GpuLinks] = []
    gpu: int | None = None
    links: list[LinkState] = []
    inactive = False

    def finish() -> None:
        if gpu is not None and (links or inactive):
            result.append(GpuLinks(gpu, inactive and not links, list(links)))

    for line in output.splitlines():
        match = _GPU.match(line)
        if match:
            finish()
            gpu, links, inactive = int(match[1]), [], False
            continue
        match = _LINK.match(line)
        speed = _SPEED.match(match[2]) if match else None
        if match and (speed or "inactive" in match[2].lower()):
            links.append(LinkState(int(match[1]), float(speed[1]) if speed else None))
        elif _ALL_INACTIVE.search(line):
            inactive = True
    finish()
    return result


def parse_errors(output: str) -> dict[tuple[int, int], dict[str, int]]:
    """Read `nvlink -e`: (GPU, link) to the counters "replay", "crc", "recovery", "recovery_failed" and "effective"."""
    counters: dict[tuple[int, int], dict[str, int]] = {}
    gpu: int | None = None
    for line in output.splitlines():
        match = _GPU.match(line)
        if match:
            gpu = int(match[1])
            continue
        match = _LINK.match(line)
        counter = _COUNTER.match(match[2]) if match else None
        name = _COUNTERS.get(counter[1].lower()) if counter else None
        if match and counter and name and gpu is not None:
            counters.setdefault((gpu, int(match[1])), {})[name] = int(counter[2])
    return counters
