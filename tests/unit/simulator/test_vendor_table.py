# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the table of the vendors' packages may say."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.simulator.vendor import payloads, table

NVIDIA = ("debian12", "debian13", "ubuntu2204", "ubuntu2404")


@pytest.fixture(scope="module")
def whole() -> table.Table:
    return table.load()


def names(whole: table.Table, repository: str, suite: str) -> set[str]:
    return {package.name for package in whole.suite(repository, suite)}


def versions(whole: table.Table, suite: str, name: str) -> list[str]:
    return [package.version for package in whole.suite("nvidia_cuda", suite) if package.name == name]


def test_every_row_has_its_source_and_every_payload_its_maker(whole: table.Table) -> None:
    assert whole.packages  # a row without a source is refused, see below
    for package in whole.packages:
        for entry in package.payload:
            assert not entry.startswith("build:") or entry.partition(":")[2] in payloads.builders(), package.name


def test_debian_13_has_the_holes_that_users_report(whole: table.Table) -> None:
    present = names(whole, "nvidia_cuda", "debian13")
    assert not {name for name in present if name.startswith(("datacenter-gpu-manager", "nvidia-container-toolkit"))}
    assert not {name for name in present if name.endswith(("-580", "-580-open", "-13-0"))}
    assert {version.split(".")[0] for version in versions(whole, "debian13", "nvidia-driver-cuda")} == {"595"}
    assert "cuda-toolkit-13-2" in present


@pytest.mark.parametrize("suite", ["debian12", "ubuntu2204", "ubuntu2404"])
def test_other_suites_have_two_branches_of_the_driver_and_several_toolkits(whole: table.Table, suite: str) -> None:
    present = names(whole, "nvidia_cuda", suite)
    assert {"nvidia-driver-pinning-580", "nvidia-driver-pinning-595", "cuda-drivers-580"} <= present
    assert {"cuda-toolkit-12-9", "cuda-toolkit-13-0", "cuda-toolkit-13-2"} <= present


@pytest.mark.parametrize("suite", ["ubuntu2204", "ubuntu2404"])
def test_ubuntus_names_lose_the_branch_after_580(whole: table.Table, suite: str) -> None:
    present = names(whole, "nvidia_cuda", suite)
    assert {
        "libnvidia-compute-580",
        "nvidia-dkms-580",
        "nvidia-dkms-580-open",
        "nvidia-dkms",
        "nvidia-dkms-open",
    } <= present
    assert "libnvidia-compute-595" not in present
    assert all(version.startswith("595.") for version in versions(whole, suite, "libnvidia-compute"))


def test_debian_13s_repository_has_its_own_key_file(whole: table.Table) -> None:
    repository = whole.repositories["nvidia_cuda"]
    assert [repository.key(suite) for suite in NVIDIA] == [
        "nvidia/cuda/repos/debian12/x86_64/3bf863cc.pub",
        "nvidia/cuda/repos/debian13/x86_64/8793F200.pub",
        "nvidia/cuda/repos/ubuntu2204/x86_64/3bf863cc.pub",
        "nvidia/cuda/repos/ubuntu2404/x86_64/3bf863cc.pub",
    ]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("13.0.88-1", {"upstream": "13.0.88", "branch": "13", "number": "13-0", "dotted": "13.0", "minor": "0"}),
        ("580.159.04-1ubuntu1", {"upstream": "580.159.04", "branch": "580"}),
        ("2.28.9-1+cuda13.0", {"upstream": "2.28.9"}),
        ("5:29.6.2-1~debian.12~bookworm", {"upstream": "29.6.2", "branch": "29"}),
        ("580-1", {"upstream": "580", "branch": "580", "number": "580", "minor": "0"}),
    ],
)
def test_a_version_has_parts(version: str, expected: dict[str, str]) -> None:
    found = table.placeholders(version, "debian12")
    assert {key: found[key] for key in expected} == expected


# --- what is refused ---

SMALL: dict[str, Any] = yaml.safe_load("""
read: 2026-11-30
repositories:
  nvidia:
    source: https://example.com/install
    flat: true
    path: nvidia/{suite}
    suites: [debian12, debian13]
    key_file: key.pub
nvidia:
  - package: tool
    source: https://example.com/tool
    versions: {1.0-1: all}
    depends: ["library (= {version})"]
  - package: library
    source: https://example.com/library
    versions: {1.0-1: all}
images: []
""")


def load(tmp_path: Path, change: Callable[[Any], object]) -> table.Table:
    content = copy.deepcopy(SMALL)
    change(content)
    path = tmp_path / "table.yml"
    path.write_text(yaml.safe_dump(content))
    return table.load(path, tmp_path)


def test_relations_follow_the_version(tmp_path: Path) -> None:
    found = load(tmp_path, lambda content: None)
    assert len(found.packages) == 4
    assert found.suite("nvidia", "debian13")[0].relations == {"depends": ("library (= 1.0-1)",)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c["nvidia"][0].pop("source"), r"nvidia row 1 \(tool\): `source` is None; write the address"),
        (lambda c: c["nvidia"][0].update(source="a friend"), "`source` is 'a friend'; write the address"),
        (lambda c: c["nvidia"][0].update(sauce="x"), "there is no field `sauce`; known are "),
        (lambda c: c["nvidia"][0].update(versions={}), r"write `versions`, as \{1.0-1: \[debian12\]\}"),
        (lambda c: c["nvidia"][0].update(versions={"1.0 1": "all"}), "'1.0 1' is no Debian version"),
        (lambda c: c["nvidia"][0].update(versions={"1-1": ["sid"]}), "no suite sid; nvidia has debian12, debian13"),
        (
            lambda c: c["nvidia"][0].update(depends=["library >= 2"]),
            "`depends` has 'library >= 2'; write it as in a control file",
        ),
        (lambda c: c["nvidia"][0].update(payload=["nowhere"]), "there is no folder vendor/programs/nowhere"),
        (lambda c: c["nvidia"][0].update(names=["a"]), "write `package`, or `names`"),
        (lambda c: c["nvidia"].append(c["nvidia"][1]), "row 3: library 1.0-1 is in debian12 twice"),
        (
            lambda c: c["nvidia"][1].update(versions={"1.0-1": ["debian12"]}),
            r"tool 1.0-1 depends on library \(= 1.0-1\), which debian13 hasn't",
        ),
        (lambda c: c.update(grafana=[]), "section grafana has no entry in `repositories`"),
        (lambda c: c.update(read="lately"), "`read` is 'lately'; write the day"),
        (lambda c: c["repositories"]["nvidia"].pop("key_file"), "write `key_file` or `key_path`"),
        (lambda c: c["images"].append({"image": "nvidia/cuda"}), "images row 1: `source` is None"),
    ],
)
def test_says_what_to_write_instead(tmp_path: Path, change: Callable[[Any], object], sentence: str) -> None:
    with pytest.raises(table.TableError, match=sentence):
        load(tmp_path, change)
