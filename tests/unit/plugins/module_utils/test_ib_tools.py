# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._hca import Gid
from ansible_collections.trainyard.cluster.plugins.module_utils._ib_tools import (
    IbPort,
    IbToolError,
    parse_devinfo,
    parse_gids,
    parse_ibstat,
    parse_ibstatus,
    parse_netdevs,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import all_captures, read_capture

Parser = Callable[[str], list[IbPort]]
PARSERS: tuple[Parser, ...] = (parse_ibstat, parse_ibstatus, parse_devinfo, parse_gids, parse_netdevs)
# Of each capture the parser, the number of ports, fields of the first and fields of the last; read by eye.
CAPTURES: dict[str, tuple[Parser, int, dict[str, Any], dict[str, Any]]] = {
    "bf3-roce-two-down.txt": (
        parse_netdevs,
        4,
        {"name": "mlx5_0", "netdev": "ens7f0np0", "state": "DOWN", "physical_state": "Disabled"},
        {"name": "mlx5_3", "netdev": "ens10f1np1", "state": "ACTIVE", "physical_state": "LinkUp"},
    ),
    "gpud-ibstat.39.0.a100.failed.ibpanic.exit-255.0.txt": (
        parse_ibstat,
        8,
        {"name": "mlx5_0", "lid": 13247, "rate_gigabits_per_second": 200.0, "firmware_version": "20.41.1000"},
        {"name": "mlx5_7", "lid": 13305, "state": "ACTIVE", "guid": "0x00155dfffd3411f2"},
    ),
    "gpud-ibstat.47.0.a100.all.active.0.txt": (
        parse_ibstat,
        9,
        {"link_layer": "Ethernet", "hca_type": "MT4126", "lid": 0},
        {"name": "mlx5_8", "link_layer": "InfiniBand", "lid": 1396, "sm_lid": 83},
    ),
    "gpud-ibstat.47.0.h100.all.active.0.txt": (
        parse_ibstat,
        12,
        {"link_layer": "Ethernet", "hca_type": "MT4129", "rate_gigabits_per_second": 400.0},
        {"name": "mlx5_9", "firmware_version": "28.39.1002", "state": "ACTIVE"},
    ),
    "gpud-ibstat.47.0.h100.all.active.2.txt": (
        parse_ibstat,
        9,
        {"name": "mlx5_0", "link_layer": "InfiniBand", "lid": 128},
        {"name": "mlx5_bond_0", "hca_type": "MT41692", "rate_gigabits_per_second": 200.0},
    ),
    "gpud-ibstatus.39.0.a100.all.active.0.txt": (
        parse_ibstatus,
        9,
        {
            "name": "mlx5_0",
            "state": "ACTIVE",
            "physical_state": "LinkUp",
            "lid": 0x33BF,
            "gids": [Gid(0, "fe80:0000:0000:0000:0015:5dff:fd34:11eb", None, None)],
        },
        {"name": "mlx5_8", "link_layer": "Ethernet", "rate_gigabits_per_second": 40.0, "gids": []},
    ),
    "ibv_devinfo-v-rxe-roce.txt": (
        parse_devinfo,
        1,
        {"name": "rxe_0", "state": "ACTIVE", "link_layer": "Ethernet", "firmware_version": "0.0.0"},
        {
            "rate_gigabits_per_second": 10.0,
            "gids": [
                Gid(0, "fe80:0000:0000:0000:88d2:b2ff:fec9:ea5a", "RoCE v2", None),
                Gid(1, "0000:0000:0000:0000:0000:ffff:c0a8:606e", "RoCE v2", None),
            ],
        },
    ),
    "show_gids-mixed-vendor.txt": (
        parse_gids,
        2,
        {"name": "hrn3_bond_0", "port": 1, "netdev": "bond0"},
        {
            "name": "mlx5_bond_0",
            "gids": [
                Gid(0, "fe80:0000:0000:0000:0ac0:ebff:fe8c:3b44", "RoCE v1", "bond1"),
                Gid(1, "fe80:0000:0000:0000:0ac0:ebff:fe8c:3b44", "RoCE v2", "bond1"),
            ],
        },
    ),
}
# Of other tools, and trees of /sys, which _hca.py reads.
OTHERS = {
    "gcm-sysfs-eth-down.json",
    "gcm-sysfs-ib-bad_rate.json",
    "gcm-sysfs-learn_good.json",
    "sysfs-h100-gpud.json",
    "superbench-ib_loopback.log",
    "superbench-ibstat-multi.txt",
}


@pytest.mark.parametrize("name", CAPTURES)
def test_reads_every_capture(name: str) -> None:
    parse, count, first, last = CAPTURES[name]
    ports = parse(read_capture("ib", name))
    assert len(ports) == count
    assert {field: getattr(ports[0], field) for field in first} == first
    assert {field: getattr(ports[-1], field) for field in last} == last


def test_knows_every_capture() -> None:
    assert {name for name, _content in all_captures("ib")} <= {*CAPTURES, *OTHERS}


@pytest.mark.parametrize("parse", PARSERS)
def test_refuses_the_output_of_other_tools(parse: Parser) -> None:
    for name, content in all_captures("ib"):
        if CAPTURES.get(name, (None,))[0] is not parse:
            with pytest.raises(IbToolError, match="it begins"):
                parse(content)
    with pytest.raises(IbToolError, match=r"\(nothing\)"):
        parse("")


IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 2
\tFirmware version: 28.41.1000
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 10
\t\tBase lid: 65535
\t\tLink layer: InfiniBand
\tPort 2:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 2.5
\t\tBase lid: junk
ibwarn: [1] mad_rpc_open_port: can't open UMAD port
"""
DEVINFO = """\
hca_id:\tmlx5_0
\tfw_ver:\t\t\t\t\t28.41.1000
\tvendor_part_id:\t\t\t\t4129
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tlink_layer:\t\tInfiniBand
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:58a2:e103:00a7:820e
\t\tport:\t2
\t\t\tstate:\t\t\tPORT_INIT (2)
"""
RDMA = "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 3 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n"


def test_tells_ports_and_states_apart() -> None:
    first, second = parse_ibstat(IBSTAT)
    assert (first.port, first.state, first.physical_state, first.lid) == (1, "DOWN", "Polling", 65535)
    assert (second.port, second.state, second.rate_gigabits_per_second, second.lid) == (2, "INIT", 2.5, None)
    assert (second.hca_type, second.link_layer) == ("MT4129", None)
    first, second = parse_devinfo(DEVINFO)
    assert (first.state, first.rate_gigabits_per_second, first.hca_type) == ("DOWN", 400.0, "MT4129")
    assert first.gids == [Gid(0, "fe80:0000:0000:0000:58a2:e103:00a7:820e", "IB", None)]
    assert (second.port, second.state, second.gids) == (2, "INIT", [])
    assert parse_netdevs(RDMA) == [IbPort("mlx5_0", 1, state="ACTIVE", physical_state="LinkUp", lid=3, sm_lid=1)]


ALONE = """CA: 'mlx4_0'
Port 2:
State: ???
Physical state: Polling
Rate: 40 (FDR10)
Link layer: InfiniBand
"""
NETDEVS = """0000:02:00.0 mlx5_0 (MT4115 - X) ConnectX-4, EDR (and 100GbE) fw 12.23.1020 port 1 (ACTIVE) ==> ib0 (Up)
0000:02:00.5 mlx5_2 (MT4116 - NA)  fw 12.23.1020 port 1 (DOWN  ) ==> ib2 (Down)
mlx5_3 port 1 ==> ib3 (Up) (o2ib)
mlx5_4   port  1  ==>  ibp26s0   (Down)  # first rail
mlx5_10  port  1  ==>  ens7f0np0 (Down)
"""
OTHER_VENDORS = """hca_id:\tbnxt_re_bond0
\tvendor_id:\t\t\t0x14e4
\tvendor_part_id:\t\t\t5984
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tphys_state:\t\tPORT_CONFIGURATION TRAINNING (4)
hca_id:\tmlx5_0
\tvendor_id:\t\t\t0x02c9
\tvendor_part_id:\t\t\t41692
\t\tport:\t1
\t\t\tstate:\t\t\tinvalid state (0)
"""
UNKNOWN = """Infiniband device 'hns_0' port 1 status:
\tdefault gid:\t unknown
\tbase lid:\t unknown
\tstate:\t\t unknown
\tphys state:\t <unknown>
\trate:\t\t 2.5 Gb/sec (1X SDR)
\tlink_layer:\t IB
"""


def test_reads_a_port_alone() -> None:
    assert parse_ibstat(ALONE) == [
        IbPort("mlx4_0", 2, physical_state="Polling", rate_gigabits_per_second=40.0, link_layer="InfiniBand")
    ]


def test_reads_interfaces_with_boards_and_states() -> None:
    assert parse_netdevs(NETDEVS) == [
        IbPort("mlx5_0", 1, state="ACTIVE", hca_type="MT4115", firmware_version="12.23.1020", netdev="ib0"),
        IbPort("mlx5_2", 1, state="DOWN", hca_type="MT4116", firmware_version="12.23.1020", netdev="ib2"),
        IbPort("mlx5_3", 1, state="ACTIVE", netdev="ib3"),
        IbPort("mlx5_4", 1, netdev="ibp26s0"),
        IbPort("mlx5_10", 1, state="DOWN", netdev="ens7f0np0"),
    ]


def test_a_container_may_see_no_address() -> None:
    assert parse_gids("DEV\tPORT\tINDEX\tGID\t\tIPv4\t\tVER\tDEV\n---\t----\t-----\t---\nn_gids_found=0\n") == []


def test_names_chips_of_mellanox_alone() -> None:
    other, bluefield = parse_devinfo(OTHER_VENDORS)
    assert (other.hca_type, other.state, other.physical_state) == (None, "DOWN", "PortConfigurationTraining")
    assert (bluefield.hca_type, bluefield.state) == ("MT41692", None)


def test_what_a_tool_does_not_know_is_none() -> None:
    assert parse_ibstatus(UNKNOWN) == [IbPort("hns_0", 1, rate_gigabits_per_second=2.5, link_layer="InfiniBand")]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        [IBSTAT, DEVINFO, RDMA, ALONE, NETDEVS, "mlx5_0 port 1 ==> eth0 (Up)\n", "mlx5_0\t1\t3\tfe80::1\t\tv2\teth0\n"]
    ),
    st.integers(0, 300),
    st.integers(0, 60),
    st.text(max_size=20),
)
def test_raises_nothing_but_its_own_error(words: str, position: int, length: int, junk: str) -> None:
    for spoilt in (words[:position] + junk + words[position + length :], words[:position], junk):
        for parse in PARSERS:
            try:
                ports = parse(spoilt)
            except IbToolError:
                continue
            assert ports
