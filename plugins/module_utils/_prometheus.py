# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What Prometheus is told: faults in it, and its form in Prometheus's own files.

Formats: Prometheus, "Configuration" (prometheus.io/docs/prometheus/latest/configuration/configuration, durations and
labels) and "file_sd_config"; "Template reference" for the templates of alerts.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

OWN_JOBS = ("alertmanager", "prometheus")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]):(\d+)")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHORTEST_SECRET = 4


def seconds(duration: str) -> float | None:
    """A duration as Prometheus writes it, 1h30m for example, in seconds; None when it is none."""
    if not _DURATION.fullmatch(duration):
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|[smhdwy])", duration))


def faults(
    targets: Iterable[Mapping[str, Any]],
    durations: Mapping[str, str],
    listen_address: str,
    ports: Mapping[str, int],
    external_labels: Mapping[str, Any],
) -> list[str]:
    """A sentence for each fault: which variable, what is in it, what to write instead."""
    return [
        *_faults_of_durations(durations),
        *_faults_of_addresses(listen_address, ports),
        *_faults_of_labels("prometheus_external_labels", external_labels),
        *_faults_of_targets(targets),
    ]


def _faults_of_durations(durations: Mapping[str, str]) -> Iterator[str]:
    for name, value in durations.items():
        if seconds(str(value)) is None:
            yield f"{name} is {value}: write a number and a unit (ms, s, m, h, d, w, y), such as 15s."
        elif not name.endswith(("_for", "_timeout")) and not seconds(str(value)):
            yield f"{name} is {value}: write more than zero."
    interval, timeout = (
        seconds(str(durations.get(f"prometheus_scrape_{name}", "0s"))) for name in ("interval", "timeout")
    )
    if interval is not None and timeout is not None and timeout > interval:
        yield (
            f"prometheus_scrape_timeout is {durations['prometheus_scrape_timeout']}: write no more than "
            f"prometheus_scrape_interval, {durations['prometheus_scrape_interval']}."
        )


def _faults_of_addresses(listen_address: str, ports: Mapping[str, int]) -> Iterator[str]:
    try:
        ipaddress.ip_address(listen_address)
    except ValueError:
        yield (
            f"prometheus_listen_address is {listen_address}: write an address of this machine without a port, such as "
            "192.0.2.7, or 0.0.0.0 for all of them."
        )
    for name, port in ports.items():
        if not 0 < port < 65536:
            yield f"{name} is {port}: write a number from 1 to 65535."
    different = set(ports.values())
    if len(different) < len(ports):
        yield f"{' and '.join(ports)} are the same, {min(different)}: give each a port of its own."


def _faults_of_labels(where: str, labels: Mapping[str, Any]) -> Iterator[str]:
    for name, value in labels.items():
        if not _LABEL.fullmatch(str(name)):
            yield f"{where} has the label '{name}': write letters, digits and underscores, a digit not first."
        elif isinstance(value, (dict, list)) or value is None:
            yield f"{where} has the label {name} with {json.dumps(value)}: write a text."


def _faults_of_targets(targets: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for target in targets:
        job, instance, address = (str(target.get(name, "")) for name in ("job", "instance", "address"))
        labels = target.get("labels") or {}
        what = f"The target '{instance or address}' of job '{job}' in prometheus_targets"
        match = _ADDRESS.fullmatch(address)
        if not job or not instance:
            yield f"{what} lacks its {'instance' if job else 'job'}: write job, instance and address of each."
        elif job in OWN_JOBS:
            yield f"{what} bears the name of a job that the role makes itself: take it out, or name the job otherwise."
        elif (job, instance) in seen:
            yield f"{what} is there twice: leave one."
        if not match or not 0 < int(match[1]) < 65536:
            yield f"{what} has the address '{address}': write host:port, such as gpu1:9100."
        for name in sorted({"job", "instance"} & set(labels)):
            yield f"{what} has the label {name}: write that as {name} of the target itself."
        yield from _faults_of_labels(what, labels)
        seen.add((job, instance))


def target_groups(targets: Iterable[Mapping[str, Any]]) -> str:
    """The targets as a file of service discovery, a line each: YAML, and so fast with thousands of them."""
    lines = []
    for target in targets:
        labels = {name: _text(value) for name, value in (target.get("labels") or {}).items()}
        own = {"job": str(target["job"]), "instance": str(target["instance"])}
        lines.append(f"- {json.dumps({'targets': [str(target['address'])], 'labels': {**labels, **own}})}\n")
    return "".join(lines) or "[]\n"


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, int, float)) else str(value)


def choice(kinds: Sequence[Mapping[str, Any]], label: str, field: str, otherwise: str) -> str:
    """A template of Prometheus that yields the field of the kind whose codes hold the value of the label."""
    codes: dict[str, list[str]] = {}
    for kind in kinds:
        codes.setdefault(kind[field], []).extend(map(str, kind["codes"]))
    parts: list[str] = []
    for text, numbers in codes.items():
        if text != otherwise:
            keyword = "else if" if parts else "if"
            parts.append(f'{{{{ {keyword} match "^({"|".join(numbers)})$" $labels.{label} }}}}{text}')
    return f"{''.join(parts)}{{{{ else }}}}{otherwise}{{{{ end }}}}" if parts else otherwise


def hide(text: str, secrets: Any) -> str:
    """The text without any of the texts inside a structure, as a checker repeats them in what it complains of."""
    for secret in sorted(set(_texts(secrets)), key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key != "name":
                yield from _texts(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
        yield value
