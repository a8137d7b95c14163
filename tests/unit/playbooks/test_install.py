"""The collection works from its tarball: no checkout in the path, names and files resolve, bad input stops it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.contract.places import ROOT
from tests.unit.playbooks.runs import NODE, inventory, run

GOOD = inventory(["ctl"], {"gpu1": NODE, "gpu2": NODE})


def galaxy(*words: str) -> None:
    command = [str(Path(sys.executable).with_name("ansible-galaxy")), "collection", *words]
    result = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collections folder that holds the installed tarball."""
    folder = tmp_path_factory.mktemp("installed")
    galaxy("build", str(ROOT), "--output-path", str(folder))
    (tarball,) = folder.glob("trainyard-cluster-*.tar.gz")
    collections = folder / "collections"
    # The collections that it depends on come with the ansible package here; a user's ansible-galaxy fetches them.
    galaxy("install", str(tarball), "--collections-path", str(collections), "--no-deps", "--offline")
    return collections


def test_the_tarball_holds_what_a_user_needs_and_no_more(installed: Path) -> None:
    root = installed / "ansible_collections/trainyard/cluster"
    names = {path.name for path in root.iterdir()}
    assert {"playbooks", "plugins", "roles", "docs", "inventories", "meta"} <= names
    assert not names & {"tests", "molecule", ".cache", ".venv", ".venv-2.21", ".ci", ".config"}
    assert (root / "playbooks/vars/wiring.yml").is_file()


@pytest.mark.parametrize("playbook", sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml")))
def test_each_playbook_resolves_by_its_name(installed: Path, tmp_path: Path, playbook: str) -> None:
    result = run(tmp_path, GOOD, f"trainyard.cluster.{playbook}", "--list-tasks", collections=installed, cwd=tmp_path)
    assert result.status == 0, result.output
    assert "Stop if the inventory has faults" in result.output
    assert str(installed) in result.output
    assert str(ROOT) not in result.output


def test_bad_input_stops_it(installed: Path, tmp_path: Path) -> None:
    hosts = inventory(["ctl"], {"gpu1": {**NODE, "node_gpu_count": 0, "training_env_source": "conda"}})
    result = run(tmp_path, hosts, "trainyard.cluster.site", collections=installed, cwd=tmp_path)
    assert result.status == 2, result.output
    assert "The inventory has 2 faults; no machine was contacted." in result.output
    assert "node_gpu_count is 0 for gpu1" in result.output
    assert "value of training_env_source must be one of" in result.output
    assert result.contacts == []


def test_a_playbook_of_the_users_own_may_import_it(installed: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.yml"
    own.write_text(yaml.safe_dump([{"name": "All", "ansible.builtin.import_playbook": "trainyard.cluster.site"}]))
    result = run(tmp_path, GOOD, str(own), collections=installed, cwd=tmp_path)
    assert result.status == 4, result.output  # on to machines, which can't be reached
    assert {"ctl", "gpu1", "gpu2"} <= {word for contact in result.contacts for word in contact.split()}


@pytest.mark.parametrize("folder", ["example", "sim"])
def test_the_inventories_beside_it_have_no_fault(installed: Path, tmp_path: Path, folder: str) -> None:
    source = installed / "ansible_collections/trainyard/cluster/inventories" / folder
    result = run(tmp_path, source, "trainyard.cluster.site", collections=installed, cwd=tmp_path)
    assert result.status == 4, result.output
    assert "The inventory has" not in result.output
    assert result.contacts
