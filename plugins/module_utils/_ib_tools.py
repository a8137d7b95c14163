# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""InfiniBand and RoCE ports as the tools print them: ibstat, ibstatus, ibv_devinfo, show_gids, ibdev2netdev, rdma link.

On a machine itself /sys says more (_hca.py); this is for what somebody saved, and for containers that see no /sys.
Format: the tools of rdma-core 39 to 56 and of Mellanox OFED, and captures of their output.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import without_escapes
from ansible_collections.trainyard.cluster.plugins.module_utils._hca import Gid

# With a port as argument ibstat puts a colon here and doesn't indent.
_IBSTAT_CA = re.compile(r"^CA:? '([^']{1,64})'\s*$")
_IBSTAT_PORT = re.compile(r"^\s*Port (\d{1,3}):\s*$")
_IBSTATUS = re.compile(r"^Infiniband device '([^']{1,64})' port (\d{1,3}) status:\s*$")
_DEVINFO = re.compile(r"^hca_id:\s*(\S{1,64})\s*$")
_FIELD = re.compile(r"^\s*([A-Za-z][\w ]{0,40}?):\s*(.*?)\s*$")
_GID = re.compile(r"^\s+GID\[\s*(\d{1,5})\]:\s*([0-9A-Fa-f:.]+)(?:,\s*(.*?))?\s*$")
_SHOWN_GID = re.compile(
    r"^(?P<hca>\S{1,64})\s+(?P<port>\d{1,3})\s+(?P<index>\d{1,5})\s+(?P<gid>[0-9A-Fa-f:]{7,39})"
    r"(?:\s+(?P<ipv4>\d{1,3}(?:\.\d{1,3}){3}))?\s+v(?P<version>[12])(?:\s+(?P<netdev>\S+))?\s*$"
)
_NO_GIDS = re.compile(r"^n_gids_found=0\b", re.MULTILINE)
# With -v the address, the board, the firmware and the port's state are named too. Many align it with `column -t`.
_NETDEV = re.compile(
    r"^(?:[0-9A-Fa-f:.]{7,16} +)?(?P<hca>\S{1,64}) +(?:\((?P<type>MT\d+) .{0,200}? fw +(?P<firmware>\S+) +)?port +"
    r"(?P<port>\d{1,3}) +(?:\((?P<state>\w+)\s*\) +)?==> +(?P<netdev>\S+) +\((?P<link>\w+)\)"
)
_RDMA = re.compile(
    r"^(?:\d+/\d+: |link )(?P<hca>[^/\s]{1,64})/(?P<port>\d{1,3}):? "
    r"(?:subnet_prefix \S+ )?(?:lid (?P<lid>\d+) )?(?:sm_lid (?P<sm_lid>\d+) )?(?:.*?\b)?state (?P<state>\w+) "
    r"physical_state (?P<physical>\w+)(?: netdev (?P<netdev>\S+))?"
)
_RATE = re.compile(r"^(\d{1,6}(?:\.\d{1,3})?)\b")
_NUMBERED = re.compile(r"^(?:\d{1,3}: )?([A-Za-z_]+(?: [A-Za-z]+)?)(?: \(\d{1,3}\))?$")
_SPEED = re.compile(r"^(\d{1,4}(?:\.\d{1,3})?) Gbps")
_WIDTH = re.compile(r"^(\d{1,2})X")
# As /sys and ibstat have them; ibv_devinfo can't spell training.
_PHYSICAL = {
    "sleep": "Sleep",
    "polling": "Polling",
    "disabled": "Disabled",
    "portconfigurationtraining": "PortConfigurationTraining",
    "portconfigurationtrainning": "PortConfigurationTraining",
    "linkup": "LinkUp",
    "linkerrorrecovery": "LinkErrorRecovery",
    "phytest": "PhyTest",
}
_STATES = {
    "DOWN": "DOWN",
    "INIT": "INIT",
    "INITIALIZE": "INIT",
    "INITIALIZING": "INIT",
    "ARM": "ARMED",
    "ARMED": "ARMED",
    "ACTIVE": "ACTIVE",
    "ACTIVE_DEFER": "ACTIVE_DEFER",
}
# Only these number their chips as ibstat does; somebody may have cut the line.
_MELLANOX = ("0x02c9", "")


class IbToolError(ValueError):
    """The text is no output of the tool."""


@dataclass(frozen=True)
class IbPort:
    """A port. None is: the tool doesn't print it.

    state: ACTIVE, DOWN, INIT, ARMED. physical_state: LinkUp, Polling, Disabled. link_layer: InfiniBand or Ethernet.
    """

    name: str
    port: int
    state: str | None = None
    physical_state: str | None = None
    rate_gigabits_per_second: float | None = None
    link_layer: str | None = None
    lid: int | None = None
    sm_lid: int | None = None
    hca_type: str | None = None
    firmware_version: str | None = None
    guid: str | None = None
    netdev: str | None = None
    gids: list[Gid] = field(default_factory=list)


def parse_ibstat(output: str) -> list[IbPort]:
    """Read `ibstat`; an error message at its end costs no port that came before."""
    return _parsed(output, "ibstat", _of_ibstat)


def parse_ibstatus(output: str) -> list[IbPort]:
    """Read `ibstatus`."""
    return _parsed(output, "ibstatus", _of_ibstatus)


def parse_devinfo(output: str) -> list[IbPort]:
    """Read `ibv_devinfo`, with -v or without."""
    return _parsed(output, "ibv_devinfo", _of_devinfo)


def parse_gids(output: str) -> list[IbPort]:
    """Read `show_gids`: the ports with their addresses, nothing else is known of them.

    A container without an interface on the fabric has none.
    """
    return [] if _NO_GIDS.search(output) else _parsed(output, "show_gids", _of_gids)


def parse_netdevs(output: str) -> list[IbPort]:
    """Read `ibdev2netdev` and `rdma link`, one or both of them: the ports with their interfaces and states."""
    return _parsed(output, "ibdev2netdev or rdma link", _of_netdevs)


def _parsed(output: str, tool: str, read: Callable[[list[str]], Iterator[IbPort]]) -> list[IbPort]:
    lines = without_escapes(output).splitlines()
    ports = list(read(lines))
    if not ports:
        first = next((line.strip() for line in lines if line.strip()), "(nothing)")
        raise IbToolError(f"the output holds no port as {tool} prints it; it begins: {first[:120]}")
    return ports


def _of_ibstat(lines: list[str]) -> Iterator[IbPort]:
    hca: IbPort | None = None
    port: IbPort | None = None
    for line in lines:
        match = _IBSTAT_CA.match(line)
        if match:
            if port:
                yield port
            hca, port = IbPort(match[1], 0), None
            continue
        match = _IBSTAT_PORT.match(line)
        if match and hca:
            if port:
                yield port
            port = replace(hca, port=int(match[1]), gids=[])
            continue
        match = _FIELD.match(line)
        if match is None or hca is None:
            continue
        name, value = match[1], match[2]
        if port is None:
            if name == "CA type":
                hca = replace(hca, hca_type=value or None)
            elif name == "Firmware version":
                hca = replace(hca, firmware_version=value or None)
        else:
            port = _with_field(port, _IBSTAT_FIELDS, name, value)
    if port:
        yield port


def _of_ibstatus(lines: list[str]) -> Iterator[IbPort]:
    port: IbPort | None = None
    for line in lines:
        match = _IBSTATUS.match(line)
        if match:
            if port:
                yield port
            port = IbPort(match[1], int(match[2]))
            continue
        match = _FIELD.match(line)
        if match is None or port is None:
            continue
        port = _with_field(port, _IBSTATUS_FIELDS, match[1], match[2])
    if port:
        yield port


def _of_devinfo(lines: list[str]) -> Iterator[IbPort]:
    hca: IbPort | None = None
    port: IbPort | None = None
    vendor = ""
    speed: float | None = None
    for line in lines:
        match = _DEVINFO.match(line)
        if match:
            if port:
                yield port
            hca, port = IbPort(match[1], 0), None
            continue
        if hca is None:
            continue
        match = _GID.match(line)
        if match:
            if port:
                port.gids.append(_gid(int(match[1]), match[2], match[3], port.link_layer))
            continue
        match = _FIELD.match(line)
        if match is None:
            continue
        name, value = match[1], match[2]
        if name == "port" and value.isascii() and value.isdecimal():
            if port:
                yield port
            port, speed = replace(hca, port=int(value[:5]), gids=[]), None
        elif port is None:
            if name == "fw_ver":
                hca = replace(hca, firmware_version=value or None)
            elif name == "vendor_id":
                vendor = value
            elif name == "vendor_part_id" and vendor in _MELLANOX:
                hca = replace(hca, hca_type=f"MT{value}")
        elif name == "active_width":
            width = _WIDTH.match(value)
            speed = float(width[1]) if width else None
        elif name == "active_speed":
            lane = _SPEED.match(value)
            if lane and speed:
                port = replace(port, rate_gigabits_per_second=speed * float(lane[1]))
        else:
            port = _with_field(port, _DEVINFO_FIELDS, name, value)
    if port:
        yield port


def _gid(index: int, printed: str, kind: str | None, link_layer: str | None) -> Gid:
    """Return the address as /sys writes it: eight groups of four digits."""
    try:
        # Not .exploded: from Python 3.13 on it writes the end of an IPv4-mapped address with points.
        address = ipaddress.IPv6Address(printed).packed.hex(":", 2)
    except ValueError:
        address = printed
    known = kind or None
    if known in {"IB/RoCE v1", None}:
        known = "RoCE v1" if link_layer == "Ethernet" and known else "IB" if link_layer == "InfiniBand" else None
    return Gid(index, address, known, None)


def _of_gids(lines: list[str]) -> Iterator[IbPort]:
    ports: dict[tuple[str, int], IbPort] = {}
    for line in lines:
        match = _SHOWN_GID.match(line)
        if match:
            key = (match["hca"], int(match["port"]))
            port = ports.setdefault(key, IbPort(key[0], key[1], netdev=match["netdev"]))
            port.gids.append(Gid(int(match["index"]), match["gid"], f"RoCE v{match['version']}", match["netdev"]))
    yield from ports.values()


def _by_interface(name: str, link: str) -> str | None:
    """Return the port's state as its network interface shows it; that of IPoIB may be down while the port is up."""
    if link == "Up":
        return "ACTIVE"
    return None if name.startswith("ib") else "DOWN"


def _of_netdevs(lines: list[str]) -> Iterator[IbPort]:
    ports: dict[tuple[str, int], IbPort] = {}
    for line in lines:
        match = _NETDEV.match(line)
        if match:
            key = (match["hca"], int(match["port"]))
            port = ports.get(key, IbPort(*key))
            ports[key] = replace(
                port,
                netdev=match["netdev"],
                state=_state(match["state"] or "") or port.state or _by_interface(match["netdev"], match["link"]),
                hca_type=match["type"] or port.hca_type,
                firmware_version=match["firmware"] or port.firmware_version,
            )
            continue
        match = _RDMA.match(line)
        if match:
            key = (match["hca"], int(match["port"]))
            port = ports.get(key, IbPort(*key))
            ports[key] = replace(
                port,
                netdev=match["netdev"] or port.netdev,
                state=_state(match["state"]),
                physical_state=_physical(match["physical"]),
                lid=_integer(match["lid"] or ""),
                sm_lid=_integer(match["sm_lid"] or ""),
            )
    yield from ports.values()


def _state(printed: str) -> str | None:
    match = _NUMBERED.match(printed)
    return _STATES.get(match[1].upper().removeprefix("PORT_")) if match else None


def _physical(printed: str) -> str | None:
    match = _NUMBERED.match(printed)
    return _PHYSICAL.get(match[1].replace("_", "").replace(" ", "").lower()) if match else None


def _link_layer(printed: str) -> str | None:
    # What ibstatus prints where the kernel is older than the distinction.
    return "InfiniBand" if printed == "IB" else printed or None


def _rate(printed: str) -> float | None:
    match = _RATE.match(printed)
    return float(match[1]) if match else None


def _integer(printed: str) -> int | None:
    try:
        return int(printed[:20], 0)
    except ValueError:
        return None


def _with_field(port: IbPort, fields: Mapping[str, tuple[str, Callable[[str], Any]]], name: str, value: str) -> IbPort:
    if name not in fields:
        return port
    attribute, read = fields[name]
    return replace(port, **{attribute: read(value)})


def _words(value: str) -> str | None:
    return value or None


def _default_gid(value: str) -> list[Gid]:
    return [Gid(0, value, None, None)] if ":" in value else []


# What each tool calls a field of a port, the attribute that it is, and how its value is read.
_IBSTAT_FIELDS = {
    "State": ("state", _state),
    "Physical state": ("physical_state", _physical),
    "Rate": ("rate_gigabits_per_second", _rate),
    "Base lid": ("lid", _integer),
    "SM lid": ("sm_lid", _integer),
    "Port GUID": ("guid", _words),
    "Link layer": ("link_layer", _link_layer),
}
_IBSTATUS_FIELDS = {
    "state": ("state", _state),
    "phys state": ("physical_state", _physical),
    "rate": ("rate_gigabits_per_second", _rate),
    "base lid": ("lid", _integer),
    "sm lid": ("sm_lid", _integer),
    "link_layer": ("link_layer", _link_layer),
    "default gid": ("gids", _default_gid),
}
_DEVINFO_FIELDS = {
    "state": ("state", _state),
    "phys_state": ("physical_state", _physical),
    "port_lid": ("lid", _integer),
    "sm_lid": ("sm_lid", _integer),
    "link_layer": ("link_layer", _link_layer),
}
