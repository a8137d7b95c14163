# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables in the widths of several drivers: 450 to 470 (narrow), 535 to 590 (wide), and as documents quote them."""

from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_settings_mig import (
    Instance,
    Profile,
    find_layout_fault,
    ordered,
    parse_instances,
    parse_profiles,
)
from hypothesis import given
from hypothesis import strategies as st

PROFILES = """
+-----------------------------------------------------------------------------+
| GPU instance profiles:                                                      |
| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                              Free/Total   GiB              CE    JPEG  OFA  |
|=============================================================================|
|   0  MIG 1g.6gb        14     3/4        5.81       No     14     1     0   |
|                                                             1     0     0   |
+-----------------------------------------------------------------------------+
|   0  MIG 1g.6gb+me     21     1/1        5.81       No     14     1     0   |
|                                                             1     1     1   |
+-----------------------------------------------------------------------------+
|   0  MIG 2g.12gb        5     1/2        11.69      No     28     2     0   |
|                                                             2     0     0   |
+-----------------------------------------------------------------------------+
|   0  MIG 4g.24gb        0     0/1        23.50      No     56     4     0   |
|                                                             4     1     1   |
+-----------------------------------------------------------------------------+
|  11  MIG 1g.64gb          0     1/1        63.00      No     70     0     0   |
|                                                               5     0     0   |
"""
PLACEMENTS = """GPU  0 Profile ID 14 Placements: {0,1,2,3}:1
GPU  0 Profile ID 21 Placements: {0,1,2,3}:1
GPU  0 Profile ID  5 Placements: {0,2}:2
GPU  0 Profile ID  0 Placement : {0}:4
"""
A30 = [
    Profile("1g.6gb", 4, [0, 1, 2, 3], 1),
    Profile("1g.6gb+me", 1, [0, 1, 2, 3], 1),
    Profile("2g.12gb", 2, [0, 2], 2),
    Profile("4g.24gb", 1, [0], 4),
]


def test_profiles() -> None:
    assert parse_profiles(PROFILES, PLACEMENTS) == {0: A30, 11: [Profile("1g.64gb", 1, [], None)]}


@pytest.mark.parametrize(
    ("instances", "compute"),
    [
        (
            "|   0  MIG 3g.20gb       9        1          4:4     |\n|   0  MIG 2g.10gb      14        5      0:2  |\n",
            "|   0      1       MIG 3g.20gb           2         0     |\n|   0      5       MIG 2g.10gb  1  0     |\n",
        ),
        (
            "||   0  MIG 3g.20gb            9        1          4:4     |\n| 0 MIG 2g.10gb 14 5 0:2 |\n",
            "||   0      1       MIG 3g.20gb          2         0          0:3     |\n| 0 5 MIG 2g.10gb 1* 0 0:2 |\n"
            "|   0      5       MIG 2g.10gb          1         0          0:2     |\n",
        ),
    ],
)
def test_instances(instances: str, compute: str) -> None:
    found = parse_instances(f"| GPU instances: |\n|====|\n{instances}+----+\n", compute)
    assert found == {0: [Instance(1, "3g.20gb", ["3g.20gb"]), Instance(5, "2g.10gb", ["2g.10gb"])]}
    assert [instance.label for instance in found[0]] == ["3g.20gb", "2g.10gb"]


def test_an_instance_says_what_is_in_it_unless_it_is_the_default() -> None:
    assert Instance(1, "3g.20gb", []).label == "3g.20gb (no compute instance)"
    assert Instance(1, "3g.20gb", ["1c.3g.20gb", "2c.3g.20gb"]).label == "3g.20gb (1c.3g.20gb, 2c.3g.20gb)"
    assert Instance(1, "3g.20gb", ["1c.3g.20gb"]).label == "3g.20gb (1c.3g.20gb)"


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (["4g.24gb"], ""),
        (["1g.6gb", "2g.12gb", "1g.6gb+me"], ""),
        (["1g.6gb"] * 4, ""),
        (["2g.12gb", "2g.12gb", "1g.6gb"], "it has 4 compute slices, and the layout needs 5"),
        (["1g.6gb+me", "1g.6gb+me"], "it takes 1 of 1g.6gb+me at most, 2 are wanted"),
        (["3g.40gb", "1g.5gb"], "1g.5gb and 3g.40gb are not among its profiles; it offers 1g.6gb, 1g.6gb+me, 2g.12gb"),
    ],
)
def test_layouts(layout: list[str], words: str) -> None:
    found = find_layout_fault(layout, A30)
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_a_layout_that_only_another_order_makes_room_for() -> None:
    offered = [Profile("1g.10gb", 7, list(range(7)), 1), Profile("3g.40gb", 2, [0, 4], 4)]
    assert ordered(["1g.10gb", "3g.40gb", "1g.10gb"], offered) == ["3g.40gb", "1g.10gb", "1g.10gb"]
    assert find_layout_fault(["1g.10gb"] * 4 + ["3g.40gb"], [*offered, Profile("7g.80gb", 1, [0], 8)]) == ""


@given(st.text(alphabet="|+= \nGPUMIGgb0123456789.:{},Profile") | st.text())
def test_no_text_upsets_the_parsers(text: str) -> None:
    parse_profiles(text, text)
    parse_instances(text, text)
