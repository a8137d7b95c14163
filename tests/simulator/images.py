"""Images for test hosts: what an installer leaves on a server, nothing that a role under test installs.

Debian itself; Debian dressed as Ubuntu, for the choices that roles make by a distribution's name and version; and the
vendor mirror.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import packages
from .engine import FILES, STATE, Podman, locked, run, shows_v1_hierarchies

SUITES = {
    "bookworm": "Debian 12",
    "trixie": "Debian 13",
    "jammy": "Debian 12 dressed as Ubuntu 22.04",
    "noble": "Debian 13 dressed as Ubuntu 24.04",
}
MIRROR = "mirror"
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


@dataclass(frozen=True)
class _Layer:
    """An image made by a script on another one."""

    base: str
    script: str


def ubuntu_files(version: str, name: str) -> dict[str, str]:
    """What makes Debian say that it is Ubuntu, wherever a program asks."""
    codename = name.split(maxsplit=1)[0].lower()
    release = f"Ubuntu {version} LTS"
    return {
        "/usr/lib/os-release": (
            f'PRETTY_NAME="{release}"\nNAME="Ubuntu"\nVERSION_ID="{version}"\nVERSION="{version} LTS ({name})"\n'
            f"VERSION_CODENAME={codename}\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME={codename}\n"
        ),
        "/etc/lsb-release": (
            f"DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE={version}\nDISTRIB_CODENAME={codename}\n"
            f'DISTRIB_DESCRIPTION="{release}"\n'
        ),
        "/etc/dpkg/origins/ubuntu": "Vendor: Ubuntu\nVendor-URL: https://www.ubuntu.com/\nParent: Debian\n",
        "/usr/bin/lsb_release": _LSB_RELEASE,
    }


_LSB_RELEASE = """\
#!/bin/sh
# Answers as Ubuntu's package lsb-release: lsb_release [-s] [-a|-i|-d|-r|-c]
. "${LSB_RELEASE_FILE:-/etc/lsb-release}"
short= wanted=
for word in "$@"; do
    case $word in
        --short) short=1 ;;
        --all) wanted=idrc ;;
        --*) word=${word#--}; wanted=$wanted$(echo "$word" | cut -c1) ;;
        -*) case $word in *s*) short=1 ;; esac; wanted=$wanted$(echo "$word" | tr -d s- | sed s/a/idrc/) ;;
    esac
done
show() { if [ "$short" ]; then echo "$2"; else printf '%s:\\t%s\\n' "$1" "$2"; fi; }
case $wanted in *i*) show 'Distributor ID' "$DISTRIB_ID" ;; esac
case $wanted in *d*) show Description "$DISTRIB_DESCRIPTION" ;; esac
case $wanted in *r*) show Release "$DISTRIB_RELEASE" ;; esac
case $wanted in *c*) show Codename "$DISTRIB_CODENAME" ;; esac
"""


def _ubuntu(base: str, version: str, name: str) -> _Layer:
    """Debian dressed as Ubuntu; apt's sources stay Debian's."""
    files = ubuntu_files(version, name)
    texts = [f"cat >{path} <<'END OF FILE'\n{text}END OF FILE\n" for path, text in files.items()]
    rest = (
        "chmod 755 /usr/bin/lsb_release",
        "ln -sf ubuntu /etc/dpkg/origins/default",
        f"echo {base}/sid >/etc/debian_version",
    )
    return _Layer(base, "".join(["set -eu\n", *texts, *(f"{line}\n" for line in rest)]))


# /srv/mirror/current and the keys are mounted (vendor/mirror.py). Nothing else runs there, so nobody minds root.
_MIRROR = """\
set -eu
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends nginx docker-registry >/dev/null
rm -rf /usr/sbin/policy-rc.d /var/lib/apt/lists/* /var/cache/apt/*.bin
cat >/etc/nginx/sites-enabled/default <<'END'
server {
    listen 80 default_server;
    root /srv/mirror/current/web;
    default_type text/plain;
    access_log off;
}
END
cat >/etc/docker/registry/config.yml <<'END'
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage:
  filesystem: {rootdirectory: /srv/mirror/current/registry}
  maintenance: {readonly: {enabled: true}}
http:
  addr: ":5000"
  tls: {certificate: /srv/registry-keys/registry.pem, key: /srv/registry-keys/registry.key}
END
mkdir -p /etc/systemd/system/docker-registry.service.d
printf '[Service]\nUser=root\n' >/etc/systemd/system/docker-registry.service.d/simulator.conf
"""

_LAYERS = {
    "jammy": _ubuntu("bookworm", "22.04", "Jammy Jellyfish"),
    "noble": _ubuntu("trixie", "24.04", "Noble Numbat"),
    MIRROR: _Layer("trixie", _MIRROR),
}


def ensure(podman: Podman, suite: str) -> str:
    """Return the name of a suite's image, built first where it is missing or its recipe changed (25 seconds)."""
    with locked("images"):
        return _ensure(podman, suite)


def _ensure(podman: Podman, suite: str) -> str:
    if layer := _LAYERS.get(suite):
        base = _ensure(podman, layer.base)
        image = _name(suite, base + layer.script)
        if not podman.succeeds("image", "exists", image):
            _build_layer(podman, suite, base, layer.script, image)
        return image
    _ensure_ssh_key()
    staged = {
        "debian.sources": packages.machine_mirror().sources(suite),
        "01simulator-cache": packages.host_proxy_settings(MIRROR),
        "authorized_keys": SSH_KEY.with_suffix(".pub").read_text(),
        "customize": _CUSTOMIZE,
        **_UNITS,
    }
    if shows_v1_hierarchies():
        staged["cgroup2-only.c"] = (FILES / "cgroup2-only.c").read_text()
    image = _name(suite, "".join([_PACKAGES, *staged.values()]))
    if not podman.succeeds("image", "exists", image):
        _build(podman, suite, staged, image)
    return image


def _name(suite: str, recipe: str) -> str:
    return f"localhost/trainyard-sim-{suite}:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def _build_layer(podman: Podman, suite: str, base: str, script: str, image: str) -> None:
    packages.start_cache()
    container = f"trainyard-image-{suite}"
    podman("rm", "--force", "--ignore", container)
    # The package cache is at an address of this machine.
    podman("run", "--name", container, "--network=host", "--security-opt=seccomp=unconfined", base, "sh", "-c", script)
    podman("commit", "--quiet", container, image)
    podman("rm", container)
    _remove_outdated(podman, suite, image)


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
    _remove_outdated(podman, suite, image)


def _remove_outdated(podman: Podman, suite: str, image: str) -> None:
    same_suite = f"reference=localhost/trainyard-sim-{suite}"
    outdated = podman("image", "ls", "--quiet", "--filter", same_suite, "--filter", f"before={image}")
    for old in outdated.split():
        podman.succeeds("image", "rm", old)  # refused while a host runs on it


def _ensure_ssh_key() -> None:
    if not Path(SSH_KEY).exists():
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "trainyard simulator", "-f", SSH_KEY])
