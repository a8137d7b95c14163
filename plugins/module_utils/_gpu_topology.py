# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""The matrix that `nvidia-smi topo -m` prints.

Format: captures of drivers 450 to 610: columns parted by tabs (by spaces where somebody pasted it), NICs as NIC0 with a
legend or, before driver 515, under their own names; newer drivers underline the head line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import integer, text, without_escapes

_TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_GPU_NAME = re.compile(r"^GPU(\d{1,4})$")
_DEVICE_NAME = re.compile(r"^(?:GPU\d{1,4}|NIC\d{1,4}|[A-Za-z][\w.:-]*)$")
# X, SYS, NODE, PHB, PXB, PIX, SOC, NV12, N/A; a word that a newer driver adds mustn't cost the whole matrix.
_DISTANCE = re.compile(r"^[A-Z][A-Z0-9/#-]{0,7}$")
_LEGEND = re.compile(r"^\s*(NIC\d{1,4}):\s+(\S+)(?:\s.*)?$")


class TopologyError(ValueError):
    """The text is no topology matrix."""


@dataclass(frozen=True)
class TopologyGpu:
    """A GPU's row.

    gpus, nics: distance by GPU index and by NIC name: NV# (that many NVLinks), PIX, PXB, PHB, NODE, SYS.
    nic_nearest: the NICs at the least distance, [] where there are none.
    """

    gpu: int
    cpu_affinity: str | None
    numa_affinity: str | None
    gpus: dict[str, str]
    nics: dict[str, str]
    nic_nearest: list[str]
    nic_nearest_distance: str | None


@dataclass(frozen=True)
class Topology:
    """GPUs and NICs of a machine and how far they are apart. nics are device names as under /sys/class/infiniband."""

    gpus: list[TopologyGpu]
    nics: list[str]


_ORDER = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")


def parse_topology(output: str) -> Topology:
    """Read the matrix; raise TopologyError where there is none."""
    lines = without_escapes(output).splitlines()
    start = next((number for number, line in enumerate(lines) if _head(line) is not None), None)
    if start is None:
        first = next((line.strip() for line in lines if line.strip()), "(nothing)")
        raise TopologyError(f"the output holds no topology matrix; it begins: {first[:120]}")
    columns = _head(lines[start]) or []
    titles = [title for title in _TITLES if title in lines[start]]
    rows: list[tuple[str, list[str]]] = []
    for line in lines[start + 1 :]:
        if not line.strip():
            break
        cells = _cells(line)
        name, distances = cells[0], cells[1 : len(columns) + 1]
        whole = len(distances) == len(columns) and all(map(_DISTANCE.match, distances))
        if not whole or not _DEVICE_NAME.match(name):
            break
        rows.append((name, cells[1:]))
    names = {}
    for line in lines:
        match = _LEGEND.match(line)
        if match:
            names[match[1]] = match[2]
    return Topology(
        gpus=[_gpu(name, cells, columns, titles, names) for name, cells in rows if _GPU_NAME.match(name)],
        nics=[names.get(column, column) for column in columns if not _GPU_NAME.match(column)],
    )


def _head(line: str) -> list[str] | None:
    """Return the device columns of the head line, None for any other line."""
    if not line[:1].isspace() and _TITLES[0] not in line:
        return None
    for title in _TITLES:
        line = line.replace(title, "")
    columns = line.split()
    return columns if columns and _GPU_NAME.match(columns[0]) and all(map(_DEVICE_NAME.match, columns)) else None


def _cells(line: str) -> list[str]:
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return line.split()


def _gpu(
    name: str, cells: Sequence[str], columns: Sequence[str], titles: Sequence[str], names: Mapping[str, str]
) -> TopologyGpu:
    distances = dict(zip(columns, cells))
    # Tabs that pad a short value look like empty cells, which a full row doesn't have.
    rest = cells[len(columns) :]
    full = [cell for cell in rest if cell]
    affinity = dict(zip(titles, map(text, full if len(full) == len(titles) else rest)))
    match = _GPU_NAME.match(name)
    nics = {
        names.get(column, column): distance
        for column, distance in distances.items()
        if not _GPU_NAME.match(column) and distance != "X"
    }
    nearest = min((_ORDER.index(distance) for distance in nics.values() if distance in _ORDER), default=None)
    return TopologyGpu(
        gpu=integer(match[1] if match else None) or 0,
        cpu_affinity=affinity.get("CPU Affinity"),
        numa_affinity=affinity.get("NUMA Affinity"),
        gpus={
            column[3:]: distance
            for column, distance in distances.items()
            if _GPU_NAME.match(column) and distance != "X"
        },
        nics=nics,
        nic_nearest=[] if nearest is None else [nic for nic, away in nics.items() if away == _ORDER[nearest]],
        nic_nearest_distance=None if nearest is None else _ORDER[nearest],
    )
