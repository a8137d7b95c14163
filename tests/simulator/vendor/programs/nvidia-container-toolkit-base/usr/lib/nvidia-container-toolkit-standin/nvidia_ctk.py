# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stand-in of nvidia-ctk and nvidia-container-runtime: what roles and tests call, with their options and files.

Facts are those of NVIDIA's public sources, release v1.20.0: options and defaults of `cmd/nvidia-ctk`, the way in which
`pkg/config/engine/docker` changes daemon.json, the shape of the CDI specification.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = "@UPSTREAM@"
CDI_VERSION = "0.5.0"
SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_CONTROL_NODES = ("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl")
_MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
# Where a Debian or Ubuntu image's loader looks by itself. The real toolkit mounts the versioned file and has a hook
# write the container's loader cache and links; the result is the same.
_LIBRARY_IN_CONTAINER = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
# The simulated libnvidia-ml.so.1 reads the GPUs' state from here; a real one asks the kernel.
_SIMULATOR_STATE = "/var/lib/simgpu"


class ToolkitError(Exception):
    """What went wrong, in the words of the real tool."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML lists it."""

    index: int
    uuid: str
    minor: int

    @property
    def node(self) -> str:
        """Its device node."""
        return f"/dev/nvidia{self.minor}"


class _Log:
    """Lines as logrus writes them to what is no terminal."""

    levels = ("error", "warning", "info", "debug")

    def __init__(self) -> None:
        self.level = "info"

    def __call__(self, level: str, message: str) -> None:
        if self.levels.index(level) <= self.levels.index(self.level):
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            print(f'time="{now}" level={level} msg={json.dumps(message)}', file=sys.stderr)


log = _Log()

# --- GPUs ---


def find_gpus() -> list[Gpu]:
    """Ask NVML for the GPUs."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise ToolkitError("failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND") from error
    library.nvmlErrorString.restype = ctypes.c_char_p

    def ask(function: str, *arguments: object) -> None:
        code = getattr(library, function)(*arguments)
        if code:
            said = library.nvmlErrorString(code).decode()
            raise ToolkitError(f"failed to {'initialize NVML' if function == 'nvmlInit_v2' else function}: {said}")

    ask("nvmlInit_v2")
    count, found = ctypes.c_uint(), []
    ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
    for index in range(count.value):
        handle, minor, uuid = ctypes.c_void_p(), ctypes.c_uint(), ctypes.create_string_buffer(96)
        ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        ask("nvmlDeviceGetUUID", handle, uuid, ctypes.c_uint(96))
        ask("nvmlDeviceGetMinorNumber", handle, ctypes.byref(minor))
        found.append(Gpu(index, uuid.value.decode(), minor.value))
    library.nvmlShutdown()
    return found


def find_library() -> str | None:
    """The libnvidia-ml.so.1 that the host's loader would take."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"^\s*libnvidia-ml\.so\.1 \(libc6,x86-64\) => (\S+)$", listed, flags=re.MULTILINE)
    return found.group(1) if found else None


# --- CDI specification ---


def specification(
    gpus: Sequence[Gpu],
    nodes: Iterable[str],
    library: str | None,
    *,
    kind: str = "nvidia.com/gpu",
    strategies: Sequence[str] = ("index", "uuid"),
    everything: bool = True,
    present: Iterable[str] = (),
) -> dict[str, Any]:
    """A CDI specification: a device for each GPU by every strategy, and `all`.

    nodes: control nodes that the host has; present: other host paths (nvidia-smi, sockets) that it has.
    """
    devices = [
        {"name": name(gpu), "containerEdits": {"deviceNodes": [{"path": gpu.node}]}}
        for strategy in strategies
        for name in [_NAMERS[strategy]]
        for gpu in gpus
    ]
    if everything and gpus:
        whole = [{"path": gpu.node} for gpu in gpus]
        devices.append({"name": "all", "containerEdits": {"deviceNodes": whole}})
    mounts = [{"hostPath": path, "containerPath": path, "options": _MOUNT_OPTIONS} for path in present]
    if library:
        mounts.append({"hostPath": library, "containerPath": _LIBRARY_IN_CONTAINER, "options": _MOUNT_OPTIONS})
    return {
        "cdiVersion": CDI_VERSION,
        "kind": kind,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": path} for path in nodes],
            "mounts": mounts,
        },
        "devices": devices,
    }


_NAMERS: dict[str, Callable[[Gpu], str]] = {
    "index": lambda gpu: str(gpu.index),
    "uuid": lambda gpu: gpu.uuid,
    "type-index": lambda gpu: f"gpu{gpu.index}",
}


def host_specification(**options: Any) -> dict[str, Any]:
    """The specification of this host."""
    paths = ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-debugdump", "/run/nvidia-persistenced/socket", _SIMULATOR_STATE)
    return specification(
        options.pop("gpus", None) or find_gpus(),
        [path for path in _CONTROL_NODES if os.path.exists(path)],
        find_library(),
        present=[path for path in paths if os.path.exists(path)],
        **options,
    )


def to_yaml(value: Any, indent: str = "") -> str:
    """YAML as the real tool writes it: keys in order, texts quoted where they would be read as something else."""
    if isinstance(value, dict):
        lines = []
        for key in sorted(value):
            item = value[key]
            if isinstance(item, (dict, list)) and item:
                deeper = indent if isinstance(item, list) else indent + "  "
                lines.append(f"{indent}{key}:\n{to_yaml(item, deeper)}")
            else:
                lines.append(f"{indent}{key}: {_scalar(item)}\n")
        return "".join(lines)
    text = ""
    for item in value:
        if isinstance(item, (dict, list)):
            inner = to_yaml(item, indent + "  ")
            text += f"{indent}- {inner[len(indent) + 2 :]}"
        else:
            text += f"{indent}- {_scalar(item)}\n"
    return text


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z/][\w./=:@+-]*|\d+\.\d+\.\d+", value)
        return value if plain and value.lower() not in ("true", "false", "null", "yes", "no") else json.dumps(value)
    return json.dumps(value)


def device_names(text: str, is_json: bool) -> list[str]:
    """The qualified names of the devices of a specification, of the form that this tool and the real one write."""
    if is_json:
        spec = json.loads(text)
        return [f"{spec['kind']}={device['name']}" for device in spec.get("devices", [])]
    kind = re.search(r"^kind: *\"?([^\"\s]+)\"?\s*$", text, flags=re.MULTILINE)
    if not kind:
        raise ToolkitError("not a CDI specification: no kind")
    devices = re.search(r"^devices:\n((?:[ -].*\n?)*)", text, flags=re.MULTILINE)
    names = re.findall(
        r"^(?:- |  )name: *\"?([^\"\n]+?)\"?\s*$", devices.group(1) if devices else "", flags=re.MULTILINE
    )
    return [f"{kind.group(1)}={name}" for name in names]


def _generate(options: argparse.Namespace) -> None:
    output = options.output
    suffix = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}.get(Path(output).suffix.lower() if output else "", "")
    form = (options.format or suffix or "yaml").lower()
    if form not in ("json", "yaml"):
        raise ToolkitError(f"invalid output format: {form}")
    strategies = options.device_name_strategy or ["index", "uuid"]
    for strategy in strategies:
        if strategy not in _NAMERS:
            raise ToolkitError(f"invalid device name strategy: {strategy}")
    try:
        gpus = find_gpus()
        wanted = options.device_id or ["all"]
        if "all" not in wanted:
            gpus = [gpu for gpu in gpus if gpu.uuid in wanted or str(gpu.index) in wanted]
        spec = host_specification(
            gpus=gpus,
            kind=f"{options.vendor}/{options.cdi_class}",
            strategies=strategies,
            everything=not options.no_all_device,
        )
    except ToolkitError as error:
        raise ToolkitError(f"failed to generate CDI spec: failed to create device CDI specs: {error}") from error
    text = json.dumps(spec, indent=2) + "\n" if form == "json" else "---\n" + to_yaml(spec)
    if output:
        path = Path(output)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")  # a runtime must never read half a file
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o644)
        partial.replace(path)
    else:
        sys.stdout.write(text)
    log("info", f"Generated CDI spec with version {CDI_VERSION}")


def _list(options: argparse.Namespace) -> None:
    names: set[str] = set()
    for folder in options.spec_dir or SPEC_FOLDERS:
        for path in sorted(Path(folder).glob("*")):
            if path.suffix not in (".json", ".yaml"):
                continue
            try:
                names.update(device_names(path.read_text(encoding="utf-8"), path.suffix == ".json"))
            except (ToolkitError, ValueError, KeyError, OSError) as error:
                log("warning", "The following registry errors were reported:")
                log("warning", f"{path}: {error}")
    log("info", f"Found {len(names)} CDI devices")
    for name in sorted(names):
        print(name)


# --- Docker's daemon.json ---


def configured(config: Mapping[str, Any], name: str, path: str, *, default: bool, cdi: bool) -> dict[str, Any]:
    """daemon.json's content with the runtime added, as the real tool changes it."""
    result = dict(config)
    result["runtimes"] = {**config.get("runtimes", {}), name: {"path": path, "args": []}}
    if default:
        result["default-runtime"] = name
    if cdi:
        # Releases up to 1.20.0 drop every other feature here: what was read from the file is no map of booleans to Go.
        # A stand-in that kept them would hide this from the tests.
        result["features"] = {"cdi": True}
    return result


def _configure(options: argparse.Namespace) -> None:
    if options.runtime not in ("containerd", "crio", "docker"):
        raise ToolkitError(f"unrecognized runtime '{options.runtime}'")
    if options.runtime != "docker":
        raise ToolkitError(f"this test stand-in configures docker alone, not {options.runtime}")
    if options.drop_in_config:
        raise ToolkitError("runtime docker does not support drop-in configs")
    path = Path(options.config or "/etc/docker/daemon.json")
    config: dict[str, Any] = {}
    if path.exists():
        log("info", f"Loading config from {path}")
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ToolkitError(f"unable to load config for runtime docker: {error}") from error
    else:
        log("info", "Config file does not exist; using empty config")
    name = options.nvidia_runtime_name
    new = configured(config, name, options.nvidia_runtime_path, default=options.set_as_default, cdi=options.cdi_enabled)
    text = json.dumps(new, indent=4, sort_keys=True, ensure_ascii=False)
    if options.dry_run:
        print(text)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    log("info", f"Wrote updated config to {path}")
    log("info", "It is recommended that docker daemon be restarted.")


# --- config.toml and device nodes ---

_CONFIG = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"

[nvidia-container-cli]
ldconfig = "@/sbin/ldconfig"
load-kmods = true

[nvidia-container-runtime]
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false

[nvidia-ctk]
path = "nvidia-ctk"
"""


def _config(options: argparse.Namespace) -> None:
    path = Path(options.config_file)
    text = path.read_text(encoding="utf-8") if path.exists() else _CONFIG
    target = options.output or (options.config_file if options.in_place else "")
    if not target:
        sys.stdout.write(text)
        return
    Path(target).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    Path(target).write_text(text, encoding="utf-8")


def _create_device_nodes(options: argparse.Namespace) -> None:
    # The simulated driver makes the nodes when its modules are loaded; the real tool makes them itself.
    if options.load_kernel_modules:
        for module in ("nvidia", "nvidia-uvm", "nvidia-modeset"):
            if subprocess.run(["modprobe", module], check=False, capture_output=True).returncode:
                raise ToolkitError(f"failed to load NVIDIA kernel modules: failed to load module {module}")


# --- command line ---


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="nvidia-ctk", description="Stand-in of NVIDIA's nvidia-ctk for tests.", allow_abbrev=False)
    parser.add_argument("--debug", "-d", **_boolean("NVIDIA_CTK_DEBUG"))
    parser.add_argument("--quiet", **_boolean("NVIDIA_CTK_QUIET"))
    parser.add_argument("--config", dest="toolkit_config", default=os.environ.get("NVIDIA_CTK_CONFIG", ""))
    version = f"NVIDIA Container Toolkit CLI version {VERSION}"
    parser.add_argument("--version", "-v", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True)

    runtime = commands.add_parser("runtime", allow_abbrev=False).add_subparsers(dest="action", required=True)
    configure = runtime.add_parser("configure", allow_abbrev=False)
    configure.set_defaults(run=_configure)
    configure.add_argument("--dry-run", **_boolean())
    configure.add_argument("--runtime", default="docker")
    configure.add_argument("--config", default="")
    configure.add_argument("--drop-in-config", default="")
    configure.add_argument("--config-source", default="file")
    configure.add_argument("--config-mode", default="")
    configure.add_argument("--nvidia-runtime-name", default="nvidia")
    configure.add_argument("--nvidia-runtime-path", "--runtime-path", default="nvidia-container-runtime")
    configure.add_argument("--nvidia-set-as-default", "--set-as-default", dest="set_as_default", **_boolean())
    configure.add_argument("--cdi.enabled", "--cdi.enable", "--enable-cdi", dest="cdi_enabled", **_boolean())

    cdi = commands.add_parser("cdi", allow_abbrev=False).add_subparsers(dest="action", required=True)
    generate = cdi.add_parser("generate", allow_abbrev=False)
    generate.set_defaults(run=_generate)
    environment = os.environ.get
    generate.add_argument("--output", default=environment("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", ""))
    generate.add_argument("--format", default=environment("NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT", ""))
    generate.add_argument("--mode", "--discovery-mode", default="auto")
    names = environment("NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES", "")
    generate.add_argument("--device-name-strategy", action="append", default=names.split(",") if names else None)
    generate.add_argument(
        "--vendor", "--cdi-vendor", default=environment("NVIDIA_CTK_CDI_GENERATE_VENDOR", "nvidia.com")
    )
    generate.add_argument(
        "--class", "--cdi-class", dest="cdi_class", default=environment("NVIDIA_CTK_CDI_GENERATE_CLASS", "gpu")
    )
    generate.add_argument("--no-all-device", **_boolean("NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE"))
    generate.add_argument("--device-id", "--device-ids", "--device", "--devices", action="append", default=None)
    for accepted in ("--dev-root", "--driver-root", "--ldconfig-path", "--nvidia-cdi-hook-path"):
        generate.add_argument(accepted, default="")
    for accepted in ("--disable-hook", "--enable-hook", "--feature-flag", "--config-search-path"):
        generate.add_argument(accepted, action="append")
    listing = cdi.add_parser("list", allow_abbrev=False)
    listing.set_defaults(run=_list)
    folders = environment("NVIDIA_CTK_CDI_SPEC_DIRS", "")
    listing.add_argument("--spec-dir", action="append", default=folders.split(",") if folders else None)

    config = commands.add_parser("config", allow_abbrev=False)
    config.set_defaults(run=_config)
    config.add_argument("--config-file", "--config", default="/etc/nvidia-container-runtime/config.toml")
    config.add_argument("--in-place", "-i", **_boolean())
    config.add_argument("--output", "-o", default="")

    system = commands.add_parser("system", allow_abbrev=False).add_subparsers(dest="action", required=True)
    nodes = system.add_parser("create-device-nodes", allow_abbrev=False)
    nodes.set_defaults(run=_create_device_nodes)
    nodes.add_argument("--control-devices", **_boolean())
    nodes.add_argument("--load-kernel-modules", **_boolean())
    nodes.add_argument("--dry-run", **_boolean())
    return parser


class _Parser(argparse.ArgumentParser):
    """Ends as the real tool does on a wrong command line: a line of its log, status 1."""

    def error(self, message: str) -> Any:
        log("error", message)
        sys.exit(1)


def _boolean(variable: str = "") -> dict[str, Any]:
    return {"action": "store_true", "default": os.environ.get(variable, "").lower() in ("1", "t", "true")}


def without_values(arguments: Iterable[str]) -> list[str]:
    """The arguments with --option=true as --option and --option=false left out: Go's flags take such a value."""
    return [
        re.sub(r"=(1|t|true)$", "", word, flags=re.IGNORECASE)
        for word in arguments
        if not re.fullmatch(r"--?[\w.-]+=(0|f|false)", word, flags=re.IGNORECASE)
    ]


def main(arguments: Sequence[str]) -> int:
    """Run nvidia-ctk; returns its exit status."""
    options = _parser().parse_args(without_values(arguments))
    log.level = "error" if options.quiet else "debug" if options.debug else "info"
    try:
        options.run(options)
    except (ToolkitError, OSError) as error:
        log("error", str(error))
        return 1
    return 0


# --- nvidia-container-runtime ---


def wanted_devices(environment: Sequence[str]) -> list[str] | None:
    """What NVIDIA_VISIBLE_DEVICES of a container asks for; None when it asks for no part of the driver."""
    values = dict(item.partition("=")[::2] for item in environment)
    value = values.get("NVIDIA_VISIBLE_DEVICES", "void")
    if value in ("", "void"):
        return None
    names = [name.strip() for name in value.split(",")]
    return [] if names == ["none"] else [name.rpartition("=")[2] for name in names]


def injected(config: dict[str, Any], spec: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """An OCI configuration with a specification's common edits and those of the named devices."""
    devices = {device["name"]: device["containerEdits"] for device in spec["devices"]}
    for name in names:
        if name not in devices:
            raise ToolkitError(f"unresolvable CDI devices {spec['kind']}={name}")
    linux = config.setdefault("linux", {})
    rules = linux.setdefault("resources", {}).setdefault("devices", [])
    for edits in [spec["containerEdits"], *(devices[name] for name in names)]:
        config.setdefault("process", {}).setdefault("env", []).extend(edits.get("env", []))
        for node in edits.get("deviceNodes", []):
            number = os.stat(node["path"]).st_rdev
            major, minor = os.major(number), os.minor(number)
            linux.setdefault("devices", []).append(
                {"path": node["path"], "type": "c", "major": major, "minor": minor, "fileMode": stat.S_IMODE(0o666)}
            )
            rules.append({"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"})
        for mount in edits.get("mounts", []):
            entry = {"source": mount["hostPath"], "destination": mount["containerPath"]}
            config.setdefault("mounts", []).append({**entry, "type": "bind", "options": mount["options"]})
    return config


def _tell_engine(arguments: Sequence[str], message: str) -> None:
    """Say what failed where the engine looks: in the log that it names, or on stderr."""
    if "--log" in arguments:
        with open(arguments[arguments.index("--log") + 1], "a", encoding="utf-8") as file:
            file.write(json.dumps({"level": "error", "msg": message}) + "\n")
    print(message, file=sys.stderr)


def runtime(arguments: Sequence[str]) -> int:
    """Run runc, with the wanted GPUs in what it is told to create."""
    if "create" in arguments or "run" in arguments:
        bundle = "."
        for position, word in enumerate(arguments):
            if word in ("--bundle", "-b"):
                bundle = arguments[position + 1]
            elif word.startswith("--bundle="):
                bundle = word.partition("=")[2]
        path = Path(bundle) / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        names = wanted_devices(config.get("process", {}).get("env", []))
        if names is not None:
            try:
                injected(config, host_specification(), names)
            except ToolkitError as error:
                _tell_engine(arguments, f"nvidia-container-runtime: {error}")
                return 1
            path.write_text(json.dumps(config), encoding="utf-8")
    return os.execvp("runc", ["runc", *arguments])  # noqa: S606 # a runtime becomes the next one
