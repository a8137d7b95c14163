# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docker's packages from those of Debian 13: engine, client, containerd and plugins, under Docker's names and paths.

Debian 12's engine (20.10) knows no CDI. Debian 13's programs need nothing that Debian 12 lacks, except runc.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ..engine import STATE
from ..gpu import debian
from .table import Package

_SUITE = "trixie"
_PLUGINS = "usr/libexec/docker/cli-plugins"
# Package of Docker's: package of Debian's, path there, path here.
_FILES = {
    "docker-ce": (
        ("docker.io", "usr/sbin/dockerd", "usr/bin/dockerd"),
        ("docker.io", "usr/sbin/docker-proxy", "usr/bin/docker-proxy"),
        ("tini", "usr/bin/tini-static", "usr/libexec/docker/docker-init"),
    ),
    "docker-ce-cli": (("docker-cli", "usr/bin/docker", "usr/bin/docker"),),
    "containerd.io": (
        ("containerd", "usr/bin/containerd", "usr/bin/containerd"),
        ("containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/containerd-shim-runc-v2"),
        ("containerd", "usr/bin/ctr", "usr/bin/ctr"),
        # usr/bin/runc is a program of the stand-in's that knows test hosts.
        ("runc", "usr/sbin/runc", "usr/libexec/containerd.io-standin/runc"),
    ),
    "docker-buildx-plugin": (("docker-buildx", f"{_PLUGINS}/docker-buildx", f"{_PLUGINS}/docker-buildx"),),
    "docker-compose-plugin": (("docker-compose", f"{_PLUGINS}/docker-compose", f"{_PLUGINS}/docker-compose"),),
}
_OWN_SUITE = {"runc"}  # linked with the suite's C library and libseccomp
_OLD = {"bookworm", "jammy"}  # hosts dressed as Ubuntu 22.04 are Debian 12


def fill(tree: Path, package: Package) -> None:
    """Put Debian's programs into a package of Docker's."""
    old = package.suite.rpartition("/")[2] in _OLD
    for source_package, source, target in _FILES[package.name]:
        suite = "bookworm" if old and source_package in _OWN_SUITE else _SUITE
        root = debian.unpack(suite, [source_package], STATE / "gpu")
        path = tree / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / source, path)
        path.chmod(0o755)
