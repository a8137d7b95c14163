# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._accounts import (
    account_faults,
    declaration_faults,
    service_faults,
)

USERS = "root:x:0:0:root:/root:/bin/bash\nalice:x:2000:2000::/home/alice:/bin/bash\n"
GROUPS = "root:x:0:\nalice:x:2000:\nteam:x:3000:alice\n"


@pytest.mark.parametrize(
    ("accounts", "expected"),
    [
        pytest.param([], [], id="none declared"),
        pytest.param([{"name": "bob", "uid": 2001}], [], id="new"),
        pytest.param([{"name": "alice", "uid": 2000}], [], id="already there, with a group of her own"),
        pytest.param([{"name": "bob", "uid": 2001, "gid": 3001}], [], id="another gid than the uid"),
        pytest.param(
            [{"name": "bob", "uid": 2001, "gid": 3000}],
            ["On gpu1: cluster_users_accounts gives the group bob the gid 3000, which belongs to team"],
            id="a gid that is taken",
        ),
        pytest.param([{"name": "bob", "uid": 2001, "gid": None}], [], id="no group declared"),
        pytest.param(
            [{"name": "bob", "uid": 2000}],
            ["user bob the uid 2000, which belongs to alice", "group bob the gid 2000, which belongs to alice"],
            id="ids that are taken",
        ),
        pytest.param(
            [{"name": "alice", "uid": 2002}],
            [
                "user alice the uid 2002, but it has 2000",
                "group alice the gid 2002, but it has 2000",
            ],
            id="there with other ids",
        ),
        pytest.param([{"name": "bob", "uid": 33}], ["the uid 33 of bob belongs to the system"], id="a system id"),
        pytest.param([{"name": "bob", "uid": 65534}], ["the uid 65534 of bob belongs to the system"], id="nobody"),
        pytest.param([{"name": "Bob", "uid": 2001}], ["'Bob' can't be an account's name"], id="a name with a capital"),
        pytest.param(
            [{"name": "bob", "uid": 2001}, {"name": "carol", "uid": 2001}],
            ["has the uid 2001 2 times", "has the gid 2001 2 times"],
            id="two with one uid",
        ),
        pytest.param(
            [{"name": "bob", "uid": 2001}, {"name": "bob", "uid": 2002}],
            ["has the name bob 2 times"],
            id="one name twice",
        ),
    ],
)
def test_account_faults(accounts: list[dict[str, object]], expected: list[str]) -> None:
    faults = account_faults(accounts, USERS, GROUPS, "gpu1")
    assert len(faults) == len(expected)
    for fault, part in zip(faults, expected):
        assert part in fault


@pytest.mark.parametrize(
    ("accounts", "expected"),
    [
        pytest.param([{"uid": 2000}], ["None can't be an account's name"], id="no name"),
        pytest.param([{"name": "a" * 32, "uid": 2000}], ["can't be an account's name"], id="a name too long"),
        pytest.param([{"name": "bob"}], ["the uid of bob is None: write a whole number"], id="no uid"),
        pytest.param([{"name": "bob", "uid": True}], ["the uid of bob is True"], id="a truth value"),
        pytest.param([{"name": "bob", "uid": 4294967295}], ["the uid of bob is 4294967295"], id="no id at all"),
        pytest.param(
            [{"name": "bob", "uid": 2001, "gid": 3000}, {"name": "carol", "uid": 2002, "gid": "3000"}],
            ["has the gid 3000 2 times"],
            id="two with one gid",
        ),
    ],
)
def test_faults_of_any_declaration(accounts: list[dict[str, object]], expected: list[str]) -> None:
    faults = declaration_faults(accounts)
    assert len(faults) == len(expected)
    for fault, part in zip(faults, expected):
        assert part in fault


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        pytest.param({"name": "bob", "uid": 2001}, [], id="ids of its own"),
        pytest.param({"name": "munge", "uid": 2001}, ["munge is the name of a service's account"], id="its name"),
        pytest.param({"name": "bob", "uid": 6001}, ["the uid 6001 of bob is that of slurm"], id="its uid"),
        pytest.param({"name": "bob", "uid": 6002}, ["the gid 6002 of bob is that of slurm"], id="its gid, by the uid"),
    ],
)
def test_accounts_of_services_stay_theirs(account: dict[str, object], expected: list[str]) -> None:
    services = {"munge": {"uid": 966, "gid": 966}, "slurm": {"uid": 6001, "gid": 6002}}
    faults = service_faults([account], services)
    assert len(faults) == len(expected)
    for fault, part in zip(faults, expected):
        assert part in fault
