"""Time to read what tools print: `python -m tests.benchmarks.parsers`.

Prints processor milliseconds, the best of five runs, beside the bound: a report of 8 GPUs under 10 ms, a kernel log of
20,000 lines under 150 ms, also one of nothing but Xids, an NCCL log of 100,000 lines and 2,000 nodes of Slurm under
1,000 ms. No test asserts these: another program on the machine would fail it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import cycle, islice
from pathlib import Path

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import parse_report
from ansible_collections.trainyard.cluster.plugins.module_utils._nccl_log import parse_nccl_log
from ansible_collections.trainyard.cluster.plugins.module_utils._slurm_output import read
from ansible_collections.trainyard.cluster.plugins.module_utils._xid import Clock, parse_kernel_log

FIXTURES = Path(__file__).resolve().parents[1] / "unit" / "fixtures"
RUNS = 5
NOW = Clock(datetime(2026, 11, 30, tzinfo=timezone.utc))

# As many Xids as a GPU writes that fails under load: one line in fifty.
KERNEL = [
    "2026-11-30T08:00:{:02d}.{:06d}+00:00 gpu kernel: NVRM: Xid (PCI:0000:18:00): 31, pid={}, name=python, Ch 00000008",
    *["2026-11-30T08:00:{:02d}.{:06d}+00:00 gpu1 kernel: docker0: port {}(veth1) entered disabled state"] * 49,
]
NCCL = [
    "gpu1:4711:4712 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
    "gpu1:4711:4712 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM/read",
    "gpu1:4711:4712 [1] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f count 1024 datatype 7 op 0 root 0 comm 0x55",
    "gpu1:4711:4712 [2] NCCL INFO Trees [0] -1/-1/-1->2->1 [1] -1/-1/-1->2->1",
    "step 17 loss 2.345 throughput 12.3 samples/s",
    "gpu1:4711:4712 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2 with status=12",
]


def eight_gpus() -> str:
    """Make a report of eight GPUs out of that of two."""
    report = (FIXTURES / "gpu/h100-x2.xml").read_text(encoding="utf-8")
    start, end = report.index("<gpu "), report.rindex("</gpu>") + len("</gpu>")
    return report[:start] + report[start:end] * 4 + report[end:]


def nodes(count: int) -> str:
    """Make what `scontrol show node` prints of a cluster out of one node."""
    record = (FIXTURES / "slurm/nodes-22.05.txt").read_text(encoding="utf-8").split("\n\n", maxsplit=1)[0]
    return "\n\n".join(record.replace("gpu1", f"gpu{number}") for number in range(count))


def kernel_log(lines: list[str], size: int) -> list[str]:
    return [line.format(number % 60, number, number) for number, line in enumerate(islice(cycle(lines), size))]


def milliseconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _run in range(RUNS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best * 1000


def main() -> None:
    report = eight_gpus()
    quiet, storm = kernel_log(KERNEL, 20_000), kernel_log(KERNEL[:1], 20_000)
    nccl = list(islice(cycle(NCCL), 100_000))
    cluster = nodes(2_000)
    assert len(parse_report(report).devices) == 8
    assert len(parse_kernel_log(quiet, NOW).events) == 400
    assert len(parse_kernel_log(storm, NOW).events) == 20_000
    assert len(read(cluster).nodes) == 2_000
    for name, work, bound in (
        ("report of 8 GPUs", lambda: parse_report(report), 10),
        ("kernel log, 20,000 lines", lambda: parse_kernel_log(quiet, NOW), 150),
        ("the same, every line an Xid", lambda: parse_kernel_log(storm, NOW), 150),
        ("NCCL log, 100,000 lines", lambda: parse_nccl_log(nccl), 1000),
        ("scontrol's 2,000 nodes", lambda: read(cluster), 1000),
    ):
        taken = milliseconds(work)
        print(f"{name:28} {taken:7.1f} ms   bound {bound:5} ms   ratio {taken / bound:4.2f}")


if __name__ == "__main__":
    main()
