"""Bare Debian images for test hosts: what an installer leaves on a server, nothing that a role under test installs."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from . import packages
from .engine import FILES, STATE, Podman, hybrid_cgroups, locked, run

SUITES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
_PACKAGES = (
    "systemd,systemd-sysv,dbus,python3,python3-apt,iproute2,iputils-ping,openssh-server,ca-certificates,"
    "debian-archive-keyring,kmod,procps,sudo"
)
SSH_KEY = STATE / "ssh_key"

# Runs in the new file tree ($1). A copied machine would share its machine-id and ssh host keys with every other.
_CUSTOMIZE = """\
set -eu
root=$1
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/etc/apt/apt.conf.d/99mmdebstrap
rm -f "$root"/etc/ssh/ssh_host_*
cp "$SIM_STAGE"/debian.sources "$root"/etc/apt/sources.list.d/
cp "$SIM_STAGE"/01simulator-cache "$root"/etc/apt/apt.conf.d/
: > "$root"/etc/machine-id
install -d -m 700 "$root"/root/.ssh
install -m 600 "$SIM_STAGE"/authorized_keys "$root"/root/.ssh/
install -D -m 644 "$SIM_STAGE"/host-keys.conf "$root"/etc/systemd/system/ssh.service.d/simulator.conf
install -m 644 "$SIM_STAGE"/simulator-boot-id.service "$root"/etc/systemd/system/
install -d "$root"/etc/systemd/system/sysinit.target.wants
ln -s ../simulator-boot-id.service "$root"/etc/systemd/system/sysinit.target.wants/
for unit in systemd-modules-load.service systemd-udevd.service systemd-resolved.service \\
        apt-daily.timer apt-daily-upgrade.timer; do
    ln -sf /dev/null "$root"/etc/systemd/system/$unit
done
if [ -e "$SIM_STAGE"/cgroup2-only.so ]; then
    install -D -m 644 "$SIM_STAGE"/cgroup2-only.so "$root"/opt/simulator/cgroup2-only.so
    install -D -m 644 "$SIM_STAGE"/slurmd.conf "$root"/etc/systemd/system/slurmd.service.d/simulator.conf
fi
"""


_UNITS = {
    "host-keys.conf": """\
# Simulated machines come without host keys; each makes its own.
[Service]
ExecStartPre=
ExecStartPre=/usr/bin/ssh-keygen -A
ExecStartPre=/usr/sbin/sshd -t
""",
    "simulator-boot-id.service": """\
[Unit]
Description=Give each boot of this simulated machine an id of its own, by which a reboot is told
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/uuid >/run/boot_id'
ExecStart=/bin/mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
""",
    "slurmd.conf": """\
# The outer machine's cgroup v1 controllers are visible here in /proc; slurmd must not see them.
[Service]
Environment=LD_PRELOAD=/opt/simulator/cgroup2-only.so
""",
}


def ensure(podman: Podman, suite: str) -> str:
    """Return the name of a suite's image, built first where it is missing or its recipe changed (25 seconds)."""
    with locked("images"):
        _ensure_ssh_key()
        staged = {
            "debian.sources": packages.machine_mirror().sources(suite),
            "01simulator-cache": packages.proxy_setting(),
            "authorized_keys": SSH_KEY.with_suffix(".pub").read_text(),
            "customize": _CUSTOMIZE,
            **_UNITS,
        }
        if hybrid_cgroups():
            staged["cgroup2-only.c"] = (FILES / "cgroup2-only.c").read_text()
        recipe = "".join([_PACKAGES, *staged.values()])
        image = f"localhost/trainyard-sim-{suite}:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
        if not podman.succeeds("image", "exists", image):
            _build(podman, suite, staged, image)
        return image


def _build(podman: Podman, suite: str, staged: dict[str, str], image: str) -> None:
    packages.start_cache()
    stage = STATE / "stage" / suite
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    for name, text in staged.items():
        (stage / name).write_text(text)
    if "cgroup2-only.c" in staged:
        run(["gcc", "-O1", "-shared", "-fPIC", "-o", stage / "cgroup2-only.so", stage / "cgroup2-only.c", "-ldl"])
    archive = stage / "image.tar"
    run([
        "mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}",
        f"--aptopt={packages.proxy_setting().strip()}",
        f'--customize-hook=SIM_STAGE={stage} sh {stage}/customize "$1"',
        suite, archive, stage / "debian.sources",
    ])  # fmt: skip
    podman("import", archive, image)
    archive.unlink()
    same_suite = f"reference=localhost/trainyard-sim-{suite}"
    outdated = podman("image", "ls", "--quiet", "--filter", same_suite, "--filter", f"before={image}")
    for old in outdated.split():
        podman.succeeds("image", "rm", old)  # refused while a host runs on it


def _ensure_ssh_key() -> None:
    if not Path(SSH_KEY).exists():
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "trainyard simulator", "-f", SSH_KEY])
