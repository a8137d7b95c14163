# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Everything that NCCL depends on on a machine, in one structure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.trainyard.cluster.plugins.module_utils._command import RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_driver import parse_proc_version, read_text
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_problems import INFO, WARNING
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_topology import TopologyError, parse_topology
from ansible_collections.trainyard.cluster.plugins.module_utils._hca import HcaPort, hca_ports, of_one_kind
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
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_problem import NcclProblem
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_recommended import (
    LINK_LAYERS,
    Recommendation,
    active_ports,
    ports_to_use,
    recommend,
    roce_index,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_settings import (
    Setting,
    effective,
    of_settings,
    read_settings,
    selects,
)

_PEERMEM = (
    "sys/module/nvidia_peermem/version",
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/nv_mem_nc/version",
)
_DMA_BUF_SINCE = (5, 12)
# Destination and its length, source, gateway, metric, two counters, flags, interface.
_DEFAULT_ROUTE_IPV6 = re.compile(
    r"^0{32} 00 \w{32} \w\w \w{32} ([0-9a-f]{8}) \w{8} \w{8} \w{8} +(\S+)$", re.MULTILINE | re.ASCII
)
_NEAR = ("PIX", "PXB", "PHB")


@dataclass(frozen=True)
class Config:
    """settings: everything that is set, by rank; of a variable set twice only the first is effective."""

    settings: list[Setting]


@dataclass(frozen=True)
class GpuDistance:
    """How near the nearest NICs of a GPU are: PIX, PXB, PHB (near), NODE, SYS (far)."""

    gpu: int
    nic_nearest: list[str]
    nic_nearest_distance: str | None


@dataclass(frozen=True)
class Gdr:
    """GPUDirect RDMA: HCAs read and write GPU memory through one of two ways.

    peermem_loaded: the module nvidia_peermem or its older kin is loaded.
    dma_buf: the kernel (5.12 or newer) and the open kernel module offer dma-buf; None where no driver is loaded.
    """

    peermem_loaded: bool
    dma_buf: bool | None
    gpus: list[GpuDistance]


@dataclass(frozen=True)
class NcclFacts:
    """See the module nccl_facts."""

    libraries: list[Library]
    net_plugins: list[NetPlugin]
    interfaces: list[Interface]
    hcas: list[HcaPort]
    gdr: Gdr
    config: Config
    recommended: list[Recommendation]
    problems: list[NcclProblem]


@dataclass(frozen=True)
class Request:
    """Where to look."""

    root: str = "/"
    search_paths: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_files: Sequence[str] = ()
    home: str | None = None
    nvidia_smi: str = "nvidia-smi"
    timeout: float = 60


def collect(run: RunCommand, request: Request) -> NcclFacts:
    """Read what root shows. Commands are asked about this machine only, that is for root "/"."""
    root = request.root
    cached: list[str] = []
    addresses: dict[str, list[str]] | None = None
    if os.path.abspath(root) == "/":
        cached = parse_ldconfig(run([_ldconfig(), "-p"], request.timeout).out)
        try:
            addresses = parse_addresses(run(["ip", "-json", "address"], request.timeout).out)
        except ValueError:
            addresses = None  # no iproute2, or one from before JSON
    found = libraries(root, request.search_paths, cached)
    plugins = net_plugins(root, request.search_paths, cached)
    ports = hca_ports(root)
    networks = interfaces(root, addresses)
    gdr = _gdr(run, request, ports)
    settings = read_settings(
        os.path.join(root, "etc/nccl.conf"), request.environment, request.environment_files, request.home
    )
    return NcclFacts(
        libraries=found,
        net_plugins=plugins,
        interfaces=networks,
        hcas=ports,
        gdr=gdr,
        config=Config(settings),
        recommended=recommend(networks, ports, default_route(root), _oldest(found)),
        problems=[
            *_of_libraries(found),
            *_of_plugins(found, plugins, ports),
            *_of_ports(ports),
            *_of_networks(ports, networks, settings),
            *_of_gdr(gdr, ports),
            *of_settings(settings),
            *_of_selections(ports, networks, settings),
        ],
    )


def _ldconfig() -> str:
    return "/sbin/ldconfig" if os.path.exists("/sbin/ldconfig") else "ldconfig"


def default_route(root: str) -> str | None:
    """Return the interface of the default route with the least metric, by IPv4 or, where that has none, by IPv6."""
    routes = []
    for line in (read_text(os.path.join(root, "proc/net/route")) or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000" and fields[6].isdecimal():
            routes.append((int(fields[6]), fields[0]))
    if not routes:
        table = read_text(os.path.join(root, "proc/net/ipv6_route")) or ""
        # On lo the kernel has a route that rejects.
        routes = [(int(metric, 16), name) for metric, name in _DEFAULT_ROUTE_IPV6.findall(table) if name != "lo"]
    return min(routes)[1] if routes else None


def _oldest(found: Sequence[Library]) -> str | None:
    versions = [library.version for library in found if library.version]
    return min(versions, key=lambda version: [int(part) for part in version.split(".")], default=None)


def _gdr(run: RunCommand, request: Request, ports: Sequence[HcaPort]) -> Gdr:
    version = read_text(os.path.join(request.root, "proc/driver/nvidia/version"))
    dma_buf = None
    if version is not None:
        release = re.match(
            r"(\d{1,4})\.(\d{1,4})", read_text(os.path.join(request.root, "proc/sys/kernel/osrelease")) or ""
        )
        new_enough = release is not None and (int(release[1]), int(release[2])) >= _DMA_BUF_SINCE
        dma_buf = new_enough and parse_proc_version(version)[1] == "open"
    gpus: list[GpuDistance] = []
    if version is not None and ports:
        result = run([request.nvidia_smi, "topo", "-m"], request.timeout)
        try:
            rows = parse_topology(result.out).gpus
        except TopologyError:
            rows = []
        gpus = [GpuDistance(row.gpu, row.nic_nearest, row.nic_nearest_distance) for row in rows]
    return Gdr(any(os.path.exists(os.path.join(request.root, path)) for path in _PEERMEM), dma_buf, gpus)


def _of_gdr(gdr: Gdr, ports: Sequence[HcaPort]) -> Iterator[NcclProblem]:
    if gdr.dma_buf is False and not gdr.peermem_loaded and active_ports(ports):
        yield NcclProblem(
            WARNING,
            "peermem_missing",
            None,
            "The HCAs can't reach GPU memory; everything between nodes is copied through the host's memory.",
            "nvidia_peermem isn't loaded, and this driver and kernel offer no dma-buf",
            "Load nvidia_peermem, or install the open kernel module on Linux 5.12 or newer.",
        )
    near = [gpu for gpu in gdr.gpus if gpu.nic_nearest_distance in _NEAR]
    for gpu in gdr.gpus:
        if near and gpu not in near:
            yield NcclProblem(
                WARNING,
                "gpu_without_near_nic",
                f"GPU {gpu.gpu}",
                "No NIC is near this GPU, though others have one; its traffic crosses the CPU.",
                f"nearest: {', '.join(gpu.nic_nearest) or 'none'} at {gpu.nic_nearest_distance or 'no distance'}",
                "See that every NIC is seated and its driver loaded.",
            )


def _of_networks(
    ports: Sequence[HcaPort], networks: Sequence[Interface], settings: Sequence[Setting]
) -> Iterator[NcclProblem]:
    used = [port for port in ports_to_use(ports) if port.link_layer == "Ethernet"]
    mtu = {one.name: one.mtu for one in networks}
    sizes = {port.netdev: mtu[port.netdev] for port in used if port.netdev in mtu}
    if len(set(sizes.values())) > 1:
        yield NcclProblem(
            WARNING,
            "mtu_differs",
            None,
            "The RoCE ports have interfaces of different MTU; packets between them are cut or lost.",
            ", ".join(f"{name} {size}" for name, size in sizes.items()),
            "Give all of them the MTU of the network.",
        )
    wanted = effective(settings, "NCCL_IB_GID_INDEX")
    if wanted is None or not wanted.isdecimal():
        return
    for port in used:
        gid = next((gid for gid in port.gids if gid.index == int(wanted)), None)
        if port.gids and (gid is None or gid.type != "RoCE v2"):
            right = roce_index(port)
            yield NcclProblem(
                WARNING,
                "gid_index_wrong",
                f"{port.name}:{port.port}",
                "NCCL_IB_GID_INDEX names no RoCE v2 address of this port.",
                f"index {wanted}: {gid.type if gid else 'nothing'}",
                f"Set it to {right}." if right is not None else "Give the port's interface an IPv4 address.",
            )


def _of_selections(
    ports: Sequence[HcaPort], networks: Sequence[Interface], settings: Sequence[Setting]
) -> Iterator[NcclProblem]:
    interfaces_up: list[tuple[str, int | None]] = [
        (one.name, None) for one in networks if one.bootstrap_reason != "down"
    ]
    ports_up: list[tuple[str, int | None]] = [(port.name, port.port) for port in active_ports(ports)]
    for name, there, message in (
        ("NCCL_SOCKET_IFNAME", interfaces_up, "No interface that is up bears such a name; jobs fail at their start."),
        ("NCCL_IB_HCA", ports_up, "No active port bears such a name; everything between nodes goes by TCP."),
    ):
        value = effective(settings, name)
        if value and there and not any(selects(value, *one) for one in there):
            yield NcclProblem(
                WARNING,
                "setting_selects_nothing",
                name,
                message,
                f"{name}={value}; there are {', '.join(one for one, _port in there)}",
                "Correct it to names of this machine.",
            )


def _of_libraries(found: Sequence[Library]) -> Iterator[NcclProblem]:
    versions = sorted({library.version for library in found if library.version})
    if not found:
        yield NcclProblem(
            INFO,
            "nccl_missing",
            None,
            "No NCCL library was found.",
            "libnccl.so.2 is neither known to ldconfig nor in a CUDA tree or search path",
            "Install it (role cuda does), or name the Python environments in search_paths.",
        )
    elif len(versions) > 1:
        yield NcclProblem(
            WARNING,
            "nccl_versions_differ",
            None,
            "Several versions of NCCL are installed; jobs that load different ones can't talk to each other.",
            "; ".join(f"{library.version or 'unknown'} {library.path}" for library in found),
            "See that all ranks of a job use the same environment, or install one version.",
        )


def _of_plugins(
    found: Sequence[Library], plugins: Sequence[NetPlugin], ports: Sequence[HcaPort]
) -> Iterator[NcclProblem]:
    unused = [port for port in ports if port.state == "ACTIVE" and port.link_layer not in (None, *LINK_LAYERS)]
    if found and unused and not plugins:
        yield NcclProblem(
            WARNING,
            "net_plugin_missing",
            None,
            "NCCL uses InfiniBand and Ethernet alone; without a plugin for these ports it sends by TCP.",
            f"link layer {unused[0].link_layer}: {', '.join(f'{port.name}:{port.port}' for port in unused)}",
            "Install the network's plugin (aws-ofi-nccl for AWS's EFA), or name its folder in search_paths.",
        )


def _of_ports(ports: Sequence[HcaPort]) -> Iterator[NcclProblem]:
    for port in ports:
        if port.state is not None and port.state != "ACTIVE" and not port.virtual_function:
            severity, message, action = _down(port)
            yield NcclProblem(
                severity,
                "hca_port_down",
                f"{port.name}:{port.port}",
                message,
                f"state {port.state}, physical state {port.physical_state or 'unknown'}",
                action,
            )
    for port in ports:
        twins = [twin for twin in ports if twin.state == "ACTIVE" and of_one_kind(port, twin)]
        best = max((twin.rate_gigabits_per_second or 0 for twin in twins), default=0)
        if (
            port.state == "ACTIVE"
            and port.rate_gigabits_per_second is not None
            and port.rate_gigabits_per_second < best
        ):
            yield NcclProblem(
                WARNING,
                "hca_port_slow",
                f"{port.name}:{port.port}",
                "The port is slower than others of its kind; every collective operation over it waits.",
                f"{port.rate_gigabits_per_second:g} Gb/s, others {best:g} Gb/s",
                "Check the cable and the speed that the switch port offers.",
            )


def _down(port: HcaPort) -> tuple[str, str, str]:
    """Return severity, message and action."""
    if port.physical_state == "Disabled":
        return INFO, "The port is switched off.", "Nothing, if it isn't meant to be used."
    if port.physical_state == "LinkUp" and port.link_layer == "InfiniBand":
        return WARNING, "The link is up, but no subnet manager made the port active.", "Check the subnet manager."
    return WARNING, "The port has no working link.", "Check the cable and the switch port."
