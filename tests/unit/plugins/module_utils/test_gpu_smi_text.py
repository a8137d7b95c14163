# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import SmiError
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi_text import (
    ListedGpu,
    ListedMig,
    parse_csv,
    parse_list,
    parse_text,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import all_captures, read_capture

# Of each capture driver, CUDA, number of GPUs, and fields of the last GPU; read by eye.
TEXTS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "azhc-orig_nvsmi8.q.txt": (
        "535.86.10",
        "12.2",
        8,
        {"pci_bus_id": "0008:00:00.0", "retired_pages_single_bit_count": 0, "retired_pages_pending": False},
    ),
    "gpud-535.129.03-a10.q.txt": (
        "535.129.03",
        "12.2",
        1,
        {
            "model": "NVIDIA A10",
            "remapped_rows_uncorrectable": 4,
            "remapped_rows_pending": True,
            "memory_total_mib": 23028,
            "power_draw_watts": 43.89,
            "power_limit_watts": 150.0,
            "throttle_reasons_active": ["gpu_idle"],
        },
    ),
    "gpud-535.154.05-1.q.txt": (
        "535.154.05",
        "12.2",
        8,
        {"slurm_type": "rtx4090", "pci_bus_id": "0000:e1:00.0", "memory_total_mib": 24564},
    ),
    "gpud-535.154.05-2.q.txt": (
        "535.154.05",
        "12.2",
        8,
        {"slurm_type": "rtx4090", "pci_bus_id": "0000:e1:00.0", "ecc_mode_current": "Disabled"},
    ),
    "gpud-535.183.01.q.txt": (
        "535.183.01",
        "12.2",
        8,
        {"slurm_type": "h100", "memory_total_mib": 81559, "fabric_state": "Completed", "power_limit_watts": 700.0},
    ),
    "gpud-560.35.03.q.txt": (
        "560.35.03",
        "12.6",
        1,
        {"slurm_type": "titanv", "persistence_mode": "Disabled", "temperature_slowdown_celsius": 97, "minor": 0},
    ),
    "h100-mig-590.48.01-load.q.txt": (
        "590.48.01",
        "13.1",
        1,
        {
            "mig_mode_current": "Enabled",
            "utilisation_gpu_percent": None,
            "power_draw_watts": 432.21,
            "temperature_margin_celsius": 24,
            "recovery_action": "None",
            "pci_replay_count": 9,
            "remapped_rows_pending": None,
        },
    ),
    "h200-590.48.01-load.q.txt": (
        "590.48.01",
        "13.1",
        1,
        {"slurm_type": "h200", "remapped_rows_histogram_max_banks": 3072, "fabric_clique_id": 0},
    ),
    "l40s-595.80-load.q.txt": (
        "595.80",
        "13.2",
        1,
        {"slurm_type": "l40s", "utilisation_encoder_percent": 59, "power_draw_watts": 110.24, "memory_used_mib": 1235},
    ),
    "rtx-4080-super-595.71.05-load.q.txt": (
        "595.71.05",
        "13.2",
        1,
        {"slurm_type": "rtx4080super", "power_limit_max_watts": 400.0, "pci_link_generation_host_max": 5},
    ),
    "win-rtx-2080-super-591.86-load.q.txt": (
        "591.86",
        "13.1",
        1,
        {"driver_model": "WDDM", "power_limit_watts": 250.0, "minor": None},
    ),
    # It tells two kinds of limits apart.
    "win-rtx-2080-super-610.62-load.q.txt": (
        "610.62",
        "13.3",
        1,
        {
            "power_limit_watts": 250.0,
            "power_limit_default_watts": 250.0,
            "power_limit_min_watts": 105.0,
            "temperature_target_celsius": 84,
        },
    ),
}
# Of each capture the number of lines, and fields of the first; read by eye.
TABLES: dict[str, tuple[int, dict[str, str | None]]] = {
    "a100-x4-580-partial.csv": (
        4,
        {"index": "0", "memory.total MiB": "81920 MiB", "driver_version": "580.105.08"},
    ),
    "h100-80gb-hbm3-590.48.01-load.compute-apps.csv": (
        3,
        {"pid": "11327", "process_name": "/root/tools/memhog", "used_gpu_memory MiB": "2566 MiB"},
    ),
    "h100-mig-590.48.01-idle.csv": (
        1,
        {"driver_version": "590.48.01", "pci.bus_id": "00000000:00:09.0", "pcie.link.gen.hostmax": None},
    ),
    "h100-mig-590.48.01-load.csv": (1, {"name": "NVIDIA H100 80GB HBM3", "count": "1", "hostname": None}),
    "h200-590.48.01-load.csv": (
        1,
        {"name": "NVIDIA H200", "pci.bus_id": "00000000:83:00.0", "platform.module_id": "1"},
    ),
    "h200-mig-590.48.01-load.csv": (1, {"name": "NVIDIA H200", "driver_version": "590.48.01", "count": "1"}),
    "l40s-595.80-load.compute-apps.csv": (
        2,
        {"gpu_name": "NVIDIA L40S", "process_name": "ffmpeg", "used_gpu_memory MiB": "538 MiB"},
    ),
    # The prompt stands before it, and its author left lines out.
    "ml-eng-vbios.csv": (
        2,
        {"name": "NVIDIA H100 80GB HBM3", "pci.bus_id": "00000000:04:00.0", "vbios_version": "96.00.89.00.01"},
    ),
    "rtx-2080-super-610.57.04-load.csv": (
        1,
        {"kmd_version": "610.57.04", "serial": None, "bbx.time_run seconds": None},
    ),
    "rtx-4080-super-595.71.05-load.compute-apps.csv": (
        3,
        {"process_name": "/usr/bin/kwin_wayland", "gpu_serial": None, "used_gpu_memory MiB": "25 MiB"},
    ),
    "win-rtx-2080-super-591.86-load.compute-apps.csv": (
        12,
        {"pid": "12444", "used_gpu_memory MiB": None, "gpu_bus_id": "00000000:0C:00.0"},
    ),
    "win-rtx-2080-super-610.62-load.csv": (
        1,
        {"driver_version": "610.62", "pci.device_id": "0x1E8110DE", "hostname": None},
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_reads_every_text(name: str) -> None:
    driver, cuda, count, fields = TEXTS[name]
    report = parse_text(read_capture("nvidia-smi-text", name))
    assert (report.driver_version, report.cuda_version, len(report.devices)) == (driver, cuda, count)
    assert {field: getattr(report.devices[-1], field) for field in fields} == fields
    assert {device.state for device in report.devices} == {"ok"}
    assert report.failed_values == {}


def test_knows_every_text_and_table() -> None:
    texts = {name for name, _content in all_captures("nvidia-smi-text") if name.endswith(".q.txt")}
    tables = {name for name, _content in all_captures("nvidia-smi-csv")}
    assert texts <= set(TEXTS)
    assert tables <= {*TABLES, "gb10-unified-na.csv"}


def test_reads_mig_instances_and_processes_of_a_text() -> None:
    (gpu,) = parse_text(read_capture("nvidia-smi-text", "h100-mig-590.48.01-load.q.txt")).devices
    assert [(one.index, one.gpu_instance_id, one.memory_total_mib) for one in gpu.mig_instances] == [
        (0, 2, 40448),
        (1, 3, 20096),
        (2, 9, 9984),
        (3, 10, 9984),
    ]
    first = gpu.mig_instances[0]
    assert (first.multiprocessor_count, first.ecc_volatile_sram_uncorrected, first.bar1_total_mib) == (60, 0, 24739)
    assert [(one.pid, one.name, one.memory_used_mib, one.gpu_instance_id) for one in gpu.processes] == [
        (21180, "/root/tools/memhog", 2296, 2),
        (21181, "/root/tools/memhog", 1272, 2),
        (21198, "./gpu_burn", 7484, 2),
    ]


@pytest.mark.parametrize("name", TABLES)
def test_reads_every_table(name: str) -> None:
    count, fields = TABLES[name]
    lines = parse_csv(read_capture("nvidia-smi-csv", name))
    assert len(lines) == count
    assert {field: lines[0][field] for field in fields} == fields


def test_refuses_a_table_without_a_head() -> None:
    with pytest.raises(SmiError, match="begins: 0, NVIDIA GB10"):
        parse_csv(read_capture("nvidia-smi-csv", "gb10-unified-na.csv"))


def test_joins_a_process_name_with_commas() -> None:
    (line,) = parse_csv("pid, process_name, used_gpu_memory [MiB]\n7, train --a=1, --b=2, 538 MiB\n8, cut\n")
    assert line == {"pid": "7", "process_name": "train --a=1, --b=2", "used_gpu_memory MiB": "538 MiB"}


def test_reads_the_list_of_gpus_and_mig_devices() -> None:
    (gpu,) = parse_list(read_capture("nvidia-smi-text", "h100-mig-590.48.01.L.txt"))
    assert (gpu.index, gpu.name, len(gpu.mig)) == (0, "NVIDIA H100 80GB HBM3", 4)
    assert gpu.mig[1] == ListedMig("2g.20gb", 1, "MIG-00000001-0000-0000-0000-000000000001")
    assert parse_list("GPU 3: NVIDIA A100 (UUID: GPU-1)\njunk\n") == [ListedGpu(3, "NVIDIA A100", "GPU-1", [])]
    assert parse_list("  MIG 1g.10gb Device 0: (UUID: MIG-1)\n") == []


REPORT = """\
==============NVSMI LOG==============

Driver Version : 550.163.01
Attached GPUs : 2
GPU 00000000:18:00.0
    Product Name : NVIDIA H100 80GB HBM3
    MIG Device
        Index : 0
        ECC Errors
            Volatile
                SRAM Uncorrectable : 2
    Temperature
        GPU Current Temp : ERR!
    Processes
        Process ID : 12
            Type : C
        Process ID : 13
            Name : a : b
GPU 00000000:2A:00.0
    Temperature
        GPU Current Temp : GPU is lost
"""


def test_reads_the_first_report_of_a_loop() -> None:
    assert parse_text(REPORT + REPORT) == parse_text(REPORT)


def test_tells_lost_and_failing_gpus() -> None:
    report = parse_text(REPORT)
    assert [(gpu.index, gpu.state, gpu.pci_bus_id) for gpu in report.devices] == [
        (0, "ok", "0000:18:00.0"),
        (1, "lost", "0000:2a:00.0"),
    ]
    assert report.failed_values == {0: ["temperature/gpu_temp"]}
    first = report.devices[0]
    assert first.mig_instances[0].ecc_volatile_sram_uncorrected == 2
    assert [(one.pid, one.type, one.name) for one in first.processes] == [(12, "C", None), (13, None, "a : b")]


@pytest.mark.parametrize("printed", ["output", "error output"])
def test_leaves_the_number_of_a_gpu_free_that_a_message_names(printed: str) -> None:
    line = "Unable to determine the device handle for GPU1: 0000:1A:00.0: Unknown Error\n"
    at = REPORT.index("GPU 00000000:2A")
    report = parse_text(REPORT[:at] + line + REPORT[at:]) if printed == "output" else parse_text(REPORT, line)
    assert [(gpu.index, gpu.state, gpu.pci_bus_id) for gpu in report.devices] == [
        (0, "ok", "0000:18:00.0"),
        (1, "lost", "0000:1a:00.0"),
        (2, "lost", "0000:2a:00.0"),
    ]
    assert [handle.index for handle in report.no_handles] == [1]


@pytest.mark.parametrize(("current", "specification"), [("GPU", ""), ("GPU Current", " Specification")])
def test_reads_thermal_margins_under_their_old_and_new_names(current: str, specification: str) -> None:
    (gpu,) = parse_text(
        "==============NVSMI LOG==============\n"
        "GPU 00000000:18:00.0\n"
        "    Temperature\n"
        "        GPU Current Temp : 40 C\n"
        f"        {current} T.Limit Temp : 47 C\n"
        f"        GPU Shutdown T.Limit Temp{specification} : -12 C\n"
        f"        GPU Slowdown T.Limit Temp{specification} : -2 C\n"
        f"        GPU Target Temperature{specification} : 87 C\n"
    ).devices
    assert (gpu.temperature_gpu_celsius, gpu.temperature_target_celsius) == (40, 87)
    assert (gpu.temperature_margin_celsius, gpu.temperature_slowdown_margin_celsius) == (47, -2)
    assert gpu.temperature_shutdown_margin_celsius == -12


def test_reads_the_health_of_the_fabric_in_a_text() -> None:
    (gpu,) = parse_text(
        "==============NVSMI LOG==============\n"
        "GPU 00000000:18:00.0\n"
        "    Fabric\n"
        "        State : Completed\n"
        "        Health\n"
        "            Summary : Unhealthy\n"
        "            Bandwidth : Full\n"
        "            Route Recovery in progress : False\n"
        "            Route Unhealthy : True\n"
    ).devices
    assert (gpu.fabric_state, gpu.fabric_health_summary) == ("Completed", "Unhealthy")
    assert gpu.fabric_health_faults == ["route_unhealthy"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(REPORT)), st.integers(0, 100), st.text(max_size=30))
def test_raises_nothing_but_its_own_error(position: int, length: int, junk: str) -> None:
    for words in (REPORT[:position] + junk + REPORT[position + length :], REPORT[:position], junk):
        try:
            assert len(parse_text(words).devices) <= 3
        except SmiError:
            continue


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 90), st.integers(0, 60), st.text(max_size=30))
def test_raises_nothing_but_its_own_error_for_a_table(position: int, length: int, junk: str) -> None:
    table = 'pid, process_name, used_gpu_memory [MiB]\n7, "train", 538 MiB\n8, x, [N/A]\n'
    for words in (table[:position] + junk + table[position + length :], table[:position], junk):
        try:
            parse_csv(words)
        except SmiError:
            continue
        parse_list(words)
