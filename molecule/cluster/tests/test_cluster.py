"""What site.yml brings about on the simulated cluster, seen as its users see it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.simulator.cluster import CHECKPOINTS, SAMPLE, Cluster, Training
from tests.simulator.engine import SimulatorError
from tests.simulator.hosts import Instance

HOSTS = {"ctl", "gpu1", "gpu2", "backup1"}
GPUS = 8  # of a node
USER = "trainer"

# Run by a job: opens each GPU's device file. A permitted open reaches the driver, which isn't there (ENXIO);
# a denied one ends at the kernel's device filter (EPERM).
COUNT_GPUS = """python3 -c '
import errno, glob, os
def permitted(path):
    try: os.close(os.open(path, os.O_RDWR))
    except OSError as error: return error.errno != errno.EPERM
    return True
paths = glob.glob("/dev/nvidia[0-9]")
print(len(paths), sum(map(permitted, paths)), os.environ.get("CUDA_VISIBLE_DEVICES"))
'"""


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster(Instance(os.environ.get("TRAINYARD_SIM", "test")))


@pytest.fixture(scope="module")
def training(cluster: Cluster) -> Training:
    return cluster.train(steps=60)


def on(cluster: Cluster, command: str, user: str = USER) -> str:
    return cluster.on("ctl", command, user)


def recap(output: str) -> dict[str, dict[str, int]]:
    """Ansible's closing lines: host → {ok, changed, unreachable, failed, …}."""
    lines = re.findall(r"^(\S+)\s+: (ok=.*)$", output, re.M)
    return {host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)} for host, counts in lines}


def changed(output: str) -> str:
    """The tasks that changed something, for the message of a failed test."""
    parts = re.split(r"^TASK ", output, flags=re.M)
    return "\n".join(part for part in parts if re.search(r"^changed:", part, re.M))[:4000]


@pytest.fixture
def sleeping_job(cluster: Cluster) -> Iterator[str]:
    """A job that computes on gpu1 and gpu2 for the length of a test."""
    job = on(cluster, "sbatch --parsable --nodes=2 --gres=gpu:1 --output=/dev/null --wrap='srun sleep 600'")
    wait_for(cluster, f"squeue --noheader --jobs={job} --format=%T", "RUNNING")
    yield job
    on(cluster, f"scancel {job}")


def eventually(condition: Callable[[], bool], seconds: int = 60) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(1)
    return False


def fires(cluster: Cluster, **labels: str) -> bool:
    """Whether an alert with these labels is active at Alertmanager."""
    return any(labels.items() <= alert.items() for alert in cluster.alerts())


def wait_for(cluster: Cluster, command: str, wanted: str, seconds: int = 60) -> str:
    """Ask Slurm until the answer has the wanted word."""
    deadline = time.monotonic() + seconds
    answer = ""
    while time.monotonic() < deadline:
        answer = on(cluster, command)
        if wanted in answer:
            return answer
        time.sleep(0.5)
    raise AssertionError(f"`{command}` says '{answer}' after {seconds} s, not {wanted}")


def test_slurm_shows_both_nodes_idle_with_their_gpus(cluster: Cluster) -> None:
    answer = on(cluster, "sinfo --Node --noheader --format='%N %T %G'").splitlines()
    assert [line.split()[:2] for line in answer] == [["gpu1", "idle"], ["gpu2", "idle"]]
    assert all("gpu:h100:8" in line for line in answer)


def test_a_job_sees_the_two_gpus_it_asked_for_and_no_third(cluster: Cluster) -> None:
    present, permitted, visible = on(cluster, f"srun --gres=gpu:2 {COUNT_GPUS}").split()
    assert (present, permitted) == ("8", "2")
    assert len(visible.split(",")) == 2


def test_a_job_that_asks_for_nine_gpus_is_refused(cluster: Cluster) -> None:
    with pytest.raises(SimulatorError, match="Requested node configuration is not available"):
        on(cluster, "srun --nodes=1 --gres=gpu:9 true")


def test_a_job_that_asks_for_more_memory_than_a_node_has_is_refused(cluster: Cluster) -> None:
    with pytest.raises(SimulatorError, match=r"Memory (specification|required)"):
        on(cluster, "srun --nodes=1 --mem=900G true")


def test_training_lowers_the_loss(training: Training) -> None:
    first, last = training.losses[min(training.losses)], training.losses[max(training.losses)]
    assert last < 0.75 * first, training.losses


def test_accounting_has_the_job_with_its_gpus(cluster: Cluster, training: Training) -> None:
    state, tres = on(cluster, f"sacct -j {training.job} -X -n -P -o State,AllocTRES").split("|")
    assert state == "COMPLETED"
    assert "gres/gpu=" in tres
    assert "gres/gpu:h100=" in tres


def test_a_killed_training_resumes_from_its_newest_whole_checkpoint(cluster: Cluster) -> None:
    def submit(steps: int) -> str:
        settings = f"STEPS={steps} CHECKPOINT_EVERY=10"
        return on(cluster, f"cd ~ && {settings} sbatch --parsable --job-name=killed {SAMPLE}/train.sbatch")

    first = submit(steps=200)
    folder = f"{CHECKPOINTS}/killed"
    wait_for(cluster, f"ls {folder} 2>/dev/null || true", "step-00000010", seconds=120)
    on(cluster, f"scancel --signal=KILL {first}")
    on(cluster, f"scancel {first}")
    wait_for(cluster, f"squeue --noheader --jobs={first} --format=%T 2>/dev/null | wc -l", "0")
    newest = max(int(name) for name in re.findall(r"step-(\d+)\n", on(cluster, f"ls {folder}") + "\n"))
    second = submit(steps=newest + 10)
    wait_for(cluster, f"sacct -X -n -P -o State -j {second}", "COMPLETED", seconds=120)
    output = on(cluster, f"cat ~/killed-{second}.out")
    steps = [int(step) for step in re.findall(r"step=(\d+)\b.*?\bloss=", output)]
    assert min(steps) > newest, f"it began again at step {min(steps)} though step {newest} was saved:\n{output}"
    assert f"step-{newest + 10:08d}" in on(cluster, f"ls {folder}")


def test_the_backup_is_identical_by_checksum(cluster: Cluster, training: Training) -> None:
    cluster.on("ctl", "systemctl start trainyard-checkpoint-backup.service")
    copy = cluster.verified_copy(training.checkpoint)
    assert copy.endswith("/".join(training.checkpoint.split("/")[-2:]))


def test_prometheus_has_the_gpus_of_all_nodes_and_the_metrics_of_all_hosts(cluster: Cluster) -> None:
    temperatures = cluster.series("DCGM_FI_DEV_GPU_TEMP")
    assert {(labels["instance"], labels["gpu"]) for labels, _value in temperatures} == {
        (node, str(gpu)) for node in ("gpu1", "gpu2") for gpu in range(GPUS)
    }
    assert all(20 < value < 90 for _labels, value in temperatures), temperatures
    uuids = {labels["UUID"] for labels, _value in temperatures}
    assert len(uuids) == 2 * GPUS
    assert {labels["nodename"] for labels, _value in cluster.series("node_uname_info")} == HOSTS


def test_a_hot_gpu_fires_its_alert_which_clears_when_it_cooled_down(cluster: Cluster) -> None:
    alert = {"alertname": "GpuHot", "instance": "gpu1", "gpu": "3"}
    cluster.on("gpu1", "simgpu set 3 temperature=95")
    try:
        assert eventually(lambda: fires(cluster, **alert)), cluster.alerts()
        assert not [labels for labels in cluster.alerts() if labels["alertname"] == "GpuHot" and labels["gpu"] != "3"]
    finally:
        cluster.on("gpu1", "simgpu set 3 temperature=")
    assert eventually(lambda: not fires(cluster, **alert), seconds=120), cluster.alerts()


def test_an_xid_fires_its_alert(cluster: Cluster) -> None:
    cluster.on("gpu2", "simgpu xid 5 79")
    assert eventually(lambda: fires(cluster, alertname="GpuXid", instance="gpu2", gpu="5")), cluster.alerts()


def test_two_containers_see_a_gpu_each_and_a_third_device_is_refused(cluster: Cluster) -> None:
    mirror = json.loads(cluster.instance.mirror.read_text())
    image = mirror["images"]["nvidia/cuda"]
    name = f"{mirror['registry']}/nvidia/cuda@{image['digest']}"
    cluster.on("gpu1", f"docker pull --quiet {name}")
    assert image["digest"] in cluster.on("gpu1", f"docker image inspect --format '{{{{.RepoDigests}}}}' {name}")
    run = "docker run --rm --device nvidia.com/gpu={} " + name
    seen = [cluster.on("gpu1", f"{run.format(gpu)} nvidia-smi -L").splitlines() for gpu in (0, 1)]
    assert [len(lines) for lines in seen] == [1, 1]
    uuids = [re.findall(r"UUID: (GPU-[0-9a-f-]+)", lines[0]) for lines in seen]
    assert uuids[0] != uuids[1]
    with pytest.raises(SimulatorError, match="Operation not permitted"):
        cluster.on("gpu1", f"{run.format(0)} sh -c 'mknod /dev/nvidia2 c 195 2 && exec 3<>/dev/nvidia2'")


@pytest.mark.parametrize(
    ("role", "variables", "sentence"),
    [
        (
            "docker_nvidia",
            {"docker_nvidia_repository_url": "http://mirror/broken/wrong-key/docker/linux"},
            "docker_nvidia_repository_key_fingerprint: gpu1 can't use Docker at http://mirror/broken/wrong-key/docker/linux"
            "/debian for trixie: it is signed with another key",
        ),
        (
            "docker_nvidia",
            {"docker_nvidia_repository_url": "http://mirror/nothing-here"},
            "docker_nvidia_repository_url: gpu1 can't get the key of Docker from "
            "http://mirror/nothing-here/debian/gpg: "
            "it can't be fetched (404 Not Found",
        ),
        ("cuda", {"cuda_extra_packages": ["cuda-nothing"]}, "The package sources of gpu1 have no cuda-nothing"),
    ],
    ids=["wrong key", "not found", "missing package"],
)
def test_a_faulty_repository_is_one_sentence_and_leaves_apt_usable(
    cluster: Cluster, role: str, variables: dict[str, object], sentence: str
) -> None:
    arguments = ("--limit", "gpu1", "--tags", role, "--extra-vars", json.dumps(variables))
    status, output = cluster.playbook("gpu_nodes", *arguments)
    assert status == 2, output[-4000:]
    assert recap(output)["gpu1"]["failed"] == 1
    assert recap(output)["gpu1"]["changed"] == 0, changed(output)
    assert sentence in re.sub(r"\s+", " ", output).replace("''", "'")
    cluster.on("gpu1", "apt-get update --error-on=any")


def test_one_part_can_be_done_alone(cluster: Cluster) -> None:
    """By its tag; what the other roles' tasks would have found out isn't there then."""
    status, output = cluster.playbook("site", "--tags", "verify")
    assert status == 0, output[-4000:]
    assert all(counts["changed"] == 0 for counts in recap(output).values()), changed(output)


def test_a_gpu_that_is_unfit_for_jobs_is_named(cluster: Cluster) -> None:
    cluster.on("gpu1", "simgpu set 2 remapped.failure=1")
    try:
        status, output = cluster.playbook("verify", "--limit", "gpu1")
    finally:
        cluster.on("gpu1", "simgpu set 2 remapped.failure=")
    assert status == 2, output[-4000:]
    said = re.sub(r"\s+", " ", output)
    assert "gpu1 is unfit for jobs. GPU 2: A memory row could not be remapped. (row_remap_failure: " in said
    assert "Drain the node and have the GPU replaced" in said


def test_a_gpu_that_is_missing_before_slurmd_ever_ran_keeps_jobs_away_with_the_reason(cluster: Cluster) -> None:
    """There is no copy of the controller's configuration then."""
    cluster.on("gpu1", "systemctl stop slurmd && rm -r /var/lib/slurm/slurmd/conf-cache && rm /dev/nvidia7")
    try:
        cluster.on("gpu1", "systemctl --no-block start slurmd")
        wait_for(cluster, "sinfo --noheader --list-reasons --format='%N %E'", "gpu1 GPU missing: /dev/nvidia7")
    finally:
        cluster.on("gpu1", "mknod --mode 666 /dev/nvidia7 c 195 7")
    wait_for(cluster, "sinfo --Node --noheader --nodes=gpu1 --format=%T", "idle", seconds=90)


def test_a_second_run_changes_nothing_and_disturbs_no_job(cluster: Cluster, sleeping_job: str) -> None:
    before = on(
        cluster, f"scontrol show job {sleeping_job} | grep -o 'StartTime=[^ ]*\\|Restarts=[^ ]*\\|NodeList=gpu.*'"
    )
    status, output = cluster.playbook("site")
    assert status == 0, output[-4000:]
    assert set(recap(output)) >= HOSTS
    assert all(counts["changed"] == 0 for counts in recap(output).values()), changed(output)
    after = on(
        cluster, f"scontrol show job {sleeping_job} | grep -o 'StartTime=[^ ]*\\|Restarts=[^ ]*\\|NodeList=gpu.*'"
    )
    assert before == after
    assert on(cluster, f"squeue --noheader --jobs={sleeping_job} --format=%T") == "RUNNING"


def test_a_dry_run_after_it_finds_nothing_to_change(cluster: Cluster) -> None:
    status, output = cluster.playbook("site", "--check", "--diff")
    assert status == 0, output[-4000:]
    assert set(recap(output)) >= HOSTS
    assert all(counts["changed"] == 0 for counts in recap(output).values()), changed(output)


def test_a_node_that_is_down_holds_up_nobody_and_is_welcome_back(cluster: Cluster) -> None:
    cluster.instance.stop("gpu2")
    try:
        status, output = cluster.playbook("site")
        counts = recap(output)
        assert counts["gpu2"]["unreachable"] == 1, output[-4000:]
        assert status != 0, "Ansible must say that a host was unreachable"
        for host in HOSTS - {"gpu2"}:
            assert (counts[host]["failed"], counts[host]["changed"]) == (0, 0), output[-4000:]
        assert eventually(lambda: fires(cluster, alertname="NodeDown", instance="gpu2")), cluster.alerts()
        assert not fires(cluster, alertname="ExporterDown", instance="gpu2")
    finally:
        cluster.instance.start("gpu2")
    # The node alone, as its operator would do it: what it was given before has outlived the boot.
    status, output = cluster.playbook("site", "--limit", "gpu2")
    assert status == 0, output[-4000:]
    assert {"gpu2"} <= set(recap(output)) <= {"gpu2", "localhost"}
    assert recap(output)["gpu2"]["changed"] == 0, changed(output)
    wait_for(cluster, "sinfo --Node --noheader --nodes=gpu2 --format=%T", "idle")
    assert on(cluster, "srun --nodelist=gpu2 hostname") == "gpu2"
    assert eventually(lambda: not fires(cluster, alertname="NodeDown", instance="gpu2")), cluster.alerts()


def test_a_machine_that_resolves_its_own_name_to_loopback_is_named_before_any_change(cluster: Cluster) -> None:
    cluster.on("gpu1", "cp /etc/hosts /root/hosts && echo '127.0.1.1 gpu1' | cat - /root/hosts > /etc/hosts")
    try:
        status, output = cluster.playbook("site")
    finally:
        cluster.on("gpu1", "cat /root/hosts > /etc/hosts && rm /root/hosts")
    assert status != 0
    assert "127.0.1.1" in output
    assert all(counts["changed"] == 0 for counts in recap(output).values())


def test_a_machine_without_the_shared_directory_is_named_before_any_change(cluster: Cluster) -> None:
    cluster.on("gpu1", "mount --bind /mnt /shared && mount -o remount,bind,ro /shared")
    try:
        status, output = cluster.playbook("site")
    finally:
        cluster.on("gpu1", "umount /shared")
    assert status != 0
    assert "/shared on gpu1 is not writable" in output
    assert all(counts["changed"] == 0 for counts in recap(output).values())
