from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils import _machine

MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /proc rw - proc proc rw
41 22 0:40 / /mnt/training\\040data rw,relatime - nfs4 filer:/export rw,vers=4.2
42 22 0:41 / /shared rw - tmpfs old rw
43 22 0:42 / /shared rw - lustre mgs:/fs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/shared", ("/shared", "lustre")),
        ("/shared/examples", ("/shared", "lustre")),
        ("/shared2", ("/", "ext4")),
        ("/mnt/training data/a", ("/mnt/training data", "nfs4")),
        ("/", ("/", "ext4")),
    ],
    ids=["mounted over another", "below it", "only begins like it", "with a space", "the root"],
)
def test_mount_of(path: str, expected: tuple[str, str]) -> None:
    assert _machine.mount_of(path, MOUNTS) == expected


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert _machine.shared_directory(str(tmp_path / "none"), MOUNTS).problem == "is not there"


def test_a_directory_on_the_root_file_system(tmp_path: Path) -> None:
    directory = _machine.shared_directory(str(tmp_path), MOUNTS)
    assert directory.problem == "is not mounted: it lies on the machine's own root file system"


def test_a_directory_that_is_mounted_and_writable(tmp_path: Path) -> None:
    mounts = f"{MOUNTS}50 22 0:50 / {tmp_path} rw - nfs4 filer:/x rw\n"
    directory = _machine.shared_directory(str(tmp_path), mounts)
    assert directory == _machine.Directory(str(tmp_path), str(tmp_path), "nfs4", None)


def test_a_directory_that_is_read_only() -> None:
    assert _machine.shared_directory("/proc/sys", MOUNTS).problem == "is not writable for root"


def test_a_directory_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "_WRITABLE", "import time; time.sleep(30)")
    directory = _machine.shared_directory("/shared", MOUNTS, timeout_seconds=0.2)
    assert directory.problem == "does not answer within 0.2 seconds"


def test_os_release() -> None:
    text = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_ID="13"\n# COMMENT=x\n\n'
    release = _machine.os_release(text)
    assert (release["ID"], release["VERSION_ID"]) == ("debian", "13")
    assert "# COMMENT" not in release


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(name: str, *_arguments: object, **_options: object) -> list[tuple[object, ...]]:
        asked.append(name)
        if name == "gpu1":
            return [
                (2, 1, 6, "", (address, 0)) for address in ("198.18.0.11", "198.18.0.11", "fd00::11", "fe80::1%eth0")
            ]
        raise socket.gaierror(socket.EAI_NONAME if name == "gpu2" else socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    names = ["gpu1", "gpu2", "a", "b", "c", "d", "e"]
    found = _machine.addresses(names)
    assert found == {**{name: [] for name in names}, "gpu1": ["198.18.0.11", "fd00::11"]}
    assert asked == ["gpu1", "gpu2", "a", "b", "c"], "dead name servers are asked a few times, not once a host"


def test_users_and_who_holds_their_ids() -> None:
    me = pwd.getpwuid(os.getuid())
    assert _machine.users([me.pw_name, "no-such-user"]) == {
        me.pw_name: {"uid": me.pw_uid, "gid": me.pw_gid},
        "no-such-user": None,
    }
    held = _machine.holders([{"uid": me.pw_uid, "gid": 54321}])
    assert held == {"uid": {str(me.pw_uid): me.pw_name}, "gid": {}}
