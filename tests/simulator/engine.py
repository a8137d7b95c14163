"""podman, run so that it leaves the machine and the user's own containers alone.

On an ordinary machine podman works as the distribution set it up: systemd makes the hosts' cgroups, rlimits are as
wanted. Three things can be missing; each is looked for and made up for:

- one pure cgroup2 hierarchy (hybrid machines mount v1 controllers beside it): podman runs in a mount namespace
  of its own where /sys/fs/cgroup is a cgroup2 mount; the machine's own mounts stay as they are;
- CAP_SYS_RESOURCE: rlimits can't be raised, so a wrapper takes them out of what runc is told;
- inotify instances: each systemd needs several, the kernel's default of 128 serves about 20 hosts.

AppArmor, where the machine has it, would let a container mount nothing, and a test host's systemd mounts a lot: test
hosts run unconfined.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

# Images, hosts and cached packages are the machine's, not the checkout's: a second clone need not build them again.
STATE = Path("/var/lib/trainyard-sim")
RUNTIME = Path("/run/trainyard-sim")
FILES = Path(__file__).parent / "files"
# ansible-test refuses this line in a collection's files, so a program gets it where it is installed.
PYTHON = "#!/usr/bin/python3\n"
_CGROUPS = Path("/sys/fs/cgroup")
_PROCESS = Path("/proc/self")
_RUN = Path("/run")
_CAP_SYS_RESOURCE = 24
_INOTIFY_INSTANCES = 2048


class SimulatorError(Exception):
    """What went wrong, in a sentence that says what to do."""


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it printed; raise SimulatorError with its own words when it fails."""
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, check=True, text=True, capture_output=True)
    except FileNotFoundError as error:
        raise SimulatorError(f"{words[0]} isn't installed; run `make setup` as root") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip()
        raise SimulatorError(f"`{' '.join(words)}` failed: {said}") from error


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Let one process at a time work on what the name stands for."""
    STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
    with open(STATE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_state() -> None:
    """Remove everything on the disk, and the mounts that would keep it there. No host may be up."""
    mounts = [line.split()[4] for line in (_PROCESS / "mountinfo").read_text().splitlines()]
    for mount in reversed(mounts):
        if STATE in Path(mount).parents:
            run(["umount", mount])
    for folder in (STATE, RUNTIME):
        if folder.exists():
            shutil.rmtree(folder)


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def hybrid_cgroups() -> bool:
    """Whether this machine mounts cgroup v1 controllers, so that /sys/fs/cgroup isn't one cgroup2 hierarchy."""
    return not (_CGROUPS / "cgroup.controllers").exists()


def shows_v1_hierarchies() -> bool:
    """Whether programs find cgroup v1 hierarchies in /proc/PID/cgroup, wherever on this machine those are mounted.

    A machine with one cgroup2 hierarchy in /sys/fs/cgroup can have some: a VPN client that mounts net_cls, a container
    on a hybrid machine.
    """
    return any(not line.startswith("0::") for line in (_PROCESS / "cgroup").read_text().splitlines())


def systemd_makes_cgroups() -> bool:
    """Whether systemd can be asked for cgroups: it takes controllers away from those made behind its back."""
    booted = (_RUN / "systemd/system").is_dir() and (_RUN / "dbus/system_bus_socket").exists()
    return booted and not hybrid_cgroups()


def may_raise_limits() -> bool:
    """Whether this process holds CAP_SYS_RESOURCE."""
    for line in (_PROCESS / "status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return True


class Podman:
    """The container engine with a storage of its own."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise SimulatorError("test hosts boot systemd and have a network of their own: run this as root")
        if not shutil.which("podman"):
            raise SimulatorError("podman isn't installed; install it: apt-get install podman")
        STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._prepare_limits()
        self._configuration = self._write_configuration()

    @cached_property
    def _prefix(self) -> list[str]:
        """What stands before every podman command: nothing, or the way into the mount namespace."""
        if not hybrid_cgroups():
            return []
        handle = STATE / "mount-namespace" / "handle"
        if not _succeeds(["nsenter", f"--mount={handle}", "test", "-e", "/sys/fs/cgroup/cgroup.controllers"]):
            self._make_mount_namespace(handle)
        return ["nsenter", f"--mount={handle}"]

    @staticmethod
    def _make_mount_namespace(handle: Path) -> None:
        folder = handle.parent
        folder.mkdir(exist_ok=True)
        # A namespace can only be kept by a bind mount on a private mount.
        if not _succeeds(["mountpoint", "-q", str(folder)]):
            run(["mount", "--bind", folder, folder])
            run(["mount", "--make-private", folder])
        handle.touch()
        one_hierarchy = "umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup"
        run(["unshare", f"--mount={handle}", "--propagation", "private", "sh", "-ec", one_hierarchy])

    @staticmethod
    def _prepare_limits() -> None:
        setting = Path("/proc/sys/fs/inotify/max_user_instances")
        if int(setting.read_text()) < _INOTIFY_INSTANCES:
            setting.write_text(f"{_INOTIFY_INSTANCES}\n")

    @staticmethod
    def _write_configuration() -> Path:
        runtime = "/usr/sbin/runc" if Path("/usr/sbin/runc").exists() else str(shutil.which("runc") or "runc")
        if not may_raise_limits():
            wrapper = STATE / "runc-without-rlimits"
            wrapper.write_text(PYTHON + (FILES / "runc-without-rlimits").read_text().replace("@RUNC@", runtime))
            wrapper.chmod(0o755)
            runtime = str(wrapper)
        manager = "systemd" if systemd_makes_cgroups() else "cgroupfs"
        configuration = STATE / "containers.conf"
        configuration.write_text(
            '[containers]\napparmor_profile = "unconfined"\ncgroupns = "private"\ndefault_ulimits = []\n'
            'pids_limit = 0\nlog_driver = "none"\n'
            f'[engine]\ncgroup_manager = "{manager}"\nevents_logger = "none"\nruntime = "sim"\n'
            f'[engine.runtimes]\nsim = ["{runtime}"]\n'
            f'[network]\nnetwork_config_dir = "{STATE}/networks"\n'
        )
        policy = STATE / "policy.json"
        policy.write_text(
            '{"default": [{"type": "insecureAcceptAnything"}]}\n'
        )  # images are imported from our own tar files
        return configuration

    def command(self, *arguments: str | Path) -> list[str]:
        """The whole command line for a podman command."""
        storage = ["--root", str(STATE / "storage"), "--runroot", str(RUNTIME), "--storage-driver", "overlay"]
        environment = ["env", f"CONTAINERS_CONF={self._configuration}"]
        return [*self._prefix, *environment, "podman", *storage, *(str(argument) for argument in arguments)]

    def __call__(self, *arguments: str | Path) -> str:
        """Run a podman command and return what it printed."""
        return run(self.command(*arguments)).stdout.strip()

    def succeeds(self, *arguments: str | Path) -> bool:
        """Whether a podman command ends well; for questions such as `image exists`."""
        return _succeeds(self.command(*arguments))
