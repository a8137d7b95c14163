"""The machine's own Debian mirror, and a cache in front of it that every test host shares."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .engine import STATE, SimulatorError, run

# An address of the range set aside for benchmarks, on the loopback interface: only this machine's hosts reach it.
CACHE_ADDRESS = "198.18.0.254"
CACHE_PORT = 3142
CACHE_URL = f"http://{CACHE_ADDRESS}:{CACHE_PORT}"
_CONFIGURATION = STATE / "apt-cacher-ng"
_COMMAND = ["apt-cacher-ng", "-c", str(_CONFIGURATION)]
_PROCESSES = Path("/proc")


@dataclass(frozen=True)
class Mirror:
    """Where this machine gets Debian from."""

    archive: str
    security: str

    def sources(self, suite: str) -> str:
        """A deb822 sources file for a suite, with the components of a fresh installation."""
        keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
        stanza = f"Types: deb\nURIs: {{}}\nSuites: {{}}\nComponents: main\nSigned-By: {keyring}\n"
        return "\n".join(
            [stanza.format(self.archive, f"{suite} {suite}-updates"), stanza.format(self.security, f"{suite}-security")]
        )


def machine_mirror() -> Mirror:
    """Read the mirror from apt itself, so that no mirror has to be named here."""
    columns = "$(ORIGIN)|$(CODENAME)|$(REPO_URI)"
    lines = run(["apt-get", "indextargets", "--format", columns, "Created-By: Packages"]).stdout.splitlines()
    archive = security = None
    for line in lines:
        origin, codename, uri = line.split("|")
        if origin != "Debian":
            continue
        if codename.endswith("-security"):
            security = security or _first_of_list(uri)
        elif re.fullmatch(r"[a-z]+", codename):
            archive = archive or _first_of_list(uri)
    if not archive:
        raise SimulatorError(
            "apt knows no Debian archive on this machine; run apt-get update, or use a Debian 12 or 13 machine"
        )
    return Mirror(archive.rstrip("/"), (security or re.sub(r"/debian/?$", "/debian-security", archive)).rstrip("/"))


def _first_of_list(uri: str) -> str:
    """The first mirror of a list on this machine, as Debian's cloud images have it; any other URI as it is."""
    if not uri.startswith("mirror+file:"):
        return uri
    path = Path(re.sub(r"^mirror\+file:(//)?", "", uri).rstrip("/"))
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            return words[0]
    raise SimulatorError(f"apt's list of mirrors {path} names none; write one there, or name it in apt's sources")


def start_cache() -> None:
    """Start apt-cacher-ng in front of the mirror unless it runs already; packages are kept between runs."""
    _give_loopback_the_address()
    if _answers():
        if _CONFIGURATION.exists():
            return
        stop_cache()  # its folders were removed under it, so it can keep nothing
    cache, logs = STATE / "packages", STATE / "log"
    for folder in (cache, logs):
        folder.mkdir(exist_ok=True)
    settings = {
        "CacheDir": cache,
        "LogDir": logs,
        "SocketPath": STATE / "apt-cacher-ng.socket",
        "BindAddress": CACHE_ADDRESS,
        "Port": CACHE_PORT,
        "ForeGround": 1,
        "ExThreshold": 30,  # days that an unused package is kept
        "PassThroughPattern": r"^[^/]+:443$",  # a mirror over TLS works, uncached
    }
    _CONFIGURATION.mkdir(exist_ok=True)
    (_CONFIGURATION / "acng.conf").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    with open(logs / "apt-cacher-ng.out", "ab") as output:
        subprocess.Popen(
            _COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    for _attempt in range(50):
        if _answers():
            return
        time.sleep(0.1)
    raise SimulatorError(f"the package cache didn't start; see {logs}/apt-cacher-ng.out")


def stop_cache() -> None:
    """End the cache and wait until it is gone; what it keeps stays on the disk."""
    for process in _cache_processes():
        os.kill(process, signal.SIGTERM)
    for _attempt in range(50):
        if not any(_cache_processes()):
            return
        time.sleep(0.1)
    raise SimulatorError(f"the package cache doesn't end; end process {next(_cache_processes())} and try again")


def _cache_processes() -> Iterator[int]:
    """The caches that this module started, from whichever checkout."""
    for command in _PROCESSES.glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes().split(b"\0")
        except OSError:  # it has ended since
            continue
        if [os.fsdecode(word) for word in words[:3]] == _COMMAND:
            yield int(command.parent.name)


def forget_address() -> None:
    """Take the cache's address from the loopback interface."""
    if CACHE_ADDRESS in run(["ip", "-4", "address", "show", "dev", "lo"]).stdout:
        run(["ip", "address", "delete", f"{CACHE_ADDRESS}/32", "dev", "lo"])


def _give_loopback_the_address() -> None:
    if CACHE_ADDRESS not in run(["ip", "-4", "address", "show", "dev", "lo"]).stdout:
        run(["ip", "address", "add", f"{CACHE_ADDRESS}/32", "dev", "lo"])


def _answers() -> bool:
    try:
        with socket.create_connection((CACHE_ADDRESS, CACHE_PORT), timeout=1):
            return True
    except OSError:
        return False


def proxy_setting() -> str:
    """The apt setting that sends a host's requests through the cache."""
    return f'Acquire::http::Proxy "{CACHE_URL}";\n'


def host_proxy_settings(*direct: str) -> str:
    """A host's apt settings: through the cache, but for hosts of the instance itself, which the cache doesn't know."""
    return proxy_setting() + "".join(f'Acquire::http::Proxy::{name} "DIRECT";\n' for name in direct)
