# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""modprobe, rmmod, lsmod, modinfo and dmesg for the simulated modules; every other call goes to the real program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from . import kernel_log
from .driver import Driver, ModuleError, forbidden, installed_package, module_file, module_name, read_configuration
from .machine import MODULES, RUN, Machine

_SHIMS = Path("/usr/local/sbin"), Path("/usr/local/bin"), Path("/opt/simgpu/bin")


def main(program: str, arguments: list[str], machine: Machine) -> int:
    return {"modprobe": modprobe, "rmmod": rmmod, "lsmod": lsmod, "modinfo": modinfo, "dmesg": dmesg}[program](
        arguments, machine
    )


def _real(program: str, arguments: list[str]) -> int:
    for folder in [*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin", "/usr/bin", "/bin"]:
        path = Path(folder) / program
        if Path(folder) not in _SHIMS and os.access(path, os.X_OK):
            return subprocess.run([path, *arguments], check=False).returncode
    names = [word for word in arguments if not word.startswith("-")]
    if program == "modprobe" and names:
        print(
            f"modprobe: FATAL: Module {names[0]} not found in directory /lib/modules/{os.uname().release}",
            file=sys.stderr,
        )
    elif program == "rmmod" and names:
        print(f"rmmod: ERROR: Module {names[0]} is not currently loaded", file=sys.stderr)
    elif program == "modinfo" and names:
        print(f"modinfo: ERROR: Module {names[0]} not found.", file=sys.stderr)
    else:
        print(f"{program}: not installed here: the package kmod has it", file=sys.stderr)
    return 1


def _ours(names: list[str]) -> bool:
    return bool(names) and any(module_name(name) in MODULES for name in names)


_LONG = {
    "all": "a",
    "dry-run": "n",
    "dump-modversions": "d",
    "first-time": "1",
    "force": "f",
    "help": "h",
    "ignore-install": "i",
    "ignore-remove": "i",
    "quiet": "q",
    "remove": "r",
    "resolve-alias": "R",
    "show": "n",
    "show-depends": "D",
    "showconfig": "c",
    "syslog": "s",
    "use-blacklist": "b",
    "verbose": "v",
    "version": "V",
    "wait": "w",
}


class _Options:
    """The options of modprobe and rmmod that matter here; letters may stand together (-qr)."""

    def __init__(self, arguments: list[str], with_value: tuple[str, ...] = ()) -> None:
        self.flags: set[str] = set()
        self.names: list[str] = []
        rest = iter(arguments)
        for word in rest:
            if word.startswith("--"):
                name, equals, _value = word[2:].partition("=")
                if not equals and name in with_value:
                    next(rest, None)
                self.flags.add(_LONG.get(name, name))
            elif word.startswith("-") and len(word) > 1:
                for letter in word[1:]:
                    self.flags.add(letter)
                if word[1:] in with_value:
                    next(rest, None)
            else:
                self.names.append(word)


def modprobe(arguments: list[str], machine: Machine) -> int:
    options = _Options(arguments, ("C", "config", "d", "dirname", "S", "set-version", "w", "wait"))
    names = options.names if options.flags & {"a", "r"} else options.names[:1]
    parameters = [] if options.flags & {"a", "r"} else options.names[1:]
    if options.flags & {"c", "V", "h", "R"} or not _ours(names):
        return _real("modprobe", arguments)
    driver, configuration = Driver(machine), read_configuration(machine.root)
    quiet = "q" in options.flags
    for name in names:
        module = module_name(name)
        if module not in MODULES:
            return _real("modprobe", arguments)
        try:
            if "r" in options.flags:
                _remove(driver, machine, module, options)
                continue
            if "b" in options.flags and module in configuration.blacklisted:
                return 1 if "1" in options.flags else 0
            if forbidden(configuration, name.replace("-", "_")) and "i" not in options.flags:
                if "v" in options.flags or "n" in options.flags:
                    print(f"install {configuration.install[name.replace('-', '_')]}")
                if (
                    configuration.install[name.replace("-", "_")].split()[0].endswith("false")
                    and "n" not in options.flags
                ):
                    raise ModuleError(f"ERROR: could not insert '{module}': Operation not permitted")
                continue
            if "1" in options.flags and module in machine.loaded():
                raise ModuleError(f"ERROR: could not insert '{module}': Module already in kernel")
            if options.flags & {"n", "D"}:
                _dry_run(driver, machine, module, "D" in options.flags)
            else:
                driver.load(module, parameters)
        except ModuleError as error:
            if not (quiet and "not found" in str(error)):
                print(f"modprobe: {error}", file=sys.stderr)
            return 1
    return 0


def _dry_run(driver: Driver, machine: Machine, module: str, show: bool) -> None:
    if module != "nouveau":
        driver._check_package(module)
    if show:
        for name in [*MODULES[module], module]:
            print(f"insmod /lib/modules/{os.uname().release}/updates/dkms/{name.replace('_', '-')}.ko")


def _remove(driver: Driver, machine: Machine, module: str, options: _Options) -> None:
    if module not in machine.loaded():
        if "1" in options.flags:
            raise ModuleError(f"FATAL: Module {module} is not in kernel.")
        return
    if "n" in options.flags:
        return
    # modprobe takes away what depended on the module, and so does Debian's remove command.
    for other in [name for name in reversed(list(MODULES)) if _needs(name, module) and name in machine.loaded()]:
        driver.unload(other)
    try:
        driver.unload(module)
    except ModuleError as error:
        raise ModuleError(str(error).replace("ERROR: Module", "FATAL: Module") + ".") from None


def _needs(name: str, module: str) -> bool:
    return any(needed == module or _needs(needed, module) for needed in MODULES[name])


def rmmod(arguments: list[str], machine: Machine) -> int:
    options = _Options(arguments)
    if options.flags & {"V", "h"} or not _ours(options.names):
        return _real("rmmod", arguments)
    failed = 0
    for name in options.names:
        try:
            Driver(machine).unload(module_name(name), force="f" in options.flags)
        except ModuleError as error:
            print(f"rmmod: {error}", file=sys.stderr)
            failed = 1
    return failed


def lsmod(arguments: list[str], machine: Machine) -> int:
    if arguments:
        return _real("lsmod", arguments)
    print(f"{'Module':<23} Size  Used by")
    path = machine.root / RUN / "modules"
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        name, size, count, users = line.split()[:4]
        print(f"{name:<19} {size:>8}  {count} {'' if users == '-' else users.rstrip(',')}".rstrip())
    return 0


def modinfo(arguments: list[str], machine: Machine) -> int:
    options = _Options(arguments)
    # -F takes a field's name, which may be written in one word with it.
    field = None
    names = list(options.names)
    for position, word in enumerate(arguments):
        if word in ("-F", "--field"):
            field = arguments[position + 1] if position + 1 < len(arguments) else ""
            names.remove(field)
        elif word.startswith("--field="):
            field = word.partition("=")[2]
    if "n" in options.flags:
        field = "filename"
    if not _ours(names):
        return _real("modinfo", arguments)
    state = machine.store.state()
    package = installed_package(machine.root)
    version = state.get("driver.version") or (package.version if package else "")
    failed = 0
    for name in names:
        module = module_name(name)
        another = name.startswith("nvidia-current") and package is not None and not package.debian
        unknown = not version or state.get("module.built") == "0" or another
        if module != "nouveau" and unknown:
            print(f"modinfo: ERROR: Module {name} not found.", file=sys.stderr)
            failed = 1
            continue
        place = "kernel/drivers/gpu/drm/nouveau" if module == "nouveau" else "updates/dkms"
        open_module = bool(package and package.open)
        fields = {
            "filename": f"/lib/modules/{os.uname().release}/{place}/{module_file(module, package)}.ko",
            "license": "GPL and additional rights"
            if module == "nouveau"
            else ("Dual MIT/GPL" if open_module else "NVIDIA"),
            "depends": ",".join(MODULES[module]),
            "name": module,
            "vermagic": f"{os.uname().release} SMP preempt mod_unload modversions",
        }
        if module != "nouveau":
            fields["version"] = version
        if field is not None:
            if field in fields:
                print(fields[field])
        else:
            for key, value in fields.items():
                print(f"{key + ':':<16}{value}")
    return failed


def dmesg(arguments: list[str], machine: Machine) -> int:
    """The real dmesg would show the outer machine's log, with that of every other test host."""
    del arguments
    for line in kernel_log.as_dmesg(machine.root):
        print(line)
    return 0
