"""What the playbooks promise each other."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.filter.role_options import role_options
from ansible_collections.trainyard.cluster.plugins.module_utils import _inventory

from tests.contract.places import ROOT, load

WIRING = load(ROOT / "playbooks/vars/wiring.yml")
PLAYS = {
    f"{path.stem}: {play['name']}": play
    for path in sorted((ROOT / "playbooks/plays").glob("*.yml"))
    for play in load(path)
}


def tasks_of(part: dict[str, Any]) -> list[dict[str, Any]]:
    tasks = [task for key in ("pre_tasks", "tasks", "block", "rescue", "always") for task in part.get(key, [])]
    return [*tasks, *(inner for task in tasks for inner in tasks_of(task))]


def roles_of(play: dict[str, Any]) -> set[str]:
    imported = [
        task["ansible.builtin.import_role"]["name"] for task in tasks_of(play) if "ansible.builtin.import_role" in task
    ]
    return {name.removeprefix("trainyard.cluster.") for name in [*play.get("roles", []), *imported]} - {"common"}


def test_site_is_a_table_of_contents() -> None:
    for entry in load(ROOT / "playbooks/site.yml"):
        assert set(entry) <= {"name", "ansible.builtin.import_playbook", "when"}


@pytest.mark.parametrize("name", PLAYS)
def test_each_play_is_wired(name: str) -> None:
    assert PLAYS[name]["vars_files"] == ["../vars/wiring.yml"]


def test_the_roles_that_are_checked_beforehand_are_those_that_run() -> None:
    checked = {role for roles in WIRING["__site_roles"].values() for role in roles}
    assert checked == {role for play in PLAYS.values() for role in roles_of(play)}


def test_what_is_wired_is_listed_and_is_an_option_of_a_role() -> None:
    roles = sorted({role for names in WIRING["__site_roles"].values() for role in names})
    wired = [name for name in WIRING if not name.startswith("__") and name != "cluster_shared_directory"]
    assert sorted(wired) == sorted(WIRING["__site_wired"])
    assert set(wired) <= set(role_options(roles))


def test_scrape_targets_have_the_roles_own_ports() -> None:
    options = role_options(["node_exporter", "dcgm_exporter"])
    assert options["node_exporter_port"]["default"] == _inventory.NODE_EXPORTER_PORT
    assert options["dcgm_exporter_port"]["default"] == _inventory.DCGM_EXPORTER_PORT


def test_null_is_unset_where_it_is_wired() -> None:
    """A truth value can't say so: false would count as unset too, and the inventory's check refuses null there."""
    options = role_options(sorted({role for names in WIRING["__site_roles"].values() for role in names}))
    for name, text in WIRING.items():
        if not name.startswith("__") and options.get(name, {}).get("type") != "bool":
            assert text.endswith(", true) }}"), name


@pytest.mark.parametrize("name", PLAYS)
def test_hosts_keep_facts_of_their_own(name: str) -> None:
    """ansible-core 2.21 lets hosts share one set of facts after such a task, so each then has the others' facts."""
    for task in tasks_of(PLAYS[name]):
        if {"ansible.builtin.set_fact", "ansible.builtin.debug", "ansible.builtin.include_vars"} & set(task):
            assert not task.get("run_once") or task.get("delegate_facts"), task["name"]
