# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What the filters hostlist_expand and hostlist_fold take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible.errors import AnsibleFilterError


def texts(filter_name: str, hosts: object) -> list[str]:
    """Return the host lists in a filter's input: one text, or several in a list or what `map` makes."""
    several = [hosts] if isinstance(hosts, str) else hosts
    if isinstance(several, Iterable) and not isinstance(several, (Mapping, bytes)):
        lists = list(several)
        if all(isinstance(one, str) for one in lists):
            return [str(one) for one in lists]
    raise AnsibleFilterError(
        f"{filter_name}: {str(hosts)[:60]!r} is no list of hosts: give a text as gpu[01-16,20], or a list of names."
    )
