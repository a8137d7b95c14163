# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""The NVIDIA kernel module, its library and services, and the GPUs that the PCI bus shows."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._command import RunCommand

_VERSION = re.compile(r"\b(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\b")
_LIBRARY_DIRECTORIES = (
    "usr/lib/*-linux-gnu/nvidia/current",
    "usr/lib/*-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "run/nvidia/driver/usr/lib/*-linux-gnu",
)
# Debian names its packaged modules after the branch; the plain name is an alias there.
_MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open", "nvidia-tesla")
_NVIDIA_VENDOR = "0x10de"
_GPU_CLASSES = ("0x0300", "0x0302")


@dataclass(frozen=True)
class Driver:
    """The driver as far as it can be seen.

    version: of the driver that answers nvidia-smi. library_version: of the libnvidia-ml that programs load.
    mismatch: a library and a kernel module of different versions, so that nothing works until a reload or reboot.
    """

    version: str | None = None
    cuda_version: str | None = None
    kernel_module_loaded: bool = False
    kernel_module_loaded_version: str | None = None
    kernel_module_installed_version: str | None = None
    kernel_module_flavour: str | None = None
    library_version: str | None = None
    mismatch: bool = False
    nouveau_loaded: bool = False
    persistence_daemon_running: bool = False
    fabric_manager_installed: bool = False
    fabric_manager_version: str | None = None
    fabric_manager_state: str | None = None
    fabric_manager_matches_driver: bool | None = None


@dataclass(frozen=True)
class PciGpu:
    """A GPU on the PCI bus.

    driver: the kernel driver bound to it. numa_node, cpu_affinity: None where the kernel knows none. slot_lanes: the
    most that the port above the GPU can use.
    """

    pci_bus_id: str
    driver: str | None
    numa_node: int | None
    cpu_affinity: str | None
    slot_lanes: int | None


def read_text(path: str) -> str | None:
    """Return a small file's words without the line end, None where it can't be read or is empty."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536).strip() or None
    except OSError:
        return None


def pci_gpus(root: str) -> list[PciGpu]:
    """Return the NVIDIA display and 3D controllers under /sys, in bus order."""
    found = []
    for device in sorted(glob.glob(os.path.join(glob.escape(root), "sys/bus/pci/devices/*"))):
        if read_text(os.path.join(device, "vendor")) != _NVIDIA_VENDOR:
            continue
        if not (read_text(os.path.join(device, "class")) or "").startswith(_GPU_CLASSES):
            continue
        driver = os.path.join(device, "driver")
        numa = read_text(os.path.join(device, "numa_node"))
        port = os.path.dirname(os.path.realpath(device))
        found.append(
            PciGpu(
                pci_bus_id=os.path.basename(device),
                driver=os.path.basename(os.readlink(driver)) if os.path.islink(driver) else None,
                numa_node=int(numa) if numa is not None and numa.isdecimal() else None,
                cpu_affinity=read_text(os.path.join(device, "local_cpulist")),
                slot_lanes=_lanes(read_text(os.path.join(port, "max_link_width"))),
            )
        )
    return found


def _lanes(width: str | None) -> int | None:
    """Return a number of PCIe lanes; the kernel shows 0 or 255 where the hardware says nothing."""
    return int(width) if width is not None and width.isdecimal() and 1 <= int(width) <= 32 else None


def driver_gpus(root: str) -> list[str]:
    """Return the addresses of the GPUs that the loaded driver took over, in bus order."""
    return sorted(
        os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(root), "proc/driver/nvidia/gpus/*"))
    )


def parse_proc_version(content: str) -> tuple[str | None, str | None]:
    """Read /proc/driver/nvidia/version: the module's version and flavour ("open" or "proprietary")."""
    line = next((line for line in content.splitlines() if "NVRM version" in line), "")
    version = _VERSION.search(line)
    if version is None:
        return None, None
    return version[1], "open" if "Open Kernel Module" in line else "proprietary"


def library_version(root: str) -> str | None:
    """Return the version in the name of the file that libnvidia-ml.so.1 leads to."""
    for directory in _LIBRARY_DIRECTORIES:
        for library in sorted(glob.glob(os.path.join(glob.escape(root), directory, "libnvidia-ml.so.1"))):
            match = _VERSION.search(os.path.basename(_resolve(library, root)))
            if match:
                return match[1]
    return None


def _resolve(path: str, root: str) -> str:
    """Follow links as a process whose root directory is root would."""
    for _step in range(16):
        if not os.path.islink(path):
            break
        target = os.readlink(path)
        base = root if target.startswith("/") else os.path.dirname(path)
        path = os.path.join(base, target.lstrip("/"))
    return path


def read_driver(root: str, run: RunCommand, timeout: float) -> Driver:
    """Collect what is known without nvidia-smi. Commands are asked about this machine only, that is for root "/"."""
    proc = read_text(os.path.join(root, "proc/driver/nvidia/version"))
    loaded_version, flavour = parse_proc_version(proc) if proc else (None, None)
    loaded = proc is not None or os.path.isdir(os.path.join(root, "sys/module/nvidia"))
    loaded_version = loaded_version or read_text(os.path.join(root, "sys/module/nvidia/version"))
    installed_version: str | None = None
    if os.path.abspath(root) == "/":
        installed_version, installed_flavour = _installed_module(run, timeout)
        flavour = flavour or installed_flavour
    fabric_manager = _fabric_manager(root, run, timeout)
    return Driver(
        kernel_module_loaded=loaded,
        kernel_module_loaded_version=loaded_version,
        kernel_module_installed_version=installed_version,
        kernel_module_flavour=flavour,
        library_version=library_version(root),
        nouveau_loaded=os.path.isdir(os.path.join(root, "sys/module/nouveau")),
        persistence_daemon_running=_runs(root, "run/nvidia-persistenced/nvidia-persistenced.pid"),
        fabric_manager_installed=fabric_manager.installed,
        fabric_manager_version=fabric_manager.version,
        fabric_manager_state=fabric_manager.state,
    )


def _installed_module(run: RunCommand, timeout: float) -> tuple[str | None, str | None]:
    for name in _MODULE_NAMES:
        result = run(["modinfo", name], timeout)
        if result.missing or result.timed_out:
            return None, None
        if result.rc != 0:
            continue
        fields = dict(line.split(":", 1) for line in reversed(result.out.splitlines()) if ":" in line)
        version = _VERSION.search(fields.get("version", ""))
        licence = fields.get("license", "").strip()
        flavour = None if not licence else "proprietary" if licence == "NVIDIA" else "open"
        return (version[1] if version else None), flavour
    return None, None


def _runs(root: str, pid_file: str) -> bool:
    pid = read_text(os.path.join(root, pid_file))
    return pid is not None and pid.isdecimal() and os.path.isdir(os.path.join(root, "proc", pid))


@dataclass(frozen=True)
class _FabricManager:
    installed: bool
    version: str | None
    state: str | None


def _fabric_manager(root: str, run: RunCommand, timeout: float) -> _FabricManager:
    if not os.path.exists(os.path.join(root, "usr/bin/nv-fabricmanager")):
        return _FabricManager(False, None, None)
    if os.path.abspath(root) != "/":
        return _FabricManager(True, None, None)
    match = _VERSION.search(run(["nv-fabricmanager", "--version"], timeout).out)
    state = run(["systemctl", "is-active", "nvidia-fabricmanager.service"], timeout).out.strip()
    return _FabricManager(True, match[1] if match else None, state or None)
