# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_nvlink import (
    GpuLinks,
    LinkState,
    parse_errors,
    parse_status,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.captures import fixture, read_capture

# For each GPU in the file: index, whether all links are inactive, number of links, speed of the last. Read by eye.
CAPTURES: dict[str, list[tuple[int, bool, int, float | None]]] = {
    "a100-pcie-nvlink-s-inactive.txt": [(0, True, 0, None), (1, True, 0, None)],
    "azhc-bad_nvlink_status.txt": [(6, True, 0, None)],
    "azhc-good_nvlink_status.txt": [(7, False, 12, 25.0)],
    "h100-80gb-hbm3-590.48.01.nvlink-s.txt": [(0, False, 18, 26.562)],
}


@pytest.mark.parametrize("name", CAPTURES)
def test_reads_every_capture(name: str) -> None:
    found = parse_status(read_capture("nvidia-smi-text", name))
    assert [
        (gpu.gpu, gpu.all_inactive, len(gpu.links), gpu.links[-1].speed if gpu.links else None) for gpu in found
    ] == CAPTURES[name]


def test_reads_error_counters_of_a_capture() -> None:
    counters = parse_errors(read_capture("nvidia-smi-text", "ml-eng-nvlink-e.txt"))
    assert sorted(counters) == [(0, 0), (0, 1), (0, 17)]
    assert counters[0, 17] == {"replay": 0, "recovery": 0, "crc": 0}


def test_tells_an_inactive_link() -> None:
    assert parse_status(fixture("gpu/h100-x2.nvlink-s.txt")) == [
        GpuLinks(0, False, [LinkState(0, 26.562), LinkState(1, 26.562)]),
        GpuLinks(1, False, [LinkState(0, 26.562), LinkState(1, None)]),
    ]


def test_reads_error_counters() -> None:
    assert parse_errors(fixture("gpu/h100-x2.nvlink-e.txt")) == {(0, 0): {"replay": 0, "recovery": 1, "crc": 7}}


def test_reads_error_counters_of_nvlink_5() -> None:
    counters = parse_errors(
        "GPU 1: NVIDIA B200 (UUID: GPU-1)\n"
        "\t Link 17: Malformed packet Errors: 8\n"
        "\t Link 17: Link recovery successful events: 2\n"
        "\t Link 17: Link recovery failed events: 1\n"
        "\t Link 17: Total link recovery events: 3\n"
        "\t Link 17: Effective Errors: 5\n"
        "\t Link 17: Effective BER: 15e-255\n"
        "\t Link 17: FEC Errors - 0: 7\n"
    )
    assert counters == {(1, 17): {"recovery": 3, "recovery_failed": 1, "effective": 5}}


def test_reads_a_speed_with_words_behind_it() -> None:
    (gpu,) = parse_status("GPU 0: NVIDIA B200 (UUID: GPU-0)\n\t Link 0: 53.125 GB/s (sleep)\n\t Link 1: 50 GB/sec\n")
    assert gpu.links == [LinkState(0, 53.125)]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 300), st.integers(0, 100), st.text(max_size=30))
def test_passes_over_what_it_does_not_know(position: int, length: int, junk: str) -> None:
    for name in ("gpu/h100-x2.nvlink-s.txt", "gpu/h100-x2.nvlink-e.txt"):
        words = fixture(name)
        spoilt = words[:position] + junk + words[position + length :]
        assert len(parse_status(spoilt)) <= 3
        assert len(parse_errors(spoilt)) <= 3
