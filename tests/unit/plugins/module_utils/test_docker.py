"""What daemon.json becomes, and that nothing of the machine's own is lost on the way there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._docker import daemon_configuration
from hypothesis import given
from hypothesis import strategies as st

DEFAULTS = {"live-restore": True, "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
SETTINGS = {"features": {"cdi": True}}


def merge(
    current: Any, record: str = "", defaults: dict[str, Any] | None = None, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Merge with DEFAULTS and SETTINGS, if nothing else is given."""
    text = current if isinstance(current, str) else json.dumps(current)
    result = daemon_configuration(
        text, record, DEFAULTS if defaults is None else defaults, SETTINGS if settings is None else settings
    )
    assert result["fault"] == ""
    assert json.loads(result["text"]) == result["configuration"]
    return result


def test_a_machine_without_the_file_gets_ours() -> None:
    result = merge("")
    assert result["configuration"] == {**DEFAULTS, **SETTINGS}
    assert result["changed"] == ["features", "live-restore", "runtimes"]
    assert result["restart"] == ["features"]
    assert result["unsafe"] == []
    assert result["text"].endswith("}\n")


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        ({"bip": "198.18.1.1/24"}, {"bip": "198.18.1.1/24", **DEFAULTS, **SETTINGS}),
        ({"live-restore": False}, {**DEFAULTS, **SETTINGS, "live-restore": False}),
        ({"features": {"cdi": False, "buildkit": True}}, {**DEFAULTS, "features": {"cdi": True, "buildkit": True}}),
        (
            {"runtimes": {"crun": {"path": "/usr/bin/crun"}}},
            {**SETTINGS, **DEFAULTS, "runtimes": {"crun": {"path": "/usr/bin/crun"}, **DEFAULTS["runtimes"]}},
        ),
        (
            {"runtimes": {"nvidia": {"path": "/opt/nvidia"}}},
            {**SETTINGS, **DEFAULTS, "runtimes": {"nvidia": {"path": "/opt/nvidia", "args": []}}},
        ),
    ],
    ids=["another key", "a default", "a setting", "beside one", "one's own"],
)
def test_the_machine_s_own_keys_stay(current: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merge(current)["configuration"] == expected


def test_a_second_merge_changes_nothing_not_even_the_layout() -> None:
    first = merge({"bip": "198.18.1.1/24"})
    again = merge(first["text"], first["record"])
    assert (again["text"], again["record"]) == (first["text"], first["record"])
    assert again["changed"] == []
    own_layout = '{"live-restore":true,\n\n "features": {"cdi": true}}'
    assert merge(own_layout, defaults={})["text"] == own_layout


def test_an_option_that_is_gone_is_taken_back() -> None:
    first = merge({"debug": False}, settings={**SETTINGS, "debug": True, "log-opts": {"max-size": "10m"}})
    assert first["configuration"]["debug"] is True
    second = merge(first["text"], first["record"])
    assert second["configuration"] == {"debug": False, **DEFAULTS, **SETTINGS}
    assert second["changed"] == ["debug", "log-opts"]


def test_what_a_person_changed_since_is_theirs() -> None:
    first = merge({})
    by_hand = {**first["configuration"], "live-restore": False, "data-root": "/data"}
    second = merge(by_hand, first["record"])
    assert second["configuration"] == by_hand
    third = merge(second["text"], second["record"], defaults={}, settings={})
    assert third["configuration"] == {"live-restore": False, "data-root": "/data"}


def test_what_a_person_had_before_us_outlives_us() -> None:
    first = merge({"live-restore": True, "features": {"cdi": True}})
    second = merge(first["text"], first["record"], defaults={}, settings={})
    assert second["configuration"] == {"live-restore": True, "features": {"cdi": True}}


@pytest.mark.parametrize(
    ("change", "restart", "unsafe"),
    [
        ({"debug": True}, [], []),
        ({"log-driver": "journald"}, ["log-driver"], []),
        ({"data-root": "/data"}, ["data-root"], ["data-root"]),
        ({"bip": "198.18.1.1/24", "labels": ["a=b"]}, ["bip"], ["bip"]),
    ],
)
def test_what_the_daemon_must_do(change: dict[str, Any], restart: list[str], unsafe: list[str]) -> None:
    first = merge({})
    result = merge(first["text"], first["record"], settings={**SETTINGS, **change})
    assert result["changed"] == sorted(change)
    assert (result["restart"], result["unsafe"]) == (restart, unsafe)


def test_a_key_that_goes_away_needs_a_start() -> None:
    # The daemon's reload leaves a value alone that the file no longer names.
    first = merge({}, settings={**SETTINGS, "debug": True})
    assert merge(first["text"], first["record"])["restart"] == ["debug"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"debug": true', "it isn't JSON (Expecting ',' delimiter: line 1 column 15"),
        ("debug = true", "it isn't JSON"),
        ("[]", "it holds [] instead of an object"),
        ('"debug"', 'it holds "debug" instead of an object'),
    ],
)
def test_a_file_that_can_t_be_read_is_said_to_be(text: str, says: str) -> None:
    result = daemon_configuration(text, "", DEFAULTS, SETTINGS)
    assert result["fault"].startswith(says)
    assert set(result) == {"fault"}


KEYS = st.sampled_from(["debug", "live-restore", "features", "log-opts", "dns", "cdi", "nvidia"])
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        st.one_of(st.booleans(), st.integers(0, 3), st.lists(st.text("ab", max_size=1), max_size=2)),
        lambda inner: st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=4,
    ),
    max_size=4,
)


@given(TREES, TREES, TREES)
def test_merging_twice_is_merging_once_and_undoing_it_brings_the_file_back(
    own: dict[str, Any], defaults: dict[str, Any], settings: dict[str, Any]
) -> None:
    first = merge(own, defaults=defaults, settings=settings)
    again = merge(first["text"], first["record"], defaults, settings)
    assert (again["changed"], again["record"]) == ([], first["record"])
    undone = merge(first["text"], first["record"], defaults={}, settings={})
    assert undone["configuration"] == own
