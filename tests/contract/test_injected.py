# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Molecule injects every state that the simulator can inject, and says what the modules must report of it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, NamedTuple

import pytest

from tests.contract.places import ROOT, load
from tests.simulator.gpu.host.lib.simgpu import cli, faults, kernel_log

VARS = ROOT / "molecule/nvidia_driver/vars"
STATES: list[dict[str, Any]] = load(VARS / "injected.yml")["injected"]
XIDS = load(VARS / "xids.yml")
COMMANDS = [command for state in STATES for command in state["inject"]]

# What a healthy GPU has, or what only a setting is.
HEALTHY = {
    "recovery_action": {"none"},
    "fabric.state": {"completed"},
    "compute_mode": {"0"},
    "persistence_mode": {"1"},
    "ecc.current": {"1"},
    "ecc.pending": {"1"},
    "nvlink.N.active": {"1"},
}
# Commands that inject no fault.
NO_FAULT = {"install", "boot", "show", "reset", "repair"}


class Assignment(NamedTuple):
    """One word of `simgpu set GPU KEY=VALUE...`; a link's number is N."""

    gpu: str
    key: str
    value: str


def assignments(command: str) -> list[Assignment]:
    found = re.match(r"simgpu set (\S+) ([^#]*)", command)
    if not found:
        return []
    pairs = [word.split("=", 1) for word in found[2].split()]
    return [
        Assignment(found[1], re.sub(r"^nvlink\.(\d+|all)\.", "nvlink.N.", faults.ALIASES.get(name, name)), value)
        for name, value in pairs
        if value
    ]


def injected() -> dict[str, set[str]]:
    """What is set of each key, in all states."""
    values = defaultdict(set)
    for command in COMMANDS:
        for one in assignments(command):
            values[one.key].update(one.value.split(",") if faults.KEYS[one.key].several else [one.value])
    return values


def test_commands_are_those_of_simgpu() -> None:
    keys = {one.key for command in COMMANDS for one in assignments(command)}
    assert keys, "no state is injected"
    assert keys <= set(faults.KEYS)


@pytest.mark.parametrize("key", faults.KEYS)
def test_every_key_is_injected(key: str) -> None:
    wanted = set(faults.KEYS[key].choices) - HEALTHY.get(key, {"0"})
    given = injected().get(key, set())
    if key == "processes":
        assert {bool(re.fullmatch(r"\d+:\d+:G", one)) for one in given} == {True, False}
    elif wanted:
        assert wanted <= given, f"vars/injected.yml lacks {key}={', '.join(sorted(wanted - given))}"
    else:
        assert given, f"vars/injected.yml lacks {key}"


@pytest.mark.parametrize("state", STATES, ids=lambda state: state["inject"][-1])
def test_every_fault_of_a_gpu_is_expected(state: dict[str, Any]) -> None:
    """A GPU has as many problems and values as keys were set on it; one that is gone isn't counted."""
    gone: set[str] = set()
    keys: dict[str, set[str]] = defaultdict(set)
    for command in state["inject"]:
        for one in assignments(command):
            if one.key in {"lost", "absent"}:
                gone.add(one.gpu)
            elif one.gpu != "all":
                keys[one.gpu].add(one.key)
    said: dict[str, int] = defaultdict(int)
    for problem in state["problems"]:
        found = re.match(r"\S+ \S+ (\S+): .+", problem)
        assert found, problem
        said[found[1]] += 1
    for gpu, values in state.get("devices", {}).items():
        said[str(gpu)] += len(values)
    assert not {gpu: names for gpu, names in keys.items() if len(names) > said[gpu]}
    assert not gone or state["count"] == 8 - len(gone)


def test_every_command_is_used() -> None:
    commands = {found[1] for command in COMMANDS if (found := re.match(r"simgpu (\S+)", command))}
    known = set(cli.COMMANDS)
    assert known - NO_FAULT - commands == {"sxid"}
    assert XIDS["sxids"]
    actions = {found[1] for command in COMMANDS if (found := re.match(r"simgpu driver (\S+)", command))}
    assert set(cli.DRIVER_ACTIONS) - actions == {"status"}
    assert any(command.startswith("modprobe nouveau") for command in COMMANDS)


def test_every_known_xid_is_written() -> None:
    written = {xid["code"] for xid in XIDS["xids"]}
    assert set(kernel_log.TEXTS) <= written
    assert not {xid["code"] for xid in XIDS["xids"] if "text" not in xid and xid["code"] < 1000} - set(kernel_log.TEXTS)
    assert len(XIDS["verdicts"]) == 8
