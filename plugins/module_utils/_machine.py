# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What one machine has to say about the things that must be alike on all machines of a cluster.

Sources: os-release(5), proc_pid_mountinfo(5), and the machine's own name service through the standard library.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._command import run_command

_OCTAL = re.compile(r"\\([0-7]{3})")
_QUIET_FAILURES = 3  # unanswered questions after which the name servers count as dead
_WRITABLE = "import os, sys; sys.exit(0 if os.access(sys.argv[1], os.R_OK | os.W_OK | os.X_OK) else 3)"


@dataclass(frozen=True)
class Directory:
    """A directory that ought to be on a file system shared by all machines.

    mount_point: where the file system that holds it is mounted; null when the directory isn't there.
    file_system: its type, as the kernel names it.
    problem: why it can't be used, null when it can.
    """

    path: str
    mount_point: str | None
    file_system: str | None
    problem: str | None


def os_release(text: str) -> dict[str, str]:
    """Return the settings in the text of an os-release file, without their quotes."""
    settings = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in settings}


def mount_of(path: str, mountinfo: str) -> tuple[str, str]:
    """Return mount point and type of the file system that holds an absolute path without links."""
    best = ("/", "")
    for line in mountinfo.splitlines():
        before, _separator, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):  # of mounts on one point the last one shows
            best = (point, after.split()[0])
    return best


def shared_directory(path: str, mountinfo: str, timeout_seconds: float = 10) -> Directory:
    """Look at a directory and change nothing. One that hangs, as from a dead file server, is a problem."""
    probe = run_command([sys.executable, "-c", _WRITABLE, path], timeout_seconds)
    if probe.timed_out:
        return Directory(path, None, None, f"does not answer within {timeout_seconds:g} seconds")
    if not os.path.isdir(path):
        return Directory(path, None, None, "is not there")
    point, kind = mount_of(os.path.realpath(path), mountinfo)
    if point == "/":
        return Directory(path, point, kind, "is not mounted: it lies on the machine's own root file system")
    return Directory(path, point, kind, None if probe.rc == 0 else "is not writable for root")


def addresses(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the addresses of each name as this machine resolves it, none for a name that it doesn't know."""
    os.environ.setdefault("RES_OPTIONS", "timeout:2 attempts:1")  # the C library reads it before its first question
    found: dict[str, list[str]] = {}
    quiet = 0
    for name in names:
        found[name] = []
        if quiet >= _QUIET_FAILURES:
            continue
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            quiet += error.errno == socket.EAI_AGAIN
        except UnicodeError:
            continue
        else:
            # An address of one link only (fe80::1%eth0) says nothing to another machine.
            found[name] = sorted({str(answer[4][0]) for answer in answers if "%" not in str(answer[4][0])})
    return found


def users(names: Iterable[str]) -> dict[str, dict[str, int] | None]:
    """Return the ids of each user, null for one that isn't there."""
    found: dict[str, dict[str, int] | None] = {}
    for name in names:
        try:
            entry = pwd.getpwnam(name)
            found[name] = {"uid": entry.pw_uid, "gid": entry.pw_gid}
        except KeyError:
            found[name] = None
    return found


def holders(accounts: Iterable[Mapping[str, int]]) -> dict[str, dict[str, str]]:
    """Return who holds the ids of some accounts: users by uid, groups by gid. Free ids are left out."""
    held: dict[str, dict[str, str]] = {"uid": {}, "gid": {}}
    for account in accounts:
        with suppress(KeyError):
            held["uid"][str(account["uid"])] = pwd.getpwuid(account["uid"]).pw_name
        with suppress(KeyError):
            held["gid"][str(account["gid"])] = grp.getgrgid(account["gid"]).gr_name
    return held
