# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What the filters hostlist_expand and hostlist_fold share: Slurm's syntax, with ClusterShell's ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible.errors import AnsibleFilterError
from ansible_collections.trainyard.cluster.plugins.module_utils import _slurm_hostlist

try:
    from ClusterShell.RangeSet import RangeSet
except ImportError as error:
    _MISSING: ImportError | None = error
else:
    _MISSING = None


def expand(filter_name: str, hosts: object) -> list[str]:
    """Return the names that a filter's input stands for: one text, or several in a list or what `map` makes.

    Raises AnsibleFilterError, also where ClusterShell is missing: a Galaxy install brings no Python package.
    """
    if _MISSING is not None:
        raise AnsibleFilterError(
            f"{filter_name} needs the Python package ClusterShell on the controller: "
            f"install it beside Ansible, as pip install ClusterShell ({_MISSING})."
        )
    try:
        return [name for one in _texts(filter_name, hosts) for name in _slurm_hostlist.expand(one, _count)]
    except _slurm_hostlist.HostlistError as error:
        raise AnsibleFilterError(f"{filter_name}: {error}") from error


def fold(numbers: list[str]) -> str:
    """Return what stands in one bracket for these numbers, each at its own width."""
    return str(RangeSet.fromlist(numbers))


def _count(first: int, last: int, digits: int) -> Iterable[str]:
    # From numbers, not from the text: ClusterShell's own syntax has no range over two widths, as Slurm's [01-100].
    numbers: Iterable[str] = RangeSet.fromone(slice(first, last + 1), pad=digits).striter()
    return numbers


def _texts(filter_name: str, hosts: object) -> list[str]:
    several = [hosts] if isinstance(hosts, str) else hosts
    if isinstance(several, Iterable) and not isinstance(several, (Mapping, bytes)):
        lists = list(several)
        if all(isinstance(one, str) for one in lists):
            return [str(one) for one in lists]
    raise AnsibleFilterError(
        f"{filter_name}: {str(hosts)[:60]!r} is no list of hosts: give a text as gpu[01-16,20], or a list of names."
    )
