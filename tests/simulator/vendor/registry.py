# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Builds the images of the registry and lays them down as docker-registry keeps them, so that none has to be pushed.

Each image is a small Debian, the same for all, and the programs that its row names. One layer holds that Debian, made
once for as long as its recipe is the same.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import packages
from ..engine import STATE, run
from . import payloads

_SUITE = "trixie"
# A shell, its tools and Python: enough for nvidia-smi, which the host brings, and for the stand-ins' programs.
_PACKAGES = "base-files,bash,coreutils,dash,grep,libc-bin,libpython3-stdlib,netbase,python3-minimal"
# Unpacked only, never configured: what installs and explains packages can go.
_LEFT_OUT = re.compile(
    r"\./(dev|etc/apt|var/(cache|lib/(apt|dpkg))|usr/share/(doc|man|locale|i18n|info)|usr/lib/udev)/.+"
)
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
_MADE = 1767225600  # every file's time: the same contents have the same digest
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass(frozen=True)
class _Layer:
    """A layer: the digest of its tar, which the configuration names, and the compressed blob."""

    plain: str
    blob: bytes


def build(images: Sequence[Mapping[str, Any]], programs: Path, storage: Path) -> dict[str, dict[str, str]]:
    """Fill the registry's storage; returns name, tag and digest of each image, of several tags the last."""
    registry = _Storage(storage / "docker/registry/v2")
    base = _base()
    known: dict[str, dict[str, str]] = {}
    for image in images:
        layers = [base, *(_program(programs / name) for name in image.get("program", ()))]
        manifest = registry.put_image(layers, _configuration(image))
        registry.name(image["image"], image["tag"], manifest, layers)
        known[image["image"]] = {"tag": image["tag"], "digest": manifest}
    return known


def _configuration(image: Mapping[str, Any]) -> dict[str, Any]:
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **image.get("environment", {}),
    }
    labels = {
        "description": "Test stand-in of the trainyard.cluster simulator; it has the vendor's name, not its contents"
    }
    config: dict[str, Any] = {"Env": [f"{key}={value}" for key, value in environment.items()], "Labels": labels}
    if image.get("entrypoint"):
        config["Entrypoint"] = image["entrypoint"]
    else:
        config["Cmd"] = ["/bin/sh"]
    return config


class _Storage:
    """The folders of docker-registry 2.8's file system driver."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put_image(self, layers: Sequence[_Layer], config: Mapping[str, Any]) -> str:
        """Store layers, configuration and manifest; returns the manifest's digest."""
        whole = {
            "architecture": "amd64",
            "os": "linux",
            "created": "2026-01-01T00:00:00Z",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer.plain for layer in layers]},
            "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "simulator"} for _layer in layers],
        }
        text = json.dumps(whole, sort_keys=True).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "size": len(text), "digest": self._blob(text)},
            "layers": [
                {"mediaType": _LAYER, "size": len(layer.blob), "digest": self._blob(layer.blob)} for layer in layers
            ],
        }
        self._config = manifest["config"]["digest"]  # type: ignore[index]
        return self._blob(json.dumps(manifest, indent=3, sort_keys=True).encode())

    def name(self, repository: str, tag: str, manifest: str, layers: Sequence[_Layer]) -> None:
        """Link the image's parts to a repository and a tag."""
        folder = self.root / "repositories" / repository
        for digest in [self._config, *(_digest(layer.blob) for layer in layers)]:
            _link(folder / "_layers" / digest.replace(":", "/"), digest)
        _link(folder / "_manifests/revisions" / manifest.replace(":", "/"), manifest)
        _link(folder / "_manifests/tags" / tag / "current", manifest)
        _link(folder / "_manifests/tags" / tag / "index" / manifest.replace(":", "/"), manifest)

    def _blob(self, content: bytes) -> str:
        digest = _digest(content)
        name = digest.partition(":")[2]
        path = self.root / "blobs/sha256" / name[:2] / name / "data"
        if not path.exists():
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        return digest


def _link(folder: Path, digest: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "link").write_text(digest, encoding="ascii")


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _layer(tar: bytes) -> _Layer:
    return _Layer(_digest(tar), gzip.compress(tar, compresslevel=1, mtime=0))


def _program(folder: Path) -> _Layer:
    """A layer of a folder of vendor/programs; what is a package's matter in it stays out."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if "__pycache__" in path.parts or name.parts[0] == "DEBIAN" or "systemd" in name.parts:
                continue
            if path.is_dir():
                entry = tarfile.TarInfo(str(name))
                entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, _MADE
                archive.addfile(entry)
            else:
                _add(archive, str(name), *payloads.read(path))
    return _layer(buffer.getvalue())


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), mode, _MADE
    archive.addfile(entry, io.BytesIO(content))


def _base() -> _Layer:
    """The Debian that every image has; 20 seconds where it isn't there yet."""
    sources = packages.machine_mirror().sources(_SUITE)
    recipe = "\0".join([_PACKAGES, _LEFT_OUT.pattern, *_ACCOUNTS.values(), sources])
    stage = STATE / "vendor" / "image-base"
    ready = stage / f"{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar.gz"
    if not ready.exists():
        packages.start_cache()
        stage.mkdir(parents=True, exist_ok=True)
        (stage / "debian.sources").write_text(sources, encoding="utf-8")
        whole, partial = stage / "whole.tar", stage / "partial"
        run([
            "env", f"SOURCE_DATE_EPOCH={_MADE}",
            "mmdebstrap", "--quiet", "--variant=extract", f"--include={_PACKAGES}",
            f"--aptopt={packages.proxy_setting().strip()}", _SUITE, whole, stage / "debian.sources",
        ])  # fmt: skip
        buffer = io.BytesIO()
        with tarfile.open(whole) as source, tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as target:
            for entry in source:
                if not _LEFT_OUT.match(entry.name):
                    target.addfile(entry, source.extractfile(entry) if entry.isfile() else None)
            for name, text in _ACCOUNTS.items():
                _add(target, f"./{name}", text.encode(), 0o644)
        whole.unlink()
        partial.write_bytes(_layer(buffer.getvalue()).blob)
        partial.replace(ready)
    blob = ready.read_bytes()
    return _Layer(_digest(gzip.decompress(blob)), blob)
