"""Runs the checks and says at the end how many passed: python -m tests.run [--long] [lint|unit|molecule].

Output of each check goes to .cache/test/<check>.log; of one that failed the end is shown. A check that did nothing (no
test collected, no scenario run) counts as failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parents[1]
LOGS = CHECKOUT / ".cache/test"
_SHOWN_LINES = 150
_SHOWN_CHARACTERS = 20000
_FAULTS = ("failure", "error")
_SANITY_TESTS = 20  # ansible-test has 24 for a collection
_PATH = f"{CHECKOUT}/.venv/bin:{os.environ['PATH']}"


@dataclass
class Check:
    """One command.

    proof: looks at its output and returns what is missing. remark: what to say of one that passed.
    progress: what a line of output tells somebody who waits.
    """

    name: str
    command: Sequence[str]
    proof: Callable[[str], str] = lambda output: ""
    environment: dict[str, str] = field(default_factory=dict)
    details: Callable[[], str] = lambda: ""
    remark: Callable[[str], str] = lambda output: ""
    progress: Callable[[str], str] = lambda line: ""

    def run(self) -> str:
        """Run it. Returns why it failed, or nothing."""
        log = LOGS / f"{self.name}.log"
        started = time.monotonic()
        with open(log, "w") as output, subprocess.Popen(
            self.command, cwd=CHECKOUT, env={**os.environ, "PATH": _PATH, **self.environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process:  # fmt: skip
            assert process.stdout  # a pipe was asked for
            for line in process.stdout:
                output.write(line)
                reached = self.progress(line)
                if reached:
                    print(f"{time.monotonic() - started:6.0f} s  {reached}", flush=True)
        status = process.returncode
        text = log.read_text()
        problem = f"exit status {status}" if status else self.proof(text)
        seconds = time.monotonic() - started
        word, why = ("FAILED", problem) if problem else ("passed", self.remark(text))
        print(f"{word}  {self.name:28} {seconds:5.0f} s  {why}", flush=True)
        if problem:
            shown = text.splitlines()[-_SHOWN_LINES:]
            print("\n".join([f"----- end of {log.relative_to(CHECKOUT)}", *shown, "-----"]), flush=True)
            print(self.details(), flush=True)
        return problem


def environments() -> dict[str, Path]:
    """The virtual environments that `make setup` made, by the ansible-core release in them."""
    found = {}
    for folder in (CHECKOUT / ".venv", CHECKOUT / ".venv-2.21"):
        python = folder / "bin/python"
        if python.exists():
            question = [str(python), "-c", "import ansible.release as r; print('.'.join(r.__version__.split('.')[:2]))"]
            found[subprocess.run(question, capture_output=True, text=True, check=True).stdout.strip()] = folder / "bin"
    return found


def lint() -> list[Check]:
    """Linters and types; ansible-lint and ansible-test with every ansible-core at hand, the others once."""
    tools = CHECKOUT / ".venv/bin"
    scripts = ["tests/run.py", "tests/role_readme.py", "tests/sanity.py"]
    on_targets = ["plugins/modules", "plugins/module_utils", *map(str, CHECKOUT.glob("roles/*/files"))]
    checks = [
        Check("yamllint", [str(tools / "yamllint"), "--strict", "."]),
        Check("ruff", [str(tools / "ruff"), "check", "."]),
        Check("ruff-format", [str(tools / "ruff"), "format", "--check", "."]),
        Check("mypy", [str(tools / "mypy"), "plugins", "tests/simulator", *scripts]),
        Check("role-readme", [str(tools / "python"), "-m", "tests.role_readme"]),
        Check("shellcheck", ["shellcheck", ".ci/run", "tests/setup.sh"]),
        Check("vermin", [str(tools / "vermin"), "--target=3.9-", "--no-tips", "--violations", *on_targets]),
    ]
    found = environments()
    for core, folder in found.items():
        checks.append(
            Check(
                f"ansible-lint-{core}",
                [str(folder / "ansible-lint"), "--offline", "--strict"],
                _processed_files,
                {"PATH": f"{folder}:{os.environ['PATH']}", "ANSIBLE_HOME": str(CHECKOUT / f".cache/ansible-{core}")},
            )
        )
        # pylint takes longer than the rest and looks at what is the same under every ansible-core.
        less = [] if core == max(found) else ["--skip-test", "pylint"]
        command = [str(folder / "python"), "-m", "tests.sanity", *less]
        checks.append(Check(f"sanity-{core}", command, _sanity_tests, remark=_missing_pythons))
    return checks


def unit() -> list[Check]:
    """Unit and contract tests with every ansible-core at hand."""
    return [
        Check(
            f"pytest-{core}",
            [str(folder / "python"), "-m", "pytest", "-q"],
            environment={"PATH": f"{folder}:{os.environ['PATH']}"},
        )
        for core, folder in environments().items()
    ]


def molecule(long: bool) -> list[Check]:
    """Every molecule scenario, two at a time; those named long_* on their own occasion."""
    scenarios = [path.parent.name for path in sorted(CHECKOUT.glob("molecule/*/molecule.yml"))]
    wanted = [name for name in scenarios if name != "default" and name.startswith("long_") == long]
    chosen = [word for name in wanted for word in ("--scenario-name", name)]
    command = [str(CHECKOUT / ".venv/bin/molecule"), "test", "--workers", "2", "--continue-on-failure", *chosen]

    def every_scenario_ran(output: str) -> str:
        plain = _uncoloured(output)
        missing = [name for name in wanted if not re.search(rf"^{name} ➜ verify: Executed: Successful", plain, re.M)]
        return f"scenarios without a verified end: {', '.join(missing)}" if missing else ""

    def step_done(line: str) -> str:
        step = re.match(r"[A-Z]+\s+(\S+ ➜ \w+): Executed: (\w+)", _uncoloured(line)) if "Executed: " in line else None
        return f"{step[1]} {step[2].lower()}" if step else ""

    environment = {"MOLECULE_GLOB": "molecule/*/molecule.yml"}
    return [Check("molecule", command, every_scenario_ran, environment, _failed_tests, progress=step_done)]


def _uncoloured(output: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", output)


def _failed_tests() -> str:
    """What pytest said of the scenarios' tests that failed, which molecule keeps to itself."""
    texts = []
    for path in sorted(LOGS.glob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):  # noqa: S314 # pytest's own report
            texts += [
                f"{case.get('classname')}::{case.get('name')}\n{fault.text}" for fault in case if fault.tag in _FAULTS
            ]
    return "\n".join(texts)[-_SHOWN_CHARACTERS:]


def _processed_files(output: str) -> str:
    found = re.search(r"(\d+) files processed|processed (\d+) files|in (\d+) files", output)
    return "" if found and int(next(filter(None, found.groups()))) > 0 else "no file was looked at"


def _sanity_tests(output: str) -> str:
    ran = set(re.findall(r'^Running sanity test "([\w-]+)"', output, re.MULTILINE))
    skipped = set(re.findall(r'Skipping sanity test "([\w-]+)"', output))
    if skipped or len(ran) < _SANITY_TESTS:
        return f"{len(ran)} of ansible-test's tests ran, {', '.join(sorted(skipped)) or 'none'} skipped"
    return ""


def _missing_pythons(output: str) -> str:
    return "".join(re.findall(r"^not with Python .*", output, re.MULTILINE))


def main() -> int:
    """Run what was asked for; the last line is the count that continuous integration reads."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description="Run the project's checks.")
    parser.add_argument("part", nargs="?", choices=["lint", "unit", "molecule"], help="without: all of them")
    parser.add_argument("--long", action="store_true", help="the molecule scenarios that take long, and nothing else")
    arguments = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.glob("*.xml"):
        old.unlink()
    failures = 0
    total = 0
    lanes: list[list[Check]] = []
    if arguments.part in (None, "lint") and not arguments.long:
        lanes.append(lint())
    if arguments.part in (None, "unit") and not arguments.long:
        lanes.append(unit())
    # Lint and unit tests side by side, a lane each; scenarios after them, since they want both cores.
    with ThreadPoolExecutor(max_workers=2) as pool:
        for problems in pool.map(lambda lane: [check.run() for check in lane], lanes):
            total += len(problems)
            failures += sum(map(bool, problems))
    if arguments.part in (None, "molecule") or arguments.long:
        problems = [check.run() for check in molecule(arguments.long)]
        total += len(problems)
        failures += sum(map(bool, problems))
    print(f"{total - failures} passed, {failures} failed")
    return 1 if failures or not total else 0


if __name__ == "__main__":
    sys.exit(main())
