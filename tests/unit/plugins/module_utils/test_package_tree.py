# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._package_tree import (
    Difference,
    apply,
    compare,
    installed_packages,
    package_files,
    wanted_links,
)

STATUS = """\
installed nvidia-cuda-toolkit libcudart12:amd64
not-installed  old-package
config-files nvidia-cuda-toolkit libcublas12:amd64
installed glibc libc6:amd64
installed nvidia-cuda-toolkit nvidia-cuda-toolkit
"""
LAYOUT = {"/usr/bin": "bin", "/usr/lib/x": "lib64", "/usr/lib/x/nested": "nested"}


def test_only_what_is_installed_and_of_the_source_counts() -> None:
    assert installed_packages(lambda _command: (0, STATUS), ["nvidia-cuda-toolkit"]) == [
        "libcudart12:amd64",
        "nvidia-cuda-toolkit",
    ]


def test_files_of_several_packages_are_merged() -> None:
    output = "/.\n/usr\n/usr/bin/nvcc\n\n/.\n/usr\n/usr/lib/x/a.so\n"
    assert package_files(lambda _command: (0, output), ["a", "b"]) == ["/usr", "/usr/bin/nvcc", "/usr/lib/x/a.so"]


def test_no_package_has_no_files() -> None:
    assert package_files(lambda _command: pytest.fail("dpkg-query would list nothing and fail"), []) == []


def test_a_failing_dpkg_is_reported() -> None:
    with pytest.raises(OSError, match="can't list the files of a"):
        package_files(lambda _command: (1, ""), ["a"])


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        pytest.param("/usr/bin/nvcc", {"bin/nvcc": "/usr/bin/nvcc"}, id="a file"),
        pytest.param("/usr/lib/x/stubs/a.so", {"lib64/stubs/a.so": "/usr/lib/x/stubs/a.so"}, id="a file further down"),
        pytest.param("/usr/lib/x/nested/b", {"nested/b": "/usr/lib/x/nested/b"}, id="the longer folder decides"),
        pytest.param("/usr/lib/xy/c", {}, id="a folder whose name only begins alike"),
        pytest.param("/usr/share/doc/nvcc", {}, id="a file outside of the layout"),
    ],
)
def test_wanted_links(file: str, expected: dict[str, str]) -> None:
    assert wanted_links([file], LAYOUT) == expected


def test_folders_get_no_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    files = [str(tmp_path / "folder"), str(tmp_path / "link")]
    assert wanted_links(files, {str(tmp_path): "lib"}) == {"lib/link": str(tmp_path / "link")}


def test_tree_is_made_then_unchanged_then_corrected(tmp_path: Path) -> None:
    prefix = tmp_path / "cuda"
    wanted = {"bin/nvcc": "/usr/bin/nvcc", "include/crt/a.h": "/usr/include/crt/a.h"}
    first = compare(str(prefix), wanted)
    assert first == Difference(make=wanted, drop=[])
    apply(str(prefix), first)
    assert (prefix / "include/crt/a.h").readlink() == Path("/usr/include/crt/a.h")
    assert compare(str(prefix), wanted) == Difference(make={}, drop=[])

    (prefix / "bin/mine").write_text("kept", encoding="utf-8")
    newer = {"bin/nvcc": "/opt/nvcc"}
    apply(str(prefix), compare(str(prefix), newer))
    assert (prefix / "bin/nvcc").readlink() == Path("/opt/nvcc")
    assert (prefix / "bin/mine").read_text(encoding="utf-8") == "kept"
    assert not (prefix / "include").exists()
