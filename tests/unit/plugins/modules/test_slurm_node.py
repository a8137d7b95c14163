# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_node import NodeResult
from ansible_collections.trainyard.cluster.plugins.modules import slurm_node

from tests.unit import modules

# A controller with one idle node, whose state is a file.
COMMAND = """#!/bin/sh
case "$0 $*" in
*"show hostnames n1") echo n1 ;;
*"show node n1") printf 'NodeName=n1\\n   State=%s\\n' "$(cat {state})" ;;
*"update nodename=n1 state=drain reason=trainyard: driver")
    printf 'IDLE+DRAIN\\n   Reason=trainyard: driver [root@2026-11-30T12:00:00]' >{state} ;;
*"update nodename=n1 state=resume") echo IDLE >{state} ;;
*squeue*) ;;
*) echo "error: $*" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "state").write_text("IDLE")
    for name in ("scontrol", "squeue"):
        (tmp_path / name).write_text(COMMAND.format(state=tmp_path / "state"))
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run_module(folder: Path, **arguments: Any) -> dict[str, Any]:
    return modules.run_module(slurm_node, arguments, {"PATH": f"{folder}:/usr/bin:/bin"})


def test_drains_and_resumes_once(folder: Path) -> None:
    wanted: dict[str, Any] = {"nodes": "n1", "state": "drained", "reason": "driver"}
    checked = run_module(folder, _ansible_check_mode=True, **wanted)
    assert (checked["changed"], checked["nodes"][0]["flags"]) == (True, [])
    first = run_module(folder, **wanted)
    assert (first["changed"], first["diff"]) == (True, checked["diff"])
    assert first["diff"] == {"before": "n1: in service\n", "after": "n1: drained (trainyard: driver)\n"}
    assert (first["nodes"][0]["flags"], first["nodes"][0]["held_by_trainyard"]) == (["DRAIN"], True)
    assert not run_module(folder, **wanted)["changed"]
    other = run_module(folder, nodes="n1", state="resumed", reason="disk")
    assert (other["changed"], other["nodes"][0]["left_alone"], len(other["warnings"])) == (False, True, 1)
    assert run_module(folder, nodes="n1", state="resumed")["changed"]
    assert not run_module(folder, nodes="n1", state="resumed")["changed"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": "n1", "state": "drained"}, "reason is missing: state drained needs one"),
        ({"nodes": "n2", "state": "resumed"}, "nodes holds 'n2'|failed"),
        ({"nodes": "n1", "state": "asleep"}, "value of state must be one of"),
    ],
)
def test_says_what_is_wrong(folder: Path, arguments: dict[str, Any], words: str) -> None:
    result = run_module(folder, **arguments)
    assert result["failed"]
    assert any(word in result["msg"] for word in words.split("|"))
    assert "Traceback" not in result["msg"]


def test_a_failure_after_a_change_says_so(folder: Path) -> None:
    (folder / "squeue").write_text("#!/bin/sh\necho '7|ann|RUNNING|n1'\n")
    wanted: dict[str, Any] = {"nodes": "n1", "state": "drained", "reason": "driver", "timeout": 0}
    first, second = run_module(folder, **wanted), run_module(folder, **wanted)
    assert "jobs still run: 7 of ann on n1" in first["msg"]
    assert [(one["failed"], one["changed"]) for one in (first, second)] == [(True, True), (True, False)]


def test_documents_what_it_returns() -> None:
    contains = yaml.safe_load(slurm_node.RETURN)["nodes"]["contains"]
    assert sorted(contains) == sorted(field.name for field in fields(NodeResult))
