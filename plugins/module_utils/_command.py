# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Running a command that may hang.

A process stuck in the GPU driver or on a dead file server can't be killed, and waiting for it would hang the caller,
too. After the time limit it is told to stop and left alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

_GRACE_SECONDS = 1.0
# A user who isn't root has no such folders in the search path, though modinfo and ldconfig are there and work for all.
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class CommandResult:
    """What a command did. rc is None where it did not start (missing) or did not end in time (timed_out)."""

    rc: int | None
    out: str
    err: str
    missing: bool = False
    timed_out: bool = False


class RunCommand(Protocol):
    """Run a command with a limit in seconds; the tests hand in their own."""

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult: ...


def run_command(argv: Sequence[str], timeout: float) -> CommandResult:
    """Run a command, its words in English, and return what it said."""
    try:
        # AnsibleModule's run_command has no time limit.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **os.environ,
                "LC_ALL": "C",
                "LANGUAGE": "C",
                "PATH": f"{os.environ.get('PATH') or os.defpath}:{_SYSTEM_FOLDERS}",
            },
            start_new_session=True,
        )
    except OSError as error:
        return CommandResult(None, "", error.strerror or str(error), missing=True)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as expired:
        _stop(process)
        # Only whole bytes were collected so far; what came is worth showing to a person.
        return CommandResult(None, _words(expired.stdout), _words(expired.stderr), timed_out=True)
    return CommandResult(process.returncode, _words(out), _words(err))


_Result = TypeVar("_Result")


class Aside(Generic[_Result]):
    """Work that goes on while the caller waits for a command."""

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work = work
        self._done: list[_Result] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._done.append(self._work())
        except Exception as error:
            self._error = error

    def result(self) -> _Result:
        """Return what the work gave; raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._done[0]


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(_GRACE_SECONDS)
    except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
        pass
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


def _words(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
