# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from contextlib import suppress

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_hostlist import MAX_HOSTS, HostlistError, expand
from hypothesis import given
from hypothesis import strategies as st


# What `scontrol show hostnames` of Slurm 24.11 printed for each.
@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("gpu[1-3,20]", "gpu1 gpu2 gpu3 gpu20"),
        ("gpu[08-11]", "gpu08 gpu09 gpu10 gpu11"),
        ("a[8-011]", "a8 a9 a10 a11"),
        ("a[001-2]", "a001 a002"),
        ("rack[0-1]node[0-1]", "rack0node0 rack0node1 rack1node0 rack1node1"),
        ("a[1-2][3-4]", "a13 a14 a23 a24"),
        ("a[1-2]b", "a1b a2b"),
        ("a[1-2]b[3-4]c", "a1b3c a1b4c a2b3c a2b4c"),
        ("gpu[3,1,1]", "gpu3 gpu1 gpu1"),
        ("a,a", "a a"),
        ("a b", "a b"),
        ("a, b", "a b"),
        ("[1-3]", "1 2 3"),
        ("worker-[1,0],login.cluster", "worker-1 worker-0 login.cluster"),
        ("", ""),
    ],
)
def test_expands_as_slurm_does(hostlist: str, names: str) -> None:
    assert expand(hostlist) == names.split()


@pytest.mark.parametrize(
    ("hostlist", "words"),
    [
        ("x[3-1]", "counts down from 3 to 1"),
        ("x[]", r"has '\[\]' in it"),
        ("n[1-10/2]", r"has '\[1-10/2\]' in it"),
        ("a[1, 2]", r"has '\[1, 2\]' in it"),
        ("n[1-3", "is no list of hosts"),
        ("n1-3]", "is no list of hosts"),
        ("a[1[2]]", "is no list of hosts"),
        ("a,", "is no list of hosts"),
        (",a", "is no list of hosts"),
        ("a,,b", "is no list of hosts"),
        ("(null)", "is no list of hosts"),
        ("@group", "is no list of hosts"),
        ("a[1-4]!a2", "is no list of hosts"),
        ("a*", "is no list of hosts"),
        ("a[1-70000]", f"more than {MAX_HOSTS} hosts"),
        ("a[1-300]b[1-300]", f"more than {MAX_HOSTS} hosts"),
        ("a[1-40000],b[1-40000]", f"more than {MAX_HOSTS} hosts"),
        ("a[1-999999999999999999]", f"more than {MAX_HOSTS} hosts"),
        ("a[" + "9" * 5000 + "]", "in it"),
    ],
)
def test_says_what_is_no_list(hostlist: str, words: str) -> None:
    with pytest.raises(HostlistError, match=words):
        expand(hostlist)


@given(st.one_of(st.text(), st.text(alphabet="ab01[],- @!/")))
def test_whatever_comes_it_expands_or_is_refused(hostlist: str) -> None:
    with suppress(HostlistError):
        assert all(name and not set(name) & set("[], @!&*") for name in expand(hostlist))
