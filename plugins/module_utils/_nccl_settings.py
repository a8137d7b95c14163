# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""The variables that NCCL gets, and from where.

As NCCL's source (src/misc/param.cc) has it, the name is everything before the first =, blanks included, and a variable
that is set already stays: the environment outranks the files and, in a file, the first line of a name counts. The
user's own file (the one that NCCL_CONF_FILE names, else ~/.nccl.conf) is read before /etc/nccl.conf.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import read_text
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_problems import WARNING
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_names import (
    BUILD,
    DEPRECATED,
    KNOWN,
    PLUGIN_PREFIXES,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_problem import NcclProblem

_ASSIGNMENT = re.compile(r"""^\s*(?:export\s+)?(NCCL_[A-Za-z0-9_]*)=("[^"]*"|'[^']*'|[^\s#]*)\s*(?:#.*)?$""")


@dataclass(frozen=True)
class Setting:
    """A variable. source: "environment" or the file. effective: False where another source outranks this one."""

    name: str
    value: str
    source: str
    effective: bool


def read_settings(
    configuration: str, environment: Mapping[str, str], environment_files: Sequence[str], home: str | None = None
) -> list[Setting]:
    """Return every setting, by rank: environment, environment files (the last one first), the user's file, NCCL's own.

    home: of the user whose jobs are meant, None for nobody's.
    """
    ordered = [(name, value, "environment") for name, value in environment.items() if name.startswith("NCCL_")]
    for path in reversed(environment_files):
        ordered += [(name, value, path) for name, value in _environment_file(read_text(path) or "").items()]
    named = next((value for name, value, _source in ordered if name == "NCCL_CONF_FILE"), "")
    own = named or (os.path.join(home, ".nccl.conf") if home else "")
    for path in dict.fromkeys(path for path in (own, configuration) if path):
        ordered += [(name, value, path) for name, value in parse_configuration(read_text(path) or "")]
    seen: set[str] = set()
    found = []
    for name, value, source in ordered:
        found.append(Setting(name, value, source, name not in seen))
        seen.add(name)
    return found


def parse_configuration(content: str) -> list[tuple[str, str]]:
    """Read NCCL's own format; names and values are left as NCCL takes them, blanks included."""
    found = []
    for line in content.split("\n"):
        name, equals, value = line.rstrip("\r").partition("=")
        if equals and not line.startswith("#"):
            found.append((name, value))
    return found


def _environment_file(content: str) -> dict[str, str]:
    """Read lines NAME=value as shells and systemd write them; the last one of a name counts."""
    found = {}
    for line in content.splitlines():
        match = _ASSIGNMENT.match(line)
        if match:
            value = match[2]
            found[match[1]] = value[1:-1] if value[:1] in {'"', "'"} else value
    return found


def effective(settings: Sequence[Setting], name: str) -> str | None:
    """Return what NCCL takes for a variable, None where it is not set."""
    return next((setting.value for setting in settings if setting.effective and setting.name == name), None)


def selects(value: str, name: str, port: int | None = None) -> bool:
    """Say whether NCCL takes an interface, or a port of an HCA, by a setting.

    value: beginnings of names, whole names after =, behind ^ those that are not taken. A port may follow a name.
    """
    listed = value.removeprefix("^")
    exact = listed.startswith("=")
    found = False
    for entry in listed.removeprefix("=").split(","):
        wanted, _colon, number = entry.partition(":")
        if wanted and (name == wanted if exact else name.startswith(wanted)):
            found = found or port is None or number.partition(":")[0] in ("", str(port))
    return found != value.startswith("^")


def of_settings(settings: Sequence[Setting]) -> Iterator[NcclProblem]:
    """Yield settings that NCCL doesn't take as they were meant."""
    for setting in settings:
        evidence = f"{setting.name}={setting.value} in {setting.source}"
        name = setting.name.strip()
        if name != setting.name or setting.value != setting.value.strip():
            yield NcclProblem(
                WARNING,
                "setting_with_blanks",
                name,
                "NCCL takes blanks around the = as part of the name or the value, so the setting has no effect.",
                evidence,
                f"Write {name}={setting.value.strip()} at the beginning of a line.",
            )
        elif name in DEPRECATED:
            instead = DEPRECATED[name]
            yield NcclProblem(
                WARNING,
                "setting_deprecated",
                name,
                "Nothing reads this variable any more.",
                evidence,
                f"Set {instead} if it is still needed, and remove this one." if instead else "Remove it.",
            )
        elif name.startswith("NCCL_") and name not in KNOWN | BUILD and not name.startswith(PLUGIN_PREFIXES):
            near = difflib.get_close_matches(name, KNOWN, 1, 0.85)
            yield NcclProblem(
                WARNING,
                "setting_unknown",
                name,
                "NCCL knows no variable of this name.",
                evidence,
                f"Write {near[0]} if that is what is meant; else remove it." if near else "Correct or remove it.",
            )
