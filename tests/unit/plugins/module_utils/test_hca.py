# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._hca import Gid, hca_ports
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.hca_tree import gid, hca, planted

# Ports, and of the first: name, state, physical state, rate, firmware, address, errors received. Read by eye.
CAPTURES = {
    "sysfs-h100-gpud.json": (9, ("mlx5_0", "ACTIVE", "LinkUp", 400.0, "28.41.1000", None, 14)),
    "gcm-sysfs-ib-bad_rate.json": (8, ("mlx5_0", "ACTIVE", "LinkUp", 100.0, "fw_ver", "0000:0c:00.0", None)),
    "gcm-sysfs-learn_good.json": (8, ("mlx5_0", "ACTIVE", "LinkUp", 200.0, "20.31.2354", "0000:0c:00.0", None)),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_reads_every_capture(tmp_path: Path, name: str) -> None:
    ports = hca_ports(planted(tmp_path, name))
    first = ports[0]
    assert (
        len(ports),
        (
            first.name,
            first.state,
            first.physical_state,
            first.rate_gigabits_per_second,
            first.firmware_version,
            first.pci_bus_id,
            first.errors_receive,
        ),
    ) == CAPTURES[name]


def test_reads_addresses_and_tells_roce_versions_apart(tmp_path: Path) -> None:
    folder = hca(tmp_path, "mlx5_0", link_layer="Ethernet", lid="0x0")
    gid(folder, 0, "fe80:0000:0000:0000:0ac0:ebff:fe8c:3b44", "IB/RoCE v1", "ens1")
    gid(folder, 3, "0000:0000:0000:0000:0000:ffff:c000:020b", "RoCE v2", "ens1")
    gid(folder, 4, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", "ens1")
    (found,) = hca_ports(str(tmp_path))
    assert found.gids == [
        Gid(0, "fe80:0000:0000:0000:0ac0:ebff:fe8c:3b44", "RoCE v1", "ens1"),
        Gid(3, "0000:0000:0000:0000:0000:ffff:c000:020b", "RoCE v2", "ens1"),
    ]
    assert (found.netdev, found.lid, found.link_layer) == ("ens1", 0, "Ethernet")


def test_says_the_way_to_a_port(tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0"
    device.mkdir(parents=True)
    folder = hca(tmp_path, "mlx5_0")
    (folder.parent.parent / "device").symlink_to(device)
    (found,) = hca_ports(str(tmp_path))
    assert (found.pci_bus_id, found.pci_path) == ("0000:17:00.0", "pci0000:16/0000:16:01.0/0000:17:00.0")


def test_orders_ports_as_people_count(tmp_path: Path) -> None:
    for name in ("mlx5_10", "mlx5_2", "mlx5_bond_0"):
        hca(tmp_path, name)
    assert [found.name for found in hca_ports(str(tmp_path))] == ["mlx5_2", "mlx5_10", "mlx5_bond_0"]


def test_has_no_value_where_there_is_none(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", rate="junk", lid="junk", state="", phys_state="junk")
    (found,) = hca_ports(str(tmp_path))
    assert (found.rate_gigabits_per_second, found.lid, found.state, found.physical_state) == (None, None, None, None)
    assert (found.pci_bus_id, found.numa_node, found.errors_symbol) == (None, None, None)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_raises_nothing_whatever_a_file_holds(words: str, others: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        port = hca(root, "mlx5_0")
        for name in ("state", "phys_state", "rate", "link_layer", "lid"):
            (port / name).write_bytes(words.encode("utf-8", "surrogatepass"))
        gid(port, 0, "fe80::1", "RoCE v2", "ens1")
        for name in ("gids/0", "gid_attrs/types/0", "gid_attrs/ndevs/0"):
            (port / name).write_bytes(others.encode("utf-8", "surrogatepass"))
        (found,) = hca_ports(folder)
        assert found.name == "mlx5_0"
