# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""InfiniBand and RoCE ports as /sys/class/infiniband shows them.

Format: the kernel's Documentation/ABI/stable/sysfs-class-infiniband, and captures of ConnectX-6 and -7 machines.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import read_text
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import pci_bus_id

_NUMBERED = re.compile(r"^\s*[0-9]+:\s*(.+?)\s*$")
_RATE = re.compile(r"^([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec")
_FORCED_CLASS = re.compile(r"^Global tclass=(\d{1,3})$", re.MULTILINE)
_EMPTY_GID = re.compile(r"^[0:]*$")
_LINK_LOCAL_ALONE = re.compile(r"^fe80:[0:]*$")


@dataclass(frozen=True)
class Gid:
    """An address of a port. type: "IB", "RoCE v1" or "RoCE v2"; netdev: the interface it belongs to."""

    index: int
    gid: str
    type: str | None
    netdev: str | None


@dataclass(frozen=True)
class HcaPort:
    """A port of an HCA. None is: the driver has no such value. Counters count since the driver was loaded.

    state: DOWN, INIT, ARMED, ACTIVE. physical_state: LinkUp, Polling, Disabled.
    link_layer: InfiniBand, Ethernet, or another word, as AWS's EFA has; NCCL itself uses the first two alone.
    virtual_function: made from a physical port of this machine (SR-IOV), mostly for a virtual machine or container.
    pci_path: the way to it from the root of the bus, "pci0000:16/0000:16:01.0/0000:17:00.0".
    traffic_class_forced: of every packet, whatever programs ask for (NVIDIA's drivers).
    traffic_class_rdma_cm: of programs that connect by the RDMA connection manager and ask for none; NCCL doesn't
    connect by it. Both 0 to 255, of RoCE alone.
    """

    name: str
    port: int
    state: str | None
    physical_state: str | None
    rate_gigabits_per_second: float | None
    link_layer: str | None
    lid: int | None
    gids: list[Gid]
    netdev: str | None
    hca_type: str | None
    board_id: str | None
    firmware_version: str | None
    pci_bus_id: str | None
    pci_path: str | None
    numa_node: int | None
    virtual_function: bool
    traffic_class_forced: int | None
    traffic_class_rdma_cm: int | None
    errors_symbol: int | None
    errors_link_recovery: int | None
    errors_link_downed: int | None
    errors_receive: int | None
    errors_receive_remote_physical: int | None
    errors_transmit_discards: int | None
    errors_link_integrity: int | None
    errors_buffer_overrun: int | None
    errors_out_of_sequence: int | None
    errors_packet_sequence: int | None
    errors_ack_timeout: int | None


def hca_ports(root: str) -> list[HcaPort]:
    """Return every port under root's /sys/class/infiniband, in the order of names as people count them."""
    folder = os.path.join(root, "sys/class/infiniband")
    ports = []
    for name in sorted(_entries(folder), key=_natural):
        hca = os.path.join(folder, name)
        ports += [
            _port(root, hca, name, int(port))
            for port in sorted(_entries(os.path.join(hca, "ports")), key=_natural)
            if port.isascii() and port.isdecimal()
        ]
    return ports


def of_one_kind(port: HcaPort, other: HcaPort) -> bool:
    """Say whether the ports are on boards of one type and run one link layer, so that they should run at one rate."""
    kinds = [(one.hca_type, one.board_id, one.link_layer, one.virtual_function) for one in (port, other)]
    return kinds[0] == kinds[1]


def _port(root: str, hca: str, name: str, number: int) -> HcaPort:
    port = os.path.join(hca, "ports", str(number))
    link_layer = read_text(os.path.join(port, "link_layer"))
    gids = _gids(port, link_layer)
    device = os.path.join(hca, "device")
    numa = read_text(os.path.join(device, "numa_node"))
    forced = _FORCED_CLASS.search(read_text(os.path.join(hca, "tc", str(number), "traffic_class")) or "")
    rdma_cm = os.path.join(root, "sys/kernel/config/rdma_cm", name, "ports", str(number), "default_roce_tos")
    rate = _RATE.match(read_text(os.path.join(port, "rate")) or "")
    interfaces = sorted(_entries(os.path.join(device, "net")))
    netdevs = [gid.netdev for gid in gids if gid.netdev]
    return HcaPort(
        name=name,
        port=number,
        state=_numbered(read_text(os.path.join(port, "state"))),
        physical_state=_numbered(read_text(os.path.join(port, "phys_state"))),
        rate_gigabits_per_second=float(rate[1]) if rate else None,
        link_layer=link_layer,
        lid=_integer(read_text(os.path.join(port, "lid"))),
        gids=gids,
        netdev=netdevs[0] if netdevs else interfaces[0] if len(interfaces) == 1 else None,
        hca_type=read_text(os.path.join(hca, "hca_type")),
        board_id=read_text(os.path.join(hca, "board_id")),
        firmware_version=read_text(os.path.join(hca, "fw_ver")),
        pci_bus_id=pci_bus_id(os.path.basename(os.path.realpath(device))) if os.path.exists(device) else None,
        pci_path=_pci_path(device),
        numa_node=int(numa) if numa is not None and numa.isdecimal() else None,
        virtual_function=os.path.exists(os.path.join(device, "physfn")),
        traffic_class_forced=int(forced[1]) if forced else None,
        traffic_class_rdma_cm=_integer(read_text(rdma_cm)),
        errors_symbol=_counter(port, "counters/symbol_error"),
        errors_link_recovery=_counter(port, "counters/link_error_recovery"),
        errors_link_downed=_counter(port, "counters/link_downed"),
        errors_receive=_counter(port, "counters/port_rcv_errors"),
        errors_receive_remote_physical=_counter(port, "counters/port_rcv_remote_physical_errors"),
        errors_transmit_discards=_counter(port, "counters/port_xmit_discards"),
        errors_link_integrity=_counter(port, "counters/local_link_integrity_errors"),
        errors_buffer_overrun=_counter(port, "counters/excessive_buffer_overrun_errors"),
        errors_out_of_sequence=_counter(port, "hw_counters/out_of_sequence"),
        errors_packet_sequence=_counter(port, "hw_counters/packet_seq_err"),
        errors_ack_timeout=_counter(port, "hw_counters/local_ack_timeout_err"),
    )


def _gids(port: str, link_layer: str | None) -> list[Gid]:
    found = []
    for index in sorted(_entries(os.path.join(port, "gids")), key=_natural):
        gid = read_text(os.path.join(port, "gids", index))
        if gid is None or not index.isdecimal() or _EMPTY_GID.match(gid) or _LINK_LOCAL_ALONE.match(gid):
            continue
        words = read_text(os.path.join(port, "gid_attrs/types", index))
        # The kernel has one word for both kinds that share version 1.
        kind = words
        if words == "IB/RoCE v1":
            kind = "RoCE v1" if link_layer == "Ethernet" else "IB"
        found.append(Gid(int(index), gid, kind, read_text(os.path.join(port, "gid_attrs/ndevs", index))))
    return found


def _pci_path(device: str) -> str | None:
    """Return the bridges from the root of the bus down to the device."""
    _before, found, path = os.path.realpath(device).partition("/sys/devices/")
    return path if found and path.startswith("pci") else None


def _numbered(words: str | None) -> str | None:
    """Return the word of "4: ACTIVE"."""
    match = _NUMBERED.match(words or "")
    return match[1] if match else None


def _integer(words: str | None) -> int | None:
    try:
        return int(words or "", 0)
    except ValueError:
        return None


def _counter(port: str, name: str) -> int | None:
    value = read_text(os.path.join(port, name))
    return int(value) if value is not None and value.isascii() and value.isdecimal() and len(value) < 21 else None


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]
