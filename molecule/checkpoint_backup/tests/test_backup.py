"""What the role brings about, seen from both hosts, in both directions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import pytest

from tests.simulator.hosts import CHECKOUT, Instance

SCENARIO = Path(__file__).parents[1]
INVENTORY = CHECKOUT / "inventories/molecule"
SIMULATOR = Instance(os.environ.get("TRAINYARD_SIM", "test"))
# One connection a host for all the commands.
CONNECT = ["ssh", "-F", str(SIMULATOR.ssh_config), "-o", "ControlMaster=auto", "-o", "ControlPersist=60"]
CONNECT += ["-o", f"ControlPath={SIMULATOR.ssh_config.parent}/%n"]
DEFAULT, ALTERNATIVE = "checkpoint-backup-default", "checkpoint-backup-alternative"
SERVICE = "trainyard-checkpoint-backup"
STATE = "/var/lib/trainyard/checkpoint-backup/state.json"
SSH = "ssh -F /etc/trainyard/checkpoint-backup/ssh_config"
NAME = "checkpoint-backup-server"
SUMS = "find . -type f -print0 | sort -z | xargs -0 sha256sum"


@dataclass(frozen=True)
class Direction:
    """A source, its server, and what the role was told about them."""

    source: str
    server: str
    user: str
    root: str  # where the source's checkpoints are
    copies: str  # where they are on the server

    def here(self, command: str, code: int = 0) -> str:
        return on(self.source, command, code)

    def there(self, command: str, code: int = 0) -> str:
        return on(self.server, command, code)

    def run(self, succeeds: bool = True) -> str:
        """Start the service as the timer does; return what it wrote to the journal."""
        self.here(f"systemctl reset-failed {SERVICE}.service")  # which counts starts that follow each other fast
        self.here(f"systemctl start {SERVICE}.service", 0 if succeeds else 1)
        this_run = self.here(f"systemctl show --value --property=InvocationID {SERVICE}.service")
        # The journal takes its time: the line that ends every run says that all of them are there.
        return self.here(
            "for i in $(seq 100); do"
            f" text=$(journalctl --output=cat _SYSTEMD_INVOCATION_ID={this_run});"
            " grep -q 'problem(s).$' <<<$text && break; sleep 0.1; done; printf %s \"$text\""
        )

    def state(self) -> dict:
        return json.loads(self.here(f"cat {STATE}"))

    def finished(self, name: str, content: str = "weights") -> str:
        """Make a finished checkpoint; return its sums."""
        path = quote(f"{self.root}/{name}")
        self.here(
            f"mkdir -p {path}/shards && cd {path} && echo {content} >model.pt && touch COMPLETE"
            " && head -c 300000 /dev/urandom >shards/0.pt"
        )
        return self.here(f"cd {path} && {SUMS}")

    def copy_of(self, name: str) -> str:
        return self.there(f"cd {quote(f'{self.copies}/{name}')} && {SUMS}")


def on(host: str, command: str, code: int = 0) -> str:
    words = [*CONNECT, host, f"bash -c {quote(command)}"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == code, (
        f"{host}: {command}: ended with {result.returncode}: {result.stdout}{result.stderr}"
    )
    return (result.stdout + result.stderr).strip()


DIRECTIONS = [
    pytest.param(
        Direction(
            DEFAULT,
            ALTERNATIVE,
            "trainyard-backup",
            "/srv/training",
            f"/srv/trainyard/checkpoints/{DEFAULT}/srv/training",
        ),
        id="default",
    ),
    pytest.param(
        Direction(
            ALTERNATIVE, DEFAULT, "copies", "/srv/training one", f"/data/copies/{ALTERNATIVE}/srv/training%20one"
        ),
        id="alternative",
    ),
]


@pytest.fixture(name="direction", scope="module", params=DIRECTIONS)
def direction_fixture(request: pytest.FixtureRequest) -> Iterator[Direction]:
    direction: Direction = request.param
    # These tests start the service and read what that start said; one by the timer in between would take its work.
    direction.here(f"systemctl stop {SERVICE}.timer")
    direction.here(f"rm -rf {quote(direction.root)}/*")
    direction.there(f"rm -rf {direction.copies}")  # of an earlier run of these tests
    yield direction
    direction.here(f"systemctl start {SERVICE}.timer")


@contextmanager
def unreachable(direction: Direction) -> Iterator[None]:
    address = direction.here(f"getent ahostsv4 {direction.server} | head -n 1").split()[0]
    direction.here(f"ip route add unreachable {address}/32")
    try:
        yield
    finally:
        direction.here(f"ip route del unreachable {address}/32")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_timer_runs(direction: Direction) -> None:
    direction.here(f"systemctl is-enabled --quiet {SERVICE}.timer && systemctl is-active --quiet {SERVICE}.timer")
    calendar = direction.here(f"systemctl show --property=TimersCalendar {SERVICE}.timer")
    assert ("*:00/10:00" if direction.source == DEFAULT else "Mon..Fri *-*-* 03:00:00") in calendar


def test_a_finished_checkpoint_is_copied_and_a_half_written_one_is_not(direction: Direction) -> None:
    sums = direction.finished("run 1/step-1")
    direction.finished("run 1/step-2.tmp-9")
    direction.finished("run 1/step-3")
    direction.here(f"rm {quote(direction.root)}/run*/step-3/COMPLETE")
    direction.run()
    assert direction.copy_of("run%201/step-1") == sums
    assert len(sums.splitlines()) == 3
    assert direction.there(f"ls {quote(direction.copies)}/run%201").split() == ["step-1", "step-1@sha256"]
    state = direction.state()
    assert state["failures"] == []
    assert state["last_run_copied"] == 1
    assert state["last_success"]


def metrics(direction: Direction) -> dict[str, int]:
    """What the node exporter would read, as anybody may."""
    text = direction.here("setpriv --reuid=nobody --clear-groups cat /srv/metrics/trainyard-checkpoint-backup.prom")
    values = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("trainyard_checkpoint_backup_"): int(value) for name, value in values.items()}


def test_the_node_exporter_is_told_where_that_was_asked_for(direction: Direction) -> None:
    if direction.source == DEFAULT:
        direction.here("test -e /srv/metrics", 1)
        return
    direction.finished("told/step-1")
    direction.run()
    good = metrics(direction)
    assert good["failures"] == 0
    assert good["last_success_timestamp_seconds"] == good["last_run_timestamp_seconds"]
    assert abs(good["last_run_timestamp_seconds"] - int(direction.here("date +%s"))) < 60
    assert good["copied_checkpoints"] >= good["finished_checkpoints"] >= 1
    assert direction.here("ls -A /srv/metrics") == "trainyard-checkpoint-backup.prom"
    direction.here("sleep 1")  # the metrics count whole seconds
    with unreachable(direction):
        direction.run(succeeds=False)
    bad = metrics(direction)
    assert bad["failures"] == 1
    assert bad["last_success_timestamp_seconds"] == good["last_success_timestamp_seconds"]
    assert bad["last_run_timestamp_seconds"] > good["last_run_timestamp_seconds"]
    direction.run()
    assert metrics(direction)["failures"] == 0


def test_checkpoints_of_other_users_are_copied_too(direction: Direction) -> None:
    sums = direction.finished("private/step-1")
    direction.here(f"cd {quote(direction.root)} && chown -R 4242:4242 private && chmod -R go-rwx private")
    direction.run()
    assert direction.copy_of("private/step-1") == sums


def test_a_deletion_at_the_source_keeps_the_copy(direction: Direction) -> None:
    sums = direction.finished("deleted/step-1")
    direction.run()
    direction.here(f"rm -r {quote(direction.root)}/deleted")
    direction.run()
    assert direction.copy_of("deleted/step-1") == sums


def test_a_changed_one_is_kept_beside_the_first(direction: Direction) -> None:
    first = direction.finished("changed/step-1", "first")
    direction.run()
    second = direction.finished("changed/step-1", "second")
    assert "isn't what the server holds" in direction.run()
    assert direction.copy_of("changed/step-1") == first
    assert direction.copy_of("changed/step-1@changed-*".replace("*", beside(direction))) == second


def beside(direction: Direction) -> str:
    names = direction.there(f"ls {quote(direction.copies)}/changed")
    return re.findall(r"@changed-([0-9a-f]{12})$", names, re.M)[0]


def test_one_that_was_deleted_comes_back(direction: Direction) -> None:
    sums = direction.finished("lost/step-1")
    direction.run()
    direction.here(f"rm -r {quote(direction.root)}/lost/step-1")
    names = direction.here(f"{SERVICE} list").splitlines()
    (name,) = [name for name in names if name.endswith("/lost/step-1")]
    direction.here(f"{SERVICE} restore {quote(name)} {quote(direction.root)}/lost/step-1")
    assert direction.here(f"cd {quote(direction.root)}/lost/step-1 && {SUMS}") == sums


def test_a_server_that_is_down_fails_the_service_with_a_sentence_and_the_next_run_makes_up(
    direction: Direction,
) -> None:
    success = direction.state()["last_success"]
    sums = direction.finished("down/step-1")
    with unreachable(direction):
        assert f"No connection to the backup server {direction.server}: " in direction.run(succeeds=False)
        assert "No connection to the backup server" in direction.here(f"{SERVICE} check", 1)
    state = direction.state()
    assert state["consecutive_failures"] == 1
    assert state["last_success"] == success
    assert len(state["failures"]) == 1
    direction.run()
    assert direction.copy_of("down/step-1") == sums
    assert direction.state()["consecutive_failures"] == 0


def test_a_full_disk_fails_the_service_with_a_sentence_and_leaves_no_whole_copy(direction: Direction) -> None:
    sums = direction.finished("full/step-1")
    folder = direction.copies.removesuffix("/srv/training").removesuffix("/srv/training%20one")
    owner = direction.there(f"id -u {direction.user}")
    direction.there(f"mount -t tmpfs -o size=100k,mode=700,uid={owner} tmpfs {folder}")
    try:
        assert f"The disk of the backup server {direction.server} is full" in direction.run(succeeds=False)
        assert direction.there(f"find {folder} -name COMPLETE") == ""
    finally:
        direction.there(f"for i in $(seq 50); do umount {folder} && break; sleep 0.2; done 2>/dev/null")
    direction.run()
    assert direction.copy_of("full/step-1") == sums


def test_another_machine_at_the_servers_address_gets_nothing(direction: Direction) -> None:
    known = "/etc/trainyard/checkpoint-backup/known_hosts"
    direction.here(f"cp -p {known} {known}.kept")
    try:
        direction.here(
            "rm -f /tmp/other* && ssh-keygen -q -t ed25519 -N '' -f /tmp/other"
            f" && echo {NAME} $(cut -d' ' -f1,2 /tmp/other.pub) >{known}"
        )
        assert f"Another machine answers as the backup server {direction.server}" in direction.run(succeeds=False)
    finally:
        direction.here(f"mv {known}.kept {known}")
    direction.run()


def test_another_key_is_refused(direction: Direction) -> None:
    key = "/etc/trainyard/checkpoint-backup/id_ed25519"
    direction.here(f"cp -p {key} {key}.kept")
    try:
        direction.here(f"rm -f /tmp/other* && ssh-keygen -q -t ed25519 -N '' -f /tmp/other && cp /tmp/other {key}")
        assert "refused the key of this host" in direction.run(succeeds=False)
    finally:
        direction.here(f"mv {key}.kept {key}")
    direction.run()


@pytest.mark.parametrize(
    ("command", "code", "answer"),
    [
        (f"{SSH} {NAME} id", 1, "rrsync error"),
        (f"{SSH} {NAME} 'rsync --server . /; id'", 1, "rsync error"),
        (f"{SSH} -tt {NAME} </dev/null", 1, "PTY allocation request failed"),
        (f"{SSH} -o ClearAllForwardings=no -W localhost:22 {NAME} </dev/null", 255, "forwarding failed"),
        (f"rsync -r -e '{SSH}' --delete /usr/share/doc/rsync/ {NAME}:/", 1, "has been disabled"),
        (f"rsync -r -e '{SSH}' --remove-source-files {NAME}:/ /tmp/stolen", 1, "has been disabled"),
        (f"rsync -e '{SSH}' /etc/hostname {NAME}:../../../../../../etc/hostname", 1, "rrsync"),
    ],
    ids=["a command", "rsync and a command", "a shell", "a tunnel", "deletion", "removal", "out of the folder"],
)
def test_the_sources_key_is_good_for_nothing_else(direction: Direction, command: str, code: int, answer: str) -> None:
    before = direction.there(f"cd {direction.copies} && {SUMS}")
    words = [*CONNECT, direction.source, command]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode != 0, result.stdout
    assert answer in result.stdout + result.stderr
    assert "uid=" not in result.stdout
    assert direction.there(f"cd {direction.copies} && {SUMS}") == before


def test_the_sources_key_can_not_overwrite_a_copy_where_rrsync_can_forbid_it(direction: Direction) -> None:
    direction.finished("overwritten/step-1")
    direction.run()
    before = direction.copy_of("overwritten/step-1")
    target = f"{direction.copies.split(direction.source)[1]}/overwritten/step-1/model.pt"
    direction.here(f"rsync --ignore-times -e '{SSH}' /etc/passwd {NAME}:{target}")
    can_forbid = "-no-overwrite" in direction.there("rrsync -help")
    assert (direction.copy_of("overwritten/step-1") == before) == can_forbid


def test_the_account_can_not_change_what_it_may_do(direction: Direction) -> None:
    home = f"/var/lib/{direction.user}"
    assert direction.there(f"stat --format=%a:%U {home} {home}/.ssh {home}/.ssh/authorized_keys").split() == [
        "755:root",
        "750:root",
        "640:root",
    ]
    assert direction.there(f"getent shadow {direction.user}").split(":")[1] == "*"
    direction.there(f"setpriv --reuid={direction.user} --clear-groups touch {home}/x {home}/.ssh/authorized_keys", 1)


def test_the_key_is_for_root_alone(direction: Direction) -> None:
    settings = "/etc/trainyard/checkpoint-backup"
    assert direction.here(f"stat --format=%a:%U {settings} {settings}/id_ed25519").split() == ["700:root", "600:root"]


def play(playbook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(INVENTORY), str(SCENARIO / playbook)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")}
    return subprocess.run([*words, *arguments], capture_output=True, text=True, check=False, env=environment)


def test_bad_input_is_one_sentence_before_anything_changes() -> None:
    result = play("refusals.yml")
    assert result.returncode == 0, result.stdout


def test_a_server_without_the_sources_key_says_which_hosts_to_run_for() -> None:
    key = "/etc/trainyard/checkpoint-backup/id_ed25519.pub"
    on(DEFAULT, f"mv {key} {key}.kept")
    try:
        result = play("converge.yml", f"--limit={ALTERNATIVE}")
    finally:
        on(DEFAULT, f"mv {key}.kept {key}")
    assert result.returncode == 2, result.stdout
    sentence = f"{DEFAULT} has no key for its backups yet: run the play for {DEFAULT} and {ALTERNATIVE} together"
    assert sentence in re.sub(r"\s+", " ", result.stdout)
