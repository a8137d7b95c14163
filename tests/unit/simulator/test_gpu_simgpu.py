# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""simgpu and the module tools on a root of their own: no library, no mounts, no device nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.simulator.gpu import profile
from tests.simulator.gpu.host.lib.simgpu import cli, driver, kmod
from tests.simulator.gpu.host.lib.simgpu.machine import Machine

ADDRESSES = ["0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:5d:00.0"]
VERSION = "550.163.01"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with four H100 and nothing loaded but nouveau."""
    monkeypatch.setenv("SIMGPU_ROOT", str(tmp_path / "root"))
    source = tmp_path / "profile.json"
    source.write_text(json.dumps(profile.load("h100-sxm-80gb")))
    assert cli.main(["install", "--profile", str(source), "--count", "4", "--name", "gpu1"]) == 0
    return tmp_path / "root"


@pytest.fixture
def machine(root: Path) -> Machine:
    return Machine(root)


@pytest.fixture
def package(root: Path) -> Path:
    """Debian's package with the kernel modules, installed."""
    status = root / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        f"Package: nvidia-kernel-dkms\nStatus: install ok installed\nArchitecture: amd64\nVersion: {VERSION}-2\n"
        "Maintainer: nobody\nDescription: modules\n"
    )
    return status


def simgpu(*words: str) -> None:
    assert cli.main(list(words)) == 0


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(list(words)) == 1
    return capsys.readouterr().err.strip()


def shown(capsys: pytest.CaptureFixture[str], gpu: str) -> dict[str, str]:
    capsys.readouterr()
    simgpu("show", gpu, "--json")
    values: dict[str, str] = json.loads(capsys.readouterr().out)
    return values


def blacklist(root: Path, text: str) -> None:
    path = root / "etc/modprobe.d/test.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# --- hardware ---


def test_two_hosts_have_different_gpus_and_one_host_the_same_again() -> None:
    data = profile.load("h100-sxm-80gb")
    one, other, again = (cli.hardware(data, 8, None, name) for name in ("gpu1", "gpu2", "gpu1"))
    uuids = [values[f"gpu.{slot}.uuid"] for values in (one, other) for slot in range(8)]
    assert len(set(uuids)) == 16
    assert one == again
    assert len({one[f"gpu.{slot}.serial"] for slot in range(8)}) == 8


def test_geforce_has_no_serial_and_more_gpus_than_slots_are_refused() -> None:
    data = profile.load("rtx-4090")
    assert "gpu.0.serial" not in cli.hardware(data, 2, None, "w")
    with pytest.raises(cli.SimulatorError, match="has 4 slots: --count 5"):
        cli.hardware(data, 5, None, "w")


def test_pci_devices_are_there_without_a_driver(machine: Machine) -> None:
    device = machine.root / "sys/bus/pci/devices/0000:18:00.0"
    assert (device / "vendor").read_text() == "0x10de\n"
    assert (device / "device").read_text() == "0x2330\n"
    assert (device / "class").read_text() == "0x030200\n"
    assert (device / "local_cpulist").read_text() == "0-7\n"
    assert (device / "config").read_bytes()[:4] == bytes.fromhex("de103023")


# --- set, show, reset ---


def test_short_names_and_full_names_set_the_same(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("set", "1", "temperature=95", "power.draw=650.5", "ecc.volatile.uncorrectable=2")
    values = shown(capsys, "1")
    assert values["temperature.gpu"] == "95"
    assert values["power.draw"] == "650.5"
    assert values["ecc.volatile.uncorrected.dram"] == "2"
    assert "temperature.gpu" not in shown(capsys, "0")


def test_volatile_errors_count_for_the_lifetime_too(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("set", "0", "ecc.volatile.uncorrectable=2")
    simgpu("set", "0", "ecc.volatile.uncorrectable=5")
    simgpu("reset", "0")
    values = shown(capsys, "0")
    assert values["ecc.aggregate.uncorrected.dram"] == "5"
    assert "ecc.volatile.uncorrected.dram" not in values


def test_all_and_every_link(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("set", "all", "nvlink.all.active=0")
    for gpu in "0123":
        assert [shown(capsys, gpu)[f"nvlink.{link}.active"] for link in range(18)] == ["0"] * 18


def test_an_empty_value_takes_a_change_back(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("set", "0", "temperature=95")
    simgpu("set", "0", "temperature=")
    assert "temperature.gpu" not in shown(capsys, "0")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("set", "0", "colour=1"), "there is no key 'colour'"),
        (("set", "0", "colour="), "there is no key 'colour'"),
        (("set", "0", "colour=green"), "there is no key 'colour'"),
        (("set", "0", "temperature=hot"), "temperature must be a number, not 'hot'"),
        (("set", "0", "utilization=101"), "utilization must lie between 0 and 100, not 101"),
        (("set", "0", "lost=yes"), "lost must be one of 0, 1, not 'yes'"),
        (("set", "0", "throttle=idle,cold"), "throttle must be one of idle"),
        (("set", "0", "recovery_action=pray"), "recovery_action must be one of none, gpu_reset"),
        (("set", "0", "temperature"), "'temperature' is no KEY=VALUE"),
        (("set", "4", "lost=1"), "there is no GPU 4: give a number from 0 to 3, or all"),
        (("set", "0", "processes=vim"), "processes must be PID:MIB"),
        (("driver", "mismatch"), "no driver is loaded"),
    ],
)
def test_a_wrong_word_is_named(
    root: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused(capsys, *words)


def test_a_wrong_word_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "set", "all", "temperature=95", "utilization=101")
    assert "temperature.gpu" not in shown(capsys, "0")


def test_pending_modes_wait_for_a_reset(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("set", "0", "ecc.pending=0", "remapped.pending=1", "recovery_action=gpu_reset", "power_limit=300")
    assert shown(capsys, "0")["ecc.current"] == "1"
    simgpu("reset", "0")
    values = shown(capsys, "0")
    assert (values["ecc.current"], values["remapped.pending"]) == ("0", "0")
    assert not {"ecc.pending", "recovery_action", "power.limit"} & set(values)


def test_mig_goes_with_its_mode_and_a_reboot(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for end in (("set", "0", "mig=0"), ("reset", "0"), ("boot",)):
        simgpu("set", "0", "mig=1")
        with Machine(root).store.change() as state:
            state["gpu.0.mig.layout"] = "9:4:0/2/0"
        simgpu("repair", "0")
        assert "mig.layout" in shown(capsys, "0")
        simgpu(*end)
        assert "mig.layout" not in shown(capsys, "0")
    assert shown(capsys, "0")["mig.current"] == "0"


def test_only_a_reboot_does_what_needs_one(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("set", "0", "recovery_action=node_reboot")
    simgpu("reset", "0")
    assert shown(capsys, "0")["recovery_action"] == "node_reboot"
    simgpu("boot")
    assert "recovery_action" not in shown(capsys, "0")


def test_a_lost_or_busy_gpu_is_not_reset(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("set", "2", "lost=1")
    assert "GPU 2 is lost" in refused(capsys, "reset", "2")
    simgpu("repair", "2")
    simgpu("set", "2", "processes=4711:1024")
    assert "GPU 2 is in use" in refused(capsys, "reset", "2")


def test_repair_leaves_what_an_administrator_set(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("set", "0", "lost=1", "temperature=99", "ecc.volatile.uncorrectable=1", "power_limit=300", "ecc.pending=0")
    simgpu("repair")
    values = shown(capsys, "0")
    assert (values["power.limit"], values["ecc.pending"]) == ("300", "0")
    assert not [key for key in values if key in ("lost", "temperature.gpu") or key.startswith("ecc.volatile")]


def test_energy_counts_at_the_power_drawn_before(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("driver", "load", "--version", VERSION)
    with Machine(root).store.change() as state:
        state["driver.loaded_at"] = str(int(state["driver.loaded_at"]) - 100)
    simgpu("set", "0", "utilization=100")
    assert 7197 <= float(shown(capsys, "0")["energy.base"]) <= 7500


# --- modules ---


def test_nouveau_holds_a_fresh_machine(machine: Machine) -> None:
    assert machine.loaded() == ["nouveau"]
    assert (machine.root / "sys/module/nouveau/initstate").is_file()
    assert sorted(path.name for path in (machine.root / "sys/bus/pci/drivers/nouveau").iterdir()) == ADDRESSES


def test_without_a_package_there_is_no_module(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert kmod.main("modprobe", ["nvidia"], machine) == 1
    assert "modprobe: FATAL: Module nvidia not found in directory /lib/modules/" in capsys.readouterr().err
    assert kmod.main("modinfo", ["nvidia"], machine) == 1
    assert kmod.main("modprobe", ["-q", "nvidia"], machine) == 1
    assert "FATAL" not in capsys.readouterr().err


@pytest.mark.usefixtures("package")
def test_nvidia_gets_no_gpu_that_nouveau_holds(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert kmod.main("modprobe", ["nvidia"], machine) == 1
    assert capsys.readouterr().err == "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    assert "NVRM: No NVIDIA devices probed." in (machine.root / "var/log/kern.log").read_text()


@pytest.mark.usefixtures("package")
def test_loading_shows_in_proc_and_sys(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert kmod.main("rmmod", ["nouveau"], machine) == 0
    assert kmod.main("modprobe", ["nvidia"], machine) == 0
    assert (machine.root / "sys/module/nvidia/version").read_text() == f"{VERSION}\n"
    assert f"Kernel Module  {VERSION}" in (machine.root / "proc/driver/nvidia/version").read_text()
    information = (machine.root / "proc/driver/nvidia/gpus/0000:5d:00.0/information").read_text()
    assert "Device Minor: \t 3\n" in information
    assert sorted(path.name for path in (machine.root / "sys/bus/pci/drivers/nvidia").iterdir()) == ADDRESSES
    assert not (machine.root / "sys/module/nouveau").exists()
    kmod.main("lsmod", [], machine)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["nvidia_uvm", "nvidia"]
    kmod.main("modinfo", ["-F", "version", "nvidia"], machine)
    assert capsys.readouterr().out == f"{VERSION}\n"


@pytest.mark.usefixtures("package")
def test_loading_enters_the_modules_into_the_kernels_list_once(machine: Machine) -> None:
    listed = machine.root / f"lib/modules/{os.uname().release}/modules.dep"
    listed.parent.mkdir(parents=True)
    listed.write_text("kernel/net/ipv6/sit.ko:\n")
    driver.Driver(machine).unload("nouveau")
    for _time in range(2):
        driver.Driver(machine).load("nvidia")
        driver.Driver(machine).unload_all()
    lines = listed.read_text().splitlines()
    assert lines[:2] == ["kernel/net/ipv6/sit.ko:", "updates/dkms/nvidia-current.ko:"]
    assert len(lines) == len(set(lines))


@pytest.mark.usefixtures("package")
def test_unloading_takes_it_all_away(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    kmod.main("rmmod", ["nouveau"], machine)
    kmod.main("modprobe", ["nvidia-drm"], machine)
    assert kmod.main("rmmod", ["nvidia"], machine) == 1
    assert "rmmod: ERROR: Module nvidia is in use by: " in capsys.readouterr().err
    assert kmod.main("modprobe", ["-r", "nvidia"], machine) == 0
    assert machine.loaded() == []
    assert not (machine.root / "proc/driver/nvidia").exists()
    assert list((machine.root / "sys/bus/pci/drivers").iterdir()) == []


@pytest.mark.usefixtures("package")
def test_loading_the_module_again_ends_a_mismatch_with_the_library(machine: Machine) -> None:
    simgpu("driver", "load")
    simgpu("driver", "mismatch")
    assert machine.store.state()["library.version"] != VERSION
    kmod.main("modprobe", ["-r", "nvidia"], machine)
    kmod.main("modprobe", ["nvidia"], machine)
    assert "library.version" not in machine.store.state()


@pytest.mark.usefixtures("package")
def test_a_lost_gpu_is_missing_after_the_driver_came_back(machine: Machine) -> None:
    simgpu("set", "1", "lost=1")
    simgpu("driver", "load")
    found = sorted(path.name for path in (machine.root / "proc/driver/nvidia/gpus").iterdir())
    assert found == [ADDRESSES[0], *ADDRESSES[2:]]
    assert (machine.root / "sys/bus/pci/devices" / ADDRESSES[1]).is_dir()
    assert "Device Minor: \t 1\n" in (machine.root / f"proc/driver/nvidia/gpus/{ADDRESSES[2]}/information").read_text()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ("", ["nouveau"]),
        ("blacklist nouveau\n", ["nvidia", "nvidia_uvm"]),
        ("install nouveau /bin/false\n", ["nvidia", "nvidia_uvm"]),
        ("blacklist nouveau\nblacklist nvidia-current\n", []),
        ("# blacklist nouveau\n", ["nouveau"]),
    ],
)
def test_a_boot_loads_what_is_not_blacklisted(machine: Machine, text: str, loaded: list[str]) -> None:
    blacklist(machine.root, text)
    simgpu("boot")
    assert machine.loaded() == loaded


@pytest.mark.usefixtures("package")
def test_a_boot_ends_settings_and_keeps_pending_modes(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    blacklist(machine.root, "blacklist nouveau\n")
    simgpu("boot")
    simgpu("set", "0", "persistence_mode=1", "power_limit=300", "ecc.pending=0", "temperature=95")
    simgpu("boot")
    values = shown(capsys, "0")
    assert (values["ecc.current"], values["temperature.gpu"]) == ("0", "95")
    assert not {"persistence_mode", "power.limit"} & set(values)


@pytest.mark.usefixtures("package")
def test_options_of_modprobe_d_reach_the_driver(machine: Machine) -> None:
    blacklist(machine.root, "options nvidia-current NVreg_RestrictProfilingToAdminUsers=0\nblacklist nouveau\n")
    simgpu("boot")
    assert "RmProfilingAdminOnly: 0\n" in (machine.root / "proc/driver/nvidia/params").read_text()


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("nvidia-kernel-dkms", "550.163.01-2", "550.163.01"),
        ("nvidia-open-kernel-dkms", "535.261.03-1", "535.261.03"),
        ("nvidia-dkms-570-server-open", "570.133.20-0ubuntu0.24.04.1", "570.133.20"),
        ("nvidia-kernel-open-dkms", "595.71.05-1", "595.71.05"),
        ("nvidia-dkms-580", "580.159.04-1ubuntu1", "580.159.04"),
        ("nvidia-dkms-open", "595.71.05-1ubuntu1", "595.71.05"),
        ("nvidia-kernel-source-580", "580.159.04-1ubuntu1", None),
        ("nvidia-smi", "550.163.01-2", None),
    ],
)
def test_which_packages_bring_modules(root: Path, package: Path, name: str, version: str, expected: str | None) -> None:
    package.write_text(package.read_text().replace("nvidia-kernel-dkms", name).replace(f"{VERSION}-2", version))
    found = driver.installed_package(root)
    assert (found.version if found else None) == expected


@pytest.mark.usefixtures("package")
def test_the_vendors_modules_have_their_own_names(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(root)
    assert kmod.main("modinfo", ["-F", "filename", "nvidia"], machine) == 0
    assert capsys.readouterr().out.endswith("/updates/dkms/nvidia-current.ko\n")
    (root / f"usr/src/nvidia-{VERSION}").mkdir(parents=True)
    assert kmod.main("modinfo", ["-F", "filename", "nvidia"], machine) == 0
    assert capsys.readouterr().out.endswith("/updates/dkms/nvidia.ko\n")
    assert kmod.main("modinfo", ["nvidia-current"], machine) == 1
    assert capsys.readouterr().err == "modinfo: ERROR: Module nvidia-current not found.\n"


@pytest.mark.parametrize(
    ("version", "cuda"), [("535.261.03", 12020), ("550.163.01", 12040), ("555.42", 12040), ("580.1", 13000)]
)
def test_cuda_version_of_a_branch(version: str, cuda: int) -> None:
    assert driver.cuda_version(version) == cuda


# --- kernel log ---


def test_an_xid_reads_as_the_drivers(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("xid", "3", "79")
    simgpu("xid", "0", "63", "Row remapped")
    kmod.main("dmesg", [], machine)
    out = capsys.readouterr().out
    assert "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." in out
    assert "NVRM: GPU at PCI:0000:5d:00: GPU-" in out
    assert out.rstrip().endswith("NVRM: Xid (PCI:0000:18:00): 63, Row remapped")


def test_an_sxid_is_in_both_logs(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    simgpu("sxid", "1", "20034", "--link", "48", "--fatal")
    kmod.main("dmesg", [], machine)
    assert "nvidia-nvswitch1: SXid (PCI:0000:1b:00.0): 20034, Fatal, Link 48 " in capsys.readouterr().out
    reported = (machine.root / "var/log/fabricmanager.log").read_text()
    assert reported.endswith(
        "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:1B:00.0 physical id 1 port 48\n"
    )
    assert "there is no NVSwitch 4: this machine has 4" in refused(capsys, "sxid", "4", "20034")
