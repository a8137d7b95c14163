# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Network interfaces, and which of them can carry NCCL's bootstrap.

The bootstrap is the TCP connections with which the ranks of a job find each other.

Source: /sys/class/net, and the addresses from `ip -json address`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import read_text
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import pci_bus_id

_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
# Made by container engines, virtual machines and overlay networks; their addresses mean nothing on other hosts.
_LOCAL_NAME = re.compile(r"^(?:docker|br-|virbr|veth|cni|flannel|cali|cilium|lxc|lxd|podman|kube|tun|tap|wg|dummy|ifb)")


# Inside a container the network that leads out looks virtual too; it bears the name of a real one.
_OUTWARD_NAME = re.compile(r"^(?:eth|en|ib|net|bond|team)")


@dataclass(frozen=True)
class Interface:
    """A network interface. None is: the kernel has no such value.

    kind: "physical", "bond", "vlan", "bridge", "loopback" or "virtual".
    controller: the bond or bridge it is a member of.
    bootstrap: whether it may carry NCCL's bootstrap; bootstrap_reason says why not, None where it may.
    """

    name: str
    kind: str
    state: str | None
    mtu: int | None
    speed_megabits_per_second: int | None
    driver: str | None
    pci_bus_id: str | None
    numa_node: int | None
    controller: str | None
    addresses: list[str]
    bootstrap: bool
    bootstrap_reason: str | None


def interfaces(root: str, addresses: Mapping[str, list[str]] | None) -> list[Interface]:
    """Return the interfaces under root's /sys/class/net. addresses: by name, None where they can't be asked for."""
    folder = os.path.join(root, "sys/class/net")
    found = [
        _interface(os.path.join(folder, name), name, (addresses or {}).get(name, []))
        for name in sorted(_entries(folder))
        if os.path.isdir(os.path.join(folder, name))  # bonding_masters is a file
    ]
    # A bridge that a cable ends in, as a host of virtual machines has it, bears the host's own address.
    outward = {one.controller for one in found if one.kind in {"physical", "bond", "vlan"}}
    return [_judged(one, os.path.join(folder, one.name), addresses is not None, one.name in outward) for one in found]


def _interface(path: str, name: str, addresses: list[str]) -> Interface:
    device = os.path.join(path, "device")
    driver = os.path.join(device, "driver")
    numa = read_text(os.path.join(device, "numa_node"))
    mtu, speed = read_text(os.path.join(path, "mtu")), read_text(os.path.join(path, "speed"))
    return Interface(
        name=name,
        kind=_kind(path),
        state=read_text(os.path.join(path, "operstate")),
        mtu=int(mtu) if mtu is not None and mtu.isdecimal() else None,
        # -1 and unreadable: no link, so no speed.
        speed_megabits_per_second=int(speed) if speed is not None and speed.isdecimal() and int(speed) else None,
        driver=os.path.basename(os.readlink(driver)) if os.path.islink(driver) else None,
        pci_bus_id=pci_bus_id(os.path.basename(os.path.realpath(device))) if os.path.exists(device) else None,
        numa_node=int(numa) if numa is not None and numa.isdecimal() else None,
        controller=_controller(path),
        addresses=addresses,
        bootstrap=False,
        bootstrap_reason=None,
    )


def _controller(path: str) -> str | None:
    master = os.path.join(path, "master")
    # In a VRF, which is a routing table, an interface keeps its own addresses.
    if not os.path.islink(master) or "DEVTYPE=vrf" in (read_text(os.path.join(master, "uevent")) or ""):
        return None
    return os.path.basename(os.readlink(master))


def _kind(path: str) -> str:
    if _flags(path) & _IFF_LOOPBACK:
        return "loopback"
    for entry, kind in (("bonding", "bond"), ("bridge", "bridge"), ("device", "physical")):
        if os.path.isdir(os.path.join(path, entry)):
            return kind
    if "DEVTYPE=vlan" in (read_text(os.path.join(path, "uevent")) or ""):
        return "vlan"
    return "virtual"


def _flags(path: str) -> int:
    try:
        return int(read_text(os.path.join(path, "flags")) or "0", 16)
    except ValueError:
        return 0


def _judged(interface: Interface, path: str, addresses_known: bool, leads_out: bool) -> Interface:
    reason = None
    if interface.kind == "loopback":
        reason = "loopback"
    elif not leads_out and (
        _LOCAL_NAME.match(interface.name)
        or (interface.kind in {"bridge", "virtual"} and not _OUTWARD_NAME.match(interface.name))
    ):
        reason = "virtual: its addresses are known on this host alone"
    elif interface.controller is not None:
        reason = f"member of {interface.controller}"
    elif not _flags(path) & _IFF_UP or interface.state in {"down", "lowerlayerdown", "notpresent", "dormant"}:
        reason = "down"
    elif addresses_known and not any(_routable(address) for address in interface.addresses):
        reason = "no address that other hosts can reach"
    return replace(interface, bootstrap=reason is None, bootstrap_reason=reason)


def _routable(address: str) -> bool:
    return not address.lower().startswith(("127.", "169.254.", "fe80:", "::1"))


def parse_addresses(output: str) -> dict[str, list[str]]:
    """Read `ip -json address`: name to addresses with prefix length; raise ValueError where it is something else."""
    links: Any = json.loads(output)
    if not isinstance(links, list):
        raise ValueError("ip -json address gave no list")
    found: dict[str, list[str]] = {}
    for link in links:
        if not isinstance(link, dict) or not isinstance(link.get("ifname"), str):
            continue
        entries = link.get("addr_info")
        found[link["ifname"]] = [
            f"{entry['local']}/{entry.get('prefixlen')}"
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict) and isinstance(entry.get("local"), str)
        ]
    return found


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
