"""Rules that plugins and tests keep (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.contract.places import MODULE_UTILS, MODULES, ROOT, flatten, load, tasks_of

HEADER = ("# Copyright: Contributors to the trainyard.cluster collection", "# GNU General Public License v3.0+")


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(("." * node.level) + (node.module or ""))
    return names


@pytest.mark.parametrize("path", [*MODULES, *MODULE_UTILS], ids=lambda path: path.name)
def test_licence_stands_at_the_top(path: Path) -> None:
    head = path.read_text().splitlines()[:4]
    for line in HEADER:
        assert any(text.startswith(line) for text in head), line


@pytest.mark.parametrize("path", MODULE_UTILS, ids=lambda path: path.name)
def test_the_thinking_knows_only_the_standard_library(path: Path) -> None:
    own = "ansible_collections.trainyard.cluster.plugins.module_utils"
    for name in imports_of(path):
        known = name.split(".")[0] in sys.stdlib_module_names or name.startswith((".", own))
        assert known, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_documents_itself(path: Path) -> None:
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    documentation = yaml.safe_load(constants["DOCUMENTATION"])
    assert documentation["module"] == path.stem
    assert {"check_mode", "diff_mode"} <= set(documentation["attributes"])
    for name, option in documentation.get("options", {}).items():
        assert option.get("description"), name
    assert re.fullmatch(
        r".+ \(@\w+\)",
        documentation["author"] if isinstance(documentation["author"], str) else documentation["author"][0],
    )
    assert yaml.safe_load(constants["EXAMPLES"])
    assert yaml.safe_load(constants["RETURN"])
    assert re.search(r"^ +sample:", constants["RETURN"], re.MULTILINE)
    assert len(path.read_text().split('"""')[-1].splitlines()) < 120, (
        "a module is thin: the thinking goes to module_utils"
    )


def test_no_test_is_empty() -> None:
    """verify.yml that asserts nothing is the fault we were founded against."""
    for path in sorted((ROOT / "molecule").glob("*/verify.yml")):
        tasks = [task for part in ("tasks", "handlers") for _path, task in tasks_of(path.parent / part)]
        tasks += [task for play in load(path) for task in flatten([play])]
        probes = [task for task in tasks if {"ansible.builtin.assert", "failed_when", "until"} & set(task)]
        assert probes, path
        for task in tasks:
            assert task.get("ansible.builtin.assert", {}).get("that") not in (True, "true", ["true"], [True]), path
            assert "ignore_errors" not in task, path


def test_a_role_that_refuses_nothing_is_found_out() -> None:
    """A rescue that looks for a sentence in the failure mustn't find it in the test's own words."""
    contents = {path: load(path) for path in (ROOT / "molecule").glob("**/*.yml")}
    for path, tasks in contents.items():
        for task in flatten(tasks) if isinstance(tasks, list) else ():
            for own in flatten(task["block"]) if "rescue" in task else ():
                assert "{{" not in own.get("ansible.builtin.fail", {}).get("msg", ""), path


def test_pins_stand_in_one_place() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        for line in path.read_text().splitlines():
            if line and not line.startswith(("#", "-r")):
                assert re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+", line), f"{path.name}: {line}"


def test_the_collection_is_described() -> None:
    galaxy = load(ROOT / "galaxy.yml")
    assert (galaxy["namespace"], galaxy["name"]) == ("trainyard", "cluster")
    assert "GNU GENERAL PUBLIC LICENSE" in (ROOT / galaxy["license_file"]).read_text()
    runtime = load(ROOT / "meta/runtime.yml")
    assert runtime["requires_ansible"] == ">=2.19.0"
    assert set(runtime["action_groups"]["all"]) == {path.stem for path in MODULES}


def test_nothing_is_excused_from_ansible_test() -> None:
    assert not list((ROOT / "tests/sanity").glob("ignore*"))
