# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian dressed as Ubuntu, as programs and Ansible's facts read it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils import distro

from tests.simulator import images

UBUNTU = [("22.04", "Jammy Jellyfish", "jammy"), ("24.04", "Noble Numbat", "noble")]


@pytest.mark.parametrize(("version", "name", "codename"), UBUNTU)
def test_facts_take_it_for_ubuntu(tmp_path: Path, version: str, name: str, codename: str) -> None:
    release = tmp_path / "os-release"
    release.write_text(images.ubuntu_files(version, name)["/usr/lib/os-release"])
    found = distro.LinuxDistribution(
        include_lsb=False, os_release_file=str(release), distro_release_file=str(tmp_path / "none")
    )
    assert (found.id(), found.version(), found.codename()) == ("ubuntu", version, codename)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["-is"], "Ubuntu\n"),
        (["-s", "-c"], "jammy\n"),
        (["--short", "--release"], "22.04\n"),
        (["-r"], "Release:\t22.04\n"),
        (["-as"], "Ubuntu\nUbuntu 22.04 LTS\n22.04\njammy\n"),
        (["--all", "--short"], "Ubuntu\nUbuntu 22.04 LTS\n22.04\njammy\n"),
    ],
)
def test_lsb_release_answers_as_ubuntus(tmp_path: Path, options: list[str], answer: str) -> None:
    files = images.ubuntu_files("22.04", "Jammy Jellyfish")
    (tmp_path / "lsb-release").write_text(files["/etc/lsb-release"])
    (tmp_path / "program").write_text(files["/usr/bin/lsb_release"])
    environment = {"LSB_RELEASE_FILE": str(tmp_path / "lsb-release"), "PATH": "/usr/bin:/bin"}
    command = ["sh", str(tmp_path / "program"), *options]
    assert subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout == answer
