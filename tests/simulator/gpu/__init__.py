# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Simulated GPUs for test hosts: README.md beside this file says what is real and what is not.

tree = host_tree("trixie")                                   a folder to be copied to / of a host
install(podman, container, tree, "h100-sxm-80gb", 8)         copies it and puts the GPUs in
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from ..engine import STATE, Podman
from . import profile
from .library import build_libraries

_HOST = Path(__file__).parent / "host"
_PROGRAM = "/opt/simgpu/bin/simgpu"
# Ahead of the real ones in root's PATH; each passes on what doesn't concern the simulated modules.
_SHIMS = {"usr/local/sbin": ("modprobe", "rmmod", "lsmod", "modinfo"), "usr/local/bin": ("simgpu", "dmesg")}


def host_tree(suite: str, cache: Path = STATE / "gpu") -> Path:
    """Build what a host needs, once for as long as no source changes, and return it as a folder that stands for /.

    suite: one build serves all; named so that a later one can differ.
    """
    del suite
    libraries = build_libraries(cache)
    tree = cache / "trees" / _digest(libraries)
    if not tree.is_dir():
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
            whole = Path(scratch) / "tree"
            _assemble(whole, libraries)
            try:
                os.rename(whole, tree)
            except OSError:
                if not tree.is_dir():  # someone else may have made it meanwhile
                    raise
    return tree


def install_command(profile_name: str, count: int) -> list[str]:
    """What to run on a host once the tree is there; again after a change of profile or count."""
    return [_PROGRAM, "install", "--profile", f"/opt/simgpu/profiles/{profile_name}.json", "--count", str(count)]


def install(podman: Podman, container: str, tree: Path, profile_name: str, count: int) -> None:
    """Put GPUs into a running test host."""
    profile.load(profile_name)  # a wrong name is told here, with the choice there is
    podman("cp", f"{tree}/.", f"{container}:/")
    podman("exec", container, *install_command(profile_name, count))


def _digest(libraries: Path) -> str:
    digest = hashlib.sha256(libraries.name.encode())
    for path in sorted([*_HOST.rglob("*"), *profile.FOLDER.glob("*.yml"), Path(__file__), Path(profile.__file__)]):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _assemble(tree: Path, libraries: Path) -> None:
    simgpu = tree / "opt/simgpu"
    for name in ("bin", "lib"):
        shutil.copytree(_HOST / name, simgpu / name, ignore=shutil.ignore_patterns("__pycache__"))
    for source in profile.FOLDER.glob("*.yml"):
        target = simgpu / "profiles" / f"{source.stem}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(profile.load(source), indent=1) + "\n", encoding="utf-8")
    shutil.copytree(libraries, tree / "usr/local/lib/simgpu")
    # The dynamic loader's first folder: the libraries of the real packages come behind it, whenever they are installed.
    loader = tree / "etc/ld.so.conf.d/000-simgpu.conf"
    loader.parent.mkdir(parents=True)
    loader.write_text("/usr/local/lib/simgpu\n", encoding="utf-8")
    for folder, names in _SHIMS.items():
        (tree / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (tree / folder / name).symlink_to(_PROGRAM)
    units = tree / "etc/systemd/system"
    (units / "sysinit.target.wants").mkdir(parents=True)
    shutil.copy(_HOST / "simgpu.service", units)
    (units / "sysinit.target.wants/simgpu.service").symlink_to("/etc/systemd/system/simgpu.service")
    # Copied as they are: a host must be able to read and run all of it.
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
