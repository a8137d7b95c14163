# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What a person must know about a machine's GPUs, and what to do about it.

Sources of the rules: NVIDIA's GPU debug guidelines, memory error management guide and nvidia-smi's manual page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import Driver, PciGpu
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import INCOMPLETE, LOST, OK, Device, SmiReport
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import pci_bus_id

CRITICAL = "critical"
WARNING = "warning"
INFO = "info"

# "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"
_INFOROM = re.compile(r"^.*infoROM is corrupted(?: at gpu (?P<pci>[0-9a-f:.]+))?.*$", re.IGNORECASE | re.MULTILINE)
# A GPU in one of these states runs work, so its PCIe link must be at full speed.
_BUSY_STATES = frozenset({"P0", "P1", "P2"})
_BUSY_PERCENT = 10
# Boards of a baseboard whose name doesn't say so.
_BASEBOARDS = frozenset({"h20", "h200", "h800", "b200", "b300", "gb200", "gb300"})
# The others leave the GPU working, with less bandwidth or for a moment not.
_SEVERE_FABRIC_FAULTS = ("route_unhealthy", "incorrect_configuration")
# A board has room for 64 retired pages; from here on it is replaced.
_MANY_RETIRED_PAGES = 60
# Why a GPU that still sits on the bus can't be opened.
_NO_ACCESS = (
    (
        "insufficiently powered",
        "gpu_power_missing",
        "A GPU gets too little power to work.",
        "Switch the machine off and see that every power cable of the board is attached and firmly seated.",
    ),
    (
        "insufficient permissions",
        "permission_denied",
        "This user may not open a GPU.",
        "Become root, or give the user the device nodes /dev/nvidia*.",
    ),
    (
        "blocked by the operating system",
        "gpu_access_blocked",
        "The operating system or the container keeps nvidia-smi from a GPU.",
        "See that the container gets the device.",
    ),
)
_RECOVERY = {
    "reset": "Drain the node and reset the GPU (nvidia-smi --gpu-reset -i {gpu}).",
    "gpu reset": "Drain the node and reset the GPU (nvidia-smi --gpu-reset -i {gpu}).",
    "reboot": "Drain the node and reboot it.",
    "node reboot": "Drain the node and reboot it.",
    "os reboot": "Drain the node and reboot it.",
    "drain p2p": "Let the jobs on this GPU end, then reset all GPUs that NVLink joins to it.",
    "drain and reset": "Drain the node, let its jobs end and reset the GPU (nvidia-smi --gpu-reset -i {gpu}).",
    "recover imex domain": "Restart nvidia-imex on all nodes of the NVLink domain.",
}


@dataclass(frozen=True)
class Problem:
    """A finding.

    severity: "critical" (no job belongs on it), "warning" or "info". gpu: its index, None for the whole machine.
    """

    severity: str
    code: str
    gpu: int | None
    message: str
    evidence: str
    action: str


def of_driver(driver: Driver, gpus_on_bus: Sequence[PciGpu]) -> Iterator[Problem]:
    """Yield what is wrong with the driver, whether nvidia-smi answers or not."""
    if driver.nouveau_loaded:
        yield Problem(
            CRITICAL if gpus_on_bus else WARNING,
            "nouveau_loaded",
            None,
            "The free driver nouveau is loaded, which keeps NVIDIA's driver from the GPUs.",
            "/sys/module/nouveau is there",
            "Block nouveau (role nvidia_driver does) and reboot.",
        )
    loaded, installed = driver.kernel_module_loaded_version, driver.kernel_module_installed_version
    if driver.mismatch:
        yield Problem(
            CRITICAL,
            "driver_library_mismatch",
            None,
            "The loaded kernel module and the driver's library are of different versions; no program can use a GPU.",
            f"kernel module {loaded or 'unknown'}, library {driver.library_version or 'unknown'}",
            "Drain the node and reboot it, or unload and load the nvidia modules while nothing uses a GPU.",
        )
    elif loaded and installed and loaded != installed:
        yield Problem(
            WARNING,
            "driver_reload_pending",
            None,
            "Another version of the kernel module is installed than is loaded; it takes effect at the next boot.",
            f"loaded {loaded}, installed {installed}",
            "Drain the node and reboot it at a time that suits.",
        )
    if driver.fabric_manager_matches_driver is False:
        yield Problem(
            CRITICAL,
            "fabric_manager_mismatch",
            None,
            "The fabric manager is of another version than the driver and refuses to start.",
            f"fabric manager {driver.fabric_manager_version}, driver {driver.version}",
            "Install the fabric manager of the driver's version.",
        )


def of_report(report: SmiReport, devices: Sequence[Device], gpus_on_bus: Sequence[PciGpu]) -> Iterator[Problem]:
    """Yield what a report of nvidia-smi shows. devices: the report's, completed by topology and links."""
    if report.truncated:
        yield Problem(
            CRITICAL,
            "nvidia_smi_output_truncated",
            None,
            "nvidia-smi stopped in the middle of its report.",
            f"{len(devices)} GPUs listed of {_known(report.attached_gpus)} attached, no closing tag",
            "Look at the kernel log for Xid messages; a GPU that hangs the driver needs a reboot.",
        )
    yield from _missing(report, devices, gpus_on_bus)
    for device in devices:
        yield from _of_device(device, report, alone=len(devices) == 1)
    models = sorted({device.model for device in devices if device.state == OK and device.model})
    if len(models) > 1:
        yield Problem(
            WARNING,
            "models_mixed",
            None,
            "The machine holds GPUs of different models; a job that gets both runs at the speed of the slower.",
            ", ".join(models),
            "Declare each model with its own Slurm type, or use boards of one model.",
        )


def _missing(report: SmiReport, devices: Sequence[Device], gpus_on_bus: Sequence[PciGpu]) -> Iterator[Problem]:
    for handle in report.no_handles:
        yield no_handle(handle.index, handle.line)
    listed = {device.pci_bus_id for device in devices} | {handle.pci_bus_id for handle in report.no_handles}
    absent = [gpu for gpu in gpus_on_bus if gpu.pci_bus_id not in listed and gpu.driver != "vfio-pci"]
    for gpu in absent:
        yield Problem(
            CRITICAL,
            "gpu_missing",
            None,
            f"The PCI bus shows a GPU at {gpu.pci_bus_id} that nvidia-smi doesn't list.",
            f"kernel driver in use: {gpu.driver or 'none'}",
            "Look at the kernel log for the driver's reason (RmInitAdapter failed, fallen off the bus, not supported).",
        )
    elsewhere = [handle for handle in report.no_handles if handle.index not in {device.index for device in devices}]
    counted = len(devices) + len(elsewhere)
    if not absent and report.attached_gpus is not None and report.attached_gpus > counted:
        yield Problem(
            CRITICAL,
            "gpu_missing",
            None,
            f"The driver counts {report.attached_gpus} GPUs, but nvidia-smi reports on {counted}.",
            f"attached_gpus {report.attached_gpus}",
            "Look at the kernel log for Xid 79 (fallen off the bus) and reboot the node.",
        )


def inforom_corrupted(words: str, devices: Sequence[Device]) -> list[Problem]:
    """Return a problem for each GPU that nvidia-smi names so. words: whatever it printed."""
    indices = {device.pci_bus_id: device.index for device in devices}
    lines = {pci_bus_id(match["pci"]): match[0].strip() for match in _INFOROM.finditer(words)}
    return [
        Problem(
            WARNING,
            "inforom_corrupted",
            indices.get(address),
            "The GPU's infoROM is spoilt: its serial number, counts of errors and settings can't be trusted.",
            line,
            "Drain the node and have the GPU replaced (RMA) if a reboot doesn't help.",
        )
        for address, line in lines.items()
    ]


def no_handle(index: int | None, line: str) -> Problem:
    """Return the problem of a GPU that the driver can't open."""
    for phrase, code, message, action in _NO_ACCESS:
        if phrase in line.lower():
            return Problem(CRITICAL, code, index, message, line, action)
    return Problem(
        CRITICAL,
        "gpu_lost",
        index,
        "The driver can't reach a GPU any more; it has most likely fallen off the bus.",
        line,
        "Drain the node and reboot it; if the GPU is lost again, check its seat and power, then have it replaced.",
    )


def _of_device(device: Device, report: SmiReport, alone: bool) -> Iterator[Problem]:
    gpu = device.index
    where = f"{device.model or 'GPU'} at {device.pci_bus_id or 'an unknown address'}"
    if device.state == LOST:
        if gpu not in {handle.index for handle in report.no_handles}:
            yield no_handle(gpu, f"{where}: nvidia-smi says GPU is lost or Unknown Error for its values")
        return
    if device.state == INCOMPLETE:
        yield Problem(
            CRITICAL,
            "gpu_report_incomplete",
            gpu,
            "nvidia-smi's report on this GPU breaks off or is spoilt; the GPU isn't counted.",
            where,
            "Run nvidia-smi -q -x by hand; if it stops at the same GPU, drain the node and reboot it.",
        )
        return
    if gpu in report.needing_reset:
        yield Problem(
            CRITICAL,
            "gpu_reset_required",
            gpu,
            "The GPU works no more until it is reset.",
            f"{where}: GPU requires reset",
            _RECOVERY["reset"].format(gpu=gpu),
        )
    if gpu in report.failed_values:
        yield Problem(
            WARNING,
            "values_unreadable",
            gpu,
            "The driver fails to read values of this GPU.",
            ", ".join(report.failed_values[gpu][:10]),
            "Look at the kernel log for Xid messages; often the GPU is about to fail or to fall off the bus.",
        )
    yield from _recovery(device)
    yield from _memory(device)
    yield from _links(device, alone)
    yield from _slowdown(device)
    yield from _modes(device)


def _recovery(device: Device) -> Iterator[Problem]:
    gpu = device.index
    if device.recovery_action is not None and device.recovery_action.lower() != "none":
        wanted = _RECOVERY.get(
            device.recovery_action.lower(), "Drain the node and follow NVIDIA's GPU debug guidelines."
        )
        yield Problem(
            CRITICAL,
            "gpu_recovery_needed",
            gpu,
            f"The driver asks for a recovery of this GPU: {device.recovery_action}.",
            f"gpu_recovery_action {device.recovery_action}",
            wanted.format(gpu=gpu),
        )
    if device.reset_required:
        yield Problem(
            CRITICAL,
            "gpu_reset_required",
            gpu,
            "The GPU works no more until it is reset.",
            "reset_required Yes",
            _RECOVERY["reset"].format(gpu=gpu),
        )
    elif device.reset_drain_recommended:
        yield Problem(
            WARNING,
            "gpu_reset_recommended",
            gpu,
            "The driver recommends a reset of this GPU once its jobs have ended.",
            "drain_and_reset_recommended Yes",
            _RECOVERY["drain and reset"].format(gpu=gpu),
        )


def _memory(device: Device) -> Iterator[Problem]:
    gpu = device.index
    reset = _RECOVERY["drain and reset"].format(gpu=gpu)
    replace = "Drain the node and have the GPU replaced (RMA)."
    if device.ecc_volatile_uncorrected:
        yield Problem(
            CRITICAL,
            "ecc_uncorrected",
            gpu,
            "The GPU's memory had errors that ECC could not correct since the driver was loaded.",
            f"volatile uncorrected errors {device.ecc_volatile_uncorrected}",
            reset,
        )
    retired = (device.retired_pages_single_bit_count or 0) + (device.retired_pages_double_bit_count or 0)
    if retired >= _MANY_RETIRED_PAGES:
        yield Problem(
            CRITICAL,
            "page_retirement_full",
            gpu,
            "So many memory pages are retired that hardly one more can be.",
            f"{retired} pages retired",
            replace,
        )
    rules = (
        (device.remapped_rows_failure, CRITICAL, "row_remap_failure", "A memory row could not be remapped.", replace),
        (
            device.remapped_rows_pending,
            WARNING,
            "row_remap_pending",
            "A memory row waits for a reset to be remapped.",
            reset,
        ),
        (
            device.retired_pages_pending,
            WARNING,
            "page_retirement_pending",
            "A memory page waits for a reset to be retired.",
            reset,
        ),
        (
            device.ecc_sram_threshold_exceeded,
            CRITICAL,
            "ecc_sram_threshold_exceeded",
            "The GPU's SRAM had more uncorrectable errors than NVIDIA allows.",
            replace,
        ),
        (
            device.ecc_channel_repair_pending,
            WARNING,
            "channel_repair_pending",
            "A memory channel waits for a reset to be repaired.",
            reset,
        ),
        (
            device.ecc_tpc_repair_pending,
            WARNING,
            "tpc_repair_pending",
            "A TPC waits for a reset to be repaired.",
            reset,
        ),
        (
            device.ecc_unrepairable_memory,
            CRITICAL,
            "memory_unrepairable",
            "The GPU's memory can't be repaired.",
            replace,
        ),
    )
    for state, severity, code, message, action in rules:
        if state:
            yield Problem(severity, code, gpu, message, f"{code} is Yes in nvidia-smi -q", action)


def _links(device: Device, alone: bool) -> Iterator[Problem]:
    gpu = device.index
    busy = device.performance_state in _BUSY_STATES or (device.utilisation_gpu_percent or 0) >= _BUSY_PERCENT
    # A GPU without memory of its own (GB10, Jetson) is part of the processor; what it says of a PCIe link is made up.
    if busy and device.memory_total_mib is not None:
        yield from _pci_link(device)
    down = [link.link for link in device.nvlink_links if not link.active]
    # A virtual machine with one GPU of a baseboard has nobody to be joined to, unless the driver knows of a fabric. A
    # divided GPU talks to none, and an A100 switches its links off.
    lonely = device.mig_mode_current == "Enabled" or (alone and device.fabric_state is None)
    joined = joined_by_nvlink(device) and not lonely
    if joined and (down or (device.nvlink_links_active == 0 and not device.nvlink_links)):
        yield Problem(
            CRITICAL,
            "nvlink_down",
            gpu,
            "NVLinks of this GPU are down; collective operations fall back to PCIe or fail.",
            f"inactive links: {', '.join(map(str, down)) if down else 'all'}",
            "See that the fabric manager runs, then drain the node and reset all its GPUs at once.",
        )
    if device.fabric_state is not None and device.fabric_state.lower() != "completed":
        yield Problem(
            CRITICAL,
            "fabric_not_completed",
            gpu,
            "The GPU hasn't joined the NVLink fabric; CUDA programs on it fail to start.",
            f"fabric state {device.fabric_state}, status {device.fabric_status or 'unknown'}",
            "Start the fabric manager of the driver's version (nvidia-fabricmanager) and read its log.",
        )
    elif device.fabric_status is not None and device.fabric_status.lower() != "success":
        yield Problem(
            CRITICAL,
            "fabric_failed",
            gpu,
            "The GPU failed to join the NVLink fabric.",
            f"fabric status {device.fabric_status}",
            "Read the fabric manager's log, then drain the node and reset all its GPUs at once.",
        )
    yield from _fabric_health(device)


_BELOW_ITS_MAXIMUM = (
    WARNING,
    "The GPU works over a PCIe link below its maximum.",
    "Reseat the board or riser and look at the replay counter; a slot with fewer lanes can't be helped.",
)
# The link is just what the slot has. A slot that has less than the link in use is an invention.
_BUILT_SO = (
    INFO,
    "The GPU could use a better PCIe link than its slot or virtual machine seems to have.",
    "Nothing, if the machine is built so; otherwise move the board to another slot.",
)


def _pci_link(device: Device) -> Iterator[Problem]:
    width, most_lanes = device.pci_link_width_current, device.pci_link_width_max
    generation, newest = device.pci_link_generation_current, device.pci_link_generation_max
    slot_lanes, slot_generation = device.pci_link_width_host_max, device.pci_link_generation_host_max
    # The driver's maximum is often the GPU's own. The kernel tells what the slot has, but not in a virtual machine, and
    # clouds give a card half of its lanes. A board of a baseboard has all of them everywhere.
    if device.virtualization_mode == "Pass-Through" and not joined_by_nvlink(device):
        slot_lanes = most_lanes // 2 if most_lanes else None
        slot_generation = newest - 1 if newest else None
    for code, what, now, best, slot in (
        ("pci_link_narrow", "lanes", width, most_lanes, slot_lanes),
        ("pci_link_slow", "PCIe generation", generation, newest, slot_generation),
    ):
        if now is None or best is None or now >= best:
            continue
        evidence = f"{what}: {now} of {best} at {device.performance_state or 'an unknown performance state'}"
        severity, message, action = _BUILT_SO if now == slot else _BELOW_ITS_MAXIMUM
        yield Problem(severity, code, device.index, message, evidence, action)


def _fabric_health(device: Device) -> Iterator[Problem]:
    summary, faults = (device.fabric_health_summary or "unknown").lower(), device.fabric_health_faults or []
    if not faults and summary in {"healthy", "unknown"}:
        return
    severe = summary == "unhealthy" or any(fault.startswith(_SEVERE_FABRIC_FAULTS) for fault in faults)
    yield Problem(
        CRITICAL if severe else WARNING,
        "fabric_unhealthy",
        device.index,
        "The GPU's way through the NVLink switches isn't sound.",
        f"fabric health {summary}: {', '.join(faults) or 'no reason given'}",
        "Read the fabric manager's log and look at switches and cables; then drain the node and reset its GPUs.",
    )


def joined_by_nvlink(device: Device) -> bool:
    """Say whether every NVLink of this board must be up: a board on a baseboard, not a card with optional bridges."""
    name = (device.model or "").upper()
    if "PCIE" in name or "NVL" in name:
        return False
    return "SXM" in name or "HBM3" in name or device.slurm_type in _BASEBOARDS


def _slowdown(device: Device) -> Iterator[Problem]:
    reasons = device.throttle_reasons_active or []
    rules = (
        (
            {"hw_thermal_slowdown", "sw_thermal_slowdown"},
            "thermal_slowdown",
            "The GPU runs slower because it is too hot.",
            "Check fans, airflow and the inlet temperature.",
        ),
        (
            {"hw_power_brake_slowdown"},
            "power_brake_slowdown",
            "The power supply makes the GPU run slower.",
            "Check the power supplies and the chassis' power limit.",
        ),
    )
    found = False
    for names, code, message, action in rules:
        active = [reason for reason in reasons if reason in names]
        if active:
            found = True
            yield Problem(
                WARNING,
                code,
                device.index,
                message,
                f"{', '.join(active)}; {_known(device.temperature_gpu_celsius)} °C",
                action,
            )
    if "hw_slowdown" in reasons and not found:
        yield Problem(
            WARNING,
            "hardware_slowdown",
            device.index,
            "The hardware makes the GPU run slower (heat or power).",
            "hw_slowdown",
            "Check cooling and power supplies.",
        )


def _modes(device: Device) -> Iterator[Problem]:
    for code, what, now, pending in (
        ("ecc_mode_pending", "ECC", device.ecc_mode_current, device.ecc_mode_pending),
        ("mig_mode_pending", "MIG mode", device.mig_mode_current, device.mig_mode_pending),
    ):
        if now is not None and pending is not None and now != pending:
            yield Problem(
                WARNING,
                code,
                device.index,
                f"A change of {what} waits for a reset.",
                f"current {now}, pending {pending}",
                _RECOVERY["drain and reset"].format(gpu=device.index),
            )
    if (device.vgpu_license_status or "").lower().startswith("unlicensed"):
        yield Problem(
            WARNING,
            "vgpu_unlicensed",
            device.index,
            "The virtual GPU has no licence; the driver slows it down, minutes after the start.",
            f"license_status {device.vgpu_license_status}",
            "Give nvidia-gridd the client configuration token, and see that the licence server can be reached.",
        )
    if device.persistence_mode == "Disabled" and device.driver_model is None:
        yield Problem(
            WARNING,
            "persistence_off",
            device.index,
            "Persistence mode is off: the driver lets go of the GPU when no program runs, and forgets its settings.",
            "persistence_mode Disabled",
            "Enable nvidia-persistenced (role nvidia_driver does).",
        )


def _known(value: int | None) -> str:
    return "an unknown number" if value is None else str(value)
