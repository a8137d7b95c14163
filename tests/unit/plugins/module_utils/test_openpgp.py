"""Fingerprints without gpg, of keys made here: only their packets' frames and the first one's body matter."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.trainyard.cluster.plugins.filter.openpgp_key import openpgp_key
from ansible_collections.trainyard.cluster.plugins.module_utils._openpgp import armored, read_keys

DEBIAN = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def packet(tag: int, body: bytes, form: str = "old") -> bytes:
    if form == "new":
        assert len(body) < 8384
        return (
            bytes([0xC0 | tag])
            + (bytes([len(body)]) if len(body) < 192 else bytes([(len(body) - 192 >> 8) + 192, len(body) - 192 & 0xFF]))
            + body
        )
    if form == "new, five octets":
        return bytes([0xC0 | tag, 255]) + len(body).to_bytes(4, "big") + body
    size = 1 if len(body) < 256 else 2
    return bytes([0x80 | tag << 2 | size - 1]) + len(body).to_bytes(size, "big") + body


def key(name: str, form: str = "old", length: int = 269) -> bytes:
    """A primary key with a user id, a signature and a subkey."""
    body = b"\x04" + name.encode().ljust(length, b".")
    return packet(6, body, form) + packet(13, name.encode()) + packet(2, b"\x04sig") + packet(14, b"\x04sub" + body)


def fingerprint(name: str, length: int = 269) -> str:
    body = b"\x04" + name.encode().ljust(length, b".")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324 # by the standard


@pytest.mark.parametrize("form", ["old", "new", "new, five octets"])
@pytest.mark.parametrize("length", [100, 269, 525])
def test_fingerprint(form: str, length: int) -> None:
    assert [one.fingerprint for one in read_keys(key("a", form, length))] == [fingerprint("a", length)]


def test_of_several_keys_each_stands_alone() -> None:
    keys = read_keys(key("a") + key("b") + key("c"))
    assert [one.fingerprint for one in keys] == [fingerprint(name) for name in "abc"]
    assert [one.packets for one in keys] == [key(name) for name in "abc"]


def test_armor_there_and_back() -> None:
    (one,) = read_keys(key("a"))
    text = armored(one)
    assert text.startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n")
    assert text.endswith("BLOCK-----\n")
    assert read_keys(text.encode()) == [one]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text, id="as it is"),
        pytest.param(lambda text: text.replace("\n", "\r\n"), id="line ends of Windows"),
        pytest.param(
            lambda text: text.replace("BLOCK-----\n\n", "BLOCK-----\nVersion: GnuPG v2\nComment: x\n\n", 1),
            id="headers",
        ),
        pytest.param(lambda text: "pub rsa4096\n" + text, id="words before it"),
        pytest.param(
            lambda text: "\n".join(line for line in text.split("\n") if not line.startswith("=")), id="no checksum"
        ),
    ],
)
def test_armor_of_others(change) -> None:  # type: ignore[no-untyped-def]
    (one,) = read_keys(key("a"))
    assert read_keys(change(armored(one)).encode()) == [one]


def test_two_armored_blocks_in_a_file() -> None:
    text = "".join(armored(one) for name in "ab" for one in read_keys(key(name)))
    assert [one.fingerprint for one in read_keys(text.encode())] == [fingerprint("a"), fingerprint("b")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(b"<html>404", "it begins with '<html>404'", id="a web page"),
        pytest.param(key("a")[:-5], "it is cut off", id="cut off"),
        pytest.param(key("a")[:1], "it is cut off", id="cut off in a header"),
        pytest.param(packet(2, b"\x04sig"), "it holds no public key", id="a signature"),
        pytest.param(packet(5, b"\x04secret"), "private key", id="a private key"),
        pytest.param(b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "private key", id="a private key as text"),
        pytest.param(b"\xa3\x01\x02", "isn't an OpenPGP key file", id="compressed data"),
        pytest.param(
            b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!!\n-----END PGP PUBLIC KEY BLOCK-----\n",
            "damaged",
            id="damaged text",
        ),
    ],
)
def test_what_is_no_key(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_keys(data)


def test_a_key_of_another_version_has_no_fingerprint_to_pin() -> None:
    assert read_keys(packet(6, b"\x06x"))[0].fingerprint == "(a key of version 6)"


def test_filter_trusts_the_pinned_key_alone() -> None:
    content = base64.b64encode(key("a") + key("b")).decode()
    wanted = " ".join([fingerprint("b")[:20], fingerprint("b")[20:].lower()])
    answer = openpgp_key(content, wanted)
    assert answer["fingerprints"] == [fingerprint("a"), fingerprint("b")]
    assert [one.fingerprint for one in read_keys(str(answer["armored"]).encode())] == [fingerprint("b")]
    assert openpgp_key(content, "0" * 40)["armored"] == ""
    assert openpgp_key("", wanted) == {"armored": "", "fingerprints": [], "problem": "it is empty"}


@pytest.mark.skipif(not (DEBIAN.exists() and shutil.which("gpg")), reason="needs gpg and Debian's keyring")
def test_gpg_agrees() -> None:
    def primaries(*arguments: str, text: bytes | None = None) -> list[str]:
        command = ["gpg", "--show-keys", "--with-colons", *arguments]
        output = subprocess.run(command, input=text, capture_output=True, check=True).stdout.decode()
        found, kind = [], ""
        for row in [line.split(":") for line in output.split("\n")]:
            if row[0] == "fpr" and kind == "pub":
                found.append(row[9])
            if row[0] != "rvk":
                kind = row[0]
        return found

    keys = read_keys(DEBIAN.read_bytes())
    assert sorted(one.fingerprint for one in keys) == sorted(primaries(str(DEBIAN)))
    assert primaries(text=armored(keys[0]).encode()) == [keys[0].fingerprint]
