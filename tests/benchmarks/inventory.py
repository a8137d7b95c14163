"""Time to check an inventory: `python -m tests.benchmarks.inventory`.

Prints seconds for 1,000 and 10,000 GPU nodes and their ratio; linear is 10. First the reading alone on plain data, then
the play that every run begins with, whose time is mostly Ansible's own to hand out each host's variables.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.trainyard.cluster.plugins.module_utils._inventory import read_site

ROOT = Path(__file__).resolve().parents[2]
SIZES = (1_000, 10_000)
NODE: dict[str, Any] = {
    "node_sockets": 2,
    "node_cores_per_socket": 48,
    "node_memory_mib": 1900000,
    "node_gpu_model": "h100",
    "node_gpu_count": 8,
}


def reading_alone(size: int) -> None:
    """Read plain data, with a fault on every tenth host."""
    nodes = [f"gpu{number}" for number in range(1, size + 1)]
    variables: dict[str, dict[str, Any]] = {node: {"cluster_name": "big", **NODE} for node in nodes}
    for node in nodes[::10]:
        del variables[node]["node_gpu_count"]
    site = read_site(
        {"slurm_controller": ["ctl"], "gpu_nodes": nodes}, {"ctl": {"cluster_name": "big"}, **variables}, ["slurm_uid"]
    )
    assert len(site.faults) == 1
    assert len(site.nodes) == size


def whole_play(size: int) -> None:
    """Run the play on an inventory without faults. No machine is contacted."""
    nodes = {"hosts": {f"gpu[1:{size}]": {}}, "vars": {**NODE, "training_env_source": "pip"}}
    groups = {"slurm_controller": {"hosts": {"ctl": {}}}, "gpu_nodes": nodes}
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"vars": {"cluster_name": "big"}, "children": groups}}))
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        words = [program, "-i", str(inventory), "playbooks/plays/inventory.yml"]
        subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def seconds(work: Callable[[int], None], size: int) -> float:
    start = time.monotonic()
    work(size)
    return time.monotonic() - start


def main() -> None:
    for work in (reading_alone, whole_play):
        small, large = (seconds(work, size) for size in SIZES)
        print(
            f"{work.__name__:14} {SIZES[0]:,} hosts {small:6.2f} s   {SIZES[1]:,} hosts {large:6.2f} s   "
            f"ratio {large / small:4.1f}"
        )


if __name__ == "__main__":
    main()
