"""What Prometheus is told, and the faults in it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils import _prometheus

GOOD: dict[str, Any] = {
    "targets": [
        {"job": "node", "instance": "gpu1", "address": "gpu1:9100"},
        {
            "job": "dcgm",
            "instance": "gpu1",
            "address": "[2001:db8::1]:9400",
            "labels": {"rack": 7, "__scheme__": "http"},
        },
    ],
    "durations": {
        "prometheus_scrape_interval": "15s",
        "prometheus_scrape_timeout": "10s",
        "prometheus_node_down_for": "0s",
    },
    "listen_address": "192.0.2.7",
    "ports": {"prometheus_port": 9090, "prometheus_alertmanager_port": 9093},
    "external_labels": {"site": "here"},
}


def target(**changed: Any) -> dict[str, Any]:
    return {"targets": [{**GOOD["targets"][0], **changed}]}


def test_nothing_is_wrong_with_what_is_right() -> None:
    assert _prometheus.faults(**GOOD) == []
    assert _prometheus.faults(**{**GOOD, "listen_address": "::", "targets": []}) == []


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (target(address="gpu1"), "has the address 'gpu1': write host:port"),
        (target(address="http://gpu1:9100"), "has the address 'http://gpu1:9100': write host:port"),
        (target(address="gpu1:99999"), "has the address 'gpu1:99999': write host:port"),
        (target(instance=""), "The target 'gpu1:9100' of job 'node' in prometheus_targets lacks its instance"),
        (target(job="prometheus"), "bears the name of a job that the role makes itself"),
        ({"targets": [GOOD["targets"][0]] * 2}, "The target 'gpu1' of job 'node' in prometheus_targets is there twice"),
        (target(labels={"a-b": 1}), "has the label 'a-b': write letters, digits and underscores"),
        (target(labels={"rack": None}), "has the label rack with null: write a text"),
        (target(labels={"job": "x"}), "has the label job: write that as job of the target itself"),
        (
            {"durations": {"prometheus_scrape_interval": "15"}},
            "prometheus_scrape_interval is 15: write a number and a unit",
        ),
        ({"durations": {"prometheus_scrape_interval": "0s"}}, "prometheus_scrape_interval is 0s: write more than zero"),
        (
            {"durations": {"prometheus_scrape_interval": "5s", "prometheus_scrape_timeout": "6000ms"}},
            "prometheus_scrape_timeout is 6000ms: write no more than prometheus_scrape_interval, 5s",
        ),
        (
            {"listen_address": "0.0.0.0:9090"},
            "prometheus_listen_address is 0.0.0.0:9090: write an address of this machine",
        ),
        ({"ports": {"prometheus_port": 0, "other": 1}}, "prometheus_port is 0: write a number from 1 to 65535"),
        ({"ports": {"prometheus_port": 9, "other": 9}}, "prometheus_port and other are the same, 9: give each"),
        ({"external_labels": {"1a": "x"}}, "prometheus_external_labels has the label '1a'"),
    ],
)
def test_each_fault_is_a_sentence(changed: dict[str, Any], sentence: str) -> None:
    (fault,) = _prometheus.faults(**{**GOOD, **changed})
    assert sentence in fault


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15s", 15),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("2w", 1209600),
        ("1y", 31536000),
        ("1.5h", None),
        ("", None),
        ("1 h", None),
    ],
)
def test_durations(text: str, expected: float | None) -> None:
    assert _prometheus.seconds(text) == expected


def test_targets_become_a_file_that_prometheus_reads() -> None:
    assert yaml.safe_load(_prometheus.target_groups(GOOD["targets"])) == [
        {"targets": ["gpu1:9100"], "labels": {"job": "node", "instance": "gpu1"}},
        {
            "targets": ["[2001:db8::1]:9400"],
            "labels": {"job": "dcgm", "instance": "gpu1", "rack": "7", "__scheme__": "http"},
        },
    ]
    assert yaml.safe_load(_prometheus.target_groups([])) == []


def test_the_choice_is_a_template_of_prometheus() -> None:
    kinds = [{"codes": [48, 79], "severity": "critical"}, {"codes": [13], "severity": "info"}]
    assert _prometheus.choice(kinds, "xid", "severity", "warning") == (
        '{{ if match "^(48|79)$" $labels.xid }}critical'
        '{{ else if match "^(13)$" $labels.xid }}info{{ else }}warning{{ end }}'
    )
    assert _prometheus.choice([], "xid", "severity", "warning") == "warning"
    kinds = [
        {"codes": [1], "severity": "info"},
        {"codes": [2], "severity": "warning"},
        {"codes": [3], "severity": "info"},
    ]
    assert _prometheus.choice(kinds, "xid", "severity", "warning") == (
        '{{ if match "^(1|3)$" $labels.xid }}info{{ else }}warning{{ end }}'
    )


def test_a_complaint_shows_no_secret() -> None:
    receivers = [
        {"name": "chat", "webhook_configs": [{"url": "ftp://example.org/secret", "password": "ftp:", "max": 3}]}
    ]
    said = 'receiver chat: unsupported scheme "ftp:" for URL ftp://example.org/secret'
    assert _prometheus.hide(said, receivers) == 'receiver chat: unsupported scheme "…" for URL …'
