# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Copy finished checkpoints to a backup server, and bring them back.

A checkpoint is finished when its folder holds a file named COMPLETE. Half-written ones (a name with `.tmp`), hidden
folders and links are passed over. On the server a copy is whole once it holds its COMPLETE too: that file is sent last,
after the others were compared with the originals by checksum. Beside every copy lies `<name>@sha256`, which
`sha256sum -c` reads.

Nothing on the server is ever deleted or overwritten. A finished checkpoint that changed after it was copied goes to the
server a second time, as `<name>@changed-<digest>`.

Standard library only, Python 3.9 or newer; rsync and ssh do the copying.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

CONFIGURATION = "/etc/trainyard/checkpoint-backup/config.json"
MARKER = b"COMPLETE"
MANIFEST = b"MANIFEST.sha256"
RECEIPT_SUFFIX = "@sha256"
METRICS = "trainyard-checkpoint-backup.prom"
CHANGED_SUFFIX = "@changed-"
SSH_HOST = "checkpoint-backup-server"  # a name of ssh_configuration, which says address, account and keys
PROTOCOL_ERROR = 12  # rsync(1), exit values
CONNECTION_LOST = {10, 30, 35, 255}  # socket, time-outs, ssh's own failure
NAME_LIMIT = 255  # bytes of a file name on every usual file system
_PLAIN = re.compile(rb"[A-Za-z0-9._=+,-]")
_RSYNC_TEMPORARY = re.compile(rb"\.(.+)\.[A-Za-z0-9]{6}\Z", re.DOTALL)


class BackupError(Exception):
    """Something a person must see to. The text is one sentence or more."""


class UnreachableError(BackupError):
    """The server can't be used at all, so trying the next checkpoint is no use."""


class BusyError(UnreachableError):
    """The server still holds the lock of an earlier connection of this host."""


class VanishedError(Exception):
    """The checkpoint was deleted while it was looked at, which is no fault."""


@dataclasses.dataclass(frozen=True)
class Configuration:
    roots: tuple[str, ...]
    server: str
    ssh_configuration: str
    state_directory: str
    bandwidth_limit_kib: int
    timeout_seconds: int
    metrics_directory: str = ""

    @classmethod
    def read(cls, path: str) -> Configuration:
        try:
            with open(path, encoding="utf-8") as handle:
                values = json.load(handle)
            return cls(**{**values, "roots": tuple(values["roots"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BackupError(f"The configuration {path} can't be read: {error}.") from error


# --- What is on this machine ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Entry:
    path: bytes  # relative to the checkpoint
    kind: str  # file, folder, link
    size: int
    changed_ns: int
    target: bytes = b""


@dataclasses.dataclass
class Scan:
    checkpoints: list[bytes]
    problems: list[str]


def show(path: bytes) -> str:
    """A path as a person can read it, on one line whatever is in it."""
    text = path.decode("utf-8", "replace")
    return text if text.isprintable() else ascii(text)


def find_finished(roots: tuple[str, ...]) -> Scan:
    """Folders below the roots that hold a COMPLETE file; what is below such a folder belongs to it."""
    found, problems = [], []
    for root in roots:
        if not os.path.isdir(root):
            problems.append(f"{root} isn't there or isn't a folder: is the shared file system mounted?")
            continue
        waiting = [os.fsencode(root)]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                problems.append(f"{show(folder)} can't be read: {error.strerror}.")
                continue
            if any(entry.name == MARKER and entry.is_file(follow_symlinks=False) for entry in entries):
                found.append(folder)
                continue
            waiting.extend(
                entry.path
                for entry in reversed(entries)
                if entry.is_dir(follow_symlinks=False) and b".tmp" not in entry.name and not entry.name.startswith(b".")
            )
    return Scan(found, problems)


def entries_of(checkpoint: bytes) -> list[Entry]:
    """Everything in a checkpoint, sorted. BackupError for what can't be kept safely, VanishedError when it is gone."""
    entries = []
    try:
        for folder, directories, files in os.walk(checkpoint, onerror=_raise):
            for name in directories + files:
                path = os.path.join(folder, name)
                status = os.lstat(path)
                relative = os.path.relpath(path, checkpoint)
                if stat.S_ISREG(status.st_mode):
                    entries.append(Entry(relative, "file", status.st_size, status.st_mtime_ns))
                elif stat.S_ISDIR(status.st_mode):
                    entries.append(Entry(relative, "folder", 0, 0))
                elif stat.S_ISLNK(status.st_mode):
                    target = os.readlink(path)
                    if leaves(relative, target):
                        raise BackupError(
                            f"{show(checkpoint)} holds the link {show(relative)} to {show(target)}, outside it; "
                            "a copy would lack what it points to: put the file itself there."
                        )
                    entries.append(Entry(relative, "link", 0, 0, target))
                else:
                    raise BackupError(
                        f"{show(checkpoint)} holds {show(relative)}, which is no file, folder or link: remove it."
                    )
    except FileNotFoundError as error:
        raise VanishedError from error
    except OSError as error:
        raise BackupError(f"{show(checkpoint)} can't be read: {error.strerror}.") from error
    entries.sort(key=lambda entry: entry.path)
    if not any(entry.path == MARKER and entry.kind == "file" for entry in entries):
        raise VanishedError
    return entries


def leaves(link: bytes, target: bytes) -> bool:
    """Whether a link in a checkpoint points out of it."""
    if target.startswith(b"/"):
        return True
    return os.path.normpath(os.path.join(b"/inside", os.path.dirname(link), target)).split(b"/")[1:2] != [b"inside"]


def fingerprint(entries: list[Entry]) -> str:
    """Changes when a file is added, removed, resized or written again. Reads no content."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(repr(dataclasses.astuple(entry)).encode())
    return digest.hexdigest()


def checksums(checkpoint: bytes, entries: list[Entry]) -> dict[bytes, str]:
    """The sha256 of every file, compared with the checkpoint's own manifest where it has one."""
    sums = {}
    for entry in entries:
        if entry.kind == "file":
            try:
                sums[entry.path] = sha256(os.path.join(checkpoint, entry.path))
            except FileNotFoundError as error:
                raise VanishedError from error
            except OSError as error:
                raise BackupError(f"{show(checkpoint)}: {show(entry.path)} can't be read: {error.strerror}.") from error
    if MANIFEST in sums:
        with open(os.path.join(checkpoint, MANIFEST), "rb") as handle:
            expected = parse_sums(handle.read())
        for path, value in sorted(expected.items()):
            if sums.get(path) != value:
                raise BackupError(
                    f"{show(checkpoint)} is damaged: {show(path)} isn't as its {MANIFEST.decode()} says. "
                    "It isn't copied; a copy made before stays on the server as it is."
                )
    return sums


def sha256(path: bytes) -> str:
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(descriptor, "rb", buffering=0) as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def format_sums(sums: dict[bytes, str]) -> bytes:
    """As sha256sum writes it: a line whose name holds a backslash or a line end begins with a backslash."""
    lines = []
    for path, value in sorted(sums.items()):
        escaped = path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        lines.append((b"\\" if escaped != path else b"") + value.encode() + b"  " + escaped + b"\n")
    return b"".join(lines)


def parse_sums(text: bytes) -> dict[bytes, str]:
    sums = {}
    for line in text.split(b"\n"):
        match = re.fullmatch(rb"(\\?)([0-9a-f]{64}) [ *](.+)", line)
        if match:
            path = match.group(3)
            if match.group(1):
                path = re.sub(rb"\\(.)", lambda m: {b"n": b"\n", b"r": b"\r"}.get(m.group(1), m.group(1)), path)
            sums[os.path.normpath(path)] = match.group(2).decode()
    return sums


def remote_name(path: bytes) -> str:
    """The place of a checkpoint on the server: its path, with %XX for every byte that a shell or rsync might read."""
    parts = []
    for part in path.strip(b"/").split(b"/"):
        text = "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"%{byte:02X}" for byte in part)
        if text.startswith((".", "-")):
            text = f"%{part[0]:02X}{text[1:]}"
        if len(text) > NAME_LIMIT - len(CHANGED_SUFFIX) - 12 - len(RECEIPT_SUFFIX):
            raise BackupError(
                f"{show(path)} can't be copied: {show(part)} is too long a name for the server; give it a shorter one."
            )
        parts.append(text)
    return "/".join(parts)


# --- The server ----------------------------------------------------------------------------------------------------


class Server:
    """rsync over ssh to an account that may do nothing but receive and send below one folder."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration

    def complete_copies(self) -> set[str]:
        """Every copy on the server that is whole. Asked first in every run: it shows that the server can be used."""
        output = self._rsync(
            ["--recursive", "--list-only", "--include=*/", "--include=" + MARKER.decode(), "--exclude=*"],
            [self._place("")],
        )
        copies = set()
        for line in output.split(b"\n"):
            # Permissions, size, day, time, name.
            fields = line.split(None, 4)
            if len(fields) == 5 and fields[0].startswith(b"-") and os.path.basename(fields[4]) == MARKER:
                copies.add(os.fsdecode(os.path.dirname(fields[4])))
        # A COMPLETE deeper inside a copy is a file of that copy like any other.
        return {name for name in copies if not ancestors(name) & copies}

    def check(self) -> None:
        """Raise unless the server can be used. It can while another run uses it, too."""
        with contextlib.suppress(BusyError):
            self._rsync(["--list-only"], [self._place("")])

    def push(self, checkpoint: bytes, name: str, only_marker: bool) -> None:
        """Send the files without the marker, or the marker alone. The server flushes them to its disk."""
        source = [os.path.join(checkpoint, MARKER) if only_marker else os.path.join(checkpoint, b"")]
        arguments = [
            "--recursive",
            "--links",
            "--perms",
            "--chmod=u+rwX,a-s",
            "--times",
            "--fsync",
            "--mkpath",
            "--no-D",
        ]
        if not only_marker:
            arguments.append("--exclude=/" + MARKER.decode())
        self._rsync(arguments, [*source, self._place(name + "/")])

    def push_receipt(self, text: bytes, name: str) -> None:
        with tempfile.TemporaryDirectory(dir=self.configuration.state_directory) as folder:
            path = os.path.join(folder, os.path.basename(name) + RECEIPT_SUFFIX)
            with open(path, "wb") as handle:
                handle.write(text)
            self._rsync(["--fsync"], [path, self._place(os.path.dirname(name) + "/")])

    def same(self, checkpoint: bytes, name: str, entries: list[Entry], with_marker: bool) -> bool:
        """Whether the copy holds what the checkpoint holds, compared by the checksum of every file's content."""
        output = self._rsync(
            ["--recursive", "--links", "--checksum", "--dry-run", "--8-bit-output", "-ii", "--out-format=%i %n"],
            [self._place(name + "/"), os.path.join(checkpoint, b"")],
        )
        seen = {}
        for line in output.split(b"\n"):
            code, path = line[:11], line[12:]  # the code has a fixed width and may hold spaces
            if path:
                seen[os.path.normpath(unescape(path))] = code
        return same_content(entries, seen, with_marker)

    def fetch(self, name: str, target: str) -> None:
        self._rsync(
            ["--recursive", "--links", "--perms", "--times"], [self._place(name + "/"), os.path.join(target, "")]
        )

    def fetch_receipt(self, name: str, target: str) -> None:
        self._rsync([], [self._place(name + RECEIPT_SUFFIX), target])

    def _place(self, name: str) -> str:
        return f"{SSH_HOST}:{name}"

    def _rsync(self, arguments: list[str], places: list[Any]) -> bytes:
        settings = self.configuration
        command = [
            "rsync",
            f"--rsh=ssh -F {shlex.quote(settings.ssh_configuration)}",
            f"--timeout={settings.timeout_seconds}",
            f"--bwlimit={settings.bandwidth_limit_kib}",
            *arguments,
            "--",
            *places,
        ]
        # RSYNC_PROTECT_ARGS asks for an option that the server refuses; the messages are read in the C locale.
        environment = {**{k: v for k, v in os.environ.items() if not k.startswith("RSYNC_")}, "LC_ALL": "C"}
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False)
        if result.returncode:
            raise explain(result.returncode, result.stderr.decode("utf-8", "replace"), settings)
        return result.stdout


def ancestors(name: str) -> set[str]:
    parts = name.split("/")
    return {"/".join(parts[:length]) for length in range(1, len(parts))}


def same_content(entries: list[Entry], seen: dict[bytes, bytes], with_marker: bool) -> bool:
    """Compare the checkpoint with rsync's itemized list of the copy (rsync(1), --itemize-changes).

    The second character is the kind; a `c` in the third means another checksum or link target, an `s` in the fourth
    another size, plus signs a file that only the copy has.
    """
    wanted = {entry.path: entry for entry in entries if with_marker or entry.path != MARKER}
    for path, entry in wanted.items():
        code = seen.get(path)
        kind = {"file": b"f", "folder": b"d", "link": b"L"}[entry.kind]
        if code is None or code[1:2] != kind or b"+" in code or code[2:3] == b"c" or code[3:4] == b"s":
            return False
    for path, code in seen.items():
        if path in wanted or path == b"." or code.startswith(b"*"):
            continue
        # What an interrupted rsync left behind is no part of the copy.
        folder, base = os.path.split(path)
        match = _RSYNC_TEMPORARY.match(base)
        if not (match and os.path.join(folder, match.group(1)) in {entry.path for entry in entries}):
            return False
    return True


def unescape(path: bytes) -> bytes:
    """rsync writes a byte that isn't printable as \\#ooo, in octal."""
    return re.sub(rb"\\#([0-7]{3})", lambda match: bytes([int(match.group(1), 8)]), path)


def explain(code: int, errors: str, settings: Configuration) -> BackupError:
    """rsync's and ssh's errors as a sentence that says what to do."""
    server = f"backup server {settings.server}"
    lines = [
        line.strip()
        for line in errors.splitlines()
        if line.strip() and not line.startswith(("rsync error:", "rsync: connection unexpectedly closed"))
    ]
    last = next(
        (line for line in lines if "No space left" in line or "denied" in line), lines[-1] if lines else "it was cut"
    )
    if "Host key verification failed" in errors:
        return UnreachableError(
            f"Another machine answers as the {server}: its host key isn't the one this host knows. "
            "Run the play again if the server was reinstalled."
        )
    if re.search(r"Permission denied \(.*publickey", errors):
        return UnreachableError(f"The {server} refused the key of this host: run the play again for both hosts.")
    if "Another instance of rrsync" in errors:
        return BusyError(f"The {server} still works on an earlier copy. The next run tries again.")
    if "Restricted directory does not exist" in errors:
        return UnreachableError(
            f"The {server} has lost its folder for copies: is its disk mounted? Otherwise run the play again."
        )
    if "No space left on device" in errors or "quota exceeded" in errors.lower():
        return UnreachableError(f"The disk of the {server} is full: {last}. Make room there; the next run tries again.")
    # ssh's own failure is 12 instead of 255 when rsync notices the closed pipe first.
    if code in CONNECTION_LOST or (code == PROTOCOL_ERROR and (not lines or last.startswith(("ssh: ", "Connection ")))):
        return UnreachableError(f"No connection to the {server}: {last}. The next run tries again.")
    return BackupError(f"rsync to the {server} ended with {code}: {last}.")


# --- A run ---------------------------------------------------------------------------------------------------------


def read_state(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as handle:
            state = json.load(handle)
        if isinstance(state, dict) and isinstance(state.get("checkpoints"), dict):
            return state
    except (OSError, ValueError):
        pass  # none yet, or unusable: every copy is compared with its original again, none is sent twice
    return {"checkpoints": {}}


def write_state(path: str, state: dict[str, Any]) -> None:
    with open(path + ".new", "w", encoding="utf-8") as handle:
        json.dump(state, handle, indent=1, sort_keys=True)
        handle.write("\n")
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(path + ".new", path)


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def copy(
    server: Server, checkpoint: bytes, entries: list[Entry], complete: set[str], report: list[str]
) -> tuple[str, str]:
    """See to it that a whole and identical copy is on the server. Returns its name there and what was done."""
    name = remote_name(checkpoint)
    sums = checksums(checkpoint, entries)
    receipt = format_sums(sums)
    digest = hashlib.sha256(receipt).hexdigest()
    for candidate in (name, f"{name}{CHANGED_SUFFIX}{digest[:12]}"):
        if candidate in complete:
            if server.same(checkpoint, candidate, entries, with_marker=True):
                return candidate, "there"
        else:
            server.push(checkpoint, candidate, only_marker=False)
            if server.same(checkpoint, candidate, entries, with_marker=False):
                if fingerprint(entries_of(checkpoint)) != fingerprint(entries):
                    raise BackupError(f"{show(checkpoint)} changed while it was copied. The next run tries again.")
                server.push_receipt(receipt, candidate)
                server.push(checkpoint, candidate, only_marker=True)
                complete.add(candidate)
                return candidate, "copied"
        if candidate == name:
            report.append(
                f"{show(checkpoint)} isn't what the server holds as {name}. That stays as it is; "
                f"what is here now is kept beside it as {os.path.basename(name)}{CHANGED_SUFFIX}{digest[:12]}."
            )
    raise BackupError(
        f"{show(checkpoint)}: the server holds something else as {candidate} already. Look at the server's disk."
    )


def run(configuration: Configuration, server: Server | None = None) -> int:
    server = server or Server(configuration)
    state_path = os.path.join(configuration.state_directory, "state.json")
    state = read_state(state_path)
    known = state["checkpoints"]
    began, failures, notes = now(), [], []
    copied = 0
    scan = find_finished(configuration.roots)
    failures.extend(scan.problems)
    try:
        complete = server.complete_copies()
        for checkpoint in scan.checkpoints:
            key = os.fsdecode(checkpoint)
            try:
                entries = entries_of(checkpoint)
                print_of = fingerprint(entries)
                record = known.get(key, {})
                if record.get("fingerprint") == print_of and record.get("copy") in complete:
                    continue
                messages: list[str] = []
                name, done = copy(server, checkpoint, entries, complete, messages)
                notes.extend(messages)
                known[key] = {
                    "fingerprint": print_of,
                    "copy": name,
                    "files": sum(entry.kind == "file" for entry in entries),
                    "bytes": sum(entry.size for entry in entries),
                    "verified": now(),
                }
                copied += done == "copied"
                say(f"{show(checkpoint)} {'was copied to' if done == 'copied' else 'is already at'} {name}")
                write_state(state_path, state)
            except VanishedError:
                say(f"{show(checkpoint)} was deleted meanwhile; what the server has stays there.")
            except UnreachableError:
                raise
            except BackupError as problem:
                failures.append(str(problem))
    except UnreachableError as problem:
        failures.append(str(problem))
    state.update(
        last_run=began,
        last_run_ended=now(),
        last_run_copied=copied,
        finished_checkpoints=len(scan.checkpoints),
        copied_total=len(known),
        copied_bytes_total=sum(record["bytes"] for record in known.values()),
        failures=failures,
        notes=notes,
        consecutive_failures=state.get("consecutive_failures", 0) + 1 if failures else 0,
    )
    if not failures:
        state["last_success"] = state["last_run_ended"]
    write_state(state_path, state)
    for note in notes:
        say(note)
    for failure in failures:
        print(failure, file=sys.stderr, flush=True)
    told = write_metrics(configuration.metrics_directory, state)
    say(f"{len(scan.checkpoints)} finished checkpoint(s), {copied} copied now, {len(failures)} problem(s).")
    return 1 if failures or not told else 0


def metrics(state: dict[str, Any]) -> str:
    """What is known of the backups, in the text format of Prometheus. A time that never was is 0."""
    success = state.get("last_success")
    values = (
        (
            "last_success_timestamp_seconds",
            "End of the last run without a problem.",
            timestamp(success) if success else 0,
        ),
        ("last_run_timestamp_seconds", "End of the last run.", timestamp(state["last_run_ended"])),
        ("failures", "Problems of the last run.", len(state["failures"])),
        ("finished_checkpoints", "Finished checkpoints on this host.", state["finished_checkpoints"]),
        ("copied_checkpoints", "Checkpoints of which the server got a whole copy.", state["copied_total"]),
    )
    lines = []
    for name, explanation, value in values:
        full = f"trainyard_checkpoint_backup_{name}"
        lines.append(f"# HELP {full} {explanation}\n# TYPE {full} gauge\n{full} {value}\n")
    return "".join(lines)


def timestamp(moment: str) -> int:
    return int(datetime.datetime.fromisoformat(moment).timestamp())


def write_metrics(folder: str, state: dict[str, Any]) -> bool:
    """Put the metrics where the node exporter reads them, never half-written. Returns False if that can't be done."""
    if not folder:
        return True
    path = os.path.join(folder, METRICS)
    try:
        with open(path + ".new", "w", encoding="utf-8") as handle:  # which the node exporter passes over
            os.fchmod(handle.fileno(), 0o644)
            handle.write(metrics(state))
        os.replace(path + ".new", path)
    except OSError as error:
        print(
            f"{path} can't be written: {error.strerror}. Make the folder, owned by root.", file=sys.stderr, flush=True
        )
        return False
    return True


def say(text: str) -> None:
    print(text, flush=True)


def restore(configuration: Configuration, name: str, target: str, server: Server | None = None) -> int:
    """Bring one copy back to a new folder, which appears only when every file has the checksum it had when copied."""
    server = server or Server(configuration)
    target = os.path.abspath(target)
    if os.path.lexists(target):
        raise BackupError(f"{target} is there already: name a folder that doesn't exist yet. Nothing was changed.")
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise BackupError(f"{parent} isn't there: make it first, or name another place.")
    name = name.strip("/")
    if name not in server.complete_copies():
        raise BackupError(f"The server has no whole copy named {name}: the command `list` shows those it has.")
    owner = os.stat(parent)
    with tempfile.TemporaryDirectory(prefix=f".{os.path.basename(target)}.tmp-restore-", dir=parent) as folder:
        receipt = os.path.join(folder, "receipt")
        work = os.path.join(folder, "checkpoint")
        server.fetch_receipt(name, receipt)
        os.mkdir(work)
        server.fetch(name, work)
        with open(receipt, "rb") as handle:
            expected = parse_sums(handle.read())
        try:
            found = entries_of(os.fsencode(work))
        except VanishedError as error:
            raise BackupError(f"The copy {name} lost its marker while it was read. Nothing was restored.") from error
        for path, value in sorted(expected.items()):
            full = os.path.join(os.fsencode(work), path)
            if not os.path.isfile(full) or sha256(full) != value:
                raise BackupError(
                    f"The copy {name} is damaged on the server: {show(path)} isn't what was sent. Nothing was restored."
                )
        for entry in found:
            if entry.kind == "file" and entry.path not in expected:
                os.unlink(os.path.join(os.fsencode(work), entry.path))  # left by an interrupted rsync
        for path in [os.fsencode(work), *(os.path.join(os.fsencode(work), entry.path) for entry in found)]:
            if os.path.lexists(path) and os.geteuid() == 0:
                os.lchown(path, owner.st_uid, owner.st_gid)
        os.rename(work, target)
    say(f"{name} is restored as {target}, {len(expected)} file(s), every checksum right.")
    return 0


@contextlib.contextmanager
def alone(configuration: Configuration, wait: bool) -> Iterator[None]:
    """One program at a time: the server takes one connection of a host at once."""
    with open(os.path.join(configuration.state_directory, "lock"), "w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupError("Another run is still copying; this one leaves it to that.") from error
        yield


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Copy finished checkpoints to the backup server, and bring them back.")
    parser.add_argument("--configuration", default=CONFIGURATION, metavar="FILE")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="copy what is finished and not on the server yet")
    commands.add_parser("check", help="say whether the server can be used")
    commands.add_parser("list", help="list the whole copies on the server")
    restoring = commands.add_parser("restore", help="bring one copy back, checked by checksum")
    restoring.add_argument("name", help="a copy, by the name that `list` shows")
    restoring.add_argument("target", help="the folder to make; it must not exist yet")
    options = parser.parse_args(arguments)
    try:
        configuration = Configuration.read(options.configuration)
        for program in ("rsync", "ssh"):
            if shutil.which(program) is None:
                raise BackupError(f"This host has no {program}: install it.")
        if options.command == "check":
            Server(configuration).check()
            say(f"The backup server {configuration.server} can be used.")
            return 0
        with alone(configuration, wait=options.command != "run"):
            if options.command == "run":
                return run(configuration)
            if options.command == "restore":
                return restore(configuration, options.name, options.target)
            for name in sorted(Server(configuration).complete_copies()):
                say(name)
            return 0
    except BackupError as problem:
        print(problem, file=sys.stderr)
        return 1


def _raise(error: OSError) -> None:
    raise error


if __name__ == "__main__":
    sys.exit(main())
