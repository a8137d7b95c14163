# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Outputs collected from real machines, which lie beside the checkout and are no part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "captures"
FIXTURES = Path(__file__).resolve().parent / "fixtures"


def read_capture(kind: str, name: str) -> str:
    """Return a capture; skip the test where the captures aren't at hand."""
    if not FOLDER.is_dir():
        pytest.skip(f"the captures are not at hand ({FOLDER.name} beside the checkout)")
    return (FOLDER / kind / name).read_text(encoding="utf-8", errors="replace")


def all_captures(kind: str) -> list[tuple[str, str]]:
    """Return name and text of every capture of a kind; skip the test where the captures aren't at hand."""
    if not FOLDER.is_dir():
        pytest.skip(f"the captures are not at hand ({FOLDER.name} beside the checkout)")
    files = sorted((FOLDER / kind).iterdir())
    return [(file.name, file.read_text(encoding="utf-8", errors="replace")) for file in files]


def fixture(name: str) -> str:
    """Return one of our own fixtures."""
    return (FIXTURES / name).read_text(encoding="utf-8")
