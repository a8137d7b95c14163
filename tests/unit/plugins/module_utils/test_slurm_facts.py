# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Sequence

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._command import CommandResult
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_facts import (
    JOBS,
    NODES,
    PARTITIONS,
    collect,
    find_missing,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_output import read
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_problems import of_nodes, of_partitions

from tests.unit.captures import fixture

ALL = [NODES, PARTITIONS, JOBS]
SILENT = CommandResult(1, "", "slurm_load_node error: Unable to contact slurm controller (connect failure)")


class FakeSlurm:
    """Answers by what a command line holds; what isn't foreseen fails as an unknown option does."""

    def __init__(self, answers: dict[str, CommandResult | str]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        line = " ".join(argv)
        self.asked.append(line)
        for words, answer in self.answers.items():
            if words in line:
                return CommandResult(0, answer, "") if isinstance(answer, str) else answer
        return CommandResult(1, "", f"{argv[0]}: unrecognized option")


def new(**changes: CommandResult | str) -> FakeSlurm:
    answers: dict[str, CommandResult | str] = {
        "--version": "slurm-wlm 24.11.5\n",
        "ping": "Slurmctld(primary) at ctl is UP\n",
        "show config": fixture("slurm/config-24.11.txt"),
        "show nodes --json": fixture("slurm/nodes-24.11.json"),
        "show partition": fixture("slurm/partitions-24.11.txt"),
        "squeue --all --local --json": fixture("slurm/jobs-24.11.json"),
    }
    return FakeSlurm({**answers, **{name.replace("_", " "): value for name, value in changes.items()}})


def old() -> FakeSlurm:
    return FakeSlurm(
        {
            "--version": "slurm-wlm 22.05.8\n",
            "ping": "Slurmctld(primary) at ctl is UP\n",
            "show config": fixture("slurm/config-22.05.txt"),
            "--details show node": fixture("slurm/nodes-22.05.txt"),
            "show partition": fixture("slurm/partitions-24.11.txt"),
            "--all --local --details show job": fixture("slurm/jobs-22.05.txt"),
        }
    )


@pytest.mark.parametrize(
    ("slurm", "version", "source"),
    [(new(), "24.11.5", "json"), (old(), "22.05.8", "text")],
    ids=["json", "text"],
)
def test_tells_all_about_a_cluster(slurm: FakeSlurm, version: str, source: str) -> None:
    facts = collect(slurm, ALL, 60)
    assert (facts.version, facts.source, facts.cluster_name) == (version, source, "first")
    assert facts.controller_responding
    assert facts.nodes is not None
    assert [node.name for node in facts.nodes] == ["gpu1", "switched-off"]
    assert facts.partitions is not None
    assert [one.name for one in facts.partitions if one.default] == ["train"]
    assert facts.jobs is not None
    assert [job.id for job in facts.jobs] == [1], "the failed one is over"
    assert facts.jobs_by_node == {"gpu1": [1]}
    assert [(one.code, one.node) for one in facts.problems] == [("node_not_registered", "switched-off")]
    assert not find_missing(facts)


def test_asks_an_old_release_for_no_json() -> None:
    slurm = old()
    collect(slurm, ALL, 60)
    assert not [line for line in slurm.asked if "json" in line]


def test_takes_text_where_json_can_not_be_read() -> None:
    slurm = new(**{"show nodes --json": CommandResult(1, "", "error: cannot find serializer plugin for json")})
    slurm.answers["--details show node"] = fixture("slurm/nodes-24.11.txt")
    facts = collect(slurm, [NODES], 60)
    assert facts.source == "text"
    assert facts.nodes is not None
    assert facts.nodes[0].gpus_used == 2
    assert (facts.partitions, facts.jobs, facts.jobs_by_node) == (None, None, None)


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (
            CommandResult(1, "Slurmctld(primary) at ctl is DOWN\nSlurmctld(backup) at c2 is DOWN", ""),
            "controller_down",
            "primary at ctl is DOWN, backup at c2 is DOWN",
        ),
        (
            CommandResult(
                1, "Slurmctld(primary) at ctl is DOWN", "scontrol: error: auth_g_create: authentication error"
            ),
            "authentication_failed",
            "See that munge runs",
        ),
        (CommandResult(None, "", "", timed_out=True), "slurm_not_answering", "scontrol ping said nothing"),
    ],
)
def test_a_silent_controller_is_a_problem(answer: CommandResult, code: str, words: str) -> None:
    slurm = new(ping=answer)
    facts = collect(slurm, ALL, 60)
    assert [one.code for one in facts.problems] == [code]
    assert (facts.nodes, facts.partitions, facts.jobs, facts.controller_responding) == (None, None, None, False)
    assert len(slurm.asked) == 2, "each further call would wait half a minute for the controller"
    assert words in find_missing(facts)


def test_one_of_two_controllers_is_enough() -> None:
    ping = CommandResult(1, "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n", "")
    facts = collect(new(ping=ping), [PARTITIONS], 60)
    assert facts.controller_responding
    assert [(one.code, one.severity) for one in facts.problems] == [("controller_not_responding", "warning")]
    assert not find_missing(facts)


def test_a_machine_without_slurm_is_no_failure() -> None:
    facts = collect(FakeSlurm({"": CommandResult(None, "", "No such file or directory", missing=True)}), ALL, 60)
    assert [one.code for one in facts.problems] == ["slurm_missing"]
    assert "install Slurm's client commands" in find_missing(facts)


def test_what_breaks_off_is_told() -> None:
    slurm = new(**{"show partition": SILENT})
    facts = collect(slurm, ALL, 60)
    assert facts.nodes is not None
    assert facts.partitions is None
    assert "its partitions (The controller does not answer" in find_missing(facts)


def test_commands_of_another_release_are_told() -> None:
    slurm = new(**{"--version": "slurm 23.11.4"})
    assert "client_version_differs" in [one.code for one in collect(slurm, [], 60).problems]


def node(state: str, reason: str = "(null)") -> str:
    reason = reason.replace("]", "@2026-11-30T12:00:00]")
    lines = ["NodeName=n1 Version=24.11.5", f"State={state}", f"Reason={reason}", "SlurmdStartTime=2026-11-30T12:00:00"]
    return "\n   ".join(lines)


@pytest.mark.parametrize(
    ("state", "reason", "code", "severity"),
    [
        ("IDLE", "(null)", None, None),
        ("ALLOCATED", "(null)", None, None),
        ("IDLE+CLOUD+POWERED_DOWN", "(null)", None, None),
        ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "(null)", None, None),
        ("IDLE+CLOUD+NOT_RESPONDING", "(null)", "node_not_responding", "warning"),
        ("DOWN+DRAIN+NOT_RESPONDING+REBOOT_ISSUED", "new kernel : reboot issued [root]", "node_rebooting", "info"),
        ("DOWN*", "Not responding [slurm]", "node_not_responding", "critical"),
        ("IDLE+NOT_RESPONDING", "(null)", "node_not_responding", "warning"),
        ("DOWN", "CPU dead [bob]", "node_down", "critical"),
        ("IDLE+DRAIN", "ECC errors [bob]", "node_drained", "warning"),
        ("MIXED+DRAIN", "ECC errors [bob]", "node_draining", "warning"),
        ("IDLE+COMPLETING+DRAIN", "x [bob]", "node_draining", "warning"),
        ("IDLE+DRAIN", "trainyard: driver 580 [root]", "node_held_by_trainyard", "info"),
        ("DOWN+DRAIN", "trainyard: driver 580 [root]", "node_held_by_trainyard", "info"),
        ("IDLE+DRAIN", "gres/gpu count reported lower than configured (7 < 8) [slurm]", "gpus_missing", "critical"),
        ("IDLE+DRAIN+INVALID_REG", "gres/gpu count too low (7 < 8) [slurm]", "gpus_missing", "critical"),
        ("DOWN+DRAIN", "GPU missing: /dev/nvidia7 [root]", "gpus_missing", "critical"),
        ("IDLE+INVALID_REG", "(null)", "node_invalid_registration", "critical"),
        ("DRAIN+IDLE", "Low RealMemory (reported:1 < configured:2) [slurm]", "node_smaller_than_declared", "critical"),
        ("DOWN", "Node unexpectedly rebooted [slurm]", "node_rebooted", "critical"),
        ("IDLE+DRAIN", "Kill task failed [root]", "node_kill_task_failed", "critical"),
        ("IDLE+DRAIN", "Prolog error [root]", "node_prolog_failed", "critical"),
    ],
)  # fmt: skip
def test_says_what_is_wrong_with_a_node(state: str, reason: str, code: str | None, severity: str | None) -> None:
    problems = list(of_nodes(read(node(state, reason)).nodes, "24.11.5"))
    assert [(one.code, one.severity, one.node) for one in problems] == ([(code, severity, "n1")] if code else [])
    for one in problems:
        assert "{" not in one.message + one.action
        assert "n1" in one.message
        assert one.action.endswith(".")


def test_a_node_ahead_of_the_controller_is_told() -> None:
    problems = list(of_nodes(read(node("IDLE")).nodes, "22.05.8"))
    assert [one.code for one in problems] == ["slurmd_newer_than_controller"]


def test_a_partition_that_starts_nothing_is_told() -> None:
    partitions = read("PartitionName=a State=UP\nPartitionName=b State=INACTIVE").partitions
    assert [one.message for one in of_partitions(partitions)] == ["Partition b is INACTIVE."]
