# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checkpoints that are either whole or not there.

A checkpoint is a folder `step-00000100`. It is written as `step-00000100.tmp-<job>`, every file is flushed to the disk,
`MANIFEST.sha256` lists the files (`sha256sum -c` reads it), the marker `COMPLETE` comes last, and then the folder is
renamed. So a job killed at any moment leaves the earlier checkpoints as they were, and nobody can take a half-written
one for a whole one. trainyard.cluster.checkpoint_backup copies the folders that hold the marker.

Nothing here needs PyTorch.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Callable

MARKER = "COMPLETE"
MANIFEST = "MANIFEST.sha256"
_NAME = re.compile(r"step-(\d{8,})\Z")
_SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface


class DamagedError(Exception):
    """A checkpoint that isn't what its manifest says. The text is a sentence for the user."""


def name(step: int) -> str:
    return f"step-{step:08d}"


def write(
    directory: str,
    step: int,
    files: Mapping[str, Callable[[str], None]],
    job: str,
    report: Callable[[str], None] = print,
) -> str:
    """Write one checkpoint and return its path. `files` maps a file name to a function that writes it to a path."""
    final = os.path.join(directory, name(step))
    os.makedirs(directory, exist_ok=True)
    if os.path.isdir(final):
        try:
            verify(final)
        except DamagedError as problem:
            aside = _unused(f"{final}.damaged-{job}")
            os.rename(final, aside)
            report(f"{problem} It is kept as {aside}.")
        else:
            report(f"{final} is there already and whole, so it stays as it is.")
            return final
    temporary = f"{final}.tmp-{job}"
    shutil.rmtree(temporary, ignore_errors=True)  # left by an earlier start of this same job
    os.mkdir(temporary)
    lines = []
    for file_name, writer in files.items():
        path = os.path.join(temporary, file_name)
        writer(path)
        _flush(path)
        lines.append(f"{_sha256(path)}  {file_name}\n")
    _write_text(os.path.join(temporary, MANIFEST), "".join(lines))
    _flush(temporary)
    _write_text(os.path.join(temporary, MARKER), f"step {step}\n")
    _flush(temporary)
    os.rename(temporary, final)
    _flush(directory)
    return final


def verify(path: str) -> None:
    """Raise DamagedError unless the folder holds the marker and every file of its manifest, each with the right sum."""
    if not os.path.isfile(os.path.join(path, MARKER)):
        raise DamagedError(f"{path} has no {MARKER} file: it was never finished.")
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as handle:
            lines = handle.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedError(f"{path} has no readable {MANIFEST}: {error}.") from error
    if not lines:
        raise DamagedError(f"{path} has an empty {MANIFEST}.")
    for line in lines:
        expected, separator, file_name = line.partition("  ")
        if not separator or os.path.basename(file_name) != file_name:
            raise DamagedError(f"{path} has a {MANIFEST} with the unreadable line {line!r}.")
        try:
            found = _sha256(os.path.join(path, file_name))
        except OSError as error:
            raise DamagedError(f"{path} lacks its file {file_name}: {error.strerror}.") from error
        if found != expected:
            raise DamagedError(f"{path} is damaged: {file_name} isn't what {MANIFEST} says.")


def newest(directory: str, report: Callable[[str], None] = print) -> tuple[int, str] | None:
    """The step and path of the newest whole checkpoint; each newer one that isn't whole is reported and passed over."""
    for step, path in sorted(_finished(directory), reverse=True):
        try:
            verify(path)
        except DamagedError as problem:
            report(f"{problem} It is passed over.")
        else:
            return step, path
    return None


def prune(directory: str, keep: int, report: Callable[[str], None] = print) -> None:
    """Remove all but the newest `keep` finished checkpoints. Zero keeps every one."""
    if keep <= 0:
        return
    for _step, path in sorted(_finished(directory))[:-keep]:
        # The marker goes first: a removal cut short leaves a folder that nobody takes for whole.
        os.unlink(os.path.join(path, MARKER))
        shutil.rmtree(path)
        report(f"{path} is removed, since only the newest {keep} are kept.")


def interface_towards(host: str) -> str | None:
    """The network interface that leads to a host, or carries its address when the host is this one; None if unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # a datagram socket: nothing is sent
            address = probe.getsockname()[0]
            for _index, interface in socket.if_nameindex():
                request = struct.pack("256s", interface.encode()[:15])
                with contextlib.suppress(OSError):  # an interface without an IPv4 address
                    answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                    if socket.inet_ntoa(answer[20:24]) == address:
                        return interface
    except OSError:
        pass
    return None


def _finished(directory: str) -> Iterator[tuple[int, str]]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for entry in names:
        match = _NAME.match(entry)
        path = os.path.join(directory, entry)
        if match and os.path.isfile(os.path.join(path, MARKER)):
            yield int(match.group(1)), path


def _unused(path: str) -> str:
    candidate, number = path, 1
    while os.path.lexists(candidate):
        number += 1
        candidate = f"{path}-{number}"
    return candidate


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(text)
    _flush(path)


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
