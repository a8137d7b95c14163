"""The parts of the simulator that need no container engine."""

from __future__ import annotations

import itertools
import subprocess

import pytest

from tests.simulator import engine, packages
from tests.simulator.engine import SimulatorError
from tests.simulator.hosts import CLUSTER, NETWORKS, Host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ctl", Host("ctl", "trixie", None, 0)),
        ("backup1:bookworm", Host("backup1", "bookworm", None, 0)),
        ("gpu1:trixie:h100-sxm-80gb:8", Host("gpu1", "trixie", "h100-sxm-80gb", 8)),
    ],
)
def test_reads_a_host_as_the_command_line_writes_it(text: str, expected: Host) -> None:
    assert Host.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":trixie", "gpu1:jammy", "gpu1:trixie:h100-sxm-80gb", "gpu1:trixie:h100:many", "a:b:c:d:e"]
)
def test_says_how_a_host_is_written(text: str) -> None:
    with pytest.raises(SimulatorError, match=r"write NAME\[:SUITE"):
        Host.parse(text)


def test_networks_of_instances_do_not_overlap_nor_hold_the_package_cache() -> None:
    for one, other in itertools.combinations(NETWORKS.values(), 2):
        assert not one.overlaps(other)
    assert not any(packages.CACHE_ADDRESS in map(str, network) for network in NETWORKS.values())


def test_the_cluster_has_two_nodes_with_eight_gpus() -> None:
    assert {host.name: host.gpu_count for host in CLUSTER} == {"ctl": 0, "gpu1": 8, "gpu2": 8, "backup1": 0}


def answer(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    result = subprocess.CompletedProcess([], 0, "\n".join(lines), "")
    monkeypatch.setattr(packages, "run", lambda command: result)


def test_takes_the_mirror_that_the_machine_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(
        monkeypatch,
        [
            "Example|bookworm|http://mirror.example/other/",
            "Debian|bookworm-updates|http://mirror.example/debian/",
            "Debian|bookworm|http://mirror.example/debian/",
            "Debian|bookworm-security|http://mirror.example/security/",
        ],
    )
    mirror = packages.machine_mirror()
    assert (mirror.archive, mirror.security) == ("http://mirror.example/debian", "http://mirror.example/security")
    assert "Suites: trixie trixie-updates" in mirror.sources("trixie")
    assert "URIs: http://mirror.example/security\nSuites: trixie-security" in mirror.sources("trixie")


def test_says_what_to_do_where_apt_knows_no_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ["Ubuntu|noble|http://mirror.example/ubuntu/"])
    with pytest.raises(SimulatorError, match="run apt-get update"):
        packages.machine_mirror()


def test_a_missing_program_is_named() -> None:
    with pytest.raises(SimulatorError, match="no-such-program isn't installed; run `make setup` as root"):
        engine.run(["no-such-program"])


def test_a_failed_program_speaks_for_itself() -> None:
    with pytest.raises(SimulatorError, match="`sh -c echo too bad >&2; exit 3` failed: too bad"):
        engine.run(["sh", "-c", "echo too bad >&2; exit 3"])
