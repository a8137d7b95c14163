# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Asking Slurm's commands, and saying in a sentence why they did not answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence

from ansible_collections.trainyard.cluster.plugins.module_utils._command import CommandResult, RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import SlurmError

_AUTHENTICATION = re.compile(r"authenticat|munge|credential", re.IGNORECASE)
# What Slurm prints (slurm/slurm_errno.h) and what to do about it.
_CAUSES = (
    (
        re.compile(r"Unable to contact slurm controller|Socket timed out|Connection refused", re.IGNORECASE),
        "The controller does not answer ({said}): start slurmctld, and see that this machine reaches it.",
    ),
    (
        _AUTHENTICATION,
        "Slurm can't tell who asks ({said}): see that munge runs here with the controller's key and the same time.",
    ),
    (
        re.compile(r"Invalid user id|permission denied|Access denied|not permitted", re.IGNORECASE),
        "Slurm does not allow that ({said}): run the task as root, as Slurm's own user or as a Slurm operator.",
    ),
)
_PREFIX = re.compile(r"^(?:scontrol|squeue)?:?\s*(?:error|fatal):\s*|^(?:slurm_\w+|_?\w+) error:\s*", re.IGNORECASE)


def ask(run: RunCommand, argv: Sequence[str], timeout: float) -> str:
    """Return what a command printed. Raises SlurmError."""
    return answer(argv, run(argv, timeout), timeout)


def answer(argv: Sequence[str], result: CommandResult, timeout: float) -> str:
    """Return what a command printed that was run with that time limit. Raises SlurmError where it failed."""
    if result.missing:
        raise SlurmError(f"{argv[0]} can't be run on this machine ({result.err}): install Slurm's client commands.")
    if result.timed_out:
        raise SlurmError(
            f"{' '.join(argv[:3])} has not answered for {timeout:g} seconds: see that slurmctld isn't overloaded."
        )
    if result.rc != 0:
        raise SlurmError(explain(argv, result.err or result.out))
    return result.out


def explain(argv: Sequence[str], output: str) -> str:
    """Return a sentence about a command that failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern, sentence in _CAUSES:
        line = next((line for line in reversed(lines) if pattern.search(line)), None)
        if line:
            return sentence.format(said=_PREFIX.sub("", line).rstrip("."))
    said = _PREFIX.sub("", lines[-1]).rstrip(".") if lines else "it said nothing"
    return f"{' '.join(argv[:2])} failed: {said[:200]}."


def is_authentication_failure(complaint: str) -> bool:
    """Say whether a command complains that nobody vouches for its user."""
    return bool(_AUTHENTICATION.search(complaint))


def forget_preferences(environment: MutableMapping[str, str]) -> None:
    """Take out the variables with which a user changes what Slurm's commands print."""
    for name in list(_preferences(environment)):
        del environment[name]


def _preferences(environment: MutableMapping[str, str]) -> Iterator[str]:
    for name in environment:
        if name.startswith(("SQUEUE_", "SCONTROL_", "SINFO_")) or name in ("SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN"):
            yield name
