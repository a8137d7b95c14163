# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small table, built: what apt would make of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator.engine import SimulatorError
from tests.simulator.vendor import build, payloads, table
from tests.simulator.vendor.keys import Keys, certificate

TABLE = """
read: 2026-11-30
repositories:
  nvidia:
    source: https://example.com/install
    flat: true
    path: nvidia/{suite}/x86_64
    suites: [debian12, debian13]
    key_file: key.pub
  docker:
    source: https://example.com/docker
    path: docker/linux/{distribution}
    suites: [debian/bookworm]
    component: stable
    key_file: gpg
nvidia:
  - package: tool-{number}
    source: https://example.com/tool
    versions: {13.0.88-1: [debian12]}
    depends: ["libtool1 (>= {upstream})"]
    payload: [tool]
    enabled_units: [tool.service]
    files: ["/usr/lib/libtool.so.{upstream}"]
    links: {"/usr/lib/libtool.so.{branch}": "libtool.so.{upstream}"}
docker:
  - package: docker-ce
    source: https://example.com/docker
    versions: {"5:29.0.0-1~debian.12~bookworm": all}
    payload: []
images: []
"""
LIBRARY = """/* soname: libtool.so.@BRANCH@ */
int version(void)
{
    return @BRANCH@ * 1000 + @MINOR@ * 10;
}
"""


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("v")  # gpg's agent takes no long paths


@pytest.fixture(scope="module")
def keys(place: Path) -> Iterator[Keys]:
    if not (shutil.which("gpg") and shutil.which("gpgv") and shutil.which("dpkg-deb")):
        pytest.skip("gpg, gpgv and dpkg-deb are the simulator's; `make setup` installs them")
    made = Keys(place / "k")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def web(place: Path, keys: Keys) -> Path:
    programs = place / "programs"
    texts = {
        "tool/usr/lib/libtool.so.@UPSTREAM@.c": LIBRARY,
        "tool/usr/lib/systemd/system/tool.service": "[Service]\nExecStart=/bin/true\n",
        "tool/usr/share/tool/@SUITE@": "@VERSION@ @NUMBER@ @DOTTED@ mail@example.com\n",
        "tool/usr/bin/tool": "print('@UPSTREAM@')\n",
        "tool/DEBIAN/postinst": "#!/bin/sh\nset -e\necho @UPSTREAM@\n",
    }
    for name, text in texts.items():
        path = programs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    path = place / "table.yml"
    path.write_text(TABLE)
    build.build(table.load(path, programs), keys, place / "web", place / "cache", programs)
    return place / "web"


def verified(release: Path, key: Path, scratch: Path) -> bool:
    """Whether apt's own check would take the signature."""
    keyring = scratch / "keyring.gpg"
    keyring.unlink(missing_ok=True)
    run("gpg", "--homedir", scratch, "--batch", "--quiet", "--output", keyring, "--dearmor", key)
    command = ["gpgv", "--quiet", "--keyring", keyring, release]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


FLAT = ("nvidia/debian12/x86_64", "nvidia/debian12/x86_64/key.pub")
SUITE = ("docker/linux/debian/dists/bookworm", "docker/linux/debian/gpg")


@pytest.mark.parametrize(("folder", "key"), [FLAT, SUITE, ("nvidia/debian13/x86_64", "nvidia/debian13/x86_64/key.pub")])
def test_a_repository_is_signed_with_the_key_that_lies_beside_it(
    web: Path, tmp_path: Path, folder: str, key: str
) -> None:
    assert verified(web / folder / "InRelease", web / key, tmp_path)
    assert verified(web / "broken/empty" / folder / "InRelease", web / "broken/empty" / key, tmp_path)
    assert not verified(web / "broken/wrong-key" / folder / "InRelease", web / "broken/wrong-key" / key, tmp_path)
    assert (web / key).read_text() == (web / "broken/wrong-key" / key).read_text()


def test_the_index_names_packages_where_they_are(web: Path) -> None:
    index = (web / FLAT[0] / "Packages").read_text()
    assert "Package: tool-13-0\n" in index
    assert "Depends: libtool1 (>= 13.0.88)\n" in index
    assert "Filename: tool-13-0_13.0.88-1_amd64.deb\n" in index
    index = (web / SUITE[0] / "stable/binary-amd64/Packages").read_text()
    name = "dists/bookworm/pool/stable/amd64/docker-ce_29.0.0-1~debian.12~bookworm_amd64.deb"
    assert f"Filename: {name}\n" in index
    assert (web / "docker/linux/debian" / name).exists()


def test_what_a_suite_lacks_its_index_lacks(web: Path) -> None:
    assert (web / "nvidia/debian13/x86_64/Packages").read_text() == ""
    assert (web / "broken/empty" / FLAT[0] / "Packages").read_text() == ""


def test_sums_are_those_of_the_files(web: Path) -> None:
    folder = web / FLAT[0]
    release = (folder / "Release").read_text()
    for name in ("Packages", "Packages.gz"):
        assert f"{run('sha256sum', folder / name).split()[0]} {(folder / name).stat().st_size} {name}\n" in release
    archive = folder / "tool-13-0_13.0.88-1_amd64.deb"
    assert f"SHA256: {run('sha256sum', archive).split()[0]}\n" in (folder / "Packages").read_text()


def test_a_package_says_what_it_is_and_has_its_files(web: Path, tmp_path: Path) -> None:
    archive = web / FLAT[0] / "tool-13-0_13.0.88-1_amd64.deb"
    assert "est stand-in" in run("dpkg-deb", "--field", archive, "Description")
    run("dpkg-deb", "--raw-extract", archive, tmp_path / "tree")
    tree = tmp_path / "tree"
    assert (tree / "usr/share/tool/debian12").read_text() == "13.0.88-1 13-0 13.0 mail@example.com\n"
    assert (tree / "usr/lib/libtool.so.13").resolve().name == "libtool.so.13.0.88"
    assert "Library soname: [libtool.so.13]" in run("readelf", "--dynamic", tree / "usr/lib/libtool.so.13")
    assert run(tree / "usr/bin/tool") == "13.0.88\n"
    script = (tree / "DEBIAN/postinst").read_text()
    assert script.startswith("#!/bin/sh\nset -e\necho 13.0.88\n")
    assert "deb-systemd-helper enable" in script
    for name in ("postinst", "prerm", "postrm"):
        run("sh", "-n", tree / "DEBIAN" / name)


def test_a_package_without_what_its_row_promises_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.yml"
    path.write_text(TABLE)
    (tmp_path / "tool").mkdir()
    package = table.load(path, tmp_path).packages[0]
    with pytest.raises(SimulatorError, match=r"tool-13-0 13.0.88-1 should contain /usr/lib/libtool.so.13.0.88"):
        payloads.stage(package, tmp_path / "tree", tmp_path)


def test_the_registrys_certificate_is_of_the_issuer_that_clients_get(tmp_path: Path) -> None:
    authority = certificate(tmp_path, "mirror")
    (tmp_path / "trusted.pem").write_text(authority)
    verify = (
        "openssl",
        "verify",
        "-CAfile",
        tmp_path / "trusted.pem",
        "-verify_hostname",
        "mirror",
        tmp_path / "registry.pem",
    )
    assert run(*verify).strip().endswith(": OK")
    assert certificate(tmp_path, "mirror") == authority
