"""The backup program against a real rsync and rrsync; only ssh is replaced, by a script that runs rrsync right here."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/checkpoint_backup/files/trainyard_checkpoint_backup.py"
# What the role's authorized_keys asks of rrsync; one that is older can't forbid overwriting.
RESTRICTIONS = ["-no-del"]
if "-no-overwrite" in subprocess.run(["rrsync", "-help"], capture_output=True, text=True, check=True).stdout:
    RESTRICTIONS.append("-no-del -no-overwrite")

SSH = """#!/bin/bash
# ssh -F FILE NAME COMMAND…
echo "${*:4}" >>"%(log)s"
if [ -s "%(failure)s" ]; then
    cat "%(failure)s" >&2
    exit 255
fi
SSH_ORIGINAL_COMMAND="${*:4}" SSH_CONNECTION="192.0.2.1 1 192.0.2.2 22" exec rrsync %(options)s "%(server)s"
"""


@pytest.fixture(name="program", scope="module")
def program_module() -> ModuleType:
    specification = importlib.util.spec_from_file_location("trainyard_checkpoint_backup", PROGRAM)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


@dataclass
class Site:
    program: ModuleType
    source: Path
    server: Path
    configuration: Path
    state_file: Path
    failure: Path
    log: Path

    def run(self, *arguments: str) -> int:
        return int(self.program.main(["--configuration", str(self.configuration), *(arguments or ("run",))]))

    def state(self) -> dict:
        return json.loads(self.state_file.read_text())

    def copy_of(self, checkpoint: Path) -> Path:
        return self.server / str(checkpoint).lstrip("/")

    def connections(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture(name="site", params=RESTRICTIONS)
def site_fixture(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Site:
    source, server, state, tools = (tmp_path / name for name in ("source", "server", "state", "tools"))
    for folder in (source, server, state, tools):
        folder.mkdir()
    failure, log = tmp_path / "failure", tmp_path / "log"
    ssh = tools / "ssh"
    ssh.write_text(SSH % {"log": log, "failure": failure, "server": server, "options": request.param})
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    configuration = tmp_path / "config.json"
    configuration.write_text(
        json.dumps(
            {
                "roots": [str(source)],
                "server": "backup1",
                "ssh_configuration": "/etc/ssh/none",
                "state_directory": str(state),
                "bandwidth_limit_kib": 0,
                "timeout_seconds": 30,
            }
        )
    )
    return Site(program, source, server, configuration, state / "state.json", failure, log)


def checkpoint(site: Site, name: str | bytes, content: str = "weights", manifest: bool = True) -> Path:
    path = Path(os.fsdecode(os.path.join(os.fsencode(site.source), os.fsencode(name))))
    (path / "shards").mkdir(parents=True)
    files = {"model.pt": content * 1000, "shards/0.pt": content}
    for file, text in files.items():
        (path / file).write_text(text)
    if manifest:
        (path / "MANIFEST.sha256").write_text(
            "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {file}\n" for file, text in files.items())
        )
    (path / "COMPLETE").write_text("step 1\n")
    return path


def contents(path: Path) -> dict[bytes, str]:
    """Every file below a folder and its sha256."""
    return {
        os.path.relpath(os.path.join(root, file), os.fsencode(path)): hashlib.sha256(
            Path(os.fsdecode(os.path.join(root, file))).read_bytes()
        ).hexdigest()
        for root, _folders, files in os.walk(os.fsencode(path))
        for file in files
    }


def test_a_finished_checkpoint_is_copied_with_every_file(site: Site) -> None:
    path = checkpoint(site, "run/step-00000100")
    assert site.run() == 0
    copy = site.copy_of(path)
    assert contents(copy) == contents(path)
    assert len(contents(copy)) == 4
    receipt = copy.with_name("step-00000100@sha256")
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", receipt], cwd=copy, check=True)
    state = site.state()
    assert (state["copied_total"], state["last_run_copied"], state["failures"]) == (1, 1, [])
    assert state["copied_bytes_total"] == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert state["last_success"] == state["last_run_ended"]


def test_what_is_not_finished_stays_here(site: Site) -> None:
    (checkpoint(site, "run/step-1") / "COMPLETE").unlink()
    checkpoint(site, "run/step-2.tmp-77")
    checkpoint(site, ".snapshot/step-3")
    outside = checkpoint(site, "../elsewhere/step-4")
    (site.source / "link").symlink_to(outside.parent)
    fake = site.source / "run/step-5"
    fake.mkdir()
    (fake / "COMPLETE").symlink_to("/etc/hostname")
    assert site.run() == 0
    assert contents(site.server) == {}
    assert site.state()["finished_checkpoints"] == 0


@pytest.mark.parametrize(
    "name",
    [
        "with space/step 1",
        "quote'\"$(touch x)`;&|/step-1",
        "star*/[a]?{b,c}",
        "-dash/--delete",
        "line\nend/tab\tstep",
        "umlaut-ä/步骤-1",
        b"latin-\xe4/step-1",
        "100%/a@b@sha256",
        "back\\slash/\\#012",
        "colon:name/host:step",
    ],
)
def test_odd_names_arrive_whole_and_come_back(site: Site, name: str | bytes, tmp_path: Path) -> None:
    path = checkpoint(site, name)
    for odd in (b" a", b"b\nc", b"\xff", b"-rf", b"\\#012", b"*"):
        Path(os.fsdecode(os.path.join(os.fsencode(path), odd))).write_text("odd")
    assert site.run() == 0
    (copied,) = [record["copy"] for record in site.state()["checkpoints"].values()]
    assert contents(site.server / copied) == contents(path)
    assert set(copied.replace("%", "")) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=+,-/")
    assert site.run("restore", copied, str(tmp_path / "back")) == 0
    assert contents(tmp_path / "back") == contents(path)
    before = site.connections()
    assert site.run() == 0
    assert site.connections() == before + 1


def test_a_second_run_sends_nothing(site: Site) -> None:
    checkpoint(site, "a/step-1")
    checkpoint(site, "a/step-2")
    assert site.run() == 0
    before = site.connections()
    assert site.run() == 0
    assert site.connections() == before + 1  # the list of what is there
    assert site.state()["last_run_copied"] == 0


def test_a_lost_state_costs_a_comparison_and_no_copy(site: Site) -> None:
    checkpoint(site, "a/step-1")
    site.run()
    before = contents(site.server)
    site.state_file.write_text("{ not json")
    assert site.run() == 0
    assert contents(site.server) == before
    assert site.state()["last_run_copied"] == 0


def test_a_deletion_here_deletes_nothing_there(site: Site) -> None:
    path = checkpoint(site, "a/step-1")
    site.run()
    before = contents(site.server)
    shutil.rmtree(path)
    assert site.run() == 0
    assert contents(site.server) == before


def test_a_finished_one_that_was_written_anew_is_kept_beside_the_first(site: Site, capfd) -> None:
    path = checkpoint(site, "a/step-1", "first")
    site.run()
    first = contents(site.copy_of(path))
    shutil.rmtree(path)
    checkpoint(site, "a/step-1", "second")
    assert site.run() == 0
    assert contents(site.copy_of(path)) == first
    (beside,) = site.copy_of(path).parent.glob("step-1@changed-????????????")
    assert contents(beside) == contents(path)
    assert "isn't what the server holds" in capfd.readouterr().out
    assert site.run() == 0
    assert "isn't what the server holds" not in capfd.readouterr().out
    assert len(list(site.copy_of(path).parent.iterdir())) == 4  # two copies, two receipts


def test_a_touched_one_is_compared_and_not_sent_again(site: Site) -> None:
    path = checkpoint(site, "a/step-1")
    site.run()
    os.utime(path / "model.pt")
    assert site.run() == 0
    assert len(list(site.copy_of(path).parent.iterdir())) == 2
    assert site.state()["last_run_copied"] == 0


def test_a_damaged_one_is_refused_and_its_copy_stays(site: Site, capfd) -> None:
    path = checkpoint(site, "a/step-1")
    site.run()
    before = contents(site.server)
    success = site.state()["last_success"]
    (path / "model.pt").write_text("rotten")
    assert site.run() == 1
    assert "step-1 is damaged: model.pt isn't as its MANIFEST.sha256 says" in capfd.readouterr().err
    assert contents(site.server) == before
    assert site.state()["consecutive_failures"] == 1
    assert site.state()["last_success"] == success


def test_a_copy_cut_short_is_not_whole_until_the_next_run_ends_it(site: Site) -> None:
    path = checkpoint(site, "a/step-1")
    half = site.copy_of(path)
    half.mkdir(parents=True)
    shutil.copy2(path / "model.pt", half)
    (half / ".model.pt.aB3dE6").write_text("left by an rsync that was killed")
    assert site.run("list") == 0
    assert site.run() == 0
    assert (half / "COMPLETE").exists()
    assert {name: value for name, value in contents(half).items() if name != b".model.pt.aB3dE6"} == contents(path)
    assert not list(half.parent.glob("*@changed-*"))


def test_a_cut_short_copy_of_other_contents_is_never_marked_whole(site: Site) -> None:
    path = checkpoint(site, "a/step-1")
    half = site.copy_of(path)
    half.mkdir(parents=True)
    (half / "extra.pt").write_text("not in the checkpoint")
    assert site.run() == 0
    assert not (half / "COMPLETE").exists()
    (beside,) = half.parent.glob("step-1@changed-????????????")
    assert contents(beside) == contents(path)


def test_a_copy_that_the_server_lost_is_sent_again(site: Site) -> None:
    path = checkpoint(site, "a/step-1")
    site.run()
    shutil.rmtree(site.copy_of(path))
    site.copy_of(path).with_name("step-1@sha256").unlink()
    assert site.run() == 0
    assert contents(site.copy_of(path)) == contents(path)


def test_a_server_that_is_down_is_one_sentence_and_the_next_run_makes_up_for_it(site: Site, capfd) -> None:
    path = checkpoint(site, "a/step-1")
    site.failure.write_text("ssh: connect to host backup1 port 22: Connection refused\n")
    assert site.run() == 1
    assert capfd.readouterr().err == (
        "No connection to the backup server backup1: ssh: connect to host backup1 port 22: Connection refused. "
        "The next run tries again.\n"
    )
    assert site.state()["consecutive_failures"] == 1
    assert "last_success" not in site.state()
    site.failure.unlink()
    assert site.run() == 0
    assert contents(site.copy_of(path)) == contents(path)
    assert site.state()["consecutive_failures"] == 0
    assert site.state()["failures"] == []


def test_a_server_that_dies_midway_leaves_no_whole_copy(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoint(site, "a/step-1")
    push = site.program.Server.push

    def die_before_the_marker(server, checkpoint: bytes, name: str, only_marker: bool) -> None:
        if only_marker:
            site.failure.write_text("Connection to backup1 closed by remote host.\n")
        push(server, checkpoint, name, only_marker)

    monkeypatch.setattr(site.program.Server, "push", die_before_the_marker)
    assert site.run() == 1
    assert (site.copy_of(path) / "model.pt").exists()
    assert not (site.copy_of(path) / "COMPLETE").exists()
    monkeypatch.setattr(site.program.Server, "push", push)
    site.failure.unlink()
    assert site.run() == 0
    assert contents(site.copy_of(path)) == contents(path)


def test_one_that_changes_while_it_is_copied_is_not_marked_whole(
    site: Site, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    path = checkpoint(site, "a/step-1", manifest=False)
    same = site.program.Server.same

    def change_after_comparing(*arguments, **options) -> bool:
        result = same(*arguments, **options)
        (path / "model.pt").write_text("changed behind its back")
        return bool(result)

    monkeypatch.setattr(site.program.Server, "same", change_after_comparing)
    assert site.run() == 1
    assert "changed while it was copied" in capfd.readouterr().err
    assert not (site.copy_of(path) / "COMPLETE").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "link").symlink_to("/etc/shadow"), "the link link to /etc/shadow, outside it"),
        (lambda path: (path / "shards/link").symlink_to("../../other"), "to ../../other, outside it"),
        (lambda path: os.mkfifo(path / "pipe"), "holds pipe, which is no file, folder or link"),
    ],
    ids=["absolute link", "relative link out of the checkpoint", "pipe"],
)
def test_what_can_not_be_kept_is_named_and_the_others_are_copied(site: Site, spoil, message: str, capfd) -> None:
    spoil(checkpoint(site, "a/step-1"))
    good = checkpoint(site, "a/step-2")
    assert site.run() == 1
    assert message in capfd.readouterr().err
    assert contents(site.copy_of(good)) == contents(good)
    assert not (site.copy_of(good).parent / "step-1").exists()


def test_a_link_inside_the_checkpoint_is_kept_as_a_link(site: Site, tmp_path: Path) -> None:
    path = checkpoint(site, "a/step-1")
    (path / "newest").symlink_to("shards/0.pt")
    assert site.run() == 0
    assert os.readlink(site.copy_of(path) / "newest") == "shards/0.pt"
    assert site.run("restore", str(path), str(tmp_path / "back")) == 0
    assert os.readlink(tmp_path / "back/newest") == "shards/0.pt"


def test_a_folder_that_is_not_mounted_is_a_failure(site: Site, capfd) -> None:
    site.source.rmdir()
    assert site.run() == 1
    assert "isn't there or isn't a folder: is the shared file system mounted?" in capfd.readouterr().err


def metrics_of(site: Site, folder: Path) -> dict[str, int]:
    lines = (folder / "trainyard-checkpoint-backup.prom").read_text().splitlines()
    values = [line.split() for line in lines if not line.startswith("#")]
    assert lines == [
        line
        for name, value in values
        for line in (next(each for each in lines if f"HELP {name} " in each), f"# TYPE {name} gauge", f"{name} {value}")
    ]
    return {name.removeprefix("trainyard_checkpoint_backup_"): int(value) for name, value in values}


def tell(site: Site, folder: Path) -> None:
    site.configuration.write_text(
        json.dumps({**json.loads(site.configuration.read_text()), "metrics_directory": str(folder)})
    )


def test_metrics_are_written_after_every_run_a_failed_one_too(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    tell(site, folder)
    site.failure.write_text("ssh: connect to host backup1 port 22: No route to host\n")
    checkpoint(site, "run/step-1")
    assert site.run() == 1
    first = metrics_of(site, folder)
    assert first["last_run_timestamp_seconds"] > 1_700_000_000
    assert first == {
        "last_success_timestamp_seconds": 0,
        "last_run_timestamp_seconds": first["last_run_timestamp_seconds"],
        "failures": 1,
        "finished_checkpoints": 1,
        "copied_checkpoints": 0,
    }
    site.failure.write_text("")
    assert site.run() == 0
    second = metrics_of(site, folder)
    assert second["last_success_timestamp_seconds"] == second["last_run_timestamp_seconds"]
    assert (second["failures"], second["finished_checkpoints"], second["copied_checkpoints"]) == (0, 1, 1)
    assert [path.name for path in folder.iterdir()] == ["trainyard-checkpoint-backup.prom"]
    assert (folder / "trainyard-checkpoint-backup.prom").stat().st_mode & 0o777 == 0o644


def test_metrics_that_can_not_be_written_fail_the_run_and_not_the_copy(site: Site, tmp_path: Path, capfd) -> None:
    tell(site, tmp_path / "nowhere")
    path = checkpoint(site, "run/step-1")
    assert site.run() == 1
    assert (
        "nowhere/trainyard-checkpoint-backup.prom can't be written: No such file or directory" in capfd.readouterr().err
    )
    assert contents(site.copy_of(path)) == contents(path)
    assert site.state()["last_success"]


def test_a_name_too_long_for_the_server_is_named(site: Site, capfd) -> None:
    checkpoint(site, "ä" * 100)
    assert site.run() == 1
    assert "is too long a name for the server" in capfd.readouterr().err


def test_a_copy_is_listed_and_comes_back(site: Site, tmp_path: Path, capfd) -> None:
    path = checkpoint(site, "a/step-1")
    (path / "shards/COMPLETE").write_text("a file like any other")
    site.run()
    shutil.move(path, tmp_path / "original")
    capfd.readouterr()
    assert site.run("list") == 0
    assert capfd.readouterr().out == f"{str(path).lstrip('/')}\n"
    assert site.run("restore", str(path), str(path)) == 0
    assert contents(path) == contents(tmp_path / "original")
    assert "every checksum right" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda copy: (copy / "model.pt").write_text("rotten"), "model.pt isn't what was sent"),
        (lambda copy: (copy / "shards/0.pt").unlink(), "shards/0.pt isn't what was sent"),
        (lambda copy: (copy / "COMPLETE").unlink(), "has no whole copy named"),
    ],
    ids=["changed", "missing", "not whole"],
)
def test_a_damaged_copy_does_not_come_back(site: Site, tmp_path: Path, damage, message: str, capfd) -> None:
    path = checkpoint(site, "a/step-1")
    site.run()
    damage(site.copy_of(path))
    target = tmp_path / "back/step-1"
    target.parent.mkdir()
    assert site.run("restore", str(path), str(target)) == 1
    assert message in capfd.readouterr().err
    assert list(target.parent.iterdir()) == []


def test_nothing_is_restored_over_something(site: Site, capfd) -> None:
    path = checkpoint(site, "a/step-1")
    site.run()
    before = contents(path)
    assert site.run("restore", str(path), str(path)) == 1
    assert "is there already" in capfd.readouterr().err
    assert contents(path) == before


def test_two_runs_at_once_are_one(site: Site, capfd) -> None:
    checkpoint(site, "a/step-1")
    with open(site.state_file.parent / "lock", "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert site.run() == 1
    assert "Another run is still copying" in capfd.readouterr().err
    assert site.run() == 0


def test_check_says_whether_the_server_can_be_used(site: Site, capfd) -> None:
    assert site.run("check") == 0
    site.failure.write_text("rrsync error: Another instance of rrsync is already accessing this directory.\n")
    assert site.run("check") == 0
    site.failure.write_text("trainyard-backup@192.0.2.7: Permission denied (publickey).\n")
    assert site.run("check") == 1
    assert "refused the key of this host" in capfd.readouterr().err


def test_the_account_can_not_delete(site: Site) -> None:
    path = checkpoint(site, "a/step-1")
    site.run()
    command = ["rsync", "--rsh=ssh -F x", "-r", "--delete", f"{site.source}/", "checkpoint-backup-server:/"]
    shutil.rmtree(path)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "has been disabled" in result.stderr
    assert (site.copy_of(path) / "COMPLETE").exists()


@pytest.mark.parametrize(
    ("code", "errors", "expected"),
    [
        (255, "Host key verification failed.", "Another machine answers as the backup server b1"),
        (255, "x@b1: Permission denied (publickey,password).", "The backup server b1 refused the key of this host"),
        (255, "ssh: connect to host b1 port 22: No route to host", "No connection to the backup server b1: ssh:"),
        (255, "ssh: Could not resolve hostname b1: Name or service not known", "No connection to the backup server b1"),
        (12, "ssh: connect to host b1 port 22: No route to host", "No connection to the backup server b1: ssh:"),
        (
            12,
            "rsync: connection unexpectedly closed (0 bytes received so far) [Receiver]\nrsync error: error in rsync",
            "No connection to the backup server b1: it was cut. The next run tries again.",
        ),
        (12, "rrsync error: option -b has been disabled on this server.", "ended with 12: rrsync error: option -b has"),
        (30, "[sender] io timeout after 300 seconds -- exiting", "No connection to the backup server b1: [sender] io"),
        (
            11,
            'rsync: [receiver] write failed on "/srv/x": No space left on device (28)\nrsync error: error in file IO',
            "The disk of the backup server b1 is full: rsync: [receiver] write failed",
        ),
        (1, "/usr/bin/rrsync error: Restricted directory does not exist!", "has lost its folder for copies"),
        (
            1,
            "rrsync error: Another instance of rrsync is already accessing this directory.",
            "works on an earlier copy",
        ),
        (
            23,
            'rsync: mkdir "/srv/x" failed: Permission denied (13)\nrsync error: some files could not be transferred',
            'rsync to the backup server b1 ended with 23: rsync: mkdir "/srv/x" failed: Permission denied (13).',
        ),
    ],
)
def test_errors_become_sentences(program: ModuleType, code: int, errors: str, expected: str) -> None:
    settings = program.Configuration((), "b1", "", "", 0, 1)
    assert expected in str(program.explain(code, errors, settings))


def test_a_configuration_that_can_not_be_read_is_named(program: ModuleType, tmp_path: Path, capfd) -> None:
    assert program.main(["--configuration", str(tmp_path / "none"), "run"]) == 1
    assert f"The configuration {tmp_path}/none can't be read" in capfd.readouterr().err
