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
_LAST_ID = 4294967293  # what follows stands for "no id" in some system calls
_NOBODY = 65534


def account_faults(accounts: Sequence[Mapping[str, object]], passwd: str, group: str, host: str) -> list[str]:
    """Return a sentence for everything that stands against the accounts, none when they can be created.

    accounts: name, uid and, where it isn't the uid, gid. passwd, group: the machine's own entries.
    """
    faults = declaration_faults(accounts)
    users, groups = _entries(passwd), _entries(group)
    for account in accounts:
        name, uid = str(account["name"]), _number(account["uid"])
        gid = _number(account.get("gid") or account["uid"])
        faults += [f"On {host}: {fault}." for fault in _conflicts("user", name, uid, users)]
        faults += [f"On {host}: {fault}." for fault in _conflicts("group", name, gid, groups)]
    return faults


def declaration_faults(accounts: Sequence[Mapping[str, object]]) -> list[str]:
    """Return a sentence for all that is wrong with the accounts whatever the machine. Values may be of any type."""
    faults = [fault for account in accounts for fault in _own_faults(account)]
    for field in ("name", "uid", "gid"):
        values = [str(_value(account, field)) for account in accounts if _value(account, field) is not None]
        faults += [
            f"cluster_users_accounts has the {field} {value} {count} times: give every account its own."
            for value, count in Counter(values).items()
            if count > 1
        ]
    return faults


def service_faults(accounts: Iterable[Mapping[str, object]], services: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a sentence for each account that takes the name or an id of a service's account.

    services: uid and gid by the service's name.
    """
    faults = []
    for account in accounts:
        name = account.get("name")
        if name in services:
            faults.append(f"cluster_users_accounts: {name} is the name of a service's account: choose another one.")
            continue
        for service, ids in services.items():
            for field, number in ids.items():
                if str(_value(account, field)) == str(number):
                    faults.append(
                        f"cluster_users_accounts: the {field} {number} of {name} is that of {service}: "
                        "choose another one."
                    )
    return faults


def _own_faults(account: Mapping[str, object]) -> list[str]:
    name = account.get("name")
    faults = []
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        faults.append(
            f"cluster_users_accounts: {name!r} can't be an account's name: use lower-case letters, digits, _ and -, "
            "a letter first, 31 at most."
        )
    fields = ("uid", "gid") if account.get("gid") is not None else ("uid",)
    for field in fields:
        value = account.get(field)
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,10}", str(value)) or int(str(value)) > _LAST_ID:
            faults.append(
                f"cluster_users_accounts: the {field} of {name} is {value!r}: write a whole number from {_FIRST_ID} up."
            )
        elif _number(value) < _FIRST_ID or _number(value) == _NOBODY:
            faults.append(
                f"cluster_users_accounts: the {field} {value} of {name} belongs to the system: "
                f"choose one from {_FIRST_ID} up, other than {_NOBODY}."
            )
    return faults


def _value(account: Mapping[str, object], field: str) -> object:
    value = account.get(field)
    return account.get("uid") if field == "gid" and value is None else value


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
