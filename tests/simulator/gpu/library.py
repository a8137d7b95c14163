# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Builds the simulated libnvidia-ml.so.1 and libnvidia-cfg.so.1, one build for every supported suite."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..engine import SimulatorError
from . import debian

SOURCES = Path(__file__).parent / "nvml"
# The oldest C library of a test host, Debian 12's. A build on a newer machine must not ask for more.
OLDEST_GLIBC = (2, 36)
# Debian 13's nvml.h knows every structure that nvidia-smi 535 and 550 use; Debian 12's is of driver 520.
HEADER_SUITE = "trixie"
HEADER_PACKAGE = "libnvidia-ml-dev"

_FLAGS = [
    "-std=c11",
    "-D_POSIX_C_SOURCE=200809L",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-deprecated-declarations",
    "-fPIC",
    "-fvisibility=hidden",
]
_MIG = ("mig", "mig_layout", "mig_devices")
_NVML = ("state", "values", "system", "device", "processes", "settings", "health", "links", *_MIG)
_CFG = ("state", "cfg")


class BuildError(SimulatorError):
    """The libraries could not be built; the message says why."""


def build_libraries(cache: Path) -> Path:
    """Return a folder with both libraries, built anew only when a source changed."""
    header = debian.unpack(HEADER_SUITE, [HEADER_PACKAGE], cache) / "usr/include"
    destination = cache / "lib" / _digest(header / "nvml.h")
    if destination.is_dir():
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        result = Path(scratch) / "result"
        result.mkdir()
        _build(Path(scratch), header, result)
        try:
            os.rename(result, destination)
        except OSError:
            if not destination.is_dir():  # someone else may have built it meanwhile
                raise
    return destination


def _digest(header: Path) -> str:
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for path in [*sorted(SOURCES.iterdir()), header, Path(__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(scratch: Path, header: Path, result: Path) -> None:
    for name in sorted({*_NVML, *_CFG}):
        _compile(SOURCES / f"{name}.c", scratch / f"{name}.o", header)
    stubs = scratch / "stubs.c"
    stubs.write_text(stub_source(_wanted(header / "nvml.h"), _defined(scratch / f"{name}.o" for name in _NVML)))
    _compile(stubs, scratch / "stubs.o", header)
    _link("libnvidia-ml.so.1", [scratch / f"{name}.o" for name in (*_NVML, "stubs")], result)
    _link("libnvidia-cfg.so.1", [scratch / f"{name}.o" for name in _CFG], result)


def stub_source(wanted: set[str], defined: set[str]) -> str:
    """C source that lets every wanted function which is not defined answer NVML_ERROR_NOT_SUPPORTED (3)."""
    lines = ["void sim_trace(const char *function);"]
    lines += [
        f'__attribute__((visibility("default"))) int {name}(void)\n'
        f'{{\n    sim_trace("{name}: not simulated");\n    return 3;\n}}'
        for name in sorted(wanted - defined)
    ]
    return "\n".join(lines) + "\n"


def _wanted(header: Path) -> set[str]:
    declared = re.findall(r"\bDECLDIR\s+(?:const\s+)?\w+\s*\*?\s+(nvml\w+)\s*\(", header.read_text(encoding="utf-8"))
    listed = (SOURCES / "names.txt").read_text(encoding="utf-8").splitlines()
    return {*declared, *(name for name in listed if name and not name.startswith("#"))}


def _defined(objects: Iterable[Path]) -> set[str]:
    symbols = _run(["nm", "--defined-only", "--extern-only", *map(str, objects)])
    return set(re.findall(r" T (nvml\w+)$", symbols, flags=re.MULTILINE))


def _compile(source: Path, target: Path, header: Path) -> None:
    _run(["gcc", *_FLAGS, "-isystem", str(header), "-I", str(SOURCES), "-c", str(source), "-o", str(target)])


def _link(name: str, objects: list[Path], result: Path) -> None:
    library = result / name
    _run(["gcc", "-shared", f"-Wl,-soname,{name}", "-Wl,-z,defs", "-o", str(library), *map(str, objects), "-lpthread"])
    needed = re.findall(r"GLIBC_(\d+)\.(\d+)", _run(["objdump", "-T", str(library)]))
    newest = max((int(major), int(minor)) for major, minor in needed)
    if newest > OLDEST_GLIBC:
        raise BuildError(
            f"{name} needs glibc {newest[0]}.{newest[1]}, test hosts have {OLDEST_GLIBC[0]}.{OLDEST_GLIBC[1]}"
        )


def _run(command: list[str]) -> str:
    if not shutil.which(command[0]):
        raise BuildError(f"{command[0]} is missing: run 'apt-get install gcc libc6-dev binutils'")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"'{' '.join(command)}' failed: {done.stderr.strip()}")
    return done.stdout
