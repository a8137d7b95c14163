"""A wrong inventory stops each playbook before it contacts a machine, and tells all that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.playbooks.runs import NODE, inventory, run

GOOD = inventory(["ctl"], {"gpu1": NODE, "gpu2": NODE})


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in NODE.items() if key != name}


BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no controller": (inventory([], {"gpu1": NODE}), ["Group slurm_controller has no host"]),
    "none of the groups": (
        {"all": {"hosts": {"web1": {}}}},
        ["Group slurm_controller has no host", "Group gpu_nodes has no host", "cluster_name isn't set"],
    ),
    "no GPU count": (
        inventory(["ctl"], {"gpu1": NODE, "gpu2": without("node_gpu_count")}),
        ["node_gpu_count isn't set for gpu2"],
    ),
    "one address twice": (
        inventory(["ctl"], {name: {**NODE, "ansible_host": "192.0.2.1"} for name in ("gpu1", "gpu2")}),
        ["ansible_host is 192.0.2.1 for gpu1 and gpu2"],
    ),
    "a partition with an unknown node": (
        inventory(["ctl"], {"gpu1": NODE}, cluster_partitions=[{"name": "train", "nodes": ["gpu3"], "default": True}]),
        ["Partition train in cluster_partitions names gpu3"],
    ),
    "a role's variable of the wrong kind": (
        inventory(["ctl"], {"gpu1": NODE, "gpu2": {**NODE, "training_env_source": "conda"}}, slurm_uid="many"),
        ["gpu2: value of training_env_source must be one of", "argument 'slurm_uid' is of type str"],
    ),
    "a declaration and a role's variable": (
        inventory(
            ["ctl"], {"gpu1": {**without("node_gpu_count"), "training_env_source": "conda"}}, cluster_name="No Name"
        ),
        [
            "node_gpu_count isn't set for gpu1",
            "cluster_name is 'No Name'",
            "value of training_env_source must be one of",
        ],
    ),
    "no host": ({"all": {}}, ["The inventory has no host: write"]),
    "connections that can't be computed": (
        inventory(
            ["ctl"],
            {"gpu1": {**NODE, "ansible_host": "{{ nobody }}", "ansible_become_password": "{{ secret }}"}},
            ansible_port="{{ port }}",
        ),
        [
            "ansible_host of gpu1 can't be computed: 'nobody' is undefined",
            "ansible_become_password of gpu1 can't be computed",
            "ansible_port of ctl and gpu1 can't be computed",
        ],
    ),
    "keys that YAML makes no text of": (
        inventory(
            ["ctl"],
            {"gpu1": NODE},
            cluster_partitions=[{"name": "train", "nodes": ["gpu1"], "default": True, False: "y"}],
            cluster_users_accounts=[{"name": "a", "uid": 2000, 5: "x"}],
        ),
        ["Partition train in cluster_partitions has False", "ctl and gpu1: cluster_users_accounts.5"],
    ),
    "an unknown variable inside another": (
        inventory(["ctl"], {"gpu1": {**NODE, "node_gpu_count": "{{ gpus }}", "slurm_uid": "{{ nobody }}"}}),
        ["node_gpu_count of gpu1 can't be computed: 'gpus' is undefined", "slurm_uid of gpu1 can't be computed"],
    ),
}


@pytest.mark.parametrize(("hosts", "expected"), BAD.values(), ids=BAD.keys())
def test_all_faults_are_told_before_any_contact(tmp_path: Path, hosts: dict[str, Any], expected: list[str]) -> None:
    result = run(tmp_path, hosts, "playbooks/site.yml")
    assert result.status == 2, result.output
    for words in expected:
        assert f"- {words}" in result.output or f": {words}" in result.output, result.output
    count = f"The inventory has {len(expected)} fault{'s' if len(expected) > 1 else ''}; no machine was contacted."
    assert count in result.output
    assert result.contacts == []


@pytest.mark.parametrize(
    "words",
    [
        *([f"playbooks/{playbook}.yml"] for playbook in ("validate", "gpu_nodes", "slurm", "backup", "verify")),
        ["playbooks/site.yml", "--limit", "gpu1"],
        ["playbooks/site.yml", "--tags", "slurm"],
        ["playbooks/site.yml", "--check"],
    ],
    ids=" ".join,
)
def test_each_way_to_run_stops_by_itself(tmp_path: Path, words: list[str]) -> None:
    hosts, (expected,) = BAD["no GPU count"]
    result = run(tmp_path, hosts, *words)
    assert result.status == 2, result.output
    assert expected in result.output
    assert result.contacts == []


def test_a_good_inventory_goes_on_to_the_machines(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD, "playbooks/site.yml", "-e", "ansible_ssh_retries=0")
    assert result.status == 4, result.output  # Ansible's status for machines that can't be reached
    assert "The inventory has" not in result.output
    for host in ("ctl", "gpu1", "gpu2"):
        assert any(f" {host} " in f" {contact} " for contact in result.contacts), result.contacts


def test_a_limited_run_contacts_no_other_machine(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD, "playbooks/site.yml", "--limit", "gpu2")
    assert result.status == 4, result.output
    assert result.contacts
    assert all(" gpu2 " in f" {contact} " for contact in result.contacts), result.contacts
