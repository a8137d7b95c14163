# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""The argument specifications of this collection's roles, read from the files beside this one on the controller."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.trainyard.cluster.plugins.module_utils._inventory import Faults, with_text_keys

_ROLES = Path(__file__).parents[2] / "roles"


def names() -> list[str]:
    """Return the names of all roles that have options."""
    return sorted(file.parts[-3] for file in _ROLES.glob("*/meta/argument_specs.yml"))


def options(roles: Iterable[str]) -> dict[str, Any]:
    """Return the options of the roles' entry point main, by name. A role's options begin with its name."""
    found: dict[str, Any] = {}
    for role in roles:
        found.update(_options(str(role)))
    return found


def argument_faults(
    groups: Mapping[str, Sequence[str]],
    arguments: Mapping[str, Mapping[str, Any]],
    roles: Mapping[str, Sequence[str]],
    given: set[str],
) -> list[str]:
    """Compare what hosts set for their roles with the roles' argument specifications, one sentence a fault.

    arguments: variables of roles by host. Hosts that set the same are looked at together.
    roles: names of roles by group.
    given: options that are set elsewhere, and so may be required.
    """
    of_host: dict[str, list[str]] = {host: [] for host in arguments}
    for group, names_of_group in roles.items():
        for host in groups.get(group, ()):
            of_host[host] += names_of_group
    alike: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for host, own in arguments.items():
        alike.setdefault((tuple(dict.fromkeys(of_host[host])), repr(own)), []).append(host)
    faults = Faults()
    for (names_of_hosts, _values), hosts in alike.items():
        spec = {
            name: {**option, "required": False} if name in given else option
            for name, option in options(names_of_hosts).items()
        }
        values = {name: with_text_keys(value) for name, value in arguments[hosts[0]].items() if name in spec}
        for name in [name for name, value in values.items() if value is None]:
            del values[name]  # unset, as far as that can be
            option = spec[name]
            if option["type"] == "bool" or ("default" in option and name not in given):
                for host in hosts:
                    faults.add(host, f"{name} is set to nothing for HOSTS: write a value, or take out the line.")
        for error in ArgumentSpecValidator(spec).validate(values, validate_role_argument_spec=True).error_messages:
            for host in hosts:
                faults.add(host, f"HOSTS: {_sentence(str(error), names_of_hosts)}")
    return faults.sentences()


def valid_values(role: str, values: Mapping[str, Any], given: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return the values with the defaults of the role's others, None if they don't suit its argument specification."""
    spec = options([role])
    own = {name: with_text_keys(value) for name, value in values.items() if name in spec and value is not None}
    defaults = {name: option["default"] for name, option in spec.items() if "default" in option}
    spec = {name: {**option, "required": False} if name in given else option for name, option in spec.items()}
    result = ArgumentSpecValidator(spec).validate(own, validate_role_argument_spec=True)
    return None if result.error_messages else {**defaults, **own}


def _sentence(error: str, roles: Iterable[str]) -> str:
    text = re.sub(r"<class '(?:[\w.]+\.)?_?(?:AnsibleLazyTemplate)?(\w+)'>", r"\1", error).rstrip(".")
    role = next((name for name in sorted(roles, key=len, reverse=True) if re.search(rf"\b{name}_\w", text)), None)
    where = f" (the role {role}'s README says what it may be)" if role else ""
    return f"{text}; correct it at the host or in group_vars{where}."


@cache
def _options(role: str) -> dict[str, Any]:
    file = _ROLES / role / "meta" / "argument_specs.yml"
    if not file.is_file():
        raise AnsibleFilterError(f"{role} is no role of trainyard.cluster: {file} isn't there")
    specs = yaml_load(file.read_text(encoding="utf-8"))["argument_specs"]
    return dict(specs.get("main", {}).get("options", {}))
