"""What the role brings about: two servers of their own, with targets that are up, half up and not there at all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from tests.simulator.hosts import CHECKOUT, Instance

SCENARIO = Path(__file__).parents[1]
INVENTORY = CHECKOUT / "inventories/molecule"
SIMULATOR = Instance(os.environ.get("TRAINYARD_SIM", "test"))
CONNECT = ["ssh", "-F", str(SIMULATOR.ssh_config), "-o", "ControlMaster=auto", "-o", "ControlPersist=60"]
CONNECT += ["-o", f"ControlPath={SIMULATOR.ssh_config.parent}/%n"]
FILES = "/etc/prometheus/trainyard"
SECONDS = 120  # until what must come is there; the scenarios share two cores


@dataclass(frozen=True)
class Server:
    """A host with its Prometheus and Alertmanager.

    instance: its name in their labels. gpus: the job of its exporter of GPU metrics.
    """

    host: str
    instance: str
    gpus: str
    port: int
    alertmanager_port: int
    storage: str

    def on(self, command: str, code: int = 0) -> str:
        words = [*CONNECT, self.host, f"bash -c {quote(command)}"]
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        assert result.returncode == code, (
            f"{self.host}: {command}: ended with {result.returncode}: {result.stdout}{result.stderr}"
        )
        return (result.stdout + result.stderr).strip()

    def ask(self, path: str, port: int | None = None) -> Any:
        url = f"http://{SIMULATOR.addresses()[self.host]}:{port or self.port}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression."""
        result: list[dict[str, Any]] = self.ask(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")[
            "data"
        ]["result"]
        return result

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """What Alertmanager holds under an alert's name."""
        filter_ = urllib.parse.urlencode({"filter": f'alertname="{name}"'})
        alerts: list[dict[str, Any]] = self.ask(f"/api/v2/alerts?{filter_}", self.alertmanager_port)
        return alerts

    def processes(self) -> str:
        """Which processes the two are, and since when."""
        properties = "--property=MainPID --property=ExecMainStartTimestampMonotonic"
        return self.on(f"systemctl show {properties} prometheus prometheus-alertmanager")

    def gpu(self, name: str, gpu: int, value: int) -> None:
        """Have the exporter of GPU metrics say something else."""
        self.on(rf"sed -i -E 's/^({name}\{{gpu=\"{gpu}\".*\}}) .*/\1 {value}/' /srv/dcgm/metrics")


DEFAULT = Server("prometheus-default", "prometheus-default", "dcgm", 9090, 9093, "/var/lib/prometheus/metrics2")
ALTERNATIVE = Server("prometheus-alternative", "alternative", "gpus", 9190, 9193, "/srv/prometheus")
both = pytest.mark.parametrize("server", [DEFAULT, ALTERNATIVE], ids=lambda server: server.instance)


def wait(what: Callable[[], Any]) -> Any:
    """What a function returns, as soon as that is something."""
    deadline = time.monotonic() + SECONDS
    while True:
        found = what()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(1)


def play(server: Server, *arguments: str) -> str:
    """Run the role once more on one host; what it said, on one line, with its outcome first."""
    words = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(INVENTORY)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    words += [str(SCENARIO / "converge.yml"), f"--limit={server.host}", "--diff", *arguments]
    result = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    return f"rc={result.returncode} " + re.sub(r"\s+", " ", result.stdout + result.stderr)


def with_variables(**values: Any) -> str:
    return f"--extra-vars={json.dumps(values)}"


@both
def test_what_is_declared_is_scraped_and_what_is_not_there_is_known_as_down(server: Server) -> None:
    other = "prometheus-alternative" if server is DEFAULT else "default"
    expected = {
        ("prometheus", server.instance): "1",
        ("alertmanager", server.instance): "1",
        ("node", server.instance): "1",
        ("node", other): "1",
        (server.gpus, server.instance): "1",
        ("node", "switched-off"): "0",
    }

    def found() -> dict[tuple[str, str], str]:
        series = server.query("up")
        return {(each["metric"]["job"], each["metric"]["instance"]): each["value"][1] for each in series}

    wait(lambda: found() == expected)
    assert found() == expected
    assert wait(lambda: server.query(f'node_uname_info{{instance="{server.instance}", nodename="{server.host}"}}'))
    assert wait(lambda: len(server.query(f'DCGM_FI_DEV_GPU_TEMP{{instance="{server.instance}"}}')) == 2)


def test_labels_of_a_target_are_on_its_series() -> None:
    assert wait(lambda: ALTERNATIVE.query('DCGM_FI_DEV_GPU_TEMP{gpu="0", rack="7"}'))
    assert ALTERNATIVE.query('node_uname_info{instance="alternative", rack="r1"}')


@both
def test_a_machine_that_is_not_there_is_reported_and_not_its_exporter(server: Server) -> None:
    (alert,) = wait(lambda: server.alerts("NodeDown"))
    assert alert["labels"]["instance"] == "switched-off"
    assert alert["annotations"]["summary"] == "switched-off is down"
    assert alert["annotations"]["action"]
    assert not [each for each in server.alerts("ExporterDown") if each["labels"]["instance"] == "switched-off"]


@both
def test_a_fault_of_a_gpu_reaches_alertmanager_and_clears(server: Server) -> None:
    assert not server.alerts("GpuEccUncorrectable")
    server.gpu("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1, 2)
    try:
        (alert,) = wait(lambda: server.alerts("GpuEccUncorrectable"))
    finally:
        server.gpu("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1, 0)
    labels = alert["labels"]
    assert (labels["instance"], labels["gpu"], labels["severity"]) == (server.instance, "1", "critical")
    assert f"GPU 1 of {server.instance} has 2 uncorrectable memory errors" in alert["annotations"]["summary"]
    wait(lambda: not server.alerts("GpuEccUncorrectable"))
    assert not server.alerts("GpuEccUncorrectable")


@both
def test_an_xid_is_reported_with_its_number_and_what_to_do(server: Server) -> None:
    server.gpu("DCGM_FI_DEV_XID_ERRORS", 0, 79)
    (alert,) = wait(lambda: server.alerts("GpuXid"))
    assert (alert["labels"]["xid"], alert["labels"]["gpu"], alert["labels"]["severity"]) == ("79", "0", "critical")
    assert "can't reach the GPU" in alert["annotations"]["action"]
    if server is ALTERNATIVE:  # where it stays for 20 seconds; the exporter says 79 still
        wait(lambda: not server.alerts("GpuXid"))
        assert not server.alerts("GpuXid")
    server.gpu("DCGM_FI_DEV_XID_ERRORS", 0, 0)


def test_a_hot_gpu_is_reported_by_the_thresholds_that_were_set() -> None:
    ALTERNATIVE.gpu("DCGM_FI_DEV_GPU_TEMP", 0, 65)
    (alert,) = wait(lambda: ALTERNATIVE.alerts("GpuHot"))
    assert alert["labels"]["severity"] == "warning"
    ALTERNATIVE.gpu("DCGM_FI_DEV_GPU_TEMP", 0, 75)
    assert wait(lambda: len(ALTERNATIVE.alerts("GpuHot")) == 2)
    ALTERNATIVE.gpu("DCGM_FI_DEV_GPU_TEMP", 0, 35)
    wait(lambda: not ALTERNATIVE.alerts("GpuHot"))
    assert not ALTERNATIVE.alerts("GpuHot")


def test_an_exporter_alone_is_reported_as_such() -> None:
    ALTERNATIVE.on("systemctl stop dcgm-stand-in")
    try:
        (alert,) = wait(lambda: ALTERNATIVE.alerts("ExporterDown"))
        assert (alert["labels"]["instance"], alert["labels"]["job"]) == ("alternative", "gpus")
    finally:
        ALTERNATIVE.on("systemctl start dcgm-stand-in")
    wait(lambda: not ALTERNATIVE.alerts("ExporterDown"))
    assert not ALTERNATIVE.alerts("ExporterDown")


def test_backups_are_watched_through_the_node_exporter() -> None:
    folder = "/var/lib/prometheus/node-exporter"
    name = "trainyard_checkpoint_backup"
    ALTERNATIVE.on(
        f"printf '{name}_last_success_timestamp_seconds 0\\n{name}_failures 2\\n' >{folder}/new"
        f" && chmod 644 {folder}/new && mv {folder}/new {folder}/backup.prom"
    )
    try:
        assert wait(lambda: ALTERNATIVE.alerts("BackupFailing"))
        assert wait(lambda: ALTERNATIVE.alerts("BackupStale"))
    finally:
        ALTERNATIVE.on(f"rm {folder}/backup.prom")
    wait(lambda: not ALTERNATIVE.alerts("BackupStale") and not ALTERNATIVE.alerts("BackupFailing"))
    assert not ALTERNATIVE.alerts("BackupStale")


def test_the_watchdog_barks_where_it_was_asked_for() -> None:
    assert wait(lambda: ALTERNATIVE.alerts("Watchdog"))
    assert not DEFAULT.alerts("Watchdog")


def test_rules_of_the_user_fire_too() -> None:
    folder = "/var/lib/prometheus/node-exporter"
    ALTERNATIVE.on(f"echo 'trainyard_test 3' >{folder}/ours.prom")
    try:
        (alert,) = wait(lambda: ALTERNATIVE.alerts("Ours"))
    finally:
        ALTERNATIVE.on(f"rm {folder}/ours.prom")
    assert alert["annotations"]["summary"] == "alternative has 3"
    assert alert["generatorURL"].startswith("https://monitor.example.org/prometheus/")
    assert (alert["labels"]["site"], alert["labels"]["number"]) == ("here", "7")


def test_alerts_go_to_the_receivers_that_were_set() -> None:
    (alert,) = wait(lambda: ALTERNATIVE.alerts("NodeDown"))
    assert [receiver["name"] for receiver in alert["receivers"]] == ["chat"]
    (alert,) = wait(lambda: DEFAULT.alerts("NodeDown"))
    assert [receiver["name"] for receiver in alert["receivers"]] == ["web"]


def test_only_the_address_that_was_asked_for_listens() -> None:
    with pytest.raises(urllib.error.URLError):
        ALTERNATIVE.ask("/api/v1/query?query=up", 9090)
    listening = ALTERNATIVE.on(
        "ss --no-header --listening --tcp --numeric 'sport = :9190 or sport = :9193 or sport = :9094'"
    )
    addresses = {line.split()[3] for line in listening.splitlines()}
    address = SIMULATOR.addresses()[ALTERNATIVE.host]
    assert addresses == {f"{address}:9190", f"{address}:9193"}


@both
def test_nobody_else_reads_the_secrets(server: Server) -> None:
    assert server.on(f"stat --format=%a:%U:%G {FILES}/alertmanager.yml") == "640:root:prometheus"
    server.on(f"setpriv --reuid=nobody --clear-groups cat {FILES}/alertmanager.yml", 1)


@both
def test_a_further_run_restarts_nothing(server: Server) -> None:
    before = server.processes()
    said = play(server)
    assert said.startswith("rc=0"), said
    assert "changed=0" in said
    assert server.processes() == before


def test_a_new_target_needs_neither_restart_nor_reload() -> None:
    before = DEFAULT.processes()
    reloaded = DEFAULT.query("prometheus_config_last_reload_success_timestamp_seconds")[0]["value"][1]
    targets = [
        {"job": "node", "instance": "prometheus-default", "address": "prometheus-default:9100"},
        {"job": "dcgm", "instance": "prometheus-default", "address": "prometheus-default:9400"},
        {"job": "another", "instance": "new", "address": "prometheus-alternative:9400"},
    ]
    said = play(DEFAULT, with_variables(prometheus_targets=targets))
    assert said.startswith("rc=0"), said
    assert "changed=1 " in said
    assert wait(
        lambda: [each for each in DEFAULT.query('up{job="another", instance="new"}') if each["value"][1] == "1"]
    )
    wait(lambda: not DEFAULT.query('up{instance="switched-off"}'))
    assert not DEFAULT.query('up{instance="switched-off"}')
    assert DEFAULT.processes() == before
    assert DEFAULT.query("prometheus_config_last_reload_success_timestamp_seconds")[0]["value"][1] == reloaded


def test_another_threshold_is_reloaded_and_another_argument_restarts_without_losing_data() -> None:
    oldest = ALTERNATIVE.query("min_over_time(timestamp(up{job='prometheus'})[1h:1s])")[0]["value"][1]
    before = ALTERNATIVE.processes()
    said = play(ALTERNATIVE, with_variables(prometheus_gpu_hot_warning_celsius=61))
    assert said.startswith("rc=0"), said
    assert "Reload Prometheus" in said
    assert "Restart" not in re.sub("TASK.*?\\*+", "", said)
    assert ALTERNATIVE.processes() == before
    rules = ALTERNATIVE.ask("/api/v1/rules")["data"]["groups"]
    assert any(">= 61" in rule["query"] for group in rules for rule in group["rules"])
    said = play(ALTERNATIVE, with_variables(prometheus_retention_time="8d"))
    assert said.startswith("rc=0"), said
    assert "Restart Prometheus" in said
    assert ALTERNATIVE.processes() != before
    assert ALTERNATIVE.ask("/api/v1/status/flags")["data"]["storage.tsdb.retention.time"] in ("8d", "1w1d")
    assert ALTERNATIVE.query("min_over_time(timestamp(up{job='prometheus'})[1h:1s])")[0]["value"][1] == oldest


@both
def test_a_replaced_program_is_started_anew(server: Server) -> None:
    """The run takes back, too, what the two tests before it changed."""
    before = server.processes()
    server.on("cd /usr/bin && cp --archive prometheus prometheus.new && mv prometheus.new prometheus")
    said = play(server)
    assert said.startswith("rc=0"), said
    old, new = before.split("\n\n"), server.processes().split("\n\n")
    assert old[0] != new[0]
    assert old[1] == new[1]


BROKEN_RULES = [{"name": "broken", "rules": [{"alert": "Broken", "expr": "sum(("}]}]
BROKEN_RECEIVERS = [{"name": "web", "webhook_configs": [{"url": "ftp://a-secret-place/x"}]}]


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"prometheus_extra_rules": BROKEN_RULES},
            "prometheus_extra_rules isn't what Prometheus takes as rule groups: ",
        ),
        ({"prometheus_alertmanager_receivers": BROKEN_RECEIVERS}, "isn't what Alertmanager takes: "),
        (
            {"prometheus_storage_directory": "/srv/elsewhere"},
            "but Prometheus keeps its data in /var/lib/prometheus/metrics2",
        ),
    ],
    ids=["rules", "receivers", "folder for data"],
)
def test_bad_input_is_one_sentence_and_the_services_go_on(variables: dict[str, Any], sentence: str) -> None:
    before = DEFAULT.processes()
    files = f"cat {FILES}/*.yml /etc/default/trainyard-prometheus* | sha256sum"
    content = DEFAULT.on(files)
    said = play(DEFAULT, with_variables(**variables))
    assert said.startswith("rc=2"), said
    assert sentence in re.sub(r"\\?'+", "'", said)
    assert "a-secret" not in said
    assert DEFAULT.on(files) == content
    assert DEFAULT.processes() == before
    assert DEFAULT.query("up")


def test_no_secret_is_shown() -> None:
    said = play(
        ALTERNATIVE, with_variables(prometheus_alertmanager_global={"smtp_auth_password": "a-secret-thing"}), "-vvv"
    )
    assert said.startswith("rc=0"), said
    shown = re.sub(r"prometheus_alertmanager_global.{0,60}a-secret-thing", "", said)  # the command line that we gave
    assert "a-secret" not in shown
    assert "a-secret-thing" in ALTERNATIVE.on(f"cat {FILES}/alertmanager.yml")
    assert play(ALTERNATIVE).startswith("rc=0")


def test_bad_input_is_refused_before_anything_changes() -> None:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")}
    words = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-i",
        str(INVENTORY),
        str(SCENARIO / "refusals.yml"),
    ]
    result = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout
