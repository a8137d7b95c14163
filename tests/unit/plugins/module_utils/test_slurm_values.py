# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import (
    Gres,
    SlurmError,
    State,
    integer,
    mebibytes,
    minutes,
    parse_gres,
    parse_state,
    text,
    tres_gpus,
)


@pytest.mark.parametrize(
    ("raw", "base", "flags"),
    [
        ("IDLE", "IDLE", []),
        ("IDLE+DRAIN", "IDLE", ["DRAIN"]),
        ("DOWN*+DRAIN", "DOWN", ["DRAIN", "NOT_RESPONDING"]),
        ("MIXED+CLOUD+POWERING_DOWN", "MIXED", ["CLOUD", "POWERING_DOWN"]),
        ("down*", "DOWN", ["NOT_RESPONDING"]),
        ("idle~", "IDLE", ["POWERED_DOWN"]),
        ("mix-", "MIXED", ["PLANNED"]),
        ("alloc", "ALLOCATED", []),
        ("drained*", None, ["DRAIN", "NOT_RESPONDING"]),
        ("drng", None, ["DRAIN"]),
        ("inval", None, ["INVALID_REG"]),
        ("fail*", None, ["FAIL", "NOT_RESPONDING"]),
        ("maint", None, ["MAINTENANCE"]),
        (["IDLE", "DYNAMIC_NORM"], "IDLE", ["DYNAMIC_NORM"]),
    ],
)
def test_reads_states_of_every_command(raw: str | list[str], base: str | None, flags: list[str]) -> None:
    assert parse_state(raw) == State(base, flags)


@pytest.mark.parametrize("raw", ["", "+", "12", "<html>"])
def test_refuses_what_is_no_state(raw: str) -> None:
    with pytest.raises(SlurmError):
        parse_state(raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("gpu:h100:8", [Gres("gpu", "h100", 8, None)]),
        ("gpu:8", [Gres("gpu", None, 8, None)]),
        ("gpu", [Gres("gpu", None, 1, None)]),
        ("gpu:ampere:8(IDX:0-5,7)", [Gres("gpu", "ampere", 8, [0, 1, 2, 3, 4, 5, 7])]),
        ("gpu(IDX:0-1)", [Gres("gpu", None, 2, [0, 1])]),
        ("gpu:h100(IDX:3)", [Gres("gpu", "h100", 1, [3])]),
        ("gpu:(null):0(IDX:N/A)", [Gres("gpu", None, 0, None)]),
        ("gpu:nvidia_h100_80gb_hbm3:1(S:0)", [Gres("gpu", "nvidia_h100_80gb_hbm3", 1, None)]),
        ("gpu:a100:2(S:0-1),shard:64(S:0-1)", [Gres("gpu", "a100", 2, None), Gres("shard", None, 64, None)]),
        ("gpu:3g.40gb:8,gpu:1g.10gb:16", [Gres("gpu", "3g.40gb", 8, None), Gres("gpu", "1g.10gb", 16, None)]),
        ("lustre:no_consume:4K", [Gres("lustre", None, 4096, None)]),
        ("gres:gpu:2", [Gres("gpu", None, 2, None)]),
        ("(null)", []),
        ("N/A", []),
    ],
)
def test_reads_generic_resources(raw: str, expected: list[Gres]) -> None:
    assert parse_gres(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("7-00:00:00", 10080),
        ("1-12", 2160),
        ("12:00:00", 720),
        ("30:00", 30),
        ("90", 90),
        ("UNLIMITED", None),
        ("NONE", None),
        ("", None),
    ],
)
def test_reads_time_limits(raw: str, expected: int | None) -> None:
    assert minutes(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"), [("187000M", 187000), ("312.50G", 320000), ("1T", 1048576), ("126000+", 126000), ("x", None)]
)
def test_reads_sizes(raw: str, expected: int | None) -> None:
    assert mebibytes(raw) == expected


@pytest.mark.parametrize("raw", ["(null)", "N/A", "n/s", "None", "Unknown", "", "NOT_SET"])
def test_a_missing_value_is_none(raw: str) -> None:
    assert text(raw) is None
    assert integer(raw) is None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("cpu=16,gres/gpu=8,gres/gpu:h100=8", 8),
        ("cpu=16,gres/gpu:h100=4,gres/gpu:a100=2", 6),
        ("cpu=16", None),
        ("", None),
        ("(null)", None),
    ],
)
def test_counts_gpus_of_a_share_once(raw: str, expected: int | None) -> None:
    assert tres_gpus(raw) == expected
