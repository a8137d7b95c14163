# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.simulator.gpu import profile

PROFILES = sorted(profile.FOLDER.glob("*.yml"))


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """A function that writes the H100 profile, changed, and loads it."""

    def change(edit: Any) -> dict[str, Any]:
        data = yaml.safe_load((profile.FOLDER / "h100-sxm-80gb.yml").read_text())
        data["profile"] = "mine"
        edit(data)
        path = tmp_path / "mine.yml"
        path.write_text(yaml.safe_dump(data))
        return profile.load(path)

    return change


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_profile_loads_as_flat_text(path: Path) -> None:
    loaded = profile.load(path.stem)
    assert loaded["profile"] == path.stem
    assert all(isinstance(value, str) for value in loaded["gpu"].values())


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_value_names_a_source_that_is_listed(path: Path) -> None:
    text = path.read_text()
    sources = set(yaml.safe_load(text)["sources"])
    behind = re.split(r"^machine:", text, flags=re.MULTILINE)[1].splitlines()
    values = [line for line in behind if line.strip() and not line.rstrip().endswith(":")]
    unsourced = [line for line in values if line.rpartition("  # ")[2] not in sources]
    assert unsourced == []


def test_the_h100_has_the_captured_limits() -> None:
    gpu = profile.load("h100-sxm-80gb")["gpu"]
    assert (gpu["power.min"], gpu["power.max"], gpu["memory.total"], gpu["nvlink.count"]) == (
        "200",
        "700",
        "81559",
        "18",
    )


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda data: data["gpu"].update(colour="green"), "gpu.colour is not a known key"),
        (lambda data: data["gpu"].pop("name"), "gpu.name is missing"),
        (
            lambda data: data["gpu"]["power"].update(max="lots"),
            "gpu.power.max must be a number that is not negative, not 'lots'",
        ),
        (lambda data: data["gpu"]["power"].update(default=900), "gpu.power.default must lie between"),
        (
            lambda data: data["gpu"].update(compute_capability=9.0),
            'gpu.compute_capability must be a version in quotes such as "9.0"',
        ),
        (lambda data: data["gpu"].update(architecture="fermi"), "gpu.architecture must be one of volta"),
        (lambda data: data["gpu"]["mig"].update(profiles=["7g.80gb 0 1"]), "gpu.mig.profiles must be a list of rows"),
        (
            lambda data: data["gpu"]["pci"].update(device_id=0x233010DE),
            "gpu.pci.device_id must be a PCI number in quotes",
        ),
        (lambda data: data["slots"][3].pop("numa_node"), "slots[3] must have exactly the keys"),
        (lambda data: data["slots"][0].update(bus_id="18:00.0"), "slots[0].bus_id must be a PCI address"),
        (lambda data: data["slots"][7].update(numa_node=2), "slots[7].numa_node must be below machine.numa_nodes, 2"),
        (lambda data: data["machine"].update(numa_nodes="two"), "machine.numa_nodes must be a whole number from 1"),
        (lambda data: data.pop("sources"), "sources is missing or empty"),
        (lambda data: data.update(profile="other"), "profile must be the file's name, mine, not other"),
        (lambda data: data.update(extra=1), "unknown key extra"),
    ],
)
def test_a_fault_is_named_in_one_sentence(written: Any, edit: Any, sentence: str) -> None:
    with pytest.raises(profile.ProfileError, match=re.escape(sentence)) as raised:
        written(edit)
    assert str(raised.value).count("\n") == 0
    assert "mine.yml: " in str(raised.value)


def test_an_unknown_name_lists_the_choice() -> None:
    with pytest.raises(profile.ProfileError, match="no GPU profile b200: choose one of h100-sxm-80gb, rtx-4090"):
        profile.load("b200")


def test_broken_yaml_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("gpu: [")
    with pytest.raises(profile.ProfileError, match="not valid YAML") as raised:
        profile.load(path)
    assert "\n" not in str(raised.value)
