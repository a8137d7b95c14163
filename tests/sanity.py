"""Runs `ansible-test sanity` with the Python of one of the environments: python -m tests.sanity [its options].

ansible-test wants the collection in a folder ansible_collections/trainyard/cluster and no link to it, so it gets a copy
of the checkout's files. Of its environment it hands on PATH and HOME alone, makes virtual environments below HOME, and
fetches the program that brings pip into them from a server of its makers. So it gets a home of its own, where all that
pip will ask for lies ready, downloaded by the pip of the checkout's environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import ansible.release
import ansible_test
import yaml
from ansible_test._internal.constants import CONTROLLER_PYTHON_VERSIONS, SUPPORTED_PYTHON_VERSIONS
from ansible_test._internal.python_requirements import get_venv_packages
from packaging.specifiers import SpecifierSet

CHECKOUT = Path(__file__).resolve().parents[1]
HOME = CHECKOUT / ".cache/ansible-test" / ansible.release.__version__
WHEELS = HOME / "wheels"
COPY = HOME / "ansible_collections/trainyard/cluster"
# In place of the program that ansible-test fetches; it runs in an environment without pip.
_GET_PIP = """\
import runpy
import sys

sys.path.insert(0, {wheel!r})
sys.argv[1:] = ["install", {wheel!r}]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def wanted_versions() -> list[str]:
    """Pythons that the collection is for and this ansible-test knows."""
    settings = yaml.safe_load((CHECKOUT / "tests/config.yml").read_text())
    requires = SpecifierSet(settings["modules"]["python_requires"])
    return [version for version in SUPPORTED_PYTHON_VERSIONS if version in requires]


def interpreters(versions: Sequence[str]) -> dict[str, Path]:
    """Interpreters of these versions, as far as the machine has them."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [Path(sys.executable).parent, *map(Path, os.get_exec_path()), *pyenv.glob("versions/*/bin")]
    found = {}
    for version in versions:
        for folder in folders:
            executable = _executable(folder / f"python{version}")
            if executable:
                found[version] = executable
                break
    return found


def _executable(python: Path) -> Path | None:
    """Where an interpreter really lies: a version manager's stub in PATH may only print an error."""
    if not python.exists():
        return None
    question = [str(python), "-c", "import sys, venv; print(sys.executable)"]
    answer = subprocess.run(question, check=False, capture_output=True, text=True)
    return None if answer.returncode else Path(answer.stdout.strip())


def download(versions: Sequence[str]) -> None:
    """Lay down pip itself and what ansible-test pins for its tests, for each of these Pythons."""
    files = sorted(Path(ansible_test.__file__).parent.glob("_data/requirements/sanity.*.txt"))
    requirements = [word for path in files for word in ("--requirement", str(path))]
    pips = {version: get_venv_packages(SimpleNamespace(version=version))["pip"] for version in versions}
    stamp = WHEELS / "stamp"
    contents = hashlib.sha256(repr((pips, [path.read_bytes() for path in files])).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == contents:
        return
    shutil.rmtree(WHEELS, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    for version, release in pips.items():
        options = ["--no-deps", "--only-binary=:all:", f"--python-version={version}", f"--dest={WHEELS}"]
        subprocess.run([*pip, "download", *options, f"pip=={release}", *requirements], check=True)
    for wheel in WHEELS.glob("pip-*.whl"):
        name = f"get_pip_{wheel.name.split('-')[1].replace('.', '_')}.py"
        _write(HOME / ".ansible/test/cache" / name, _GET_PIP.format(wheel=str(wheel)))
    _write(HOME / ".config/pip/pip.conf", f"[global]\nno-index = true\nfind-links = {WHEELS}\n")
    _write(stamp, contents)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy() -> None:
    """Copy the files that git has or would take, as they are now."""
    shutil.rmtree(COPY, ignore_errors=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if os.path.lexists(CHECKOUT / name):
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, COPY / name, follow_symlinks=False)
    # Else ansible-test asks the checkout's repository, which ignores .cache.
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", COPY], check=True)


def main() -> int:
    """Run the tests; the last line names Pythons that this machine lacks, if there are any."""
    versions = wanted_versions()
    found = interpreters(versions)
    copy()
    download([version for version in found if version in CONTROLLER_PYTHON_VERSIONS])
    targets = [word for version in found for word in ("--target-python", version)]
    path = [Path(sys.executable).parent, *(python.parent for python in found.values()), *os.get_exec_path()]
    answer = subprocess.run(
        ["ansible-test", "sanity", "--color", "no", *targets, *sys.argv[1:]],
        cwd=COPY,
        env={**os.environ, "HOME": str(HOME), "PATH": os.pathsep.join(map(str, path))},
        check=False,
    )
    missing = [version for version in versions if version not in found]
    if missing:
        print(f"not with Python {', '.join(missing)}, which this machine lacks")
    return answer.returncode


if __name__ == "__main__":
    sys.exit(main())
