# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Builds the packages and repositories of the table as the vendors lay them out, signed."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path

from ..engine import run
from . import payloads
from .keys import Keys
from .table import PROGRAMS, Package, Repository, Table

STAND_IN = (
    "Test stand-in of the trainyard.cluster simulator: "
    "it has the vendor's name, version and relations, not its contents."
)
# A package made again is the same, byte by byte: hosts that have an older index can still install it.
_SAME_BYTES = ("env", "SOURCE_DATE_EPOCH=1767225600")
# Whose key signs what claims another's, in broken/wrong-key.
OTHER = "other"


def build(table: Table, keys: Keys, destination: Path, cache: Path, programs: Path = PROGRAMS) -> None:
    """Write every repository, good and broken, below `destination`, which becomes the server's root.

    cache: folder on the same file system, where a package is found again that hasn't changed since.
    """
    cache.mkdir(parents=True, exist_ok=True)
    places: dict[Path, list[Path]] = {}
    sources = _Sources(programs)
    kinds: dict[Path, Package] = {}
    for package in table.packages:
        pool = destination / _pool(table.repositories[package.repository], package.suite)
        pool.mkdir(parents=True, exist_ok=True)
        archive = cache / f"{sources.digest(package)}.deb"
        kinds[archive] = package
        places.setdefault(archive, []).append(pool / _file_name(package))
    with ThreadPoolExecutor(os.cpu_count()) as pool_of_threads:
        list(pool_of_threads.map(lambda item: _build_package(item[1], item[0], programs), kinds.items()))
    for archive, copies in places.items():
        for copy in copies:
            os.link(archive, copy)
    sums = {archive: hashlib.sha256(archive.read_bytes()).hexdigest() for archive in places}
    archives = {copy: archive for archive, copies in places.items() for copy in copies}
    for repository in table.repositories.values():
        for suite in repository.suites:
            root, pool = destination / repository.root(suite), destination / _pool(repository, suite)
            stanzas = [
                control(package)
                + f"Filename: {path.relative_to(root)}\nSize: {path.stat().st_size}\nSHA256: {sums[archives[path]]}\n"
                for package in table.suite(repository.name, suite)
                for path in [pool / _file_name(package)]
            ]
            _publish(repository, suite, destination, keys, stanzas)
            _publish_wrong_key(repository, suite, destination, keys)
            _publish(repository, suite, destination / "broken/empty", keys, [])


class _Sources:
    """Tells packages apart by what they are made from."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folders: dict[str, bytes] = {}
        self._recipe = b"".join(path.read_bytes() for path in (Path(__file__), *payloads.SOURCES))

    def digest(self, package: Package) -> str:
        folders = [self._folder(name) for name in package.payload if not name.startswith("build:")]
        whole = hashlib.sha256(self._recipe + control(package).encode())
        parts = (package.payload, package.files, package.units, package.enabled_units, sorted(package.links.items()))
        whole.update(repr(parts).encode())
        for content in folders:
            whole.update(content)
        if any(b"@SUITE@" in content for content in folders):
            whole.update(package.suite.encode())
        return whole.hexdigest()[:32]

    def _folder(self, name: str) -> bytes:
        if name not in self._folders:
            files = sorted(path for path in (self._programs / name).rglob("*") if path.is_file())
            self._folders[name] = b"\0".join(
                f"{path.relative_to(self._programs)} {os.access(path, os.X_OK)}\0".encode() + path.read_bytes()
                for path in files
            )
        return self._folders[name]


def _index_folder(repository: Repository, suite: str) -> str:
    """Folder of a suite's Release file."""
    root = repository.root(suite)
    return f"{root}/dists/{_codename(suite)}" if repository.component else root


def _codename(suite: str) -> str:
    return suite.rpartition("/")[2]


def _pool(repository: Repository, suite: str) -> str:
    """Folder of a suite's packages."""
    folder = _index_folder(repository, suite)
    return f"{folder}/pool/{repository.component}/amd64" if repository.component else folder


def _file_name(package: Package) -> str:
    version = package.version.partition(":")[2] or package.version
    return f"{package.name}_{version}_{package.architecture}.deb"


def _build_package(package: Package, archive: Path, programs: Path) -> None:
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        tree, whole = Path(scratch) / "tree", Path(scratch) / "whole.deb"
        payloads.stage(package, tree, programs)
        for path in [tree, *tree.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        (tree / "DEBIAN").mkdir(exist_ok=True)
        (tree / "DEBIAN/control").write_text(control(package), encoding="utf-8")
        run([*_SAME_BYTES, "dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "--build", tree, whole])
        whole.rename(archive)


def control(package: Package) -> str:
    """The package's control file."""
    fields = {
        "Package": package.name,
        "Source": package.debian_source,
        "Version": package.version,
        "Architecture": package.architecture,
        "Maintainer": "trainyard.cluster simulator <simulator@mirror.invalid>",
        "Section": "misc",
        "Priority": "optional",
        **{key.capitalize(): ", ".join(entries) for key, entries in package.relations.items()},
        "Description": f"{package.description} (test stand-in)\n {STAND_IN}",
    }
    return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)


def _publish(repository: Repository, suite: str, destination: Path, keys: Keys, stanzas: Sequence[str]) -> None:
    """Write a suite's indexes, sign them, and lay the vendor's key beside them."""
    folder = destination / _index_folder(repository, suite)
    binary = folder / repository.component / "binary-amd64" if repository.component else folder
    binary.mkdir(parents=True, exist_ok=True)
    packages = "\n".join(stanzas).encode()
    sums = []
    for name, content in (("Packages", packages), ("Packages.gz", gzip.compress(packages, mtime=0))):
        (binary / name).write_bytes(content)
        sums.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {(binary / name).relative_to(folder)}\n")
    fields = {"Origin": repository.origin, "Label": repository.label}
    if repository.component:
        fields |= {"Suite": _codename(suite), "Codename": _codename(suite), "Components": repository.component}
    fields |= {"Architectures": "amd64", "Date": formatdate(usegmt=True), "SHA256": ""}
    lines = [f"{key}: {value}".rstrip() + "\n" for key, value in fields.items()]
    (folder / "Release").write_text("".join([*lines, *sums]), encoding="utf-8")
    keys.sign(folder / "Release", repository.name)
    key = destination / repository.key(suite)
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_text(keys.public(repository.name), encoding="ascii")


def _publish_wrong_key(repository: Repository, suite: str, destination: Path, keys: Keys) -> None:
    """The same suite once more, signed with another key than the one that lies beside it."""
    wrong = destination / "broken/wrong-key"
    folder = _index_folder(repository, suite)
    shutil.copytree(destination / folder, wrong / folder, copy_function=os.link, dirs_exist_ok=True)
    for name in ("InRelease", "Release.gpg"):
        (wrong / folder / name).unlink()  # a link into the good repository
    keys.sign(wrong / folder / "Release", OTHER)
    key = wrong / repository.key(suite)
    key.parent.mkdir(parents=True, exist_ok=True)
    if not key.exists():
        os.link(destination / repository.key(suite), key)
