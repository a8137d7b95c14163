# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Everything about a machine's GPUs in one structure, and its comparison with what the inventory declares."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.trainyard.cluster.plugins.module_utils._command import Aside, CommandResult, RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import (
    Driver,
    PciGpu,
    driver_gpus,
    pci_gpus,
    read_driver,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_no_handle import NoHandle, parse_messages
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_nvlink import parse_errors, parse_status
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_problems import (
    CRITICAL,
    INFO,
    WARNING,
    Problem,
    inforom_corrupted,
    no_handle,
    of_driver,
    of_report,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import (
    LOST,
    OK,
    Device,
    NvlinkLink,
    SmiError,
    SmiReport,
    parse_report,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi_text import parse_list, parse_text
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_topology import (
    Topology,
    TopologyError,
    parse_topology,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._xid import XID, XidEvent, parse_kernel_log
from ansible_collections.trainyard.cluster.plugins.module_utils._xid_catalogue import ACTIONS

# A busy log must not hold up everything else.
_DMESG_SECONDS = 5
_DRIVER_LOADED = "NVRM: loading NVIDIA"
_REFUSALS = (
    (
        ("couldn't find libnvidia-ml", "nvml shared library not found", "could not load nvml library"),
        "driver_library_missing",
        "The driver's library libnvidia-ml isn't there, so nothing can ask for a GPU.",
        "Install the driver's libraries (role nvidia_driver), in a container through NVIDIA's container toolkit.",
    ),
    (
        ("insufficient permissions", "sufficient permissions", "suffient permissions"),
        "permission_denied",
        "This user may not talk to the driver.",
        "Become root, or give the user the device nodes /dev/nvidia*.",
    ),
    (
        ("access blocked by the operating system",),
        "gpu_access_blocked",
        "The operating system or the container keeps nvidia-smi from the GPUs.",
        "See that the container gets the devices; on WSL use the nvidia-smi of Windows.",
    ),
)
_LIBRARY_IN_MESSAGE = re.compile(r"NVML library version:\s*([0-9.]+)")
# Drivers reserve more or less of a board's memory for themselves, so the totals that they print differ a little.
_MEMORY_TOLERANCE = 0.02


@dataclass(frozen=True)
class GpuFacts:
    """count, models, slurm_gres and homogeneous speak of the GPUs that answer; devices holds the others too."""

    driver: Driver
    count: int
    models: dict[str, int]
    slurm_gres: str | None
    homogeneous: bool | None
    devices: list[Device]
    topology: Topology
    problems: list[Problem]


@dataclass(frozen=True)
class Expected:
    """What the inventory declares; None is: not declared."""

    count: int | None = None
    model: str | None = None
    slurm_type: str | None = None
    memory_mib: int | None = None
    driver_version: str | None = None


@dataclass
class _Collected:
    report: SmiReport | None = None
    problems: list[Problem] = field(default_factory=list)
    words: str = ""
    mismatch: bool = False
    library_version: str | None = None
    no_handles: list[NoHandle] = field(default_factory=list)


def collect(run: RunCommand, root: str = "/", nvidia_smi: str = "nvidia-smi", timeout: float = 60) -> GpuFacts:
    """Ask the driver and /proc and /sys under root; never raises for what a sick machine answers."""
    on_bus = pci_gpus(root)
    # Asked for while nvidia-smi works, which takes longer than all of these. Commands other than nvidia-smi are asked
    # about this machine only.
    reading_driver = Aside(lambda: read_driver(root, run, timeout))
    reading_log = Aside(lambda: kernel_log(run, timeout) if os.path.abspath(root) == "/" else [])
    result = run([nvidia_smi, "-q", "-x"], timeout)
    driver = reading_driver.result()
    collected = _read(result, nvidia_smi, timeout, on_bus)
    addresses = driver_gpus(root) or [gpu.pci_bus_id for gpu in on_bus]
    if collected.report is None and collected.no_handles:
        collected = _without_the_lost(collected, run, nvidia_smi, timeout, addresses)
    report = _with_addresses(collected.report, addresses) if collected.report else None
    library = collected.library_version or driver.library_version
    version = report.driver_version if report else None
    loaded = driver.kernel_module_loaded_version
    driver = replace(
        driver,
        version=version or loaded,
        cuda_version=report.cuda_version if report else None,
        library_version=library,
        # Once nvidia-smi answers, library and module agree, whatever else lies about on the disk.
        mismatch=collected.mismatch or bool(report is None and loaded and library and loaded != library),
        fabric_manager_matches_driver=(
            None
            if driver.fabric_manager_version is None or (version or loaded) is None
            else driver.fabric_manager_version == (version or loaded)
        ),
    )
    devices = list(report.devices) if report else []
    topology = Topology([], [])
    extra: list[Problem] = []
    words = collected.words
    if any(device.state == OK for device in devices):
        # Only the table for people tells of a spoilt infoROM.
        reading_table = Aside(lambda: run([nvidia_smi], timeout))
        topology, extra = _topology(run, nvidia_smi, timeout)
        if not extra:
            devices, extra = _with_links(devices, run, nvidia_smi, timeout)
        table = reading_table.result()
        words += f"\n{table.out}\n{table.err}"
        if table.timed_out and not extra:
            extra = [hangs(nvidia_smi, timeout)]
    devices = _with_places(devices, on_bus, topology)
    if not extra:
        devices = _with_mig_names(devices, run, nvidia_smi, timeout)
    extra += inforom_corrupted(words, devices)
    extra += of_kernel_log(reading_log.result(), devices)
    problems = [*collected.problems, *of_driver(driver, on_bus)]
    if report:
        problems += of_report(report, devices, on_bus)
    working = [device for device in devices if device.state == OK]
    return GpuFacts(
        driver=driver,
        count=len(working),
        models=dict(sorted(Counter(device.model or "unknown" for device in working).items())),
        slurm_gres=slurm_gres(working),
        homogeneous=_alike(working) if working else None,
        devices=devices,
        topology=topology,
        problems=[*problems, *extra],
    )


def _alike(devices: Sequence[Device]) -> bool:
    if len({device.model for device in devices}) > 1:
        return False
    sizes = [device.memory_total_mib for device in devices if device.memory_total_mib is not None]
    if len(sizes) < len(devices):
        return not sizes
    return max(sizes) - min(sizes) <= max(sizes) * _MEMORY_TOLERANCE


def slurm_gres(devices: Sequence[Device]) -> str | None:
    """Return the devices as slurm.conf's Gres= has them, None where there is none."""
    types = Counter(device.slurm_type for device in devices)
    ordered = sorted(types.items(), key=lambda item: item[0] or "")
    return ",".join(f"gpu:{name}:{count}" if name else f"gpu:{count}" for name, count in ordered) or None


def _read(result: CommandResult, nvidia_smi: str, timeout: float, on_bus: Sequence[PciGpu]) -> _Collected:
    words = f"{result.out}\n{result.err}"
    if result.missing:
        return _Collected(problems=[_no_tool(nvidia_smi, result.err, on_bus)])
    if result.timed_out:
        return _Collected(problems=[hangs(nvidia_smi, timeout)])
    try:
        report = _parsed(result)
    except SmiError as error:
        return replace(_failure(words, result, error, on_bus), words=words)
    problems = []
    if not report.devices and not report.no_handles:
        problems.append(_none_found(on_bus, "nvidia-smi reports no GPU"))
    return _Collected(report=report, problems=problems, words=words)


def _parsed(result: CommandResult) -> SmiReport:
    try:
        return parse_report(result.out, messages=result.err)
    except SmiError:
        # A wrapper may drop -x; the report for people holds the same.
        if "NVSMI LOG" not in result.out:
            raise
        return parse_text(result.out, result.err)


def _with_addresses(report: SmiReport, addresses: Sequence[str]) -> SmiReport:
    """Complete the GPUs that a message names by index alone. addresses: as for _without_the_lost."""
    if len(addresses) != len(report.devices):
        return report
    by_index: dict[int | None, str] = dict(enumerate(addresses))
    return replace(
        report,
        devices=[replace(gpu, pci_bus_id=gpu.pci_bus_id or by_index.get(gpu.index)) for gpu in report.devices],
        no_handles=[replace(gpu, pci_bus_id=gpu.pci_bus_id or by_index.get(gpu.index)) for gpu in report.no_handles],
    )


def _without_the_lost(
    collected: _Collected, run: RunCommand, nvidia_smi: str, timeout: float, addresses: Sequence[str]
) -> _Collected:
    """Ask for the other GPUs: one that can't be reached makes nvidia-smi give up on all of them.

    addresses: of the GPUs in the driver's order, which is that of the bus.
    """
    lost: dict[int, NoHandle] = {}
    handles = collected.no_handles
    while handles:
        before = len(lost)
        for handle in handles:
            index = handle.index
            if index is None and handle.pci_bus_id in addresses:
                index = addresses.index(handle.pci_bus_id)
            if index is not None and index < len(addresses):
                lost[index] = replace(handle, index=index, pci_bus_id=handle.pci_bus_id or addresses[index])
        rest = [index for index in range(len(addresses)) if index not in lost]
        if len(lost) == before or not rest:
            break
        result = run([nvidia_smi, "-q", "-x", "-i", ",".join(map(str, rest))], timeout)
        if result.missing or result.timed_out:
            return replace(collected, problems=[*collected.problems, hangs(nvidia_smi, timeout)])
        try:
            report = parse_report(result.out, rest)
        except SmiError:
            handles = parse_messages(f"{result.out}\n{result.err}")
            continue
        gone = [Device(index, LOST, handle.pci_bus_id) for index, handle in lost.items()]
        return _Collected(
            report=replace(
                report,
                devices=sorted([*report.devices, *gone], key=lambda device: device.index),
                no_handles=[*report.no_handles, *lost.values()],
            ),
            words=f"{result.out}\n{result.err}",
        )
    return collected


def _failure(words: str, result: CommandResult, error: SmiError, on_bus: Sequence[PciGpu]) -> _Collected:
    said = " ".join(words.split())[:300]
    lower = words.lower()
    if "driver/library version mismatch" in lower or "nvml/rm version mismatch" in lower:
        library = _LIBRARY_IN_MESSAGE.search(words)
        return _Collected(mismatch=True, library_version=library[1].rstrip(".") if library else None)
    handles = parse_messages(words)
    if handles:
        return _Collected(
            problems=[no_handle(handle.index, handle.line) for handle in handles],
            no_handles=handles,
        )
    if "gpu is lost" in lower:
        return _Collected(problems=[no_handle(None, said)])
    if "couldn't communicate with the nvidia driver" in lower or "driver not loaded" in lower:
        return _Collected(
            problems=[
                Problem(
                    CRITICAL if on_bus else WARNING,
                    "driver_not_loaded",
                    None,
                    "NVIDIA's kernel module isn't loaded or doesn't answer.",
                    said,
                    "Install the driver (role nvidia_driver); if it is there, read the kernel log and reboot.",
                )
            ]
        )
    for phrases, code, message, action in _REFUSALS:
        if any(phrase in lower for phrase in phrases):
            return _Collected(problems=[Problem(CRITICAL if on_bus else WARNING, code, None, message, said, action)])
    if "no devices were found" in lower:
        return _Collected(problems=[_none_found(on_bus, said)])
    if result.rc == 0:
        return _Collected(
            problems=[
                Problem(
                    CRITICAL,
                    "nvidia_smi_output_unreadable",
                    None,
                    f"nvidia-smi's report can't be read: {error}.",
                    said or "(no output)",
                    "Run nvidia-smi -q -x by hand and see what it prints.",
                )
            ]
        )
    return _Collected(
        problems=[
            Problem(
                CRITICAL,
                "nvidia_smi_failed",
                None,
                f"nvidia-smi ended with status {result.rc} and without a report.",
                said or "(no output)",
                "Run nvidia-smi by hand and read the kernel log.",
            )
        ]
    )


def _no_tool(nvidia_smi: str, reason: str, on_bus: Sequence[PciGpu]) -> Problem:
    if on_bus:
        return Problem(
            CRITICAL,
            "nvidia_smi_missing",
            None,
            f"The PCI bus shows {len(on_bus)} NVIDIA GPU(s), but {nvidia_smi} can't be run.",
            reason,
            "Install the driver (role nvidia_driver), or give the command's path in the option nvidia_smi.",
        )
    return Problem(
        INFO,
        "no_gpu",
        None,
        f"The PCI bus shows no NVIDIA GPU, and {nvidia_smi} can't be run.",
        reason,
        "Nothing, if this machine has no GPU; otherwise check the board's seat and power.",
    )


def _none_found(on_bus: Sequence[PciGpu], said: str) -> Problem:
    return Problem(
        CRITICAL if on_bus else WARNING,
        "no_gpu",
        None,
        f"The driver finds no GPU; the PCI bus shows {len(on_bus)}.",
        said,
        "Read the kernel log for the driver's reason, and check the boards' seat and power.",
    )


def hangs(command: str, timeout: float) -> Problem:
    """Return the problem of an nvidia-smi that doesn't come back."""
    return Problem(
        CRITICAL,
        "nvidia_smi_hangs",
        None,
        f"{command} gave no answer within {timeout:g} seconds; a GPU or the driver is stuck.",
        f"stopped after {timeout:g} s",
        "Read the kernel log for Xid messages, drain the node and reboot it.",
    )


def _topology(run: RunCommand, nvidia_smi: str, timeout: float) -> tuple[Topology, list[Problem]]:
    result = run([nvidia_smi, "topo", "-m"], timeout)
    if result.timed_out:
        return Topology([], []), [hangs(f"{nvidia_smi} topo -m", timeout)]
    try:
        return parse_topology(result.out), []
    except TopologyError:
        return Topology([], []), []  # not every driver and platform has it


def _with_links(
    devices: Sequence[Device], run: RunCommand, nvidia_smi: str, timeout: float
) -> tuple[list[Device], list[Problem]]:
    result = run([nvidia_smi, "nvlink", "-s"], timeout)
    if result.timed_out:
        return list(devices), [hangs(f"{nvidia_smi} nvlink -s", timeout)]
    status = {gpu.gpu: gpu for gpu in parse_status(result.out)}
    if not status:
        return list(devices), []
    counted = run([nvidia_smi, "nvlink", "-e"], timeout)
    if counted.timed_out:
        return list(devices), [hangs(f"{nvidia_smi} nvlink -e", timeout)]
    errors = parse_errors(counted.out)
    completed = []
    for device in devices:
        gpu = status.get(device.index)
        if gpu is None:
            completed.append(device)
            continue
        links = [
            NvlinkLink(
                link=link.link,
                active=link.speed is not None,
                speed_gigabytes_per_second=link.speed,
                **{f"errors_{name}": count for name, count in errors.get((gpu.gpu, link.link), {}).items()},
            )
            for link in gpu.links
        ]
        completed.append(
            replace(
                device,
                nvlink_links=links,
                nvlink_links_total=len(links) or None,
                nvlink_links_active=sum(link.active for link in links),
            )
        )
    return completed, []


def _with_mig_names(devices: Sequence[Device], run: RunCommand, nvidia_smi: str, timeout: float) -> list[Device]:
    """Complete MIG instances with what only `-L` says; they are counted alike there."""
    if not any(device.mig_instances for device in devices):
        return list(devices)
    listed = {gpu.index: gpu for gpu in parse_list(run([nvidia_smi, "-L"], timeout).out)}
    completed = []
    for device in devices:
        gpu = listed.get(device.index)
        names = {mig.index: mig for mig in gpu.mig} if gpu else {}
        instances = [
            replace(instance, uuid=names[instance.index].uuid, profile=names[instance.index].profile)
            if instance.index in names
            else instance
            for instance in device.mig_instances
        ]
        completed.append(replace(device, mig_instances=instances))
    return completed


def kernel_log(run: RunCommand, timeout: float) -> list[str]:
    """Return the lines of the kernel's ring buffer since the driver was loaded, [] where it can't be read."""
    lines = run(["dmesg"], min(timeout, _DMESG_SECONDS)).out.split("\n")
    return lines[max((number for number, line in enumerate(lines) if _DRIVER_LOADED in line), default=0) :]


def of_kernel_log(lines: Sequence[str], devices: Sequence[Device]) -> list[Problem]:
    """Return a problem for each GPU that the driver wrote serious errors about since it was loaded.

    Only a warning: the log keeps what a reset has mended since, and what is still broken shows in the GPU's own state.
    """
    serious: dict[str | None, list[XidEvent]] = {}
    for event in parse_kernel_log(lines).events:
        if event.kind == XID and event.severity == CRITICAL:
            serious.setdefault(event.pci_bus_id, []).append(event)
    indices = {device.pci_bus_id: device.index for device in devices}
    return [
        Problem(
            WARNING,
            "xid",
            indices.get(address),
            f"The driver reported errors of the GPU at {address or 'an unknown address'} since it was loaded: "
            f"{_counted(events)}. {worst.meaning}",
            events[-1].line[:300],
            f"Unless it was done since: {worst.action}.{f' {worst.advice}' if worst.advice else ''}",
        )
        for address, events in serious.items()
        for worst in [max(events, key=lambda event: ACTIONS.index(event.action))]
    ]


def _counted(events: Sequence[XidEvent]) -> str:
    codes = Counter(event.code for event in events)
    return ", ".join(f"Xid {code}{f' ({count} times)' if count > 1 else ''}" for code, count in codes.items())


def _with_places(devices: Sequence[Device], on_bus: Sequence[PciGpu], topology: Topology) -> list[Device]:
    places = {gpu.pci_bus_id: gpu for gpu in on_bus}
    rows = {row.gpu: row for row in topology.gpus}
    completed = []
    for device in devices:
        place, row = places.get(device.pci_bus_id or ""), rows.get(device.index)
        numa = place.numa_node if place else None
        if numa is None and row and row.numa_affinity and row.numa_affinity.isdecimal():
            numa = int(row.numa_affinity)
        affinity = (place.cpu_affinity if place else None) or (row.cpu_affinity if row else None)
        # nvidia-smi gives the slot's generation, but not its lanes. The ports of a virtual machine are made up.
        lanes = place.slot_lanes if place and device.virtualization_mode != "Pass-Through" else None
        completed.append(replace(device, pci_numa_node=numa, pci_cpu_affinity=affinity, pci_link_width_host_max=lanes))
    return completed


def differences(facts: GpuFacts, expected: Expected) -> list[str]:
    """Say in whole sentences where the machine isn't what was declared: declared, found, what to do."""
    working = [device for device in facts.devices if device.state == OK]
    found: list[str] = []
    if expected.count is not None and expected.count != facts.count:
        advice = (
            "add the missing ones or see problems for what ails them, or correct the declared count"
            if facts.count < expected.count
            else "correct the declared count"
        )
        found.append(f"count: {expected.count} GPUs are declared, {facts.count} answer; {advice}.")
    described = (expected.model, expected.slurm_type, expected.memory_mib)
    if expected.count is None and not working and any(one is not None for one in described):
        found.append("count: GPUs of a kind are declared, but none answers; see problems for what ails them.")
    for name, wanted, actual in (
        ("model", expected.model, [(device.model, device.index) for device in working]),
        ("slurm_type", expected.slurm_type, [(device.slurm_type, device.index) for device in working]),
    ):
        others = [(value or "unknown", index) for value, index in actual if not _same_name(wanted, value)]
        if others:
            found.append(
                f"{name}: {wanted} is declared, found {_grouped(others)}; "
                f"correct the declared {name} or move the board."
            )
    if expected.memory_mib is not None:
        declared = expected.memory_mib
        others = [
            (_mib(device.memory_total_mib), device.index)
            for device in working
            if device.memory_total_mib is None or abs(device.memory_total_mib - declared) > declared * _MEMORY_TOLERANCE
        ]
        if others:
            found.append(
                f"memory_mib: {declared} MiB a GPU are declared, found {_grouped(others)}; "
                "correct the declared memory or move the board."
            )
    if expected.driver_version is not None and not _same_branch(expected.driver_version, facts.driver.version):
        found.append(
            f"driver_version: {expected.driver_version} is declared, {facts.driver.version or 'no driver'} is running; "
            "install the declared version (role nvidia_driver) or correct the declaration."
        )
    return found


def reasons_for_missing(facts: GpuFacts) -> list[str]:
    """Say why GPUs are missing: what is critical or, where nothing is, everything known; with what to do."""
    told = [problem for problem in facts.problems if problem.severity == CRITICAL] or facts.problems
    return [
        f"{'' if problem.gpu is None else f'GPU {problem.gpu}: '}{problem.message} {problem.action}" for problem in told
    ]


def _same_name(declared: str | None, found: str | None) -> bool:
    return declared is None or declared.casefold() == (found or "").casefold()


def _same_branch(declared: str, running: str | None) -> bool:
    return running is not None and (running == declared or running.startswith(f"{declared}."))


def _mib(value: int | None) -> str:
    return "unknown memory" if value is None else f"{value} MiB"


def _grouped(pairs: Sequence[tuple[str, int]]) -> str:
    groups: dict[str, list[int]] = {}
    for value, index in pairs:
        groups.setdefault(value, []).append(index)
    return " and ".join(f"{value} (GPU {', '.join(map(str, indices))})" for value, indices in groups.items())
