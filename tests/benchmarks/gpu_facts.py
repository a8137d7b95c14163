"""Time of gpu_facts against what it can't do without: `python -m tests.benchmarks.gpu_facts [report.xml]`.

Runs Ansible on this machine with a stand-in for nvidia-smi that prints a report of eight GPUs (or the file given) after
as long as the real one takes. Prints the seconds of gpu_facts, those of the nvidia-smi calls that it makes, those of an
empty module, and the ratio of the first to the sum of the others, whose bound is 1.25. All are taken by turns in one
run, and the best of five is kept, since other programs disturb the measure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.parsers import FIXTURES, eight_gpus

ROOT = Path(__file__).resolve().parents[2]
RUNS = 5
BOUND = 1.25
# Of an 8-GPU node with persistence mode on: the full report, the table, topology and links. The table isn't counted,
# since it is asked for while the last three work.
SECONDS = {"-q": 0.8, "": 0.5, "topo": 0.3, "nvlink": 0.15}
CALLS = (["-q", "-x"], ["topo", "-m"], ["nvlink", "-s"], ["nvlink", "-e"])


def stand_in(folder: Path, report: str) -> Path:
    (folder / "report.xml").write_text(report, encoding="utf-8")
    for name in ("topo", "nvlink-s", "nvlink-e"):
        (folder / name).write_text((FIXTURES / f"gpu/h100-x2.{name}.txt").read_text(encoding="utf-8"), encoding="utf-8")
    program = folder / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        f'cd {folder} && case "$1" in\n'
        f"-q) sleep {SECONDS['-q']}; cat report.xml ;;\n"
        f'"") sleep {SECONDS[""]} ;;\n'
        f"topo) sleep {SECONDS['topo']}; cat topo ;;\n"
        f'nvlink) sleep {SECONDS["nvlink"]}; cat "nvlink$2" ;;\n'
        "*) exit 2 ;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    return program


def seconds(words: list[str]) -> float:
    start = time.monotonic()
    subprocess.run(
        words,
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
    )
    return time.monotonic() - start


def module(name: str, arguments: str = "") -> list[str]:
    ansible = str(Path(sys.executable).with_name("ansible"))
    words = [
        ansible,
        "localhost",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
    ]
    return [*words, "-m", name, *(["-a", arguments] if arguments else [])]


def main() -> None:
    report = Path(sys.argv[1]).read_text(encoding="utf-8") if len(sys.argv) > 1 else eight_gpus()
    taken: dict[str, list[float]] = {"gpu_facts": [], "nvidia-smi": [], "empty module": []}
    with tempfile.TemporaryDirectory() as folder:
        program = str(stand_in(Path(folder), report))
        for _run in range(RUNS):
            taken["gpu_facts"].append(seconds(module("trainyard.cluster.gpu_facts", f"nvidia_smi={program}")))
            taken["nvidia-smi"].append(sum(seconds([program, *call]) for call in CALLS))
            taken["empty module"].append(seconds(module("ansible.builtin.ping")))
    best = {name: min(values) for name, values in taken.items()}
    print("   ".join(f"{name} {value:5.2f} s" for name, value in best.items()))
    print(f"ratio {best['gpu_facts'] / (best['nvidia-smi'] + best['empty module']):4.2f}   bound {BOUND}")


if __name__ == "__main__":
    main()
