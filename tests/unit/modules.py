# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Modules run as Ansible runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any


def run_module(
    module: ModuleType,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> dict[str, Any]:
    """Run a module in a process of its own, and return what it prints.

    environment: beside PYTHONPATH; without it, the search path is the system's. launcher: the words in front of the
    command, such as those that make it root.
    """
    result = subprocess.run(
        [*launcher, sys.executable, "-m", module.__name__],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": dict(arguments)}),
        env={"PATH": "/usr/bin:/bin", **(environment or {}), "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    returned: dict[str, Any] = json.loads(result.stdout)
    return returned
