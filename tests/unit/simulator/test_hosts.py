"""The parts of the simulator that need no container engine."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.simulator import engine, packages
from tests.simulator.engine import SimulatorError
from tests.simulator.hosts import CLUSTER, MIRROR, NETWORKS, Host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ctl", Host("ctl", "trixie", None, 0)),
        ("backup1:bookworm", Host("backup1", "bookworm", None, 0)),
        ("gpu1:trixie:h100-sxm-80gb:8", Host("gpu1", "trixie", "h100-sxm-80gb", 8)),
        ("gpu1:jammy", Host("gpu1", "jammy", None, 0)),
        ("mirror", MIRROR),
    ],
)
def test_reads_a_host_as_the_command_line_writes_it(text: str, expected: Host) -> None:
    assert Host.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":trixie", "gpu1:buster", "gpu1:trixie:h100-sxm-80gb", "gpu1:trixie:h100:many", "a:b:c:d:e"]
)
def test_says_how_a_host_is_written(text: str) -> None:
    with pytest.raises(SimulatorError, match=r"write NAME\[:SUITE"):
        Host.parse(text)


def test_the_vendor_mirror_is_no_machine_of_choice() -> None:
    with pytest.raises(SimulatorError, match="host 'mirror:trixie': write mirror; "):
        Host.parse("mirror:trixie")


def test_networks_of_instances_do_not_overlap_nor_hold_the_package_cache() -> None:
    for one, other in itertools.combinations(NETWORKS.values(), 2):
        assert not one.overlaps(other)
    assert not any(packages.CACHE_ADDRESS in map(str, network) for network in NETWORKS.values())


def test_the_cluster_has_two_nodes_with_eight_gpus_and_the_vendor_mirror() -> None:
    gpus = {host.name: host.gpu_count for host in CLUSTER}
    assert gpus == {"mirror": 0, "ctl": 0, "gpu1": 8, "gpu2": 8, "backup1": 0}


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


def test_takes_the_first_mirror_of_a_list_as_cloud_images_have_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "archive.list").write_text(
        "# nearest\nhttps://near.example/debian\tpriority:1\nhttp://far.example/debian\n"
    )
    (tmp_path / "security.list").write_text("https://near.example/debian-security\n")
    answer(
        monkeypatch,
        [
            f"Debian|trixie|mirror+file:{tmp_path}/archive.list/",
            f"Debian|trixie-security|mirror+file://{tmp_path}/security.list/",
        ],
    )
    mirror = packages.machine_mirror()
    assert (mirror.archive, mirror.security) == ("https://near.example/debian", "https://near.example/debian-security")


def test_an_empty_list_of_mirrors_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "archive.list").write_text("# none\n")
    answer(monkeypatch, [f"Debian|trixie|mirror+file:{tmp_path}/archive.list/"])
    with pytest.raises(SimulatorError, match=r"archive\.list names none; write one there"):
        packages.machine_mirror()


def test_says_what_to_do_where_apt_knows_no_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ["Ubuntu|noble|http://mirror.example/ubuntu/"])
    with pytest.raises(SimulatorError, match="run apt-get update"):
        packages.machine_mirror()


def test_a_package_cache_without_its_folders_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = ["sleep", "600", "0"]
    monkeypatch.setattr(packages, "_COMMAND", cache)
    monkeypatch.setattr(packages, "STATE", tmp_path)
    monkeypatch.setattr(packages, "_CONFIGURATION", tmp_path / "apt-cacher-ng")
    monkeypatch.setattr(packages, "_give_loopback_the_address", lambda: None)
    monkeypatch.setattr(packages, "_answers", lambda: True)
    old, other = subprocess.Popen(cache), subprocess.Popen(["sleep", "600"])
    try:
        packages.start_cache()
        assert old.wait(timeout=5) == -signal.SIGTERM
        assert other.poll() is None
        deadline = time.monotonic() + 5
        while not list(packages._cache_processes()) and time.monotonic() < deadline:
            time.sleep(0.1)  # a process that has just begun shows no command line
        assert len(list(packages._cache_processes())) == 1
        configuration = (tmp_path / "apt-cacher-ng/acng.conf").read_text()
        assert f"CacheDir: {tmp_path}/packages\n" in configuration
    finally:
        for process in (other.pid, *packages._cache_processes()):
            os.kill(process, signal.SIGKILL)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(SimulatorError, match="no-such-program isn't installed; run `make setup` as root"):
        engine.run(["no-such-program"])


def test_a_failed_program_speaks_for_itself() -> None:
    with pytest.raises(SimulatorError, match="`sh -c echo too bad >&2; exit 3` failed: too bad"):
        engine.run(["sh", "-c", "echo too bad >&2; exit 3"])
