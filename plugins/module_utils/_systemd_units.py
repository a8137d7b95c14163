# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Whether systemd's units run on the files that are there now.

It is told by the files and not by what a play changed, so that a play that was cut short is made good by the next one,
and a play that changes nothing restarts nothing.
Format: `systemctl show` of systemd 249 to 257, in UTC.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from ansible_collections.trainyard.cluster.plugins.module_utils._command import RunCommand

_CALL_SECONDS = 60.0
_PROPERTIES = ("MainPID", "NeedDaemonReload", "FragmentPath", "DropInPaths", "ExecMainStartTimestamp")
# What follows the weekday, which Python would read in the language of the machine.
_TIME = "%Y-%m-%d %H:%M:%S.%f UTC"
_DELETED = " (deleted)"


class SystemdError(ValueError):
    """systemd can't be asked; the message is a sentence that says why."""


@dataclass(frozen=True)
class Watched:
    """A unit and what it reads.

    files: read when it starts. unit_files: its unit file and drop-ins, which systemd reads, too.
    reload_files: read when it starts and when it reloads. reload_mark: a file that is written after each reload.
    mapped: pattern of files in its memory that count when they were replaced, beside its program.
    """

    name: str
    files: Sequence[str] = ()
    unit_files: Sequence[str] = ()
    reload_files: Sequence[str] = ()
    reload_mark: str | None = None
    mapped: str | None = None


@dataclass(frozen=True)
class UnitState:
    """running: it has a main process. daemon_reload: systemd has yet to read its files.

    restart: why it has to start anew, a sentence each. reload: files that it has to read again. Both are empty where it
    doesn't run.
    """

    name: str
    running: bool
    daemon_reload: bool
    restart: list[str] = field(default_factory=list)
    reload: list[str] = field(default_factory=list)


def units(run: RunCommand, watched: Sequence[Watched], root: str = "/") -> list[UnitState]:
    """Return the state of each unit. One that systemd doesn't know doesn't run.

    Raises SystemdError, and re.error where a pattern is none.
    """
    for unit in watched:
        re.compile(unit.mapped or "")
    if not watched:
        return []
    command = ["env", "TZ=UTC", "systemctl", "show", "--timestamp=us", f"--property={','.join(_PROPERTIES)}"]
    result = run([*command, *(unit.name for unit in watched)], _CALL_SECONDS)
    if result.timed_out:
        raise SystemdError(f"systemctl gave no answer within {_CALL_SECONDS:g} seconds")
    blocks = parse_show(result.out)
    if result.rc != 0 or len(blocks) != len(watched):
        said = " ".join(result.err.split()) or "it says nothing"
        raise SystemdError(f"systemctl can't tell how the units are: {said}")
    return [_state(unit, block, root) for unit, block in zip(watched, blocks)]


def parse_show(output: str) -> list[dict[str, str]]:
    """Return what `systemctl show` says, property to value, of each unit in the order asked for."""
    blocks = []
    for text in re.split(r"\n[ \t]*\n", output.strip("\n")):
        pairs = [line.partition("=") for line in text.splitlines() if "=" in line]
        if pairs:
            blocks.append({name: value for name, _equals, value in pairs})
    return blocks


def _state(unit: Watched, block: dict[str, str], root: str) -> UnitState:
    # systemd 252 doesn't call for a reload when the first drop-in of a unit appears.
    known = [block.get("FragmentPath", ""), *block.get("DropInPaths", "").split()]
    # /lib is a link to /usr/lib, and systemd may name either.
    read = {os.path.realpath(_under(root, file)) for file in known}
    there = [file for file in unit.unit_files if os.path.exists(_under(root, file))]
    unread = [file for file in there if os.path.realpath(_under(root, file)) not in read]
    daemon_reload = bool(unread) or block.get("NeedDaemonReload") == "yes"
    process = block.get("MainPID", "")
    started = _seconds(block.get("ExecMainStartTimestamp", ""))
    if process in {"", "0"} or started is None:
        return UnitState(unit.name, running=False, daemon_reload=daemon_reload)
    newer = [file for file in (*unit.files, *unit.unit_files) if _changed(root, file) > started or file in unread]
    replaced = _replaced(os.path.join(root, "proc", process), unit.mapped)
    taken_up = max(started, _changed(root, unit.reload_mark)) if unit.reload_mark else started
    return UnitState(
        unit.name,
        running=True,
        daemon_reload=daemon_reload,
        restart=[f"{file} is newer than the process" for file in newer]
        + [f"{file} is another than the one that runs" for file in replaced],
        reload=[file for file in unit.reload_files if _changed(root, file) > taken_up],
    )


def _seconds(timestamp: str) -> float | None:
    try:
        return datetime.strptime(timestamp.partition(" ")[2], _TIME).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _under(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _changed(root: str, path: str) -> float:
    # Not the time of the last write, which a package or a backup that is put back sets to the past.
    try:
        return os.stat(_under(root, path)).st_ctime
    except OSError:
        return 0


def _replaced(process: str, mapped: str | None) -> Iterable[str]:
    """Return the files of a process that have another in their place: its program, and those that the pattern finds."""
    found = {}
    try:
        found[os.readlink(os.path.join(process, "exe"))] = True
        if mapped:
            with open(os.path.join(process, "maps"), encoding="utf-8", errors="replace") as maps:
                names = (line.rstrip("\n").split(None, 5)[-1] for line in maps)
                found.update({name: True for name in names if re.search(mapped, name)})
    except PermissionError as error:
        raise SystemdError(
            f"{error.filename} can't be read; run as root, in a container with CAP_SYS_PTRACE"
        ) from error
    except OSError:
        pass  # it ended meanwhile
    return [name[: -len(_DELETED)] for name in found if name.endswith(_DELETED)]
