# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Whether declared accounts can be created on a machine without taking anybody's id.

Formats: passwd(5) and group(5), as `getent` prints them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_FIRST_ID = 1000
_NOBODY = 65534


def account_faults(accounts: Sequence[Mapping[str, object]], passwd: str, group: str, host: str) -> list[str]:
    """Return a sentence for everything that stands against the accounts, none when they can be created.

    accounts: name, uid and, where it isn't the uid, gid. passwd, group: the machine's own entries.
    """
    faults = [fault for account in accounts for fault in _own_faults(account)]
    rows = [(str(row["name"]), _number(row["uid"]), _number(row.get("gid") or row["uid"])) for row in accounts]
    for field, values in zip(("name", "uid", "gid"), zip(*rows)):
        faults += [
            f"cluster_users_accounts has the {field} {value} {count} times: give every account its own."
            for value, count in Counter(values).items()
            if count > 1
        ]
    users, groups = _entries(passwd), _entries(group)
    for name, uid, gid in rows:
        faults += [f"On {host}: {fault}." for fault in _conflicts("user", name, uid, users)]
        faults += [f"On {host}: {fault}." for fault in _conflicts("group", name, gid, groups)]
    return faults


def _own_faults(account: Mapping[str, object]) -> list[str]:
    name = str(account["name"])
    faults = []
    if not _NAME.fullmatch(name):
        faults.append(
            f"cluster_users_accounts: {name!r} can't be an account's name: use lower-case letters, digits, _ and -, "
            "a letter first, 31 at most."
        )
    for field in ("uid", "gid"):
        value = account.get(field)
        if value is not None and (_number(value) < _FIRST_ID or _number(value) == _NOBODY):
            faults.append(
                f"cluster_users_accounts: the {field} {value} of {name} belongs to the system: "
                f"choose one from {_FIRST_ID} up, other than {_NOBODY}."
            )
    return faults


def _conflicts(kind: str, name: str, number: int, known: Iterable[tuple[str, int]]) -> list[str]:
    field = {"user": "uid", "group": "gid"}[kind]
    faults = []
    for known_name, known_number in known:
        if known_name == name and known_number != number:
            faults.append(
                f"cluster_users_accounts gives the {kind} {name} the {field} {number}, but it has {known_number}: "
                "declare that one, or change it there first"
            )
        elif known_number == number and known_name != name:
            faults.append(
                f"cluster_users_accounts gives the {kind} {name} the {field} {number}, which belongs to {known_name}: "
                "declare another one"
            )
    return faults


def _entries(text: str) -> list[tuple[str, int]]:
    rows = [line.split(":") for line in text.splitlines()]
    return sorted({(row[0], int(row[2])) for row in rows if len(row) > 2 and row[2].isdecimal()})


def _number(value: object) -> int:
    return int(str(value))
