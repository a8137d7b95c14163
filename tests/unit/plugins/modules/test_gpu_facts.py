# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import Driver
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_facts import GpuFacts
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_problems import Problem
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import (
    Device,
    GpuProcess,
    MigInstance,
    NvlinkLink,
)
from ansible_collections.trainyard.cluster.plugins.modules import gpu_facts

from tests.unit import modules
from tests.unit.captures import fixture


def run_module(**arguments: Any) -> dict[str, Any]:
    return modules.run_module(gpu_facts, arguments)


def fake_nvidia_smi(folder: Path, script: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def healthy(folder: Path) -> str:
    (folder / "report.xml").write_text(fixture("gpu/h100-x2.xml"))
    (folder / "topo.txt").write_text(fixture("gpu/h100-x2.topo.txt"))
    return fake_nvidia_smi(
        folder, f'case "$1" in -q) cat {folder}/report.xml;; topo) cat {folder}/topo.txt;; *) exit 3;; esac'
    )


def test_returns_facts(tmp_path: Path) -> None:
    result = run_module(nvidia_smi=healthy(tmp_path), root=str(tmp_path), expected={"count": 2, "slurm_type": "h100"})
    gpu = result["ansible_facts"]["gpu"]
    assert (gpu["count"], gpu["slurm_gres"], gpu["driver"]["version"]) == (2, "gpu:h100:2", "550.163.01")
    assert gpu["devices"][1]["serial"] is None
    assert gpu["problems"] == []


def test_succeeds_without_nvidia_smi(tmp_path: Path) -> None:
    result = run_module(nvidia_smi=str(tmp_path / "none"), root=str(tmp_path))
    assert "failed" not in result
    assert result["ansible_facts"]["gpu"]["count"] == 0
    assert result["ansible_facts"]["gpu"]["problems"][0]["code"] == "no_gpu"


def test_fails_without_a_gpu_where_one_is_required(tmp_path: Path) -> None:
    result = run_module(nvidia_smi=str(tmp_path / "none"), root=str(tmp_path), required=True)
    assert result["failed"] is True
    assert "none answers" in result["msg"]
    assert "can't be run" in result["msg"]


@pytest.mark.parametrize("expected", [{"model": "NVIDIA H100 80GB HBM3"}, {"slurm_type": "h100"}, {"memory_mib": 1}])
def test_fails_without_a_gpu_of_a_declared_kind(tmp_path: Path, expected: dict[str, Any]) -> None:
    result = run_module(nvidia_smi=str(tmp_path / "none"), root=str(tmp_path), expected=expected)
    assert result["failed"] is True
    assert result["differences"] == [
        "count: GPUs of a kind are declared, but none answers; see problems for what ails them."
    ]
    assert "can't be run" in result["msg"]


def test_expects_no_gpu(tmp_path: Path) -> None:
    result = run_module(nvidia_smi=str(tmp_path / "none"), root=str(tmp_path), expected={"count": 0, "model": "any"})
    assert "failed" not in result


def test_fails_with_every_difference(tmp_path: Path) -> None:
    expected = {"count": 8, "slurm_type": "a100", "memory_mib": 40960}
    result = run_module(nvidia_smi=healthy(tmp_path), root=str(tmp_path), expected=expected)
    assert result["failed"] is True
    assert len(result["differences"]) == 3
    assert all(sentence in result["msg"] for sentence in result["differences"])
    assert "nvidia-smi" not in result["msg"]
    assert "ansible_facts" not in result, "hundreds of lines around the sentence"


def test_survives_a_command_that_hangs(tmp_path: Path) -> None:
    result = run_module(nvidia_smi=fake_nvidia_smi(tmp_path, "sleep 30"), root=str(tmp_path), timeout=1)
    assert "failed" not in result
    assert [problem["code"] for problem in result["ansible_facts"]["gpu"]["problems"]] == ["nvidia_smi_hangs"]


def test_survives_junk(tmp_path: Path) -> None:
    result = run_module(nvidia_smi=fake_nvidia_smi(tmp_path, "head -c 3000 /dev/urandom"), root=str(tmp_path))
    assert "failed" not in result
    assert result["ansible_facts"]["gpu"]["problems"][0]["code"] == "nvidia_smi_output_unreadable"


def test_refuses_a_time_limit_of_nothing(tmp_path: Path) -> None:
    assert "timeout: 0" in run_module(root=str(tmp_path), timeout=0)["msg"]


def names(dataclass: Any) -> list[str]:
    return [field.name for field in fields(dataclass)]


@pytest.mark.parametrize(
    ("path", "dataclass"),
    [
        ([], GpuFacts),
        (["driver"], Driver),
        (["devices"], Device),
        (["devices", "mig_instances"], MigInstance),
        (["devices", "nvlink_links"], NvlinkLink),
        (["devices", "processes"], GpuProcess),
        (["problems"], Problem),
    ],
)
def test_documents_what_it_returns(path: list[str], dataclass: Any) -> None:
    contains = yaml.safe_load(gpu_facts.RETURN)["ansible_facts"]["contains"]["gpu"]["contains"]
    for name in path:
        contains = contains[name]["contains"]
    assert sorted(contains) == sorted(names(dataclass))
