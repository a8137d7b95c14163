# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._command import Aside, CommandResult, run_command
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import parse_proc_version
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_facts import (
    Expected,
    GpuFacts,
    collect,
    differences,
    kernel_log,
    of_kernel_log,
    reasons_for_missing,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import Device, parse_report

from tests.unit.captures import all_captures, fixture, read_capture

H100_X2 = fixture("gpu/h100-x2.xml")
PROC_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build\nGCC version: 12\n"
PROC_CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n"


class FakeCommands:
    """Answers commands from a table by their words after the program; anything else is missing."""

    def __init__(self, answers: Mapping[str, str | CommandResult]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        words = " ".join(argv[1:])
        self.asked.append(words)
        answer = self.answers.get(words, CommandResult(None, "", "No such file or directory", missing=True))
        return CommandResult(0, answer, "") if isinstance(answer, str) else answer


def healthy(xml: str = H100_X2) -> FakeCommands:
    return FakeCommands(
        {
            "-q -x": xml,
            "topo -m": fixture("gpu/h100-x2.topo.txt"),
            "nvlink -s": fixture("gpu/h100-x2.nvlink-s.txt").replace("<inactive>", "26.562 GB/s"),
            "nvlink -e": fixture("gpu/h100-x2.nvlink-e.txt"),
        }
    )


def machine(root: Path, *addresses: str, proc: str | None = PROC_OPEN, library: str = "550.163.01") -> str:
    """Make a root directory with these GPUs on the PCI bus."""
    for address in addresses:
        device = root / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
        (device / "numa_node").write_text("1\n")
        (device / "local_cpulist").write_text("48-95\n")
    switch = root / "sys/bus/pci/devices/0000:05:00.0"
    switch.mkdir(parents=True)
    (switch / "vendor").write_text("0x10de\n")
    (switch / "class").write_text("0x068000\n")
    if proc is not None:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text(proc)
        (root / "sys/module/nvidia").mkdir(parents=True)
    libraries = root / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (libraries / f"libnvidia-ml.so.{library}").touch()
    (libraries / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{library}")
    return str(root)


def codes(facts: GpuFacts) -> list[tuple[str, int | None]]:
    return [(problem.code, problem.gpu) for problem in facts.problems]


def test_a_healthy_machine(tmp_path: Path) -> None:
    facts = collect(healthy(), machine(tmp_path, "0000:18:00.0", "0000:2a:00.0"))
    assert (facts.count, facts.models, facts.slurm_gres) == (2, {"NVIDIA H100 80GB HBM3": 2}, "gpu:h100:2")
    assert facts.homogeneous is True
    assert codes(facts) == []
    assert (facts.driver.version, facts.driver.cuda_version) == ("550.163.01", "12.4")
    assert (facts.driver.kernel_module_loaded_version, facts.driver.kernel_module_flavour) == ("550.163.01", "open")
    assert (facts.driver.library_version, facts.driver.mismatch) == ("550.163.01", False)
    first = facts.devices[0]
    assert (first.nvlink_links_total, first.nvlink_links_active) == (2, 2)
    assert (first.nvlink_links[0].errors_crc, first.nvlink_links[1].errors_crc) == (7, None)
    assert (first.pci_numa_node, first.pci_cpu_affinity) == (1, "48-95")
    assert facts.topology.gpus[1].nic_nearest == ["mlx5_bond_0"]


def test_takes_numa_and_cpus_from_the_topology_where_the_bus_does_not_show_them(tmp_path: Path) -> None:
    facts = collect(healthy(), str(tmp_path))
    assert [(gpu.pci_numa_node, gpu.pci_cpu_affinity) for gpu in facts.devices] == [
        (0, "0-47,96-143"),
        (1, "48-95,144-191"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("<current_link_width>16x", "<current_link_width>8x", "pci_link_narrow"),
        ("<current_link_gen>5", "<current_link_gen>4", "pci_link_slow"),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>3", "ecc_uncorrected"),
        ("<sram_threshold_exceeded>No", "<sram_threshold_exceeded>Yes", "ecc_sram_threshold_exceeded"),
        ("<remapped_row_pending>No", "<remapped_row_pending>Yes", "row_remap_pending"),
        ("<remapped_row_failure>No", "<remapped_row_failure>Yes", "row_remap_failure"),
        ("<pending_ecc>Enabled", "<pending_ecc>Disabled", "ecc_mode_pending"),
        ("<pending_mig>Disabled", "<pending_mig>Enabled", "mig_mode_pending"),
        ("<persistence_mode>Enabled", "<persistence_mode>Disabled", "persistence_off"),
        ("<gpu_recovery_action>None", "<gpu_recovery_action>Reset", "gpu_recovery_needed"),
        ("<reset_required>No", "<reset_required>Yes", "gpu_reset_required"),
        ("recommended>No", "recommended>Yes", "gpu_reset_recommended"),
        ("<state>Completed", "<state>In Progress", "fabric_not_completed"),
        ("<status>Success", "<status>Timeout error", "fabric_failed"),
        ("</fabric>", "<health><summary>Unhealthy</summary></health></fabric>", "fabric_unhealthy"),
        ("</fabric>", "<health><bandwidth>Degraded</bandwidth></health></fabric>", "fabric_unhealthy"),
        ("hw_thermal_slowdown>Not Active", "hw_thermal_slowdown>Active", "thermal_slowdown"),
        ("sw_thermal_slowdown>Not Active", "sw_thermal_slowdown>Active", "thermal_slowdown"),
        ("power_brake_slowdown>Not Active", "power_brake_slowdown>Active", "power_brake_slowdown"),
        ("reason_hw_slowdown>Not Active", "reason_hw_slowdown>Active", "hardware_slowdown"),
        ("71.50 W", "GPU is lost", "gpu_lost"),
        ("71.50 W", "GPU requires reset", "gpu_reset_required"),
        ("71.50 W", "ERR!", "values_unreadable"),
        ("</temperature>", "", "gpu_report_incomplete"),
    ],
)
def test_names_what_ails_one_gpu(tmp_path: Path, old: str, new: str, code: str) -> None:
    at = H100_X2.rindex(old)
    sick = H100_X2[:at] + new + H100_X2[at + len(old) :]
    facts = collect(healthy(sick), machine(tmp_path, "0000:18:00.0", "0000:2a:00.0"))
    assert codes(facts) == [(code, 1)]
    assert all(problem.message and problem.evidence and problem.action for problem in facts.problems)


@pytest.mark.parametrize(
    "words",
    [
        H100_X2.replace("reason_sw_power_cap>Not Active", "reason_sw_power_cap>Active"),
        H100_X2.replace("<performance_state>P0", "<performance_state>P8").replace(
            "<current_link_gen>5", "<current_link_gen>1"
        ),
        H100_X2.replace("<state>Completed", "<state>N/A").replace("<status>Success", "<status>N/A"),
        H100_X2.replace("<persistence_mode>Enabled", "<persistence_mode>N/A"),
        H100_X2.replace("81559 MiB", "N/A").replace("<current_link_width>16x", "<current_link_width>1x"),
    ],
    ids=["at the power limit", "slow link while idle", "no fabric", "no persistence mode", "no memory of its own"],
)
def test_is_silent_about_what_is_normal(tmp_path: Path, words: str) -> None:
    assert codes(collect(healthy(words), machine(tmp_path, "0000:18:00.0", "0000:2a:00.0"))) == []


@pytest.mark.parametrize(
    ("slot", "lanes", "severity"),
    [("16", 16, "warning"), ("8", 8, "info"), ("4", 4, "warning"), ("255", None, "warning")],
)
def test_blames_a_narrow_slot_for_a_narrow_link(tmp_path: Path, slot: str, lanes: int | None, severity: str) -> None:
    root = machine(tmp_path, "0000:18:00.0", "0000:2a:00.0")
    port = tmp_path / "sys/devices/pci0000:29/0000:29:00.0"
    port.mkdir(parents=True)
    (port / "max_link_width").write_text(f"{slot}\n")
    device = tmp_path / "sys/bus/pci/devices/0000:2a:00.0"
    device.rename(port / device.name)
    device.symlink_to(port / device.name)
    at = H100_X2.rindex("<current_link_width>16x")
    facts = collect(
        healthy(H100_X2[:at] + H100_X2[at:].replace("<current_link_width>16x", "<current_link_width>8x")), root
    )
    assert [gpu.pci_link_width_host_max for gpu in facts.devices] == [None, lanes]
    assert [(one.code, one.severity, one.gpu) for one in facts.problems] == [("pci_link_narrow", severity, 1)]


@pytest.mark.parametrize(
    ("model", "old", "new", "found"),
    [
        ("NVIDIA L40S", "<current_link_width>16x", "<current_link_width>8x", ("pci_link_narrow", "info")),
        ("NVIDIA L40S", "<current_link_width>16x", "<current_link_width>1x", ("pci_link_narrow", "warning")),
        ("NVIDIA L40S", "<current_link_gen>5", "<current_link_gen>4", ("pci_link_slow", "info")),
        ("NVIDIA L40S", "<current_link_gen>5", "<current_link_gen>1", ("pci_link_slow", "warning")),
        ("NVIDIA H100 80GB HBM3", "<current_link_width>16x", "<current_link_width>8x", ("pci_link_narrow", "warning")),
    ],
)
def test_knows_that_a_virtual_machine_hides_the_slot(
    tmp_path: Path, model: str, old: str, new: str, found: tuple[str, str]
) -> None:
    mode = "<gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode></gpu_virtualization_mode>"
    xml = H100_X2.replace("NVIDIA H100 80GB HBM3", model).replace(old, new)
    facts = collect(healthy(xml.replace("<persistence_mode>", f"{mode}<persistence_mode>")), str(tmp_path))
    assert [(one.code, one.severity) for one in facts.problems] == [found, found]


@pytest.mark.parametrize(("memory", "alike"), [("81551 MiB", True), ("40960 MiB", False), ("N/A", False)])
def test_compares_the_memory_of_gpus_loosely(tmp_path: Path, memory: str, alike: bool) -> None:
    """The driver keeps some megabytes more of a board that drives a display."""
    facts = collect(healthy(H100_X2.replace("81559 MiB", memory, 1)), str(tmp_path))
    assert facts.homogeneous is alike


@pytest.mark.parametrize(
    ("section", "status", "problems"),
    [
        ("vgpu_software_licensed_product", "Unlicensed (Restricted)", ["vgpu_unlicensed"]),
        ("grid_licensed_product", "Unlicensed", ["vgpu_unlicensed"]),
        ("vgpu_software_licensed_product", "Licensed (Expiry: 2030-1-1 0:0:0 GMT)", []),
        ("vgpu_software_licensed_product", "N/A", []),
    ],
)
def test_names_a_virtual_gpu_without_a_licence(tmp_path: Path, section: str, status: str, problems: list[str]) -> None:
    licence = f"<{section}><license_status>{status}</license_status></{section}>"
    facts = collect(healthy(H100_X2.replace("<persistence_mode>", f"{licence}<persistence_mode>", 1)), str(tmp_path))
    assert [problem.code for problem in facts.problems] == problems
    assert facts.devices[0].vgpu_license_status == (None if status == "N/A" else status)


@pytest.mark.parametrize(
    ("single", "double", "problems"),
    [(60, 0, ["page_retirement_full"]), (31, 29, ["page_retirement_full"]), (29, 30, [])],
)
def test_names_a_gpu_that_can_hardly_retire_another_page(
    tmp_path: Path, single: int, double: int, problems: list[str]
) -> None:
    pages = (
        f"<multiple_single_bit_retirement><retired_count>{single}</retired_count></multiple_single_bit_retirement>"
        f"<double_bit_retirement><retired_count>{double}</retired_count></double_bit_retirement>"
    )
    at = H100_X2.index("<persistence_mode>")
    xml = f"{H100_X2[:at]}<retired_pages>{pages}</retired_pages>{H100_X2[at:]}"
    assert [problem.code for problem in collect(healthy(xml), str(tmp_path)).problems] == problems


def test_counts_neither_lost_nor_broken_gpus(tmp_path: Path) -> None:
    facts = collect(healthy(H100_X2.replace("31 C", "GPU is lost", 1)), str(tmp_path))
    assert (facts.count, len(facts.devices), facts.slurm_gres) == (1, 2, "gpu:h100:1")


def test_asks_for_the_others_when_a_lost_gpu_silences_nvidia_smi(tmp_path: Path) -> None:
    root = machine(tmp_path, "0000:18:00.0", "0000:1a:00.0", "0000:2a:00.0")
    for address in ("0000:18:00.0", "0000:1a:00.0", "0000:2a:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    words = "Unable to determine the device handle for GPU1: Unknown Error\n"
    others = H100_X2.replace("<attached_gpus>2", "<attached_gpus>3")
    commands = FakeCommands({"-q -x": CommandResult(255, words, ""), "-q -x -i 0,2": others})
    facts = collect(commands, root)
    assert [(gpu.index, gpu.state, gpu.pci_bus_id) for gpu in facts.devices] == [
        (0, "ok", "0000:18:00.0"),
        (1, "lost", "0000:1a:00.0"),
        (2, "ok", "0000:2a:00.0"),
    ]
    assert (facts.count, facts.slurm_gres, codes(facts)) == (2, "gpu:h100:2", [("gpu_lost", 1)])


def test_asks_again_when_one_more_gpu_is_lost(tmp_path: Path) -> None:
    root = machine(tmp_path, "0000:18:00.0", "0000:1a:00.0", "0000:2a:00.0", "0000:3a:00.0")
    by_address = "Unable to determine the device handle for GPU 0000:3A:00.0: GPU is lost.  Reboot the system\n"
    commands = FakeCommands(
        {
            "-q -x": CommandResult(255, "Unable to determine the device handle for GPU1: Unknown Error\n", ""),
            "-q -x -i 0,2,3": CommandResult(15, "", by_address),
            "-q -x -i 0,2": H100_X2,
        }
    )
    facts = collect(commands, root)
    assert (facts.count, sorted(codes(facts))) == (2, [("gpu_lost", 1), ("gpu_lost", 3)])


def test_gives_up_when_nvidia_smi_names_the_same_lost_gpu_again(tmp_path: Path) -> None:
    root = machine(tmp_path, "0000:18:00.0", "0000:1a:00.0")
    words = CommandResult(255, "Unable to determine the device handle for GPU1: Unknown Error\n", "")
    facts = collect(FakeCommands({"-q -x": words, "-q -x -i 0": words}), root)
    assert (facts.count, codes(facts)) == (0, [("gpu_lost", 1)])


def test_names_a_link_that_is_down(tmp_path: Path) -> None:
    commands = healthy()
    commands.answers = {**commands.answers, "nvlink -s": fixture("gpu/h100-x2.nvlink-s.txt")}
    facts = collect(commands, str(tmp_path))
    assert codes(facts) == [("nvlink_down", 1)]
    assert facts.problems[0].evidence == "inactive links: 1"


@pytest.mark.parametrize(("state", "problems"), [("Completed", [("nvlink_down", 0)]), ("N/A", [])])
@pytest.mark.parametrize(
    "status", ["Unable to retrieve NVLink information as all links are inActive", " Link 0: <inactive>"]
)
def test_misses_no_link_of_a_single_gpu_without_a_fabric(
    tmp_path: Path, status: str, state: str, problems: list[tuple[str, int | None]]
) -> None:
    end = H100_X2.index("</gpu>") + len("</gpu>")
    single = (H100_X2[:end] + "</nvidia_smi_log>").replace("<attached_gpus>2", "<attached_gpus>1")
    commands = healthy(single.replace("<state>Completed", f"<state>{state}"))
    commands.answers = {**commands.answers, "nvlink -s": f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n{status}\n"}
    assert codes(collect(commands, str(tmp_path))) == problems


def test_misses_no_link_of_a_divided_gpu(tmp_path: Path) -> None:
    commands = healthy(H100_X2.replace("_mig>Disabled", "_mig>Enabled", 2))
    off = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0)\nUnable to retrieve NVLink information as all links are inActive\n"
    )
    commands.answers = {**commands.answers, "nvlink -s": off}
    assert codes(collect(commands, str(tmp_path))) == []


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("OS Reboot", "Drain the node and reboot it."),
        ("Recover IMEX Domain", "Restart nvidia-imex on all nodes of the NVLink domain."),
    ],
)
def test_knows_the_recovery_actions_of_new_drivers(tmp_path: Path, said: str, action: str) -> None:
    xml = H100_X2.replace("<gpu_recovery_action>None", f"<gpu_recovery_action>{said}", 1)
    assert [problem.action for problem in collect(healthy(xml), str(tmp_path)).problems] == [action]


def test_names_gpus_that_only_the_bus_shows(tmp_path: Path) -> None:
    root = machine(tmp_path, "0000:18:00.0", "0000:2a:00.0", "0000:3b:00.0", "0000:86:00.0")
    driver = tmp_path / "sys/bus/pci/drivers/vfio-pci"
    driver.mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:86:00.0/driver").symlink_to(driver)
    facts = collect(healthy(), root)
    assert codes(facts) == [("gpu_missing", None)]
    assert "0000:3b:00.0" in facts.problems[0].message


def test_names_gpus_that_only_the_driver_counts(tmp_path: Path) -> None:
    facts = collect(healthy(H100_X2.replace("<attached_gpus>2", "<attached_gpus>8")), str(tmp_path))
    assert codes(facts) == [("gpu_missing", None)]


def test_names_mixed_models(tmp_path: Path) -> None:
    facts = collect(healthy(H100_X2.replace("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", 1)), str(tmp_path))
    assert ("models_mixed", None) in codes(facts)
    assert (facts.homogeneous, facts.slurm_gres) == (False, "gpu:a100:1,gpu:h100:1")


@pytest.mark.parametrize(
    ("out", "rc", "code"),
    [
        ("No devices were found\n", 6, "no_gpu"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n",
            9,
            "driver_not_loaded",
        ),
        ("Failed to initialize NVML: Driver Not Loaded\n", 9, "driver_not_loaded"),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n",
            18,
            "driver_library_mismatch",
        ),
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
            "Driver is properly installed and present in your system.\n",
            12,
            "driver_library_missing",
        ),
        ("Failed to initialize NVML: RM has detected an NVML/RM version mismatch.\n", 18, "driver_library_mismatch"),
        ("Failed to initialize NVML: could not load NVML library.\n", 12, "driver_library_missing"),
        ("Failed to initialize NVML: Insufficient Permissions\n", 4, "permission_denied"),
        ("Failed to initialize NVML: GPU access blocked by the operating system\n", 17, "gpu_access_blocked"),
        ("Failed to initialize NVML: Unknown Error\n", 255, "nvidia_smi_failed"),
        ("Failed to initialize NVML: GPU is lost\n", 15, "gpu_lost"),
        (
            "Unable to determine the device handle for GPU 0000:18:00.0: Insufficient Permissions\n",
            4,
            "permission_denied",
        ),
        (
            "Unable to determine the device handle for GPU 0000:18:00.0: GPU access blocked by the operating system\n",
            17,
            "gpu_access_blocked",
        ),
        ("Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error\n", 255, "gpu_lost"),
        (
            "Unable to determine the device handle for GPU 0000:18:00.0: Unable to communicate with GPU because it is "
            "insufficiently powered.\nThis may be because not all required external power cables are\nattached\n",
            8,
            "gpu_power_missing",
        ),
        ("Segmentation fault\n", 139, "nvidia_smi_failed"),
        ("\x00\x00junk", 0, "nvidia_smi_output_unreadable"),
        ("", 0, "nvidia_smi_output_unreadable"),
    ],
)
def test_says_why_nvidia_smi_gives_no_report(tmp_path: Path, out: str, rc: int, code: str) -> None:
    commands = FakeCommands({"-q -x": CommandResult(rc, out, "")})
    facts = collect(commands, machine(tmp_path, "0000:18:00.0"))
    assert (facts.count, facts.devices, facts.slurm_gres, facts.homogeneous) == (0, [], None, None)
    assert [problem for problem, _gpu in codes(facts)] == [code]
    assert facts.problems[0].severity == "critical"
    assert facts.driver.mismatch is (code == "driver_library_mismatch")


@pytest.mark.parametrize(
    ("name", "code", "gpu"),
    [
        ("no-driver.txt", "driver_not_loaded", None),
        ("mismatch-old-one-line.txt", "driver_library_mismatch", None),
        ("device-handle-gpu3.txt", "gpu_lost", 3),
    ],
)
def test_says_why_in_every_capture(tmp_path: Path, name: str, code: str, gpu: int | None) -> None:
    commands = FakeCommands({"-q -x": CommandResult(9, read_capture("nvidia-smi-errors", name), "")})
    assert codes(collect(commands, str(tmp_path))) == [(code, gpu)]


# What every capture with a report shows beside persistence mode that is off; read by eye. Others show nothing.
PROBLEMS: dict[str, list[tuple[str, int | None]]] = {
    # Its collector left GPUs out.
    "a100-sxm4-80g-x4-535-mig.xml": [("gpu_missing", None)],
    "gtx1070-384-dtdv9.xml": [("gpu_missing", None), ("pci_link_narrow", 0), ("pci_link_narrow", 1)],
    "iluvatar-ixsmi.xml": [("nvidia_smi_output_unreadable", None)],
    "gpud-535.129.03-a10.q.txt": [("row_remap_pending", 0)],
    "gpud-535.183.01.q.txt": [("thermal_slowdown", 2), ("power_brake_slowdown", 2)],
}


@pytest.mark.parametrize(("kind", "ending"), [("nvidia-smi-xml", ".xml"), ("nvidia-smi-text", ".q.txt")])
def test_names_the_problems_of_every_capture(tmp_path: Path, kind: str, ending: str) -> None:
    reports = {name: words for name, words in all_captures(kind) if name.endswith(ending)}
    found = {name: codes(collect(FakeCommands({"-q -x": words}), str(tmp_path))) for name, words in reports.items()}
    shown = {name: [one for one in problems if one[0] != "persistence_off"] for name, problems in found.items()}
    assert shown == {name: PROBLEMS.get(name, []) for name in reports}


def test_sees_the_mismatch_of_versions_by_itself(tmp_path: Path) -> None:
    root = machine(tmp_path, proc=PROC_CLOSED)
    facts = collect(FakeCommands({"-q -x": CommandResult(18, "Failed to initialize NVML\n", "")}), root)
    assert facts.driver.mismatch
    assert (facts.driver.version, facts.driver.library_version) == ("535.54.03", "550.163.01")
    assert facts.driver.kernel_module_flavour == "proprietary"


@pytest.mark.parametrize(("addresses", "code"), [((), "no_gpu"), (("0000:18:00.0",), "nvidia_smi_missing")])
def test_says_that_nvidia_smi_is_missing(tmp_path: Path, addresses: tuple[str, ...], code: str) -> None:
    assert codes(collect(FakeCommands({}), machine(tmp_path, *addresses, proc=None))) == [(code, None)]


def test_sees_nouveau(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nouveau").mkdir(parents=True)
    facts = collect(FakeCommands({}), machine(tmp_path, "0000:18:00.0", proc=None))
    assert facts.driver.nouveau_loaded
    assert ("nouveau_loaded", None) in codes(facts)


@pytest.mark.parametrize(
    ("healthy_or_not", "severity"),
    [
        ("<summary>Unhealthy</summary>", "critical"),
        ("<summary>Limited Capacity</summary>", "warning"),
        ("<summary>Limited Capacity</summary><route_unhealthy>True</route_unhealthy>", "critical"),
        ("<incorrect_configuration>No Partition</incorrect_configuration>", "critical"),
        ("<bandwidth>Degraded</bandwidth>", "warning"),
        ("<route_recovery_in_progress>True</route_recovery_in_progress>", "warning"),
        ("<summary>Healthy</summary><bandwidth>Full</bandwidth>", None),
    ],
)
def test_weighs_the_health_of_the_fabric(tmp_path: Path, healthy_or_not: str, severity: str | None) -> None:
    report = H100_X2.replace("</fabric>", f"<health>{healthy_or_not}</health></fabric>", 1)
    found = [(problem.code, problem.severity) for problem in collect(healthy(report), str(tmp_path)).problems]
    assert found == ([("fabric_unhealthy", severity)] if severity else [])


INFOROM = "WARNING: infoROM is corrupted at gpu 0000:2A:00.0\n"


@pytest.mark.parametrize(
    "answers",
    [
        {"": CommandResult(14, f"| No running processes found |\n{INFOROM}", "")},
        {"": CommandResult(14, "| No running processes found |\n", INFOROM)},
        {"-q -x": CommandResult(0, H100_X2, INFOROM)},
        {"-q -x": H100_X2 + INFOROM, "": CommandResult(14, INFOROM, "")},
    ],
    ids=["the table", "beside the table", "beside the report", "wherever it can"],
)
def test_names_a_gpu_whose_inforom_is_corrupted(tmp_path: Path, answers: Mapping[str, str | CommandResult]) -> None:
    commands = healthy()
    commands.answers = {**commands.answers, **answers}
    facts = collect(commands, machine(tmp_path, "0000:18:00.0", "0000:2a:00.0"))
    assert codes(facts) == [("inforom_corrupted", 1)]
    assert facts.problems[0].evidence == INFOROM.strip()


def test_names_a_corrupted_inforom_where_there_is_no_report(tmp_path: Path) -> None:
    commands = FakeCommands({"-q -x": CommandResult(9, f"Failed to initialize NVML: Driver Not Loaded\n{INFOROM}", "")})
    assert codes(collect(commands, str(tmp_path))) == [("driver_not_loaded", None), ("inforom_corrupted", None)]


def test_goes_on_with_the_others_where_nvidia_smi_does(tmp_path: Path) -> None:
    addresses = ("0000:18:00.0", "0000:1a:00.0", "0000:2a:00.0")
    words = "Unable to determine the device handle for GPU1: Unknown Error\n"
    report = H100_X2.replace("<attached_gpus>2", "<attached_gpus>3")
    commands = healthy()
    commands.answers = {**commands.answers, "-q -x": CommandResult(0, report, words)}
    facts = collect(commands, machine(tmp_path, *addresses))
    assert [(gpu.index, gpu.state, gpu.pci_bus_id) for gpu in facts.devices] == [
        (0, "ok", addresses[0]),
        (1, "lost", addresses[1]),
        (2, "ok", addresses[2]),
    ]
    assert codes(facts) == [("gpu_lost", 1)]


@pytest.mark.parametrize("hanging", ["-q -x", "topo -m", "nvlink -s", "nvlink -e", ""])
def test_asks_no_more_once_a_call_hangs(tmp_path: Path, hanging: str) -> None:
    commands = healthy()
    commands.answers = {**commands.answers, hanging: CommandResult(None, "", "", timed_out=True)}
    facts = collect(commands, str(tmp_path), timeout=5)
    assert codes(facts) == [("nvidia_smi_hangs", None)]
    calls = [words for words in commands.asked if words]  # the table is asked for beside the others
    assert calls[-1] == (hanging or "nvlink -e")
    assert "5 seconds" in facts.problems[0].message


def test_stops_a_command_that_hangs_and_its_children(tmp_path: Path) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >{tmp_path}/child\nwait\n")
    script.chmod(0o755)
    result = run_command([str(script)], 0.3)
    assert (result.rc, result.timed_out) == (None, True)
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "cmdline")
    for _attempt in range(100):
        if not child.exists() or not child.read_text():  # a process that has ended but isn't waited for has no words
            return
        time.sleep(0.05)
    pytest.fail("the command's child lives on")


def test_reports_a_command_that_is_missing_or_fails(tmp_path: Path) -> None:
    assert run_command([str(tmp_path / "none")], 5).missing
    assert run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 5) == CommandResult(3, "out\n", "err\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (PROC_OPEN, ("550.163.01", "open")),
        (PROC_CLOSED, ("535.54.03", "proprietary")),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  384.111  Tue Dec 19\n", ("384.111", "proprietary")),
        ("junk", (None, None)),
    ],
)
def test_reads_the_loaded_module(content: str, expected: tuple[str | None, str | None]) -> None:
    assert parse_proc_version(content) == expected


KERNEL_LOG = """\
[    5.000000] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.
[   10.000000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build
[   20.000000] NVRM: Xid (PCI:0000:18:00): 31, pid=7, name=python, Ch 00000008, MMU Fault
[   30.000000] NVRM: Xid (PCI:0000:2a:00): 48, pid='<unknown>', name=<unknown>, DBE
[   31.000000] NVRM: Xid (PCI:0000:2a:00): 48, pid='<unknown>', name=<unknown>, DBE
[   32.000000] NVRM: Xid (PCI:0000:2a:00): 79, GPU has fallen off the bus.
[   33.000000] NVRM: Xid (PCI:0000:3b:00): 119, pid=7, name=nvidia-smi, Timeout
"""


def test_warns_of_serious_errors_in_the_kernel_log() -> None:
    devices = [Device(0, "ok", "0000:18:00.0"), Device(1, "ok", "0000:2a:00.0")]
    found = of_kernel_log(kernel_log(FakeCommands({"": KERNEL_LOG}), 60), devices)
    assert [(problem.code, problem.severity, problem.gpu) for problem in found] == [
        ("xid", "warning", 1),
        ("xid", "warning", None),
    ]
    assert "Xid 48 (2 times), Xid 79" in found[0].message
    assert found[0].evidence == KERNEL_LOG.splitlines()[5]
    assert found[0].action.startswith("Unless it was done since: reboot.")
    assert "0000:3b:00.0" in found[1].message
    assert "reset the GPU" in found[1].action


def test_works_aside_and_raises_where_it_is_asked() -> None:
    assert Aside(lambda: 7).result() == 7
    failing = Aside(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failing.result()


@pytest.mark.parametrize("answer", [CommandResult(1, "", "Operation not permitted"), CommandResult(0, "", "")])
def test_is_silent_where_the_kernel_log_is(answer: CommandResult) -> None:
    assert of_kernel_log(kernel_log(FakeCommands({"": answer}), 60), []) == []


def test_names_mig_devices(tmp_path: Path) -> None:
    commands = FakeCommands(
        {
            "-q -x": read_capture("nvidia-smi-xml", "a100-sxm4-80g-x4-535-mig.xml"),
            "-L": "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n"
            "  MIG 1g.20gb     Device  0: (UUID: MIG-a)\n"
            "  MIG 1g.20gb     Device  3: (UUID: MIG-d)\n",
        }
    )
    instances = collect(commands, str(tmp_path)).devices[0].mig_instances
    assert [(one.index, one.uuid, one.profile) for one in instances] == [
        (0, "MIG-a", "1g.20gb"),
        (1, None, None),
        (2, None, None),
        (3, "MIG-d", "1g.20gb"),
    ]


def test_asks_for_names_of_mig_devices_only_where_there_are_any(tmp_path: Path) -> None:
    commands = healthy()
    collect(commands, str(tmp_path))
    assert sorted(commands.asked) == ["", "-q -x", "nvlink -e", "nvlink -s", "topo -m"]


def test_takes_the_report_for_people_where_there_is_no_other(tmp_path: Path) -> None:
    facts = collect(
        FakeCommands({"-q -x": read_capture("nvidia-smi-text", "gpud-535.129.03-a10.q.txt")}), str(tmp_path)
    )
    assert (facts.count, facts.slurm_gres, facts.driver.version) == (1, "gpu:a10:1", "535.129.03")
    assert ("row_remap_pending", 0) in codes(facts)


def test_reads_the_power_limits_of_new_drivers() -> None:
    ceiling = "<gpu_ceiling_power_limit><current_power_limit>650.00 W</current_power_limit></gpu_ceiling_power_limit>"
    start = H100_X2.index("<current_power_limit>")
    end = H100_X2.index("</default_power_limit>") + len("</default_power_limit>")
    first = parse_report(H100_X2[:start] + ceiling + H100_X2[end:]).devices[0]
    assert (first.power_limit_watts, first.power_limit_default_watts) == (650.0, None)


def test_finds_no_difference_where_there_is_none(tmp_path: Path) -> None:
    facts = collect(healthy(), str(tmp_path))
    declared = Expected(2, "nvidia h100 80gb hbm3", "h100", 81000, "550")
    assert differences(facts, declared) == []
    assert differences(facts, Expected()) == []


def test_lists_every_difference_at_once(tmp_path: Path) -> None:
    facts = collect(healthy(H100_X2.replace("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", 1)), str(tmp_path))
    found = differences(facts, Expected(8, "NVIDIA H100 80GB HBM3", "h100", 40960, "55"))
    assert [sentence.split(":")[0] for sentence in found] == [
        "count",
        "model",
        "slurm_type",
        "memory_mib",
        "driver_version",
    ]
    assert "8 GPUs are declared, 2 answer" in found[0]
    assert "found NVIDIA A100-SXM4-80GB (GPU 0)" in found[1]
    assert "found 81559 MiB (GPU 0, 1)" in found[3]


def test_says_why_no_gpu_answers(tmp_path: Path) -> None:
    facts = collect(FakeCommands({}), machine(tmp_path, "0000:18:00.0", proc=None))
    (only,) = reasons_for_missing(facts)
    assert "nvidia-smi can't be run" in only
    assert "Install the driver" in only


def test_says_which_gpu_is_missing_and_why(tmp_path: Path) -> None:
    facts = collect(healthy(H100_X2.replace("31 C", "GPU is lost", 1)), str(tmp_path))
    (only,) = reasons_for_missing(facts)
    assert only.startswith("GPU 0: The driver can't reach a GPU any more")
