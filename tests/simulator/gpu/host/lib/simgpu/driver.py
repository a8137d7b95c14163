# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Loading and unloading the simulated kernel modules, as the packages and modprobe's configuration have it."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import faults, kernel_log
from .machine import MODULES, Machine
from .state import SimulatorError, lookup

# CUDA version by driver branch: CUDA toolkit release notes, table "CUDA Toolkit and Corresponding Driver Versions".
_CUDA = {470: 11040, 525: 12000, 535: 12020, 550: 12040, 560: 12060, 570: 12080, 580: 13000, 590: 13010, 595: 13020}

# Packages that bring the modules: Debian's for DKMS and module-assistant, NVIDIA's for Debian, and those for Ubuntu,
# with the branch in their names and without.
_PACKAGES = re.compile(
    r"nvidia(-tesla(-\d+)?)?(-open)?-kernel-dkms|nvidia-kernel-[\d.]+.*|nvidia-kernel-open-dkms"
    r"|nvidia(-open)?-dkms(-\d+)?(-server)?(-open)?|kmod-nvidia.*|linux-modules-nvidia-\d+.*"
)


@dataclass
class Package:
    name: str
    version: str
    debian: bool = True  # Debian's own calls its modules nvidia-current, everyone else's nvidia

    @property
    def open(self) -> bool:
        return "open" in self.name


@dataclass
class Configuration:
    """modprobe.d: blacklisted modules, install commands, options; names with underscores."""

    blacklisted: set[str] = field(default_factory=set)
    install: dict[str, str] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)


def module_name(name: str) -> str:
    """The module's own name: Debian's files are called nvidia-current, nvidia-current-uvm and so on."""
    name = name.replace("-", "_")
    for prefix in ("nvidia_current_open", "nvidia_current"):
        if name == prefix or name.startswith(prefix + "_"):
            return "nvidia" + name[len(prefix) :]
    return name


def module_file(module: str, package: Package | None) -> str:
    """The name of a module's file, which Debian calls otherwise than NVIDIA does."""
    stem = module.replace("_", "-")
    if module != "nouveau" and (package is None or package.debian):
        stem = stem.replace("nvidia", "nvidia-current", 1)
    return stem


def installed_package(root: Path) -> Package | None:
    """The installed package that brings the NVIDIA modules; the newest where several do."""
    done = subprocess.run(
        [
            "dpkg-query",
            f"--admindir={root / 'var/lib/dpkg'}",
            "-W",
            "-f",
            "${db:Status-Abbrev} ${Package} ${Version}\n",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = []
    for line in done.stdout.splitlines():
        status, name, version = line.split()
        if status.startswith("ii") and _PACKAGES.fullmatch(name):
            upstream = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)", version)
            if upstream:
                sources = root / f"usr/src/nvidia-{upstream.group(1)}"
                found.append(Package(name, upstream.group(1), debian=not sources.is_dir()))
    return max(found, key=lambda package: [int(part) for part in package.version.split(".")], default=None)


def read_configuration(root: Path) -> Configuration:
    """What /etc, /run and /usr/lib/modprobe.d say; a file hides those of the same name behind it."""
    files: dict[str, Path] = {}
    for folder in ("usr/lib/modprobe.d", "lib/modprobe.d", "run/modprobe.d", "etc/modprobe.d"):
        files.update({path.name: path for path in sorted((root / folder).glob("*.conf"))})
    result = Configuration()
    for path in (files[name] for name in sorted(files)):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in text.replace("\\\n", " ").splitlines():
            words = line.split(None, 2)
            if len(words) < 2 or words[0].startswith("#"):
                continue
            name = words[1].replace("-", "_")
            if words[0] == "blacklist":
                result.blacklisted.add(module_name(name))
            elif words[0] == "install" and len(words) == 3:
                result.install[name] = words[2]
            elif words[0] == "options" and len(words) == 3:
                result.options.setdefault(module_name(name), []).extend(shlex.split(words[2]))
    return result


def forbidden(configuration: Configuration, name: str) -> bool:
    """An install command such as /bin/false keeps the module out; Debian's own install commands call modprobe."""
    command = configuration.install.get(name, "").split()
    return bool(command) and command[0].rpartition("/")[2] in ("false", "true", ":")


class Driver:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.store = machine.store

    def load(self, name: str, parameters: Iterable[str] = ()) -> None:
        """Load a module and those it needs. Raises ModuleError with the tools' own words."""
        for needed in MODULES[name]:
            self.load(needed)
        if name in self.machine.loaded():
            return
        if name == "nouveau":
            if "nvidia" not in self.machine.loaded():
                self._log(f"nouveau {self.machine.address(slot)}: NVIDIA GPU" for slot in self._slots())
        else:
            self._check_package(name)
            self._depmod()
        if name == "nvidia":
            self._load_nvidia(list(parameters))
        self._set_modules([*self.machine.loaded(), name])
        if name == "nvidia":
            # nvidia-modprobe would load it at the first use.
            self.load("nvidia_uvm")

    def _slots(self) -> list[int]:
        return self.machine.present_slots(self.store.state())

    def _check_package(self, name: str) -> None:
        state = self.store.state()
        if state.get("driver.version") or (installed_package(self.machine.root) and state.get("module.built") != "0"):
            return
        raise ModuleError(f"FATAL: Module {name.replace('_', '-')} not found in directory {_module_folder()}")

    def _depmod(self) -> None:
        """Enter the modules into the kernel's list, as depmod does: nvidia-cdi-refresh looks there."""
        path = self.machine.root / _module_folder().lstrip("/") / "modules.dep"
        present = path.read_text(encoding="utf-8") if path.is_file() else ""
        package = installed_package(self.machine.root)
        names = [module_file(name, package) for name in MODULES if name != "nouveau"]
        if f"/{names[0]}.ko:" not in present:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(present + "".join(f"updates/dkms/{name}.ko:\n" for name in names), encoding="utf-8")

    def _load_nvidia(self, parameters: list[str]) -> None:
        package, state = installed_package(self.machine.root), self.store.state()
        version = state.get("driver.version") or (package.version if package else "")
        hardware, slots = self.store.hardware(), self._slots()
        if "nouveau" in self.machine.loaded() and slots:
            self._log(
                [
                    "nvidia: loading out-of-tree module taints kernel.",
                    f"NVRM: The NVIDIA probe routine was not called for {len(slots)} device(s).",
                    "NVRM: This can occur when a driver such as:",
                    "NVRM: nouveau, rivafb, nvidiafb or rivatv",
                    "NVRM: was loaded and obtained ownership of the NVIDIA device(s).",
                    "NVRM: Try unloading the conflicting kernel module (and/or",
                    "NVRM: reconfigure your kernel without the conflicting driver(s)), then try "
                    "loading the NVIDIA kernel module again.",
                    "NVRM: No NVIDIA devices probed.",
                ]
            )
            raise ModuleError("ERROR: could not insert 'nvidia': No such device")
        working = [slot for slot in slots if lookup(state, hardware, slot, "lost") != "1"]
        lines = []
        for slot in slots:
            if slot not in working:
                address = self.machine.address(slot)
                lines += [
                    f"NVRM: The NVIDIA GPU {address} (PCI ID: 10de:{hardware['gpu.pci.device_id'][2:6]})",
                    "NVRM: installed in this system has fallen off the bus and is not responding to commands.",
                    f"nvidia: probe of {address} failed with error -1",
                ]
        if slots and not working:
            self._log([*lines, "NVRM: None of the NVIDIA devices were initialized."])
            raise ModuleError("ERROR: could not insert 'nvidia': No such device")
        self._log([*lines, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {version}"])
        options = [*read_configuration(self.machine.root).options.get("nvidia", []), *parameters]
        with self.store.change() as state:
            state["driver.loaded"] = version
            state["driver.loaded_at"] = str(int(time.time()))
            state["driver.cuda"] = str(cuda_version(version))
            state["driver.gpus"] = ",".join(map(str, working))
            state["driver.open"] = "1" if package and package.open else "0"
            state["driver.parameters"] = " ".join(options)

    def unload(self, name: str, force: bool = False) -> None:
        """Unload one module; refused while another module or a process uses it."""
        loaded = self.machine.loaded()
        if name not in loaded:
            raise ModuleError(f"ERROR: Module {name} is not currently loaded")
        users = [other for other in loaded if name in MODULES[other]]
        if users:
            raise ModuleError(f"ERROR: Module {name} is in use by: {' '.join(users)}")
        if name == "nvidia" and not force and library_users(self.machine.root):
            raise ModuleError(f"ERROR: Module {name} is in use")
        if name == "nvidia":
            with self.store.change() as state:
                for slot in self.store.slots():
                    faults.unload(state, self.store.hardware(), slot)
                _forget_loading(state)
        self._set_modules([other for other in loaded if other != name])

    def unload_all(self, force: bool = False) -> None:
        """Unload every NVIDIA module, as Debian's remove command for nvidia does."""
        for name in reversed(list(MODULES)):
            if name != "nouveau" and name in self.machine.loaded():
                self.unload(name, force)

    def boot(self) -> None:
        """What a start of the machine does: nothing is loaded, then the modules that match the hardware are."""
        with self.store.change() as state:
            for slot in self.store.slots():
                faults.reboot(state, self.store.hardware(), slot)
            _forget_loading(state)
            state.pop("modules", None)
        self.machine.mount()
        self.machine.write_pci()
        self.machine.write_modules()
        configuration = read_configuration(self.machine.root)
        for name in ("nouveau", "nvidia"):
            if name in configuration.blacklisted or forbidden(configuration, name):
                continue
            if name == "nvidia" and not (
                self.store.state().get("driver.version") or installed_package(self.machine.root)
            ):
                continue
            try:
                self.load(name)
            except ModuleError as error:
                self._log([f"systemd-udevd: {name}: {error}"])

    def _set_modules(self, modules: list[str]) -> None:
        with self.store.change() as state:
            state["modules"] = ",".join(modules)
        self.machine.write_modules()

    def _log(self, lines: Iterable[str]) -> None:
        kernel_log.append(self.machine.root, lines)


class ModuleError(SimulatorError):
    """A module can't be loaded or unloaded; the message is what modprobe or rmmod says behind its name."""


def cuda_version(driver: str) -> int:
    """The newest CUDA that a driver serves, as NVML writes it: 12040 is 12.4."""
    branch = int(driver.partition(".")[0])
    known = [number for number in sorted(_CUDA) if number <= branch]
    return _CUDA[known[-1] if known else min(_CUDA)]


def _forget_loading(state: dict[str, str]) -> None:
    """Take back what came of loading the module; module and library are of one version the next time."""
    for key in [key for key in state if key.startswith("driver.") and key != "driver.version"]:
        del state[key]
    state.pop("library.version", None)


def library_users(root: Path) -> list[int]:
    """Processes that hold the driver open: those which have a simulated library mapped."""
    found = []
    for maps in (root / "proc").glob("[0-9]*/maps"):
        try:
            if re.search(r"/usr/local/lib/simgpu/libnvidia-", maps.read_text(encoding="utf-8", errors="replace")):
                found.append(int(maps.parent.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def _module_folder() -> str:
    release = subprocess.run(["uname", "-r"], capture_output=True, text=True, check=True).stdout.strip()
    return f"/lib/modules/{release}"
