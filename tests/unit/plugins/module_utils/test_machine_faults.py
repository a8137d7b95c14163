from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils import _machine_faults
from ansible_collections.trainyard.cluster.plugins.module_utils._machine_faults import machine_faults

from tests.contract.places import ROOT

ADDRESSES = {"ctl": ["198.18.0.2"], "gpu1": ["198.18.0.11"], "gpu2": ["198.18.0.12"]}


def machine(name: str, /, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "platform_id": "debian",
        "platform_version": "13",
        "architecture": "x86_64",
        "clock_offset_seconds": 0.4,
        "addresses": {"ctl": ADDRESSES["ctl"], name: ADDRESSES[name]},
        "accounts": [{"name": "slurm", "uid": 64030, "gid": 64030}, {"name": "trainer", "uid": 2000, "gid": 2000}],
        "users": {"slurm": None, "trainer": {"uid": 2000, "gid": 2000}},
        "holders": {"uid": {"2000": "trainer"}, "gid": {"2000": "trainer"}},
        "shared_directory": {"path": "/shared", "mount_point": "/shared", "file_system": "nfs4", "problem": None},
        **changes,
    }


def machines(**gpu2: Any) -> dict[str, dict[str, Any]]:
    return {
        "ctl": machine("ctl", addresses=ADDRESSES, shared_directory=None),
        "gpu1": machine("gpu1"),
        "gpu2": machine("gpu2", **gpu2),
    }


def test_alike_machines_have_no_fault() -> None:
    assert machine_faults(machines()) == []


def test_no_machine_has_no_fault() -> None:
    assert machine_faults({}) == []


@pytest.mark.parametrize(
    ("gpu2", "expected"),
    [
        (
            {"platform_id": "rocky", "platform_version": "9"},
            "gpu2 runs rocky 9 on x86_64, which isn't supported: install Debian 12 or 13",
        ),
        ({"platform_version": "11"}, "gpu2 runs debian 11 on x86_64, which isn't supported"),
        ({"architecture": "aarch64"}, "gpu2 runs debian 13 on aarch64, which isn't supported"),
        ({"name": "node2"}, "gpu2 calls itself node2, and Slurm needs both names to be the same: write node2 in the"),
        (
            {"shared_directory": {"path": "/shared", "problem": "is not there"}},
            "/shared on gpu2 is not there: mount the shared file system there for reading and writing",
        ),
        (
            {"users": {"slurm": None, "trainer": {"uid": 1005, "gid": 2000}}},
            "trainer has the uid 1005 on gpu2, where all machines are to have 2000",
        ),
        (
            {"users": {"slurm": None, "trainer": {"uid": 2000, "gid": 100}}},
            "trainer has the gid 100 on gpu2, where all machines are to have 2000",
        ),
        (
            {"users": {"slurm": None, "trainer": None}, "holders": {"uid": {"2000": "ann"}, "gid": {}}},
            "The uid 2000 of trainer belongs to user ann on gpu2: give ann another one there",
        ),
        (
            {"holders": {"uid": {"2000": "trainer"}, "gid": {"2000": "trainer", "64030": "staff"}}},
            "The gid 64030 of slurm belongs to group staff on gpu2",
        ),
        (
            {"addresses": {"ctl": ["198.18.0.2"], "gpu2": ["127.0.1.1"]}},
            "gpu2 resolves its own name to 127.0.1.1, where no other machine finds it: write the machine's address",
        ),
        (
            {"addresses": {"ctl": ["127.0.0.1"], "gpu2": ["198.18.0.12"]}},
            "gpu2 resolves ctl to 127.0.0.1, where no other machine finds it",
        ),
        ({"addresses": {"ctl": [], "gpu2": ["198.18.0.12"]}}, "gpu2 can't resolve ctl: add it to the name server"),
        (
            {"addresses": {"ctl": ["203.0.113.9"], "gpu2": ["198.18.0.12"]}},
            "ctl is 203.0.113.9 for gpu2, but 198.18.0.2 for ctl: correct the name server or /etc/hosts",
        ),
        (
            {"addresses": {"ctl": ["198.18.0.2"], "gpu2": ["10.0.0.12"]}},
            "gpu2 is 198.18.0.12 for ctl, but 10.0.0.12 for gpu2",
        ),
        ({"clock_offset_seconds": 75.2}, "The clock of gpu2 is 75 seconds ahead of the other machines': start a time"),
        ({"clock_offset_seconds": -75.2}, "The clock of gpu2 is 76 seconds behind the other machines'"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_each_fault_is_told_and_no_other(gpu2: dict[str, Any], expected: str) -> None:
    (fault,) = machine_faults(machines(**gpu2))
    assert fault.startswith(expected)


def test_an_address_more_is_no_fault() -> None:
    assert machine_faults(machines(addresses={"ctl": ["198.18.0.2"], "gpu2": ["198.18.0.12", "fd00::12"]})) == []


def test_a_machine_that_is_down_need_not_be_known() -> None:
    known = {name: machine(name, addresses={**ADDRESSES, "gpu2": []}) for name in ("ctl", "gpu1")}
    assert machine_faults(known, unreachable=["gpu2"]) == []
    (fault,) = machine_faults(known)
    assert fault.startswith("ctl and gpu1 can't resolve gpu2")


def test_clocks_that_are_all_off_agree() -> None:
    assert machine_faults({name: {**own, "clock_offset_seconds": 500} for name, own in machines().items()}) == []


def test_a_lone_clock_is_compared_with_this_computers() -> None:
    (fault,) = machine_faults({"gpu2": machine("gpu2", clock_offset_seconds=-60)})
    assert fault.startswith("The clock of gpu2 is 60 seconds behind this computer's")


def test_machines_with_one_fault_share_a_sentence() -> None:
    bad = {"path": "/shared", "problem": "is not there"}
    (fault,) = machine_faults({name: machine(name, shared_directory=bad) for name in ADDRESSES})
    assert fault.startswith("/shared on ctl, gpu1 and gpu2 is not there")


def test_the_platforms_are_those_of_the_role_common() -> None:
    common = yaml.safe_load((ROOT / "roles/common/vars/main.yml").read_text())["__common_platforms"]
    assert {name.lower(): tuple(versions) for name, versions in common.items()} == _machine_faults.PLATFORMS
    defaults = yaml.safe_load((ROOT / "roles/common/defaults/main.yml").read_text())
    assert tuple(defaults["common_platform_architectures"]) == _machine_faults.ARCHITECTURES
