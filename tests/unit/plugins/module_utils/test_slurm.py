from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm import Expected

GPU1: dict[str, Any] = {
    "name": "gpu1",
    "sockets": 2,
    "cores_per_socket": 48,
    "threads_per_core": 1,
    "memory_mib": 2000000,
    "gpus": [{"type": "h100", "count": 8}],
}
GPU2 = {**GPU1, "name": "gpu2"}
CPU1 = {"name": "cpu1", "sockets": 1, "cores_per_socket": 32, "threads_per_core": 2, "memory_mib": 256000}
TRAIN = {"name": "train", "nodes": ["gpu1", "gpu2"]}
IDS = {"slurm_munge_uid": 966, "slurm_munge_gid": 966, "slurm_uid": 64030, "slurm_gid": 64030}


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["gpu1"], "gpu1"),
        (["gpu1", "gpu2", "gpu3"], "gpu[1-3]"),
        (["gpu3", "gpu1", "gpu7"], "gpu[1,3,7]"),
        (["gpu9", "gpu10"], "gpu[9-10]"),
        (["gpu08", "gpu09", "gpu10"], "gpu[08-10]"),
        (["gpu1", "gpu01"], "gpu1,gpu01"),
        (["a1", "login", "b1"], "a1,login,b1"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["gpu1-ib", "gpu2-ib"], "gpu1-ib,gpu2-ib"),
        (["gpu1", "gpu1"], "gpu1"),
        (["node0", "node1"], "node[0-1]"),
    ],
)
def test_folds_and_expands_again(names: list[str], folded: str) -> None:
    assert _slurm.fold(names) == folded
    assert sorted(_slurm.expand(folded)) == sorted(set(names))


@pytest.mark.parametrize(
    ("hosts", "names"),
    [("(null)", []), ("None assigned", []), ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"])],
    ids=["squeue before the start", "scontrol's words", "two brackets"],
)
def test_expands_what_slurm_prints(hosts: str, names: list[str]) -> None:
    assert _slurm.expand(hosts) == names


def test_nodes_alike_share_a_line_and_an_address_makes_its_own() -> None:
    nodes = _slurm.parse_nodes(
        [GPU1, {**GPU2, "address": "gpu2"}, CPU1, {**GPU1, "name": "gpu3", "address": "192.0.2.3"}]
    )
    assert _slurm.node_lines(nodes) == [
        "NodeName=gpu[1-2] CPUs=96 Sockets=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=2000000 "
        "Gres=gpu:h100:8 State=UNKNOWN",
        "NodeName=cpu1 CPUs=64 Sockets=1 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=256000 State=UNKNOWN",
        "NodeName=gpu3 NodeAddr=192.0.2.3 CPUs=96 Sockets=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=2000000 "
        "Gres=gpu:h100:8 State=UNKNOWN",
    ]


def test_gpu_files_count_on_from_type_to_type() -> None:
    mixed = {**GPU1, "name": "mixed1", "gpus": [{"type": "h100", "count": 2}, {"type": "l4", "count": 1}]}
    nodes = _slurm.parse_nodes([GPU1, CPU1, mixed])
    assert _slurm.gres_lines(nodes) == [
        "NodeName=gpu1 Name=gpu Type=h100 File=/dev/nvidia[0-7]",
        "NodeName=mixed1 Name=gpu Type=h100 File=/dev/nvidia[0-1]",
        "NodeName=mixed1 Name=gpu Type=l4 File=/dev/nvidia2",
    ]
    assert _slurm.gpu_types(nodes) == ["h100", "l4"]
    assert _slurm.gpu_files([GPU1, mixed], "mixed1") == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"]
    assert _slurm.gpu_files([GPU1, mixed], "elsewhere") == []


@pytest.mark.parametrize(
    ("partitions", "lines"),
    [
        (
            [TRAIN],
            [
                "PartitionName=train Nodes=gpu[1-2] Default=YES MaxTime=UNLIMITED"
                " DefMemPerCPU=20833 DefCpuPerGPU=12 State=UP"
            ],
        ),
        (
            [{**TRAIN, "default": False, "max_time": "7-00:00:00"}, {"name": "any", "nodes": ["gpu1", "cpu1"]}],
            [
                "PartitionName=train Nodes=gpu[1-2] Default=NO MaxTime=7-00:00:00"
                " DefMemPerCPU=20833 DefCpuPerGPU=12 State=UP",
                "PartitionName=any Nodes=gpu1,cpu1 Default=NO MaxTime=UNLIMITED"
                " DefMemPerCPU=4000 DefCpuPerGPU=12 State=UP",
            ],
        ),
        (
            [{"name": "cpu", "nodes": ["cpu1"], "default": True}],
            ["PartitionName=cpu Nodes=cpu1 Default=YES MaxTime=UNLIMITED DefMemPerCPU=4000 State=UP"],
        ),
    ],
    ids=["an only one is the default", "shares are the smallest node's", "without GPUs"],
)
def test_partitions(partitions: list[dict[str, Any]], lines: list[str]) -> None:
    assert _slurm.partition_lines(partitions, _slurm.parse_nodes([GPU1, GPU2, CPU1])) == lines


def test_a_sound_declaration_has_no_fault() -> None:
    assert _slurm.find_problems("alpha", [GPU1, GPU2, CPU1], [TRAIN], IDS) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster_name": "Big Cluster"}, "slurm_cluster_name is 'Big Cluster'"),
        ({"nodes": [GPU1]}, "Partition train names gpu2, which slurm_nodes does not hold"),
        ({"nodes": [GPU1, GPU2, GPU2]}, "slurm_nodes holds gpu2 twice"),
        ({"nodes": [GPU1, GPU2, {**GPU2, "name": "gpu2.example.org"}]}, "named 'gpu2.example.org'"),
        (
            {"nodes": [GPU1, {key: GPU2[key] for key in GPU2 if key != "memory_mib"}]},
            "Node gpu2 declares memory_mib as None",
        ),
        ({"nodes": [GPU1, {**GPU2, "sockets": "two"}]}, "Node gpu2 declares sockets as 'two'"),
        ({"nodes": [GPU1, {**GPU2, "threads_per_core": 0}]}, "Node gpu2 declares threads_per_core as 0"),
        (
            {"nodes": [GPU1, {**GPU2, "gpus": [{"type": "h100", "count": 0}]}]},
            "Node gpu2 declares 0 GPUs of type 'h100'",
        ),
        ({"nodes": [GPU1, {**GPU2, "gpus": [{"type": "h100"}]}]}, "Node gpu2 declares no count GPUs"),
        ({"nodes": [GPU1, {**GPU2, "gpus": [{"type": "NVIDIA H100", "count": 8}]}]}, "a GPU type 'NVIDIA H100'"),
        (
            {"nodes": [{**GPU1, "address": "192.0.2.1"}, {**GPU2, "address": "192.0.2.1"}]},
            "Nodes gpu1 and gpu2 have the same address 192.0.2.1",
        ),
        ({"partitions": []}, "slurm_partitions is empty"),
        ({"partitions": [{"name": "train", "nodes": []}]}, "Partition train has no nodes"),
        ({"partitions": [TRAIN, TRAIN]}, "slurm_partitions holds train twice"),
        ({"partitions": [{**TRAIN, "name": "default"}]}, "a partition named 'default'"),
        ({"partitions": [{**TRAIN, "max_time": "a week"}]}, "the max_time 'a week'"),
        (
            {"partitions": [{**TRAIN, "default": True}, {**TRAIN, "name": "two", "default": True}]},
            "Partitions train and two are both default",
        ),
        ({"uids": {**IDS, "slurm_munge_uid": 64030}}, "munge and slurm share an id"),
    ],
)
def test_each_fault_of_a_declaration_is_named(change: dict[str, Any], words: str) -> None:
    sound: dict[str, Any] = {"cluster_name": "alpha", "nodes": [GPU1, GPU2], "partitions": [TRAIN], "uids": IDS}
    (problem,) = _slurm.find_problems(**{**sound, **change})
    assert words in problem


def test_all_faults_are_named_at_once() -> None:
    assert len(_slurm.find_problems("1", [{**GPU1, "memory_mib": 0}, GPU2], [{**TRAIN, "nodes": ["gpu9"]}], IDS)) == 3


@pytest.mark.parametrize("value", ["UNLIMITED", "30", "1:30", "12:00:00", "7-00:00:00", "7-12"])
def test_each_form_of_a_time_is_taken(value: str) -> None:
    assert _slurm.find_problems("alpha", [GPU1, GPU2], [{**TRAIN, "max_time": value}], IDS) == []


CONTROLLER = """hostname ctl
passwd munge:x:966:966::/nonexistent:/usr/sbin/nologin
passwd slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin
group munge:x:966:
group slurm:x:64030:
cgroup cgroup2fs
owner 64030 /var/lib/slurm
owner 64030 /var/lib/slurm/slurmctld
slurmctld active
devices
clustername alpha
"""
NODE = """hostname gpu1
passwd munge:x:966:966::/nonexistent:/usr/sbin/nologin
cgroup cgroup2fs
slurmctld inactive
slurmd answers
devices /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3 /dev/nvidia4 /dev/nvidia5 /dev/nvidia6 /dev/nvidia7
"""
BARE = "hostname gpu1\ncgroup cgroup2fs\nslurmctld inactive\ndevices\n"


def expected(is_controller: bool, **change: Any) -> Expected:
    values: dict[str, Any] = {
        "cluster_name": "alpha",
        "controller_host": "ctl",
        "is_controller": is_controller,
        "is_node": not is_controller,
        "constrain": True,
        "nodes": [GPU1, GPU2],
        "partitions": [TRAIN],
        "users": {"munge": (966, 966), "slurm": (64030, 64030)},
    }
    return Expected(**{**values, **change})


@pytest.mark.parametrize(
    ("state", "is_controller"),
    [
        (CONTROLLER, True),
        (
            CONTROLLER + "job 7 train gpu[1-2] R\njob 8 train,old (null) PD\nnode gpu1 96 2000000 gpu:h100:8(S:0-1)\n",
            True,
        ),
        (NODE, False),
        (BARE, False),
    ],
    ids=["controller", "controller with jobs", "node", "bare machine"],
)
def test_a_machine_as_declared_has_no_fault(state: str, is_controller: bool) -> None:
    assert _slurm.find_machine_problems("here", state, expected(is_controller)) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (CONTROLLER.replace("munge:x:966:966:", "munge:x:120:966:"), "The user munge has the id 120 on here"),
        (CONTROLLER.replace("group slurm:x:64030", "group slurm:x:999"), "The group slurm has the id 999 on here"),
        (CONTROLLER + "passwd ntp:x:966:990::/:/bin/false\n", "The id 966 belongs to the user ntp on here"),
        (
            CONTROLLER.replace("hostname ctl", "hostname head"),
            "here calls itself head, and slurm_controller_host is ctl",
        ),
        (CONTROLLER.replace("clustername alpha", "clustername beta"), "holds the jobs of the cluster beta"),
        (
            CONTROLLER + "owner 1000 /var/lib/slurm/slurmd\n",
            "/var/lib/slurm/slurmd on here belongs to the user id 1000",
        ),
        (CONTROLLER + "job 7 train gpu[2-3] R\n", "Job 7 runs on gpu3, which slurm_nodes no longer holds"),
        (CONTROLLER + "job 8 old (null) PD\n", "Job 8 is in the partition old, which slurm_partitions no longer holds"),
        (CONTROLLER + "node gpu1 96 2000000 gpu:h100:10\n", "Node gpu1 runs jobs, and slurm_nodes declares less"),
    ],
)
def test_each_fault_of_a_controller_is_named(state: str, words: str) -> None:
    (problem,) = _slurm.find_machine_problems("here", state, expected(True))
    assert words in problem


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            NODE.replace("hostname gpu1", "hostname gpu7"),
            "here calls itself gpu7, a name that slurm_nodes does not hold",
        ),
        (NODE.replace("slurmctld inactive", "slurmctld active"), "here runs slurmctld, and the controller is ctl"),
        (NODE + "unmanaged /etc/slurm/slurm.conf\n", "here has a /etc/slurm/slurm.conf that this role did not write"),
        (NODE.replace("cgroup2fs", "tmpfs"), "here mounts cgroups of version 1"),
        (
            NODE.replace(" /dev/nvidia7", ""),
            "could not start again and would lose its jobs, since /dev/nvidia7 is missing",
        ),
    ],
)
def test_each_fault_of_a_node_is_named(state: str, words: str) -> None:
    (problem,) = _slurm.find_machine_problems("here", state, expected(False))
    assert words in problem


# Lines of 24.11 and 22.05, shortened.
IDLE = (
    "NodeName=gpu1 Arch=x86_64 CPUTot=16 Gres=gpu:h100:8 NodeAddr=gpu1 Version=24.11.5 State=IDLE ThreadsPerCore=1 "
    "Partitions=train  BootTime=2026-11-30T09:16:19 SlurmdStartTime=2026-11-30T09:45:06 AllocTRES= CurrentWatts=0 \n"
)
DRAINED = IDLE.replace("State=IDLE", "State=IDLE+DRAIN").strip()


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (IDLE, ""),
        (IDLE.replace("State=IDLE", "State=MIXED"), ""),
        (DRAINED + " Reason=swap the fan [root@2026-11-30T09:52:05]\n", ""),
        (
            DRAINED + " Reason=gres/gpu count reported lower than configured (7 < 8) [slurm@2026-11-30T09:52:05]\n",
            "with the reason: gres/gpu count reported lower than configured (7 < 8).",
        ),
        (
            DRAINED + " Reason=GPU missing: /dev/nvidia7 [root@2026-11-30T09:52:05]\n",
            "Slurm keeps gpu1 from jobs (IDLE+DRAIN), with the reason: GPU missing: /dev/nvidia7.",
        ),
        (
            IDLE.replace("State=IDLE", "State=IDLE+INVALID_REG").strip() + " Reason=Low RealMemory [slurm@2026]\n",
            "gpu1 is not what slurm_nodes declares; Slurm says: Low RealMemory.",
        ),
        (IDLE.replace("State=IDLE", "State=DOWN*"), "gpu1 has not registered with the controller (DOWN*)"),
        (IDLE.replace("SlurmdStartTime=2026-11-30T09:45:06", "SlurmdStartTime=None"), "gpu1 has not registered"),
        (
            IDLE + "Complaint=fatal: can't stat gres.conf file /dev/nvidia7\n",
            "slurmd on gpu1 does not answer; the last error in its /var/log/slurm/slurmd.log is: fatal: can't stat",
        ),
        ("Node gpu1 not found\n", "The controller did not tell about this node: Node gpu1 not found."),
        ("", "no answer"),
    ],
)
def test_a_node_s_fault_is_told_from_an_administrator_s_doing(shown: str, words: str) -> None:
    problem = _slurm.node_problem(shown)
    assert words in problem
    assert bool(problem) == bool(words)
