# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Puts a package's contents together: file trees of vendor/programs, libraries compiled from them, Debian's programs.

In text files and file names @VERSION@ and its like (table.placeholders) are replaced. A C file NAME.so.X.c becomes the
shared library NAME.so.X; its first line says the soname: /* soname: libcudart.so.13 */.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from ..engine import PYTHON, STATE, SimulatorError, run
from ..gpu import debian
from . import docker
from .table import PROGRAMS, Package

# A change of these is a change of what they make.
SOURCES = (Path(__file__), Path(docker.__file__))
_PLACEHOLDER = re.compile(r"@(VERSION|UPSTREAM|BRANCH|NUMBER|DOTTED|MINOR|SUITE)@")
_SONAME = re.compile(r"/\* soname: (\S+) \*/")
_UNITS = "usr/lib/systemd/system"
# The oldest suite's build runs on every host; NVIDIA's own program doesn't mind which C library it meets.
_ORIGINALS = {"nvidia-persistenced": "bookworm", "nvidia-smi": "trixie"}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace @VERSION@ and its like."""
    return _PLACEHOLDER.sub(lambda match: values[match[1].lower()], text)


def read(path: Path) -> tuple[bytes, int]:
    """Contents and mode of a file of vendor/programs where it is installed.

    A program, in bin/ or sbin/, that names no interpreter is Python's.
    """
    content = path.read_bytes()
    if path.parent.name in ("bin", "sbin") and not content.startswith(b"#!"):
        content = PYTHON.encode() + content
    return content, 0o755 if content.startswith(b"#!") else 0o644


def stage(package: Package, tree: Path, programs: Path = PROGRAMS) -> None:
    """Write a package's contents below `tree`, DEBIAN/ with its maintainer scripts included."""
    values = package.placeholders
    tree.mkdir(parents=True)
    for entry in package.payload:
        kind, _colon, name = entry.partition(":")
        if kind == "build":
            _BUILDERS[name](tree, package)
        else:
            _copy(programs / entry, tree, values)
    for path, target in package.links.items():
        link = tree / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    missing = [path for path in package.files if not os.path.lexists(tree / path.lstrip("/"))]
    missing += [unit for unit in package.units if not (tree / _UNITS / unit).exists()]
    if missing:
        raise SimulatorError(f"{package.name} {package.version} should contain {missing[0]}; its payload doesn't")
    if package.enabled_units:
        _enable_units(tree, package.enabled_units)


def _copy(source: Path, tree: Path, values: Mapping[str, str]) -> None:
    for path in sorted(source.rglob("*")):
        target = tree / fill(str(path.relative_to(source)), values)
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if re.search(r"\.so(\.[^/]*)?\.c$", path.name):
            _compile(path, target.with_suffix(""), values)
            continue
        content, mode = read(path)
        if b"\0" not in content:
            content = fill(content.decode("utf-8"), values).encode("utf-8")
        target.write_bytes(content)
        target.chmod(mode)


def _compile(source: Path, library: Path, values: Mapping[str, str]) -> None:
    text = fill(source.read_text(encoding="utf-8"), values)
    soname = _SONAME.match(text)
    if soname is None:
        raise SimulatorError(f"{source}: write the soname in its first line, as /* soname: libcudart.so.13 */")
    filled = library.with_suffix(".c")
    filled.write_text(text, encoding="utf-8")
    # Without the C library: it runs on every suite.
    flags = ("-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{soname[1]}")
    run(["gcc", *flags, "-o", library, filled])
    filled.unlink()


def _original(package: str) -> Path:
    """Root of a Debian package, unpacked."""
    return debian.unpack(_ORIGINALS[package], [package], STATE / "gpu")


def _nvidia_smi(tree: Path, package: Package) -> None:
    del package
    _install(_original("nvidia-smi") / "usr/lib/nvidia/current/nvidia-smi", tree / "usr/bin/nvidia-smi")


def _nvidia_persistenced(tree: Path, package: Package) -> None:
    del package
    _install(_original("nvidia-persistenced") / "usr/bin/nvidia-persistenced", tree / "usr/bin/nvidia-persistenced")


def _install(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


_BUILDERS: dict[str, Callable[[Path, Package], None]] = {
    "docker": docker.fill,
    "nvidia-smi": _nvidia_smi,
    "nvidia-persistenced": _nvidia_persistenced,
}


def builders() -> list[str]:
    """Names that may stand behind `build:`."""
    return sorted(_BUILDERS)


_UNIT_SCRIPTS = {
    "postinst": """\
if [ "$1" = configure ]; then
    for unit in UNITS; do deb-systemd-helper enable "$unit" >/dev/null || true; done
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        deb-systemd-invoke "$([ -n "$2" ] && echo restart || echo start)" UNITS >/dev/null || true
    fi
fi
""",
    "prerm": """\
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop UNITS >/dev/null || true
fi
""",
    "postrm": """\
if [ "$1" = purge ]; then
    for unit in UNITS; do deb-systemd-helper purge "$unit" >/dev/null || true; done
fi
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
""",
}


def _enable_units(tree: Path, units: tuple[str, ...]) -> None:
    """What debhelper writes into the maintainer scripts of a package whose units start with it."""
    words = " ".join(f"'{unit}'" for unit in units)
    texts = {name: template.replace("UNITS", words) for name, template in _UNIT_SCRIPTS.items()}
    for name, text in texts.items():
        script = tree / "DEBIAN" / name
        script.parent.mkdir(exist_ok=True)
        present = script.read_text(encoding="utf-8") if script.exists() else "#!/bin/sh\nset -e\n"
        script.write_text(f"{present.rstrip()}\n{text}", encoding="utf-8")
        script.chmod(0o755)
