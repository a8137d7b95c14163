# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Fingerprints of the keys in an OpenPGP key file, and the one that is pinned, alone.

A machine that gets its first package repository has no gpg. A fingerprint needs none: it is a hash over one packet.
Formats: RFC 9580, sections 4.2 (packet headers), 5.5.4 (fingerprints) and 6 (ASCII armor).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

_PUBLIC_KEY, _SECRET_KEY = 6, 5
_ARMOR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\r?\n(?P<body>.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)


@dataclass(frozen=True)
class Key:
    """One key of a file: its fingerprint, 40 hexadecimal digits in capitals, and all of its packets, subkeys too."""

    fingerprint: str
    packets: bytes


def read_keys(data: bytes) -> list[Key]:
    """Return the keys of a key file, armored or binary. Raises ValueError, which says what the file is instead."""
    if b"-----BEGIN PGP PRIVATE KEY" in data:
        raise ValueError("it holds a private key, which belongs to whoever signs the packages and nowhere else")
    blocks = [_unarmored(match["body"]) for match in _ARMOR.finditer(data)]
    if not blocks:
        if not data[:1] >= b"\x80":  # the first bit of every packet is set
            raise ValueError("it begins with " + repr(data[:40].decode("utf-8", "replace")) if data else "it is empty")
        blocks = [data]
    keys: list[Key] = []
    for block in blocks:
        keys += _keys_of(block)
    if not keys:
        raise ValueError("it holds no public key")
    return keys


def armored(key: Key) -> str:
    """Write one key as text. The checksum at its end is for gpg 2.2, which warns where it is missing."""
    lines = re.findall(".{1,64}", base64.b64encode(key.packets).decode("ascii"))
    checksum = base64.b64encode(_crc24(key.packets).to_bytes(3, "big")).decode("ascii")
    begin, end = (f"-----{word} PGP PUBLIC KEY BLOCK-----" for word in ("BEGIN", "END"))
    return "\n".join([begin, "", *lines, f"={checksum}", end, ""])


def _keys_of(block: bytes) -> list[Key]:
    keys: list[Key] = []
    position = 0
    start: int | None = None
    fingerprint = ""
    while position < len(block):
        tag, body_at, length = _header(block, position)
        following = body_at + length
        if following > len(block):
            raise ValueError("it is cut off")
        if tag == _SECRET_KEY:
            raise ValueError("it holds a private key, which belongs to whoever signs the packages and nowhere else")
        if tag == _PUBLIC_KEY:
            if start is not None:
                keys.append(Key(fingerprint, block[start:position]))
            start, fingerprint = position, _fingerprint(block[body_at:following])
        position = following
    if start is not None:
        keys.append(Key(fingerprint, block[start:]))
    return keys


def _header(data: bytes, position: int) -> tuple[int, int, int]:
    """Return a packet's tag, where its body begins, and the body's length."""
    try:
        first = data[position]
        if not first & 0x80:
            raise ValueError("it isn't an OpenPGP key file")
        if first & 0x40:
            tag, one = first & 0x3F, data[position + 1]
            if one < 192:
                return tag, position + 2, one
            if one < 224:
                return tag, position + 3, (one - 192 << 8) + data[position + 2] + 192
            if one == 255:
                return tag, position + 6, int.from_bytes(data[position + 2 : position + 6], "big")
            raise ValueError("it isn't an OpenPGP key file")  # parts are for messages
        tag, size = first >> 2 & 0x0F, 1 << (first & 0x03)
        if size == 8:
            raise ValueError("it isn't an OpenPGP key file")  # "until the end" is for messages
        return tag, position + 1 + size, int.from_bytes(data[position + 1 : position + 1 + size], "big")
    except IndexError:
        raise ValueError("it is cut off") from None


def _fingerprint(body: bytes) -> str:
    if body[:1] == b"\x04":
        digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False)
        return digest.hexdigest().upper()
    # Of version 6 apt on the supported distributions knows nothing yet; version 3 was given up long ago.
    return f"(a key of version {body[0]})" if body else "(an empty key)"


def _unarmored(body: bytes) -> bytes:
    _headers, blank, text = body.replace(b"\r\n", b"\n").partition(b"\n\n")
    lines = (text if blank and b":" in _headers else body).split(b"\n")
    encoded = b"".join(line.strip() for line in lines if not re.match(rb"\s*=[A-Za-z0-9+/]{4}\s*$", line))
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError("its text is damaged") from None


def _crc24(data: bytes) -> int:
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _bit in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    return crc & 0xFFFFFF
