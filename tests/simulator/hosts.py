"""Instances of the simulator: a network, a shared directory and the hosts on them."""

from __future__ import annotations

import ipaddress
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import gpu, images, packages, vendor
from .engine import RUNTIME, STATE, Podman, SimulatorError, locked, remove_state

CHECKOUT = Path(__file__).resolve().parents[2]
# Parts of 198.18.0.0/24, the range set aside for benchmarks: a user's cluster, hosts for trying things out, and the
# hosts of the tests live side by side.
NETWORKS = {
    "cluster": ipaddress.ip_network("198.18.0.0/26"),
    "scratch": ipaddress.ip_network("198.18.0.64/26"),
    "test": ipaddress.ip_network("198.18.0.128/26"),
}
_FIRST_HOST, _LAST_HOST = 10, 62
# What systemd, Slurm's device constraint and Docker need, which is less than --privileged gives:
# no disk of the outer machine is visible, and /sys is read-only.
_CAPABILITIES = "SYS_ADMIN,NET_ADMIN,NET_RAW,SYS_PTRACE,SYS_NICE,BPF,PERFMON,MKNOD,AUDIT_WRITE,DAC_READ_SEARCH,IPC_LOCK"
_BOOT_SECONDS = 60
_READY = "/var/lib/trainyard-simulated"


@dataclass(frozen=True)
class Host:
    """A test host as wanted: `NAME[:SUITE[:PROFILE:COUNT]]`, where PROFILE and COUNT are its simulated GPUs.

    The name `mirror` is the vendor mirror's, whose contents the simulator brings; it takes no SUITE.
    """

    name: str
    suite: str = "trixie"
    gpu_profile: str | None = None
    gpu_count: int = 0

    @classmethod
    def parse(cls, text: str) -> Host:
        """Read the command line's form; raise SimulatorError with the form when it isn't one."""
        parts = text.split(":")
        form = f"host '{text}': write NAME[:SUITE[:PROFILE:COUNT]], for instance gpu1:trixie:h100-sxm-80gb:8"
        if len(parts) not in (1, 2, 4) or not parts[0]:
            raise SimulatorError(form)
        if len(parts) > 1 and parts[1] not in images.SUITES:
            raise SimulatorError(f"{form}; SUITE is one of {', '.join(images.SUITES)}")
        if len(parts) == 4 and not parts[3].isdigit():
            raise SimulatorError(form)
        if parts[0] == images.MIRROR:
            if len(parts) > 1:
                raise SimulatorError(f"host '{text}': write mirror; what the vendor mirror runs on isn't for choice")
            return MIRROR
        suite = parts[1] if len(parts) > 1 else cls.suite
        return cls(parts[0], suite, *((parts[2], int(parts[3])) if len(parts) == 4 else ()))


MIRROR = Host(images.MIRROR, suite=images.MIRROR)
CLUSTER = (
    MIRROR,
    Host("ctl"),
    Host("gpu1", gpu_profile="h100-sxm-80gb", gpu_count=8),
    Host("gpu2", gpu_profile="h100-sxm-80gb", gpu_count=8),
    Host("backup1", suite="bookworm"),
)


@dataclass
class _Record:
    """What is remembered of an instance: the checkout it belongs to, and its hosts' names and addresses."""

    owner: str
    hosts: dict[str, str] = field(default_factory=dict)


class Instance:
    """One network with its hosts; every method may be called again after an interruption at any point."""

    def __init__(self, name: str) -> None:
        if name not in NETWORKS:
            raise SimulatorError(f"instance '{name}': write one of {', '.join(NETWORKS)}")
        self.name = name
        self.podman = Podman()
        self.shared = STATE / "shared" / name
        self.ssh_config = CHECKOUT / ".cache/sim" / name / "ssh_config"
        self.mirror = CHECKOUT / ".cache/sim" / name / "mirror.json"
        self._network = f"trainyard-{name}"
        self._record = STATE / f"{name}.json"

    def addresses(self) -> dict[str, str]:
        """Names and addresses of the hosts, in the order in which they were made."""
        return self._load().hosts

    def running(self, host: str) -> bool:
        """Whether a host is up."""
        return self.podman("ps", "--quiet", "--filter", f"name=^{self._container(host)}$") != ""

    def up(self, wanted: Iterable[Host]) -> list[str]:
        """Boot the hosts that aren't up and whole, beside those that are. Returns the names of the new ones."""
        wanted = list(wanted)
        with locked(self.name):
            self.refuse_another_checkout()
            packages.start_cache()
            self._ensure_network()
            self.shared.mkdir(mode=0o755, parents=True, exist_ok=True)
            record = self._load()
            if MIRROR in wanted:
                self._publish()
            fresh = [host for host in wanted if not self._ready(host.name)]
            trees = {host: gpu.host_tree(host.suite) for host in fresh if host.gpu_profile}
            for host in fresh:
                record.hosts.setdefault(host.name, self._free_address(record))
                self._save(record)
                self._boot(host, record.hosts[host.name])
            for host in fresh:
                self._wait(host.name)
                if host.gpu_profile:
                    gpu.install(self.podman, self._container(host.name), trees[host], host.gpu_profile, host.gpu_count)
                self.execute(host.name, "touch", _READY)
            self._tell_names(record)
        return [host.name for host in fresh]

    def down(self, names: Iterable[str] = ()) -> None:
        """Remove hosts; without names all of them, the network and the shared directory."""
        with locked(self.name):
            record = self._load()
            chosen = list(names)
            for host in chosen or list(record.hosts):
                self._remove(host)
                record.hosts.pop(host, None)
                self._save(record)
                if host == MIRROR.name:
                    self.mirror.unlink(missing_ok=True)
                    vendor.withdraw(self.name)
            if chosen:
                self._tell_names(record)
                return
            if self.podman.succeeds("network", "exists", self._network):
                self.podman("network", "rm", "--force", self._network)
            for folder in (self.shared, self.ssh_config.parent):
                shutil.rmtree(folder, ignore_errors=True)
            self._record.unlink(missing_ok=True)

    def execute(self, host: str, *command: str) -> str:
        """Run a command on a host as root, without ssh."""
        return self.podman("exec", self._container(host), *command)

    def stop(self, host: str) -> None:
        """Switch a host off, as a power failure would."""
        self.podman("kill", self._container(host))

    def start(self, host: str) -> None:
        """Switch a host on again."""
        self.podman("start", self._container(host))
        self._wait(host)
        self._tell_names(self._load())

    def _container(self, host: str) -> str:
        return f"trainyard-{self.name}-{host}"

    def _ready(self, host: str) -> bool:
        """Whether a host is up and whole: one whose making was interrupted is made again."""
        return self.running(host) and self.podman.succeeds("exec", self._container(host), "test", "-e", _READY)

    def _load(self) -> _Record:
        if self._record.exists():
            return _Record(**json.loads(self._record.read_text()))
        return _Record(str(CHECKOUT))

    def _save(self, record: _Record) -> None:
        partial = self._record.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(record), indent=2))
        partial.replace(self._record)

    def _remove(self, host: str) -> None:
        self.podman("rm", "--force", "--time", "0", "--ignore", "--volumes", self._container(host))

    def refuse_another_checkout(self) -> None:
        """Two checkouts can't share a network; one whose hosts are gone leaves no claim."""
        record = self._load()
        if record.owner == str(CHECKOUT):
            return
        if Path(record.owner).exists() and any(self.running(host) for host in record.hosts):
            raise SimulatorError(
                f"the simulated hosts of {record.owner} are up; remove them there: "
                f"cd {record.owner} && .venv/bin/python -m tests.simulator down {self.name}"
            )
        for host in record.hosts:
            self._remove(host)
        shutil.rmtree(self.shared, ignore_errors=True)
        self._record.unlink()

    def _ensure_network(self) -> None:
        if not self.podman.succeeds("network", "exists", self._network):
            self.podman("network", "create", "--disable-dns", "--subnet", str(NETWORKS[self.name]), self._network)
            self._keep_leases_until_reboot()

    def _keep_leases_until_reboot(self) -> None:
        """Hosts don't outlive a reboot of the machine, and the addresses that CNI noted for them would stay taken."""
        file = STATE / "networks" / f"{self._network}.conflist"
        if not file.exists():  # netavark keeps them so by itself
            return
        configuration = json.loads(file.read_text())
        for plugin in configuration["plugins"]:
            if "ipam" in plugin:
                plugin["ipam"]["dataDir"] = str(RUNTIME / "addresses")
        file.write_text(json.dumps(configuration, indent=2))

    def _free_address(self, record: _Record) -> str:
        for number in range(_FIRST_HOST, _LAST_HOST):
            address = str(NETWORKS[self.name][number])
            if address not in record.hosts.values():
                return address
        raise SimulatorError(
            f"instance {self.name} is full; remove hosts: python -m tests.simulator down {self.name} HOST"
        )

    def _publish(self) -> None:
        """Let the mirror serve what the table says now, and tell clients what they must know of it."""
        published = vendor.publish(self.name)
        self.mirror.parent.mkdir(parents=True, exist_ok=True)
        self.mirror.write_text(published.answers(), encoding="utf-8")

    def _boot(self, host: Host, address: str) -> None:
        container = self._container(host.name)
        self._remove(host.name)
        self.podman(
            "run", "--detach", "--name", container, "--hostname", host.name,
            "--network", self._network, "--ip", address, "--no-hosts",
            "--systemd=always", f"--cap-add={_CAPABILITIES}", "--device-cgroup-rule=c *:* rwm",
            "--security-opt=seccomp=unconfined", "--security-opt=unmask=ALL",
            "--restart=always", "--volume", f"{self.shared}:/shared",
            # An overlay can't lie on the host's own: containers inside need folders of the machine's file system.
            "--volume", "/var/lib/docker", "--volume", "/var/lib/containerd",
            *(vendor.volumes(self.name) if host == MIRROR else ()),
            images.ensure(self.podman, host.suite), "/sbin/init",
        )  # fmt: skip

    def _wait(self, host: str) -> None:
        deadline = time.monotonic() + _BOOT_SECONDS
        state = ""
        while time.monotonic() < deadline:
            question = self.podman.command("exec", self._container(host), "systemctl", "is-system-running")
            answer = subprocess.run(question, capture_output=True, text=True, check=False)
            state = answer.stdout.strip()
            if state == "running" and self._answers(host):
                return
            if state == "degraded":
                failed = self.execute(host, "systemctl", "--failed", "--no-legend", "--plain")
                raise SimulatorError(f"test host {host} booted with failed units: {failed}")
            time.sleep(0.2)
        raise SimulatorError(f"test host {host} isn't up after {_BOOT_SECONDS} s (systemd says '{state}')")

    def _answers(self, host: str) -> bool:
        """Whether ssh answers: a host made again at its old address is unreachable until the neighbours notice."""
        try:
            with socket.create_connection((self.addresses()[host], 22), timeout=1):
                return True
        except OSError:
            return False

    def _tell_names(self, record: _Record) -> None:
        """Write every host's /etc/hosts, and the ssh configuration that inventories/sim uses."""
        names = "".join(f"{address} {name}\n" for name, address in record.hosts.items())
        text = f"127.0.0.1 localhost\n::1 localhost\n{names}"
        for host in record.hosts:
            if self.running(host):
                command = self.podman.command("exec", "--interactive", self._container(host), "tee", "/etc/hosts")
                subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
        stanzas = [f"Host {name}\n  HostName {address}\n" for name, address in record.hosts.items()]
        common = (
            f"Host *\n  User root\n  IdentityFile {images.SSH_KEY}\n  IdentitiesOnly yes\n  LogLevel ERROR\n"
            "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
        )
        self.ssh_config.parent.mkdir(parents=True, exist_ok=True)
        self.ssh_config.write_text("\n".join([*stanzas, common]))


def purge() -> None:
    """Remove the hosts of this checkout, the package cache and everything that is kept on the disk.

    Raises SimulatorError, with nothing removed, where hosts of another checkout are up.
    """
    instances = [Instance(name) for name in NETWORKS]
    for instance in instances:
        instance.refuse_another_checkout()
    for instance in instances:
        instance.down()
    packages.stop_cache()
    packages.forget_address()
    remove_state()
