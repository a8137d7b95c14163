"""What the simulator finds out about the machine that it runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator import engine
from tests.simulator.engine import Podman

PURE = "0::/user.slice/user-0.slice/session-1.scope\n"
HYBRID = f"9:name=systemd:/\n4:memory:/\n{PURE}"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An ordinary machine: one cgroup2 hierarchy, systemd on the bus, root without limits."""
    paths = {
        "_CGROUPS": tmp_path / "cgroups",
        "_PROCESS": tmp_path / "process",
        "_RUN": tmp_path / "run",
        "STATE": tmp_path / "state",
    }
    for name, path in paths.items():
        path.mkdir()
        monkeypatch.setattr(engine, name, path)
    (tmp_path / "cgroups/cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "process/cgroup").write_text(PURE)
    (tmp_path / "process/status").write_text("Name:\tpython3\nCapEff:\t000001ffffffffff\n")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "run/dbus").mkdir()
    (tmp_path / "run/dbus/system_bus_socket").touch()
    return tmp_path


def configuration() -> str:
    return Podman._write_configuration().read_text()


def test_an_ordinary_machine_needs_no_adaptation(machine: Path) -> None:
    assert not engine.hybrid_cgroups()
    assert not engine.shows_v1_hierarchies()
    assert engine.may_raise_limits()
    assert 'cgroup_manager = "systemd"' in configuration()
    assert "runc-without-rlimits" not in configuration()
    assert not (machine / "state/runc-without-rlimits").exists()


def test_finds_v1_controllers_in_place_of_the_one_hierarchy(machine: Path) -> None:
    (machine / "cgroups/cgroup.controllers").unlink()
    (machine / "process/cgroup").write_text(HYBRID)
    assert engine.hybrid_cgroups()
    assert engine.shows_v1_hierarchies()
    assert 'cgroup_manager = "cgroupfs"' in configuration()


def test_finds_v1_hierarchies_beside_the_one_hierarchy(machine: Path) -> None:
    (machine / "process/cgroup").write_text(HYBRID)
    assert not engine.hybrid_cgroups()
    assert engine.shows_v1_hierarchies()


@pytest.mark.parametrize("missing", ["run/systemd/system", "run/dbus/system_bus_socket"])
def test_makes_cgroups_without_a_systemd_that_can_be_asked(machine: Path, missing: str) -> None:
    path = machine / missing
    path.rmdir() if path.is_dir() else path.unlink()
    assert 'cgroup_manager = "cgroupfs"' in configuration()


def test_takes_rlimits_away_where_they_cannot_be_raised(machine: Path) -> None:
    (machine / "process/status").write_text("CapEff:\t000001fffeffffff\n")
    assert not engine.may_raise_limits()
    wrapper = machine / "state/runc-without-rlimits"
    assert f'sim = ["{wrapper}"]' in configuration()
    assert wrapper.read_text().startswith("#!/usr/bin/python3\n")
    assert "@RUNC@" not in wrapper.read_text()


def test_state_is_removed_with_the_mounts_in_it_the_inner_ones_first(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, runtime = machine / "state", machine / "runtime"
    monkeypatch.setattr(engine, "RUNTIME", runtime)
    for folder in (state / "storage", runtime):
        folder.mkdir()
    places = ["/", f"{state}-of-another", f"{state}/storage", f"{state}/storage/overlay"]
    lines = [f"{number} 1 254:0 / {place} rw - ext4 /dev/vda rw\n" for number, place in enumerate(places)]
    (machine / "process/mountinfo").write_text("".join(lines))
    commands = []
    monkeypatch.setattr(engine, "run", commands.append)
    engine.remove_state()
    assert commands == [["umount", f"{state}/storage/overlay"], ["umount", f"{state}/storage"]]
    assert not state.exists()
    assert not runtime.exists()
    assert (machine / "process").exists()
