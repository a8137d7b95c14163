# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_topology import TopologyError, parse_topology
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import fixture, read_capture

# GPUs, NICs, and of the last GPU: distance to GPU 0, CPUs, NUMA node, nearest NICs and how near. Read by eye.
CAPTURES: dict[str, tuple[int, list[str], str | None, str | None, str | None, list[str], str | None]] = {
    "2gpu-phb-4nic.txt": (
        2, ["NIC0", "NIC1", "NIC2", "NIC3"], "SYS", "14-27,42-55", "1", ["NIC2", "NIC3"], "PHB",
    ),
    "a100-pcie-x2-4nic.txt": (
        2, ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"], "SYS", "32-63,96-127", "1", ["mlx5_2", "mlx5_3"], "PIX",
    ),
    "a100-x4-1nic-sys.txt": (4, ["NIC0"], "NV12", "32-63,96-127", "1", ["NIC0"], "SYS"),
    "dgxa100-10nic-tabs.txt": (
        8, [f"mlx5_{number}" for number in range(10)], "NV12", "80-95,208-223", "5", ["mlx5_6", "mlx5_7"], "PXB",
    ),
    "dgxa100-12mlx5-columns-old.txt": (
        8, [f"mlx5_{number}" for number in range(12)], "NV12", "80-95,208-223", "5", ["mlx5_8", "mlx5_9"], "PXB",
    ),
    "win-rtx-2080-super-610.62.txt": (1, [], None, None, None, [], None),
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURES)
def test_reads_every_capture(name: str) -> None:
    topology = parse_topology(read_capture("topo-m", name))
    last = topology.gpus[-1]
    found = (
        len(topology.gpus),
        topology.nics,
        last.gpus.get("0"),
        last.cpu_affinity,
        last.numa_affinity,
        last.nic_nearest,
        last.nic_nearest_distance,
    )
    assert found == CAPTURES[name]


def test_refuses_an_error_message() -> None:
    with pytest.raises(TopologyError, match="missing its value"):
        parse_topology(read_capture("topo-m", "win-rtx-2080-super-591.86.txt"))


def test_reads_our_own_matrix() -> None:
    topology = parse_topology(fixture("gpu/h100-x2.topo.txt"))
    first, second = topology.gpus
    assert topology.nics == ["mlx5_0", "mlx5_bond_0"]
    assert (first.gpu, first.gpus, first.nics) == (0, {"1": "NV18"}, {"mlx5_0": "PIX", "mlx5_bond_0": "SYS"})
    assert (second.nic_nearest, second.nic_nearest_distance) == (["mlx5_bond_0"], "PXB")
    assert (second.cpu_affinity, second.numa_affinity) == ("48-95,144-191", "1")


@pytest.mark.parametrize(
    ("row", "cpus", "numa"),
    [
        ("0-7\t1\t\tN/A", "0-7", "1"),
        ("0-7\t\t1\t\tN/A", "0-7", "1"),
        ("0-7\t\tN/A\t\tN/A", "0-7", None),
        ("0-71\t0,3-9,11-17\t\t2", "0-71", "0,3-9,11-17"),
        ("\t\t\tN/A", None, None),
        ("", None, None),
    ],
)
@pytest.mark.parametrize("pasted", [False, True])
def test_reads_affinities_however_they_are_padded(row: str, cpus: str | None, numa: str | None, pasted: bool) -> None:
    matrix = f"\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPIX\t{row}\nNIC0\tPIX\t X \t\t\t\t\n"
    (gpu,) = parse_topology(matrix.expandtabs() if pasted else matrix).gpus
    assert (gpu.cpu_affinity, gpu.numa_affinity, gpu.nics) == (cpus, numa, {"NIC0": "PIX"})


def test_reads_sixteen_gpus_with_their_nics() -> None:
    """As a DGX-2 has them, whose driver had no column for NUMA nodes; the head line was pasted without its margin."""
    gpus, nics = [f"GPU{number}" for number in range(16)], [f"mlx5_{number}" for number in range(10)]
    head = [*gpus, *nics, "CPU Affinity"]
    rows = [[gpu, *["NV6"] * 16, *["NODE"] * 9, "PIX", "0-23,48-71"] for gpu in gpus]
    for number, row in enumerate(rows):
        row[number + 1] = " X "
    topology = parse_topology("\n".join("\t".join(row) for row in (head, *rows)))
    last = topology.gpus[15]
    assert [gpu.gpu for gpu in topology.gpus] == list(range(16))
    assert last.gpus == {str(number): "NV6" for number in range(15)}
    assert (last.nic_nearest, last.nic_nearest_distance, last.cpu_affinity) == (["mlx5_9"], "PIX", "0-23,48-71")
    assert topology.nics == nics


def test_reads_a_legend_with_words_behind_the_name() -> None:
    matrix = fixture("gpu/h100-x2.topo.txt").replace("NIC0: mlx5_0", "NIC0: mlx5_0 (data direct)")
    assert parse_topology(matrix).nics == ["mlx5_0", "mlx5_bond_0"]


def test_keeps_a_distance_that_it_does_not_know() -> None:
    matrix = fixture("gpu/h100-x2.topo.txt").replace("NV18", "XLINK")
    assert [gpu.gpus for gpu in parse_topology(matrix).gpus] == [{"1": "XLINK"}, {"0": "XLINK"}]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 400), st.integers(0, 200), st.text(max_size=30))
def test_raises_nothing_but_its_own_error(position: int, length: int, junk: str) -> None:
    words = fixture("gpu/h100-x2.topo.txt")
    for spoilt in (words[:position] + junk + words[position + length :], words[:position], junk):
        try:
            topology = parse_topology(spoilt)
        except TopologyError:
            continue
        assert len(topology.gpus) <= 2
