# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an instance's host `mirror` serves, built once for as long as neither the table nor a program changes.

Below STATE/vendor: keys (made once), trees (what is served, by what it was made from), instances (a link of each to its
tree). The host has the whole folder mounted, so that a newer tree is served at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..engine import STATE, locked
from . import build, registry, table
from .keys import Keys, certificate

HOST = "mirror"
URL = f"http://{HOST}"
REGISTRY = f"{HOST}:5000"
VENDOR = STATE / "vendor"
_TREES, _CACHE, _KEYS, _REGISTRY_KEYS = (VENDOR / name for name in ("trees", "cache", "keys", "keys/registry"))


@dataclass(frozen=True)
class Published:
    """What a client must know of an instance's mirror."""

    fingerprints: dict[str, str]
    registry_ca: str
    images: dict[str, dict[str, str]]

    def answers(self) -> str:
        """The contents of mirror.json."""
        return json.dumps(
            {
                "url": URL,
                "registry": REGISTRY,
                "registry_ca": self.registry_ca,
                "fingerprints": self.fingerprints,
                "images": self.images,
            },
            indent=2,
        )


def publish(instance: str) -> Published:
    """Build what the table says unless it is there, and let the instance's mirror serve it."""
    with locked("vendor"):
        VENDOR.mkdir(mode=0o755, exist_ok=True)
        content = table.load()
        keys = Keys(_KEYS)
        fingerprints = {name: keys.fingerprint(name) for name in (*content.repositories, build.OTHER)}
        authority = certificate(_REGISTRY_KEYS, HOST)
        tree = _TREES / _digest(fingerprints)
        if not tree.is_dir():
            _make(tree, content, keys)
        keys.stop()
        _serve(instance, tree)
        images = json.loads((tree / "images.json").read_text(encoding="utf-8"))
    return Published(fingerprints, authority, images)


def volumes(instance: str) -> list[str]:
    """What the host has mounted, as options of podman run."""
    mounts = {_TREES: _TREES, VENDOR / "instances" / instance: "/srv/mirror", _REGISTRY_KEYS: "/srv/registry-keys"}
    return [f"--volume={source}:{target}:ro" for source, target in mounts.items()]


def withdraw(instance: str) -> None:
    """Forget what an instance served."""
    shutil.rmtree(VENDOR / "instances" / instance, ignore_errors=True)


def _digest(fingerprints: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(fingerprints, sort_keys=True).encode())
    sources = [table.FILE, *sorted(Path(__file__).parent.rglob("*"))]
    for path in sources:
        if path.is_file() and "__pycache__" not in path.parts:
            mode = "x" if os.access(path, os.X_OK) else "-"
            name = path.relative_to(table.FILE.parent)
            digest.update(f"{name}{mode}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _make(tree: Path, content: table.Table, keys: Keys) -> None:
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent) as scratch:
        whole = Path(scratch) / "tree"
        (whole / "web").mkdir(parents=True)
        (whole / "registry").mkdir()
        build.build(content, keys, whole / "web", _CACHE)
        images = _images(content, whole / "registry")
        (whole / "images.json").write_text(json.dumps(images, indent=2), encoding="utf-8")
        subprocess.run(["chmod", "-R", "a+rX", whole], check=True)
        whole.rename(tree)


def _images(content: table.Table, storage: Path) -> dict[str, dict[str, str]]:
    return registry.build(content.images, table.PROGRAMS, storage) if content.images else {}


def _serve(instance: str, tree: Path) -> None:
    folder = VENDOR / "instances" / instance
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "partial"
    partial.unlink(missing_ok=True)
    partial.symlink_to(tree)  # absolute: the host has it at the same place
    partial.rename(folder / "current")
    served = {link.resolve() for link in (VENDOR / "instances").glob("*/current")}
    for other in _TREES.iterdir():
        if other not in served:
            shutil.rmtree(other)
    for archive in _CACHE.glob("*.deb"):
        if archive.stat().st_nlink == 1:  # no tree has it
            archive.unlink()
