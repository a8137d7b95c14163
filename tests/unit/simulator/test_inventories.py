"""The inventories of the test hosts, as Ansible and ssh read them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulator.hosts import CHECKOUT

SSH = """#!/bin/sh
printf '%s\\n' "$@" > "$SSH_ARGUMENTS"
exit 255
"""


@pytest.fixture
def instance() -> Iterator[Callable[[str, str, str], str]]:
    """Makes an instance with one host and returns its name."""
    folders = []

    def make(name: str, host: str, address: str) -> str:
        folder = CHECKOUT / ".cache/sim" / name
        folder.mkdir(parents=True)
        folders.append(folder)
        (folder / "ssh_config").write_text(f"Host {host}\n  HostName {address}\n")
        return name

    yield make
    for folder in folders:
        shutil.rmtree(folder)


def control_path(inventory: str, host: str, instance: str, folder: Path) -> str:
    """The socket over which Ansible would share its connection to a host."""
    ssh, arguments = folder / "ssh", folder / "arguments"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    ansible = [str(Path(sys.executable).with_name("ansible")), "-i", f"inventories/{inventory}", host, "-m", "ping"]
    environment = {
        **os.environ,
        "TRAINYARD_SIM": instance,
        "ANSIBLE_SSH_EXECUTABLE": str(ssh),
        "SSH_ARGUMENTS": str(arguments),
    }
    subprocess.run(ansible, cwd=CHECKOUT, env=environment, capture_output=True, check=False)
    command = ["ssh", "-G", *arguments.read_text().splitlines()]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return next(line for line in settings.splitlines() if line.startswith("controlpath "))


@pytest.mark.parametrize(("inventory", "host"), [("sim", "gpu1"), ("molecule", "slurm-default")])
def test_hosts_of_one_name_in_two_instances_share_no_connection(
    inventory: str, host: str, instance: Callable[[str, str, str], str], tmp_path: Path
) -> None:
    names = [instance(f"unit-{os.getpid()}-{number}", host, f"198.18.0.{number}") for number in (1, 2)]
    first, again, other = (control_path(inventory, host, name, tmp_path) for name in (names[0], names[0], names[1]))
    assert first == again
    assert first != other
