"""The real promtool, Debian's own, without installing Prometheus and its service on this machine."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.simulator.engine import STATE
from tests.simulator.gpu.debian import unpack


def promtool() -> Path:
    """The machine's own promtool, or one unpacked from its Debian release's package below the simulator's state."""
    installed = shutil.which("promtool")
    if installed:
        return Path(installed)
    codename = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.M)
    suite = codename[1] if codename else "trixie"
    # Until Debian 12 it was part of the server's package.
    return unpack(suite, ["prometheus" if suite == "bookworm" else "promtool"], STATE / "gpu") / "usr/bin/promtool"
