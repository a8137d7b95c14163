# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._command import CommandResult
from ansible_collections.trainyard.cluster.plugins.module_utils._xid_facts import (
    Request,
    XidError,
    XidFacts,
    collect,
)

from tests.unit.captures import read_capture

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=timezone.utc)
UUID = "GPU-f1906b9b-557a-e961-045c-9fe4be3ce012"
LOG = f"""\
2026-11-29T08:00:00.000000+00:00 gpu1 kernel: NVRM: GPU at PCI:0000:5d:00: {UUID}
2026-11-29T08:00:00.000000+00:00 gpu1 kernel: NVRM: Xid (PCI:0000:5d:00): 31, pid=7, name=python, Ch 00000008
2026-11-30T09:00:00.000000+00:00 gpu1 kernel: NVRM: Xid (PCI:0000:18:00): 13, pid=8, name=train, Graphics
2026-11-30T10:00:00.000000+00:00 gpu1 kernel: NVRM: Xid (PCI:0000:5d:00): 48, pid='<unknown>', name=<unknown>, DBE
2026-11-30T11:00:00.000000+00:00 gpu1 kernel: NVRM: Xid (PCI:0000:5d:00): 48, pid=9, name=python, DBE
"""


class FakeRun:
    """Answers every command with the same and keeps what was asked."""

    def __init__(self, answer: CommandResult) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        self.asked = list(argv)
        return self.answer


NOTHING = FakeRun(CommandResult(0, "", ""))


def of_text(tmp_path: Path, content: str, **request: object) -> XidFacts:
    log = tmp_path / "kern.log"
    log.write_text(content)
    fields = {"source": "file", "path": str(log), "root": str(tmp_path), **request}
    return collect(NOTHING, Request(**fields), NOW)  # type: ignore[arg-type]


def gpu(root: Path, address: str, uuid: str) -> None:
    folder = root / "proc/driver/nvidia/gpus" / address
    folder.mkdir(parents=True)
    (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Location: \t {address}\n")


def test_groups_events_and_says_what_to_do_with_each_gpu(tmp_path: Path) -> None:
    facts = of_text(tmp_path, LOG)
    assert (facts.events_total, [event.code for event in facts.events]) == (4, [31, 13, 48, 48])
    assert [(group.code, group.pci_bus_id, group.count, group.process_names) for group in facts.groups] == [
        (31, "0000:5d:00.0", 1, ["python"]),
        (13, "0000:18:00.0", 1, ["train"]),
        (48, "0000:5d:00.0", 2, ["python"]),
    ]
    assert (facts.groups[2].first, facts.groups[2].last) == ("2026-11-30T10:00:00+00:00", "2026-11-30T11:00:00+00:00")
    first, second = facts.gpus
    assert (first.pci_bus_id, first.action, first.severity, first.codes) == (
        "0000:18:00.0",
        "restart the application",
        "warning",
        [13],
    )
    assert (second.uuid, second.action, second.severity, second.codes, second.count) == (
        UUID,
        "reset the GPU",
        "critical",
        [48, 31],
        3,
    )
    assert (second.last, second.message) == ("2026-11-30T11:00:00+00:00", "reset the GPU: Xid 48 (2)")
    assert facts.switches == []


def test_gives_verdicts_on_nvswitches_and_counts_no_details(tmp_path: Path) -> None:
    facts = of_text(tmp_path, read_capture("xid", "gpud-xid79-sxid20034-cascade.log"))
    assert [(one.pci_bus_id, one.action, one.codes) for one in facts.gpus] == [("0000:91:00.0", "reboot", [79])]
    assert [(one.pci_bus_id, one.action, one.count) for one in facts.switches] == [
        ("0000:05:00.0", "reset the GPU", 2),
        ("0000:06:00.0", "reset the GPU", 1),
        ("0000:07:00.0", "reset the GPU", 2),
    ]


def test_names_gpus_by_what_the_driver_holds(tmp_path: Path) -> None:
    gpu(tmp_path, "0000:18:00.0", "GPU-00000000-0000-0000-0000-000000000018")
    gpu(tmp_path, "0000:5d:00.0", UUID)
    facts = of_text(tmp_path, LOG)
    assert [(one.gpu, one.uuid) for one in facts.gpus] == [(0, "GPU-00000000-0000-0000-0000-000000000018"), (1, UUID)]


def test_gives_no_index_to_a_gpu_that_the_log_calls_by_another_uuid(tmp_path: Path) -> None:
    gpu(tmp_path, "0000:5d:00.0", "GPU-00000000-0000-0000-0000-000000000018")
    assert [(one.gpu, one.uuid) for one in of_text(tmp_path, LOG).gpus] == [(None, None), (None, UUID)]


@pytest.mark.parametrize(
    ("since", "codes"),
    [
        ("150m", [48, 48]),
        ("1d", [13, 48, 48]),
        ("2026-11-30T11:00:00+00:00", [48]),
        ("2026-11-30T11:00:00Z", [48]),
        ("2026-11-30 12:30:00+01:00", []),
    ],
)
def test_leaves_out_what_is_older(tmp_path: Path, since: str, codes: list[int]) -> None:
    facts = of_text(tmp_path, LOG, since=since)
    assert [event.code for event in facts.events] == codes
    assert facts.since is not None


def test_keeps_an_event_whose_time_it_does_not_know(tmp_path: Path) -> None:
    facts = of_text(tmp_path, "[12.5] NVRM: Xid (PCI:0000:18:00): 79\n", since="1h")
    assert [event.code for event in facts.events] == [79]


def test_hands_out_the_newest_and_counts_all(tmp_path: Path) -> None:
    facts = of_text(tmp_path, LOG, limit=1)
    assert (len(facts.events), facts.events_total, sum(group.count for group in facts.groups)) == (1, 4, 4)
    assert facts.events[0].line.endswith("name=python, DBE")
    assert len(of_text(tmp_path, LOG, limit=0).events) == 4


def test_asks_the_journal_for_what_the_kernel_said_since_the_boot(tmp_path: Path) -> None:
    run = FakeRun(CommandResult(0, LOG, ""))
    facts = collect(run, Request(root=str(tmp_path)), NOW)
    assert facts.events_total == 4
    assert run.asked[0] == "journalctl"
    assert "--boot" in run.asked
    collect(run, Request(root=str(tmp_path), since="1h"), NOW)
    assert f"--since=@{int((NOW - timedelta(hours=1)).timestamp())}" in run.asked
    assert "--boot" not in run.asked


def test_asks_by_time_where_the_journal_knows_nothing_of_this_boot(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("btime 1764500400\n")

    def run(argv: Sequence[str], timeout: float) -> CommandResult:
        return CommandResult(0, LOG if "--since=@1764500400" in argv else "", "")

    assert collect(run, Request(root=str(tmp_path)), NOW).events_total == 4


def test_dates_dmesg_by_the_start_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu 1 2 3\nbtime 1764500400\n")
    run = FakeRun(CommandResult(0, "[ 3600.500000] NVRM: Xid (PCI:0000:18:00): 79\n", ""))
    (event,) = collect(run, Request(source="dmesg", root=str(tmp_path)), NOW).events
    assert event.time is not None
    assert datetime.fromisoformat(event.time).timestamp() == 1764504000.5
    assert run.asked == ["dmesg"]


def test_reads_the_fabric_managers_log_too(tmp_path: Path) -> None:
    log = tmp_path / "fabricmanager.log"
    log.write_text("[Nov 30 2026 10:00:00] [ERROR] [tid 1] detected NVSwitch fatal error 20034 on fid 0\n")
    facts = collect(NOTHING, Request(root=str(tmp_path), fabric_manager_log=str(log)), NOW)
    assert [(event.kind, event.code) for event in facts.events] == [("fabric_manager", 20034)]
    absent = Request(root=str(tmp_path), fabric_manager_log=str(tmp_path / "none"))
    assert collect(NOTHING, absent, NOW).events == []


def test_the_newest_events_are_those_of_both_logs(tmp_path: Path) -> None:
    log = tmp_path / "fabricmanager.log"
    log.write_text(
        "[Nov 28 2026 10:00:00] [ERROR] [tid 1] detected NVSwitch fatal error 20034 on fid 0\n"
        "[Dec 01 2026 10:30:00] [ERROR] [tid 1] detected NVSwitch fatal error 22003 on fid 0\n"
    )
    request = Request(root=str(tmp_path), limit=3, fabric_manager_log=str(log))
    facts = collect(FakeRun(CommandResult(0, LOG, "")), request, NOW)
    assert ([event.code for event in facts.events], facts.events_total) == ([48, 48, 22003], 6)


@pytest.mark.parametrize(("since", "codes"), [(None, [22003]), ("60d", [20034, 22003])])
def test_leaves_out_what_the_fabric_manager_wrote_before_the_machine_started(
    tmp_path: Path, since: str | None, codes: list[int]
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(f"btime {int((NOW - timedelta(days=9)).timestamp())}\n")
    log = tmp_path / "fabricmanager.log"
    log.write_text(
        "[Nov 02 2026 10:00:00] [ERROR] [tid 1] detected NVSwitch fatal error 20034 on fid 0\n"
        "[Nov 30 2026 10:00:00] [ERROR] [tid 1] detected NVSwitch fatal error 22003 on fid 0\n"
    )
    facts = collect(NOTHING, Request(root=str(tmp_path), since=since, fabric_manager_log=str(log)), NOW)
    assert [event.code for event in facts.events] == codes


@pytest.mark.parametrize(
    ("answer", "request_", "words"),
    [
        (CommandResult(None, "", "No such file", missing=True), Request(), "journalctl can't be run"),
        (CommandResult(None, "", "", timed_out=True), Request(source="dmesg", timeout=3), "within 3 seconds"),
        (
            CommandResult(1, "", "dmesg: read kernel buffer failed: Operation not permitted"),
            Request(source="dmesg"),
            "Operation not permitted",
        ),
        (CommandResult(0, "", ""), Request(source="file"), "path: nothing is given"),
        (CommandResult(0, "", ""), Request(source="file", path="/none/such"), "/none/such can't be read"),
        (CommandResult(0, "", ""), Request(source="file", path="/"), "/ is no regular file; give a log file"),
        (CommandResult(0, "", ""), Request(source="file", path="/dev/null"), "/dev/null is no regular file"),
        (CommandResult(0, "", ""), Request(since="yesterday"), "since: 'yesterday' is no time"),
        (CommandResult(0, "", ""), Request(since="999999999d"), "is no time"),
    ],
)
def test_says_what_it_can_not_read(answer: CommandResult, request_: Request, words: str) -> None:
    with pytest.raises(XidError, match=words):
        collect(FakeRun(answer), request_, NOW)


def test_reads_the_end_of_a_log_with_any_bytes(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_bytes(b"\x00\xff\xfe junk \x85\n\x1b[31m[1.5] NVRM: Xid (PCI:0000:18:00): 79, \xffname\x1b[0m\n")
    facts = collect(NOTHING, Request(source="file", path=str(log), root=str(tmp_path)), NOW)
    assert [(event.code, "\x1b" in event.line) for event in facts.events] == [(79, False)]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_unpacks_a_rotated_log(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(LOG.encode())
    log = tmp_path / "kern.log.2"
    log.write_bytes(packed)
    request = Request(source="file", path=str(log), root=str(tmp_path))
    assert collect(NOTHING, request, NOW).events_total == 4
    log.write_bytes(packed[:-20])
    with pytest.raises(XidError, match=r"kern\.log\.2 can't be unpacked"):
        collect(NOTHING, request, NOW)


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        (b"\x28\xb5\x2f\xfd\x04", "is compressed by zstd; unpack it"),
        (b"LPKSHHRH\x00", "is the journal's own file; give what journalctl --file"),
    ],
)
def test_finds_no_file_without_lines_healthy(tmp_path: Path, begin: bytes, words: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(begin)
    with pytest.raises(XidError, match=words):
        collect(NOTHING, Request(source="file", path=str(log), root=str(tmp_path)), NOW)
