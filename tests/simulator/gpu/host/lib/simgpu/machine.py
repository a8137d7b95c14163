# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the kernel would show of the simulated GPUs: PCI devices, modules, /proc/driver/nvidia, device nodes.

A test host is a container: its kernel has none of this. Small tmpfs mounts over /proc/driver, /sys/module and
/sys/bus/pci take the files; /proc/modules and /proc/devices are covered by files where the kernel has them.
With another root than / (tests) the files go below it and nothing is mounted and no node made.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from .state import Store, Values, lookup

RUN = "run/simgpu"
# Module: those it needs. Their order is that of loading.
MODULES = {
    "nvidia": (),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset",),
    "nvidia_uvm": ("nvidia",),
    "nvidia_peermem": ("nvidia",),
    "nouveau": (),
}
_SIZES = {
    "nvidia": 60710912,
    "nvidia_modeset": 1540096,
    "nvidia_drm": 122880,
    "nvidia_uvm": 4911104,
    "nvidia_peermem": 16384,
    "nouveau": 3153920,
}


class Machine:
    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.store = Store(root)
        self.real = root == Path("/")

    # --- state of modules ---

    def loaded(self) -> list[str]:
        return [name for name in self.store.state().get("modules", "").split(",") if name]

    def present_slots(self, values: Mapping[str, str]) -> list[int]:
        """GPUs that are on the PCI bus."""
        hardware = self.store.hardware()
        return [slot for slot in self.store.slots() if lookup(values, hardware, slot, "absent") != "1"]

    def address(self, slot: int) -> str:
        return self.store.hardware()[f"gpu.{slot}.pci.bus_id"]

    # --- files ---

    def mount(self) -> None:
        """Cover the kernel's own files; once a boot."""
        if not self.real:
            return
        run = self.root / RUN
        run.mkdir(parents=True, exist_ok=True)
        self._tmpfs(Path("/proc/driver"))
        if Path("/sys/bus/pci").is_dir():
            self._tmpfs(Path("/sys/bus/pci"))
        else:
            self._tmpfs_beside(Path("/sys/bus"))
            Path("/sys/bus/pci").mkdir(exist_ok=True)
        self._tmpfs_beside(Path("/sys/module"))
        for name in ("modules", "devices"):
            source, target = run / name, Path("/proc") / name
            if target.exists() and not os.path.ismount(target):
                source.write_text(target.read_text(encoding="utf-8"), encoding="utf-8")
                shutil.copyfile(source, run / f"{name}.kernel")
                _command("mount", "--bind", str(source), str(target))

    def _tmpfs(self, target: Path) -> None:
        if not os.path.ismount(target):
            _command("mount", "-t", "tmpfs", "-o", "mode=0755,size=16m", "simgpu", str(target))

    def _tmpfs_beside(self, target: Path) -> None:
        """A tmpfs that shows the entries which the kernel has there as links, without real NVIDIA modules."""
        if os.path.ismount(target):
            return
        kept = self.root / RUN / target.name
        kept.mkdir(parents=True, exist_ok=True)
        _command("mount", "--bind", str(target), str(kept))
        self._tmpfs(target)
        for entry in kept.iterdir():
            if entry.name not in MODULES:
                (target / entry.name).symlink_to(entry)

    def write_pci(self) -> None:
        """Every GPU and NVSwitch of the machine, whether a driver is bound to it or not."""
        pci = self.root / "sys/bus/pci"
        for name in ("devices", "drivers"):
            shutil.rmtree(pci / name, ignore_errors=True)
            (pci / name).mkdir(parents=True)
        state, hardware = self.store.state(), self.store.hardware()
        for slot in self.present_slots(state):
            self._write_device(pci / "devices" / self.address(slot), slot, state, hardware)
        for address in filter(None, hardware.get("gpu.nvlink.switches", "").split(",")):
            identifier = hardware.get("gpu.nvlink.switch_device_id", "0x22a310de")
            _write_tree(
                pci / "devices" / address,
                {
                    **_identity(identifier, identifier[:6] + "10de", "0x068000"),
                    "numa_node": "0",
                    "local_cpulist": _cpus(hardware, 0),
                },
            )
        self.bind_drivers()

    def _write_device(self, folder: Path, slot: int, state: Values, hardware: Values) -> None:
        def value(key: str, otherwise: str = "0") -> str:
            return lookup(state, hardware, slot, key) or otherwise

        node = int(value("numa_node"))
        _write_tree(
            folder,
            {
                **_identity(value("pci.device_id"), value("pci.subsystem_id"), value("pci.class")),
                "numa_node": str(node),
                "local_cpulist": value("cpus"),
                "max_link_speed": _speed(value("pcie.generation.max", "5")),
                "current_link_speed": _speed(value("pcie.generation.current", value("pcie.generation.idle", "5"))),
                "max_link_width": value("pcie.width.max", "16"),
                "current_link_width": value("pcie.width.current", value("pcie.width.max", "16")),
                "irq": str(100 + slot),
                "power_state": "D0",
                "enable": "1",
            },
        )

    def bind_drivers(self) -> None:
        """drivers/DRIVER/ADDRESS and devices/ADDRESS/driver for the driver that holds the GPUs."""
        pci = self.root / "sys/bus/pci"
        for device in (pci / "devices").iterdir():
            with contextlib.suppress(FileNotFoundError):
                (device / "driver").unlink()
        for name in ("nvidia", "nouveau"):
            shutil.rmtree(pci / "drivers" / name, ignore_errors=True)
        for name, slots in self._bound().items():
            folder = pci / "drivers" / name
            folder.mkdir(parents=True)
            for slot in slots:
                address = self.address(slot)
                (folder / address).symlink_to(f"../../devices/{address}")
                (pci / "devices" / address / "driver").symlink_to(f"../../drivers/{name}")

    def _bound(self) -> dict[str, list[int]]:
        state, modules = self.store.state(), self.loaded()
        if "nouveau" in modules:
            return {"nouveau": self.present_slots(state)} | ({"nvidia": []} if "nvidia" in modules else {})
        if "nvidia" in modules:
            return {"nvidia": [int(slot) for slot in state.get("driver.gpus", "").split(",") if slot]}
        return {}

    def write_modules(self) -> None:
        """/sys/module, /proc/modules, /proc/driver/nvidia and the device nodes for the modules loaded now."""
        modules, state = self.loaded(), self.store.state()
        version = state.get("driver.loaded", "")
        for name in MODULES:
            folder = self.root / "sys/module" / name
            shutil.rmtree(folder, ignore_errors=True)
            if name not in modules:
                continue
            users = [other for other in modules if name in MODULES[other]]
            files = {"initstate": "live", "refcnt": str(len(users)), "coresize": str(_SIZES[name]), "taint": ""}
            if name != "nouveau":
                files |= {"version": version, "taint": "POE"}
            if name == "nvidia_drm":
                files |= {"parameters/modeset": "N"}
            _write_tree(folder, files)
            (folder / "holders").mkdir()
        lines = [
            f"{name} {_SIZES[name]} {len(users)} {''.join(user + ',' for user in users) or '-'} Live 0x0000000000000000"
            for name in reversed(modules)
            for users in [[other for other in modules if name in MODULES[other]]]
        ]
        self._cover("modules", lines)
        majors = [f"{major} {name}" for name, major in self.majors().items() if self._has_nodes(name, modules)]
        self._cover("devices", majors)
        self._write_proc_driver("nvidia" in modules, state)
        self._write_nodes(modules, state)
        self.bind_drivers()

    @staticmethod
    def _has_nodes(name: str, modules: Iterable[str]) -> bool:
        return ("nvidia_uvm" if name == "nvidia-uvm" else "nvidia") in modules

    def _cover(self, name: str, lines: list[str]) -> None:
        """Write the kernel's own lines and ours; in place, since the file is mounted over the kernel's."""
        run = self.root / RUN
        run.mkdir(parents=True, exist_ok=True)
        kernel = run / f"{name}.kernel"
        theirs = kernel.read_text(encoding="utf-8").splitlines() if kernel.is_file() else []
        if name == "devices" and theirs:
            end = theirs.index("") if "" in theirs else len(theirs)  # character devices come first
            whole = theirs[:end] + [f"{line:>3}" for line in lines] + theirs[end:]
        else:
            whole = lines + [line for line in theirs if line.split(" ")[0] not in MODULES]
        (run / name).write_text("".join(f"{line}\n" for line in whole), encoding="utf-8")

    def _write_proc_driver(self, loaded: bool, state: Values) -> None:
        folder = self.root / "proc/driver/nvidia"
        shutil.rmtree(folder, ignore_errors=True)
        if not loaded:
            return
        version = state["driver.loaded"]
        kind = (
            "NVIDIA UNIX Open Kernel Module for x86_64"
            if state.get("driver.open") == "1"
            else "NVIDIA UNIX x86_64 Kernel Module"
        )
        files = {
            "version": f"NVRM version: {kind}  {version}  Release Build\n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)",
            "params": "".join(f"{name}: {value}\n" for name, value in self._parameters(state).items()).rstrip("\n"),
            "registry": 'Binary: ""',
        }
        for minor, slot in enumerate(_numbers(state.get("driver.gpus", ""))):
            files[f"gpus/{self.address(slot)}/information"] = self._information(slot, minor, state)
        _write_tree(folder, files)

    @staticmethod
    def _parameters(state: Values) -> dict[str, str]:
        values = {
            "ResmanDebugLevel": "4294967295",
            "RmLogonRC": "1",
            "ModifyDeviceFiles": "1",
            "DeviceFileUID": "0",
            "DeviceFileGID": "0",
            "DeviceFileMode": "438",
            "UsePageAttributeTable": "4294967295",
            "EnableMSI": "1",
            "RmProfilingAdminOnly": "1",
            "PreserveVideoMemoryAllocations": "0",
            "EnableStreamMemOPs": "0",
            "EnablePCIERelaxedOrderingMode": "0",
            "OpenRmEnableUnsupportedGpus": "1",
        }
        given = (word.partition("=") for word in state.get("driver.parameters", "").split())
        renamed = {"NVreg_RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
        for name, _equals, value in given:
            values[renamed.get(name, name[len("NVreg_") :] if name.startswith("NVreg_") else name)] = value
        return values

    def _information(self, slot: int, minor: int, state: Values) -> str:
        hardware = self.store.hardware()

        def value(key: str) -> str:
            return lookup(state, hardware, slot, key) or ""

        lost = value("lost") == "1"
        firmware = state["driver.loaded"] if value("gsp") == "1" else "N/A"
        lines = [
            f"Model: \t\t {value('name')}",
            f"IRQ:   \t\t {100 + slot}",
            f"GPU UUID: \t {'GPU-????????-????-????-????-????????????' if lost else value('uuid')}",
            f"Video BIOS: \t {'??.??.??.??.??' if lost else value('vbios').lower()}",
            "Bus Type: \t PCIe",
            "DMA Size: \t 52 bits" if value("architecture") == "hopper" else "DMA Size: \t 47 bits",
            "DMA Mask: \t 0xfffffffffffff" if value("architecture") == "hopper" else "DMA Mask: \t 0x7fffffffffff",
            f"Bus Location: \t {self.address(slot)}",
            f"Device Minor: \t {minor}",
            f"GPU Firmware: \t {firmware}",
            "GPU Excluded:\t No",
        ]
        return "\n".join(lines)

    # --- device nodes ---

    def majors(self) -> dict[str, int]:
        """The nodes' numbers: NVIDIA's 195 and a free one, unless the outer machine's real driver has them."""
        taken: set[int] = set()
        with contextlib.suppress(FileNotFoundError):
            kernel = self.root / RUN / "devices.kernel"
            text = (kernel if kernel.is_file() else self.root / "proc/devices").read_text(encoding="utf-8")
            words = (line.split() for line in text.partition("Block devices")[0].splitlines())
            taken = {int(pair[0]) for pair in words if len(pair) == 2 and pair[0].isdigit()}
        free = (number for number in (195, *range(510, 384, -1)) if number not in taken)
        return {"nvidia": next(free), "nvidia-uvm": next(free)}

    def _write_nodes(self, modules: list[str], state: Values) -> None:
        if not self.real:
            return
        wanted: dict[str, tuple[int, int]] = {}
        majors = self.majors()
        if "nvidia" in modules:
            wanted["nvidiactl"] = (majors["nvidia"], 255)
            for minor, _gpu in enumerate(_numbers(state.get("driver.gpus", ""))):
                wanted[f"nvidia{minor}"] = (majors["nvidia"], minor)
        if "nvidia_modeset" in modules:
            wanted["nvidia-modeset"] = (majors["nvidia"], 254)
        if "nvidia_uvm" in modules:
            wanted["nvidia-uvm"] = (majors["nvidia-uvm"], 0)
            wanted["nvidia-uvm-tools"] = (majors["nvidia-uvm"], 1)
        for path in Path("/dev").glob("nvidia*"):
            if path.is_char_device():
                number = path.stat().st_rdev
                if wanted.get(path.name) == (os.major(number), os.minor(number)):
                    del wanted[path.name]
                else:
                    path.unlink()
        for name, (major, minor) in wanted.items():
            node = Path("/dev") / name
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            node.chmod(0o666)


def _command(*words: str) -> None:
    subprocess.run(words, check=True)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def _cpus(hardware: Mapping[str, str], node: int) -> str:
    each = int(hardware.get("machine.cpus_per_numa_node", "1"))
    return f"{node * each}-{(node + 1) * each - 1}"


def _speed(generation: str) -> str:
    rates = {"1": "2.5", "2": "5.0", "3": "8.0", "4": "16.0", "5": "32.0", "6": "64.0"}
    return f"{rates.get(generation, '32.0')} GT/s PCIe"


def _identity(device: str, subsystem: str, class_code: str) -> dict[str, str]:
    """The numbers of sysfs from NVML's, whose lower half is the vendor."""
    return {
        "vendor": f"0x{device[-4:].lower()}",
        "device": f"0x{device[2:-4].lower()}",
        "subsystem_vendor": f"0x{subsystem[-4:].lower()}",
        "subsystem_device": f"0x{subsystem[2:-4].lower()}",
        "class": class_code,
        "revision": "0xa1",
        "modalias": (
            f"pci:v0000{device[-4:].upper()}d0000{device[2:-4].upper()}sv0000{subsystem[-4:].upper()}"
            f"sd0000{subsystem[2:-4].upper()}bc{class_code[2:4]}sc{class_code[4:6]}i{class_code[6:8]}"
        ),
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 7),
    }


def _config(files: Mapping[str, str]) -> bytes:
    """The first 64 bytes of PCI configuration space, for lspci."""
    space = bytearray(64)
    space[0:2] = int(files["vendor"], 16).to_bytes(2, "little")
    space[2:4] = int(files["device"], 16).to_bytes(2, "little")
    space[4:8] = (0x00100006).to_bytes(4, "little")
    space[8] = int(files["revision"], 16)
    space[9:12] = int(files["class"], 16).to_bytes(3, "little")
    space[44:46] = int(files["subsystem_vendor"], 16).to_bytes(2, "little")
    space[46:48] = int(files["subsystem_device"], 16).to_bytes(2, "little")
    return bytes(space)


def _write_tree(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    if "modalias" in files:
        (folder / "config").write_bytes(_config(files))
