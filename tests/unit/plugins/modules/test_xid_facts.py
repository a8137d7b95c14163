# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils._xid import XidEvent
from ansible_collections.trainyard.cluster.plugins.module_utils._xid_catalogue import ACTIONS, XIDS
from ansible_collections.trainyard.cluster.plugins.module_utils._xid_facts import Group, Verdict, XidFacts
from ansible_collections.trainyard.cluster.plugins.modules import xid_facts

from tests.unit import modules


def run_module(**arguments: Any) -> dict[str, Any]:
    return modules.run_module(xid_facts, arguments)


def test_returns_facts(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("[12.5] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.\n")
    result = run_module(source="file", path=str(tmp_path / "log"), root=str(tmp_path))
    xid = result["ansible_facts"]["xid"]
    assert [(event["kind"], event["code"], event["action"]) for event in xid["events"]] == [("xid", 79, "reboot")]
    assert [(one["pci_bus_id"], one["action"]) for one in xid["gpus"]] == [("0000:18:00.0", "reboot")]
    assert f"Xids 1 to {max(XIDS)}," in xid["catalogue"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": "file"}, "path"),
        ({"source": "file", "path": "/none/such"}, "/none/such can't be read"),
        ({"source": "file", "path": "/dev/null", "since": "soon"}, "since: 'soon' is no time"),
        ({"timeout": 0}, "timeout: 0"),
        ({"limit": -1}, "limit: -1"),
    ],
)
def test_refuses_in_one_sentence(arguments: dict[str, Any], words: str) -> None:
    result = run_module(**arguments)
    assert result["failed"] is True
    assert words in result["msg"]


@pytest.mark.parametrize(
    ("path", "dataclass"),
    [
        ([], XidFacts),
        (["events"], XidEvent),
        (["groups"], Group),
        (["gpus"], Verdict),
        (["switches"], Verdict),
    ],
)
def test_documents_what_it_returns(path: list[str], dataclass: Any) -> None:
    contains = yaml.safe_load(xid_facts.RETURN)["ansible_facts"]["contains"]["xid"]["contains"]
    for name in path:
        contains = contains[name]["contains"]
    assert sorted(contains) == sorted(field.name for field in fields(dataclass))


def test_documents_every_action() -> None:
    described = "".join(
        yaml.safe_load(xid_facts.RETURN)["ansible_facts"]["contains"]["xid"]["contains"]["events"]["contains"][
            "action"
        ]["description"]
    )
    for action in ACTIONS:
        assert f"V({action})" in described
