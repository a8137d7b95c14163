# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What `simgpu set` takes, and what resets and reboots do to it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .state import SimulatorError, Values, lookup

# Short names a person would try first.
ALIASES = {
    "temperature": "temperature.gpu",
    "memory_temperature": "temperature.memory",
    "power_draw": "power.draw",
    "power_limit": "power.limit",
    "utilization": "utilization.gpu",
    "memory_utilization": "utilization.memory",
    "memory_used": "memory.used",
    "fan_speed": "fan.speed",
    "mig": "mig.current",
    "ecc": "ecc.current",
    "nvlink.active": "nvlink.all.active",
    "ecc.volatile.correctable": "ecc.volatile.corrected.dram",
    "ecc.volatile.uncorrectable": "ecc.volatile.uncorrected.dram",
    "ecc.aggregate.correctable": "ecc.aggregate.corrected.dram",
    "ecc.aggregate.uncorrectable": "ecc.aggregate.uncorrected.dram",
    "pcie.generation": "pcie.generation.current",
    "pcie.width": "pcie.width.current",
}


@dataclass(frozen=True)
class Kind:
    """What a key takes: one of the choices (or several, separated by commas), or a number from low to high."""

    choices: tuple[str, ...] = ()
    several: bool = False
    low: float = 0
    high: float = math.inf


_NUMBER = Kind()
_PERCENT = Kind(high=100)
_FLAG = Kind(choices=("0", "1"))
_PROCESSES = Kind(choices=("PID:MIB", "PID:MIB:G"), several=True)
_ERRORS = [
    f"ecc.{when}.{kind}.{where}"
    for when in ("volatile", "aggregate")
    for kind in ("corrected", "uncorrected")
    for where in ("dram", "sram")
]

# Every key that can be set; N stands for a link's number. The modules report each, see tests/contract/test_injected.py.
KEYS: dict[str, Kind] = {
    **dict.fromkeys(["temperature.gpu", "temperature.memory", "power.draw", "power.limit"], _NUMBER),
    **dict.fromkeys([f"utilization.{name}" for name in ("gpu", "memory", "encoder", "decoder")], _PERCENT),
    "fan.speed": _PERCENT,
    "memory.used": _NUMBER,
    "bar1.used": _NUMBER,
    "processes": _PROCESSES,
    **dict.fromkeys(_ERRORS, _NUMBER),
    "ecc.sram_threshold_exceeded": _FLAG,
    "remapped.correctable": _NUMBER,
    "remapped.uncorrectable": _NUMBER,
    "remapped.pending": _FLAG,
    "remapped.failure": _FLAG,
    **dict.fromkeys([f"remapped.banks.{name}" for name in ("high", "partial", "low", "none")], _NUMBER),
    "recovery_action": Kind(choices=("none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset")),
    "throttle": Kind(
        choices=(
            "idle",
            "applications_clocks",
            "sw_power_cap",
            "hw_slowdown",
            "sync_boost",
            "sw_thermal",
            "hw_thermal",
            "hw_power_brake",
            "display",
        ),
        several=True,
    ),
    **dict.fromkeys(["ecc.current", "ecc.pending", "mig.current", "mig.pending", "persistence_mode"], _FLAG),
    "compute_mode": Kind(choices=("0", "2", "3")),  # default, prohibited, exclusive process; 1 went away with CUDA 8
    "nvlink.N.active": _FLAG,
    **dict.fromkeys([f"nvlink.N.{name}" for name in ("replay", "recovery", "crc_flit")], _NUMBER),
    "fabric.state": Kind(choices=("not_supported", "not_started", "in_progress", "completed")),
    "fabric.status": _NUMBER,
    "fabric.health_mask": _NUMBER,
    "pcie.generation.current": Kind(low=1, high=7),
    "pcie.width.current": Kind(low=1, high=32),
    "pcie.replays": _NUMBER,
    **dict.fromkeys([f"clock.{name}.current" for name in ("graphics", "memory", "video")], _NUMBER),
    "inforom.corrupted": _FLAG,
    "lost": _FLAG,
    "absent": _FLAG,
}

# Settings that live in the driver: gone when it is unloaded. A GPU reset takes all but the persistence mode.
_DRIVER_SETTINGS = re.compile(
    r"persistence_mode|power\.limit|clock\.locked(_memory)?\.(min|max)|clock\.(graphics|memory)\.application"
    r"|compute_mode|accounting\.mode|drain|temperature\.target|energy\.(base|since)|mig\.layout"
)
_SINCE_RESET = re.compile(r"ecc\.volatile\..*|nvlink\.\d+\.(replay|recovery|crc_flit)|remapped\.pending")


def parse_assignments(words: list[str], slot: int, hardware: Mapping[str, str]) -> dict[str, str | None]:
    """Turn KEY=VALUE words into changes of one GPU. An empty value, "KEY=", takes a change back (None)."""
    changes: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SimulatorError(f"'{word}' is no KEY=VALUE: write for instance temperature=95")
        key = ALIASES.get(name, name)
        for one in _links(key, slot, hardware):
            kind = KEYS.get(re.sub(r"^nvlink\.\d+\.", "nvlink.N.", one))
            if kind is None:
                raise SimulatorError(f"there is no key '{name}': 'simgpu set --help' lists them")
            if value:
                _supported(one, name, slot, hardware)
                _check(kind, name, value)
            changes[one] = value or None
    return changes


def _links(key: str, slot: int, hardware: Mapping[str, str]) -> list[str]:
    """nvlink.all.X stands for every link of the GPU."""
    if not key.startswith("nvlink.all."):
        return [key]
    count = int(lookup({}, hardware, slot, "nvlink.count") or 0)
    if not count:
        raise SimulatorError("these GPUs have no NVLink")
    return [f"nvlink.{link}.{key[len('nvlink.all.') :]}" for link in range(count)]


def _check(kind: Kind, name: str, value: str) -> None:
    if kind is _PROCESSES:
        if not re.fullmatch(r"\d+:\d+(:G)?(,\d+:\d+(:G)?)*", value):
            raise SimulatorError(
                f"{name} must be PID:MIB, several separated by commas, such as 4711:1024; :G marks graphics"
            )
    elif kind.choices:
        for one in value.split(",") if kind.several else [value]:
            _one_of(name, one, kind.choices)
    elif not re.fullmatch(r"\d+(\.\d+)?", value):
        raise SimulatorError(f"{name} must be a number, not '{value}'")
    elif not kind.low <= float(value) <= kind.high:
        raise SimulatorError(f"{name} must lie between {kind.low:g} and {kind.high:g}, not {value}")


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SimulatorError(f"{name} must be one of {', '.join(choices)}, not '{value}'")


def _supported(key: str, name: str, slot: int, hardware: Mapping[str, str]) -> None:
    base = {"ecc.pending": "ecc.current", "mig.pending": "mig.current"}.get(key, key)
    if base in ("ecc.current", "mig.current") and lookup({}, hardware, slot, base) is None:
        raise SimulatorError(f"{name} can't be set: this GPU has no {base.split('.')[0].upper()} mode")


def apply(state: Values, hardware: Mapping[str, str], slot: int, changes: Mapping[str, str | None]) -> None:
    """Put the changes of one GPU into the state."""
    touch_energy(state, hardware, slot)
    for key, value in changes.items():
        if value is not None and key.startswith("ecc.volatile."):
            # The lifetime counter counts the new errors too.
            total = key.replace(".volatile.", ".aggregate.")
            new = int(float(value)) - int(_number(state, hardware, slot, key))
            if new > 0 and total not in changes:
                state[f"gpu.{slot}.{total}"] = str(int(_number(state, hardware, slot, total)) + new)
        if key in ("ecc.current", "mig.current"):
            state.pop(f"gpu.{slot}.{key.replace('current', 'pending')}", None)
        if key == "mig.current":
            state.pop(f"gpu.{slot}.mig.layout", None)
        if value is None:
            state.pop(f"gpu.{slot}.{key}", None)
        else:
            state[f"gpu.{slot}.{key}"] = value


def touch_energy(state: Values, hardware: Mapping[str, str], slot: int) -> None:
    """Count the energy used until now at the power drawn until now, before that changes."""
    if "driver.loaded_at" not in state:
        return
    now = int(time.time())
    since = _number(state, hardware, slot, "energy.since") or float(state["driver.loaded_at"])
    used = _number(state, hardware, slot, "energy.base") + max(0.0, now - since) * power_draw(state, hardware, slot)
    state[f"gpu.{slot}.energy.base"] = f"{used:.0f}"
    state[f"gpu.{slot}.energy.since"] = str(now)


def power_draw(state: Mapping[str, str], hardware: Mapping[str, str], slot: int) -> float:
    """As values.c works it out."""
    drawn = lookup(state, hardware, slot, "power.draw")
    if drawn is not None:
        return float(drawn)
    idle, busy = (_number(state, hardware, slot, f"power.{name}") for name in ("idle", "load"))
    limit = lookup(state, hardware, slot, "power.limit") or lookup(state, hardware, slot, "power.default") or "0"
    return min(idle + (busy - idle) * _number(state, hardware, slot, "utilization.gpu") / 100, float(limit))


def _number(state: Mapping[str, str], hardware: Mapping[str, str], slot: int, key: str) -> float:
    return float(lookup(state, hardware, slot, key) or 0)


def reset(state: Values, hardware: Mapping[str, str], slot: int) -> None:
    """A GPU reset: pending modes become current, settings and what counts since the last reset go."""
    if lookup(state, hardware, slot, "lost") == "1":
        raise SimulatorError(f"GPU {slot} is lost: it answers no reset, only 'simgpu repair {slot}' brings it back")
    if lookup(state, hardware, slot, "processes"):
        raise SimulatorError(f"GPU {slot} is in use by a process: 'simgpu set {slot} processes=' ends it")
    _forget(state, slot, keep=re.compile(r"persistence_mode|energy\..*"))
    if state.get(f"gpu.{slot}.recovery_action") not in (None, "node_reboot"):
        del state[f"gpu.{slot}.recovery_action"]


def unload(state: Values, hardware: Mapping[str, str], slot: int) -> None:
    """The driver was unloaded: settings go, pending modes become current when it comes back.

    A GPU that changes its MIG mode without a reset doesn't keep the mode by itself.
    """
    _forget(state, slot, keep=re.compile(r"(?!)"))
    if lookup({}, hardware, slot, "mig.resetless") == "1":
        state.pop(f"gpu.{slot}.mig.current", None)


def reboot(state: Values, hardware: Mapping[str, str], slot: int) -> None:
    """The machine started again: as after unloading, and no process is left."""
    unload(state, hardware, slot)
    for key in ("processes", "recovery_action"):
        state.pop(f"gpu.{slot}.{key}", None)


def repair(state: Values, slot: int) -> None:
    """A healthy, idle GPU again: only what an administrator set stays."""
    prefix = f"gpu.{slot}."
    for key in [key for key in state if key.startswith(prefix)]:
        name = key[len(prefix) :]
        mode = re.fullmatch(r"(ecc|mig)\.(current|pending)", name)
        if not mode and not _DRIVER_SETTINGS.fullmatch(name):
            del state[key]


def _forget(state: Values, slot: int, keep: re.Pattern[str]) -> None:
    prefix = f"gpu.{slot}."
    for mode in ("ecc", "mig"):
        pending = state.pop(f"{prefix}{mode}.pending", None)
        if pending is not None:
            state[f"{prefix}{mode}.current"] = pending
    for key in [key for key in state if key.startswith(prefix)]:
        name = key[len(prefix) :]
        if _SINCE_RESET.fullmatch(name) or (_DRIVER_SETTINGS.fullmatch(name) and not keep.fullmatch(name)):
            del state[key]
