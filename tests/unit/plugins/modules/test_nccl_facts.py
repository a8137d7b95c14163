# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils._hca import Gid, HcaPort
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_facts import Config, Gdr, GpuDistance, NcclFacts
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_interfaces import Interface
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_libraries import Library, NetPlugin
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_problem import NcclProblem
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_recommended import Recommendation
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_settings import Setting
from ansible_collections.trainyard.cluster.plugins.modules import nccl_facts

from tests.unit import modules
from tests.unit.hca_tree import hca


def run_module(**arguments: Any) -> dict[str, Any]:
    return modules.run_module(nccl_facts, {"home": "/none/such", **arguments})


def test_returns_facts(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0")
    (tmp_path / "venv/lib").mkdir(parents=True)
    (tmp_path / "venv/lib/libnccl.so.2").write_bytes(b"NCCL version 2.26.2+cuda12.2")
    (tmp_path / "env").write_text("NCCL_DEBUG=WARN\n")
    result = run_module(
        root=str(tmp_path),
        search_paths=[str(tmp_path / "venv")],
        environment={"NCCL_IB_TC": 106},
        environment_files=[str(tmp_path / "env")],
    )
    nccl = result["ansible_facts"]["nccl"]
    assert [library["version"] for library in nccl["libraries"]] == ["2.26.2"]
    assert [(port["name"], port["state"]) for port in nccl["hcas"]] == [("mlx5_0", "ACTIVE")]
    assert [(one["name"], one["value"]) for one in nccl["config"]["settings"]] == [
        ("NCCL_IB_TC", "106"),
        ("NCCL_DEBUG", "WARN"),
    ]
    assert (nccl["recommended"], nccl["problems"]) == ([], [])


def test_succeeds_on_a_machine_that_has_nothing(tmp_path: Path) -> None:
    nccl = run_module(root=str(tmp_path))["ansible_facts"]["nccl"]
    assert (nccl["libraries"], nccl["hcas"], nccl["interfaces"]) == ([], [], [])
    assert [problem["code"] for problem in nccl["problems"]] == ["nccl_missing"]


def test_looks_at_this_machine() -> None:
    nccl = run_module()["ansible_facts"]["nccl"]
    assert "lo" in [one["name"] for one in nccl["interfaces"]]


def test_refuses_a_time_limit_of_nothing(tmp_path: Path) -> None:
    assert "timeout: 0" in run_module(root=str(tmp_path), timeout=0)["msg"]


@pytest.mark.parametrize(
    ("path", "dataclass"),
    [
        ([], NcclFacts),
        (["libraries"], Library),
        (["net_plugins"], NetPlugin),
        (["interfaces"], Interface),
        (["hcas"], HcaPort),
        (["hcas", "gids"], Gid),
        (["gdr"], Gdr),
        (["gdr", "gpus"], GpuDistance),
        (["config"], Config),
        (["config", "settings"], Setting),
        (["recommended"], Recommendation),
        (["problems"], NcclProblem),
    ],
)
def test_documents_what_it_returns(path: list[str], dataclass: Any) -> None:
    contains = yaml.safe_load(nccl_facts.RETURN)["ansible_facts"]["contains"]["nccl"]["contains"]
    for name in path:
        contains = contains[name]["contains"]
    assert sorted(contains) == sorted(field.name for field in fields(dataclass))
