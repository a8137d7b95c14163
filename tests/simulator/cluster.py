"""`make cluster`: boots the simulated cluster, runs site.yml on it, trains a model on it and says what to look at.

Every step leaves alone what is done already, so the command may be given again after an interruption at any point.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from shlex import quote
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

from .engine import SimulatorError
from .hosts import CHECKOUT, CLUSTER, Instance

INSTANCE = "cluster"
USER = "trainer"
SAMPLE = "/shared/examples/pytorch"
CHECKPOINTS = f"/shared/checkpoints/{USER}"
_JOB_SECONDS = 300
_SCRAPE_SECONDS = 90
_SHOWN_LINES = 60
_ENDED = re.compile(r"COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE")

# One row for each GPU, by the labels that all of a GPU's series share.
_GPU_COLUMNS = {
    "Temperature": ("DCGM_FI_DEV_GPU_TEMP", "{:.0f} °C"),
    "Power": ("DCGM_FI_DEV_POWER_USAGE", "{:.0f} W"),
    "Utilisation": ("DCGM_FI_DEV_GPU_UTIL", "{:.0f} %"),
}

console = Console(highlight=False)
# These hosts are this machine's own, whatever proxy it has for others.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Training:
    """A finished training job: its id and state in Slurm's accounting, its losses by step, its newest checkpoint."""

    job: str
    losses: dict[int, float]
    checkpoint: str


@contextmanager
def step(title: str) -> Iterator[Status]:
    """Show a step while it runs, and how long it took."""
    started = time.monotonic()
    with console.status(title) as status:
        yield status
    console.print(f"[green]✓[/green] {title} [dim]({time.monotonic() - started:.0f} s)[/dim]")


class Cluster:
    """The simulated cluster as a user sees it: over ssh, with Ansible and with Slurm's commands."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.environment = {
            **os.environ,
            "TRAINYARD_SIM": instance.name,
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",  # the output is read by programs, whatever calls this
            "ANSIBLE_NOCOLOR": "1",
        }

    def on(self, host: str, command: str, user: str = "root") -> str:
        """Run a shell command on a host, as root or as another user in a login shell; return what it printed."""
        words = ["ssh", "-F", str(self.instance.ssh_config), host]
        words.append(f"bash -lc {quote(command)}" if user == "root" else f"runuser -l {user} -c {quote(command)}")
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SimulatorError(f"{host}: `{command}` failed: {(result.stderr or result.stdout).strip()}")
        return result.stdout.strip()

    @property
    def prometheus(self) -> str:
        """Prometheus' address."""
        return f"http://{self.instance.addresses()['ctl']}:9090"

    @property
    def alertmanager(self) -> str:
        """Alertmanager's address."""
        return f"http://{self.instance.addresses()['ctl']}:9093"

    def series(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Ask Prometheus; return the labels and the value of each series."""
        answer = _get(f"{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
        return [(series["metric"], float(series["value"][1])) for series in answer["data"]["result"]]

    def alerts(self) -> list[dict[str, str]]:
        """Return the labels of each alert that is active at Alertmanager."""
        return [alert["labels"] for alert in _get(f"{self.alertmanager}/api/v2/alerts?active=true")]

    def playbook(self, name: str, *arguments: str, seen: Callable[[str], None] = lambda line: None) -> tuple[int, str]:
        """Run a playbook of the collection on the cluster; return its exit status and what it printed.

        The output is kept in a log too. `seen` is called with each line as it comes.
        """
        log = CHECKOUT / ".cache/sim" / self.instance.name / f"{name}.log"
        words = ["ansible-playbook", "-i", "inventories/sim", f"playbooks/{name}.yml", *arguments]
        lines = []
        with open(log, "w", buffering=1) as output:  # so that one can follow it
            process = subprocess.Popen(
                words, cwd=CHECKOUT, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            for line in process.stdout or ():
                output.write(line)
                lines.append(line)
                seen(line)
        return process.wait(), "".join(lines)

    def train(self, steps: int) -> Training:
        """Submit the sample job under a name of its own, wait until it ended, and read its losses."""
        name = f"first-run-{time.strftime('%H%M%S')}"
        job = self.on(
            "ctl",
            f"cd ~ && STEPS={steps} sbatch --parsable --job-name={name} {SAMPLE}/train.sbatch",
            USER,
        )
        output = ""
        deadline = time.monotonic() + _JOB_SECONDS
        while time.monotonic() < deadline:
            state = self.on("ctl", f"sacct --jobs={job} --allocations --noheader --parsable2 --format=State")
            output = self.on("ctl", f"cat ~/{name}-{job}.out 2>/dev/null || true", USER)
            if _ENDED.match(state):
                break
            time.sleep(1)
        else:
            raise SimulatorError(f"the training job {job} isn't done after {_JOB_SECONDS} s; see squeue on ctl")
        if not state.startswith("COMPLETED"):
            raise SimulatorError(f"the training job {job} ended {state}; its output:\n{output}")
        losses = {int(number): float(loss) for number, loss in re.findall(r"step=(\d+)\b.*?\bloss=([\d.]+)", output)}
        if len(losses) < 2:
            raise SimulatorError(f"the training job {job} reported no losses; its output:\n{output}")
        newest = self.on("ctl", f"ls -d {CHECKPOINTS}/{name}/step-* | grep -v tmp | tail -n 1")
        return Training(job, losses, newest)

    def verified_copy(self, checkpoint: str) -> str:
        """Find a checkpoint's copy on backup1 and compare the two by checksum. Returns the copy's folder."""
        sums = "find . -type f | sort | xargs sha256sum"
        name = "/".join(checkpoint.split("/")[-2:])
        found = self.on("backup1", f"find / -xdev -path '*/{name}' -type d").splitlines()
        if not found:
            raise SimulatorError(f"backup1 has no copy of {checkpoint}")
        if self.on("ctl", f"cd {checkpoint} && {sums}") != self.on("backup1", f"cd {found[0]} && {sums}"):
            raise SimulatorError(f"the copy backup1:{found[0]} differs from {checkpoint}")
        return found[0]


def _get(url: str) -> Any:
    try:
        with _direct.open(url, timeout=10) as answer:
            return json.load(answer)
    except OSError as error:
        raise SimulatorError(f"{url} doesn't answer: {error}") from error


def make_cluster() -> int:
    """Do all of it. Returns the exit status of the command."""
    started = time.monotonic()
    instance = Instance(INSTANCE)
    cluster = Cluster(instance)
    with step("Boot the test hosts " + ", ".join(host.name for host in CLUSTER)):
        instance.up(CLUSTER)
    with step("Run playbooks/site.yml") as status:
        _run_site(cluster, status)
    with step("Train a small language model on both nodes"):
        training = cluster.train(steps=100)
    with step("Back its checkpoints up"):
        cluster.on("ctl", "systemctl start trainyard-checkpoint-backup.service")
        copy = cluster.verified_copy(training.checkpoint)
    with step("See all GPUs in Prometheus"):
        gpus = _gpu_table(cluster)
    _summary(cluster, training, copy, gpus, time.monotonic() - started)
    return 0


def _run_site(cluster: Cluster, status: Status) -> None:
    def show(line: str) -> None:
        if heading := re.match(r"(?:TASK|PLAY|RUNNING HANDLER) \[(?:trainyard\.cluster\.)?(.*?)\] \*", line):
            status.update(f"Run playbooks/site.yml: {heading[1]}")

    failed, output = cluster.playbook("site", seen=show)
    if failed:
        tail = "\n".join(output.splitlines()[-_SHOWN_LINES:])
        raise SimulatorError(f"playbooks/site.yml failed; the end of its output:\n{tail}")


def _gpu_table(cluster: Cluster) -> Table:
    """Every simulated GPU with what Prometheus has of it, once it has all of them."""
    wanted = sum(host.gpu_count for host in CLUSTER)
    deadline = time.monotonic() + _SCRAPE_SECONDS
    columns: list[dict[tuple[str, int], float]] = []
    while time.monotonic() < deadline:
        columns = [
            {(labels["instance"], int(labels["gpu"])): value for labels, value in cluster.series(metric)}
            for metric, _form in _GPU_COLUMNS.values()
        ]
        if all(len(column) == wanted for column in columns):
            break
        time.sleep(1)
    else:
        found = ", ".join(f"{len(column)} of {name.lower()}" for name, column in zip(_GPU_COLUMNS, columns))
        raise SimulatorError(f"Prometheus has not the series of {wanted} GPUs after {_SCRAPE_SECONDS} s, but {found}")
    table = Table("Node", "GPU", *_GPU_COLUMNS, title="GPUs in Prometheus", title_justify="left", title_style="bold")
    for node, gpus in groupby(sorted(columns[0]), key=lambda gpu: gpu[0]):
        for gpu in gpus:
            values = [form.format(column[gpu]) for column, (_metric, form) in zip(columns, _GPU_COLUMNS.values())]
            table.add_row(node, str(gpu[1]), *values)
        table.add_section()
    return table


def _summary(cluster: Cluster, training: Training, copy: str, gpus: Table, seconds: float) -> None:
    nodes = Table("Node", "State", "GPUs (gres)", title="Slurm", title_justify="left", title_style="bold")
    for line in cluster.on("ctl", "sinfo --Node --noheader --format='%N|%T|%G'").splitlines():
        nodes.add_row(*line.split("|"))
    console.print(nodes)
    console.print(gpus)
    first, last = min(training.losses), max(training.losses)
    rows = {
        "Training job": f"{training.job} completed on 2 nodes",
        "Loss": f"{training.losses[first]:.2f} at step {first} → {training.losses[last]:.2f} at step {last}",
        "Newest checkpoint": training.checkpoint,
        "Its backup": f"backup1:{copy} (same checksums)",
        "Prometheus": cluster.prometheus,
        "Alertmanager": cluster.alertmanager,
        "Log in": ".venv/bin/python -m tests.simulator ssh cluster gpu1",
        "Use Ansible": ".venv/bin/ansible -i inventories/sim gpu_nodes -m trainyard.cluster.gpu_facts",
        "Use Slurm": f".venv/bin/python -m tests.simulator ssh cluster ctl runuser -l {USER} -c sinfo",
        "Remove everything": "make clean-cluster",
    }
    table = Table(show_header=False, title=f"Ready after {seconds:.0f} s", title_justify="left", title_style="bold")
    table.add_column()
    table.add_column(overflow="fold")  # a path is of use only as a whole
    for name, text in rows.items():
        table.add_row(name, text)
    console.print(table)
