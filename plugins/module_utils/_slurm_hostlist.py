# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Host lists in Slurm's syntax: gpu[01-16,20],rack[0-1]node[0-3],login.

Format: the manual pages slurm.conf(5) (NodeName) and scontrol(1) (show hostnames) of Slurm 22.05 and 24.11.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator

# Slurm itself refuses a range of more hosts.
MAX_HOSTS = 65536
_PART = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
_SEPARATOR = re.compile(r"\s*,\s*|\s+")
_TOKEN = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_PLAIN = re.compile(r"[A-Za-z0-9._-]+\Z")
_RUN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?\Z")

# Takes the first number of a range, the last one and the digits that each has at least; gives them in order.
Count = Callable[[int, int, int], Iterable[str]]


class HostlistError(ValueError):
    """The text is no host list; the message is a sentence that says what is wrong with it."""


def count_plainly(first: int, last: int, digits: int) -> Iterable[str]:
    """Count with the standard library, all that a target has."""
    return (f"{number:0{digits}d}" for number in range(first, last + 1))


def expand(hostlist: str, count: Count = count_plainly) -> list[str]:
    """Return the names in the order of the list, doubles included, as `scontrol show hostnames` does.

    Raises HostlistError.
    """
    names: list[str] = []
    for part in _parts(hostlist):
        choices = [_choices(hostlist, count, bracket, plain) for bracket, plain in _TOKEN.findall(part)]
        if len(names) + math.prod(len(some) for some in choices) > MAX_HOSTS:
            raise HostlistError(f"'{_short(hostlist)}' holds more than {MAX_HOSTS} hosts, which Slurm doesn't take.")
        names.extend("".join(words) for words in itertools.product(*choices))
    return names


def _parts(hostlist: str) -> Iterator[str]:
    """Yield what stands between commas or blanks that are in no bracket."""
    text = hostlist.strip()
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise HostlistError(_no_list(hostlist))
        yield match[0]
        position = match.end()
        if position < len(text):
            separator = _SEPARATOR.match(text, position)
            if separator is None or separator.end() == len(text):
                raise HostlistError(_no_list(hostlist))
            position = separator.end()


def _choices(hostlist: str, count: Count, bracket: str, plain: str) -> list[str]:
    """Return what one token stands for: the numbers of a bracket, or the words beside it."""
    if plain:
        if not _PLAIN.match(plain):
            raise HostlistError(_no_list(hostlist))
        return [plain]
    numbers: list[str] = []
    for run in bracket.split(","):
        match = _RUN.match(run)
        if match is None:
            raise HostlistError(
                f"'{_short(hostlist)}' has '[{_short(bracket)}]' in it: write numbers and ranges, as [1-8,12]."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise HostlistError(
                f"'{_short(hostlist)}' counts down from {match[1]} to {match[2]}: write the smaller one first."
            )
        if last - first >= MAX_HOSTS - len(numbers):
            raise HostlistError(f"'{_short(hostlist)}' holds more than {MAX_HOSTS} hosts, which Slurm doesn't take.")
        numbers.extend(count(first, last, len(match[1])))
    return numbers


def _no_list(hostlist: str) -> str:
    return (
        f"'{_short(hostlist)}' is no list of hosts in Slurm's syntax: write names and numbers in brackets, "
        "as gpu[01-16,20],login."
    )


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
