from __future__ import annotations

import pytest
from ansible_collections.trainyard.cluster.plugins.filter.cluster_faults import cluster_faults

SHOWN = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 CPUTot=16 Gres={gres} NodeAddr={name} RealMemory=200000 "
    "State={state} ThreadsPerCore=1 Partitions=train SlurmdStartTime=2026-01-01T00:00:00 {reason}CfgTRES=cpu=16\n"
)


def shown(name: str, gres: str = "gpu:h100:8(S:0-1)", state: str = "IDLE", reason: str = "") -> str:
    return SHOWN.format(name=name, gres=gres, state=state, reason=reason)


def declared(*names: str) -> list[dict[str, object]]:
    return [{"name": name, "gpus": [{"type": "h100", "count": 8}]} for name in names]


def test_nodes_as_declared() -> None:
    assert cluster_faults(shown("gpu1") + shown("gpu2", state="MIXED"), declared("gpu1", "gpu2")) == []


def test_a_node_that_was_not_asked_for_is_no_fault() -> None:
    assert cluster_faults(shown("gpu1") + shown("gpu2", state="DOWN*"), declared("gpu1")) == []


def test_a_node_that_an_administrator_drained_is_no_fault() -> None:
    line = shown("gpu1", state="IDLE+DRAIN", reason="Reason=new fans [root@2026-01-01T00:00:00] ")
    assert cluster_faults(line, declared("gpu1")) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", "Slurm doesn't know gpu1: run slurm.yml without --limit"),
        (shown("gpu1", gres="gpu:h100:7"), "Slurm gives gpu1 gpu:h100:7, and the inventory declares gpu:h100:8"),
        (shown("gpu1", gres="(null)"), "Slurm gives gpu1 no GPU, and the inventory declares gpu:h100:8"),
        (shown("gpu1", state="DOWN*"), "gpu1"),
        (
            shown("gpu1", state="IDLE+DRAIN", reason="Reason=gres/gpu count reported lower than configured "),
            "Slurm keeps gpu1 from jobs",
        ),
    ],
    ids=["unknown", "a GPU less", "no GPU", "down", "drained by Slurm"],
)
def test_a_node_that_is_not_as_declared(lines: str, expected: str) -> None:
    (fault,) = cluster_faults(lines, declared("gpu1"))
    assert fault.startswith(expected)
