# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_no_handle import NoHandle, parse_messages
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import (
    INCOMPLETE,
    LOST,
    OK,
    SmiError,
    parse_report,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import all_captures, fixture, read_capture

H100_X2 = fixture("gpu/h100-x2.xml")

# What each capture shows: driver, CUDA, number of GPU elements, and fields of the first GPU, read from the file by eye.
CAPTURES: dict[str, tuple[str, str | None, int, dict[str, Any]]] = {
    "2080ti-x2-410-noecc.xml": (
        "410.73",
        "10.0",
        2,
        {
            "model": "GeForce RTX 2080 Ti",
            "memory_total_mib": 10989,
            "ecc_mode_current": None,
            "power_limit_watts": 250.0,
        },
    ),
    "a100-sxm4-80g-x4-535-mig.xml": (
        "535.54.03",
        "12.2",
        1,
        {
            "model": "NVIDIA A100-SXM4-80GB",
            "memory_total_mib": 81920,
            "mig_mode_current": "Enabled",
            "minor": 1,
            "utilisation_gpu_percent": None,
            "temperature_memory_celsius": 44,
            "power_draw_watts": 67.03,
            "reset_required": False,
        },
    ),
    "a10g-515.xml": (
        "515.105.01",
        "11.7",
        1,
        {
            "pci_bus_id": "0000:00:1e.0",
            "memory_total_mib": 23028,
            "pci_link_width_current": 8,
            "remapped_rows_correctable": 0,
            "virtualization_mode": "Pass-Through",
        },
    ),
    "gt1030-470.xml": (
        "470.74",
        "11.4",
        1,
        {
            "memory_total_mib": 1998,
            "power_draw_watts": None,
            "power_limit_min_watts": 25.5,
            "display_active": "Enabled",
        },
    ),
    "gt730-384-unsupported.xml": (
        "384.111",
        None,
        1,
        {
            "pci_bus_id": "0000:01:00.0",
            "memory_total_mib": None,
            "persistence_mode": "Enabled",
            "utilisation_gpu_percent": None,
        },
    ),
    "gtx-1660ti-418-noproduct.xml": (
        "418.43",
        "10.1",
        1,
        {"model": "Graphics Device", "slurm_type": None, "memory_total_mib": 5912, "power_draw_watts": 8.93},
    ),
    "gtx1050-515.xml": (
        "515.65.01",
        "11.7",
        1,
        {"memory_total_mib": 4096, "performance_state": "P3", "power_limit_watts": None, "utilisation_gpu_percent": 7},
    ),
    "gtx1070-384-dtdv9.xml": (
        "384.66",
        None,
        2,
        {
            "pci_link_width_current": 1,
            "power_draw_watts": 119.47,
            "utilisation_gpu_percent": 100,
            "fan_speed_percent": 41,
        },
    ),
    "k80-x4-430.xml": (
        "430.26",
        None,
        4,
        {
            "pci_bus_id": "1580:00:00.0",
            "minor": 1,
            "ecc_aggregate_corrected": 7,
            "ecc_aggregate_uncorrected": 7,
            "retired_pages_double_bit_count": 1,
            "retired_pages_pending": False,
        },
    ),
    "netdata-rtx-4090-driver-535.xml": (
        "535.86.05",
        "12.2",
        1,
        {
            "slurm_type": "rtx4090",
            "temperature_margin_celsius": 43,
            "temperature_slowdown_celsius": None,
            "memory_total_mib": 24564,
            "pci_link_generation_host_max": 3,
        },
    ),
    "netdata-tesla-p100.xml": (
        "510.47.03",
        "11.6",
        1,
        {"slurm_type": "p100", "memory_total_mib": 16384, "ecc_mode_current": "Enabled", "power_draw_watts": 26.16},
    ),
    "quadro-p400-418.xml": (
        "418.43",
        "10.1",
        1,
        {"slurm_type": "p400", "memory_total_mib": 1998, "power_limit_watts": None, "temperature_gpu_celsius": 33},
    ),
    "rtx3060-570.xml": (
        "570.124.04",
        "12.8",
        1,
        {"memory_total_mib": 12288, "power_draw_watts": 11.60, "recovery_action": "None", "ecc_mode_current": None},
    ),
    "rtx3080-win-536.xml": (
        "536.40",
        "12.2",
        1,
        {"driver_model": "WDDM", "minor": None, "persistence_mode": None, "power_limit_watts": 336.0},
    ),
    "rtx3090-525.xml": (
        "525.147.05",
        "12.0",
        1,
        {
            "pci_bus_id": "0000:00:10.0",
            "memory_total_mib": 24576,
            "power_limit_watts": 200.0,
            "power_draw_watts": 27.23,
        },
    ),
    "rtx4000-sff-ada-595-v13.xml": (
        "595.84",
        "13.2",
        1,
        {
            "power_draw_watts": 8.81,
            "power_draw_instant_watts": 8.44,
            "clock_graphics_application_mhz": None,
            "remapped_rows_histogram_max_banks": 96,
            "temperature_shutdown_margin_celsius": -7,
            "fabric_state": None,
        },
    ),
    "telegraf-3090-v13-590.xml": (
        "590.44.01",
        "13.1",
        1,
        {
            "power_draw_watts": 35.06,
            "power_limit_watts": 350.0,
            "memory_total_mib": 24576,
            "temperature_gpu_celsius": 32,
        },
    ),
    "telegraf-dual_2080-v13-590.xml": (
        "590.44.01",
        "13.1",
        2,
        {"power_draw_watts": 1.0, "power_limit_watts": 215.0, "memory_total_mib": 8192, "pci_link_width_current": 8},
    ),
    "telegraf-pro-6000-maxq-blackwell-v13-590.xml": (
        "590.44.01",
        "13.1",
        1,
        {
            "slurm_type": "rtxpro6000",
            "memory_total_mib": 97887,
            "ecc_channel_repair_pending": False,
            "temperature_margin_celsius": 68,
            "remapped_rows_histogram_max_banks": 512,
        },
    ),
    "tesla-t4-old.xml": (
        "512.78",
        "11.6",
        1,
        {"slurm_type": "t4", "memory_total_mib": 15360, "minor": None, "retired_pages_single_bit_count": 0},
    ),
    "v100-pcie-460-vm-procs.xml": (
        "460.39",
        "11.2",
        1,
        {"pci_bus_id": "0000:21:01.0", "temperature_memory_celsius": 65, "utilisation_gpu_percent": 91},
    ),
    "v100s-x8-460.xml": (
        "460.73.01",
        "11.2",
        8,
        {"slurm_type": "v100s", "memory_total_mib": 32510, "power_draw_watts": 232.8, "temperature_gpu_celsius": 66},
    ),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_reads_every_capture(name: str) -> None:
    driver, cuda, count, fields = CAPTURES[name]
    report = parse_report(read_capture("nvidia-smi-xml", name))
    first = report.devices[0]
    assert (report.driver_version, report.cuda_version, len(report.devices)) == (driver, cuda, count)
    assert {field: getattr(first, field) for field in fields} == fields
    assert [device.state for device in report.devices] == [OK] * count
    assert not report.truncated


def test_refuses_the_report_of_another_makers_tool() -> None:
    with pytest.raises(SmiError, match="ixsmi_log"):
        parse_report(read_capture("nvidia-smi-xml", "iluvatar-ixsmi.xml"))


def test_reads_or_refuses_whatever_else_lies_there() -> None:
    for name, text in all_captures("nvidia-smi-xml"):
        for end in (len(text), len(text) // 2, len(text) * 9 // 10):
            try:
                report = parse_report(text[:end])
            except SmiError:
                continue
            assert [device.index for device in report.devices] == list(range(len(report.devices))), name


def test_reads_mig_instances() -> None:
    report = parse_report(read_capture("nvidia-smi-xml", "a100-sxm4-80g-x4-535-mig.xml"))
    instances = report.devices[0].mig_instances
    assert [instance.gpu_instance_id for instance in instances] == [3, 4, 5, 6]
    assert (instances[3].index, instances[3].memory_total_mib, instances[3].multiprocessor_count) == (3, 19968, 14)


def test_reads_processes() -> None:
    report = parse_report(read_capture("nvidia-smi-xml", "v100-pcie-460-vm-procs.xml"))
    processes = report.devices[0].processes
    assert [process.pid for process in processes] == [4027538, 4027590, 4157880, 4165319]
    assert (processes[0].name, processes[0].memory_used_mib, processes[0].type) == ("mtopen-plugin:worker", 3214, "C")


def test_reads_our_own_report_whole() -> None:
    report = parse_report(H100_X2)
    first, second = report.devices
    assert (report.driver_version, report.attached_gpus, report.truncated) == ("550.163.01", 2, False)
    assert (first.pci_bus_id, second.pci_bus_id) == ("0000:18:00.0", "0000:2a:00.0")
    assert (first.serial, second.serial) == ("1650000000001", None)
    assert (first.power_limit_watts, first.power_limit_enforced_watts) == (700.0, 650.0)
    assert (first.ecc_volatile_uncorrected, first.ecc_aggregate_uncorrected) == (0, None)
    assert first.throttle_reasons_active == ["gpu_idle"]
    assert (first.fabric_state, first.fabric_clique_id) == ("Completed", 0)
    assert first.processes[0].name == "[python3]"
    assert report.failed_values == {}


@pytest.mark.parametrize(
    "printed",
    [
        "N/A",
        "[N/A]",
        "Not Supported",
        "[Not Supported]",
        "ERR!",
        "Unknown Error",
        "[Unknown Error]",
        "Requested functionality has been deprecated",
        "Insufficient Permissions",
        "[Insufficient Permissions]",
        "",
        "Unknown",
    ],
)
def test_has_no_value_where_the_driver_has_none(printed: str) -> None:
    report = parse_report(
        H100_X2.replace("71.50 W", printed)
        .replace("72.25 W", printed)
        .replace("31 C", printed)
        .replace("81559 MiB", printed)
        .replace("1650000000001", printed)
        .replace("<reset_required>No", f"<reset_required>{printed}")
    )
    device = report.devices[0]
    assert device.power_draw_watts is None
    assert device.temperature_gpu_celsius is None
    assert device.memory_total_mib is None
    assert device.serial is None
    assert device.reset_required is None
    assert device.state == OK


def test_tells_a_failure_from_a_missing_value() -> None:
    report = parse_report(H100_X2.replace("31 C", "ERR!", 1).replace("40 C", "N/A", 1))
    assert report.failed_values == {0: ["temperature/gpu_temp"]}


@pytest.mark.parametrize(
    ("before", "element"), [("<current_link_gen>", "max_host_link_gen"), ("<persistence_mode>", "addressing_mode")]
)
def test_finds_no_failure_in_what_healthy_gpus_show(before: str, element: str) -> None:
    assert before in H100_X2
    report = parse_report(H100_X2.replace(before, f"<{element}>Unknown Error</{element}>{before}"))
    assert report.failed_values == {}
    assert [device.state for device in report.devices] == [OK, OK]


@pytest.mark.parametrize("printed", ["Unknown Error", "[Unknown Error]", "ERR!"])
def test_marks_a_gpu_that_the_driver_fails_to_read(printed: str) -> None:
    """Its name and its place on the bus are still known."""
    start, end = H100_X2.index("<fan_speed>"), H100_X2.index("</gpu>")
    values = re.sub(r">[^<>\s][^<>]*</", f">{printed}</", H100_X2[start:end])
    first, second = parse_report(H100_X2[:start] + values + H100_X2[end:]).devices
    assert (first.state, first.model, first.pci_bus_id) == (LOST, "NVIDIA H100 80GB HBM3", "0000:18:00.0")
    assert second.state == OK


def test_marks_a_gpu_that_is_lost() -> None:
    first, second = parse_report(H100_X2.replace("31 C", "GPU is lost", 1)).devices
    assert (first.state, first.temperature_gpu_celsius, second.state) == (LOST, None, OK)


@pytest.mark.parametrize("printed", ["Unknown Error", "[Unknown Error]", "ERR!"])
def test_marks_a_gpu_whose_uuid_cannot_be_read(printed: str) -> None:
    start, end = H100_X2.index("<uuid>"), H100_X2.index("</uuid>")
    first, second = parse_report(f"{H100_X2[:start]}<uuid>{printed}{H100_X2[end:]}").devices
    assert (first.state, first.uuid, second.state) == (LOST, None, OK)


def test_marks_a_gpu_that_wants_a_reset() -> None:
    assert parse_report(H100_X2.replace("71.50 W", "[GPU requires reset]", 1)).needing_reset == [0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error",
            NoHandle(3, "0000:5f:00.0", "Unknown Error", ""),
        ),
        (
            "Unable to determine the device handle for GPU 0000:5E:00.0: GPU is lost.  Reboot the system",
            NoHandle(None, "0000:5e:00.0", "GPU is lost.  Reboot the system", ""),
        ),
        (
            "Unable to determine the device handle for GPU0000:5E:00.0: GPU is lost.",
            NoHandle(None, "0000:5e:00.0", "GPU is lost.", ""),
        ),
        (
            "Unable to determine the device handle for gpu 00000000:5E:00.0: Unknown Error\n",
            NoHandle(None, "0000:5e:00.0", "Unknown Error", ""),
        ),
    ],
    ids=["index and address", "address", "address without a space", "long domain"],
)
def test_reads_the_message_about_a_lost_gpu(words: str, expected: NoHandle) -> None:
    (found,) = parse_messages(words)
    assert (found.index, found.pci_bus_id, found.reason) == (expected.index, expected.pci_bus_id, expected.reason)


def test_goes_on_counting_after_a_gpu_that_only_a_message_names() -> None:
    lost = "Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost.\n"
    report = parse_report(H100_X2.replace("\t</gpu>\n", f"\t</gpu>\n{lost}", 1))
    assert [(device.index, device.state) for device in report.devices] == [(0, OK), (1, LOST), (2, OK)]
    assert [(handle.index, handle.pci_bus_id) for handle in report.no_handles] == [(1, "0000:1a:00.0")]


def test_numbers_the_gpus_that_were_asked_for() -> None:
    assert [device.index for device in parse_report(H100_X2, [3, 7]).devices] == [3, 7]


OF_THREE = H100_X2.replace("<attached_gpus>2", "<attached_gpus>3")


@pytest.mark.parametrize(
    ("message", "lost", "listed"),
    [
        ("GPU0: 0000:05:00.0: Unknown Error", (0, "0000:05:00.0"), [1, 2]),
        ("GPU1: 0000:1A:00.0: Unknown Error", (1, "0000:1a:00.0"), [0, 2]),
        ("GPU1: Unknown Error", (1, None), [0, 2]),
        ("GPU 0000:1A:00.0: GPU is lost.", (1, "0000:1a:00.0"), [0, 2]),
        ("gpu 0000:5D:00.0: GPU is lost.", (2, "0000:5d:00.0"), [0, 1]),
    ],
)
@pytest.mark.parametrize("printed", ["before", "after", "error output", "both outputs"])
def test_leaves_the_number_of_a_gpu_free_that_a_message_names(
    message: str, lost: tuple[int, str | None], listed: list[int], printed: str
) -> None:
    line = f"Unable to determine the device handle for {message}\n"
    output = {"before": line + OF_THREE, "after": OF_THREE + line, "both outputs": line + OF_THREE}.get(
        printed, OF_THREE
    )
    report = parse_report(output, messages=line if "output" in printed else "")
    assert [device.index for device in report.devices] == [0, 1, 2]
    assert [(device.index, device.pci_bus_id) for device in report.devices if device.state == LOST] == [lost]
    assert [device.index for device in report.devices if device.state == OK] == listed
    assert [handle.index for handle in report.no_handles] == [lost[0]]


@pytest.mark.parametrize(
    "report",
    [H100_X2, OF_THREE.replace("2A:00.0", "02:00.0")],
    ids=["no GPU is missing from the count", "GPUs out of order"],
)
def test_guesses_no_number_of_a_gpu_that_a_message_names_by_its_address(report: str) -> None:
    line = "Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost.\n"
    read = parse_report(report, messages=line)
    assert [(device.index, device.state) for device in read.devices] == [(0, OK), (1, OK)]
    assert [(handle.index, handle.pci_bus_id) for handle in read.no_handles] == [(None, "0000:1a:00.0")]


HEALTH = """<health>
  <summary>{}</summary>
  <bandwidth>{}</bandwidth>
  <route_recovery_in_progress>{}</route_recovery_in_progress>
  <route_unhealthy>{}</route_unhealthy>
  <access_timeout_recovery>{}</access_timeout_recovery>
  <incorrect_configuration>{}</incorrect_configuration>
  <partition_assigned>False</partition_assigned>
</health>"""


@pytest.mark.parametrize(
    ("printed", "summary", "faults"),
    [
        (("Healthy", "Full", "False", "False", "False", "None"), "Healthy", []),
        (("N/A", "N/A", "N/A", "N/A", "N/A", "N/A"), None, None),
        (("Unhealthy", "Full", "False", "True", "N/A", "None"), "Unhealthy", ["route_unhealthy"]),
        (
            ("Limited Capacity", "Degraded", "True", "False", "True", "System GUID"),
            "Limited Capacity",
            [
                "bandwidth Degraded",
                "route_recovery_in_progress",
                "access_timeout_recovery",
                "incorrect_configuration System GUID",
            ],
        ),
    ],
)
def test_reads_the_health_of_the_fabric(
    printed: tuple[str, ...], summary: str | None, faults: list[str] | None
) -> None:
    report = parse_report(H100_X2.replace("</fabric>", HEALTH.format(*printed) + "</fabric>", 1))
    first, second = report.devices
    assert (first.fabric_health_summary, first.fabric_health_faults) == (summary, faults)
    assert (second.fabric_health_summary, second.fabric_health_faults) == (None, None)


@pytest.mark.parametrize(
    "spoilt",
    [
        "WARNING: infoROM is corrupted at gpu 0000:18:00.0\nmotd: welcome <user> & co\n" + H100_X2,
        H100_X2 + "\nWARNING: infoROM is corrupted at gpu 0000:18:00.0\n",
        H100_X2.replace("[python3]", "train --lr<0.1 & wait", 1),
        H100_X2.replace("[python3]", "a\x00\x1b[0m\ud800b", 1),
        H100_X2.replace("[python3]", "a</process_name><b>", 1),
        H100_X2.replace("\n", "\r\n"),
    ],
    ids=["words before", "words after", "bare < and &", "control characters", "markup in a name", "CRLF"],
)
def test_reads_through(spoilt: str) -> None:
    report = parse_report(spoilt)
    assert [device.state for device in report.devices] == [OK, OK]
    assert [device.memory_total_mib for device in report.devices] == [81559, 81559]


def test_reads_the_first_report_of_a_loop() -> None:
    assert parse_report(H100_X2 + H100_X2[:-100]) == parse_report(H100_X2)


def test_keeps_the_other_gpus_when_one_element_is_spoilt() -> None:
    first, second = parse_report(H100_X2.replace("</temperature>", "", 1)).devices
    assert (first.state, first.model, second.state) == (INCOMPLETE, "NVIDIA H100 80GB HBM3", OK)


def test_keeps_what_came_before_the_end_of_a_cut_report() -> None:
    report = parse_report(H100_X2[: H100_X2.rindex("559 MiB")])
    first, second = report.devices
    assert report.truncated
    assert (first.state, second.state) == (OK, INCOMPLETE)
    assert (second.pci_bus_id, second.performance_state, second.memory_total_mib) == ("0000:2a:00.0", "P0", None)


@pytest.mark.parametrize("words", ["", "\x00", "No devices were found\n", "<html></html>", "<nvidia_smi_"])
def test_refuses_what_is_no_report(words: str) -> None:
    with pytest.raises(SmiError):
        parse_report(words)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(H100_X2)), st.integers(0, 400), st.text(max_size=40))
def test_raises_nothing_but_its_own_error(position: int, length: int, junk: str) -> None:
    for words in (H100_X2[:position] + junk + H100_X2[position + length :], H100_X2[:position], junk):
        try:
            report = parse_report(words)
        except SmiError:
            continue
        assert len(report.devices) <= 4
