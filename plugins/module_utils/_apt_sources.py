# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Which components of the distribution's own archive a machine's apt sources leave out.

apt refuses two sources for one archive that differ in their options (the keyring above all), and doesn't list these
options among its index targets. So the answer is made from a copy of the machine's own source, with other components.
Formats: sources.list(5), apt-get(8) "indextargets".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# What `apt-get indextargets --format` is asked for. An unknown key comes back as it was written, $(KEY).
TARGET_FORMAT = "$(SOURCESENTRY) $(SITE) $(RELEASE) $(COMPONENT) $(ORIGIN)"

_OPTION_FIELDS = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}


@dataclass(frozen=True)
class Target:
    """One package index that apt would read.

    file: the source's file. site: the archive's address without a trailing slash.
    origin: who publishes it, as its Release file says; None before the first `apt-get update`.
    """

    file: str
    site: str
    release: str
    component: str
    origin: str | None


def parse_targets(text: str) -> list[Target]:
    """Read what apt-get prints for TARGET_FORMAT; flat repositories, which have no component, are passed over."""
    targets = []
    for line in text.splitlines():
        words = line.split(None, 4)
        if len(words) < 5 or "$(COMPONENT)" in words:
            continue
        entry, site, release, component, origin = words
        known = None if origin.strip() in ("", "$(ORIGIN)") else origin.strip()
        targets.append(Target(entry.rpartition(":")[0], site.rstrip("/"), release, component, known))
    return targets


def missing_components(
    targets_text: str, files: Mapping[str, str], wanted: Iterable[str], *, codename: str, origin: str, own_file: str
) -> list[dict[str, str]]:
    """Return the sources, as deb822 fields, that enable the wanted components where the machine has only others.

    targets_text: what apt-get printed; nothing before the first `apt-get update`, then the files alone have to tell.
    files: the text of every source file. codename: the release, trixie for example.
    origin: the distribution's name in its Release files. own_file: the file the answer is written to, not counted.
    Raises ValueError when the machine has no source for the distribution's main component.
    """
    theirs = [
        target
        for target in parse_targets(targets_text) or _targets_of(files)
        if target.file != own_file
        and target.origin in (origin, None)
        and re.fullmatch(re.escape(codename) + r"(-updates|-security|-backports)?", target.release)
    ]
    archives = {(target.site, target.release): target.file for target in theirs if target.component == "main"}
    if not any(release == codename for _site, release in archives):
        raise ValueError(
            f"apt has no source for {origin} {codename} main: "
            "add the distribution's own archive to /etc/apt/sources.list.d"
        )
    enabled: dict[tuple[str, str], set[str]] = {}
    for target in theirs:
        enabled.setdefault((target.site, target.release), set()).add(target.component)

    answer = []
    for (site, release), file in archives.items():
        missing = [component for component in wanted if component not in enabled[(site, release)]]
        if missing:
            source = _source_of(parse_sources(file, files.get(file, "")), site, release)
            answer.append({"Types": "deb", "URIs": site, "Suites": release, "Components": " ".join(missing), **source})
    return answer


def _targets_of(files: Mapping[str, str]) -> list[Target]:
    return [
        Target(path, uri.rstrip("/"), release, component, None)
        for path, text in files.items()
        for source in parse_sources(path, text)
        for fields in [{name.lower(): value for name, value in source.items()}]
        if fields.get("enabled", "yes").lower() not in ("no", "false", "without", "off", "disable")
        for uri in fields.get("uris", "").split()
        for release in fields.get("suites", "").split()
        for component in fields.get("components", "").split()
    ]


def parse_sources(path: str, text: str) -> list[dict[str, str]]:
    """Return the sources of one file as deb822 fields, whether it is written in the one-line or the deb822 format.

    Continuation lines keep their indentation, so that an embedded key survives.
    """
    return _parse_deb822(text) if path.endswith(".sources") else _parse_one_line(text)


def _parse_deb822(text: str) -> list[dict[str, str]]:
    sources = []
    for paragraph in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace() and name:
                fields[name] += "\n" + line.rstrip()
            elif ":" in line:
                name, _colon, value = line.partition(":")
                name = name.strip()
                fields[name] = value.strip()
        if fields:
            sources.append(fields)
    return sources


def _parse_one_line(text: str) -> list[dict[str, str]]:
    sources = []
    for line in text.splitlines():
        match = re.match(
            r"\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>[^#]*)", line
        )
        if not match:
            continue
        fields = {
            "Types": "deb",
            "URIs": match["uri"],
            "Suites": match["suite"],
            "Components": match["components"].strip(),
        }
        for option in (match["options"] or "").split():
            name, _equals, value = option.partition("=")
            name = name.rstrip("+-").lower()
            fields[_OPTION_FIELDS.get(name, name.title())] = value.replace(",", " ")
        sources.append(fields)
    return sources


def _source_of(sources: Iterable[dict[str, str]], site: str, release: str) -> dict[str, str]:
    for source in sources:
        fields = {name.lower(): value for name, value in source.items()}
        if release in fields.get("suites", "").split() and site in [
            uri.rstrip("/") for uri in fields.get("uris", "").split()
        ]:
            return {
                name: value
                for name, value in source.items()
                if name.lower() not in ("types", "uris", "suites", "components")
            }
    raise ValueError(f"the apt source of {site} {release} can't be understood: enable the components there by hand")
