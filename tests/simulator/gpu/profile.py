# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU profiles: the data files in profiles/, checked and flattened to what `simgpu install` reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ..engine import SimulatorError

FOLDER = Path(__file__).parent / "profiles"

_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


# Columns as nvml/mig.c describes them.
_MIG_PROFILE = re.compile(r"\d+g\.\d+gb(\+\w+)?( +\d+){11,}")


class ProfileError(SimulatorError):
    """A profile can't be used; the message is a sentence that says what to change."""


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\n" not in value


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _flag(value: object) -> bool:
    return not isinstance(value, bool) and value in (0, 1)


def _identifier(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"0x[0-9a-f]{6,8}", value) is not None


def _numbers(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_number, value))


def _mig_profiles(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, str) and _MIG_PROFILE.fullmatch(one) for one in value)
    )


def _addresses(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, str) and _ADDRESS.fullmatch(one) for one in value)
    )


def _one_of(*names: str) -> Callable[[object], bool]:
    return lambda value: value in names


_TEXT = (_text, "text")
_NUMBER = (_number, "a number that is not negative")
_FLAG = (_flag, "0 or 1")
_IDENTIFIER = (_identifier, 'a PCI number in quotes such as "0x233010de"')
_ARCHITECTURES = ("volta", "turing", "ampere", "ada", "hopper", "blackwell")
_BRANDS = ("nvidia", "tesla", "quadro", "quadro_rtx", "nvidia_rtx", "geforce", "geforce_rtx", "titan")
_LEVELS = ("pix", "pxb", "phb", "node", "sys")
_FABRIC = ("not_supported", "not_started", "in_progress", "completed")

# Every key below gpu, and what it holds. MiB, degrees Celsius, watts, MHz, KB/s; NVLink speed in MB/s.
KEYS: dict[str, tuple[Callable[[object], bool], str]] = {
    "name": _TEXT,
    "brand": (_one_of(*_BRANDS), "one of " + ", ".join(_BRANDS)),
    "architecture": (_one_of(*_ARCHITECTURES), "one of " + ", ".join(_ARCHITECTURES)),
    "compute_capability": (
        lambda value: isinstance(value, str) and re.fullmatch(r"\d+\.\d+", value) is not None,
        'a version in quotes such as "9.0"',
    ),
    "cores": _NUMBER,
    "vbios": _TEXT,
    "gsp": _FLAG,
    "serials": _FLAG,
    "p2p": _FLAG,
    "drain_and_reset_status": _FLAG,
    "pci.class": _IDENTIFIER,
    "pci.device_id": _IDENTIFIER,
    "pci.subsystem_id": _IDENTIFIER,
    "board.part_number": _TEXT,
    "board.gpu_part_number": _TEXT,
    "board.multi_gpu": _FLAG,
    "inforom.image": _TEXT,
    "inforom.oem": _TEXT,
    "inforom.ecc": _TEXT,
    "inforom.power": _TEXT,
    "clock.memory.supported": (_numbers, "a list of MHz, the highest first"),
    "ecc.current": _FLAG,
    "ecc.default": _FLAG,
    "ecc.sram_status": _FLAG,
    "mig.current": _FLAG,
    "mig.resetless": _FLAG,
    "mig.profiles": (_mig_profiles, 'a list of rows such as "7g.80gb 0 1 7 8 81152 132 8 7 7 1 0"'),
    "nvlink.switches": (_addresses, 'a list of PCI addresses such as "0000:1a:00.0"'),
    "nvlink.switch_device_id": _IDENTIFIER,
    "fabric.state": (_one_of(*_FABRIC), "one of " + ", ".join(_FABRIC)),
    "topology.same_node": (_one_of(*_LEVELS), "one of " + ", ".join(_LEVELS)),
}
KEYS.update(
    dict.fromkeys(
        [
            *(f"memory.{name}" for name in ("total", "reserved", "used", "bus_width")),
            *(f"bar1.{name}" for name in ("total", "used")),
            *(f"pcie.generation.{name}" for name in ("max", "gpu_max", "idle")),
            *(f"pcie.{name}" for name in ("width.max", "replays", "replay_rollovers", "tx", "rx")),
            *(
                f"pcie.errors.{name}"
                for name in ("correctable", "non_fatal", "fatal", "unsupported_requests", "l0_to_recovery")
            ),
            *(f"fan.{name}" for name in ("count", "speed")),
            *(f"temperature.{name}" for name in ("idle", "load", "memory_idle", "memory_load")),
            *(f"temperature.{name}" for name in ("gpu_max", "slowdown", "shutdown", "memory_max")),
            *(f"temperature.{name}" for name in ("target", "target_min", "target_max")),
            *(f"power.{name}" for name in ("idle", "load", "default", "min", "max")),
            *(f"pstate.{name}" for name in ("idle", "load")),
            *(
                f"clock.graphics.{name}"
                for name in ("idle", "min", "max", "step", "application_default", "customer_boost")
            ),
            *(f"clock.memory.{name}" for name in ("idle", "max", "application_default")),
            *(f"clock.video.{name}" for name in ("idle", "max")),
            *(f"remapped.{name}" for name in ("correctable", "uncorrectable", "pending", "failure")),
            *(f"remapped.banks.{name}" for name in ("max", "high", "partial", "low", "none")),
            *(
                f"violation.{name}"
                for name in ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability")
            ),
            "mig.instances",
            "accounting.buffer_size",
            *(f"nvlink.{name}" for name in ("count", "version", "speed")),
            "fabric.clique",
        ],
        _NUMBER,
    )
)
REQUIRED = (
    "name",
    "brand",
    "architecture",
    "compute_capability",
    "vbios",
    "pci.class",
    "pci.device_id",
    "pci.subsystem_id",
    "memory.total",
    "temperature.idle",
    "temperature.load",
    "temperature.gpu_max",
    "power.idle",
    "power.load",
    "power.default",
    "power.min",
    "power.max",
    "clock.graphics.idle",
    "clock.graphics.max",
    "clock.memory.max",
    "pcie.generation.max",
    "pcie.width.max",
    "topology.same_node",
)


def load(name: str | Path) -> dict[str, Any]:
    """Return a profile for `simgpu install`: {"profile", "machine", "slots", "gpu": {dotted key: text}}.

    name: that of a file in profiles/ without .yml, or a path.
    """
    path = name if isinstance(name, Path) else FOLDER / f"{name}.yml"
    if not path.is_file():
        known = ", ".join(sorted(one.stem for one in FOLDER.glob("*.yml")))
        raise ProfileError(f"there is no GPU profile {path.stem}: choose one of {known}, or add {path}")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ProfileError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    try:
        return _check(data, path.stem)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None


def _check(data: Any, stem: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ProfileError("write a mapping with the keys profile, sources, machine, slots and gpu")
    wanted = {"profile": str, "sources": dict, "machine": dict, "slots": list, "gpu": dict}
    for key, kind in wanted.items():
        if not isinstance(data.get(key), kind) or not data[key]:
            raise ProfileError(f"{key} is missing or empty: see profiles/h100-sxm-80gb.yml for its form")
    if unknown := sorted(set(data) - set(wanted)):
        raise ProfileError(f"unknown key {unknown[0]}: use {', '.join(wanted)}")
    if data["profile"] != stem:
        raise ProfileError(f"profile must be the file's name, {stem}, not {data['profile']}")
    machine = _machine(data["machine"])
    return {
        "profile": stem,
        "machine": machine,
        "slots": [_slot(slot, number, machine["numa_nodes"]) for number, slot in enumerate(data["slots"])],
        "gpu": _gpu(data["gpu"]),
    }


def _machine(machine: dict[str, Any]) -> dict[str, int]:
    for key in ("numa_nodes", "cpus_per_numa_node"):
        if not isinstance(machine.get(key), int) or machine[key] < 1:
            raise ProfileError(f"machine.{key} must be a whole number from 1")
    return {key: machine[key] for key in ("numa_nodes", "cpus_per_numa_node")}


def _slot(slot: Any, number: int, numa_nodes: int) -> dict[str, Any]:
    if not isinstance(slot, dict) or set(slot) != {"bus_id", "numa_node", "module_id"}:
        raise ProfileError(f"slots[{number}] must have exactly the keys bus_id, numa_node and module_id")
    if not isinstance(slot["bus_id"], str) or not _ADDRESS.fullmatch(slot["bus_id"]):
        raise ProfileError(f'slots[{number}].bus_id must be a PCI address in quotes such as "0000:18:00.0"')
    if slot["numa_node"] not in range(numa_nodes):
        raise ProfileError(f"slots[{number}].numa_node must be below machine.numa_nodes, {numa_nodes}")
    return dict(slot)


def _gpu(gpu: dict[str, Any]) -> dict[str, str]:
    values = _flatten(gpu)
    for key, value in values.items():
        if key not in KEYS:
            raise ProfileError(f"gpu.{key} is not a known key: the known ones are in tests/simulator/gpu/profile.py")
        check, meaning = KEYS[key]
        if not check(value):
            raise ProfileError(f"gpu.{key} must be {meaning}, not {value!r}")
    if missing := [key for key in REQUIRED if key not in values]:
        raise ProfileError(f"gpu.{missing[0]} is missing: every profile needs it")
    if not values["power.min"] <= values["power.default"] <= values["power.max"]:
        raise ProfileError("gpu.power.default must lie between gpu.power.min and gpu.power.max")
    return {key: _as_text(value) for key, value in values.items()}


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _as_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
