# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The two files of key=value lines that the simulated libraries read; nvml/state.h describes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

Values = dict[str, str]


class SimulatorError(Exception):
    """Something can't be done; the message says what to do instead."""


def parse(text: str) -> Values:
    """Lines of key=value; others are passed over, as the C library does."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key: value for key, _equals, value in pairs}


def render(values: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in sorted(values.items()))


class Store:
    """Hardware and state of one machine, below root/var/lib/simgpu."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "var/lib/simgpu"

    def installed(self) -> bool:
        return (self.folder / "hardware").is_file()

    def hardware(self) -> Values:
        return self._read("hardware")

    def state(self) -> Values:
        return self._read("state")

    def slots(self) -> list[int]:
        return list(range(int(self.hardware().get("gpu.count", "0"))))

    def get(self, slot: int, key: str) -> str | None:
        """A GPU's value as NVML sees it: the state's outranks the hardware's, one GPU's that of all."""
        return lookup(self.state(), self.hardware(), slot, key)

    def install(self, hardware: Mapping[str, str]) -> None:
        """Write the hardware anew; the state starts empty."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # nvidia-persistenced changes the state as its own user.
        self.folder.chmod(0o777)
        self._replace("hardware", hardware, 0o644)
        with self.change() as state:
            state.clear()

    @contextlib.contextmanager
    def change(self) -> Iterator[Values]:
        """The state, to be changed in place and written as a whole, safe against other writers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(PermissionError):  # someone else's file has the mode already
                os.fchmod(lock, 0o666)
            state = self.state()
            yield state
            self._replace("state", state, 0o666)
        finally:
            os.close(lock)

    def _read(self, name: str) -> Values:
        try:
            return parse((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}

    def _replace(self, name: str, values: Mapping[str, str], mode: int) -> None:
        fresh = self.folder / f"{name}.{os.getpid()}"
        fresh.write_text(render(values), encoding="utf-8")
        fresh.chmod(mode)
        fresh.replace(self.folder / name)


def lookup(state: Mapping[str, str], hardware: Mapping[str, str], slot: int, key: str) -> str | None:
    own, shared = f"gpu.{slot}.{key}", f"gpu.{key}"
    return state.get(own, hardware.get(own, hardware.get(shared)))
