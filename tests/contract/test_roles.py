"""Rules that every role keeps (docs/architecture.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.contract.places import EVERY_ROLE, ROLES, ROOT, load, tasks_of

TASK_FILES = {"main.yml", "preflight.yml", "install.yml", "configure.yml", "service.yml", "verify.yml"}
each_role = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
every_role = pytest.mark.parametrize("role", EVERY_ROLE, ids=lambda role: role.name)


def defaults_of(role: Path) -> dict[str, Any]:
    path = role / "defaults/main.yml"
    return (load(path) or {}) if path.exists() else {}


def options_of(role: Path) -> dict[str, Any]:
    specs = load(role / "meta/argument_specs.yml")["argument_specs"]
    return {name: option for spec in specs.values() for name, option in spec.get("options", {}).items()}


def texts_of(role: Path) -> list[tuple[Path, str]]:
    return [(path, path.read_text()) for path in sorted(role.glob("**/*")) if path.suffix in {".yml", ".j2"}]


def test_there_are_roles() -> None:
    assert len(ROLES) >= 6


@each_role
def test_main_is_a_table_of_contents(role: Path) -> None:
    main = role / "tasks/main.yml"
    assert len(main.read_text().splitlines()) <= 60
    assert {path.name for path in (role / "tasks").iterdir()} <= TASK_FILES
    for task in load(main):
        assert {"ansible.builtin.import_tasks", "ansible.builtin.include_tasks"} & set(task), task["name"]
        assert role.name in task["tags"], f"{task['name']} lacks the tag {role.name}"


@every_role
def test_each_default_is_an_option_with_the_same_default(role: Path) -> None:
    options = options_of(role)
    defaults = defaults_of(role)
    assert set(defaults) <= set(options), "defaults without an option"
    for name, option in options.items():
        if name not in defaults:
            assert "default" not in option, f"{name} has a default in the spec only"
        elif "{{" not in str(defaults[name]):
            assert option.get("default", "absent") == defaults[name], name
        else:
            assert "default" not in option, f"{name}: describe a Jinja default, don't repeat it"


@every_role
def test_each_option_is_explained(role: Path) -> None:
    def check(options: dict[str, Any]) -> None:
        for name, option in options.items():
            assert option.get("description"), name
            assert option.get("type"), name
            check(option.get("options", {}))

    check(options_of(role))


@each_role
def test_each_default_has_a_sentence_above_it(role: Path) -> None:
    lines = (role / "defaults/main.yml").read_text().splitlines() if (role / "defaults/main.yml").exists() else []
    for number, line in enumerate(lines):
        if re.match(r"[a-z]\w*:", line):
            assert lines[number - 1].startswith("#"), line


@every_role
def test_variables_bear_the_role_s_own_prefix(role: Path) -> None:
    for name in {**options_of(role), **defaults_of(role)}:
        assert name.startswith(f"{role.name}_") or name == role.name, name
    for path in (role / "vars").glob("*.yml"):
        for name in load(path) or {}:
            assert name.startswith(f"__{role.name}_"), f"{path}: {name}"
    for folder in ("tasks", "handlers"):
        for path, task in tasks_of(role / folder):
            names = [task.get("register"), (task.get("loop_control") or {}).get("loop_var")]
            for name in filter(None, names):
                allowed = (f"__{role.name}_", "common_packages_result")
                assert name.startswith(allowed), f"{path.name}: {task.get('name')}: {name}"
            results = set(task.get("ansible.builtin.set_fact", {})) - {"cacheable"}
            for name in results:
                assert name.startswith((f"__{role.name}_", f"{role.name}_")), f"{path.name}: {task.get('name')}: {name}"
            assert not results & set(options_of(role)), f"{path.name}: {task.get('name')} overwrites an input"


@each_role
def test_a_role_knows_no_host_but_its_own_and_no_sister(role: Path) -> None:
    sisters = {other.name for other in ROLES} - {role.name}
    for path, text in texts_of(role):
        assert not re.search(r"\b(groups|group_names|ansible_play_hosts\w*)\b\s*[\[\]|}.]", text), f"{path}: groups"
        assert "hostvars" not in text, f"{path}: hostvars"
        for sister in sisters:
            assert f"trainyard.cluster.{sister}\n" not in text, f"{path}: {sister}"


@every_role
def test_facts_are_read_from_ansible_facts(role: Path) -> None:
    for path, text in texts_of(role):
        assert not re.search(
            r"\bansible_(distribution|os_family|hostname|fqdn|kernel|architecture|date_time|mounts)\b", text
        ), path


@every_role
def test_nothing_hides_a_fault(role: Path) -> None:
    for path, task in [*tasks_of(role / "tasks"), *tasks_of(role / "handlers")]:
        assert "ignore_errors" not in task, f"{path}: {task.get('name')}"
        assert task.get("failed_when") != "ansible_check_mode", f"{path}: {task.get('name')}"
    for path, text in texts_of(role):
        for line in text.splitlines():
            if "failed_when: false" in line:
                assert re.search(r"failed_when: false # \w+", line), f"{path}: {line.strip()}: say who judges instead"


@every_role
def test_templates_say_who_manages_the_file(role: Path) -> None:
    for path in (role / "templates").glob("**/*.j2"):
        head = "\n".join(path.read_text().splitlines()[:3])
        assert "ansible_managed | default('Ansible managed') | comment" in head, path


@every_role
def test_packages_go_through_common(role: Path) -> None:
    for path, task in tasks_of(role / "tasks"):
        if role.name != "common":
            assert not {"ansible.builtin.apt", "ansible.builtin.package", "ansible.builtin.deb822_repository"} & set(
                task
            ), path


@each_role
def test_what_a_role_works_out_is_not_validated_under_another_role_s_tag(role: Path) -> None:
    """Ansible tags its validation of an imported role `always`: with --tags for another role it would run all the same,
    with variables that the skipped tasks never set."""
    for path, task in tasks_of(role / "tasks"):
        imported = task.get("ansible.builtin.import_role", {})
        if imported.get("tasks_from") in {"packages", "repository", "nvidia_repository", "distribution_components"}:
            assert imported.get("rolespec_validate") is False, f"{path}: {task['name']}"


@each_role
def test_handlers_are_named_for_what_they_do(role: Path) -> None:
    for path, task in tasks_of(role / "handlers"):
        if "block" not in task:
            assert task["name"][0].isupper(), path


@each_role
def test_a_scenario_tests_it_on_two_hosts(role: Path) -> None:
    scenario = ROOT / "molecule" / role.name
    for name in ("molecule.yml", "converge.yml"):
        assert (scenario / name).exists(), f"molecule/{role.name}/{name}"
    assert (scenario / "verify.yml").exists() or list(scenario.glob("tests/test_*.py")), (
        f"molecule/{role.name} verifies nothing"
    )
    inventory = load(ROOT / "inventories/molecule/hosts.yml")["all"]["children"]
    slug = role.name.replace("_", "-")
    assert set(inventory[role.name]["hosts"]) == {f"{slug}-default", f"{slug}-alternative"}
    assert f"{slug}-default" in inventory["default_hosts"]["hosts"]
    assert f"{slug}-alternative" in inventory["alternative_hosts"]["hosts"]


@each_role
def test_the_readme_lists_it(role: Path) -> None:
    assert f"`{role.name}`" in (ROOT / "README.md").read_text()
