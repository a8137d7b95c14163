# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import random
import re
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.trainyard.cluster.plugins.filter import hostlist_expand, hostlist_fold
from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm_hostlist
from ansible_collections.trainyard.cluster.plugins.plugin_utils import _hostlist
from hypothesis import given
from hypothesis import strategies as st

fold = hostlist_fold.hostlist_fold
expand = hostlist_expand.hostlist_expand


@pytest.mark.parametrize(
    ("hosts", "folded"),
    [
        (["gpu02", "gpu01", "login", "gpu03"], "gpu[01-03],login"),
        (["gpu10", "gpu9", "gpu8", "gpu9"], "gpu[8-10]"),
        (["gpu08", "gpu09", "gpu10"], "gpu[08-10]"),
        (["gpu1", "gpu01", "gpu2"], "gpu[1-2,01]"),
        ("gpu[1-3],gpu5", "gpu[1-3,5]"),
        (["gpu[1-3]", "gpu4"], "gpu[1-4]"),
        ("rack[0-1]node[0-1]", "rack0node[0-1],rack1node[0-1]"),
        (["rack10n1", "rack9n1"], "rack9n1,rack10n1"),
        # Slurm 22.05 can't read a bracket in the middle of a name.
        (["a1b", "a2b"], "a1b,a2b"),
        (["serial1234567890123456789"], "serial1234567890123456789"),
        (["n1"], "n1"),
        ([], ""),
        ("", ""),
        ((name for name in ("n1", "n2")), "n[1-2]"),
    ],
)
def test_folds(hosts: Any, folded: str) -> None:
    assert fold(hosts) == folded


def test_expands_in_the_list_s_order_with_doubles() -> None:
    assert expand("gpu[3,1],login,gpu[1-2]") == ["gpu3", "gpu1", "login", "gpu1", "gpu2"]
    assert expand(["n[1-2]", "m1"]) == ["n1", "n2", "m1"]
    assert expand([]) == []


@pytest.mark.parametrize(
    "hosts",
    [
        "@group",
        "a!b",
        "a&b",
        "a^b",
        "n[1-10/2]",
        "a*",
        "@*",
        "n[1-",
        "n1-3]",
        "(null)",
        None,
        7,
        {"a": 1},
        ["a", 1],
        b"a",
    ],
)
@pytest.mark.parametrize("function", [fold, expand])
def test_refuses_what_is_no_host_list(function: Any, hosts: Any) -> None:
    with pytest.raises(AnsibleFilterError, match=r"is no list of hosts|in it: write numbers and ranges"):
        function(hosts)


@pytest.mark.parametrize("function", [fold, expand])
def test_says_that_clustershell_is_missing(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hostlist, "_MISSING", ImportError("No module named 'ClusterShell'"))
    with pytest.raises(AnsibleFilterError, match=f"{function.__name__} needs .* pip install ClusterShell"):
        function(["n1"])


@pytest.mark.parametrize("hosts", ["gpu[01-100]", "a[8-011]", "a[001-2]", "a[98-101]b[3-4]", "n[3,1,1]", "[0-1]"])
def test_counts_as_the_modules_do(hosts: str) -> None:
    assert expand(hosts) == _slurm_hostlist.expand(hosts)


@given(st.integers(0, 10**17), st.integers(0, 300), st.integers(1, 18))
def test_counts_any_range_as_the_modules_do(first: int, more: int, width: int) -> None:
    hosts = f"n[{first:0{width}d}-{first + more}]"
    assert expand(hosts) == _slurm_hostlist.expand(hosts)


NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,6}[0-9]{0,3}", fullmatch=True)


def natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), part) if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


@given(st.lists(NAMES, max_size=40))
def test_expanding_what_was_folded_gives_each_name_once(names: list[str]) -> None:
    again = expand(fold(names))
    assert sorted(again) == sorted(set(names))
    assert fold(again) == fold(names)


@given(st.sampled_from(["gpu", "rack1-n", "a.b-"]), st.sets(st.integers(0, 9999)), st.integers(1, 6), st.randoms())
def test_names_alike_come_sorted(stem: str, numbers: set[int], width: int, order: random.Random) -> None:
    names = [f"{stem}{number:0{width}}" for number in sorted(numbers)]
    shuffled = [*names, *names]
    order.shuffle(shuffled)
    assert expand(fold(shuffled)) == sorted(names, key=natural)
    assert fold(shuffled).count("[") <= 1


def test_a_large_cluster_is_one_bracket() -> None:
    assert fold([f"gpu{number:05}" for number in range(10000)]) == "gpu[00000-09999]"
