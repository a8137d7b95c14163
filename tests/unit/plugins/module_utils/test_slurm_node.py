# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.trainyard.cluster.plugins.module_utils._command import CommandResult
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_hostlist import HostlistError, expand
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_node import (
    Request,
    Result,
    Timer,
    UnfinishedError,
    apply,
    find_request_fault,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import SlurmError


@dataclass
class FakeNode:
    """A node as slurmctld keeps it."""

    state: str = "IDLE"
    flags: set[str] = field(default_factory=set)
    reason: str = ""
    user: str = "root"
    # seconds until its job ends; 0 is no job
    job: float = 0


class FakeSlurm:
    """A controller with a clock that runs only while somebody sleeps."""

    def __init__(self, return_to_service: int = 1, **nodes: FakeNode) -> None:
        self.nodes = nodes
        self.return_to_service = return_to_service
        self.now = 0.0
        self.updates: list[str] = []
        self.broken: str = ""
        # what somebody else does while this module sleeps
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def __call__(self, argv: Sequence[str], timeout: float) -> CommandResult:
        line = " ".join(argv)
        if self.broken and "hostnames" not in line:
            return CommandResult(1, "", self.broken)
        if "show hostnames" in line:
            try:
                return CommandResult(0, "\n".join(expand(argv[-1])), "")
            except HostlistError:
                return CommandResult(1, "", f"Invalid hostlist: {argv[-1]}")
        if "show config" in line:
            settings = f"ClusterName = c\nSlurmUser = slurm(64030)\nReturnToService = {self.return_to_service}\n"
            return CommandResult(0, settings, "")
        if argv[0] == "squeue":
            names = next(word for word in argv if word.startswith("--nodelist=")).partition("=")[2].split(",")
            return CommandResult(0, "".join(f"7{name}|ann|RUNNING|{name}\n" for name in names if self._runs(name)), "")
        if "show node" in line:
            return self._show(argv[-1].split(","))
        return self._update(dict(word.split("=", 1) for word in argv[2:]))

    def _runs(self, name: str) -> bool:
        return self.nodes[name].job > self.now

    def _show(self, names: Sequence[str]) -> CommandResult:
        output = ""
        for name in names:
            node = self.nodes.get(name)
            if node is None:
                output += f"Node {name} not found\n"
                continue
            state = "+".join(
                ["MIXED" if self._runs(name) and node.state == "IDLE" else node.state, *sorted(node.flags)]
            )
            output += f"NodeName={name} Arch=x86_64\n   State={state} ThreadsPerCore=1\n"
            output += f"   Reason={node.reason} [{node.user}@2026-11-30T12:00:00]\n\n" if node.reason else "\n"
        return CommandResult(1 if "not found" in output else 0, output, "")

    def _update(self, words: dict[str, str]) -> CommandResult:
        self.updates.append(f"{words['nodename']} {words['state']} {words.get('reason', '')}".strip())
        for name in words["nodename"].split(","):
            node = self.nodes[name]
            if words["state"] == "resume":
                node.state, node.flags, node.reason = "IDLE", set(), ""
                continue
            assert words["reason"], "scontrol demands one"
            node.reason, node.user = words["reason"], "root"
            if words["state"] == "down":
                node.job = 0
                node.state = "DOWN" if self.return_to_service < 2 else "IDLE"
            else:
                node.flags.add("DRAIN")
        return CommandResult(0, "", "")


def request(state: str, nodes: Sequence[str] = ("n1",), **changes: Any) -> Request:
    reason = None if state == "resumed" else "driver"
    values = {"reason": reason, "wait": True, "timeout": 100, "poll": 10, "kill_jobs": False, **changes}
    return Request(state=state, nodes=nodes, **values)


def bring(slurm: FakeSlurm, wanted: Request, check_only: bool = False) -> Result:
    assert find_request_fault(wanted) == ""
    return apply(slurm, wanted, check_only, Timer(slurm.sleep, lambda: slurm.now))


def drained(reason: str, user: str = "root", **more: Any) -> FakeNode:
    return FakeNode(flags={"DRAIN"}, reason=reason, user=user, **more)


def test_drains_waits_and_resumes() -> None:
    slurm = FakeSlurm(n1=FakeNode(job=25), n2=FakeNode())
    result = bring(slurm, request("drained", ["n[1-2]"]))
    assert slurm.now == 30
    assert slurm.updates == ["n1,n2 drain trainyard: driver"]
    assert result.changed
    assert result.before == "n1: in service\nn2: in service\n"
    assert result.after == "n1: drained (trainyard: driver)\nn2: drained (trainyard: driver)\n"
    assert [(one.name, one.flags, one.held_by_trainyard, one.jobs) for one in result.nodes] == [
        ("n1", ["DRAIN"], True, []),
        ("n2", ["DRAIN"], True, []),
    ]
    assert not bring(slurm, request("drained", ["n[1-2]"])).changed
    result = bring(slurm, request("resumed", ["n1,n2,n1"]))
    assert (result.changed, result.before, result.after) == (
        True,
        "n1: drained (trainyard: driver)\nn2: drained (trainyard: driver)\n",
        "n1: in service\nn2: in service\n",
    )
    assert slurm.updates[1:] == ["n1,n2 resume"]
    assert not bring(slurm, request("resumed", ["n1", "n2"])).changed


@pytest.mark.parametrize("state", ["drained", "down", "resumed"])
def test_check_mode_changes_nothing_and_does_not_wait(state: str) -> None:
    node = drained("trainyard: driver") if state == "resumed" else FakeNode(job=25)
    slurm = FakeSlurm(n1=node)
    result = bring(slurm, request(state), check_only=True)
    assert result.changed
    assert (slurm.updates, slurm.now) == ([], 0)
    checked = (result.before, result.after)
    result = bring(slurm, request(state))
    assert (result.before, result.after) == checked


def test_says_which_jobs_still_run_when_time_is_up() -> None:
    slurm = FakeSlurm(n1=FakeNode(job=1000))
    with pytest.raises(
        SlurmError, match=r"After 100 seconds jobs still run: 7n1 of ann on n1\. The nodes stay drained"
    ):
        bring(slurm, request("drained"))
    assert slurm.now == 100
    assert slurm.nodes["n1"].flags == {"DRAIN"}


def test_need_not_wait() -> None:
    slurm = FakeSlurm(n1=FakeNode(job=1000))
    result = bring(slurm, request("drained", wait=False))
    assert (slurm.now, result.nodes[0].jobs) == (0, ["7n1"])


def test_waits_for_a_node_that_was_drained_before() -> None:
    slurm = FakeSlurm(n1=drained("disk", "bob", job=15))
    result = bring(slurm, request("drained"))
    assert (result.changed, slurm.now) == (False, 20)


def test_waits_through_the_failure_of_a_controller() -> None:
    slurm = FakeSlurm(n1=FakeNode(job=15))

    def sleep(seconds: float) -> None:
        slurm.sleep(seconds)
        slurm.broken = "slurm_load_node error: Unable to contact slurm controller" if slurm.now == 10 else ""

    result = apply(slurm, request("drained"), False, Timer(sleep, lambda: slurm.now))
    assert result.changed
    assert slurm.now == 20


@pytest.mark.parametrize("state", ["drained", "resumed"])
@pytest.mark.parametrize(
    "node",
    [
        drained("disk", "bob"),
        drained("Kill task failed", "slurm"),
        drained(""),
        FakeNode(state="DOWN", reason="PSU", user="bob"),
        FakeNode(flags={"FAIL"}, reason="fan", user="bob"),
        drained("not trainyard: driver"),
    ],
    ids=lambda node: f"{node.state} {node.reason}",
)
def test_leaves_alone_what_is_another_s(state: str, node: FakeNode) -> None:
    reason = node.reason
    slurm = FakeSlurm(n1=node, n2=FakeNode())
    result = bring(slurm, request(state, ["n1", "n2"]))
    assert [one.left_alone for one in result.nodes] == [True, False]
    assert slurm.nodes["n1"].reason == reason
    assert not [line for line in slurm.updates if "n1" in line]
    assert len(result.warnings) == 1
    assert (reason or "no reason given") in result.warnings[0]


def test_resumes_only_what_was_drained_for_the_reason() -> None:
    slurm = FakeSlurm(n1=drained("trainyard: driver"), n2=drained("trainyard: Xid 79"))
    result = bring(slurm, request("resumed", ["n[1-2]"], reason="driver"))
    assert slurm.updates == ["n1 resume"]
    assert result.warnings == ["n2 was drained by root before (trainyard: Xid 79), and is not resumed."]


def test_the_first_reason_of_ours_stays() -> None:
    slurm = FakeSlurm(n1=drained("trainyard: Xid 79"))
    result = bring(slurm, request("drained"))
    assert (result.changed, result.nodes[0].reason) == (False, "trainyard: Xid 79")
    assert result.warnings == ["n1 was drained by root before (trainyard: Xid 79), and keeps that reason."]


def test_drains_what_slurm_took_down_and_keeps_its_reason() -> None:
    slurm = FakeSlurm(n1=FakeNode("DOWN", {"NOT_RESPONDING"}, "Not responding", "slurm"))
    assert bring(slurm, request("drained")).changed
    assert slurm.updates == ["n1 drain trainyard: driver (was: Not responding)"]
    assert not bring(slurm, request("drained")).changed
    assert bring(slurm, request("resumed", reason="driver")).changed


@pytest.mark.parametrize("return_to_service", [1, 2])
def test_takes_down_when_the_jobs_have_ended(return_to_service: int) -> None:
    slurm = FakeSlurm(return_to_service, n1=FakeNode(job=15))
    result = bring(slurm, request("down"))
    assert result.changed
    assert slurm.now == 20
    assert slurm.updates == ["n1 drain trainyard: driver", "n1 down trainyard: driver"]
    assert result.after == "n1: down (trainyard: driver)\n"
    assert not bring(slurm, request("down")).changed
    assert bring(slurm, request("resumed")).changed


def test_takes_down_what_it_drained() -> None:
    slurm = FakeSlurm(n1=drained("trainyard: Xid 79"))
    assert bring(slurm, request("down")).changed
    assert slurm.updates == ["n1 down trainyard: Xid 79"]


def test_ends_jobs_only_when_told() -> None:
    slurm = FakeSlurm(n1=FakeNode(job=1000))
    with pytest.raises(SlurmError, match=r"Going down would end jobs: 7n1 of ann on n1\. Write wait: true"):
        bring(slurm, request("down", wait=False))
    with pytest.raises(SlurmError, match="After 100 seconds jobs still run"):
        bring(slurm, request("down"))
    assert slurm.nodes["n1"].state == "IDLE"
    assert bring(slurm, request("down", kill_jobs=True)).changed
    assert slurm.nodes["n1"].state == "DOWN"


def test_does_not_take_down_what_another_drained() -> None:
    slurm = FakeSlurm(n1=drained("disk", "bob"), n2=FakeNode())
    with pytest.raises(SlurmError, match=r"n1 was drained by bob before \(disk\), and is not taken down\."):
        bring(slurm, request("down", ["n1", "n2"]))
    assert slurm.updates == []


def test_does_not_take_down_what_another_drained_while_it_waited() -> None:
    slurm = FakeSlurm(n1=FakeNode(job=15), n2=FakeNode())
    slurm.meanwhile = lambda: slurm.nodes.update(n1=drained("disk", "bob"))
    with pytest.raises(SlurmError, match=r"n1 was drained by bob before \(disk\), and is not taken down\."):
        bring(slurm, request("down", ["n1", "n2"]))
    assert slurm.updates == ["n1,n2 drain trainyard: driver"]
    assert slurm.nodes["n1"].reason == "disk"


def test_keeps_the_reason_of_what_another_took_down_while_it_waited() -> None:
    slurm = FakeSlurm(n1=FakeNode(job=5), n2=FakeNode())
    slurm.meanwhile = lambda: slurm.nodes.update(n1=FakeNode("DOWN", reason="PSU", user="bob"))
    result = bring(slurm, request("down", ["n1", "n2"]))
    assert slurm.updates == ["n1,n2 drain trainyard: driver", "n2 down trainyard: driver"]
    assert [(one.name, one.reason, one.left_alone) for one in result.nodes] == [
        ("n1", "PSU", True),
        ("n2", "trainyard: driver", False),
    ]
    assert result.warnings == ["n1 was down by bob before (PSU), and keeps that reason."]


@pytest.mark.parametrize("state", ["drained", "down"])
def test_says_that_another_resumed_what_it_waits_for(state: str) -> None:
    slurm = FakeSlurm(n1=FakeNode(job=15), n2=FakeNode())
    slurm.meanwhile = lambda: slurm.nodes.update(n2=FakeNode(job=1000))
    with pytest.raises(UnfinishedError, match=r"^n2 went back into service while this task waited"):
        bring(slurm, request(state, ["n1", "n2"]))
    assert slurm.now == 10
    assert slurm.updates == ["n1,n2 drain trainyard: driver"]


def test_what_another_took_down_is_down() -> None:
    slurm = FakeSlurm(n1=FakeNode("DOWN", reason="PSU", user="bob"))
    result = bring(slurm, request("down"))
    assert (result.changed, result.nodes[0].left_alone) == (False, True)


def test_names_all_nodes_that_are_not_there() -> None:
    with pytest.raises(
        SlurmError, match=r"^nodes: n2, x are no nodes of this cluster: write names that sinfo shows\.$"
    ):
        bring(FakeSlurm(n1=FakeNode()), request("drained", ["n[1-2]", "x"]))


@pytest.mark.parametrize(
    ("complaint", "sentence"),
    [
        (
            "slurm_load_node error: Unable to contact slurm controller (connect failure)",
            "The controller does not answer",
        ),
        ("slurm_update error: Invalid user id", "Slurm does not allow that (Invalid user id): run the task as root"),
        ("scontrol: error: Munge\nslurm_load_node error: Protocol authentication error", "Slurm can't tell who asks"),
        ("slurm_update error: Invalid node state specified", "scontrol --all failed: Invalid node state specified."),
    ],
)
def test_says_why_slurm_refuses(complaint: str, sentence: str) -> None:
    slurm = FakeSlurm(n1=FakeNode())
    slurm.broken = complaint
    with pytest.raises(SlurmError) as raised:
        bring(slurm, request("drained"))
    assert str(raised.value).startswith(sentence)


def test_says_that_slurm_is_missing() -> None:
    with pytest.raises(SlurmError, match="install Slurm's client commands"):
        apply(lambda argv, timeout: CommandResult(None, "", "No such file", missing=True), request("drained"), False)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (request("drained", []), "nodes is empty"),
        (request("drained", ["a b;c"]), "nodes holds 'a b;c'"),
        (request("drained", ["--help"]), "nodes holds '--help'"),
        (request("drained", reason=" "), "reason is missing"),
        (request("down", reason=None), "reason is missing"),
        (request("drained", reason="two\nlines"), "write one line"),
        (request("drained", reason='a "b"'), "without double quotation marks"),
        (request("drained", poll=0), "poll 0"),
        (request("drained", timeout=-1), "timeout is -1"),
    ],
)
def test_refuses_a_request_that_makes_no_sense(wanted: Request, words: str) -> None:
    assert words in find_request_fault(wanted)


def test_refuses_a_list_that_slurm_can_not_read() -> None:
    with pytest.raises(SlurmError, match=r"nodes holds 'n\[1'"):
        bring(FakeSlurm(n1=FakeNode()), request("drained", ["n[1"]))


def test_drains_a_large_list_in_few_calls() -> None:
    slurm = FakeSlurm(**{f"n{number}": FakeNode() for number in range(2500)})
    bring(slurm, request("drained", ["n[0-2499]"], wait=False))
    assert [len(line.split()[0].split(",")) for line in slurm.updates] == [1000, 1000, 500]
