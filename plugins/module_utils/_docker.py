# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What Docker's daemon.json becomes when our settings meet the machine's own, and what the daemon must do about it.

Format: https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file; what a reload takes up:
https://docs.docker.com/reference/cli/dockerd/#configuration-reload-behavior.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

# A reload takes these up where they are set. Not "features": only a daemon that starts looks whether CDI is on.
_RELOADED = {
    "allow-nondistributable-artifacts",
    "authorization-plugins",
    "debug",
    "default-runtime",
    "insecure-registries",
    "labels",
    "live-restore",
    "max-concurrent-downloads",
    "max-concurrent-uploads",
    "max-download-attempts",
    "registry-mirrors",
    "runtimes",
    "shutdown-timeout",
}
# A daemon that starts with these changed still finds the containers that the one before it left running. Where storage,
# network, namespaces or control groups change it doesn't: https://docs.docker.com/engine/daemon/live-restore/.
_KEEPS_CONTAINERS = _RELOADED | {
    "builder",
    "cdi-spec-dirs",
    "default-shm-size",
    "default-ulimits",
    "dns",
    "dns-opts",
    "dns-search",
    "experimental",
    "features",
    "init",
    "log-driver",
    "log-format",
    "log-level",
    "log-opts",
    "metrics-addr",
    "proxies",
    "seccomp-profile",
}

_Path = tuple[str, ...]
_Flat = dict[_Path, Any]


def daemon_configuration(
    text: str, record: str, defaults: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what daemon.json is to be.

    text: the file as it is, empty when there is none. record: what an earlier call returned under that name, empty at
    first. defaults: used where the machine's own file says nothing. settings: used whatever it says. What stands in the
    file with another value than the record has is the machine's own, and so is what an earlier call replaced.

    fault: why the text can't be read, empty when it can, and the other keys are there only then.
    configuration, text: what the file is to hold; the text is the given one where nothing changes. record: to be kept.
    changed: keys of the first level that differ; restart: those of them that only a start takes up; unsafe: those after
    which running containers are lost to the daemon.
    """
    try:
        current = json.loads(text) if text.strip() else {}
    except ValueError as error:
        return {"fault": f"it isn't JSON ({error})"}
    if not isinstance(current, dict):
        return {"fault": f"it holds {json.dumps(current)[:60]} instead of an object of settings"}
    ours, replaced = _read_record(record)
    found = _flatten(current)
    own = {path: value for path, value in found.items() if not (path in ours and ours[path] == value)}
    for path, value in replaced.items():
        if all(found.get(other) == ours[other] for other in ours if _touches(path, [other])):
            own[path] = value
    wanted = {path: value for path, value in _flatten(defaults).items() if not _touches(path, own)}
    _lay_over(wanted, own)
    _lay_over(wanted, _flatten(settings))
    configuration = _in_order_of(_unflatten(wanted), current)
    ours = {path: value for path, value in wanted.items() if path not in own or own[path] != value}
    replaced = {path: value for path, value in own.items() if path not in wanted or wanted[path] != value}
    changed = sorted(
        key
        for key in {*current, *configuration}
        if key not in current or key not in configuration or current[key] != configuration[key]
    )
    return {
        "fault": "",
        "configuration": configuration,
        "text": json.dumps(configuration, indent=4) + "\n" if changed else text,
        "record": json.dumps({"set": _rows(ours), "replaced": _rows(replaced)}) + "\n",
        "changed": changed,
        "restart": [key for key in changed if key not in _RELOADED or key not in configuration],
        "unsafe": [key for key in changed if key not in _KEEPS_CONTAINERS],
    }


def _read_record(record: str) -> tuple[_Flat, _Flat]:
    rows = json.loads(record) if record.strip() else {"set": [], "replaced": []}
    ours, replaced = ({tuple(path): value for path, value in rows[name]} for name in ("set", "replaced"))
    return ours, replaced


def _rows(flat: _Flat) -> list[list[Any]]:
    return [[list(path), value] for path, value in sorted(flat.items(), key=lambda item: item[0])]


def _flatten(tree: Mapping[str, Any], above: _Path = ()) -> _Flat:
    flat: _Flat = {}
    for key, value in tree.items():
        path = (*above, str(key))
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, path))
        else:
            flat[path] = value
    return flat


def _unflatten(flat: _Flat) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        branch = tree
        for key in path[:-1]:
            branch = branch.setdefault(key, {})
        branch[path[-1]] = value
    return tree


def _touches(path: _Path, others: Iterable[_Path]) -> bool:
    """Whether one of the others is this path, lies below it or above it."""
    return any(path[: len(other)] == other[: len(path)] for other in others)


def _lay_over(flat: _Flat, layer: _Flat) -> None:
    for path, value in layer.items():
        if value == {} and _touches(path, flat):
            continue  # an empty object takes nothing away
        for other in [other for other in flat if other != path and _touches(path, [other])]:
            del flat[other]
        flat[path] = value


def _in_order_of(tree: dict[str, Any], pattern: Mapping[str, Any]) -> dict[str, Any]:
    keys = [*(key for key in pattern if key in tree), *(key for key in tree if key not in pattern)]
    return {
        key: _in_order_of(tree[key], pattern[key])
        if isinstance(tree[key], dict) and isinstance(pattern.get(key), Mapping)
        else tree[key]
        for key in keys
    }
