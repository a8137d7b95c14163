"""Command line of the simulator: python -m tests.simulator --help."""

from __future__ import annotations

import argparse
import subprocess
import sys

from .engine import SimulatorError
from .hosts import CLUSTER, NETWORKS, Host, Instance, purge


def main() -> int:
    """Read the arguments, do it, and turn a SimulatorError into one line and exit status 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulator", description="Test hosts that boot a real systemd and carry simulated GPUs."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("cluster", help="boot the simulated cluster, run site.yml on it, train a model (make cluster)")
    command = commands.add_parser("up", help="boot hosts beside those that run")
    command.add_argument("instance", choices=NETWORKS)
    command.add_argument(
        "hosts", nargs="*", metavar="NAME[:SUITE[:PROFILE:COUNT]]", help="without any: mirror, ctl, gpu1, gpu2, backup1"
    )
    command = commands.add_parser("down", help="remove hosts, without names the whole instance")
    command.add_argument("instance", choices=NETWORKS)
    command.add_argument("hosts", nargs="*", metavar="NAME")
    for name, text in (("stop", "switch a host off, as a power failure would"), ("start", "switch a host on again")):
        command = commands.add_parser(name, help=text)
        command.add_argument("instance", choices=NETWORKS)
        command.add_argument("host")
    commands.add_parser("purge", help="remove all hosts, images, cached packages and everything else of the simulator")
    command = commands.add_parser("status", help="list instances and hosts")
    command = commands.add_parser("ssh", help="log in to a host, or run a command there")
    command.add_argument("instance", choices=NETWORKS)
    command.add_argument("host")
    command.add_argument("words", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    try:
        return _act(arguments)
    except SimulatorError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 1


def _act(arguments: argparse.Namespace) -> int:
    if arguments.command == "cluster":
        from .cluster import make_cluster  # noqa: PLC0415 # needs Ansible and rich, which the other commands do without

        return make_cluster()
    if arguments.command == "purge":
        purge()
        return 0
    if arguments.command == "status":
        for name in NETWORKS:
            instance = Instance(name)
            for host, address in instance.addresses().items():
                print(f"{name:8} {host:32} {address:16} {'up' if instance.running(host) else 'down'}")
        return 0
    instance = Instance(arguments.instance)
    if arguments.command == "up":
        for host in instance.up([Host.parse(text) for text in arguments.hosts] or CLUSTER):
            print(f"{host} is up at {instance.addresses()[host]}")
    elif arguments.command == "down":
        instance.down(arguments.hosts)
    elif arguments.command == "stop":
        instance.stop(arguments.host)
    elif arguments.command == "start":
        instance.start(arguments.host)
    elif arguments.command == "ssh":
        command = ["ssh", "-F", str(instance.ssh_config), arguments.host, *arguments.words]
        return subprocess.run(command, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
