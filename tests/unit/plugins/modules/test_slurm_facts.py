# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_facts import SlurmFacts
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_problems import SlurmProblem
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_records import (
    Allocation,
    Controller,
    Job,
    Node,
    Partition,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import Gres
from ansible_collections.trainyard.cluster.plugins.modules import slurm_facts

from tests.unit import modules
from tests.unit.captures import FIXTURES

COMMAND = """#!/bin/sh
[ -z "$SQUEUE_STATES$SLURM_TIME_FORMAT" ] || exit 9
case "$0 $*" in
*--version) echo slurm-wlm 24.11.5 ;;
*"scontrol ping") echo "Slurmctld(primary) at ctl is ${{PING:-UP}}" ;;
*"show config") cat {fixtures}/config-24.11.txt ;;
*"show nodes --json") cat {fixtures}/nodes-24.11.json ;;
*"show partition") cat {fixtures}/partitions-24.11.txt ;;
*"squeue --all --local --json") cat {fixtures}/jobs-24.11.json ;;
*) exit 1 ;;
esac
"""


def run_module(folder: Path, environment: dict[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    for name in ("scontrol", "squeue"):
        (folder / name).write_text(COMMAND.format(fixtures=FIXTURES / "slurm"))
        (folder / name).chmod(0o755)
    return modules.run_module(slurm_facts, arguments, {"PATH": f"{folder}:/usr/bin:/bin", **(environment or {})})


def test_returns_facts(tmp_path: Path) -> None:
    result = run_module(tmp_path, {"SQUEUE_STATES": "PENDING", "SLURM_TIME_FORMAT": "relative"}, required=True)
    slurm = result["ansible_facts"]["slurm"]
    assert (slurm["cluster_name"], slurm["version"], slurm["source"]) == ("first", "24.11.5", "json")
    assert [(node["name"], node["gpus"], node["gpus_used"]) for node in slurm["nodes"]] == [
        ("gpu1", 8, 2),
        ("switched-off", 0, 0),
    ]
    assert slurm["jobs_by_node"] == {"gpu1": [1]}


def test_asks_only_for_what_is_wanted(tmp_path: Path) -> None:
    slurm = run_module(tmp_path, gather=["partitions"])["ansible_facts"]["slurm"]
    assert [one["name"] for one in slurm["partitions"]] == ["train", "all"]
    assert (slurm["nodes"], slurm["jobs"], slurm["source"]) == (None, None, None)


def test_fails_without_a_controller_only_if_it_is_required(tmp_path: Path) -> None:
    slurm = run_module(tmp_path, {"PING": "DOWN"})["ansible_facts"]["slurm"]
    assert [problem["code"] for problem in slurm["problems"]] == ["controller_down"]
    result = run_module(tmp_path, {"PING": "DOWN"}, required=True)
    assert result["failed"]
    assert "Start slurmctld on ctl" in result["msg"]
    assert "ansible_facts" not in result


def test_refuses_a_time_limit_of_nothing(tmp_path: Path) -> None:
    assert "timeout: 0" in run_module(tmp_path, timeout=0)["msg"]


@pytest.mark.parametrize(
    ("path", "dataclass"),
    [
        ([], SlurmFacts),
        (["controllers"], Controller),
        (["nodes"], Node),
        (["nodes", "gres"], Gres),
        (["partitions"], Partition),
        (["jobs"], Job),
        (["jobs", "allocations"], Allocation),
        (["jobs", "allocations", "gres"], Gres),
        (["problems"], SlurmProblem),
    ],
)
def test_documents_what_it_returns(path: list[str], dataclass: Any) -> None:
    contains = yaml.safe_load(slurm_facts.RETURN)["ansible_facts"]["contains"]["slurm"]["contains"]
    for name in path:
        contains = contains[name]["contains"]
    assert sorted(contains) == sorted(field.name for field in fields(dataclass))
