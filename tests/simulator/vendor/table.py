# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reads vendor_packages.yml, whose head says what its fields mean, and refuses what can't be meant."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..engine import SimulatorError

FILE = Path(__file__).resolve().parents[1] / "vendor_packages.yml"
PROGRAMS = Path(__file__).parent / "programs"

RELATIONS = ("depends", "recommends", "provides", "conflicts", "replaces", "breaks")
_LISTS = ("names", *RELATIONS, "units", "enabled_units", "files", "payload")
_ROW = {"package", "source", "versions", "architecture", "description", "debian_source", "links", *_LISTS}
_REPOSITORY = {"source", "flat", "path", "suites", "component", "key_file", "key_files", "key_path", "origin", "label"}
_IMAGE = {"image", "tag", "source", "program", "entrypoint", "environment"}
_TOP = {"read", "repositories", "images"}

_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_VERSION = re.compile(r"(\d+:)?[0-9][A-Za-z0-9.+~]*(-[A-Za-z0-9.+~]+)?")
_RELATION = re.compile(r"([a-z0-9][a-z0-9+.-]+)(:any)?( \((<<|<=|=|>=|>>) [0-9A-Za-z.+~:-]+\))?")


class TableError(SimulatorError):
    """What in the table can't be meant, and what to write instead."""


@dataclass(frozen=True)
class Repository:
    """One vendor's archive: where it lies, what it is signed with, and its suites."""

    name: str
    path: str
    suites: tuple[str, ...]
    component: str | None = None
    key_file: str | None = None
    key_files: Mapping[str, str] = field(default_factory=dict)
    key_path: str | None = None
    origin: str = ""
    label: str = ""

    def root(self, suite: str) -> str:
        """Path below the server's root of the archive that holds the suite."""
        distribution, _slash, _codename = suite.partition("/")
        return self.path.format(suite=suite, distribution=distribution)

    def key(self, suite: str) -> str:
        """Path below the server's root of the public key."""
        if self.key_path:
            return self.key_path
        return f"{self.root(suite)}/{self.key_files.get(suite, self.key_file)}"


@dataclass(frozen=True)
class Package:
    """One package of one version in one suite, with every placeholder replaced."""

    name: str
    version: str
    repository: str
    suite: str
    architecture: str
    description: str
    debian_source: str | None
    relations: Mapping[str, tuple[str, ...]]
    units: tuple[str, ...]
    enabled_units: tuple[str, ...]
    files: tuple[str, ...]
    links: Mapping[str, str]
    payload: tuple[str, ...]

    @property
    def placeholders(self) -> dict[str, str]:
        """What may stand in texts of the row and of the payload."""
        return placeholders(self.version, self.suite)


@dataclass(frozen=True)
class Table:
    """The whole table."""

    read: datetime.date
    repositories: Mapping[str, Repository]
    packages: tuple[Package, ...]
    images: tuple[Mapping[str, Any], ...]

    def suite(self, repository: str, suite: str) -> list[Package]:
        """The packages of one suite."""
        return [package for package in self.packages if (package.repository, package.suite) == (repository, suite)]


def placeholders(version: str, suite: str) -> dict[str, str]:
    """Read a version's parts: {version}, {upstream}, {branch}, {number}, {dotted}, {minor} and {suite}."""
    upstream = re.sub(r"^\d+:", "", version)
    upstream = upstream.rpartition("-")[0] or upstream
    parts = re.findall(r"\d+", upstream)
    return {
        "version": version,
        "upstream": upstream,
        "branch": parts[0],
        "number": "-".join(parts[:2]),
        "dotted": ".".join(parts[:2]),
        "minor": parts[1] if len(parts) > 1 else "0",
        "suite": suite,
    }


def load(path: Path = FILE, programs: Path = PROGRAMS) -> Table:
    """Read and check the table. Raises TableError with the place of the first fault."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise TableError(f"{path.name} can't be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("repositories"), dict):
        raise TableError(
            f"{path.name}: write a mapping with `read`, `repositories` and a list of rows for each of them"
        )
    read = content.get("read")
    if not isinstance(read, datetime.date):
        raise TableError(
            f"{path.name}: `read` is {read!r}; write the day on which the sources were read, as 2026-11-30"
        )
    unknown = sorted(set(content) - _TOP - set(content["repositories"]))
    if unknown:
        raise TableError(f"{path.name}: section {unknown[0]} has no entry in `repositories`")
    repositories = {
        name: _repository(f"repositories.{name}", name, row) for name, row in content["repositories"].items()
    }
    packages: dict[tuple[str, str, str, str], Package] = {}
    for name, repository in repositories.items():
        for number, row in enumerate(_rows(content, name), 1):
            for package in _packages(f"{name} row {number}", repository, row, programs):
                key = (name, package.suite, package.name, package.version)
                if key in packages:
                    raise TableError(
                        f"{name} row {number}: {package.name} {package.version} is in {package.suite} twice"
                    )
                packages[key] = package
    _check_relations(packages.values())
    images = tuple(_image(f"images row {number}", row) for number, row in enumerate(_rows(content, "images"), 1))
    return Table(read, repositories, tuple(packages.values()), images)


def _rows(content: Mapping[str, Any], name: str) -> list[Any]:
    rows = content.get(name)
    if not isinstance(rows, list):
        raise TableError(f"{name}: write a list of rows, [] for none")
    return rows


def _repository(place: str, name: str, row: Any) -> Repository:
    _check_keys(place, row, _REPOSITORY)
    _check_source(place, row)
    if not isinstance(row.get("path"), str) or not _texts(place, row, "suites"):
        raise TableError(f"{place}: write `path` and `suites`")
    if not row.get("flat") and not row.get("component"):
        raise TableError(f"{place}: write `flat: true` or a `component`")
    if not row.get("key_file") and not row.get("key_path"):
        raise TableError(f"{place}: write `key_file` or `key_path`")
    return Repository(
        name=name,
        path=row["path"],
        suites=tuple(row["suites"]),
        component=None if row.get("flat") else row["component"],
        key_file=row.get("key_file"),
        key_files=row.get("key_files", {}),
        key_path=row.get("key_path"),
        origin=row.get("origin", name),
        label=row.get("label", name),
    )


def _packages(place: str, repository: Repository, row: Any, programs: Path) -> Iterator[Package]:
    _check_keys(place, row, _ROW)
    if ("package" in row) == ("names" in row):
        raise TableError(f"{place}: write `package`, or `names` for several of the same kind")
    names = _texts(place, row, "names") or [row["package"]]
    place = f"{place} ({names[0]})"
    _check_source(place, row)
    versions = row.get("versions")
    if not isinstance(versions, dict) or not versions:
        raise TableError(f"{place}: write `versions`, as {{1.0-1: [{repository.suites[0]}]}}")
    for version, suites in versions.items():
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise TableError(f"{place}: {version!r} is no Debian version")
        for suite in repository.suites if suites == "all" else suites:
            if suite not in repository.suites:
                raise TableError(
                    f"{place}: there is no suite {suite}; {repository.name} has {', '.join(repository.suites)}"
                )
            values = placeholders(version, suite)
            for name in (text.format(**values) for text in names):
                yield _package(place, repository.name, row, (name, version, suite), programs)


def _package(
    place: str, repository: str, row: Mapping[str, Any], identity: tuple[str, str, str], programs: Path
) -> Package:
    name, version, suite = identity
    if not _NAME.fullmatch(name):
        raise TableError(f"{place}: {name!r} is no name of a Debian package")
    values = placeholders(version, suite)

    def filled(key: str) -> tuple[str, ...]:
        return tuple(text.format(**values) for text in _texts(place, row, key))

    relations = {key: filled(key) for key in RELATIONS if filled(key)}
    for key, entries in relations.items():
        for entry in entries:
            for alternative in entry.split(" | "):
                if not _RELATION.fullmatch(alternative):
                    raise TableError(
                        f"{place}: `{key}` has {alternative!r}; write it as in a control file: name (>= 1.0)"
                    )
    own = [name] if (programs / name).is_dir() else []
    payload = _texts(place, row, "payload") if "payload" in row else own
    for folder in payload:
        if not folder.startswith("build:") and not (programs / folder).is_dir():
            raise TableError(f"{place}: there is no folder vendor/programs/{folder}")
    links = row.get("links", {})
    if not isinstance(links, dict):
        raise TableError(f"{place}: write `links` as a mapping of path and target")
    return Package(
        name=name,
        version=version,
        repository=repository,
        suite=suite,
        architecture=row.get("architecture", "amd64"),
        description=str(row.get("description", name)).format(**values),
        debian_source=row.get("debian_source"),
        relations=relations,
        units=(*filled("units"), *filled("enabled_units")),
        enabled_units=filled("enabled_units"),
        files=filled("files"),
        links={path.format(**values): target.format(**values) for path, target in links.items()},
        payload=tuple(payload),
    )


def _check_keys(place: str, row: Any, known: set[str]) -> None:
    if not isinstance(row, dict):
        raise TableError(f"{place}: write a mapping")
    unknown = sorted(set(row) - known)
    if unknown:
        raise TableError(f"{place}: there is no field `{unknown[0]}`; known are {', '.join(sorted(known))}")


def _check_source(place: str, row: Mapping[str, Any]) -> None:
    sources = row.get("source")
    sources = [sources] if isinstance(sources, str) else sources
    if not sources or not all(isinstance(source, str) and source.startswith("https://") for source in sources):
        raise TableError(
            f"{place}: `source` is {row.get('source')!r}; write the address of the page or issue that says so"
        )


def _texts(place: str, row: Mapping[str, Any], key: str) -> list[str]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TableError(f"{place}: `{key}` is {value!r}; write a list of texts")
    return value


def _image(place: str, row: Any) -> Mapping[str, Any]:
    _check_keys(place, row, _IMAGE)
    _check_source(place, row)
    for key in ("image", "tag"):
        if not isinstance(row.get(key), str):
            raise TableError(f"{place}: `{key}` is {row.get(key)!r}; write a text")
    image: dict[str, Any] = row
    return image


def _check_relations(packages: Collection[Package]) -> None:
    """A dependency on a package that the table has elsewhere only would never install: a hole that isn't meant."""
    everywhere = {package.name for package in packages}
    there: dict[tuple[str, str], set[str]] = {}
    for package in packages:
        provided = {entry.split(" ")[0] for entry in package.relations.get("provides", ())}
        there.setdefault((package.repository, package.suite), set()).update({package.name, *provided})
    for package in packages:
        for entry in package.relations.get("depends", ()):
            names = [alternative.split(" ")[0].partition(":")[0] for alternative in entry.split(" | ")]
            present = there[package.repository, package.suite]
            if all(name in everywhere and name not in present for name in names):
                raise TableError(f"{package.name} {package.version} depends on {entry}, which {package.suite} hasn't")
