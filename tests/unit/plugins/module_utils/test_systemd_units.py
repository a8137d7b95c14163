# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._command import CommandResult, RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._systemd_units import (
    SystemdError,
    UnitState,
    Watched,
    parse_show,
    units,
)

RUNNING = """MainPID=41
ExecMainStartTimestamp=Fri 2100-01-01 08:00:00.500000 UTC
FragmentPath=/usr/lib/systemd/system/web.service
DropInPaths=/etc/systemd/system/web.service.d/ours.conf /etc/systemd/system/web.service.d/theirs.conf
NeedDaemonReload=no
"""
DROP_IN = "/etc/systemd/system/web.service.d/ours.conf"


def says(output: str, status: int = 0, errors: str = "") -> RunCommand:
    return lambda argv, timeout: CommandResult(status, output, errors)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine whose unit web runs as process 41, on files that are older than RUNNING says."""
    for path in ("etc/web.conf", DROP_IN.lstrip("/"), "etc/sites.conf", "usr/bin/web"):
        write(tmp_path, path)
    process = tmp_path / "proc/41"
    process.mkdir(parents=True)
    (process / "exe").symlink_to("/usr/bin/web")
    (process / "maps").write_text("7f00-7f01 r-xp 00000000 fe:00 7 /usr/lib/libweb.so.1\n7f02-7f03 rw-p 0 00:00 0\n")
    return tmp_path


def write(root: Path, path: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def started_now() -> str:
    """What systemd says of a process that started after all that was written so far."""
    time.sleep(0.02)  # files bear the time of the kernel's last tick
    now = datetime.now(timezone.utc)
    time.sleep(0.02)
    return re.sub("=Fri .*", f"={now:%a %Y-%m-%d %H:%M:%S.%f} UTC", RUNNING)


def look(root: Path, output: str = RUNNING, mapped: str | None = None) -> UnitState:
    watched = Watched("web", ["/etc/web.conf"], [DROP_IN], ["/etc/sites.conf"], "/run/web-reloaded", mapped)
    return units(says(output), [watched], str(root))[0]


def test_asks_for_nothing_of_a_unit_that_runs_on_what_is_there(root: Path) -> None:
    assert look(root, mapped="/libweb") == UnitState("web", running=True, daemon_reload=False)


def test_a_unit_starts_anew_for_a_file_that_only_a_start_reads(root: Path) -> None:
    output = started_now()
    assert look(root, output).restart == []
    write(root, "etc/web.conf")
    assert look(root, output).restart == ["/etc/web.conf is newer than the process"]
    assert not look(root, output).reload


def test_a_file_of_old_that_was_put_back_is_newer_than_the_process(root: Path) -> None:
    backup = root / "backup"
    backup.touch()
    os.utime(backup, (0, 0))
    output = started_now()
    backup.rename(root / "etc/web.conf")
    assert look(root, output).restart == ["/etc/web.conf is newer than the process"]


def test_a_unit_is_reloaded_once_for_a_file_that_a_reload_takes_up(root: Path) -> None:
    output = started_now()
    write(root, "etc/sites.conf")
    assert look(root, output).reload == ["/etc/sites.conf"]
    write(root, "run/web-reloaded")
    assert look(root, output).reload == []
    time.sleep(0.02)
    write(root, "etc/sites.conf")
    assert look(root, output).reload == ["/etc/sites.conf"]
    assert not look(root, output).restart


def test_systemd_reads_a_drop_in_that_it_does_not_call_for(root: Path) -> None:
    state = look(root, RUNNING.replace(DROP_IN, ""))
    assert state.daemon_reload
    assert state.restart == [f"{DROP_IN} is newer than the process"]


def test_a_unit_file_that_goes_by_two_names_has_been_read(root: Path) -> None:
    write(root, "usr/lib/systemd/system/web.service")
    (root / "lib").symlink_to("usr/lib")
    watched = Watched("web", unit_files=["/lib/systemd/system/web.service"])
    assert units(says(RUNNING), [watched], str(root))[0] == UnitState("web", running=True, daemon_reload=False)


def test_a_drop_in_that_a_dry_run_did_not_write_asks_for_nothing(root: Path) -> None:
    (root / DROP_IN.lstrip("/")).unlink()
    assert look(root, RUNNING.replace(DROP_IN, "")) == UnitState("web", running=True, daemon_reload=False)


def test_systemd_calls_for_a_reload_itself(root: Path) -> None:
    state = look(root, RUNNING.replace("NeedDaemonReload=no", "NeedDaemonReload=yes"))
    assert state == UnitState("web", running=True, daemon_reload=True)


def test_a_replaced_program_asks_for_a_restart(root: Path) -> None:
    exe = root / "proc/41/exe"
    exe.unlink()
    exe.symlink_to("/usr/bin/web (deleted)")
    assert look(root).restart == ["/usr/bin/web is another than the one that runs"]


def test_a_replaced_library_asks_for_a_restart_where_the_pattern_finds_it(root: Path) -> None:
    maps = root / "proc/41/maps"
    maps.write_text(maps.read_text().replace("libweb.so.1", "libweb.so.1 (deleted)") * 2 + "/dev/zero (deleted)\n")
    assert look(root).restart == []
    assert look(root, mapped="/libdb").restart == []
    assert look(root, mapped="/libweb[^/]*").restart == ["/usr/lib/libweb.so.1 is another than the one that runs"]


def test_reads_the_time_whatever_language_the_machine_speaks(root: Path) -> None:
    assert look(root, RUNNING.replace("Fri", "vendredi")).running


@pytest.mark.parametrize(
    "output",
    [
        RUNNING.replace("41", "0").replace("2100", "2000").replace("Fri", "Sat"),
        "MainPID=0\nExecMainStartTimestamp=\nFragmentPath=\nDropInPaths=\nNeedDaemonReload=no\n",
        "NeedDaemonReload=no\nFragmentPath=/usr/lib/systemd/system/web.timer\nDropInPaths=\n",
    ],
)
def test_a_unit_that_does_not_run_has_nothing_to_take_up(root: Path, output: str) -> None:
    state = look(root, output)
    assert (state.running, state.restart, state.reload) == (False, [], [])


def test_a_process_that_has_ended_is_no_fault(root: Path) -> None:
    assert look(root, RUNNING.replace("41", "42"), mapped="x") == UnitState("web", running=True, daemon_reload=False)


def test_says_who_may_look_at_a_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "readlink", refuse)
    with pytest.raises(SystemdError, match=r"/proc/41/exe can't be read; run as root"):
        look(root)


def test_answers_for_several_units_in_order(root: Path) -> None:
    watched = [Watched("absent"), Watched("web")]
    states = units(says("MainPID=0\n\n" + RUNNING), watched, str(root))
    assert [(state.name, state.running) for state in states] == [("absent", False), ("web", True)]
    assert units(says("", status=1), []) == []


@pytest.mark.parametrize(("output", "status"), [("", 0), (RUNNING, 1), (RUNNING + "\n" + RUNNING, 0)])
def test_says_that_systemd_cannot_be_asked(root: Path, output: str, status: int) -> None:
    with pytest.raises(SystemdError, match="systemctl can't tell how the units are: no bus"):
        units(says(output, status, "no\nbus\n"), [Watched("web")], str(root))


def test_says_that_systemd_hangs() -> None:
    with pytest.raises(SystemdError, match="systemctl gave no answer within 60 seconds"):
        units(lambda argv, timeout: CommandResult(None, "", "", timed_out=True), [Watched("web")])


def test_reads_values_that_hold_equals_signs() -> None:
    assert parse_show("A=b=c\n\nA=\nnoise\n") == [{"A": "b=c"}, {"A": ""}]
