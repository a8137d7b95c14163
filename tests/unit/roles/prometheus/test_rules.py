"""The rules of the role prometheus, rendered by Ansible and tested by the real promtool (tests/rules)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.places import ROOT
from tests.rules.promtool import promtool

ROLE = ROOT / "roles/prometheus"
TESTS = ROOT / "tests/rules"
WITH_DEFAULTS = ["machines.yml", "gpus.yml", "backup.yml"]
CHANGED_VALUES = {
    "prometheus_evaluation_interval": "5s",
    "prometheus_instance": "monitor",
    "prometheus_node_down_for": "1m",
    "prometheus_exporter_down_for": "30s",
    "prometheus_gpu_hot_warning_celsius": 60,
    "prometheus_gpu_hot_critical_celsius": 70,
    "prometheus_gpu_hot_for": "0s",
    "prometheus_gpu_xid_hold": "30s",
    "prometheus_backup_stale_seconds": 30,
    "prometheus_backup_failing_for": "20s",
    "prometheus_watchdog": True,
}


def rendered(folder: Path, **values: Any) -> Path:
    """The rules as the role writes them, in a folder with the tests beside them."""
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")],
        "tasks": [
            {
                "ansible.builtin.template": {
                    "src": str(ROLE / "templates/alerts.yml.j2"),
                    "dest": str(folder / "alerts.yml"),
                    "mode": "0644",
                }
            }
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-c", "local"]
    variables = json.dumps({"ansible_python_interpreter": sys.executable, **values})
    result = subprocess.run(
        [*command, "-e", variables, str(folder / "play.yml")],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    for path in TESTS.glob("*.yml"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(name="with_defaults", scope="module")
def with_defaults_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("defaults"))


@pytest.fixture(name="changed", scope="module")
def changed_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("changed"), **CHANGED_VALUES)


def run(folder: Path, *words: str) -> str:
    result = subprocess.run([str(promtool()), *words], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def alerts_of(folder: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load((folder / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def test_promtool_accepts_the_rules(with_defaults: Path, changed: Path) -> None:
    for folder in (with_defaults, changed):
        assert "SUCCESS" in run(folder, "check", "rules", "--lint=all", "--lint-fatal", "alerts.yml")


@pytest.mark.parametrize("name", WITH_DEFAULTS)
def test_alerts_fire_and_clear(with_defaults: Path, name: str) -> None:
    assert "SUCCESS" in run(with_defaults, "test", "rules", name)


def test_thresholds_are_those_of_the_variables(changed: Path) -> None:
    assert "SUCCESS" in run(changed, "test", "rules", "changed.yml")


def test_a_test_that_expects_something_else_fails(with_defaults: Path) -> None:
    """That promtool tests these rules at all."""
    wrong = with_defaults / "wrong.yml"
    wrong.write_text((with_defaults / "machines.yml").read_text().replace("gpu2 is up", "gpu2 is down"))
    result = subprocess.run([str(promtool()), "test", "rules", str(wrong)], capture_output=True, check=False)
    assert result.returncode != 0


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(changed: Path) -> None:
    fires: set[tuple[str, str]] = set()
    silent: set[str] = set()
    for name in [*WITH_DEFAULTS, "changed.yml"]:
        for test in yaml.safe_load((TESTS / name).read_text())["tests"]:
            for case in test.get("alert_rule_test", []):
                fires |= {(case["alertname"], alert["exp_labels"]["severity"]) for alert in case["exp_alerts"]}
                if not case["exp_alerts"]:
                    silent.add(case["alertname"])
    for rule in alerts_of(changed):
        if rule["alert"] == "GpuXid":  # whose severity is a template
            assert {("GpuXid", severity) for severity in ("critical", "warning")} <= fires
        else:
            assert (rule["alert"], rule["labels"]["severity"]) in fires
        assert rule["alert"] in silent or rule["alert"] == "Watchdog"  # which never is


def test_every_alert_says_what_is_the_matter_and_what_to_do(changed: Path) -> None:
    for rule in alerts_of(changed):
        assert rule["labels"].get("severity"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "action"}, rule["alert"]
        assert "$labels.instance" in rule["annotations"]["summary"] or rule["alert"] == "Watchdog"


def test_a_user_reads_of_every_alert(changed: Path) -> None:
    text = (ROLE / "README.md").read_text()
    for rule in alerts_of(changed):
        assert f"| {rule['alert']} | " in text
