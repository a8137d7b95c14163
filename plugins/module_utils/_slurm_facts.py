# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Everything about a Slurm cluster in one structure: JSON where the release has it, text where not."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ansible_collections.trainyard.cluster.plugins.module_utils._command import RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_ask import ask, is_authentication_failure
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_output import read
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_problems import (
    CRITICAL,
    WARNING,
    SlurmProblem,
    of_controllers,
    of_nodes,
    of_partitions,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_records import (
    Controller,
    Job,
    Node,
    Output,
    Partition,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_text import parse_controllers
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import SlurmError

NODES = "nodes"
PARTITIONS = "partitions"
JOBS = "jobs"
# scontrol has no --json before this release.
_JSON_SINCE = (23, 2)
_SILENT = frozenset({"slurm_missing", "controller_down", "authentication_failed", "slurm_not_answering"})
_OVER = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)


@dataclass(frozen=True)
class SlurmFacts:
    """What is known of a cluster. None: not asked for, or no answer (problems tells why).

    source: "json" or "text", which the nodes were read from. jobs: those that are not over.
    """

    version: str | None = None
    cluster_name: str | None = None
    source: str | None = None
    controllers: list[Controller] = field(default_factory=list)
    controller_responding: bool = False
    nodes: list[Node] | None = None
    partitions: list[Partition] | None = None
    jobs: list[Job] | None = None
    jobs_by_node: dict[str, list[int]] | None = None
    problems: list[SlurmProblem] = field(default_factory=list)


def collect(run: RunCommand, gather: Collection[str], timeout: float) -> SlurmFacts:
    """Ask Slurm for what is in gather (NODES, PARTITIONS, JOBS)."""
    try:
        said = ask(run, ["scontrol", "--version"], timeout)
    except SlurmError as error:
        problem = SlurmProblem(
            CRITICAL,
            "slurm_missing",
            None,
            "Slurm's commands can't be run on this machine.",
            str(error),
            "Run the task on the controller or on a machine with Slurm's client commands.",
        )
        return SlurmFacts(problems=[problem])
    match = re.search(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?", said)
    version = match[0] if match else None
    result = run(["scontrol", "ping"], timeout)  # its exit status is 1 if one of two controllers is down
    controllers = parse_controllers(result.out)
    responding = any(one.responding for one in controllers)
    problems = list(of_controllers(controllers))
    if not responding and is_authentication_failure(result.err):
        problems = [_no_identity(result.err)]  # ping calls controllers DOWN that it could not ask
    if not responding:
        if not problems:
            problems.append(
                _silent("the controllers", (result.err or result.out).strip()[:200] or "scontrol ping said nothing")
            )
        return SlurmFacts(version=version, controllers=controllers, problems=problems)
    return _collect_cluster(_Asker(run, timeout, version, problems), controllers, gather)


def _no_identity(complaint: str) -> SlurmProblem:
    return SlurmProblem(
        CRITICAL,
        "authentication_failed",
        None,
        "Slurm can't tell who asks, so that it does not answer.",
        complaint.strip().splitlines()[-1],
        "See that munge runs on this machine with the controller's key, and that the clocks agree.",
    )


@dataclass
class _Asker:
    """Asks in the way that suits the release, and notes what gave no answer."""

    run: RunCommand
    timeout: float
    version: str | None
    problems: list[SlurmProblem]

    def text(self, what: str, argv: Sequence[str]) -> Output | None:
        try:
            return read(ask(self.run, argv, self.timeout))
        except SlurmError as error:
            self.problems.append(_silent(what, str(error)))
            return None

    def json(self, argv: Sequence[str]) -> Output | None:
        """Return None where this release has no JSON, or none that can be read: the text is asked for then."""
        release = tuple(int(part) for part in (self.version or "0.0").split(".")[:2])
        if release < _JSON_SINCE:
            return None
        try:
            return read(ask(self.run, argv, self.timeout))
        except SlurmError:
            return None


def _silent(what: str, evidence: str) -> SlurmProblem:
    return SlurmProblem(
        CRITICAL,
        "slurm_not_answering",
        None,
        f"Slurm does not tell about {what}.",
        evidence,
        "See that slurmctld and munge run, and read /var/log/slurm/slurmctld.log on the controller.",
    )


def _collect_cluster(asker: _Asker, controllers: list[Controller], gather: Collection[str]) -> SlurmFacts:
    shown = asker.text("its configuration", ["scontrol", "show", "config"])
    configuration = shown.configuration if shown else {}
    controller_version = configuration.get("SLURM_VERSION") or asker.version
    nodes = partitions = jobs = None
    source = None
    if NODES in gather:
        found = asker.json(["scontrol", "--all", "show", "nodes", "--json"])
        source = "json" if found else "text"
        found = found or asker.text("its nodes", ["scontrol", "--all", "--details", "show", "node"])
        nodes = found.nodes if found else None
    if PARTITIONS in gather:
        # The JSON of 24.11 does not tell which partition is the default.
        found = asker.text("its partitions", ["scontrol", "--all", "show", "partition"])
        partitions = found.partitions if found else None
    if JOBS in gather:
        # In a federation the commands may show the jobs of its other clusters too.
        found = asker.json(["squeue", "--all", "--local", "--json"])
        found = found or asker.text("its jobs", ["scontrol", "--all", "--local", "--details", "show", "job"])
        jobs = [job for job in found.jobs if job.state not in _OVER or "COMPLETING" in job.flags] if found else None
    if asker.version != controller_version and asker.version and configuration:
        asker.problems.append(
            SlurmProblem(
                WARNING,
                "client_version_differs",
                None,
                "Slurm's commands on this machine are of another version than the controller.",
                f"scontrol {asker.version}, slurmctld {controller_version}",
                "Upgrade this machine's Slurm to the controller's version.",
            )
        )
    problems = [
        *asker.problems,
        *of_nodes(nodes or [], controller_version),
        *of_partitions(partitions or []),
    ]
    return SlurmFacts(
        version=controller_version,
        cluster_name=configuration.get("ClusterName"),
        source=source if nodes is not None else None,
        controllers=controllers,
        controller_responding=True,
        nodes=nodes,
        partitions=partitions,
        jobs=jobs,
        jobs_by_node=None if jobs is None else _by_node(jobs),
        problems=problems,
    )


def _by_node(jobs: Sequence[Job]) -> dict[str, list[int]]:
    """Return the jobs on each node that has some. A pending job is on none."""
    by_node: dict[str, list[int]] = {}
    for job in jobs:
        for name in job.nodes:
            by_node.setdefault(name, []).append(job.id)
    return by_node


def find_missing(facts: SlurmFacts) -> str:
    """Return a sentence about what the cluster did not tell; empty if it told all that was asked."""
    silent = [one for one in facts.problems if one.code in _SILENT]
    return " ".join(f"{one.message.rstrip('.')} ({one.evidence.rstrip('.')}). {one.action}" for one in silent)
