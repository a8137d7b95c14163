"""Where the contract tests look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
EVERY_ROLE = sorted(path.parent for path in (ROOT / "roles").glob("*/meta"))
ROLES = [role for role in EVERY_ROLE if role.name != "common"]
MODULES = sorted((ROOT / "plugins/modules").glob("*.py"))
MODULE_UTILS = sorted(path for path in (ROOT / "plugins/module_utils").glob("*.py") if path.name != "__init__.py")


def load(path: Path) -> Any:
    """A YAML file's content; Ansible's own tags are read as plain values."""
    return yaml.load(path.read_text(), Loader=_Loader)  # noqa: S506 # a safe loader that knows Ansible's tags


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_multi_constructor("!", lambda loader, suffix, node: loader.construct_scalar(node))  # type: ignore[no-untyped-call]


def tasks_of(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every task in the YAML files of a folder (tasks or handlers), those inside blocks too."""
    for path in sorted(folder.glob("**/*.yml")):
        for task in flatten(load(path) or []):
            yield path, task


def flatten(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Tasks, plays and blocks, and what is inside them."""
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from flatten(task.get(part) or [])
