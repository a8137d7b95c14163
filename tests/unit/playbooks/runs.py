"""Runs of ansible-playbook against machines that aren't there."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.contract.places import ROOT

NODE = {
    "node_sockets": 2,
    "node_cores_per_socket": 8,
    "node_memory_mib": 200000,
    "node_gpu_model": "h100",
    "node_gpu_count": 8,
}


def inventory(controllers: list[str], nodes: dict[str, dict[str, Any]], **everywhere: Any) -> dict[str, Any]:
    """An inventory as a hosts file holds it."""
    return {
        "all": {
            "vars": {"cluster_name": "trainyard", "ansible_user": "root", **everywhere},
            "children": {
                "slurm_controller": {"hosts": {name: {} for name in controllers}},
                "gpu_nodes": {"hosts": nodes},
            },
        }
    }


@dataclass
class Run:
    """What a run of ansible-playbook did.

    contacts: the arguments of each call of ssh; the calls fail as to a machine that is down.
    """

    status: int
    output: str
    contacts: list[str]


def run(
    folder: Path,
    hosts: dict[str, Any] | Path,
    *words: str,
    collections: Path = ROOT / ".cache/collections",
    cwd: Path = ROOT,
) -> Run:
    """Run ansible-playbook on an inventory, its content or its path, with a stand-in for ssh that notes who calls."""
    source = hosts if isinstance(hosts, Path) else folder / "hosts.yml"
    if not isinstance(hosts, Path):
        source.write_text(yaml.safe_dump(hosts))
    log = folder / "contacts"
    ssh = folder / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" >>{log}\necho "ssh: no route to host" >&2\nexit 255\n')
    ssh.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    result = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(source), *words],
        cwd=cwd,
        env={
            **environment,
            "ANSIBLE_COLLECTIONS_PATH": str(collections),
            "ANSIBLE_SSH_EXECUTABLE": str(ssh),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder),
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    contacts = log.read_text().splitlines() if log.exists() else []
    return Run(result.returncode, result.stdout + result.stderr, contacts)
