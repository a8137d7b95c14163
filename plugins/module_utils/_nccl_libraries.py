# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""The NCCL libraries and network plugins of a machine.

No library is loaded: that would run code of whoever may write to its folder. The version is read from the file's name
or, where that has none (Python wheels), from the text "NCCL version 2.21.5+cuda12.4" that every build of NCCL carries.
"""

from __future__ import annotations

import glob
import mmap
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_NAME = re.compile(r"^libnccl\.so(?:\.([0-9]+(?:\.[0-9]+)*))?$")
_CONTENT = re.compile(rb"NCCL version ([0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3})(?:\+cuda([0-9]{1,3}\.[0-9]{1,3}))?")
_LDCONFIG = re.compile(r"^\s*(libnccl(?:-net)?[\w.-]*\.so[\w.]*) \(([^)]*)\) => (\S+)\s*$")
_SYSTEM = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib")
_CUDA = ("usr/local/cuda*/lib64", "usr/local/cuda*/targets/*/lib")
_PLUGIN = (
    "opt/amazon/ofi-nccl/lib*",
    "opt/amazon/ofi-nccl/lib/*",
    "opt/aws-ofi-nccl/lib",
    "opt/hpcx*/nccl*_plugin/lib",
    "opt/mellanox/nccl_rdma_sharp_plugin/lib",
    "usr/local/gib/lib64",
    "usr/local/fastrak/lib64",
    "usr/local/tcpx/lib64",
    "var/lib/tcpxo/lib64",
    "var/lib/tcpx/lib64",
    "usr/local/nccl-rdma-sharp-plugins/lib",
)
# Where a folder that the user names keeps libraries: the folder itself, a prefix, a Python environment.
_WITHIN = (
    "",
    "lib",
    "lib64",
    # Debian and Ubuntu say dist-packages.
    "lib/python3*/*-packages/nvidia/nccl/lib",
    "lib/python3*/*-packages/nvidia/cu*/lib",
    "lib/python3*/*-packages/torch/lib",
)
_KINDS = (
    ("ofi", "aws-ofi"),
    ("spectrum", "spectrum-x"),
    ("spcx", "spectrum-x"),
    ("ncclnet_plugin", "spectrum-x"),
    ("sharp", "sharp"),
    ("hpcx", "sharp"),
    ("gib", "gcp-gib"),
    ("fastrak", "gcp-fastrak"),
    ("tcpxo", "gcp-fastrak"),
    ("tcpx", "gcp-tcpx"),
)


@dataclass(frozen=True)
class Library:
    """An NCCL library.

    origin: "system", "cuda" or "search_path".
    loaded_by_default: a process gets this one unless its environment or its own search path says otherwise.
    """

    path: str
    version: str | None
    cuda_version: str | None
    origin: str
    loaded_by_default: bool


@dataclass(frozen=True)
class NetPlugin:
    """A network plugin of NCCL.

    kind: aws-ofi, sharp, spectrum-x, gcp-gib, gcp-fastrak, gcp-tcpx, or None where its path doesn't tell.
    """

    path: str
    kind: str | None


def parse_ldconfig(output: str) -> list[str]:
    """Read `ldconfig -p`: the paths of NCCL's libraries and plugins in the order in which the loader takes them."""
    matches = (_LDCONFIG.match(line) for line in output.splitlines())
    return [match[3] for match in matches if match]


def libraries(root: str, search_paths: Sequence[str], cached: Sequence[str]) -> list[Library]:
    """Return every NCCL library, each file once. cached: what parse_ldconfig gave, [] where it can't be asked."""
    found: dict[str, Library] = {}
    default = next((os.path.realpath(path) for path in cached if os.path.basename(path) == "libnccl.so.2"), None)
    candidates = [
        *(("system", path) for path in cached),
        *(("system", path) for path in _matching(root, _SYSTEM, "libnccl.so*")),
        *(("cuda", path) for path in _matching(root, _CUDA, "libnccl.so*")),
        *(("search_path", path) for folder in search_paths for path in _matching(folder, _WITHIN, "libnccl.so*")),
    ]
    for origin, candidate in candidates:
        path = os.path.realpath(candidate)
        if path in found or not os.path.isfile(path) or not _NAME.match(os.path.basename(candidate)):
            continue
        version, cuda_version = _version(path)
        found[path] = Library(path, version, cuda_version, _origin(path, origin), path == default)
    return list(found.values())


def net_plugins(root: str, search_paths: Sequence[str], cached: Sequence[str]) -> list[NetPlugin]:
    """Return every network plugin, each file once."""
    paths = [
        *(path for path in cached if os.path.basename(path).startswith("libnccl-net")),
        *_matching(root, (*_SYSTEM, *_CUDA, *_PLUGIN), "libnccl-net*.so*"),
        *(path for folder in search_paths for path in _matching(folder, _WITHIN, "libnccl-net*.so*")),
    ]
    found: dict[str, NetPlugin] = {}
    for path in paths:
        real = os.path.realpath(path)
        if os.path.isfile(real):
            kind = next((kind for word, kind in _KINDS if word in path.lower()), None)
            found.setdefault(real, NetPlugin(real, kind))
    return list(found.values())


def _origin(path: str, origin: str) -> str:
    return "cuda" if origin == "system" and "/cuda" in path else origin


def _version(path: str) -> tuple[str | None, str | None]:
    match = _NAME.match(os.path.basename(path))
    named = match[1] if match else None
    if named is not None and named.count(".") >= 2:
        return named, None
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            text = _CONTENT.search(content)
            if text:
                return text[1].decode(), text[2].decode() if text[2] else None
    except (OSError, ValueError):
        pass  # unreadable or empty
    return None, None


def _matching(base: str, folders: Iterable[str], name: str) -> list[str]:
    found = []
    for folder in folders:
        found += sorted(glob.glob(os.path.join(glob.escape(base), folder, name)))
    return found
