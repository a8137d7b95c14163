# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._xid import (
    Clock,
    XidEvent,
    parse_kernel_log,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._xid_catalogue import (
    ACTIONS,
    SXIDS,
    XIDS,
    alerts,
    most_severe,
    of_sxid,
    of_xid,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import all_captures, read_capture

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A log without an offset is in the machine's own time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def one(line: str, clock: Clock | None = None) -> XidEvent:
    (event,) = parse_kernel_log([line], clock or Clock(NOW)).events
    return event


# Of each capture the events by kind, code and address, the UUIDs, and fields of the first event; read by eye.
CAPTURES: dict[str, tuple[dict[tuple[str, int | None, str | None], int], dict[str, str], dict[str, Any]]] = {
    "azhc-6flap_syslog.log": ({}, {}, {}),
    "azure-nhc-xid119-prefixed.txt": (
        {("xid", 119, "0002:00:00.0"): 1},
        {},
        {
            "pid": 67769,
            "process_name": "nvidia-smi",
            "monotonic_seconds": 3606.832215,
            "time": None,
            "action": "reset the GPU",
        },
    ),
    "fm-userguide-sxid28006-xid45.txt": (
        {("sxid", 28006, "0000:c1:00.0"): 3, ("xid", 45, "0000:34:00.0"): 1},
        {"0000:34:00.0": "GPU-c43f0536-e751-7211-d7a7-78c95249ee7d"},
        {"name": "unknown", "action": "ignore", "switch": 3, "link": 46, "time": None},
    ),
    "gpud-dmesg-iso-time.log": (
        {("xid", 48, "0000:19:00.0"): 1, ("xid", 63, "0000:19:00.0"): 1, ("xid", 94, "0000:19:00.0"): 9},
        {},
        {
            "time": "2024-11-15T12:02:03.470068+00:00",
            "pid": None,
            "process_name": None,
            "severity": "critical",
            "action": "reset the GPU",
            "name": "ROBUST_CHANNEL_GPU_ECC_DBE",
        },
    ),
    "gpud-dmesg-libnccl-segfault.log": ({}, {}, {}),
    "gpud-dmesg-peermem.log": ({}, {}, {}),
    "gpud-dmesg-xid119.log": (
        {("xid", 119, "0000:9b:00.0"): 5},
        {"0000:9b:00.0": "GPU-509665ad-b600-ac93-3616-d754b23d636d"},
        {"time": "2025-02-23T16:24:18+00:00", "pid": 2024380, "process_name": "nvidia-smi", "name": "GSP_RPC_TIMEOUT"},
    ),
    "gpud-gb200-xid145-149.log": (
        {
            ("xid", 149, "0018:01:00.0"): 6,
            ("xid", 149, "0008:01:00.0"): 4,
            ("xid", 149, "0019:01:00.0"): 2,
            ("xid", 145, "0018:01:00.0"): 2,
            ("xid", 145, "0019:01:00.0"): 2,
            ("xid", 145, "0008:01:00.0"): 3,
        },
        {},
        {"action": "ignore", "severity": "info", "link": 3, "name": "NVLINK_NETIR_ERROR"},
    ),
    "gpud-gb200-xid149-154.log": (
        {
            ("xid", 149, "0009:01:00.0"): 3,
            ("xid", 149, "0008:01:00.0"): 2,
            ("xid", 154, "0009:01:00.0"): 1,
            ("xid", 154, "0019:01:00.0"): 1,
            ("xid", 154, "0018:01:00.0"): 1,
            ("xid", 154, "0008:01:00.0"): 1,
        },
        {},
        {"monotonic_seconds": 171167.620236, "action": "reset the GPU", "severity": "critical", "link": 1},
    ),
    "gpud-journalctl-short-iso-1.log": ({}, {}, {}),
    "gpud-kmsg-nvswitch.log": ({}, {}, {}),
    "gpud-memory-dmesg.log": (
        {("xid", 13, "0000:38:00.0"): 16, ("xid", 43, "0000:38:00.0"): 1},
        {},
        {"time": "2025-01-21T04:41:44.283302+00:00", "action": "restart the application", "pid": None},
    ),
    "gpud-xid79-sxid20034-cascade.log": (
        {
            ("xid", 79, "0000:91:00.0"): 1,
            ("sxid", 20034, "0000:05:00.0"): 4,
            ("sxid", 20034, "0000:06:00.0"): 1,
            ("sxid", 20034, "0000:07:00.0"): 3,
        },
        {},
        {"action": "reboot", "severity": "critical", "monotonic_seconds": 6781741.548779, "process_name": None},
    ),
    "gsp-535-xid119-rpc-history.log": (
        {("xid", 119, "0000:03:00.0"): 1},
        {"0000:03:00.0": "GPU-7775f835-5e4a-cd4e-363f-3c5afb460b28"},
        {"pid": 32273, "process_name": "nvitop", "monotonic_seconds": 2638.641516},
    ),
    # It says that a GPU is gone, but in no numbered form.
    "h100-525-probe-failed-after-reload.log": (
        {("xid", 79, "0000:5d:00.0"): 1},
        {},
        {"monotonic_seconds": 14387.209961, "time": None, "action": "reboot", "pid": None},
    ),
    "h100-525-xid79-fallen.log": (
        {("xid", 79, "0000:5d:00.0"): 1},
        {"0000:5d:00.0": "GPU-f1906b9b-557a-e961-045c-9fe4be3ce012"},
        {"action": "reboot", "pid": None, "text": "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."},
    ),
    "kvm-guest-xid119-mail-quoted.txt": (
        {("xid", 119, "0000:00:06.0"): 4},
        {"0000:00:06.0": "GPU-fcdeaa4c-664a-4de8-2e32-23e14628ce8c"},
        {"monotonic_seconds": 113.669216, "pid": None, "action": "reset the GPU"},
    ),
    "rtxa4000-xid79-154-no-year.log": (
        {("xid", 79, "0000:5f:00.0"): 1, ("xid", 154, "0000:5f:00.0"): 1},
        {},
        # The only year near by in which the 29th of March was a Sunday.
        {"time": "2026-03-29T19:20:37+00:00", "action": "reboot", "pid": None},
    ),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_reads_every_capture(name: str) -> None:
    counts, uuids, first = CAPTURES[name]
    log = parse_kernel_log(read_capture("xid", name).splitlines(), Clock(NOW))
    assert Counter((event.kind, event.code, event.pci_bus_id) for event in log.events) == counts
    assert log.uuids == uuids
    if first:
        assert {field: getattr(log.events[0], field) for field in first} == first


def test_knows_every_capture() -> None:
    assert {name for name, _content in all_captures("xid")} <= set(CAPTURES)


def test_tells_details_from_errors_of_an_nvswitch() -> None:
    log = parse_kernel_log(read_capture("xid", "gpud-xid79-sxid20034-cascade.log").splitlines())
    found = [(event.pci_bus_id, event.link, event.continuation) for event in log.events if event.kind == "sxid"]
    assert found == [
        ("0000:06:00.0", 48, False),
        ("0000:05:00.0", 63, False),
        # Its own first line is missing.
        ("0000:07:00.0", 60, False),
        ("0000:05:00.0", None, True),
        ("0000:07:00.0", 37, False),
        ("0000:05:00.0", 62, False),
        ("0000:07:00.0", 37, True),
        ("0000:05:00.0", 62, True),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "May 10 22:25:01 jambi kernel: [176830.774761] NVRM: Xid (0000:03:00): 13, 0003 00000000 00008297 00001098",
            {
                "code": 13,
                "pci_bus_id": "0000:03:00.0",
                "time": "2026-05-10T22:25:01+00:00",
                "monotonic_seconds": 176830.774761,
                "channel": "0003",
            },
        ),
        (
            "NVRM: Xid (0001:00): 8, Channel 00000020",
            {"code": 8, "pci_bus_id": "0000:01:00.0", "channel": "00000020", "time": None},
        ),
        (
            "NVRM: Xid (PCI:0000:0F:00): 63, pid=1896, Row Remapper: New row marked for remapping",
            {"code": 63, "pci_bus_id": "0000:0f:00.0", "pid": 1896, "process_name": None},
        ),
        (
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
            {"code": 94, "gpu_instance": 5, "compute_instance": None, "pid": 7194},
        ),
        (
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:02): 13, pid=9, name=a b, channel 0x0000000d, Graphics",
            {"gpu_instance": 5, "compute_instance": 2, "process_name": "a b", "channel": "0x0000000d"},
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 69, Class Error: ChId 0088, Class 0000c797, Offset 00000000, Data 00000000",
            {"channel": "0088", "pid": None},
        ),
        ("NVRM: Xid (PCI:0000:01:00): 79", {"code": 79, "text": "", "pid": None}),
        ("NVRM: Xid (): 31, x", {"code": 31, "pci_bus_id": None}),
        (
            "2025-01-02T15:20:12+0800 host kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=py, Ch 1",
            {"time": "2025-01-02T15:20:12+08:00", "channel": "1"},
        ),
        (
            "4,9921,93700123,-;NVRM: Xid (PCI:0000:01:00): 119, pid=5",
            {"monotonic_seconds": 93.700123, "time": None, "pid": 5},
        ),
        (
            "1732968000.123456 host kernel: NVRM: Xid (PCI:0000:01:00): 31",
            {"time": "2024-11-30T12:00:00.123456+00:00"},
        ),
        (
            '{"log":"[   12.345678] NVRM: Xid (PCI:0000:01:00): 45, pid=7, name=py, Ch 00000008\\n","stream":"stdout",'
            '"time":"2026-11-29T08:00:00.123456789Z"}',
            {
                "time": "2026-11-29T08:00:00.123456+00:00",
                "monotonic_seconds": 12.345678,
                "text": "pid=7, name=py, Ch 00000008",
                "process_name": "py",
            },
        ),
        (
            '{"__REALTIME_TIMESTAMP":"1732968000123456","MESSAGE":"NVRM: Xid (PCI:0000:01:00): 31","PRIORITY":"3"}',
            {"time": "2024-11-30T12:00:00.123456+00:00", "text": ""},
        ),
        ('{"log":"NVRM: Xid (PCI:0000:01:00): 31, name=x', {"code": 31, "time": None}),
        ('{"ts":1732968000.25,"msg":"NVRM: Xid (PCI:0000:01:00): 31"}', {"time": "2024-11-30T12:00:00.250000+00:00"}),
        ('{"time":1732968000250,"msg":"NVRM: Xid (PCI:0000:01:00): 31"}', {"time": "2024-11-30T12:00:00.250000+00:00"}),
        ('{"time":null,"msg":"NVRM: Xid (PCI:0000:01:00): 31"}', {"code": 31, "time": None}),
        ('{"time":Infinity,"msg":"NVRM: Xid (PCI:0000:01:00): 31"}', {"code": 31, "time": None}),
        (
            '{"ts":"2025-01-28T06:47:16Z","msg":"known sxid","line":"kern  :err   : 2025-01-25T10:34:54,859532+00:00 '
            'nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Non-fatal, Link 3"}',
            {"code": 12028, "time": "2025-01-25T10:34:54.859532+00:00", "text": "Non-fatal, Link 3"},
        ),
        (
            'time="2026-11-29T08:00:00Z" msg="[ 12.5] NVRM: Xid (PCI:0000:01:00): 43, pid=7, name=py" node=a',
            {"time": "2026-11-29T08:00:00+00:00", "monotonic_seconds": 12.5, "process_name": "py"},
        ),
        (
            'gpu1 | {"log":"NVRM: Xid (PCI:0000:01:00): 43, pid=7, name=py\\n","stream":"stdout"}',
            {"text": "pid=7, name=py", "process_name": "py", "pid": 7},
        ),
        (
            "<3>1 2026-11-29T08:00:00.5+01:00 gpu1 kernel - - - NVRM: Xid (PCI:0000:01:00): 109, name=a.exe, error",
            {"time": "2026-11-29T08:00:00.500000+01:00", "pid": None, "process_name": "a.exe"},
        ),
        (
            "[   12.345678 <    0.000120>] NVRM: Xid (PCI:0000:01:00): 31, pid=12345678901",
            {"monotonic_seconds": 12.345678, "pid": None},
        ),
        (
            "Nov 29 08:00:01 gpu1 kernel: NVRM: Xid: 13, 0000 02005600 00000056 00000c28",
            {"code": 13, "pci_bus_id": None, "channel": "0000", "time": "2026-11-29T08:00:01+00:00"},
        ),
        (
            "check_gpu_xid: GPU Xid errors: [ 36.5] NVRM: Xid (PCI:0002:00:00): 45, name=a, pid=1 caused by Xid 31",
            {"code": 45, "monotonic_seconds": 36.5, "process_name": "a"},
        ),
        (
            "[   12.345678][ T1234] NVRM: Xid (PCI:0000:01:00): 31, name=x",
            {"monotonic_seconds": 12.345678, "time": None},
        ),
        (
            "<4>[   12.345678 T99] NVRM: Xid (PCI:0000:01:00): 31",
            {"monotonic_seconds": 12.345678},
        ),
        (
            "[Sun Feb 23 16:24:18 UTC 2025] NVRM: Xid (PCI:0000:01:00): 31",
            {"time": "2025-02-23T16:24:18+00:00"},
        ),
        (
            "Mon 2026-11-30 08:00:00 UTC host kernel: NVRM: Xid (PCI:0000:01:00): 31",
            {"time": "2026-11-30T08:00:00+00:00"},
        ),
        (
            "Nov 29 08:00:00.123456 GPU1 kernel: NVRM: Xid (PCI:0000:01:00): 31",
            {"time": "2026-11-29T08:00:00.123456+00:00"},
        ),
        ("Feb 30 10:00:00 host kernel: NVRM: Xid (PCI:0000:01:00): 31", {"time": None}),
        ("Dec 24 10:00:00 host kernel: NVRM: Xid (PCI:0000:01:00): 31", {"time": "2025-12-24T10:00:00+00:00"}),
        ("5,9,2,-;nvidia-nvswitch1 SXid (PCI:0000:06:00.0): 20009, Non-fatal, Link 04", {"switch": 1, "link": 4}),
        (
            "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error (First)",
            {
                "kind": "sxid",
                "code": 12028,
                "pci_bus_id": "0000:85:00.0",
                "switch": 2,
                "link": 61,
                "action": "restart the application",
            },
        ),
        (
            "NVSwitch-SXid (PCI:0000:85:00.0): 22003, Fatal, Link 1",
            {"kind": "sxid", "action": "reboot", "switch": None},
        ),
        (
            "[Jul 09 2024 18:14:07] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch "
            "pci bus id 00000000:86:00.0 physical id 3 port 61",
            {
                "kind": "fabric_manager",
                "code": 12028,
                "pci_bus_id": "0000:86:00.0",
                "switch": 3,
                "link": 61,
                "time": "2024-07-09T18:14:07+00:00",
                "severity": "warning",
            },
        ),
        (
            "[Sep 17 2024 06:01:46] [ERROR] [tid 1230079] failed to find the GPU handle 5410063385821516767 in the "
            "multicast team request setup 6130285411925746235.",
            {"kind": "fabric_manager", "code": None, "action": "reset the GPU", "name": "GPU_NOT_IN_FABRIC"},
        ),
        (
            "Nov 05 13:55:26 node1 nv-fabricmanager[104230]: fabric manager NVIDIA GPU driver interface version "
            "550.127.05 don't match with driver version 550.120. Please update with matching NVIDIA driver package.",
            {
                "kind": "fabric_manager",
                "action": "update the driver",
                "severity": "critical",
                "time": "2026-11-05T13:55:26+00:00",
            },
        ),
        (
            "Nov 05 13:55:26 node1 nvidia-fabricmanager-start.sh[4756]: request to query the NVSwitches "
            "failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
            {"kind": "fabric_manager", "code": None, "time": "2026-11-05T13:55:26+00:00"},
        ),
        (
            "nv-fabricmanager[1]: config file item: FABRIC_MODE has an invalid value",
            {"kind": "fabric_manager", "code": None},
        ),
        (
            "[Jul 09 2024 18:14:07] [CRITICAL] [tid 1] something nobody heard of",
            {"kind": "fabric_manager", "name": "unknown", "code": None, "action": "contact support"},
        ),
    ],
)
def test_reads_each_form(line: str, expected: dict[str, Any]) -> None:
    event = one(line)
    assert {field: getattr(event, field) for field in expected} == expected
    assert event.line == line


@pytest.mark.parametrize(
    "line",
    [
        "Xid Check: Passed",
        "usb 1-1: new device",
        "NVRM: Xid (PCI:0000:01:00): junk",
        "nv-fabricmanager[1]: Successfully configured all the available NVSwitches",
        "nvidia-fabricmanager-start.sh[1]: Detected Pre-NVL5 system",
        'nvidia-fabricmanager-start.sh[1]: "/usr/bin/nv-fabricmanager -c fabricmanager.cfg" failed! Exit code: 1',
        "[Feb 25 2025 13:59:45] [INFO] [tid 1803] multicast group 0 is freed.",
        "",
    ],
)
def test_passes_over_lines_that_are_no_event(line: str) -> None:
    assert parse_kernel_log([line]).events == []


LOST_ON_LOADING = [
    "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "               NVRM: fallen off the bus and is not responding to commands.",
]


@pytest.mark.parametrize(
    ("lines", "address", "seconds"),
    [
        (["[ 9.5] NVRM: GPU 0000:B3:00.0: GPU has fallen off the bus."], "0000:b3:00.0", 9.5),
        (["[ 9.5] NVRM: GPU at 0000:b3:00.0 has fallen off the bus."], "0000:b3:00.0", 9.5),
        (["[ 9.5] NVRM: GPU at PCI:0000:b3:00.0 has fallen off the bus"], "0000:b3:00.0", 9.5),
        (["[ 9.5] NVRM: GPU b3:00.0: GPU has fallen off the bus."], "0000:b3:00.0", 9.5),
        (LOST_ON_LOADING, "0000:b3:00.0", 1843.308145),
        (["#012".join(line.strip() for line in LOST_ON_LOADING)], "0000:b3:00.0", 1843.308145),
        (
            [
                "[ 9.5] NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:1e07) installed in this",
                "[ 9.5] NVRM: system has fallen off the bus and is not responding to commands.",
            ],
            "0000:b3:00.0",
            9.5,
        ),
        (["[ 9.5] NVRM: GPU 0000:01:00.0: ready", "[ 9.6] NVRM: fallen off the bus and is not"], None, 9.6),
    ],
)
def test_a_lost_gpu_without_a_number_is_xid_79(lines: list[str], address: str | None, seconds: float) -> None:
    (event,) = parse_kernel_log(lines, Clock(NOW)).events
    assert (event.kind, event.code, event.action) == ("xid", 79, "reboot")
    assert (event.pci_bus_id, event.monotonic_seconds) == (address, seconds)
    assert event.line == lines[-1]


def test_a_loss_is_reported_once_for_each_gpu_and_time() -> None:
    said = "[ 9.5] NVRM: GPU 0000:01:00.0: GPU has fallen off the bus."
    numbered = "[ 9.5] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
    quiet = ["[ 9.5] usb 1-1: new device"] * 30
    assert [event.line for event in parse_kernel_log([numbered, "", said, said]).events] == [numbered]
    assert [event.line for event in parse_kernel_log([said, said]).events] == [said]
    assert len(parse_kernel_log([numbered, said.replace("01:00", "02:00")]).events) == 2
    assert len(parse_kernel_log([numbered, *quiet, *LOST_ON_LOADING]).events) == 2


@pytest.mark.parametrize(
    "line",
    ["pciehp: the card has fallen off the bus", "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0xffff:1474)"],
)
def test_other_losses_and_failures_are_no_xid(line: str) -> None:
    assert parse_kernel_log([line]).events == []


def test_turns_a_time_since_the_boot_into_a_date_where_it_knows_the_boot() -> None:
    clock = Clock(NOW, boot=datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc))
    assert one("[ 3600.500000] NVRM: Xid (PCI:0000:01:00): 31", clock).time == "2026-11-29T13:00:00.500000+00:00"


def test_reports_an_unknown_code_as_unknown() -> None:
    for line in ("NVRM: Xid (PCI:0000:01:00): 9999, new", "nvidia-nvswitch0: SXid (PCI:0000:01:00.0): 99999, new"):
        event = one(line)
        assert (event.name, event.action, event.severity) == ("unknown", "contact support", "warning")
        assert str(event.code) in event.meaning


@pytest.mark.parametrize(
    ("code", "text", "action"),
    [
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "reboot"),
        (154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "ignore"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "reset the GPU"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", "reboot"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)", "reset the GPU"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)", "contact support"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x9 (Whatever)", "contact support"),
        (154, "", "contact support"),
        (64, "Row Remapper Error: (0x00000005d28c03a0) - All reserved rows for bank are remapped", "RMA"),
        (64, "Row Remapper: Error writing to inforom", "reset the GPU"),
        (149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0)", "reset the GPU"),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x1)", "ignore"),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x0)", "ignore"),
        (149, "NETIR Fatal XC0 i0 Link -1 (0x026fe406 0x0)", "reset the GPU"),
        (145, "RLW_REMAP Nonfatal XC1 i0 Link 03 (0x0 0x1)", "restart the application"),
        (145, "RLW_REMAP Nonfatal XC1 i0 Link 03", "restart the application"),
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 03 (0x00000082 0x80000000)", "ignore"),
        (145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x0 0x8)", "restart the application"),
        (145, "RLW_SRC_TRACK Nonfatal XC0 i0 Link 03 (0x0 0x2)", "ignore"),
        (54, "", "check cabling"),
        (157, "", "ignore"),
        (161, "", "ignore"),
        (43, "", "ignore"),
    ],
)
def test_takes_the_action_from_the_line_where_the_catalogue_leaves_it_to_it(code: int, text: str, action: str) -> None:
    assert of_xid(code, text).action == action


def test_gives_advice_for_a_recovery_that_needs_more_than_its_action() -> None:
    words = "GPU recovery action changed from 0x0 (None) to {}"
    advice = {number: of_xid(154, words.format(number)).advice for number in ("0x1", "0x4", "0x5", "0x9")}
    assert advice == {
        "0x1": None,
        "0x4": "Let the jobs on the GPU end first.",
        "0x5": "Restart nvidia-imex on all nodes of the NVLink domain.",
        "0x9": "The line in the kernel log names it.",
    }


def test_believes_a_switch_that_calls_its_error_fatal() -> None:
    assert (of_sxid(20001, None).action, of_sxid(20001, True).action) == ("ignore", "reset the GPU")
    assert (of_sxid(99999, False).action, of_sxid(99999, True).action) == ("ignore", "reset the GPU")


def test_the_catalogue_is_whole() -> None:
    assert sorted(XIDS) == list(range(1, 173))
    for meaning in [*XIDS.values(), *SXIDS.values()]:
        assert meaning.action in ACTIONS
        assert meaning.severity in {"critical", "warning", "info"}
        assert meaning.name
        assert meaning.meaning.endswith(".")
    assert most_severe(["ignore", "RMA", "reboot"]) == "RMA"
    assert most_severe([]) == "ignore"


@pytest.mark.parametrize(
    ("severities", "words"),
    [({"wrn": [13]}, "'wrn' is no severity; write critical, "), ({"info": ["13"]}, "'13' is no Xid of the catalogue")],
)
def test_alerts_refuse_what_they_do_not_know(severities: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        alerts(severities)


def test_an_alert_says_what_to_do_on_a_node_of_a_cluster() -> None:
    found = {code: kind for kind in alerts({"info": [13]}) for code in kind["codes"]}  # type: ignore[attr-defined]
    assert [found[code]["severity"] for code in (13, 31, 43, 79, 149)] == [
        "info",
        "warning",
        "info",
        "critical",
        "warning",
    ]
    assert found[62]["action"] == (
        "The power management microcontroller halted. "
        "Drain the node and reset the GPU when its jobs have ended (nvidia-smi --gpu-reset)."
    )
    assert "firmware (NETIR). If the kernel log calls it fatal: drain the node" in str(found[149]["action"])
    assert str(found[154]["action"]).endswith("before this line. The line in the kernel log names it.")
    assert found[48] != found[95]
    assert found[9] == {"codes": [9], "severity": "warning", "action": found[9]["action"]}
    assert 10 not in found  # not in use
    assert set(found) == {code for code, known in XIDS.items() if known.meaning != "Not in use."}


LINES = [
    "2024-11-15T12:02:03,470068+00:00 NVRM: Xid (PCI:0000:19:00 GPU-I:01): 94, pid=12, name=python3.10, Ch 00000008",
    "[Sun Feb 23 16:24:18 2025] NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
    "Aug 17 00:00:24 host kernel: [12.5] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM",
    "6,1,2,-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 48 Sub-engine instance 00",
    "[Jul 09 2024 18:14:07] [ERROR] [tid 1] detected NVSwitch fatal error 20034 on NVSwitch pci bus id 0000:86:00.0",
    "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link -1 (0x021425c6 0x00000000)",
    "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    '{"MESSAGE": "NVRM: Xid (PCI:0000:01:00): 31, pid=1", "__REALTIME_TIMESTAMP": "1732968000123456"}',
    *LOST_ON_LOADING,
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(LINES), st.integers(0, 130), st.integers(0, 60), st.text(max_size=20))
def test_raises_nothing_whatever_the_line_is(line: str, position: int, length: int, junk: str) -> None:
    spoilt = [line[:position] + junk + line[position + length :], line[:position], junk, junk + line]
    for event in parse_kernel_log([*LINES, *spoilt], Clock(NOW, NOW)).events:
        assert event.action in ACTIONS
        assert event.time is None or datetime.fromisoformat(event.time).tzinfo


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(), max_size=5), st.integers(min_value=0), st.from_regex(r"\d{1,9}:\d{1,3}"))
def test_raises_nothing_for_any_number(texts: list[str], number: int, address: str) -> None:
    lines = [
        f"[{number}.{number}] NVRM: Xid (PCI:{address}): {number}, pid={number}, name={text}, Ch {number} Link {number}"
        for text in texts
    ]
    assert len(parse_kernel_log(lines, Clock(NOW, NOW)).events) <= len(lines)
