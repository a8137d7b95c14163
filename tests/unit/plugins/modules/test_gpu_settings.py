# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module as Ansible runs it, with Debian's nvidia-smi on simulated GPUs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_settings import GpuSettings, Pending
from ansible_collections.trainyard.cluster.plugins.modules import gpu_settings

from tests.simulator.gpu import debian, library, profile
from tests.unit import modules
from tests.unit.simulator.test_gpu_nvidia_smi import AS_ROOT, CACHE, Bench, start

RunModule = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def program(request: pytest.FixtureRequest) -> Path:
    return debian.unpack(request.param, ["nvidia-smi"], CACHE) / "usr/lib/nvidia/current/nvidia-smi"


@pytest.fixture
def bench(tmp_path: Path, program: Path) -> Bench:
    usage = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"v(\d+\.\d+(\.\d+)?)", usage)
    assert version
    libraries = library.build_libraries(CACHE)
    made = Bench(program, {**os.environ, "SIMGPU_ROOT": str(tmp_path), "LD_LIBRARY_PATH": str(libraries)})
    hardware = tmp_path / "profile.json"
    hardware.write_text(json.dumps(profile.load("h100-sxm-80gb")))
    return start(made, version[1], hardware, 2)


@pytest.fixture
def run_module(bench: Bench, tmp_path: Path) -> RunModule:
    def run(**arguments: Any) -> dict[str, Any]:
        wanted = {"nvidia_smi": str(bench.program), "root": str(tmp_path), **arguments}
        return modules.run_module(gpu_settings, wanted, bench.environment, AS_ROOT)

    return run


def test_sets_once(bench: Bench, run_module: RunModule) -> None:
    wanted: dict[str, Any] = {
        "persistence_mode": True,
        "power_limit": 500,
        "compute_mode": "exclusive_process",
        "ecc": False,
        "graphics_clocks": [1000, 1500],
        "memory_clocks": 2619,
    }
    asked = "persistence_mode,power.limit,compute_mode,ecc.mode.current,ecc.mode.pending"
    checked = run_module(_ansible_check_mode=True, **wanted)
    assert (checked["changed"], bench.query(asked)) == (True, ["Disabled", "700.00", "Default", "Enabled", "Enabled"])
    first = run_module(**wanted)
    assert (first["changed"], first["gpus"], first["diff"]) == (True, checked["gpus"], checked["diff"])
    for gpu in (0, 1):
        assert bench.query(asked, gpu) == ["Enabled", "500.00", "Exclusive_Process", "Enabled", "Disabled"]
    assert [(each["gpu"], each["setting"], each["needs"]) for each in first["pending"]] == [
        (0, "ecc", "reset"),
        (1, "ecc", "reset"),
    ]
    bench.simgpu("set", "all", "utilization=100")
    assert bench.query("clocks.sm") == ["1500"]
    again = run_module(**wanted)
    assert (again["changed"], again["gpus"], again["pending"]) == (False, first["gpus"], first["pending"])
    back = run_module(defaults=True, ecc=True)
    assert (back["changed"], back["pending"]) == (True, [])
    assert bench.query(f"{asked},clocks.sm") == ["Enabled", "700.00", "Default", "Enabled", "Enabled", "1980"]
    assert not run_module(defaults=True, ecc=True)["changed"]


def test_mig_mode_and_layout(bench: Bench, run_module: RunModule) -> None:
    wanted: dict[str, Any] = {"gpus": ["0000:2a:00.0"], "mig": True, "mig_layout": ["1g.10gb", "2g.20gb", "3g.40gb"]}
    checked = run_module(_ansible_check_mode=True, **wanted)
    assert bench.query("mig.mode.current", 1) == ["Disabled"]
    first = run_module(**wanted)
    assert (first["changed"], first["gpus"], first["pending"]) == (True, checked["gpus"], [])
    assert [gpu["mig_layout"] for gpu in first["gpus"]] == [["1g.10gb", "2g.20gb", "3g.40gb"]]
    assert re.findall(r"^  MIG (\S+)", bench.smi("-L"), re.MULTILINE) == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert bench.query("mig.mode.current") == ["Disabled"]
    again = run_module(**wanted)
    assert (again["changed"], again["gpus"]) == (False, first["gpus"])
    smaller = run_module(gpus=[1], mig_layout=["7g.80gb"])
    assert (smaller["changed"], smaller["gpus"][0]["mig_layout"]) == (True, ["7g.80gb"])
    assert "it takes 1 of 4g.40gb at most" in run_module(gpus=[1], mig_layout=["4g.40gb", "4g.40gb"])["msg"]
    bench.smi("mig", "-dci", "-i", "1")
    assert run_module(gpus=[1])["gpus"][0]["mig_layout"] == ["7g.80gb (no compute instance)"]
    assert run_module(defaults=True)["changed"]
    assert bench.query("mig.mode.current", 1) == ["Disabled"]
    assert not run_module(defaults=True)["changed"]


def test_mig_waits_for_a_reset_before_hopper(bench: Bench, run_module: RunModule, tmp_path: Path) -> None:
    hardware = tmp_path / "var/lib/simgpu/hardware"
    older = hardware.read_text().replace("architecture=hopper", "architecture=ampere")
    hardware.write_text(older.replace("mig.resetless=1", "mig.resetless=0"))
    wanted: dict[str, Any] = {"gpus": [1], "mig": True, "mig_layout": ["3g.40gb", "3g.40gb"]}
    first, again = run_module(**wanted), run_module(**wanted)
    assert (first["changed"], again["changed"]) == (True, False)
    assert [(each["gpu"], each["setting"], each["needs"]) for each in again["pending"]] == [
        (1, "mig", "reset"),
        (1, "mig_layout", "reset"),
    ]
    bench.simgpu("reset", "1")
    last = run_module(**wanted)
    assert (last["changed"], last["pending"]) == (True, [])
    assert last["gpus"][0]["mig_layout"] == ["3g.40gb", "3g.40gb"]
    assert not run_module(**wanted)["changed"]


@pytest.mark.parametrize(
    ("divided", "arguments", "words"),
    [
        (False, {"ecc": False}, "ecc: false waits"),
        (False, {"mig": True}, "mig: true waits"),
        (True, {"mig": False}, "mig: false waits"),
        (True, {"mig": True, "mig_layout": ["7g.80gb"]}, "mig_layout: 7g.80gb waits"),
        (True, {"ecc": False}, "ecc: false waits"),
    ],
)
def test_leaves_a_gpu_alone_that_a_process_holds(
    bench: Bench, run_module: RunModule, divided: bool, arguments: dict[str, Any], words: str
) -> None:
    if divided:
        run_module(gpus=[1], mig=True, mig_layout=["3g.40gb", "3g.40gb"])
    bench.simgpu("set", "1", f"processes={os.getpid()}:1024")
    before = run_module()["gpus"]
    refused = run_module(**{"power_limit": 400, **arguments})
    name = Path("/proc/self/cmdline").read_text().split("\0")[0]
    assert refused["msg"] == (
        f"{words} until GPU 1 (NVIDIA H100 80GB HBM3) is free; now process {os.getpid()} ({name}) holds it, "
        "so let it end first."
    )
    assert (refused["changed"], run_module()["gpus"]) == (False, before)
    assert run_module(power_limit=400)["changed"]


def test_locks_the_clocks_again_after_the_driver_was_loaded_again(
    bench: Bench, run_module: RunModule, tmp_path: Path
) -> None:
    assert run_module(graphics_clocks=1500)["changed"]
    assert not run_module(graphics_clocks=1500)["changed"]
    version = bench.query("driver_version")[0]
    bench.simgpu("driver", "unload")
    bench.simgpu("driver", "load", "--version", version)
    # The file system may give a new folder the number of one that is gone, which sysfs doesn't do.
    folder = tmp_path / "sys/module/nvidia"
    shutil.copytree(folder.rename(tmp_path / "old"), folder)
    bench.simgpu("set", "all", "utilization=100")
    assert bench.query("clocks.sm") == ["1980"]
    assert run_module(graphics_clocks=1500)["changed"]
    assert bench.query("clocks.sm") == ["1500"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"power_limit": 900},
            "power_limit: 900 W is out of range for GPUs 0 and 1 (NVIDIA H100 80GB HBM3); write 200 ",
        ),
        ({"gpus": [0, 2]}, "gpus: 2 is no GPU of this machine (it has 0, 1)"),
        ({"memory_clocks": 2000}, "(NVIDIA H100 80GB HBM3); its memory runs at 2619 MHz."),
        ({"compute_mode": "shared"}, "value of compute_mode must be one of"),
        ({"timeout": 0}, "timeout: 0 is no number of seconds"),
        (
            {"nvidia_smi": "/nowhere/nvidia-smi"},
            "nvidia_smi: /nowhere/nvidia-smi can't be run (No such file or directory)",
        ),
    ],
)
def test_says_what_is_wrong_and_changes_nothing(
    bench: Bench, run_module: RunModule, arguments: dict[str, Any], words: str
) -> None:
    result = run_module(persistence_mode=True, **arguments)
    assert result["failed"]
    assert words in result["msg"]
    assert "Traceback" not in result["msg"]
    assert bench.query("persistence_mode,power.limit") == ["Disabled", "700.00"]


def test_a_machine_without_driver(bench: Bench, run_module: RunModule) -> None:
    bench.simgpu("driver", "none")
    assert "gives no report: NVIDIA-SMI has failed because it couldn't communicate" in run_module(ecc=True)["msg"]


def test_documents_what_it_returns() -> None:
    returned = yaml.safe_load(gpu_settings.RETURN)
    for name, kind in (("gpus", GpuSettings), ("pending", Pending)):
        assert sorted(returned[name]["contains"]) == sorted(field.name for field in fields(kind))
