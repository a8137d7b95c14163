# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._command import CommandResult, RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_facts import (
    NcclFacts,
    Request,
    collect,
    default_route,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_interfaces import (
    Interface,
    interfaces,
    parse_addresses,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_libraries import (
    Library,
    NetPlugin,
    libraries,
    net_plugins,
    parse_ldconfig,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_recommended import recommend
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import fixture, read_capture
from tests.unit.hca_tree import gid, hca, planted


def library(path: Path, content: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_finds_every_library_once(tmp_path: Path) -> None:
    system = library(tmp_path / "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5")
    (system.parent / "libnccl.so.2").symlink_to(system.name)
    (system.parent / "libnccl.so").symlink_to("libnccl.so.2")
    cuda = library(tmp_path / "usr/local/cuda-12.4/lib64/libnccl.so.2.20.3")
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.4")
    wheel = library(
        tmp_path / "venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
        b"\x7fELF" + bytes(5000) + b"NCCL version 2.26.2+cuda12.2\x00",
    )
    cached = [str(system.parent / "libnccl.so.2")]
    assert libraries(str(tmp_path), [str(tmp_path / "venv")], cached) == [
        Library(str(system), "2.21.5", None, "system", True),
        Library(str(cuda), "2.20.3", None, "cuda", False),
        Library(str(wheel), "2.26.2", "12.2", "search_path", False),
    ]


@pytest.mark.parametrize("folder", ["dist-packages/nvidia/nccl/lib", "site-packages/nvidia/cu13/lib"])
def test_finds_the_library_of_a_python_environment(tmp_path: Path, folder: str) -> None:
    wheel = library(tmp_path / "local/lib/python3.12" / folder / "libnccl.so.2")
    assert [one.path for one in libraries(str(tmp_path), [str(tmp_path / "local")], [])] == [str(wheel)]


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"NCCL version"])
def test_knows_no_version_where_the_file_has_none(tmp_path: Path, content: bytes) -> None:
    library(tmp_path / "libnccl.so.2", content)
    (found,) = libraries(str(tmp_path / "none"), [str(tmp_path)], [])
    assert (found.version, found.cuda_version) == (None, None)


def test_passes_over_other_files_and_broken_links(tmp_path: Path) -> None:
    library(tmp_path / "libnccl.so.2.old")
    library(tmp_path / "libnccl.so.txt")
    (tmp_path / "libnccl.so.2").symlink_to("gone")
    assert libraries(str(tmp_path / "none"), [str(tmp_path)], []) == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so", "aws-ofi"),
        ("opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so.0", "sharp"),
        ("opt/hpcx-v2.26/nccl_spectrum-x_plugin/lib/libnccl-net-spcx.so", "spectrum-x"),
        ("usr/local/gib/lib64/libnccl-net.so", "gcp-gib"),
        ("var/lib/tcpxo/lib64/libnccl-net.so", "gcp-fastrak"),
        ("var/lib/tcpx/lib64/libnccl-net.so", "gcp-tcpx"),
        ("usr/lib/x86_64-linux-gnu/libnccl-net.so", None),
    ],
)
def test_finds_network_plugins(tmp_path: Path, path: str, kind: str | None) -> None:
    file = library(tmp_path / path)
    assert net_plugins(str(tmp_path), [], []) == [NetPlugin(str(file), kind)]


def test_reads_the_cache_of_the_loader() -> None:
    words = (
        "312 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibnccl.so.2 (libc6,x86-64) => /usr/local/nccl/lib/libnccl.so.2\n"
        "\tlibnccl.so.2 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnccl.so.2\n"
        "\tlibnccl-net.so (libc6,x86-64) => /opt/hpcx/lib/libnccl-net.so\n"
        "\tlibncurses.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libncurses.so.6\n"
    )
    assert parse_ldconfig(words) == [
        "/usr/local/nccl/lib/libnccl.so.2",
        "/lib/x86_64-linux-gnu/libnccl.so.2",
        "/opt/hpcx/lib/libnccl-net.so",
    ]


def interface(root: Path, name: str, *, state: str = "up", flags: str = "0x1003", **contents: str) -> Path:
    folder = root / "sys/class/net" / name
    folder.mkdir(parents=True)
    for file, content in {"operstate": state, "flags": flags, "mtu": "9000", "speed": "100000", **contents}.items():
        (folder / file).write_text(f"{content}\n")
    return folder


def test_judges_interfaces(tmp_path: Path) -> None:
    (interface(tmp_path, "bond0") / "bonding").mkdir()
    for member in ("ens1f0", "ens1f1"):
        folder = interface(tmp_path, member)
        (folder / "device").mkdir()
        (folder / "master").symlink_to("../bond0")
    (interface(tmp_path, "ens2") / "device").mkdir()
    (interface(tmp_path, "ens3", state="down", speed="-1") / "device").mkdir()
    (interface(tmp_path, "ens4") / "device").mkdir()
    (interface(tmp_path, "docker0") / "bridge").mkdir()
    interface(tmp_path, "veth12ab")
    interface(tmp_path, "eth0")
    interface(tmp_path, "lo", state="unknown", flags="0x9")
    (tmp_path / "sys/class/net/bonding_masters").write_text("bond0\n")
    addresses = {
        "bond0": ["192.0.2.11/24"],
        "ens2": ["198.51.100.7/24"],
        "ens4": ["fe80::1/64"],
        "eth0": ["203.0.113.5/24"],
        "docker0": ["172.17.0.1/16"],
        "lo": ["127.0.0.1/8"],
    }
    found = {one.name: one for one in interfaces(str(tmp_path), addresses)}
    assert {name: (one.kind, one.bootstrap_reason) for name, one in found.items()} == {
        "bond0": ("bond", None),
        "docker0": ("bridge", "virtual: its addresses are known on this host alone"),
        "ens1f0": ("physical", "member of bond0"),
        "ens1f1": ("physical", "member of bond0"),
        "ens2": ("physical", None),
        "ens3": ("physical", "down"),
        "ens4": ("physical", "no address that other hosts can reach"),
        "eth0": ("virtual", None),
        "lo": ("loopback", "loopback"),
        "veth12ab": ("virtual", "virtual: its addresses are known on this host alone"),
    }
    assert [one.name for one in found.values() if one.bootstrap] == ["bond0", "ens2", "eth0"]
    assert (found["ens2"].mtu, found["ens2"].speed_megabits_per_second) == (9000, 100000)
    assert found["ens3"].speed_megabits_per_second is None


def test_a_bridge_with_a_cable_bears_the_hosts_address(tmp_path: Path) -> None:
    for bridge, member in (("br0", "ens1"), ("cni0", "veth1"), ("br-lan", "bond0")):
        (interface(tmp_path, bridge) / "bridge").mkdir()
        (interface(tmp_path, member) / "master").symlink_to(f"../{bridge}")
    (tmp_path / "sys/class/net/ens1/device").mkdir()
    (tmp_path / "sys/class/net/bond0/bonding").mkdir()
    addresses = {name: ["192.0.2.1/24"] for name in ("br0", "cni0", "br-lan")}
    found = interfaces(str(tmp_path), addresses)
    assert [one.name for one in found if one.bootstrap] == ["br-lan", "br0"]


def test_an_interface_in_a_vrf_is_no_member(tmp_path: Path) -> None:
    interface(tmp_path, "fabric", uevent="DEVTYPE=vrf\nINTERFACE=fabric")
    folder = interface(tmp_path, "ens1")
    (folder / "device").mkdir()
    (folder / "master").symlink_to("../fabric")
    found = {one.name: one for one in interfaces(str(tmp_path), {"ens1": ["192.0.2.1/24"]})}
    assert (found["ens1"].controller, found["ens1"].bootstrap, found["fabric"].bootstrap) == (None, True, False)


def test_does_not_ask_for_addresses_that_cannot_be_known(tmp_path: Path) -> None:
    (interface(tmp_path, "ens2") / "device").mkdir()
    (only,) = interfaces(str(tmp_path), None)
    assert isinstance(only, Interface)
    assert (only.bootstrap, only.addresses) == (True, [])


def test_reads_addresses_of_a_capture() -> None:
    links = json.loads(read_capture("ib", "gcm-sysfs-eth-down.json"))["intf_status"]
    found = parse_addresses(json.dumps(links))
    assert found["lo"] == ["local/8", "local/128"]
    assert found["enp226s0"] == []
    assert len(found) == 15


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(max_size=50), st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps)))
def test_raises_nothing_but_a_value_error(words: str) -> None:
    try:
        found = parse_addresses(words)
    except ValueError:
        return
    assert isinstance(found, dict)


def no_command(argv: Sequence[str], timeout: float) -> CommandResult:
    raise AssertionError(f"{argv} was run although the root isn't this machine's")


def codes(facts: NcclFacts) -> list[tuple[str, str | None]]:
    return [(problem.code, problem.device) for problem in facts.problems]


def test_names_versions_that_differ(tmp_path: Path) -> None:
    library(tmp_path / "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5")
    library(tmp_path / "usr/local/cuda-12.4/lib64/libnccl.so.2.20.3")
    facts = collect(no_command, Request(str(tmp_path)))
    assert codes(facts) == [("nccl_versions_differ", None)]
    assert "2.21.5" in facts.problems[0].evidence


def test_asks_this_machine(tmp_path: Path) -> None:
    asked = []

    def command(argv: Sequence[str], timeout: float) -> CommandResult:
        asked.append(" ".join(argv))
        return CommandResult(None, "", "No such file or directory", missing=True)

    facts = collect(command, Request("/", [str(tmp_path)]))
    assert [words.split("/")[-1] for words in asked][:2] == ["ldconfig -p", "ip -json address"]
    assert any(one.name == "lo" and one.bootstrap is False for one in facts.interfaces)


def test_names_ports_that_are_down_or_slow(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0")
    hca(tmp_path, "mlx5_1", rate="200 Gb/sec (4X HDR)")
    hca(tmp_path, "mlx5_2", state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")
    hca(tmp_path, "mlx5_3", state="1: DOWN", phys_state="3: Disabled")
    facts = collect(no_command, Request(str(tmp_path)))
    assert [(problem.severity, problem.code, problem.device) for problem in facts.problems] == [
        ("info", "nccl_missing", None),
        ("warning", "hca_port_down", "mlx5_2:1"),
        ("info", "hca_port_down", "mlx5_3:1"),
        ("warning", "hca_port_slow", "mlx5_1:1"),
    ]
    assert facts.recommended == []


def test_names_the_subnet_manager_where_a_link_is_up_and_its_port_is_not(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", state="2: INIT")
    hca(tmp_path, "mlx5_1", state="1: DOWN", phys_state="2: Polling")
    problems = [one for one in collect(no_command, Request(str(tmp_path))).problems if one.code == "hca_port_down"]
    assert [(one.device, one.action) for one in problems] == [
        ("mlx5_0:1", "Check the subnet manager."),
        ("mlx5_1:1", "Check the cable and the switch port."),
    ]


def test_sees_no_slow_port_among_equals_and_leaves_out_the_storage_network(tmp_path: Path) -> None:
    facts = collect(no_command, Request(planted(tmp_path, "sysfs-h100-gpud.json")))
    assert codes(facts) == [("nccl_missing", None)]
    (only,) = facts.recommended
    assert (only.name, only.value.split(",")[:2]) == ("NCCL_IB_HCA", ["=mlx5_0:1", "mlx5_1:1"])
    assert "mlx5_bond_0:1 (Ethernet, 200 Gb/s)" in only.reason
    assert "mlx5_bond_0" not in only.value


@pytest.mark.parametrize("link_layer", ["Ethernet", "InfiniBand"])
def test_leaves_out_ports_of_another_kind(tmp_path: Path, link_layer: str) -> None:
    hca(tmp_path, "mlx5_0", link_layer=link_layer)
    hca(tmp_path, "mlx5_1", link_layer=link_layer, rate="200 Gb/sec (4X HDR)")  # slower than its twin: a fault
    storage = hca(tmp_path, "mlx5_2", link_layer=link_layer, rate="100 Gb/sec (4X EDR)")
    (storage.parents[1] / "hca_type").write_text("MT4125\n")
    virtual = hca(tmp_path, "mlx5_3", link_layer=link_layer)
    (virtual.parents[1] / "device/physfn").mkdir(parents=True)
    facts = collect(no_command, Request(str(tmp_path)))
    assert codes(facts)[1:] == [("hca_port_slow", "mlx5_1:1")]
    assert [port.virtual_function for port in facts.hcas] == [False, False, False, True]
    (only,) = facts.recommended
    assert (only.name, only.value) == ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1")
    others = f"mlx5_2:1 ({link_layer}, 100 Gb/s), mlx5_3:1 ({link_layer}, virtual function)"
    assert only.reason.endswith(f"NCCL would also take {others}.")


def test_does_not_call_an_unused_virtual_function_down(tmp_path: Path) -> None:
    virtual = hca(tmp_path, "mlx5_8", state="1: DOWN", phys_state="3: Disabled")
    (virtual.parents[1] / "device/physfn").mkdir(parents=True)
    assert codes(collect(no_command, Request(str(tmp_path)))) == [("nccl_missing", None)]


def test_efa_needs_a_plugin_and_no_peermem(tmp_path: Path) -> None:
    library(tmp_path / "usr/lib/x86_64-linux-gnu/libnccl.so.2.27.3")
    for name in ("rdmap16s27", "rdmap32s27"):
        hca(tmp_path, name, link_layer="Unknown", rate="100 Gb/sec (4X EDR)")
    gpu_driver(tmp_path, "", "5.10.0")
    facts = collect(topology("junk"), Request(str(tmp_path)))
    assert codes(facts) == [("net_plugin_missing", None)]
    assert facts.recommended == []
    library(tmp_path / "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so")
    assert codes(collect(topology("junk"), Request(str(tmp_path)))) == []


def gpu_driver(root: Path, flavour: str, kernel: str) -> None:
    for path, content in (
        ("proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {flavour}x86_64  550.163.01  Release Build\n"),
        ("proc/sys/kernel/osrelease", f"{kernel}\n"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)


def topology(words: str) -> RunCommand:
    def command(argv: Sequence[str], timeout: float) -> CommandResult:
        assert list(argv) == ["nvidia-smi", "topo", "-m"]
        return CommandResult(0, words, "")

    return command


@pytest.mark.parametrize(
    ("flavour", "kernel", "module", "expected"),
    [
        ("Open Kernel Module for ", "6.1.0-37-amd64", False, (False, True, False)),
        ("Open Kernel Module for ", "5.10.0-30-amd64", False, (False, False, True)),
        ("", "6.1.0-37-amd64", False, (False, False, True)),
        ("", "6.1.0-37-amd64", True, (True, False, False)),
    ],
    ids=["open module", "old kernel", "proprietary module", "proprietary module with peermem"],
)
def test_says_whether_hcas_reach_gpu_memory(
    tmp_path: Path, flavour: str, kernel: str, module: bool, expected: tuple[bool, bool, bool]
) -> None:
    hca(tmp_path, "mlx5_0")
    gpu_driver(tmp_path, flavour, kernel)
    if module:
        (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
        (tmp_path / "sys/module/nvidia_peermem/version").write_text("550.163.01\n")
    facts = collect(topology("junk"), Request(str(tmp_path)))
    missing = ("peermem_missing", None) in codes(facts)
    assert (facts.gdr.peermem_loaded, facts.gdr.dma_buf, missing) == expected
    assert facts.gdr.gpus == []


def test_names_a_gpu_without_a_near_nic(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0")
    gpu_driver(tmp_path, "Open Kernel Module for ", "6.1.0")
    words = fixture("gpu/h100-x2.topo.txt").replace("PXB", "SYS")
    facts = collect(topology(words), Request(str(tmp_path)))
    assert [(gpu.gpu, gpu.nic_nearest_distance) for gpu in facts.gdr.gpus] == [(0, "PIX"), (1, "SYS")]
    assert ("gpu_without_near_nic", "GPU 1") in codes(facts)


def test_names_a_wrong_gid_index_and_mtu_that_differ(tmp_path: Path) -> None:
    for number, mtu in ((0, "9000"), (1, "1500")):
        folder = hca(tmp_path, f"mlx5_{number}", link_layer="Ethernet")
        gid(folder, 0, "fe80:0000:0000:0000:0ac0:ebff:fe8c:3b44", "IB/RoCE v1", f"ens{number}")
        gid(folder, 3, "0000:0000:0000:0000:0000:ffff:c000:020b", "RoCE v2", f"ens{number}")
        (interface(tmp_path, f"ens{number}", mtu=mtu) / "device").mkdir()
    facts = collect(no_command, Request(str(tmp_path), environment={"NCCL_IB_GID_INDEX": "0"}))
    assert codes(facts)[1:] == [("mtu_differs", None), ("gid_index_wrong", "mlx5_0:1"), ("gid_index_wrong", "mlx5_1:1")]
    assert facts.problems[-1].action == "Set it to 3."
    right = collect(no_command, Request(str(tmp_path), environment={"NCCL_IB_GID_INDEX": "3"}))
    assert codes(right)[1:] == [("mtu_differs", None)]


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("NCCL_SOCKET_IFNAME", "eth,ens", True),
        ("NCCL_SOCKET_IFNAME", "=ens", False),
        ("NCCL_SOCKET_IFNAME", "eth0", False),
        ("NCCL_SOCKET_IFNAME", "^docker", True),
        ("NCCL_SOCKET_IFNAME", "^ens", False),
        ("NCCL_SOCKET_IFNAME", "^=ens", True),
        ("NCCL_SOCKET_IFNAME", "ens2", False),
        ("NCCL_IB_HCA", "mlx5", True),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_9:1", True),
        ("NCCL_IB_HCA", "mlx5_0:2", False),
        ("NCCL_IB_HCA", "^mlx5_0", False),
        ("NCCL_IB_HCA", "mlx4", False),
    ],
)
def test_names_a_setting_that_selects_nothing(tmp_path: Path, name: str, value: str, right: bool) -> None:
    hca(tmp_path, "mlx5_0")
    interface(tmp_path, "ens1")
    interface(tmp_path, "ens2", state="down")
    facts = collect(no_command, Request(str(tmp_path), environment={name: value}))
    assert (("setting_selects_nothing", name) in codes(facts)) is not right


@pytest.mark.parametrize(("version", "value"), [("2.20.5", ["3"]), ("2.21.5", []), ("2.27.3", [])])
def test_recommends_a_gid_index_to_old_releases_alone(tmp_path: Path, version: str, value: list[str]) -> None:
    library(tmp_path / f"usr/lib/x86_64-linux-gnu/libnccl.so.{version}")
    for name in ("mlx5_0", "mlx5_1"):
        folder = hca(tmp_path, name, link_layer="Ethernet")
        gid(folder, 3, "0000:0000:0000:0000:0000:ffff:c000:020b", "RoCE v2", "ens1")
    facts = collect(no_command, Request(str(tmp_path)))
    assert [one.value for one in facts.recommended if one.name == "NCCL_IB_GID_INDEX"] == value


@pytest.mark.parametrize(
    ("rdma_cm", "forced", "value"),
    [
        (["106", "106"], None, ["106"]),
        (["0", "0"], None, []),
        (["106", None], None, []),
        (["106", "104"], None, []),
        ([None, None], None, []),
        (["106", "106"], "Global tclass=106", []),
        (["106", "106"], "", ["106"]),
    ],
)
def test_recommends_the_traffic_class_that_the_host_gives_rdma_cm(
    tmp_path: Path, rdma_cm: list[str | None], forced: str | None, value: list[str]
) -> None:
    for number, tos in enumerate(rdma_cm):
        port = hca(tmp_path, f"mlx5_{number}", link_layer="Ethernet")
        if tos is not None:
            folder = tmp_path / f"sys/kernel/config/rdma_cm/mlx5_{number}/ports/1"
            folder.mkdir(parents=True)
            (folder / "default_roce_tos").write_text(f"{tos}\n")
        if forced is not None:
            folder = port.parent.parent / "tc/1"
            folder.mkdir(parents=True)
            (folder / "traffic_class").write_text(f"{forced}\n")
    facts = collect(no_command, Request(str(tmp_path)))
    assert [one.value for one in facts.recommended if one.name == "NCCL_IB_TC"] == value
    assert [port.traffic_class_rdma_cm for port in facts.hcas] == [tos and int(tos) for tos in rdma_cm]
    assert facts.hcas[0].traffic_class_forced == (106 if forced else None)


def network(name: str, kind: str = "physical", speed: int = 100000, **more: Any) -> Interface:
    values: dict[str, Any] = {
        "state": "up", "mtu": 1500, "driver": None, "pci_bus_id": None, "numa_node": None, "controller": None,
        "addresses": ["192.0.2.1/24"], "bootstrap": True, "bootstrap_reason": None, **more,
    }  # fmt: skip
    return Interface(name=name, kind=kind, speed_megabits_per_second=speed, **values)


NOT_OURS: dict[str, Any] = {
    "bootstrap": False,
    "bootstrap_reason": "virtual: its addresses are known on this host alone",
}


@pytest.mark.parametrize(
    ("networks", "route", "expected"),
    [
        ([network("ens1")], "ens1", None),
        ([network("ens1"), network("docker0", "bridge", **NOT_OURS)], "ens1", None),
        ([network("ens1"), network("ens2", addresses=[])], "ens1", None),
        ([network("ens1"), network("ib0"), network("ib1")], "ens1", None),
        ([network("ens1"), network("cni0", "bridge", **NOT_OURS)], "ens1", "=ens1"),
        ([network("ens1"), network("ens2", speed=1000)], "ens2", "=ens2"),
        ([network("ens1"), network("bond0", "bond", speed=50000)], None, "=bond0"),
        ([network("ens1", speed=1000), network("ens2")], None, "=ens2"),
        ([network("cni0", "bridge", **NOT_OURS)], None, None),
        ([], None, None),
    ],
    ids=[
        "one",
        "docker beside",
        "no address beside",
        "IPoIB",
        "bridge beside",
        "route",
        "bond",
        "faster",
        "none",
        "bare",
    ],
)
def test_recommends_an_interface_only_where_nccl_would_choose_wrong(
    networks: list[Interface], route: str | None, expected: str | None
) -> None:
    found = recommend(networks, [], route, None)
    assert [(one.name, one.value) for one in found] == ([("NCCL_SOCKET_IFNAME", expected)] if expected else [])


def test_reads_the_default_route(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "ens2\t00000000\t0101A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n"
        "ens1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        "ens3\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    assert default_route(str(tmp_path)) == "ens1"
    assert default_route(str(tmp_path / "none")) is None


def test_reads_the_default_route_of_ipv6(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    zeros = "0" * 32
    (tmp_path / "proc/net/route").write_text("Iface\tDestination\tGateway\n")
    (tmp_path / "proc/net/ipv6_route").write_text(
        f"{zeros} 00 {zeros} 00 fe80{'0' * 27}1 00000400 00000001 00000000 00000003     ens2\n"
        f"{zeros} 00 {zeros} 00 fe80{'0' * 27}1 00000064 00000001 00000000 00000003     ens1\n"
        f"20010db8{'0' * 24} 40 {zeros} 00 {zeros} 00000001 00000001 00000000 00000001     ens3\n"
        f"{zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200       lo\n"
    )
    assert default_route(str(tmp_path)) == "ens1"
