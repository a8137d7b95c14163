# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""The fewest variables that a machine needs beside NCCL's own choices.

NCCL's choices, from its source (releases 2.18 to 2.30): for sockets every interface that begins with "ib", else every
one but docker*, lo* and virbr*; all active ports of InfiniBand and Ethernet; traffic class 0; the GID index by itself
since 2.21, before that index 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._hca import HcaPort, of_one_kind
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_interfaces import Interface

LINK_LAYERS = ("InfiniBand", "Ethernet")
_PASSED_OVER = ("docker", "lo", "virbr")
_CHOOSES_GID_SINCE = (2, 21)
_IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:"


@dataclass(frozen=True)
class Recommendation:
    """A variable to set, and why NCCL's own choice isn't right here."""

    name: str
    value: str
    reason: str


def recommend(
    interfaces: Sequence[Interface], ports: Sequence[HcaPort], default_route: str | None, version: str | None
) -> list[Recommendation]:
    """Return what to set. version: of the oldest NCCL in use; interfaces without known addresses give no advice."""
    used = ports_to_use(ports)
    return [
        *_sockets(interfaces, default_route),
        *_ports(ports, used),
        *_gid_index(used, version),
        *_traffic_class(used),
    ]


def _sockets(interfaces: Sequence[Interface], default_route: str | None) -> Iterator[Recommendation]:
    working = [one for one in interfaces if one.addresses and one.bootstrap_reason != "down"]
    fabric = [one for one in working if one.name.startswith("ib")]
    chosen = fabric or [one for one in working if not one.name.startswith(_PASSED_OVER)]
    candidates = [one for one in working if one.bootstrap]
    right = all(one.bootstrap for one in chosen) and (len(chosen) == 1 or bool(fabric))
    if right or not candidates:
        return
    best = max(
        candidates,
        key=lambda one: (one.name == default_route, one.kind == "bond", one.speed_megabits_per_second or 0),
    )
    why = (
        "carries the default route"
        if best.name == default_route
        else "is a bond"
        if best.kind == "bond"
        else "is the fastest that other hosts can reach"
    )
    others = ", ".join(one.name for one in chosen if one.name != best.name)
    yield Recommendation("NCCL_SOCKET_IFNAME", f"={best.name}", f"{best.name} {why}; NCCL would also take {others}.")


def active_ports(ports: Sequence[HcaPort]) -> list[HcaPort]:
    """Return the ports that NCCL takes by itself."""
    return [port for port in ports if port.state == "ACTIVE" and port.link_layer in LINK_LAYERS]


def ports_to_use(ports: Sequence[HcaPort]) -> list[HcaPort]:
    """Return the active ports of the kind (link layer and rate) with the greatest rate in sum.

    Virtual functions belong to whatever they were made for, unless there is nothing else.
    """
    active = active_ports(ports)
    kinds: dict[tuple[str | None, float], list[HcaPort]] = {}
    for port in [port for port in active if not port.virtual_function] or active:
        if port.rate_gigabits_per_second:
            kinds.setdefault((port.link_layer, port.rate_gigabits_per_second), []).append(port)
    return max(kinds.values(), key=lambda kind: sum(port.rate_gigabits_per_second or 0 for port in kind), default=[])


def _ports(ports: Sequence[HcaPort], used: Sequence[HcaPort]) -> Iterator[Recommendation]:
    active = active_ports(ports)
    # A port that is slower than others of its kind is a fault to mend, not a network to leave out.
    network = [port for port in active if any(of_one_kind(port, one) for one in used)]
    others = [port for port in active if port not in network]
    if not used or not others:
        return
    yield Recommendation(
        "NCCL_IB_HCA",
        f"={','.join(f'{port.name}:{port.port}' for port in network)}",
        f"These {used[0].link_layer} ports are the compute network; NCCL would also take "
        f"{', '.join(map(_described, others))}.",
    )


def _described(port: HcaPort) -> str:
    kind = "virtual function" if port.virtual_function else f"{port.rate_gigabits_per_second or 0:g} Gb/s"
    return f"{port.name}:{port.port} ({port.link_layer}, {kind})"


def _gid_index(used: Sequence[HcaPort], version: str | None) -> Iterator[Recommendation]:
    if version is None or _release(version) >= _CHOOSES_GID_SINCE or not used or used[0].link_layer != "Ethernet":
        return
    indices = {roce_index(port) for port in used}
    index = indices.pop()
    if index is not None and index != 0 and not indices:
        yield Recommendation(
            "NCCL_IB_GID_INDEX",
            str(index),
            f"NCCL {version} takes GID 0, which is not RoCE v2; every port has its RoCE v2 IPv4 address at {index}.",
        )


def _traffic_class(used: Sequence[HcaPort]) -> Iterator[Recommendation]:
    """The class that the host gives to what connects by RDMA-CM: NCCL connects otherwise, in class 0."""
    classes = {port.traffic_class_rdma_cm for port in used}
    forced = any(port.traffic_class_forced is not None for port in used)
    if len(classes) != 1 or forced or not used or used[0].link_layer != "Ethernet":
        return
    wanted = classes.pop()
    if wanted:
        yield Recommendation(
            "NCCL_IB_TC",
            str(wanted),
            f"The host has RDMA-CM send RoCE in traffic class {wanted} (DSCP {wanted >> 2}); NCCL, which doesn't "
            "connect by RDMA-CM, would send in class 0.",
        )


def roce_index(port: HcaPort) -> int | None:
    """Return the index of the first RoCE v2 address that stands for an IPv4 one, None where there is none."""
    return next((gid.index for gid in port.gids if gid.type == "RoCE v2" and gid.gid.startswith(_IPV4_MAPPED)), None)


def _release(version: str) -> tuple[int, int]:
    major, _dot, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
