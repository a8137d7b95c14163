# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Any output of Slurm's commands: JSON, scontrol's records, the configuration, tables of sinfo and squeue.

The columns of a table are what its caller asked for, often without a header, so that they are known by their looks.
Sources: sinfo(1), squeue(1), sdiag(1), and captures of Slurm 20.11 to 25.11.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_json import parse_json
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_records import Output, Row
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_text import (
    parse_configuration,
    parse_controllers,
    parse_records,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_values import (
    SlurmError,
    State,
    parse_gres,
    parse_state,
    tres_gpus,
)

_JSON = re.compile(r"^[ \t]*(?:\{\s*(?:[\"}]|\Z)|\[\s*[{\]])", re.MULTILINE)
_FAILURE = re.compile(r"^(?:\w+: )?(?:error: |\w+ error: |fatal: ).*", re.MULTILINE)
_NOTHING = re.compile(r"\s*No (?:jobs|nodes|partitions) in the system\s*\Z")
_CPUS = re.compile(r"([0-9]{1,12})/([0-9]{1,12})/([0-9]{1,12})/([0-9]{1,12})\Z")
# Without a number it may as well be a partition's name.
_GRES = re.compile(r"(?:gres[/:])?(?:gpu|mps|shard):|gres[/:](?:gpu|mps|shard)\Z")
_HOSTS = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]|\[[0-9,-]+\]|,(?=[A-Za-z]))*\Z")
_NODELIST = "NODELIST"
_STATE = re.compile(r"ST(?:ATE.*)?\Z")
# Words of sinfo, but for those that stand in reasons too (failed, error).
_NODE_STATES = frozenset(
    [
        "alloc",
        "allocated",
        "block",
        "boot",
        "blocked",
        "comp",
        "completing",
        "down",
        "drain",
        "drained",
        "draining",
        "drng",
        "fail",
        "failg",
        "failing",
        "futr",
        "future",
        "idle",
        "inval",
        "invalid",
        "maint",
        "mix",
        "mixed",
        "no_respond",
        "npc",
        "perfctrs",
        "planned",
        "plnd",
        "pow_dn",
        "pow_up",
        "power_down",
        "powered_down",
        "powering_down",
        "powering_up",
        "reboot",
        "reboot_issued",
        "reboot_requested",
        "reserved",
        "resv",
        "unk",
        "unknown",
    ]
)
_JOB_CODES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}
_JOB_STATES = frozenset(_JOB_CODES.values())
_JOB_ID = re.compile(r"[0-9]+(?:[_+.][0-9\[].*)?\Z")
_PAIR = re.compile(r"^[ \t]*[A-Z][A-Za-z]+=\S", re.MULTILINE)
_BAR = re.compile(r"\|#?")  # a second character keeps bars in job names apart
_STATISTIC = re.compile(r"^[ \t]*([A-Za-z][^:\n]{0,60}):[ \t]+(\S.*?)[ \t]*$", re.MULTILINE)


def read(output: str) -> Output:
    """Return what the output holds. Raises SlurmError where it is none of Slurm's, or nothing but an error message."""
    if _JSON.search(output):
        return parse_json(output)
    nodes, partitions, jobs = parse_records(output)
    controllers = parse_controllers(output)
    if nodes or partitions or jobs:
        return Output(nodes, partitions, jobs, controllers)
    found = Output(controllers=controllers, configuration=parse_configuration(output))
    if found.controllers or len(found.configuration) > 2:
        return found
    if _NOTHING.match(output):
        return found
    failure = _FAILURE.search(output)
    if failure:
        raise SlurmError(f"Slurm says: {failure[0].strip().rstrip('.')[:200]}.")
    rows = parse_table(output)
    if rows:
        return Output(rows=rows)
    statistics = dict(_STATISTIC.findall(output))
    if len(statistics) > 2:
        return Output(configuration=dict(statistics))
    raise SlurmError("Nothing in the output is of a form that Slurm prints.")


def parse_table(output: str) -> list[Row]:
    """Return the lines, if a column is known in at least one of them, `|` stands between columns, or `=` in them."""
    lines = [words for words in map(_words, output.splitlines()) if words]
    header = next((words for words in lines if _NODELIST in words), None)
    rows = [_below(header, _row(words)) if header else _row(words) for words in lines]
    known = "|" in output or _PAIR.search(output) or any(row != Row(row.words) for row in rows)
    return rows if known else []


def _below(header: list[str], row: Row) -> Row:
    """Return the row as its header has it: a name may be one without a digit, a word of a reason may be a state's."""
    host = row.words[header.index(_NODELIST)] if len(row.words) == len(header) else ""
    if row.nodes is None and host != _NODELIST and _HOSTS.match(host):
        row = replace(row, nodes=host)
    return row if any(map(_STATE.match, header)) else replace(row, state=None, flags=[])


def _words(line: str) -> list[str]:
    words = [word.strip() for word in _BAR.split(line)] if "|" in line else line.split()
    if len(words) == 1 and words[0].count(",") == 1 and "[" not in words[0]:
        return words[0].split(",")
    return words


def _row(words: list[str]) -> Row:
    row = Row(words)
    hosts: list[str] = []
    states: list[tuple[int, State]] = []
    is_job = _JOB_ID.match(words[0]) is not None
    told_why = _reason_of_no_nodes(words)
    for place, word in enumerate(words[:told_why]):
        cpus = _CPUS.match(word)
        if cpus:
            allocated, idle, other, total = (int(part) for part in cpus.groups())
            # sinfo counts nodes in the same form; a node has one processor at least.
            if total >= (row.cpus_total or 0):
                row = replace(row, cpus_allocated=allocated, cpus_idle=idle, cpus_other=other, cpus_total=total)
        elif word in _JOB_STATES or (is_job and word in _JOB_CODES):
            states.append((place, State(_JOB_CODES.get(word, word), [])))
        elif word.rstrip("*~#!%$@^-").lower() in _NODE_STATES:
            states.append((place, parse_state(word)))
        elif _GRES.match(word):
            row = replace(row, gres=[*row.gres, parse_gres(word)])
        elif "gres/gpu" in word and "=" in word:
            row = replace(row, gpus=tres_gpus(word))
        elif _HOSTS.match(word) and any(character.isdigit() for character in word):
            hosts.append(word)
    if states:
        # Partitions and jobs may be named like a state, but stand in front; a user or a time may be unknown.
        told = [one for one in states if one[1].base != "UNKNOWN"] or states
        state = told[-1][1] if is_job else next((state for place, state in told if place > 0), told[0][1])
        row = replace(row, state=state.base, flags=state.flags)
    if hosts and told_why is None:
        # A partition may have a name like a host's, but stands in front.
        row = replace(row, nodes=next((word for word in hosts if "[" in word), hosts[-1]))
    return row


def _reason_of_no_nodes(words: list[str]) -> int | None:
    """Return where the words in brackets begin that squeue ends the line of a job without nodes with."""
    starts = [place for place, word in enumerate(words) if word.startswith("(")]
    # What a node without GRES has is no reason.
    return starts[-1] if starts and words[-1].endswith(")") and words[-1] != "(null)" else None
