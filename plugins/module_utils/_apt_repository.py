# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Why apt can't use a package repository, in words that say what to look at.

The lines are those of `LC_ALL=C apt-get update` and of apt-helper, from apt 2.4 (gpgv) to apt 3.0 (sqv).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# The kind of a fault, and the line that tells it; most telling first, since apt prints several lines for one fault.
_SIGNS = (
    (
        "conflict",
        r"Conflicting values set for option (?P<option>\S+) regarding source (?P<source>\S+ [^\s:]+)"
        r"(?:: (?P<values>.*))?",
    ),
    ("locked", r"Could not (?:get lock|open lock file) .*|Unable to lock .*"),
    ("key", r"Missing key (?P<key>[0-9A-F]{16,64})|NO_PUBKEY (?P<short>[0-9A-F]{16})"),
    (
        "signature",
        r"(?:OpenPGP signature verification failed|GPG error): .*?\bInRelease: (?P<words>.*)"
        r"|(?P<invalid>At least one invalid signature.*)",
    ),
    ("component", r"repository '[^']*' doesn't have the component '(?P<component>[^']*)'"),
    ("expired", r"Release file for .* (?:is expired|is not valid yet).*"),
    ("unreachable", r"Failed to fetch \S+  (?P<answer>.*)"),
    ("missing", r"The repository '[^']*' does not have a Release file"),
    ("other", r"^(?:E|W|Err): ?(?P<line>.*)"),
)


def fault_kind(output: str) -> tuple[str, str]:
    """Return what kind of fault apt met, and the sentence's part that tells it; both empty where it met none."""
    for kind, pattern in _SIGNS:
        match = re.search(pattern, output, re.MULTILINE)
        if match:
            return kind, _phrase(kind, match)
    return "", ""


def _phrase(kind: str, match: re.Match[str]) -> str:
    if kind == "conflict":
        values = f" ({_clean(match['values'])})" if match["values"] else ""
        return f"another source of the machine names {match['source']} with another {match['option']}{values}"
    if kind == "key":
        return f"it is signed with another key ({match['key'] or match['short']}) than the pinned one"
    if kind == "signature":
        return f"its signature does not hold ({_clean(match['words'] or match['invalid'])})"
    if kind == "component":
        return f"it has no component {match['component']}"
    if kind == "missing":
        return "no package lists are there (404 Not Found)"
    if kind == "unreachable":
        return f"it can't be fetched ({_clean(match['answer'])})"
    return _clean(match[0].removeprefix("E: ").removeprefix("W: "))


def _clean(words: str) -> str:
    return re.sub(r"\s+", " ", words).strip(" .")


def missing_packages(message: str, wanted: Iterable[str]) -> list[str]:
    """Return the packages that apt doesn't find, as they were asked for, from what the apt module said.

    message: `No package matching 'x' is available`, `no available installation candidate for x=1.0`,
    `Unable to locate package x` or `Version '1.0' for 'x' was not found`.
    """
    known = list(wanted)
    found = []
    for pattern in (
        r"No package matching '([^']+)'",
        r"no available installation candidate for (\S+)",
        r"Unable to locate package (\S+)",
        r"Package '?([^' ]+)'? has no installation candidate",
        r"Version '[^']+' for '([^']+)' was not found",
    ):
        found += re.findall(pattern, message)
    names = [name.rstrip(".") for name in found]
    asked = [package for package in known if package in names or package.partition("=")[0] in names]
    return asked or list(dict.fromkeys(names))
