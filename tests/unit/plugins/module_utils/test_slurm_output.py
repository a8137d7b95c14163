# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_output import read
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_records import Output
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import Gres, SlurmError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import all_captures, fixture, read_capture

AMPERE_X8 = Gres("gpu", "ampere", 8, [0, 1, 2, 3, 4, 5, 6, 7])

# What each capture shows: which list, how many of them, and fields of one of them, read from the file by eye.
CAPTURES: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "deepops-slurmconf-nvml-diff.txt": (
        "nodes",
        2,
        1,
        {"name": "dgx01", "state": "UNKNOWN", "cpus": 256, "memory_mib": 1960850, "gpus": 32, "responding": False},
    ),
    "gcm-scontrol-job-allgpus.txt": (
        "jobs",
        1,
        0,
        {
            "id": 30214,
            "array_job_id": 30185,
            "array_task": "28",
            "state": "RUNNING",
            "reason": None,
            "user": "test_username",
            "user_id": 1472000020,
            "nodes": ["node1751"],
            "cpus": 256,
            "gpus": 8,
            "gpus_requested": 0,
            "memory_mib": 1835008,
            "time_limit_minutes": 720,
            "start_epoch_seconds": 1727229251,
        },
    ),
    "gcm-scontrol-job-multinode.txt": (
        "jobs",
        1,
        0,
        {
            "id": 8401413,
            "array_job_id": None,
            "name": "slurm_job_name",
            "node_count": 8,
            "gpus": 64,
            "memory_mib": 12288000,
            "qos": "test_qos",
            "batch_host": "node1433",
            "time_limit_minutes": 10080,
        },
    ),
    "gcm-scontrol-show-config.txt": (
        "controllers",
        2,
        1,
        {"name": "slurmdb", "mode": "backup", "responding": True},
    ),
    "gcm-scontrol-show-partition-large.txt": (
        "partitions",
        8,
        4,
        {
            "name": "partition5",
            "state": "UP",
            "node_count": 165,
            "cpus": 13200,
            "default": False,
            "max_time_minutes": 20160,
            "max_time_unlimited": False,
            "max_nodes": None,
            "max_nodes_unlimited": True,
            "priority_tier": 30,
            "preempt_mode": "OFF",
            "qos": "qos5",
            "allow_groups": ["groups"],
            "allow_accounts": None,
            "default_memory_per_node_mib": None,
        },
    ),
    "gcm-sinfo-structured.txt": (
        "rows",
        10,
        2,
        {
            "nodes": "node1492",
            "state": "MIXED",
            "cpus_allocated": 64,
            "cpus_idle": 192,
            "cpus_total": 256,
            "gres": [[asdict(Gres("gpu", "ampere", 8, None))], [asdict(AMPERE_X8)]],
        },
    ),
    "scontrol-node-yggdrasil-corespec.txt": (
        "nodes",
        1,
        0,
        {
            "name": "cpu001",
            "state": "IDLE",
            "flags": [],
            "cpus": 36,
            "cpus_effective": 34,
            "cpu_load": 0.01,
            "memory_free_mib": 185338,
            "gres": [],
            "gpus": 0,
            "version": "23.02.1",
            "features_active": ["GOLD-6240", "XEON_GOLD_6240", "V9"],
            "boot_epoch_seconds": 1691669291,
            "os": "Linux 4.18.0-477.10.1.el8_8.x86_64 #1 SMP Tue May 16 11:38:37 UTC 2023",
        },
    ),
    "sinfo-ceres-fragment.txt": (
        "rows",
        3,
        1,
        {
            "nodes": "ceres14-mem-[0-3],ceres18-mem-2,ceres19-mem-[2-4]",
            "cpus_allocated": 3,
            "cpus_idle": 4,
            "cpus_other": 1,
            "cpus_total": 8,
        },
    ),
    "slurmrestd-node-gpus-25.11.json": (
        "nodes",
        1,
        0,
        {
            "name": "gpu1",
            "state": "ALLOCATED",
            "gpus": 4,
            "gpus_used": 4,
            "cpu_load": 1.05,
            "memory_mib": 524288,
            "cores_per_socket": 16,
            "reason": None,
            "reason_epoch_seconds": None,
            "slurmd_start_epoch_seconds": 1762515553,
        },
    ),
    "slurmrestd-nodes-25.05-0.0.43.json": (
        "nodes",
        6,
        2,
        {
            "name": "cn3",
            "state": "IDLE",
            "flags": ["DRAIN"],
            "drained": True,
            "available": False,
            "held_by_trainyard": False,
            "reason": "ECC memory error",
            "partitions": ["normal"],
        },
    ),
    "soperator-2node-job.json": (
        "jobs",
        1,
        0,
        {
            "id": 349,
            "state": "COMPLETED",
            "nodes": ["worker-1", "worker-0"],
            "node_count": 2,
            "cpus": 4,
            "memory_mib": 382712,
            "gpus": 0,
            "array_task": None,
            "time_limit_minutes": 1,
            "end_epoch_seconds": 1749564041,
        },
    ),
    "soperator-node-rest.json": (
        "nodes",
        1,
        0,
        {
            "name": "worker-1",
            "address": "10.0.0.1",
            "state": "IDLE",
            "flags": ["DYNAMIC_NORM"],
            "gres": [asdict(Gres("gpu", "nvidia_h100_80gb_hbm3", 1, None))],
            "gpus_used": 0,
            "threads_per_core": 2,
            "comment": "comment",
        },
    ),
    "vpenso-20.11.8-sinfo_gpus_allocated.txt": (
        "rows",
        3,
        1,
        {"words": ["3", "gpu:2"], "gres": [[asdict(Gres("gpu", None, 2, None))]], "nodes": None, "state": None},
    ),
    "vpenso-20.11.8-sinfo_gpus_idle.txt": (
        "rows",
        4,
        2,
        {
            "words": ["1", "gpu:2", "gpu:1"],
            "gres": [[asdict(Gres("gpu", None, 2, None))], [asdict(Gres("gpu", None, 1, None))]],
            "state": None,
        },
    ),
    "vpenso-20.11.8-sinfo_gpus_total.txt": ("rows", 2, 0, {"words": ["101", "(null)"], "gres": [], "nodes": None}),
    "vpenso-21.08.5-sinfo_gpus_idle.txt": (
        "rows",
        1,
        0,
        {
            "words": ["2", "gpu:8", "gpu:(null):0(IDX:N/A)"],
            "gres": [[asdict(Gres("gpu", None, 8, None))], [asdict(Gres("gpu", None, 0, None))]],
            "cpus_total": None,
        },
    ),
    "vpenso-sinfo.txt": (
        "rows",
        709,
        25,
        {"nodes": "lxfoo0026", "state": "DOWN", "flags": ["NOT_RESPONDING"], "words": ["lxfoo0026", "down*"]},
    ),
    "vpenso-sinfo_mem.txt": (
        "rows",
        21,
        14,
        {"nodes": "a052", "state": "IDLE", "cpus_allocated": 0, "cpus_idle": 16, "cpus_total": 16},
    ),
}
FIXTURES = [
    "nodes-24.11.json",
    "nodes-24.11.txt",
    "nodes-22.05.txt",
    "nodes-22.05-oneline.txt",
    "partitions-24.11.txt",
    "partitions-24.11.json",
    "jobs-24.11.json",
    "jobs-22.05.json",
    "jobs-22.05.txt",
    "config-22.05.txt",
]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slurm's commands print local times."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", CAPTURES)
def test_reads_each_capture(name: str) -> None:
    kind, count, place, expected = CAPTURES[name]
    found = getattr(read(read_capture("slurm", name)), kind)
    assert len(found) == count
    fields = asdict(found[place])
    assert {field: fields[field] for field in expected} == expected


def test_reads_every_capture_there_is() -> None:
    for name, output in all_captures("slurm"):
        assert read(output) != Output(), name


def test_reads_the_rest_of_some_captures() -> None:
    config = read(read_capture("slurm", "gcm-scontrol-show-config.txt")).configuration
    assert (config["ClusterName"], config["AccountingStorageUser"], config["DefMemPerNode"]) == (
        "cluster_name",
        None,
        "61440",
    )
    states = Counter((row.state, *row.flags) for row in read(read_capture("slurm", "vpenso-sinfo.txt")).rows)
    assert states["IDLE",] == 319
    assert states["ALLOCATED",] == 250
    assert states["DOWN", "NOT_RESPONDING"] == 66
    assert states[None, "DRAIN"] == 17
    job = read(read_capture("slurm", "gcm-scontrol-job-multinode.txt")).jobs[0]
    assert job.nodes[-3:] == ["node1890", "node1968", "node1969"]
    assert [(len(one.nodes), one.gres, one.memory_mib) for one in job.allocations] == [(8, [AMPERE_X8], 1536000)]
    nodes = read(read_capture("slurm", "slurmrestd-nodes-25.05-0.0.43.json")).nodes
    assert [(node.name, node.available) for node in nodes] == [
        ("cn1", True),
        ("cn2", True),
        ("cn3", False),
        ("cn4", False),
        ("gpu1", True),
        ("gpu2", True),
    ]


@pytest.mark.parametrize("name", ["nodes-24.11.json", "nodes-24.11.txt", "nodes-22.05.txt", "nodes-22.05-oneline.txt"])
def test_a_node_is_the_same_whatever_form_it_comes_in(name: str) -> None:
    gpu1, off = read(fixture(f"slurm/{name}")).nodes
    assert (gpu1.name, gpu1.state, gpu1.flags, gpu1.responding, gpu1.available) == ("gpu1", "MIXED", [], True, True)
    assert gpu1.gres == [Gres("gpu", "h100", 8, None)]
    assert gpu1.gres_used == [Gres("gpu", "h100", 2, [0, 1])]
    assert (gpu1.gpus, gpu1.gpus_used, gpu1.cpus, gpu1.cpus_allocated) == (8, 2, 16, 4)
    assert (gpu1.sockets, gpu1.cores_per_socket, gpu1.threads_per_core) == (2, 8, 1)
    assert (gpu1.memory_mib, gpu1.memory_allocated_mib) == (160000, 1000)
    assert (gpu1.partitions, gpu1.reason, gpu1.comment) == (["train", "all"], None, None)
    assert gpu1.boot_epoch_seconds == 1796030179
    assert gpu1.os == "Linux 6.12.43+deb13-amd64 #1 SMP"
    # Slurm calls it IDLE, but it has never registered.
    assert (off.name, off.state, off.responding, off.available) == ("switched-off", "IDLE", False, False)
    assert (off.boot_epoch_seconds, off.slurmd_start_epoch_seconds, off.architecture) == (None, None, None)


def test_names_of_users_of_a_directory_may_hold_blanks_and_an_at() -> None:
    found = read(
        "NodeName=gpu1 State=IDLE+DRAIN\n   Reason=bad fan [jane doe@corp.example.com@2026-11-05T13:55:26]\n\n"
        "NodeName=gpu2 State=IDLE+DRAIN Reason=bad fan [jane@corp.example.com@2026-11-05T13:55:26] Comment=new\n\n"
        "JobId=7 JobName=train\n   UserId=CORP\\jane doe(10007) GroupId=domain users(10513) MCS_label=N/A\n"
    )
    assert [(node.reason, node.reason_user) for node in found.nodes] == [
        ("bad fan", "jane doe@corp.example.com"),
        ("bad fan", "jane@corp.example.com"),
    ]
    assert [(job.user, job.user_id) for job in found.jobs] == [("CORP\\jane doe", 10007)]


@pytest.mark.parametrize("name", ["jobs-24.11.json", "jobs-22.05.json", "jobs-22.05.txt"])
def test_a_job_is_the_same_whatever_form_it_comes_in(name: str) -> None:
    job = read(fixture(f"slurm/{name}")).jobs[0]
    # The name is the user's own words, which must not become another field.
    assert (job.id, job.name, job.user, job.user_id) == (1, "long name=x UserId=root(0)", "trainee", 2001)
    assert (job.state, job.flags, job.nodes, job.partition) == ("RUNNING", [], ["gpu1"], "train")
    assert (job.gpus, job.gpus_requested, job.memory_mib, job.cpus) == (2, 2, 1000, 4)
    assert [(one.nodes, one.gres) for one in job.allocations] == [(["gpu1"], [Gres("gpu", "h100", 2, [0, 1])])]
    assert (job.array_job_id, job.array_task, job.account, job.reason) == (None, None, None, None)


@pytest.mark.parametrize("name", ["partitions-24.11.txt", "partitions-24.11.json"])
def test_a_partition_is_the_same_whatever_form_it_comes_in(name: str) -> None:
    train, both = read(fixture(f"slurm/{name}")).partitions
    assert (train.name, train.state, train.nodes, train.node_count, train.cpus) == ("train", "UP", "gpu1", 1, 16)
    assert (train.max_time_minutes, train.max_time_unlimited) == (None, True)
    assert (both.max_time_minutes, both.max_time_unlimited) == (60, False)
    assert (both.gpus, both.memory_mib, both.default_memory_per_cpu_mib) == (8, 320000, 10000)
    assert train.default is (True if name.endswith("txt") else None)


@pytest.mark.parametrize(
    ("line", "reason", "user", "seconds"),
    [
        ("Reason=Not responding [slurm@2026-11-30T12:00:00]", "Not responding", "slurm", 1796040000),
        ("Reason=A fan [2] State=IDLE [bob@2026-11-30T12:00:00]", "A fan [2] State=IDLE", "bob", 1796040000),
        ("Reason=no name", "no name", None, None),
    ],
)
@pytest.mark.parametrize("joint", ["\n   ", " "], ids=["lines", "one line"])
def test_takes_a_reason_apart(line: str, reason: str, user: str | None, seconds: int | None, joint: str) -> None:
    record = joint.join(["NodeName=n1", "State=DOWN+DRAIN ThreadsPerCore=1", line, "Comment=(null)"])
    node = read(record).nodes[0]
    assert (node.state, node.reason, node.reason_user, node.reason_epoch_seconds) == ("DOWN", reason, user, seconds)


def test_counts_gpus_that_are_no_part_of_accounting() -> None:
    job = read(
        """{"jobs": [{"job_id": 5, "job_state": ["RUNNING"], "nodes": "n[1-2]", "node_count": 2,
        "gres_detail": ["gpu:h100:2(IDX:0-1),gpu:h200:1(IDX:2)", "gpu:h100:1(IDX:0)"], "tres_per_node": "gres/gpu:2",
        "tres_alloc_str": "cpu=2,node=2", "tres_req_str": "cpu=2,node=2"}]}"""
    ).jobs[0]
    assert (job.gpus, job.gpus_requested) == (4, 4)
    job = read(
        "JobId=5 JobName=x\n   JobState=RUNNING\n   NodeList=n[1-2]\n   AllocTRES=cpu=2,node=2\n   ReqTRES=cpu=2\n"
        "     Nodes=n[1-2] CPU_IDs=0 Mem=1 GRES=gpu:h100:3(IDX:0-2)\n   TresPerJob=gres/gpu:6"
    ).jobs[0]
    assert (job.gpus, job.gpus_requested) == (6, 6)
    job = read("JobId=5 NodeList=n[1-2]\n     Nodes=n[1-2] CPU_IDs=0 Mem=1 GRES_IDX=gpu(IDX:0,2-3)").jobs[0]
    assert job.gpus == 6
    assert read("PartitionName=p TRES=cpu=2").partitions[0].gpus is None


def test_reads_state_and_flags_of_old_json() -> None:
    node = read('{"nodes": [{"name": "n1", "state": "idle", "state_flags": ["DRAIN"], "boot_time": 5}]}').nodes[0]
    assert (node.state, node.flags, node.boot_epoch_seconds) == ("IDLE", ["DRAIN"], 5)


def test_reads_sinfo_as_json() -> None:
    nodes = read(
        """{"sinfo": [{"node": {"state": ["IDLE", "DRAIN", "NOT_RESPONDING"]}, "nodes": {"nodes": ["n1"]},
        "cpus": {"allocated": 0, "total": 80}, "gres": {"total": "gpu:a100:8", "used": "gpu:a100:2(IDX:0-1)"},
        "reason": {"description": "fan", "time": 1654149274, "user": "root"}, "partition": {"name": "p"}}]}"""
    ).nodes
    assert [(one.name, one.flags, one.reason, one.reason_user, one.gpus, one.gpus_used) for one in nodes] == [
        ("n1", ["DRAIN", "NOT_RESPONDING"], "fan", "root", 8, 2)
    ]


def test_reads_a_job_of_the_accounting_database() -> None:
    job = read(
        """{"jobs": [{"job_id": 9, "state": {"current": ["TIMEOUT"], "reason": "None"}, "nodes": "gpu1",
        "array": {"job_id": 7, "task_id": {"set": true, "number": 2}, "task": ""}, "required": {"CPUs": 3},
        "tres": {"allocated": [{"type": "cpu", "name": "", "count": 4}, {"type": "mem", "name": "", "count": 512},
        {"type": "energy", "name": "", "count": -2}, {"type": "gres", "name": "gpu", "count": 2}],
        "requested": [{"type": "gres", "name": "gpu:h100", "count": 1}]}}]}"""
    ).jobs[0]
    assert (job.state, job.cpus, job.memory_mib, job.gpus, job.gpus_requested) == ("TIMEOUT", 3, 512, 2, 1)
    assert (job.array_job_id, job.array_task) == (7, "2")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "Slurmctld(primary) at a is UP\nSlurmctld(backup) at b is DOWN\n",
            [("a", "primary", True), ("b", "backup", False)],
        ),
        ("Slurmctld(primary/backup) at a/b are UP/DOWN", [("a", "primary", True), ("b", "backup", False)]),
        ('{"pings": [{"hostname": "a", "pinged": "DOWN", "mode": "backup1"}]}', [("a", "backup1", False)]),
    ],
)
def test_reads_pings_of_all_releases(output: str, expected: list[tuple[str, str, bool]]) -> None:
    assert [(one.name, one.mode, one.responding) for one in read(output).controllers] == expected


@pytest.mark.parametrize(
    ("output", "words", "fields"),
    [
        ("5725/877/34/6636\n", ["5725/877/34/6636"], {"cpus_allocated": 5725, "cpus_total": 6636}),
        ("15451729,RUNNING\n", ["15451729", "RUNNING"], {"state": "RUNNING"}),
        ("N/A|#42|#PENDING|#ann|#", ["N/A", "42", "PENDING", "ann", ""], {"state": "PENDING", "nodes": None}),
        ("root|||0.5|", ["root", "", "", "0.5", ""], {"state": None}),
        ("SwitchName=s1 Level=0 Nodes=n[1-4]\n", ["SwitchName=s1", "Level=0", "Nodes=n[1-4]"], {"nodes": None}),
        ("gpu up 2 drng gpu[1-2]", ["gpu", "up", "2", "drng", "gpu[1-2]"], {"nodes": "gpu[1-2]", "flags": ["DRAIN"]}),
    ],
)  # fmt: skip
def test_reads_tables_of_all_sorts(output: str, words: list[str], fields: dict[str, Any]) -> None:
    found = asdict(read(output).rows[0])
    assert found["words"] == words
    assert {field: found[field] for field in fields} == fields


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("n1|alloc|Unknown|80/0/0/80|1/0/0/1|gpu:8|", {"state": "ALLOCATED", "cpus_total": 80}),
        ("1/0/0/1 80/0/0/80", {"cpus_total": 80}),
        ("idle up 1:00 2 down* n[1-2]", {"state": "DOWN", "flags": ["NOT_RESPONDING"]}),
        ("idle", {"state": "IDLE"}),
        ("139 gpu run1 user1 PD 0:00 1 (Dependency)", {"state": "PENDING", "nodes": None, "gres": []}),
        ("139 gpu x ann PD 0:00 1 (Nodes required for job are DOWN, DRAINED or reserved)", {"state": "PENDING"}),
        ("139 gpu (x) ann PD 0:00 1 (ReqNodeNotAvail, may be n1 is idle)", {"state": "PENDING", "nodes": None}),
        ("139 gpu (x) ann R 9:00 1 n1", {"state": "RUNNING", "nodes": "n1"}),
        ("n1 idle (null)", {"state": "IDLE", "nodes": "n1"}),
        ("42_[7-8%1] gpu x ann CG 9:00 1 n1", {"state": "COMPLETING", "flags": [], "nodes": "n1"}),
        ("43 gpu F ann R 9:00 1 n1", {"state": "RUNNING"}),
        ("Prolog error root 2026-11-30T08:00:00 n[1-2]", {"state": None, "flags": [], "nodes": "n[1-2]"}),
        ("p up 1:00 1 boot^ n1", {"state": None, "flags": ["REBOOT_ISSUED"]}),
        ("77+0 gpu x ann R 9:00 1 n1", {"state": "RUNNING", "nodes": "n1"}),
        ("77|cpu=10,mem=100G,gres/gpu=2,gres/gpu:a100=2|ann", {"gpus": 2, "gres": []}),
    ],
)
def test_tells_columns_apart_that_look_alike(line: str, expected: dict[str, Any]) -> None:
    found = asdict(read(line).rows[0])
    assert {field: found[field] for field in expected} == expected


def test_words_of_a_reason_are_no_states_below_a_header_that_has_none() -> None:
    rows = read("REASON USER TIMESTAMP NODELIST\ngpu down ann 2026-11-30T08:00:00 n1\n").rows
    assert (rows[1].state, rows[1].nodes) == (None, "n1")
    assert read("NODELIST NODES STATE\nn1 1 down\n").rows[1].state == "DOWN"


def test_finds_hosts_without_a_digit_below_their_header() -> None:
    rows = read("GRES_USED NODELIST\ngpu:a100:1(IDX:0) rembrandt\ngpu:a100:0 n/a\n").rows
    assert [row.nodes for row in rows] == [None, "rembrandt", None]


def test_reads_statistics() -> None:
    assert read("Jobs submitted: 7\nJobs started:   5\n\tLast cycle: 9\n").configuration == {
        "Jobs submitted": "7",
        "Jobs started": "5",
        "Last cycle": "9",
    }


def test_nothing_there_is_no_fault() -> None:
    assert read("No jobs in the system\n") == Output()
    assert read('{"jobs": [], "errors": []}') == Output()


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", "Nothing in the output"),
        ("slurm_load_node error: Unable to contact slurm controller", "Slurm says: .*Unable to contact"),
        ("scontrol: error: unrecognized\n", "Slurm says: "),
        ('{"nodes": [', "breaks off"),
        ("[" * 100000 + "{", "breaks off|Nothing"),
        ('{"a": 1}', "none of Slurm's"),
        ('{"nodes": [], "errors": [{"description": "Unable to query node nowhere"}]}', "Unable to query node nowhere"),
        ("NodeName=n1 State=<html>", "is no node state"),
    ],
)
def test_says_what_can_not_be_read(output: str, words: str) -> None:
    with pytest.raises(SlurmError, match=words):
        read(output)


@st.composite
def broken(draw: st.DrawFn) -> str:
    """An output that breaks off, has junk in it, or lacks a part."""
    output = fixture(f"slurm/{draw(st.sampled_from(FIXTURES))}")
    first, last = sorted((draw(st.integers(0, len(output))), draw(st.integers(0, len(output)))))
    junk = st.text(max_size=20) | st.sampled_from(
        ["=", "\0", "[", "]", '"', "{", ": null,", "9" * 5000, "NaN", "1e999"]
    )
    return draw(
        st.sampled_from([output[:first], output[:first] + draw(junk) + output[last:], output[:first] + output[last:]])
    )


@settings(max_examples=300, deadline=None)
@given(broken())
def test_a_broken_output_is_read_or_refused(output: str) -> None:
    with suppress(SlurmError):
        read(output)


@given(st.text())
def test_whatever_comes_it_is_read_or_refused(output: str) -> None:
    with suppress(SlurmError):
        read(output)


@pytest.mark.parametrize(
    ("state", "available"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", True),
        ("IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN", True),
        ("IDLE+CLOUD+POWERING_DOWN", False),
        ("IDLE+CLOUD+DRAIN+POWERED_DOWN", False),
        ("IDLE+CLOUD+NOT_RESPONDING", False),
    ],
)
def test_a_node_that_saves_power_is_switched_on_for_a_job(state: str, available: bool) -> None:
    (node,) = read(f"NodeName=c1\n   State={state}\n   BootTime=None SlurmdStartTime=None\n").nodes
    assert (node.responding, node.available) == (False, available)
