# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""How a GPU is divided by MIG, and whether a wanted division fits.

Formats: the tables of `nvidia-smi mig -lgip`, `-lgipp`, `-lgi` and `-lci`, as the MIG user guide and public captures of
drivers 450 to 590 show them. Column widths and the last columns vary; the order of the first ones doesn't.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

PROFILE_NAME = re.compile(r"[0-9]{1,2}g\.[0-9]{1,4}gb(?:[+-][a-z0-9.]+)*\Z")

_ROW = r"^\|+\s*(?P<gpu>[0-9]{1,9})\s+"
# |   0  MIG 3g.40gb          9     2/2        39.50      No     60     3     0   |
_PROFILE_ROW = re.compile(
    _ROW + r"MIG\s+(?P<name>[0-9]{1,2}g\.[0-9]{1,4}gb\S*)\s+(?P<id>[0-9]{1,9})\s+[0-9]+/(?P<total>[0-9]{1,9})\s",
    re.MULTILINE,
)
# GPU  0 Profile ID 14 Placements: {0,2,4}:2
_PLACEMENTS_ROW = re.compile(
    r"^GPU\s+(?P<gpu>[0-9]{1,9})\s+Profile ID\s+(?P<id>[0-9]{1,9})\s+"
    r"Placements?\s*:\s*\{(?P<starts>[0-9,\s]*)\}:(?P<size>[0-9]{1,9})",
    re.MULTILINE,
)
# |   0  MIG 3g.40gb          9        1          4:4     |
_INSTANCE_ROW = re.compile(_ROW + r"MIG\s+(?P<name>\S+)\s+[0-9]+\s+(?P<id>[0-9]{1,9})\s+[0-9]+:[0-9]+\s", re.MULTILINE)
# |   0      1       MIG 3g.40gb          2         0          0:3     |
_COMPUTE_ROW = re.compile(
    _ROW + r"(?P<instance>[0-9]{1,9})\s+MIG\s+(?P<name>\S+)\s+[0-9]+\s+(?P<id>[0-9]{1,9})\s", re.MULTILINE
)
# A compute instance that doesn't fill its GPU instance says so in front of the name: 1c.3g.40gb.
_PARTIAL = re.compile(r"[0-9]+c\.")


@dataclass(frozen=True)
class Profile:
    """A kind of GPU instance that a card offers. total: how many of it at most. starts: memory slices to begin at."""

    name: str
    total: int
    starts: list[int]
    size: int | None


@dataclass(frozen=True)
class Instance:
    """A GPU instance that exists, and the names of the compute instances in it."""

    id: int
    name: str
    compute: list[str]

    @property
    def label(self) -> str:
        """Return the profile's name, with a remark unless its default compute instance is all it holds."""
        if len(self.compute) == 1 and not _PARTIAL.match(self.compute[0]):
            return self.name
        return f"{self.name} ({', '.join(self.compute) or 'no compute instance'})"


def plain_name(name: str) -> str:
    """Return a profile's name as the driver writes it, without the word MIG."""
    return name.strip().lower().removeprefix("mig ").strip()


def parse_profiles(profiles: str, placements: str) -> dict[int, list[Profile]]:
    """Return what the GPUs offer, by index, from `mig -lgip` and `mig -lgipp`."""
    places: dict[tuple[str, str], tuple[list[int], int]] = {}
    for match in _PLACEMENTS_ROW.finditer(placements):
        starts = [int(start) for start in re.findall(r"[0-9]{1,9}", match["starts"])]
        places[match["gpu"], match["id"]] = starts, int(match["size"])
    offered: dict[int, list[Profile]] = {}
    for match in _PROFILE_ROW.finditer(profiles):
        starts, size = places.get((match["gpu"], match["id"]), ([], None))
        offered.setdefault(int(match["gpu"]), []).append(
            Profile(plain_name(match["name"]), int(match["total"]), starts, size)
        )
    return offered


def parse_instances(instances: str, compute: str) -> dict[int, list[Instance]]:
    """Return the GPU instances of the GPUs, by index, from `mig -lgi` and `mig -lci`."""
    inside: dict[tuple[str, str], list[str]] = {}
    for match in _COMPUTE_ROW.finditer(compute):
        inside.setdefault((match["gpu"], match["instance"]), []).append(plain_name(match["name"]))
    found: dict[int, list[Instance]] = {}
    for match in _INSTANCE_ROW.finditer(instances):
        held = inside.get((match["gpu"], match["id"]), [])
        found.setdefault(int(match["gpu"]), []).append(Instance(int(match["id"]), plain_name(match["name"]), held))
    return found


def ordered(layout: Sequence[str], offered: Sequence[Profile]) -> list[str]:
    """Return the profiles in the order to create them: the driver places large ones well while there is room."""
    sizes = {profile.name: profile.size or 0 for profile in offered}
    return sorted(layout, key=lambda name: (-sizes.get(name, 0), -_slices(name), name))


def find_layout_fault(layout: Sequence[str], offered: Sequence[Profile]) -> str:
    """Return why the card can't be divided so, beginning with its options; empty if it can."""
    known = {profile.name: profile for profile in offered}
    unknown = sorted({name for name in layout if name not in known})
    if unknown:
        verb = "is" if len(unknown) == 1 else "are"
        return f"{' and '.join(unknown)} {verb} not among its profiles; it offers {', '.join(known)}"
    for name, count in Counter(layout).items():
        if count > known[name].total:
            return f"it takes {known[name].total} of {name} at most, {count} are wanted"
    slices, most = sum(map(_slices, layout)), max((_slices(name) for name in known), default=0)
    if slices > most:
        return f"it has {most} compute slices, and the layout needs {slices}"
    if all(known[name].size for name in layout) and not _fits(
        [known[name] for name in ordered(layout, offered)], set()
    ):
        return "its memory slices don't hold them all at once; nvidia-smi mig -lgipp shows where each profile may lie"
    return ""


def find_unlisted_fault(layout: Sequence[str], memory_mib: int | None) -> str:
    """Return why no card of this memory can be divided so.

    For drivers that list a card's profiles in MIG mode only: all that can be said before it is on.
    """
    slices = sum(map(_slices, layout))
    if slices > 7:
        return f"no card has more than 7 compute slices, and the layout needs {slices}"
    needed = sum(int(name.partition(".")[2].partition("gb")[0]) for name in layout)
    # Names round: 7 instances of 1g.18gb share 141 GB.
    if memory_mib is not None and needed > memory_mib / 1024 * 1.15 + 1:
        return f"it has {memory_mib} MiB of memory, and the layout needs {needed} GB"
    return ""


def _slices(name: str) -> int:
    return int(name.partition("g")[0])


def _fits(profiles: Sequence[Profile], taken: set[int]) -> bool:
    if not profiles:
        return True
    first, rest = profiles[0], profiles[1:]
    for start in first.starts:
        place = set(range(start, start + (first.size or 0)))
        if not place & taken and _fits(rest, taken | place):
            return True
    return False
