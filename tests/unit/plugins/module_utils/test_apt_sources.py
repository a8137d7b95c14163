# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._apt_sources import missing_components, parse_sources

DEB822 = """\
# comment
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: trixie trixie-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Types: deb
URIs: http://mirror.example/security
Suites: trixie-security
Components: main non-free
Signed-By: /usr/share/keyrings/debian.gpg
"""
FILE = "/etc/apt/sources.list.d/debian.sources"
OURS = "/etc/apt/sources.list.d/ours.sources"


def line(file: str, site: str, release: str, component: str, origin: str = "Debian") -> str:
    return f"{file}:1 {site}/ {release} {component} {origin}\n"


OWN = (
    line(FILE, "http://mirror.example/debian", "trixie", "main")
    + line(FILE, "http://mirror.example/debian", "trixie-updates", "main")
    + line(FILE, "http://mirror.example/security", "trixie-security", "main")
    + line(FILE, "http://mirror.example/security", "trixie-security", "non-free")
)
KEY = {"Signed-By": "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc"}


def ask(targets: str, files: dict[str, str], wanted: list[str]) -> list[dict[str, str]]:
    return missing_components(targets, files, wanted, codename="trixie", origin="Debian", own_file=OURS)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        pytest.param(
            OWN,
            [
                {
                    **KEY,
                    "Types": "deb",
                    "URIs": "http://mirror.example/debian",
                    "Suites": "trixie",
                    "Components": "contrib non-free",
                },
                {
                    **KEY,
                    "Types": "deb",
                    "URIs": "http://mirror.example/debian",
                    "Suites": "trixie-updates",
                    "Components": "contrib non-free",
                },
                {
                    "Signed-By": "/usr/share/keyrings/debian.gpg",
                    "Types": "deb",
                    "URIs": "http://mirror.example/security",
                    "Suites": "trixie-security",
                    "Components": "contrib",
                },
            ],
            id="each archive gets what it lacks, with its own options",
        ),
        pytest.param(
            OWN + line(OURS, "http://mirror.example/debian", "trixie", "contrib"),
            "as above",
            id="what our own source enables counts as missing, so that a second run writes the same",
        ),
        pytest.param(
            OWN
            + line(
                "/etc/apt/sources.list.d/vendor.list", "https://vendor.example/apt", "trixie", "main", "Vendor Inc."
            ),
            "as above",
            id="a vendor's archive with the same suite and component is not the distribution's",
        ),
        pytest.param("", "as above", id="before the first update apt lists nothing, and the files tell"),
        pytest.param(
            OWN.replace(" Debian\n", " $(ORIGIN)\n"), "as above", id="before the first update the origin is unknown"
        ),
        pytest.param(
            OWN + "/etc/apt/sources.list:3 http://flat.example/ ./ $(COMPONENT) Flat\n",
            "as above",
            id="a flat repository is passed over",
        ),
    ],
)
def test_missing_components(targets: str, expected: object) -> None:
    if expected == "as above":
        expected = ask(OWN, {FILE: DEB822}, ["contrib", "non-free"])
    assert ask(targets, {FILE: DEB822}, ["contrib", "non-free"]) == expected


def test_nothing_is_missing() -> None:
    assert ask(OWN, {FILE: DEB822}, ["main"]) == []


def test_a_source_that_is_switched_off_does_not_count() -> None:
    text = (
        DEB822 + "\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: contrib\nEnabled: no\n"
    )
    assert ask("", {FILE: text}, ["contrib"])[0]["Components"] == "contrib"


def test_one_line_source() -> None:
    text = (
        "# deb http://old.example trixie main\n"
        "deb [arch=amd64,arm64 signed-by=/k.gpg] http://mirror.example/debian/ trixie main # ours\n"
    )
    targets = line("/etc/apt/sources.list", "http://mirror.example/debian", "trixie", "main")
    assert ask(targets, {"/etc/apt/sources.list": text}, ["contrib"]) == [
        {
            "Architectures": "amd64 arm64",
            "Signed-By": "/k.gpg",
            "Types": "deb",
            "URIs": "http://mirror.example/debian",
            "Suites": "trixie",
            "Components": "contrib",
        }
    ]


@pytest.mark.parametrize(
    ("targets", "files", "message"),
    [
        pytest.param("", {}, "no source for Debian trixie main", id="no sources at all"),
        pytest.param(
            line(FILE, "http://x.example/debian", "bookworm", "main"),
            {},
            "no source for Debian trixie main",
            id="another release",
        ),
        pytest.param(
            line(FILE, "http://x.example/debian", "trixie", "main"),
            {FILE: ""},
            "can't be understood",
            id="file and apt disagree",
        ),
    ],
)
def test_a_fault_is_named(targets: str, files: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(targets, files, ["contrib"])


def test_parse_sources_keeps_an_embedded_key() -> None:
    assert parse_sources(FILE, DEB822)[0]["Signed-By"] == KEY["Signed-By"]
