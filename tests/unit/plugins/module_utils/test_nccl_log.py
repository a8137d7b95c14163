# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_log import (
    NcclHca,
    NcclLog,
    NcclMessage,
    NcclRank,
    parse_nccl_log,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import all_captures, read_capture

OMNI_PATH = [NcclHca(f"hfi1_{number}", 1, "IB") for number in range(4)]
# What each capture says, read by eye. "first" is the first rank, "messages" are (kind, file, line, count).
CAPTURES: dict[str, dict[str, Any]] = {
    "a100-pcie-roce-nccl2.27.7-fault.log": {
        "versions": ["2.27.7"],
        "cuda_driver_version": "13.0",
        "hosts": ["mew0"],
        "rank_count": 2,
        "bootstrap_interfaces": ["eno8303"],
        "hcas": [NcclHca("mlx5_0", 1, "RoCE"), NcclHca("mlx5_1", 1, "RoCE")],
        "networks": ["IB"],
        "gdr": True,
        "channels": 2,
        "transports": {"P2P/direct pointer": 4},
        "settings": {
            "NCCL_TOPO_DUMP_FILE": "nccl_topo_dump.xml",
            "NCCL_TOPO_FILE": "/home/user1/nccl-tests/topo_fail.xml",
        },
        "first": NcclRank(0, 2, "mew0", 65704, 0, "0000:17:00.0", "0xde843772bfa53d08", "Destroy COMPLETE"),
    },
    "aws-efa-eks-p4d-16ranks-nccl2.8.log": {
        "versions": ["2.9.9"],
        "cuda_versions": ["11.2"],
        "hosts": ["nccl-tests-efa-16-worker-0", "nccl-tests-efa-16-worker-1"],
        "rank_count": 16,
        "bootstrap_interfaces": ["eth0"],
        "networks": ["AWS Libfabric"],
        "provider": "efa",
        "gdr": True,
        "channels": 8,
        "first": NcclRank(0, 16, "nccl-tests-efa-16-worker-0", 25, 0, "0000:10:1c.0", None, "Init COMPLETE"),
    },
    "aws-p5-fsdp-2.26.2-a.txt": {
        "versions": ["2.26.2"],
        "cuda_versions": ["12.2"],
        "cuda_driver_version": "12.8",
        "hosts": ["p5-dy-gpu-3", "p5-dy-gpu-4"],
        "messages": [],
    },
    "aws-p5-fsdp-2.26.2-b.txt": {
        "versions": ["2.26.2"],
        "cuda_driver_version": "12.4",
        "hosts": ["p5-dy-gpu-2", "p5-dy-gpu-3"],
        "messages": [],
    },
    "gke-a3-highgpu-tcpx.txt": {
        "versions": [],
        "hosts": ["nccl-test-host-1"],
        "settings": {"NCCL_P2P_PXN_LEVEL": "0"},
        "gdr": None,
    },
    "h100-8gpu-nvls-tail-nccl2.19.txt": {
        "hosts": ["nf5688m7-1"],
        "rank_count": 8,
        "channels": 16,
        "first": NcclRank(0, 8, "nf5688m7-1", 422771, 0, "0000:0f:00.0", "0xefdd95e4ad4062d9", "Destroy COMPLETE"),
    },
    "h100-nccl2.19.3-ib-error5-abort.log": {
        "versions": ["2.19.3"],
        "hosts": ["node-1"],
        "rank_count": 32,
        "first": NcclRank(16, 32, "node-1", 178, 0, "0000:1b:00.0", None, "Abort COMPLETE"),
        "messages": [
            ("remote_process_gone", None, None, 3),
            ("remote_process_gone", "ProcessGroupNCCL.cpp", 852, 1),
            ("remote_process_gone", None, None, 2),
            ("ib_completion", None, None, 2),
            ("remote_process_gone", None, None, 1),
        ],
    },
    "jz-v100-n1-nccl2.7.8.txt": {
        "versions": ["2.7.8"],
        "cuda_versions": ["10.2"],
        "hosts": ["r7i4n1"],
        "rank_count": 4,
        "bootstrap_interfaces": ["ib0", "ib1"],
        "networks": ["IB"],
        "channels": 12,
        "gdr": None,
    },
    "jz-v100-n16-opa-nccl2.7.8.txt": {
        "versions": ["2.7.8"],
        "rank_count": 64,
        "channels": 4,
        "gdr": False,
        "transports": {"NET/IB": 368, "P2P/IPC": 416},
        "networks": ["IB"],
    },
    "jz-v100-n4-opa-nccl2.10.3.txt": {
        "versions": ["2.10.3"],
        "cuda_versions": ["11.3"],
        "hosts": ["r6i6n4", "r6i6n5", "r7i6n2", "r7i6n3"],
        "rank_count": 16,
        "bootstrap_interfaces": ["ib0"],
        "hcas": OMNI_PATH,
        "gdr": False,
        "channels": 4,
    },
    "nccl2.30.7-fuse-numa-fail-abridged.txt": {
        "versions": ["2.30.7"],
        "cuda_versions": ["13.3"],
        "hcas": [NcclHca("mlx5_1", None, None), NcclHca("mlx5_3", None, None)],
        "settings": {"NCCL_IB_HCA": "mlx5_1,mlx5_3"},
        "messages": [(None, "graph/topo.cc", 1566, 1), ("invalid_usage", "common.cu", 212, 1)],
    },
    "no-socket-interface-old-nccl.txt": {
        "hosts": ["ubuntu"],
        "messages": [("no_socket_interface", "bootstrap.cc", 37, 1)],
        "failed_at": {"init.cc:128": 1, "bootstrap.cc:76": 1, "bootstrap.cc:312": 1},
    },
    "raddet-interleaved-truncated.log": {
        "hosts": ["host1"],
        "cuda_driver_version": "12.2",
        "rank_count": 2,
        "bootstrap_interfaces": ["bond0"],
        "socket_interfaces": ["bond0"],
        "networks": ["Socket"],
        "transports": {"SHM/direct": 2},
        "first": NcclRank(0, 2, "host1", 803563, 0, "0000:02:00.0", "0x245d75cdaf12704b", "Init COMPLETE"),
    },
    "spark-ibv-modify-qp-61-wrapped.txt": {
        "hosts": [],
        "versions": [],
        "messages": [("ib_connection", "misc/ibvwrap.cc", 380, 1)],
        "devices": ["roceP2p1s0f0"],
    },
    "spark-usb4-ibv-modify-qp-101.txt": {
        "hosts": [],
        "messages": [
            ("ib_connection", "misc/ibvwrap.cc", 309, 1),
            ("system_error", "transport/net_ib/connect.cc", 429, 1),
        ],
        "devices": ["usb4_rdma0", None],
    },
    "ubuntu-duplicate-gpu-2.22.3.txt": {
        "versions": ["2.22.3"],
        "cuda_versions": ["12.5"],
        "messages": [("duplicate_gpu", "init.cc", 738, 2), ("invalid_usage", "one_device_per_thread.cu", 17, 2)],
    },
}


def found(log: NcclLog, name: str) -> Any:
    if name == "first":
        return log.ranks[0]
    if name == "messages":
        return [(message.kind, message.file, message.line, message.count) for message in log.messages]
    if name == "devices":
        return [message.device for message in log.messages]
    return getattr(log, name)


@pytest.mark.parametrize("name", CAPTURES)
def test_reads_every_capture(name: str) -> None:
    log = parse_nccl_log(read_capture("nccl-log", name).splitlines())
    expected = CAPTURES[name]
    assert {field: found(log, field) for field in expected} == expected
    assert len({rank.rank for rank in log.ranks}) == len(log.ranks)


def test_knows_every_capture() -> None:
    assert {name for name, _content in all_captures("nccl-log")} <= set(CAPTURES)


LINES = [
    "[2025-06-10] n1:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "3: n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA(PCI)/Shared",
    "[1,4]<stdout>:n1:10:11 [4] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
    "n1:10:11 [0] NCCL INFO Bootstrap : Using [0]eth0:fe80::a00:27ff:fe4e:66a1%eth0<0>",
    "n1:10:11 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 101b000 "
    "commId 0x1 - Init START",
    "n1:10:11 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5.",
    "n1:10:12 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<41> with status=12",
    "n1:10:13 [2] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.3<42> with status=12",
    "n1:10:13 [2] NCCL INFO transport/net.cc:1134 -> 6",
]


def test_reads_forms_of_other_releases() -> None:
    log = parse_nccl_log(LINES)
    assert [hca.name for hca in log.hcas] == ["mlx5_0", "mlx5_1"]
    assert log.bootstrap_interfaces == ["eth0"]
    assert (log.transports, log.gdr, log.provider) == ({"NET/IB/GDRDMA": 1}, True, "efa")
    assert log.ranks == [NcclRank(3, 8, "n1", 10, 3, "0010:1b:00.0", "0x1", "Init START")]
    assert log.settings == {"NCCL_IB_HCA": "mlx5"}
    assert log.failed_at == {"transport/net.cc:1134": 1}


OLD = """\
n1:10:10 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
n1:10:10 [0] NCCL INFO NET/GPUDirectTCPX : Using [0]eth1:10.1.0.1<0> [1]eth2:10.2.0.1<0>
n1:10:11 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'
n1:10:11 [0] NCCL INFO Channel 00 :    0   1
n1:10:11 [0] NCCL INFO Channel 01 :    0   1
n1:10:11 [0] NCCL INFO Ring 00 : 1 -> 0 [receive] via NET/Socket/0
n1:10:11 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC
n1:10:11 [0] NCCL INFO Channel 03/0 : 0[d6000] -> 2[de000] via P2P/IPC comm 0x9bbf3b0 nRanks 2
[rank3]:[E1122 10:00:00 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: WorkNCCL(Seq=1)
"""


@pytest.mark.parametrize(("network", "gdr"), [("Socket", False), ("IB", True)])
def test_sockets_reach_no_gpu_memory(network: str, gdr: bool) -> None:
    lines = [f"Using network {network}", "Connected all rings, use ring PXN 0 GDR 1"]
    assert parse_nccl_log([f"n1:10:11 [0] NCCL INFO {line}" for line in lines]).gdr is gdr


def test_reads_old_releases_and_plugins() -> None:
    log = parse_nccl_log(OLD.splitlines())
    assert log.socket_interfaces == ["eth0", "eth1", "eth2"]
    assert (log.channels, log.transports, log.gdr) == (2, {"NET/Socket": 1, "P2P/IPC": 2}, False)
    assert [(message.kind, message.file, message.line) for message in log.messages] == [
        ("timeout", "ProcessGroupNCCL.cpp", 616)
    ]


@pytest.mark.parametrize(
    ("line", "kind", "device", "place"),
    [
        (
            "[2025-08-19 03:10:11] n1:10:11 [4] transport/net_ib.cc:688 (ncclIbTest) NCCL WARN NET/IB: Got completion"
            " from peer 10.0.0.2<5> with status=IBV_WC_RETRY_EXC_ERR(12) vendor_err=129 hca mlx5_bond_1",
            "ib_completion",
            "mlx5_bond_1",
            ("transport/net_ib.cc", 688, "ncclIbTest"),
        ),
        (
            "n1:10:11 [0] transport/net_ib.cc:99 NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)",
            "ib_completion",
            "mlx5_3",
            ("transport/net_ib.cc", 99, None),
        ),
        (
            "n1:10:11 [0] nccl_net_ofi_get_ep:969 NCCL WARN NET/OFI Creating new endpoint failed: Invalid argument",
            "invalid_usage",
            None,
            (None, 969, "nccl_net_ofi_get_ep"),
        ),
        (
            "NCCL WARN NET/OFI Unable to register memory (type = 1). RC: 12, Error: Cannot allocate memory",
            "system_error",
            None,
            (None, None, None),
        ),
        ("n1:10:11 [0] init.cc:5 NCCL WARN NCCL version mismatch with remote peer n2", "version_mismatch", None, None),
        (
            "n1:10:11 [0] init.cc:5 NCCL WARN Multiple Ranks are using the same GPU/Partition.",
            "duplicate_gpu",
            None,
            None,
        ),
        ("n1:10:11 [0] net.cc:5 NCCL WARN NET/IB : No IP interface found.", "no_socket_interface", None, None),
        ("n1:10:11 [0] socket.cc:5 NCCL WARN Call to recv failed : Broken pipe", "remote_process_gone", None, None),
        ("n1:10:11 [0] socket.cc:5 NCCL WARN Connect failed : No route to host", "peer_unreachable", None, None),
        (
            "n1:10:11 [0] nvls.cc:5 NCCL WARN Failed to bind Multicast memory of size 2097152 : CUDA error 401 'state'",
            "cuda_failure",
            None,
            None,
        ),
        ("10:11 [0] ibvwrap.cc:63 NCCL WARN Cuda failure 'no host'", "cuda_failure", None, ("ibvwrap.cc", 63, None)),
    ],
)
def test_reads_warnings_of_newer_releases(
    line: str, kind: str, device: str | None, place: tuple[str | None, int, str | None] | None
) -> None:
    (message,) = parse_nccl_log([line]).messages
    assert (message.kind, message.device, message.hosts) == (kind, device, ["n1"] if "n1" in line else [])
    if place:
        assert (message.file, message.line, message.function) == place


def test_reads_the_version_that_vllm_names() -> None:
    log = parse_nccl_log(
        [
            "(Worker pid=7) INFO 01-29 07:44:27 pynccl.py:69] vLLM is using nccl==2.21.5",
            "Requirement already satisfied: nvidia-nccl-cu12==2.26.2",
        ]
    )
    assert log.versions == ["2.21.5"]


def test_reads_ranks_of_newer_releases() -> None:
    log = parse_nccl_log(
        [
            "n1:10:11 [0] NCCL INFO [Rank 1] ncclCommInitRank comm 0x5 rank 1 nranks 8 cudaDev 0 nvmlDev 0 busId 18000 "
            "commId 0x1 - Init START",
            "n1:10:11 [0] NCCL INFO comm 0x5 rank 1 nRanks 8 cudaDev 0 busId 18000 - Abort START",
        ]
    )
    assert log.ranks == [NcclRank(1, 8, "n1", 10, 0, "0000:18:00.0", "0x1", "Abort START")]


def test_groups_messages_that_differ_in_numbers_alone() -> None:
    (message,) = parse_nccl_log([*LINES, LINES[4].replace("[0]", "[1]").replace("cudaDev 3", "cudaDev 1")]).messages
    assert message == NcclMessage(
        severity="warning",
        kind="ib_completion",
        file="transport/net_ib.cc",
        line=1295,
        function=None,
        text="NET/IB : Got completion from peer 10.0.0.2<41> with status=12",
        device=None,
        count=2,
        hosts=["n1"],
        ranks=[3],
    )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(LINES), st.integers(0, 130), st.integers(0, 60), st.text(max_size=20))
def test_raises_nothing_whatever_the_line_is(line: str, position: int, length: int, junk: str) -> None:
    spoilt = [line[:position] + junk + line[position + length :], line[:position], line[position:] + line, junk]
    log = parse_nccl_log([*spoilt, *LINES])
    assert log.rank_count is not None
    assert all(message.count > 0 for message in log.messages)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="NCL WARINFO[]:0123456789.c->x\n", max_size=300))
def test_raises_nothing_for_lookalikes(text: str) -> None:
    assert len(parse_nccl_log(text.split("\n")).messages) <= text.count("WARN") + text.count("NCCL")
