# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian packages unpacked into a folder, without installing them or touching the machine's own apt sources.

nvml.h and nvidia-smi are NVIDIA's and stay out of the project; Debian's mirrors carry them in contrib and non-free,
which few machines enable. So apt runs with a state of its own, on the mirror that the machine itself uses.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..engine import SimulatorError
from ..packages import machine_mirror

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class PackageError(SimulatorError):
    """A package could not be had; the message says what to do."""


def unpack(suite: str, packages: Sequence[str], cache: Path) -> Path:
    """Unpack packages of a suite below cache, once, and return the folder that stands for /.

    A package that apt lists in a newer version later is not fetched again: remove the folder for that.
    """
    place = cache / "debian" / suite
    root = place / "root"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [package for package in packages if not (place / "unpacked" / package).exists()]
        if missing:
            _fetch(suite, missing, place, root)
    return root


def _fetch(suite: str, packages: list[str], place: Path, root: Path) -> None:
    for folder in ("state/lists/partial", "cache/archives/partial", "packages", "unpacked", "root"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    source = place / "sources.list"
    source.write_text(
        f"deb [signed-by={KEYRING}] {machine_mirror().archive} {suite} main contrib non-free non-free-firmware\n"
    )
    apt = [
        "apt-get",
        "-qq",
        *_options(
            {
                "Dir::State": place / "state",
                "Dir::State::status": "/dev/null",
                "Dir::Cache": place / "cache",
                "Dir::Etc::SourceList": source,
                "Dir::Etc::SourceParts": "/dev/null",
                "Acquire::Languages": "none",
                "APT::Sandbox::User": "root",
            }
        ),
    ]
    _run([*apt, "update"])
    shutil.rmtree(place / "packages")
    (place / "packages").mkdir()
    _run([*apt, "download", *packages], folder=place / "packages")
    for archive in sorted((place / "packages").glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(root)])
    for package in packages:
        (place / "unpacked" / package).touch()


def _options(settings: dict[str, object]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _run(command: list[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"}
        )
    except FileNotFoundError as error:
        raise PackageError(f"{command[0]} is missing: this needs Debian's apt and dpkg") from error
    if done.returncode != 0:
        raise PackageError(f"'{' '.join(command)}' failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
