# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""A prefix of its own, made of links, for packages whose files lie scattered over /usr.

Programs that look for a toolkit under one directory (CUDA_HOME) then find it, and a search path that names the prefix
holds nothing but the toolkit, where /usr/lib itself would push the system's libraries before those of a job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

# Runs a command and returns its status and standard output.
RunCommand = Callable[[list[str]], tuple[int, str]]


@dataclass(frozen=True)
class Difference:
    """What has to be done to a tree: links to make or correct, and links to drop, by their names below the prefix."""

    make: dict[str, str]
    drop: list[str]


def installed_packages(run: RunCommand, sources: Iterable[str]) -> list[str]:
    """Return the installed packages that were built from one of the source packages."""
    wanted = set(sources)
    _status, output = run(
        ["dpkg-query", "--show", "--showformat", r"${db:Status-Status} ${source:Package} ${binary:Package}\n"]
    )
    rows = [line.split() for line in output.splitlines()]
    return sorted(row[2] for row in rows if len(row) == 3 and row[0] == "installed" and row[1] in wanted)


def package_files(run: RunCommand, packages: list[str]) -> list[str]:
    """Return the paths that the packages hold, folders included. Raises OSError when dpkg can't tell."""
    if not packages:
        return []
    status, output = run(["dpkg-query", "--listfiles", *packages])
    if status != 0:
        raise OSError(f"dpkg-query can't list the files of {', '.join(packages)}")
    return sorted({line for line in output.splitlines() if line.startswith("/") and line != "/."})


def wanted_links(files: Iterable[str], layout: Mapping[str, str]) -> dict[str, str]:
    """Return the links of the tree, name below the prefix to target.

    layout: folder of the packages to folder of the tree. Of two that hold a file, the longer one decides.
    """
    links = {}
    for file in files:
        folders = [folder for folder in layout if file.startswith(folder + "/")]
        if folders and not (os.path.isdir(file) and not os.path.islink(file)):
            folder = max(folders, key=len)
            links[os.path.join(layout[folder], os.path.relpath(file, folder))] = file
    return links


def compare(prefix: str, wanted: Mapping[str, str]) -> Difference:
    """Return what separates the tree from the wanted links.

    Only links are dropped: files that somebody put into the tree stay.
    """
    found = {}
    for folder, folders, files in os.walk(prefix):
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                found[os.path.relpath(path, prefix)] = os.readlink(path)
    return Difference(
        make={name: target for name, target in wanted.items() if found.get(name) != target},
        drop=sorted(name for name in found if name not in wanted),
    )


def apply(prefix: str, difference: Difference) -> None:
    """Carry the difference out: each link is replaced in one step, folders left empty go."""
    for name in difference.drop:
        path = os.path.join(prefix, name)
        os.unlink(path)
        _remove_empty(os.path.dirname(path), prefix)
    for name, target in difference.make.items():
        path = os.path.join(prefix, name)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        fresh = path + ".new"
        if os.path.lexists(fresh):
            os.unlink(fresh)
        os.symlink(target, fresh)
        os.replace(fresh, path)


def _remove_empty(folder: str, prefix: str) -> None:
    while folder != prefix and not os.listdir(folder):
        os.rmdir(folder)
        folder = os.path.dirname(folder)
