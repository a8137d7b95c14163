# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Compares what the machines of a cluster said about themselves (module machine_facts) and names the faults."""

from __future__ import annotations

import ipaddress
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.trainyard.cluster.plugins.module_utils._inventory import Faults, fold

# Versions by ID of os-release, and architectures; the same as in roles/common, which can't be read from here.
PLATFORMS = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")}
ARCHITECTURES = ("x86_64",)

_SUPPORTED = "Debian 12 or 13 or Ubuntu 22.04 or 24.04 on x86_64"


def machine_faults(
    machines: Mapping[str, Mapping[str, Any]], unreachable: Iterable[str] = (), clock_tolerance_seconds: float = 10
) -> list[str]:
    """Return a sentence for each fault.

    machines: the answers of the machines that could be reached, by their names in the inventory.
    unreachable: machines that could not; their names may be unknown while they are down.
    clock_tolerance_seconds: how far a clock may be from the others' median. It covers the time that starting the module
        took, which looks like a difference.
    """
    faults = Faults()
    for host, machine in machines.items():
        _check_platform(host, machine, faults)
        _check_name(host, machine, faults)
        _check_directory(host, machine, faults)
        for sentence in _account_faults(machine):
            faults.add(host, sentence)
    _check_addresses(machines, set(unreachable), faults)
    _check_clocks(machines, clock_tolerance_seconds, faults)
    return faults.sentences()


def _check_platform(host: str, machine: Mapping[str, Any], faults: Faults) -> None:
    identity, version, architecture = (machine[key] for key in ("platform_id", "platform_version", "architecture"))
    if version not in PLATFORMS.get(identity, ()) or architecture not in ARCHITECTURES:
        faults.add(
            host,
            f"HOSTS runs {identity or 'an unknown system'} {version or ''} on {architecture}, which isn't supported: "
            f"install {_SUPPORTED}, or take it out of the inventory.",
        )


def _check_name(host: str, machine: Mapping[str, Any], faults: Faults) -> None:
    if machine["name"] != host:
        faults.say(
            f"{host} calls itself {machine['name']}, and Slurm needs both names to be the same: write "
            f"{machine['name']} in the inventory with its address as ansible_host, or run "
            f"`hostnamectl set-hostname {host}` on it."
        )


def _check_directory(host: str, machine: Mapping[str, Any], faults: Faults) -> None:
    directory = machine["shared_directory"]
    if directory and directory["problem"]:
        faults.add(
            host,
            f"{directory['path']} on HOSTS {directory['problem']}: mount the shared file system there for reading and "
            "writing, or write the right path as cluster_shared_directory in group_vars/all.yml.",
        )


def _account_faults(machine: Mapping[str, Any]) -> Iterator[str]:
    for account in machine["accounts"]:
        name = account["name"]
        found = machine["users"][name]
        for key, what in (("uid", "user"), ("gid", "group")):
            wanted = account[key]
            holder = machine["holders"][key].get(str(wanted))
            if found and found[key] != wanted:
                yield (
                    f"{name} has the {key} {found[key]} on HOSTS, where all machines are to have {wanted}: change it "
                    f"there with what it owns, or declare {found[key]} for all."
                )
            elif holder not in (None, name):
                yield (
                    f"The {key} {wanted} of {name} belongs to {what} {holder} on HOSTS: give {holder} another one "
                    f"there, or declare a free one for {name}."
                )


def _check_addresses(machines: Mapping[str, Mapping[str, Any]], unreachable: set[str], faults: Faults) -> None:
    views: dict[str, list[tuple[str, frozenset[str]]]] = {}  # by name: who sees it at which addresses
    for host, machine in machines.items():
        for name, found in machine["addresses"].items():
            if name in unreachable:
                continue
            loopback = [address for address in found if ipaddress.ip_address(address).is_loopback]
            whose = "its own name" if name == host else name
            if not found:
                faults.add(host, f"HOSTS can't resolve {whose}: add it to the name server or to /etc/hosts there.")
            elif loopback:
                faults.add(
                    host,
                    f"HOSTS resolves {whose} to {loopback[0]}, where no other machine finds it: write the machine's "
                    f"address in place of {loopback[0]} in /etc/hosts there.",
                )
            else:
                views.setdefault(name, []).append((host, frozenset(found)))
    for name, seen in views.items():
        # A machine knows best where it is; without its word the first one's counts.
        reference = next((view for view in seen if view[0] == name), seen[0])
        for host, found in seen:
            if not found & reference[1]:
                faults.add(
                    host,
                    f"{name} is {_listed(found)} for HOSTS, but {_listed(reference[1])} for {reference[0]}: "
                    "correct the name server or /etc/hosts, so that all agree.",
                )


def _check_clocks(machines: Mapping[str, Mapping[str, Any]], tolerance: float, faults: Faults) -> None:
    if not machines:
        return
    offsets = [machine["clock_offset_seconds"] for machine in machines.values()]
    middle = statistics.median(offsets) if len(offsets) > 2 else None
    for host, machine in machines.items():
        offset = machine["clock_offset_seconds"] - (middle or 0)
        if abs(offset) > tolerance:
            other = "this computer's" if middle is None else "the other machines'"
            faults.say(
                f"The clock of {host} is {abs(offset):.0f} seconds {'ahead of' if offset > 0 else 'behind'} {other}: "
                "start a time service such as chrony or systemd-timesyncd there (`timedatectl` shows it)."
            )


def _listed(addresses: frozenset[str]) -> str:
    return fold(sorted(addresses, key=lambda address: (":" in address, address)), 2)
