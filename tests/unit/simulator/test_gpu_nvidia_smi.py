# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian's real nvidia-smi, 535 and 550, on the simulated library.

The packages are unpacked below .cache, not installed; GPUs and state live in a root of their own (SIMGPU_ROOT).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.simulator.gpu import debian, library, profile
from tests.simulator.gpu.host.lib.simgpu import cli

CHECKOUT = Path(__file__).parents[3]
CACHE = CHECKOUT / ".cache/simgpu"
SIMGPU = CHECKOUT / "tests/simulator/gpu/host/lib/main.py"
# Settings are root's; as an ordinary user the tests are root in a namespace of their own.
AS_ROOT = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]


@dataclass
class Bench:
    """A machine with simulated GPUs, its driver loaded, and an nvidia-smi."""

    program: Path
    environment: dict[str, str]

    def smi(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [*AS_ROOT, self.program, *words], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def log(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.smi("-q", "-x"))  # noqa: S314 # nvidia-smi wrote it

    def query(self, fields: str, gpu: int = 0) -> list[str]:
        answer = self.smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-i", str(gpu))
        return [value.strip() for value in answer.split(",")]

    def simgpu(self, *words: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SIMGPU_ROOT", self.environment["SIMGPU_ROOT"])
            assert cli.main(list(words)) == 0


@pytest.fixture(scope="session")
def libraries() -> Path:
    return library.build_libraries(CACHE)


@pytest.fixture(scope="session", params=["bookworm", "trixie"])
def program(request: pytest.FixtureRequest) -> Path:
    return debian.unpack(request.param, ["nvidia-smi"], CACHE) / "usr/lib/nvidia/current/nvidia-smi"


@pytest.fixture(scope="session")
def version(program: Path) -> str:
    """The driver that this nvidia-smi belongs to."""
    usage = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v(\d+\.\d+(\.\d+)?)", usage)
    assert found, usage[:200]
    return found.group(1)


@pytest.fixture(scope="session")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    for name in ("h100-sxm-80gb", "rtx-4090"):
        (folder / f"{name}.json").write_text(json.dumps(profile.load(name)))
    return folder


def start(made: Bench, version: str, source: Path, count: int) -> Bench:
    made.simgpu("install", "--profile", str(source), "--count", str(count), "--name", "gpu1")
    made.simgpu("driver", "load", "--version", version)
    return made


@pytest.fixture
def bench(tmp_path: Path, libraries: Path, program: Path) -> Bench:
    return Bench(program, {**os.environ, "SIMGPU_ROOT": str(tmp_path), "LD_LIBRARY_PATH": str(libraries)})


@pytest.fixture
def h100(bench: Bench, version: str, profiles: Path) -> Bench:
    return start(bench, version, profiles / "h100-sxm-80gb.json", 8)


@pytest.fixture
def rtx4090(bench: Bench, version: str, profiles: Path) -> Bench:
    return start(bench, version, profiles / "rtx-4090.json", 3)


def test_one_build_serves_debian_12(libraries: Path) -> None:
    symbols = subprocess.run(
        ["objdump", "-T", libraries / "libnvidia-ml.so.1"], capture_output=True, text=True, check=True
    )
    assert (
        max(tuple(map(int, two)) for two in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols.stdout)) <= library.OLDEST_GLIBC
    )


def test_stubs_are_made_of_what_is_not_defined() -> None:
    source = library.stub_source({"nvmlOne", "nvmlTwo"}, {"nvmlTwo"})
    assert "int nvmlOne(void)" in source
    assert "nvmlTwo" not in source


def test_the_table_and_the_list(h100: Bench, version: str) -> None:
    table = h100.smi()
    assert f"Driver Version: {version}" in table
    assert table.count("NVIDIA H100 80GB HBM3") == 8
    listed = re.findall(
        r"^GPU (\d): NVIDIA H100 80GB HBM3 \(UUID: (GPU-[0-9a-f-]{36})\)$", h100.smi("-L"), re.MULTILINE
    )
    assert [int(number) for number, _uuid in listed] == list(range(8))
    assert len({uuid for _number, uuid in listed}) == 8


def test_the_xml_is_that_of_a_real_gpu(h100: Bench, version: str) -> None:
    log = h100.log()
    gpus = log.findall("gpu")
    assert (log.findtext("driver_version"), log.findtext("attached_gpus"), len(gpus)) == (version, "8", 8)
    # A value that nvidia-smi could not ask for at all, which a real driver never causes.
    assert "Uninitialized" not in ElementTree.tostring(log, encoding="unicode")
    first = gpus[0]
    expected = {
        "product_architecture": "Hopper",
        "fb_memory_usage/total": "81559 MiB",
        "bar1_memory_usage/total": "131072 MiB",
        "vbios_version": "96.00.74.00.01",
        "gpu_part_number": "2330-885-A1",
        "ecc_mode/current_ecc": "Enabled",
        "remapped_rows/row_remapper_histogram/row_remapper_histogram_max": "2560 bank(s)",
        "temperature/gpu_temp_tlimit": "51 C",
        "temperature/gpu_temp_slow_tlimit_threshold": "-2 C",
        "gpu_power_readings/max_power_limit": "700.00 W",
        "max_clocks/mem_clock": "2619 MHz",
        "fabric/state": "Completed",
        "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "5",
        "mig_mode/current_mig": "Disabled",
    }
    assert {path: first.findtext(path) for path in expected} == expected


def test_a_consumer_gpu_lacks_what_it_lacks(rtx4090: Bench) -> None:
    first = rtx4090.log().findall("gpu")[0]
    expected = {
        "product_name": "NVIDIA GeForce RTX 4090",
        "mig_mode/current_mig": "N/A",
        "ecc_mode/current_ecc": "Disabled",
        "serial": "N/A",
        "ecc_errors/volatile/dram_correctable": "N/A",
        "temperature/memory_temp": "N/A",
        "fan_speed": "0 %",
        "gpu_power_readings/max_power_limit": "600.00 W",
        "fabric/state": "N/A",
        "performance_state": "P8",
    }
    assert {path: first.findtext(path) for path in expected} == expected
    assert "26.562" not in rtx4090.smi("nvlink", "-s")


def test_what_simgpu_sets_is_read(h100: Bench) -> None:
    fields = (
        "temperature.gpu,temperature.memory,power.draw,utilization.gpu,memory.used,clocks_throttle_reasons.hw_thermal_slowdown"
        ",ecc.errors.uncorrected.volatile.dram,ecc.errors.uncorrected.aggregate.total,pcie.link.width.current"
    )
    assert h100.query(fields, 3) == ["36", "44", "71.97", "0", "0", "Not Active", "0", "0", "16"]
    h100.simgpu(
        "set",
        "3",
        "temperature=95",
        "memory_temperature=101",
        "power_draw=650.5",
        "utilization=97",
        "memory_used=70000",
        "throttle=hw_thermal",
        "ecc.volatile.uncorrectable=2",
        "pcie.width=8",
    )
    assert h100.query(fields, 3) == ["95", "101", "650.50", "97", "70000", "Active", "2", "2", "8"]
    assert h100.query(fields, 4)[0] == "36"


def test_remapped_rows(h100: Bench) -> None:
    h100.simgpu(
        "set",
        "1",
        "remapped.uncorrectable=1",
        "remapped.pending=1",
        "remapped.banks.low=1",
        "recovery_action=gpu_reset",
    )
    question = "--query-remapped-rows=remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure"
    assert h100.smi(question, "--format=csv,noheader", "-i", "1").strip() == "1, 1, 0"
    h100.simgpu("reset", "1")
    assert h100.smi(question, "--format=csv,noheader", "-i", "1").strip() == "1, 0, 0"


def test_load_follows_the_power_limit(h100: Bench) -> None:
    h100.simgpu("set", "all", "utilization=100")
    assert h100.query("power.draw,clocks.sm,clocks_throttle_reasons.sw_power_cap") == ["690.00", "1980", "Not Active"]
    h100.smi("-pl", "400", "-i", "0")
    assert h100.query("power.draw,power.limit,clocks_throttle_reasons.sw_power_cap") == ["400.00", "400.00", "Active"]


def test_a_power_limit_out_of_range_is_refused(h100: Bench) -> None:
    for limit in ("199", "701"):
        answer = h100.smi("-pl", limit, "-i", "0", status=2)
        assert "is not a valid power limit which should be between 200.00 W and 700.00 W" in answer
    assert h100.query("power.limit") == ["700.00"]


def test_settings_stay_until_the_driver_goes(h100: Bench, version: str) -> None:
    fields = "persistence_mode,power.limit,compute_mode,clocks.sm"
    h100.smi("-pm", "1", "-i", "0")
    h100.smi("-pl", "500", "-i", "0")
    h100.smi("-c", "EXCLUSIVE_PROCESS", "-i", "0")
    h100.smi("-lgc", "1000,1500", "-i", "0")
    h100.simgpu("set", "0", "utilization=100")
    assert h100.query(fields) == ["Enabled", "500.00", "Exclusive_Process", "1500"]
    h100.smi("-rgc", "-i", "0")
    assert h100.query(fields)[3] == "1980"
    h100.simgpu("driver", "unload")
    h100.simgpu("driver", "load", "--version", version)
    assert h100.query(fields) == ["Disabled", "700.00", "Default", "1980"]


def test_application_clocks_must_be_supported(h100: Bench) -> None:
    h100.smi("-ac", "2619,1500", "-i", "0")
    assert h100.query("clocks.applications.graphics") == ["1500"]
    assert '"(MEM 2619, SM 1501)" is not supported' in h100.smi("-ac", "2619,1501", "-i", "0")
    h100.smi("-rac", "-i", "0")
    assert h100.query("clocks.applications.graphics") == ["1980"]


def test_ecc_waits_for_a_reset(h100: Bench) -> None:
    h100.smi("-e", "0", "-i", "2")
    assert h100.query("ecc.mode.current,ecc.mode.pending", 2) == ["Enabled", "Disabled"]
    h100.simgpu("reset", "2")
    assert h100.query("ecc.mode.current,ecc.mode.pending", 2) == ["Disabled", "Disabled"]


def test_no_mig_mode_on_a_consumer_gpu(rtx4090: Bench) -> None:
    assert "Unable to enable MIG Mode for GPU 00000000:84:00.0: Not Supported" in rtx4090.smi("-mig", "1", "-i", "0")


def test_mig_mode_changes_at_once_on_hopper(h100: Bench) -> None:
    h100.smi("-mig", "1", "-i", "4")
    assert h100.query("mig.mode.current,mig.mode.pending,utilization.gpu", 4) == ["Enabled", "Enabled", "[N/A]"]
    h100.smi("-mig", "0", "-i", "4")
    assert h100.query("mig.mode.current", 4) == ["Disabled"]


def test_what_mig_offers(h100: Bench) -> None:
    h100.smi("-mig", "1", "-i", "4")
    rows = re.findall(
        r"^\|   4  MIG (\S+) +(\d+) +(\d/\d) +([\d.]+) +No +(\d+)", h100.smi("mig", "-lgip", "-i", "4"), re.MULTILINE
    )
    assert rows == [
        ("1g.10gb", "19", "7/7", "9.75", "16"),
        ("1g.10gb+me", "20", "1/1", "9.75", "16"),
        ("1g.20gb", "15", "4/4", "19.62", "26"),
        ("2g.20gb", "14", "3/3", "19.62", "32"),
        ("3g.40gb", "9", "2/2", "39.50", "60"),
        ("4g.40gb", "5", "1/1", "39.50", "64"),
        ("7g.80gb", "0", "1/1", "79.25", "132"),
    ]
    assert h100.smi("mig", "-lgipp", "-i", "4").splitlines() == [
        "GPU  4 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1",
        "GPU  4 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1",
        "GPU  4 Profile ID 15 Placements: {0,2,4,6}:2",
        "GPU  4 Profile ID 14 Placements: {0,2,4}:2",
        "GPU  4 Profile ID  9 Placements: {0,4}:4",
        "GPU  4 Profile ID  5 Placement : {0}:4",
        "GPU  4 Profile ID  0 Placement : {0}:8",
    ]


@pytest.mark.parametrize(
    ("wanted", "instances"),
    [
        ("3g.40gb,2g.20gb,1g.10gb,1g.10gb", ["2 4:4", "3 0:2", "9 2:1", "10 3:1"]),
        ("9,9", ["1 0:4", "2 4:4"]),
        ("19,14,5", ["1 0:4", "5 4:2", "13 6:1"]),
        ("0", ["0 0:8"]),
    ],
)
def test_mig_instances_lie_where_the_driver_puts_them(h100: Bench, wanted: str, instances: list[str]) -> None:
    h100.smi("-mig", "1", "-i", "4")
    h100.smi("mig", "-cgi", wanted, "-C", "-i", "4")
    rows = re.findall(r"MIG \S+ +\d+ +(\d+) +(\d:\d)", h100.smi("mig", "-lgi", "-i", "4"))
    assert sorted((" ".join(row) for row in rows), key=lambda row: int(row.split()[0])) == instances


def test_mig_devices(h100: Bench) -> None:
    h100.smi("-mig", "1", "-i", "4")
    h100.smi("mig", "-cgi", "3g.40gb,1g.10gb", "-C", "-i", "4")
    devices = h100.log().findall("gpu")[4].findall("mig_devices/mig_device")
    fields = (
        "index",
        "gpu_instance_id",
        "compute_instance_id",
        "device_attributes/shared/multiprocessor_count",
        "fb_memory_usage/total",
        "ecc_error_count/volatile_count/sram_uncorrectable",
    )
    assert [[device.findtext(field) for field in fields] for device in devices] == [
        ["0", "2", "0", "60", "40448 MiB", "0"],
        ["1", "7", "0", "16", "9984 MiB", "0"],
    ]
    listed = re.findall(r"^  MIG (\S+) +Device +(\d): \(UUID: MIG-[0-9a-f-]{36}\)$", h100.smi("-L"), re.MULTILINE)
    assert listed == [("3g.40gb", "0"), ("1g.10gb", "1")]
    h100.smi("mig", "-dci", "-gi", "2", "-i", "4")
    h100.smi("mig", "-cci", "0,1", "-gi", "2", "-i", "4")
    assert re.findall("^  MIG (\\S+)", h100.smi("-L"), re.MULTILINE) == ["1c.3g.40gb", "2c.3g.40gb", "1g.10gb"]


def test_what_mig_refuses(h100: Bench) -> None:
    h100.smi("-mig", "1", "-i", "4")
    h100.smi("mig", "-cgi", "4g.40gb,3g.40gb", "-C", "-i", "4")
    assert "Insufficient Resources" in h100.smi("mig", "-cgi", "1g.10gb", "-i", "4", status=23)
    assert "In use by another client" in h100.smi("mig", "-dgi", "-i", "4", status=19)
    assert "pending disable state" in h100.smi("-mig", "0", "-i", "4")
    h100.smi("-mig", "1", "-i", "4")
    h100.smi("mig", "-dci", "-i", "4")
    h100.smi("mig", "-dgi", "-i", "4")
    assert "No GPU instances found" in h100.smi("mig", "-lgi", "-i", "4", status=6)


def test_mig_is_gone_after_the_driver_was_loaded_again(h100: Bench, version: str) -> None:
    h100.smi("-mig", "1", "-i", "4")
    h100.smi("mig", "-cgi", "9,9", "-C", "-i", "4")
    h100.simgpu("reset", "4")
    assert "No GPU instances found" in h100.smi("mig", "-lgi", "-i", "4", status=6)
    h100.simgpu("driver", "unload")
    h100.simgpu("driver", "load", "--version", version)
    assert h100.query("mig.mode.current", 4) == ["Disabled"]


def test_processes(h100: Bench) -> None:
    own = os.getpid()
    h100.simgpu("set", "3", f"processes={own}:1024,4711:12:G")
    listed = h100.log().findall("gpu")[3].findall("processes/process_info")
    found = {
        process.findtext("pid"): [process.findtext(name) for name in ("type", "used_memory")] for process in listed
    }
    assert found == {str(own): ["C", "1024 MiB"], "4711": ["G", "12 MiB"]}
    name = Path("/proc/self/cmdline").read_text().split("\0")[0]
    fields = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
    assert h100.smi(*fields) == f"{own}, {name}, 1024\n"
    assert "[Not Found]" in h100.smi()


def test_a_process_on_a_divided_gpu_holds_an_instance(h100: Bench) -> None:
    h100.smi("-mig", "1", "-i", "4")
    h100.smi("mig", "-cgi", "9,9", "-C", "-i", "4")
    h100.simgpu("set", "4", f"processes={os.getpid()}:1024")
    listed = h100.log().findall("gpu")[4].findall("processes/process_info")
    assert [process.findtext("gpu_instance_id") for process in listed] == ["1"]
    assert "In use by another client" in h100.smi("mig", "-dci", "-i", "4", status=19)


def test_topology_of_nvswitches(h100: Bench) -> None:
    rows = [line.split("\t") for line in h100.smi("topo", "-m").splitlines() if line.startswith("GPU")]
    assert [row[0] for row in rows] == [f"GPU{number}" for number in range(8)]
    for number, row in enumerate(rows):
        assert row[1:9] == [" X " if other == number else "NV18" for other in range(8)]
        assert row[9:11] == (["0-7", "0"] if number < 4 else ["8-15", "1"])


def test_topology_without_nvlink(rtx4090: Bench) -> None:
    rows = [line.split("\t")[1:4] for line in rtx4090.smi("topo", "-m").splitlines() if line.startswith("GPU")]
    assert rows == [[" X ", "PHB", "SYS"], ["PHB", " X ", "SYS"], ["SYS", "SYS", " X "]]


def test_nvlink_status(h100: Bench) -> None:
    assert h100.smi("nvlink", "-s", "-i", "0").count("26.562 GB/s") == 18
    h100.simgpu("set", "0", "nvlink.5.active=0", "nvlink.6.replay=3")
    status = h100.smi("nvlink", "-s", "-i", "0")
    assert status.count("26.562 GB/s") == 17
    assert "Link 5: <inactive>" in status
    assert "Link 6: Replay Errors: 3" in h100.smi("nvlink", "-e", "-i", "0")
    rows = [line.split("\t") for line in h100.smi("topo", "-m").splitlines() if line.startswith("GPU")]
    assert (rows[0][2], rows[1][3]) == ("NV17", "NV18")


def test_a_lost_gpu(h100: Bench) -> None:
    h100.simgpu("set", "3", "lost=1")
    assert h100.smi(status=255) == "Unable to determine the device handle for GPU0000:5D:00.0: Unknown Error\n"
    listed = h100.smi("-L", status=255)
    assert "Unable to determine the device handle for gpu 0000:5D:00.0: Unknown Error" in listed
    assert len(re.findall(r"^GPU \d: ", listed, re.MULTILINE)) == 7
    h100.simgpu("repair", "3")
    assert len(h100.smi("-L").splitlines()) == 8


def test_a_lost_gpu_is_not_found_after_the_driver_was_loaded_again(h100: Bench, version: str) -> None:
    h100.simgpu("set", "3", "lost=1")
    h100.simgpu("driver", "unload")
    h100.simgpu("driver", "load", "--version", version)
    assert "5D:00.0" not in h100.smi("--query-gpu=index,pci.bus_id", "--format=csv")
    assert h100.query("pci.bus_id,count", 3) == ["00000000:9A:00.0", "7"]


def test_driver_and_library_of_different_versions(h100: Bench, tmp_path: Path) -> None:
    h100.simgpu("driver", "mismatch")
    assert h100.smi(status=18).startswith("Failed to initialize NVML: Driver/library version mismatch\n")
    h100.simgpu("driver", "none")
    # An upgrade of the packages does the same without being told: the module that is loaded stays the old one.
    h100.simgpu("driver", "load", "--version", "535.1.1")
    installed = tmp_path / "usr/lib/x86_64-linux-gnu/nvidia/current"
    installed.mkdir(parents=True)
    (installed / "libnvidia-ml.so.535.2.2").touch()
    assert h100.smi(status=18).startswith("Failed to initialize NVML: Driver/library version mismatch\n")


def test_no_driver(h100: Bench) -> None:
    h100.simgpu("driver", "none")
    assert h100.smi(status=9).startswith(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running."
    )


def test_a_running_process_sees_changes(h100: Bench) -> None:
    command = [h100.program, "--query-gpu=temperature.gpu", "--format=csv,noheader", "-i", "0", "-lms", "50"]
    with subprocess.Popen(command, env=h100.environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            assert watching.stdout.readline().strip() == "36"
            h100.simgpu("set", "0", "temperature=77")
            assert any(watching.stdout.readline().strip() == "77" for _line in range(100))
        finally:
            watching.terminate()


def run_python(bench: Bench, source: str) -> str:
    done = subprocess.run(
        [*AS_ROOT, sys.executable, "-c", textwrap.dedent(source)],
        env={**bench.environment, "SIMGPU": str(SIMGPU)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_xid_wakes_who_waits_and_a_loss_shows_in_open_handles(h100: Bench) -> None:
    answer = run_python(
        h100,
        """
        import ctypes, os, subprocess, sys
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        class Event(ctypes.Structure):
            _fields_ = [("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong),
                        ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]
        device, events, event, celsius = ctypes.c_void_p(), ctypes.c_void_p(), Event(), ctypes.c_uint()
        assert nvml.nvmlInit_v2() == 0
        assert nvml.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(device)) == 0
        nvml.nvmlEventSetCreate(ctypes.byref(events))
        assert nvml.nvmlDeviceRegisterEvents(device, ctypes.c_ulonglong(8), events) == 0
        simgpu = [sys.executable, "-B", os.environ["SIMGPU"], "simgpu"]
        subprocess.run([*simgpu, "xid", "1", "13"], check=True)
        subprocess.run([*simgpu, "xid", "2", "79"], check=True)
        subprocess.run([*simgpu, "set", "2", "lost=1"], check=True)
        waited = nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 1000)
        again = nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 0)
        print(waited, event.data, again, nvml.nvmlDeviceGetTemperature(device, 0, ctypes.byref(celsius)))
        """,
    )
    # success, Xid 79, then nothing more (10: timeout), and 15: the GPU is lost
    assert answer == "0 79 10 15"


def test_the_persistence_daemons_library(h100: Bench) -> None:
    answer = run_python(
        h100,
        """
        import ctypes
        class Device(ctypes.Structure):
            _fields_ = [(name, ctypes.c_int) for name in ("domain", "bus", "slot", "function")]
        cfg = ctypes.CDLL("libnvidia-cfg.so.1")
        count, devices, handle = ctypes.c_int(), ctypes.POINTER(Device)(), ctypes.c_void_p()
        assert cfg.nvCfgGetPciDevices(ctypes.byref(count), ctypes.byref(devices)) == 1
        first = devices[0]
        assert cfg.nvCfgOpenPciDevice(first.domain, first.bus, first.slot, 0, ctypes.byref(handle)) == 1
        nvml, device, mode = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_uint()
        nvml.nvmlInit_v2()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        nvml.nvmlDeviceGetPersistenceMode(device, ctypes.byref(mode))
        print(count.value, mode.value)
        """,
    )
    assert answer == "8 1"
    # It was persistent for as long as the daemon held it.
    assert h100.query("persistence_mode") == ["Disabled"]
