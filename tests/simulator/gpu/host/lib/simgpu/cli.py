# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command simgpu."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from . import faults, kernel_log, kmod
from .driver import Driver, installed_package
from .machine import Machine
from .state import SimulatorError, lookup

DRIVER_ACTIONS = ("load", "unload", "mismatch", "none", "status")
_KEYS = "\n".join(
    [
        "keys (N: a link's number, or all):",
        *(f"  {key} {'|'.join(kind.choices)}".rstrip() for key, kind in faults.KEYS.items()),
        "short names:",
        *(f"  {short} = {key}" for short, key in faults.ALIASES.items()),
        "Units are Celsius, watts, percent, MiB and MHz.",
        "lost: fell off the bus. absent: not on the bus, from the next boot on.",
        '"KEY=" takes a change back.',
    ]
)


def main(arguments: list[str]) -> int:
    machine = Machine(Path(os.environ.get("SIMGPU_ROOT") or "/"))
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        if options.command not in ("install", "boot") and not machine.store.installed():
            raise SimulatorError("no GPUs are installed here: 'simgpu install --profile FILE' does it")
        return COMMANDS[options.command](machine, options) or 0
    except SimulatorError as error:
        print(f"simgpu: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simgpu", description="Simulated NVIDIA GPUs of this test host.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    install = commands.add_parser("install", help="put GPUs into this machine")
    install.add_argument("--profile", required=True, type=Path, metavar="FILE", help="profile as JSON")
    install.add_argument("--count", type=int, help="number of GPUs; default: every slot of the profile")
    install.add_argument("--cpus-per-numa-node", type=int, help="default: the profile's")
    install.add_argument(
        "--name", default=None, help="what serial numbers and UUIDs follow from; default: the host's name"
    )

    commands.add_parser("boot", help="what a start of the machine does; run by simgpu.service")

    change = commands.add_parser(
        "set", help="change what a GPU reports", epilog=_KEYS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    change.add_argument("gpu", help="number of the slot, from 0, or all")
    change.add_argument("assignments", nargs="+", metavar="KEY=VALUE")

    show = commands.add_parser("show", help="print what differs from a healthy, idle GPU, or every value of one")
    show.add_argument("gpu", nargs="?", help="number of the slot: every value of this GPU")
    show.add_argument("--json", action="store_true")

    for name, text in (
        ("reset", "GPU reset: pending modes become current"),
        ("repair", "take back every fault, a lost GPU included"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("gpu", nargs="?", default="all", help="number of the slot, or all (the default)")

    xid = commands.add_parser("xid", help="put an Xid into the kernel log")
    xid.add_argument("gpu", help="number of the slot")
    xid.add_argument("code", type=int)
    xid.add_argument("text", nargs="?", help="what stands behind the code; default: the usual text")

    sxid = commands.add_parser("sxid", help="put an SXid of an NVSwitch into the logs of kernel and fabric manager")
    sxid.add_argument("switch", type=int, help="number of the NVSwitch, from 0")
    sxid.add_argument("code", type=int)
    sxid.add_argument("--link", type=int, default=3)
    sxid.add_argument("--fatal", action="store_true")

    driver = commands.add_parser("driver", help="the NVIDIA kernel modules")
    driver.add_argument("action", choices=DRIVER_ACTIONS)
    driver.add_argument("--version", help="load: this version, whatever package is installed; mismatch: of the library")
    driver.add_argument("--force", action="store_true", help="unload although a process uses the driver")
    return parser


def _slots(machine: Machine, word: str) -> list[int]:
    slots = machine.store.slots()
    if word == "all":
        return slots
    if not word.isdigit() or int(word) not in slots:
        raise SimulatorError(f"there is no GPU {word}: give a number from 0 to {len(slots) - 1}, or all")
    return [int(word)]


def _install(machine: Machine, options: argparse.Namespace) -> None:
    try:
        profile = json.loads(options.profile.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SimulatorError(f"the profile {options.profile} can't be read: {error}") from error
    machine.store.install(
        hardware(profile, options.count, options.cpus_per_numa_node, options.name or socket.gethostname())
    )
    if machine.real:
        subprocess.run(["ldconfig"], check=True)
    Driver(machine).boot()


def hardware(profile: dict[str, Any], count: int | None, cpus: int | None, name: str) -> dict[str, str]:
    """The flat hardware file of a machine with `count` GPUs of a profile."""
    slots = profile["slots"]
    count = len(slots) if count is None else count
    if not 0 <= count <= len(slots):
        raise SimulatorError(f"profile {profile['profile']} has {len(slots)} slots: --count {count} is not possible")
    cpus = cpus or profile["machine"]["cpus_per_numa_node"]
    values = {
        "machine.profile": profile["profile"],
        "machine.numa_nodes": str(profile["machine"]["numa_nodes"]),
        "machine.cpus_per_numa_node": str(cpus),
        "gpu.count": str(count),
    }
    gpu = dict(profile["gpu"])
    serials = gpu.pop("serials", "0") == "1"
    values.update({f"gpu.{key}": value for key, value in gpu.items()})
    for number, slot in enumerate(slots[:count]):
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}/{slot['bus_id']}")
        node = slot["numa_node"]
        own = {
            "pci.bus_id": slot["bus_id"],
            "numa_node": str(node),
            "module_id": str(slot["module_id"]),
            "cpus": f"{node * cpus}-{(node + 1) * cpus - 1}",
            "uuid": f"GPU-{identity}",
            "irq": str(100 + number),
        }
        if serials:
            own["serial"] = f"165{identity.int % 10**10:010d}"
        values.update({f"gpu.{number}.{key}": value for key, value in own.items()})
    return values


def _boot(machine: Machine, options: argparse.Namespace) -> None:
    del options
    if machine.store.installed():
        Driver(machine).boot()


def _set(machine: Machine, options: argparse.Namespace) -> None:
    known = machine.store.hardware()
    with machine.store.change() as state:
        for slot in _slots(machine, options.gpu):
            faults.apply(state, known, slot, faults.parse_assignments(options.assignments, slot, known))


def _show(machine: Machine, options: argparse.Namespace) -> None:
    state, known = machine.store.state(), machine.store.hardware()
    if options.gpu is None:
        shown = {**state}
    else:
        slot = _slots(machine, options.gpu)[0]
        names = {key.split(".", 1)[1] for key in known if key.startswith("gpu.") and not key.split(".")[1].isdigit()}
        prefix = f"gpu.{slot}."
        names |= {key[len(prefix) :] for key in [*known, *state] if key.startswith(prefix)}
        shown = {name: lookup(state, known, slot, name) or "" for name in sorted(names - {"count"})}
    if options.json:
        print(json.dumps(shown, indent=2, sort_keys=True))
    else:
        for key, value in sorted(shown.items()):
            print(f"{key}={value}")


def _reset(machine: Machine, options: argparse.Namespace) -> None:
    known = machine.store.hardware()
    with machine.store.change() as state:
        for slot in _slots(machine, options.gpu):
            faults.reset(state, known, slot)


def _repair(machine: Machine, options: argparse.Namespace) -> None:
    with machine.store.change() as state:
        for slot in _slots(machine, options.gpu):
            faults.repair(state, slot)


def _xid(machine: Machine, options: argparse.Namespace) -> None:
    slot = _slots(machine, options.gpu)[0]
    known = machine.store.hardware()
    lines = kernel_log.xid_lines(
        machine.address(slot),
        options.code,
        known[f"gpu.{slot}.uuid"],
        known.get(f"gpu.{slot}.serial"),
        options.text,
    )
    kernel_log.append(machine.root, lines)
    with machine.store.change() as state:
        events = [event for event in state.get("xid.events", "").split(",") if event]
        number = int(events[-1].split(":")[0]) + 1 if events else 1
        # Those who wait for events see the newest; the library takes no line longer than 1023 characters.
        state["xid.events"] = ",".join([*events[-31:], f"{number}:{slot}:{options.code}"])


def _sxid(machine: Machine, options: argparse.Namespace) -> None:
    switches = [address for address in machine.store.hardware().get("gpu.nvlink.switches", "").split(",") if address]
    if not 0 <= options.switch < len(switches):
        raise SimulatorError(f"there is no NVSwitch {options.switch}: this machine has {len(switches)}")
    sxid = kernel_log.Sxid(options.switch, switches[options.switch], options.code, options.link, options.fatal)
    kernel_log.report_sxid(machine.root, sxid)


def _driver(machine: Machine, options: argparse.Namespace) -> int:
    driver = Driver(machine)
    if options.action == "load":
        if options.version:
            with machine.store.change() as state:
                state["driver.version"] = options.version
                state.pop("library.version", None)
        if "nouveau" in machine.loaded():
            driver.unload("nouveau")
        driver.load("nvidia")
    elif options.action == "unload":
        driver.unload_all(options.force)
    elif options.action == "mismatch":
        with machine.store.change() as state:
            if "driver.loaded" not in state:
                raise SimulatorError(
                    "no driver is loaded that the library could differ from: 'simgpu driver load' first"
                )
            state["library.version"] = options.version or _next_version(state["driver.loaded"])
    elif options.action == "none":
        driver.unload_all(force=True)
        with machine.store.change() as state:
            for key in ("driver.version", "library.version"):
                state.pop(key, None)
    else:
        state, package = machine.store.state(), installed_package(machine.root)
        print(f"package: {f'{package.name} {package.version}' if package else 'none'}")
        print(f"loaded: {state.get('driver.loaded', 'none')}")
        print(f"modules: {', '.join(machine.loaded()) or 'none'}")
    return 0


def _next_version(version: str) -> str:
    """A later one of the same branch, as after an upgrade of the packages without a reboot."""
    parts = version.split(".")
    return ".".join([parts[0], str(int(parts[1]) + 1), *parts[2:]])


COMMANDS: dict[str, Any] = {
    "install": _install,
    "boot": _boot,
    "set": _set,
    "show": _show,
    "reset": _reset,
    "repair": _repair,
    "xid": _xid,
    "sxid": _sxid,
    "driver": _driver,
}


def run(program: str, arguments: list[str]) -> int:
    """Entry of every program: which one depends on the name it was called by."""
    if program == "simgpu":
        return main(arguments)
    return kmod.main(program, arguments, Machine(Path(os.environ.get("SIMGPU_ROOT") or "/")))
