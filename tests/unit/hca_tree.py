# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Trees of files as the kernel shows InfiniBand and RoCE adapters."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.captures import read_capture


def planted(root: Path, name: str) -> str:
    """Make a tree of files from a capture that maps paths to contents; HCAs are linked as the kernel links them."""
    for path, content in json.loads(read_capture("ib", name)).items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    links = root / "sys/class/infiniband"
    for hca in root.glob("sys/bus/pci/devices/*/infiniband/*"):
        links.mkdir(parents=True, exist_ok=True)
        (links / hca.name).symlink_to(hca)
        (hca / "device").symlink_to(hca.parent.parent)
    return str(root)


def hca(root: Path, name: str, **contents: str) -> Path:
    """Make an HCA with one port, which is healthy unless contents say otherwise; return the port's folder."""
    folder = root / "sys/class/infiniband" / name / "ports/1"
    folder.mkdir(parents=True)
    values = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand",
    }
    for file, content in {**values, **contents}.items():
        (folder / file).write_text(f"{content}\n")
    (folder.parent.parent / "hca_type").write_text("MT4129\n")
    return folder


def gid(folder: Path, index: int, value: str, kind: str, netdev: str) -> None:
    """Give a port an address."""
    for file, content in (("gids", value), ("gid_attrs/types", kind), ("gid_attrs/ndevs", netdev)):
        (folder / file).mkdir(parents=True, exist_ok=True)
        (folder / file / str(index)).write_text(f"{content}\n")
