# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Draining, taking down and resuming Slurm nodes without getting in anybody's way.

Slurm keeps one reason with a node. Ours begins with a mark; a node with another reason belongs to somebody else, and
the one who came first keeps it.
Sources: scontrol(1), squeue(1), slurm.conf(5) of Slurm 22.05 and 24.11.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.trainyard.cluster.plugins.module_utils._command import RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_ask import answer, ask
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_hostlist import HostlistError, expand
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_output import read
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_records import MARK, Node, is_held
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import SlurmError

DRAINED = "drained"
DOWN = "down"
RESUMED = "resumed"

# Each call of a command; a controller that fails over answers well within that.
_CALL_SECONDS = 60.0
# Names in one call: the kernel takes 128 KiB in one argument.
_BATCH = 1000
_LIST = re.compile(r"[A-Za-z0-9._,\s\[\]-]+\Z")
_NOT_FOUND = re.compile(r"Node (\S+) not found")
_BUSY_STATES = frozenset({"ALLOCATED", "MIXED"})
# Jobs in these hold on to their nodes.
_ON_NODES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,RESIZING,SIGNALING,STAGE_OUT"
_WAS = " (was: "


class UnfinishedError(SlurmError):
    """Something went wrong after nodes were changed."""


@dataclass(frozen=True)
class Request:
    """What is wanted. wait and poll, both in seconds: how long jobs may take to end, and how often to look.

    reason: without the mark. kill_jobs: go down though jobs run.
    """

    state: str
    nodes: Sequence[str]
    reason: str | None
    wait: bool
    timeout: float
    poll: float
    kill_jobs: bool


@dataclass(frozen=True)
class Timer:
    """How to wait and to tell the time; the tests hand in their own."""

    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class RunningJob:
    """A job on nodes: id as squeue writes it, user, state, names of its nodes."""

    id: str
    user: str
    state: str
    nodes: list[str]


@dataclass(frozen=True)
class NodeResult:
    """A node afterwards. left_alone: it was somebody else's, so that nothing was done. jobs: what still runs there."""

    name: str
    state: str | None
    flags: list[str]
    reason: str | None
    reason_user: str | None
    held_by_trainyard: bool
    left_alone: bool
    jobs: list[str]


@dataclass(frozen=True)
class Result:
    """What was done. before and after: a line a node that changes. warnings: sentences about nodes left alone."""

    changed: bool
    nodes: list[NodeResult]
    before: str
    after: str
    warnings: list[str]


@dataclass(frozen=True)
class _Step:
    """What to do with a node: the state for scontrol ("" for nothing) and the reason; why it is left alone."""

    node: Node
    state: str
    reason: str | None = None
    left_alone: str = ""


def find_request_fault(request: Request) -> str:
    """Return a sentence about what can't be done as it is asked for; empty if nothing is wrong."""
    if not [part for part in request.nodes if part.strip()]:
        return "nodes is empty: write the names of the nodes, as gpu1 or gpu[1-8]."
    for part in request.nodes:
        if not _LIST.match(part) or part.lstrip().startswith("-"):
            return f"nodes holds '{part}': write node names or lists in Slurm's syntax, as gpu1 or gpu[1-8]."
    reason = request.reason or ""
    if request.state in (DRAINED, DOWN) and not reason.strip():
        return f"reason is missing: state {request.state} needs one, which operators see in sinfo -R."
    # scontrol takes a quotation mark at the end for one of the shell's.
    if '"' in reason or not reason.isprintable():
        return f"reason is {reason!r}: write one line without double quotation marks."
    if request.timeout < 0 or request.poll < 1:
        return f"timeout is {request.timeout:g} and poll {request.poll:g}: give seconds, 0 or more and 1 or more."
    return ""


def apply(run: RunCommand, request: Request, check_only: bool, timer: Timer | None = None) -> Result:
    """Bring the nodes to the state. Raises SlurmError with a sentence; what was done until then stays."""
    timer = timer or Timer()
    names = _hostnames(run, request.nodes)
    nodes = _show(run, names)
    settings = _settings(run) if request.state == DOWN or any(node.state == "DOWN" for node in nodes) else {}
    steps = [_plan(node, request, settings) for node in nodes]
    todo = [step for step in steps if step.state]
    waits = request.wait and request.state in (DRAINED, DOWN)
    if request.state == DOWN:
        _refuse_down(run, steps, waits, request.kill_jobs)
    if not check_only:
        first = todo
        if request.state == DOWN:
            # Drained, a node gets no new job while its last ones end, and stays out of service when it registers.
            first = [_Step(step.node, "drain", step.reason) for step in todo if not step.node.drained]
        _update(run, first)
        try:
            if request.state == DOWN:
                steps += _take_down(run, request, todo, settings, timer)
            elif waits:
                _wait(run, names, request.timeout, request.poll, timer)
        except SlurmError as error:
            raise UnfinishedError(str(error)) if first else error from None
        nodes = _show(run, names) if todo or waits else nodes
    jobs = _jobs(run, names) if request.state in (DRAINED, DOWN) else []
    alone = {step.node.name for step in steps if step.left_alone}
    return Result(
        changed=bool(todo),
        nodes=[_result(node, node.name in alone, jobs) for node in nodes],
        before="".join(f"{step.node.name}: {_service(step.node)}\n" for step in todo),
        after="".join(f"{step.node.name}: {_promise(request.state, step)}\n" for step in todo),
        warnings=[step.left_alone for step in steps if step.left_alone],
    )


def _take_down(
    run: RunCommand, request: Request, todo: Sequence[_Step], settings: dict[str, str | None], timer: Timer
) -> list[_Step]:
    """Take down what is drained, when its jobs have ended. Returns what somebody else took down meanwhile."""
    if request.kill_jobs:
        _update(run, todo)
        return []
    names = [step.node.name for step in todo]
    _wait(run, names, request.timeout if request.wait else 0, request.poll, timer)
    # Jobs may take a day to end, and an operator may have taken a node over meanwhile.
    now = [_plan(node, request, settings) for node in _show(run, names)]
    _refuse_others(now)
    taken = [step for step in now if step.left_alone]
    alone = {step.node.name for step in taken}
    _update(run, [step for step in todo if step.node.name not in alone])
    return taken


def _hostnames(run: RunCommand, lists: Iterable[str]) -> list[str]:
    """Return the names in the lists, each once."""
    joined = ",".join(part.strip() for part in lists)
    try:
        names = ask(run, ["scontrol", "show", "hostnames", joined], _CALL_SECONDS).split()
    except SlurmError as error:
        if "hostlist" not in str(error):
            raise
        names = []
    if not names:
        raise SlurmError(f"nodes holds '{joined}': write node names or lists in Slurm's syntax, as gpu1 or gpu[1-8].")
    return list(dict.fromkeys(names))


def _batches(names: Sequence[str]) -> Iterable[Sequence[str]]:
    return (names[start : start + _BATCH] for start in range(0, len(names), _BATCH))


def _show(run: RunCommand, names: Sequence[str]) -> list[Node]:
    """Return the nodes in the order of the names. Raises SlurmError, with all names that are unknown."""
    found: dict[str, Node] = {}
    unknown: list[str] = []
    for batch in _batches(names):
        argv = ["scontrol", "--all", "show", "node", ",".join(batch)]
        result = run(argv, _CALL_SECONDS)
        missing = _NOT_FOUND.findall(f"{result.out}\n{result.err}")
        if result.rc != 0 and not missing:
            answer(argv, result, _CALL_SECONDS)
        unknown += missing
        if len(missing) < len(batch):
            found.update((node.name, node) for node in read(result.out).nodes)
    unknown += [name for name in names if name not in found and name not in unknown]
    if unknown:
        raise SlurmError(
            f"nodes: {', '.join(unknown)} {'is no node' if len(unknown) == 1 else 'are no nodes'} of this cluster: "
            "write names that sinfo shows."
        )
    return [found[name] for name in names]


def _settings(run: RunCommand) -> dict[str, str | None]:
    return read(ask(run, ["scontrol", "show", "config"], _CALL_SECONDS)).configuration


def _is_slurms_own(node: Node, settings: dict[str, str | None]) -> bool:
    """Say whether Slurm itself gave the reason. As root, a person may have done it."""
    user = (settings.get("SlurmUser") or "").partition("(")[0]
    return bool(user) and user != "root" and node.reason_user == user


def _plan(node: Node, request: Request, settings: dict[str, str | None]) -> _Step:
    """Decide about one node. settings: the controller's, where a node is down or shall be."""
    wanted = MARK + (request.reason or "").strip().removeprefix(MARK.strip()).strip()
    held = is_held(node.state, node.flags)
    ours = node.held_by_trainyard
    same = ours and (node.reason == wanted or (node.reason or "").startswith(wanted + _WAS))
    if request.state == RESUMED:
        if not held:
            return _Step(node, "")
        if ours and (same or not (request.reason or "").strip()):
            return _Step(node, "resume")
        return _Step(node, "", left_alone=f"{_whose(node)}, and is not resumed.")
    reason = node.reason if ours else wanted + (f"{_WAS}{node.reason})" if node.reason else "")
    if request.state == DOWN:
        # With this setting Slurm takes nodes that answer out of DOWN at once; what it leaves is DRAIN.
        returned = settings.get("ReturnToService") == "2" and node.drained and not _is_busy(node)
        if node.state == "DOWN" or (same and returned):
            return _Step(node, "", left_alone="" if same else f"{_whose(node)}, and keeps that reason.")
        if held and not ours:
            return _Step(node, "", left_alone=f"{_whose(node)}, and is not taken down.")
        return _Step(node, "down", reason)
    if node.drained or (held and node.reason and not ours and not _is_slurms_own(node, settings)):
        return _Step(node, "", left_alone="" if same else f"{_whose(node)}, and keeps that reason.")
    return _Step(node, "drain", reason)


def _is_busy(node: Node) -> bool:
    return node.state in _BUSY_STATES or "COMPLETING" in node.flags


def _whose(node: Node) -> str:
    by = f" by {node.reason_user}" if node.reason_user else ""
    return f"{node.name} was {_state_words(node)}{by} before ({node.reason or 'no reason given'})"


def _service(node: Node) -> str:
    """Say what Slurm does with the node, and why."""
    return _state_words(node) + (f" ({node.reason})" if node.reason else "")


def _state_words(node: Node) -> str:
    kept = [word for word, is_so in (("down", node.state == "DOWN"), ("drained", node.drained)) if is_so]
    if not kept and is_held(node.state, node.flags):
        kept = ["failed"]
    return " and ".join(kept) or "in service"


def _promise(state: str, step: _Step) -> str:
    return "in service" if state == RESUMED else f"{state} ({step.reason})"


def _refuse_down(run: RunCommand, steps: Sequence[_Step], waits: bool, kill_jobs: bool) -> None:
    """Stop ahead of any change where going down is somebody else's matter, or would end jobs."""
    _refuse_others(steps)
    if not waits and not kill_jobs:
        jobs = _jobs(run, [step.node.name for step in steps if step.state])
        if jobs:
            raise SlurmError(
                f"Going down would end jobs: {_describe(jobs)}. "
                "Write wait: true to let them end first, or kill_jobs: true."
            )


def _refuse_others(steps: Sequence[_Step]) -> None:
    others = [step.left_alone for step in steps if step.left_alone.endswith("is not taken down.")]
    if others:
        raise SlurmError(" ".join(others))


def _update(run: RunCommand, steps: Sequence[_Step]) -> None:
    """Carry the steps out, those that are alike in one call."""
    alike: dict[tuple[str, str | None], list[str]] = {}
    for step in steps:
        alike.setdefault((step.state, step.reason), []).append(step.node.name)
    for (state, reason), names in alike.items():
        for batch in _batches(names):
            argv = ["scontrol", "update", f"nodename={','.join(batch)}", f"state={state}"]
            argv += [f"reason={reason}"] if reason else []
            ask(run, argv, _CALL_SECONDS)


def _jobs(run: RunCommand, names: Sequence[str]) -> list[RunningJob]:
    """Return the jobs that hold on to one of the nodes."""
    jobs: dict[str, RunningJob] = {}
    for batch in _batches(names):
        argv = ["squeue", "--all", "--local", "--noheader", f"--nodelist={','.join(batch)}", f"--states={_ON_NODES}"]
        for line in ask(run, [*argv, "--format=%i|%u|%T|%N"], _CALL_SECONDS).splitlines():
            words = [word.strip() for word in line.split("|")]
            if len(words) == 4:
                jobs[words[0]] = RunningJob(words[0], words[1], words[2], _expand(words[3]))
    return list(jobs.values())


def _expand(hostlist: str) -> list[str]:
    try:
        return expand(hostlist)
    except HostlistError:
        return []


def _describe(jobs: Sequence[RunningJob]) -> str:
    shown = [
        f"{job.id} of {job.user} on {','.join(job.nodes[:3])}{',...' if len(job.nodes) > 3 else ''}"
        for job in jobs[:10]
    ]
    return "; ".join(shown) + (f" and {len(jobs) - 10} more" if len(jobs) > 10 else "")


def _wait(run: RunCommand, names: Sequence[str], timeout: float, poll: float, timer: Timer) -> None:
    """Return when no job holds on to the nodes, which are drained or down.

    A controller that is silent for a while (failover) is asked again. Raises SlurmError at once where a node is back in
    service: its jobs never end then, and the caller must not work on it.
    """
    if not names:
        return
    end = timer.clock() + timeout
    while True:
        jobs: list[RunningJob] = []
        silent: SlurmError | None = None
        nodes: list[Node] = []
        try:
            nodes = _show(run, names)
            busy = [node.name for node in nodes if _is_busy(node)]
            jobs = _jobs(run, names)
        except SlurmError as error:
            silent, busy = error, list(names)
        resumed = [node.name for node in nodes if not is_held(node.state, node.flags)]
        if resumed:
            raise SlurmError(
                f"{', '.join(resumed[:10])} went back into service while this task waited, so somebody else resumed "
                "the nodes: agree with them, and run the task again."
            )
        if not busy and not jobs:
            return
        left = end - timer.clock()
        if left <= 0:
            break
        timer.sleep(min(poll, left))
    if silent is not None:
        raise silent
    what = f"jobs still run: {_describe(jobs)}" if jobs else f"{', '.join(busy[:10])} still has a job to clean up after"
    raise SlurmError(
        f"After {timeout:g} seconds {what}. "
        "The nodes stay drained; wait longer with timeout, or end the jobs with scancel."
    )


def _result(node: Node, left_alone: bool, jobs: Sequence[RunningJob]) -> NodeResult:
    return NodeResult(
        name=node.name,
        state=node.state,
        flags=node.flags,
        reason=node.reason,
        reason_user=node.reason_user,
        held_by_trainyard=node.held_by_trainyard,
        left_alone=left_alone,
        jobs=[job.id for job in jobs if node.name in job.nodes],
    )
