# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""Settings of GPUs: what is set, what is wanted, whether the card takes it, and the calls between the two.

Everything is checked for every GPU before the first call that changes something. After the last one the GPUs are asked
again, since nvidia-smi ends well after warnings too.
Sources: nvidia-smi(1) and nvml.h of drivers 535 and 550, the MIG user guide, `nvidia-smi -q -x`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.trainyard.cluster.plugins.module_utils._command import CommandResult, RunCommand
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_no_handle import parse_messages
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_settings_mig import (
    PROFILE_NAME,
    Instance,
    Profile,
    find_layout_fault,
    find_unlisted_fault,
    ordered,
    parse_instances,
    parse_profiles,
    plain_name,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_settings_record import (
    Clocks,
    Entry,
    read_record,
    write_record,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import (
    OK,
    Device,
    SmiError,
    parse_report,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import boolean, integer, pci_bus_id

DEFAULT = "default"
COMPUTE_MODES = (DEFAULT, "exclusive_process", "prohibited")

RESET = "reset"
REBOOT = "reboot"

# nvml.h: graphics clocks can be locked from Volta on, memory clocks from Ampere on.
_BEFORE_VOLTA = frozenset({"Fermi", "Kepler", "Maxwell", "Pascal"})
_BEFORE_AMPERE = _BEFORE_VOLTA | {"Volta", "Turing"}
# The MIG user guide: from Hopper on MIG mode needs no reset.
_MIG_NEEDS_RESET = frozenset({"Ampere"})
# Limits are kept in milliwatts and shown rounded.
_SAME_WATTS = 0.5
_GPU_ELEMENT = re.compile(r"<gpu\s[^>]*\bid\s*=\s*[\"']([^\"']*)[\"'][^>]*>(.*?)</gpu>", re.DOTALL)
_MEMORY_CLOCK = re.compile(r"<supported_mem_clock>\s*<value>([^<]*)</value>")
_GRAPHICS_CLOCK = re.compile(r"<supported_graphics_clock>([^<]*)</supported_graphics_clock>")
# "No MIG-enabled devices found.", "No GPU instances found: Not Found"
_NOTHING_LISTED = re.compile(r"^No .* found", re.MULTILINE)
_NO_PERMISSION = re.compile(r"(?:insufficient|suff?ici?ent) permission|permission denied", re.IGNORECASE)
_NOT_DONE = re.compile(r"not supported|treating as warning|unable to|failed to", re.IGNORECASE)
_NOT_ROOT = "Only root may change a GPU's settings: run the task with become: true."


class SettingsError(Exception):
    """Something is wrong; the message says what in whole sentences. changed: whether a GPU was changed before."""

    def __init__(self, message: str, changed: bool = False) -> None:
        super().__init__(message)
        self.changed = changed


class _HangsError(SettingsError):
    """nvidia-smi doesn't come back, so that nothing more can be asked."""


@dataclass(frozen=True)
class Machine:
    """Where the GPUs are: how to run commands, nvidia-smi and its limit in seconds, the folder of /sys and /run."""

    run: RunCommand
    nvidia_smi: str
    timeout: float
    root: str
    is_root: bool


@dataclass(frozen=True)
class Request:
    """What the user wrote; None is: leave it as it is."""

    gpus: Sequence[str] | None = None
    persistence_mode: bool | None = None
    power_limit: str | None = None
    compute_mode: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    mig_layout: Sequence[str] | None = None
    graphics_clocks: Sequence[str] | None = None
    memory_clocks: Sequence[str] | None = None
    defaults: bool = False


@dataclass(frozen=True)
class GpuSettings:
    """A GPU's settings. None is: the card has no such setting, or nobody knows.

    graphics_clocks_mhz, memory_clocks_mhz: the locked lowest and highest clock, [] when not locked.
    mig_layout: profiles of the GPU instances, with a remark where one hasn't just its default compute instance.
    """

    index: int
    uuid: str | None
    pci_bus_id: str | None
    model: str | None
    persistence_mode: bool | None
    power_limit_watts: float | None
    compute_mode: str | None
    ecc_current: bool | None
    ecc_pending: bool | None
    mig_current: bool | None
    mig_pending: bool | None
    mig_layout: list[str] | None
    graphics_clocks_mhz: Clocks | None
    memory_clocks_mhz: Clocks | None


@dataclass(frozen=True)
class Pending:
    """A setting that waits. needs: reset or reboot. how: what to do, in a sentence."""

    gpu: int
    setting: str
    needs: str
    how: str


@dataclass(frozen=True)
class Result:
    """What was done. before and after: a line a setting that changes. warnings: sentences."""

    changed: bool
    gpus: list[GpuSettings]
    pending: list[Pending]
    before: str
    after: str
    warnings: list[str]


@dataclass(frozen=True)
class _Wanted:
    """What one GPU shall be set to."""

    persistence_mode: bool | None = None
    power_limit_watts: float | None = None
    compute_mode: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    mig_layout: list[str] | None = None
    graphics_clocks: Clocks | None = None
    memory_clocks: Clocks | None = None


@dataclass(frozen=True)
class _Gpu:
    """A GPU: the driver's report of it, its settings, MIG instances and supported clocks in MHz."""

    device: Device
    settings: GpuSettings
    instances: list[Instance]
    supported_graphics: list[int]
    supported_memory: list[int]

    @property
    def index(self) -> int:
        return self.device.index

    @property
    def id(self) -> str:
        """Return what nvidia-smi knows it by, whatever other GPUs come and go."""
        return self.device.uuid or str(self.device.index)


@dataclass
class _Faults:
    """Sentences about GPUs; one that fits several of the same model is said once."""

    found: dict[tuple[str, str | None], list[int]] = field(default_factory=dict)

    def add(self, gpu: _Gpu, sentence: str) -> None:
        """Add a sentence with {gpu} in the place of the GPU's name."""
        self.found.setdefault((sentence, gpu.device.model), []).append(gpu.index)

    def sentences(self) -> list[str]:
        return [sentence.replace("{gpu}", _named(indices, model)) for (sentence, model), indices in self.found.items()]


def apply(machine: Machine, request: Request, check_only: bool) -> Result:
    """Give the chosen GPUs the settings. Raises SettingsError."""
    wanted = _parse(request)
    every = _read(machine)
    chosen = _choose(every, request.gpus)
    wishes = {gpu.index: _complete(wanted, gpu, request) for gpu in chosen}
    asked = wanted.mig_layout and any(gpu.settings.mig_current is not None for gpu in chosen)
    offered = _profiles(machine) if asked else {}
    faults = _Faults()
    for gpu in chosen:
        _check(gpu, wishes[gpu.index], request, offered, faults)
        _check_use(gpu, wishes[gpu.index], machine.root, faults)
    sentences = faults.sentences()
    if sentences:
        raise SettingsError(" ".join(sentences))
    predicted = [_predict(gpu, wishes[gpu.index]) for gpu in chosen]
    todo = [gpu for gpu in chosen if _differing(gpu, wishes[gpu.index])]
    after = predicted
    if todo and not check_only:
        if not machine.is_root:
            raise SettingsError(_NOT_ROOT)
        after = _carry_out(machine, chosen, wishes, offered)
    before_lines, after_lines = _difference([gpu.settings for gpu in chosen], after)
    devices = {gpu.index: gpu.device for gpu in chosen}
    return Result(
        changed=bool(todo),
        gpus=after,
        pending=[
            pending
            for settings in after
            for pending in _pending(settings, devices[settings.index], wishes[settings.index])
        ],
        before=before_lines,
        after=after_lines,
        warnings=_warnings(after, wishes, devices),
    )


# --- what is wanted ---


def _parse(request: Request) -> _Wanted:
    """Read the values that mean the same for every GPU. Raises SettingsError with all that is wrong."""
    faults: list[str] = []
    watts = None
    if request.power_limit is not None and request.power_limit.strip().lower() != DEFAULT:
        watts = _watts(request.power_limit)
        if watts is None:
            faults.append(
                f"power_limit: '{request.power_limit}' is no number of watts; write one, as 400, or {DEFAULT}."
            )
    graphics = _clocks("graphics_clocks", request.graphics_clocks, faults)
    memory = _clocks("memory_clocks", request.memory_clocks, faults)
    layout = None
    if request.mig_layout is not None:
        layout = [plain_name(name) for name in request.mig_layout]
        wrong = [name for name in layout if not PROFILE_NAME.match(name)]
        if wrong:
            faults.append(
                f"mig_layout: '{wrong[0]}' is no name of a GPU instance profile; write names such as 3g.40gb, "
                "as nvidia-smi mig -lgip shows them."
            )
        if layout and request.mig is False:
            faults.append(
                "mig_layout: a GPU out of MIG mode has no instances; write mig: true, or leave mig_layout out."
            )
    if request.gpus is not None and not request.gpus:
        faults.append("gpus: the list is empty; name GPUs by index, UUID or PCI bus id, or leave it out for all.")
    if faults:
        raise SettingsError(" ".join(faults))
    return _Wanted(
        persistence_mode=request.persistence_mode,
        power_limit_watts=watts,
        compute_mode=request.compute_mode,
        ecc=request.ecc,
        mig=request.mig,
        mig_layout=layout,
        graphics_clocks=graphics,
        memory_clocks=memory,
    )


def _watts(value: str) -> float | None:
    match = re.match(r"\s*([0-9]{1,5}(?:\.[0-9]{1,3})?)\s*[wW]?\s*\Z", value)
    return float(match[1]) if match else None


def _clocks(option: str, values: Sequence[str] | None, faults: list[str]) -> Clocks | None:
    if values is None:
        return None
    words = [str(value).strip().lower() for value in values]
    if words == [DEFAULT]:
        return []
    clocks = [int(word) for word in words if re.match(r"[0-9]{1,5}\Z", word)]
    if len(clocks) != len(words) or len(clocks) not in (1, 2) or clocks[0] > clocks[-1] or not clocks[-1]:
        faults.append(
            f"{option}: '{','.join(words)}' is no clock; write MHz as one number or as lowest and highest, "
            f"such as 1000,1500, or {DEFAULT}."
        )
        return None
    return [clocks[0], clocks[-1]]


def _complete(wanted: _Wanted, gpu: _Gpu, request: Request) -> _Wanted:
    """Fill in the vendor's defaults of this GPU where they are asked for."""
    limit = wanted.power_limit_watts
    if limit is None and (request.power_limit is not None or request.defaults):
        limit = gpu.device.power_limit_default_watts
    complete = replace(wanted, power_limit_watts=limit)
    if request.defaults:
        layout = wanted.mig_layout
        complete = replace(
            complete,
            compute_mode=wanted.compute_mode or (DEFAULT if gpu.settings.compute_mode else None),
            mig=False if wanted.mig is None and layout is None else wanted.mig,
            graphics_clocks=[] if wanted.graphics_clocks is None else wanted.graphics_clocks,
            memory_clocks=[] if wanted.memory_clocks is None else wanted.memory_clocks,
        )
    # Off is what a card without the setting is.
    if complete.ecc is False and gpu.settings.ecc_current is None:
        complete = replace(complete, ecc=None)
    if complete.mig is False and gpu.settings.mig_current is None:
        complete = replace(complete, mig=None)
    if complete.mig_layout == [] and not gpu.instances:
        complete = replace(complete, mig_layout=None)
    return complete


# --- what there is ---


def _read(machine: Machine) -> list[_Gpu]:
    """Ask for all GPUs. Raises SettingsError where nvidia-smi gives no report."""
    result = _run(machine, "-q", "-x")
    try:
        report = parse_report(result.out, messages=result.err)
    except SmiError as error:
        lost = parse_messages(f"{result.out}\n{result.err}")
        if lost:
            raise SettingsError(f"A GPU can't be reached, so that none can be set: {lost[0].line}.") from None
        said = _said(result)
        raise SettingsError(f"nvidia_smi: {machine.nvidia_smi} gives no report: {said or error}.") from None
    supported = {
        pci_bus_id(match[1]): (
            sorted({clock for clock in map(integer, _GRAPHICS_CLOCK.findall(match[2])) if clock}),
            sorted({clock for clock in map(integer, _MEMORY_CLOCK.findall(match[2])) if clock}),
        )
        for match in _GPU_ELEMENT.finditer(result.out)
    }
    divided: dict[int, list[Instance]] = {}
    if any(boolean(device.mig_mode_current) for device in report.devices):
        divided = parse_instances(_listing(machine, "-lgi"), _listing(machine, "-lci"))
    record = read_record(machine.root)
    gpus = []
    for device in report.devices:
        graphics, memory = supported.get(device.pci_bus_id, ([], []))
        instances = divided.get(device.index, [])
        gpus.append(_Gpu(device, _settings(device, instances, record), instances, graphics, memory))
    return gpus


def _settings(device: Device, instances: Sequence[Instance], record: dict[str, Entry]) -> GpuSettings:
    ecc, mig = boolean(device.ecc_mode_current), boolean(device.mig_mode_current)
    mode = (device.compute_mode or "").lower().replace(" ", "_")
    noted = record.get(device.uuid or str(device.index))
    if noted and (noted.ecc, noted.mig) != (ecc, mig):
        noted = None  # the GPU was reset
    return GpuSettings(
        index=device.index,
        uuid=device.uuid,
        pci_bus_id=device.pci_bus_id,
        model=device.model,
        persistence_mode=boolean(device.persistence_mode),
        power_limit_watts=device.power_limit_watts,
        compute_mode=mode or None,
        ecc_current=ecc,
        ecc_pending=ecc if device.ecc_mode_pending is None else boolean(device.ecc_mode_pending),
        mig_current=mig,
        mig_pending=mig if device.mig_mode_pending is None else boolean(device.mig_mode_pending),
        mig_layout=sorted(instance.label for instance in instances) if mig else None,
        graphics_clocks_mhz=noted.graphics if noted else None,
        memory_clocks_mhz=noted.memory if noted else None,
    )


def _profiles(machine: Machine) -> dict[int, list[Profile]]:
    """Return what the GPUs offer; older drivers tell in MIG mode only."""
    return parse_profiles(_listing(machine, "-lgip"), _listing(machine, "-lgipp"))


def _listing(machine: Machine, option: str) -> str:
    result = _run(machine, "mig", option)
    if result.rc == 0:
        return result.out
    if _NOTHING_LISTED.search(result.out):
        return ""
    raise _refused(result, f"mig_layout: nvidia-smi mig {option} failed")


def _choose(gpus: Sequence[_Gpu], names: Sequence[str] | None) -> list[_Gpu]:
    if names is None:
        chosen = list(gpus)
    else:
        found = {str(name): _find(gpus, str(name)) for name in names}
        unknown = [name for name, gpu in found.items() if gpu is None]
        if unknown:
            there = ", ".join(str(gpu.index) for gpu in gpus) or "none"
            raise SettingsError(
                f"gpus: {', '.join(unknown)} {'is no GPU' if len(unknown) == 1 else 'are no GPUs'} of this machine "
                f"(it has {there}); write an index, a UUID or a PCI bus id that nvidia-smi -q shows."
            )
        indices = {gpu.index for gpu in found.values() if gpu}
        chosen = [gpu for gpu in gpus if gpu.index in indices]
    if not chosen:
        raise SettingsError("gpus: this machine has no GPU that answers; see what gpu_facts says about it.")
    broken = [gpu.index for gpu in chosen if gpu.device.state != OK]
    if broken:
        raise SettingsError(
            f"gpus: {_named(broken, None)} {'does' if len(broken) == 1 else 'do'} not answer the driver; leave out "
            "what is broken, and see what gpu_facts says about it."
        )
    return chosen


def _find(gpus: Sequence[_Gpu], name: str) -> _Gpu | None:
    address = pci_bus_id(name)
    for gpu in gpus:
        if name.strip() in (str(gpu.index), gpu.device.uuid) or (address and address == gpu.device.pci_bus_id):
            return gpu
    return None


# --- whether the card takes it ---


def _check(gpu: _Gpu, wanted: _Wanted, request: Request, offered: dict[int, list[Profile]], faults: _Faults) -> None:
    device, settings = gpu.device, gpu.settings
    if wanted.persistence_mode is not None and settings.persistence_mode is None:
        faults.add(gpu, "persistence_mode: {gpu} has no such mode; leave it out.")
    _check_power(gpu, wanted, request, faults)
    mig = settings.mig_current if wanted.mig is None else wanted.mig
    if wanted.compute_mode is not None:
        if settings.compute_mode is None:
            faults.add(gpu, "compute_mode: {gpu} has no such mode; leave it out.")
        elif wanted.compute_mode != DEFAULT and mig:
            faults.add(
                gpu,
                f"compute_mode: {wanted.compute_mode} is not for {{gpu}} in MIG mode, where it stays {DEFAULT}; "
                "leave it out, or write mig: false.",
            )
    if wanted.ecc and settings.ecc_current is None:
        faults.add(gpu, "ecc: true is not for {gpu}, which has no ECC to switch; leave it out, or write false.")
    if wanted.mig and settings.mig_current is None:
        faults.add(gpu, "mig: true is not for {gpu}, which has no MIG mode; leave it out, or write false.")
    elif wanted.mig_layout:
        _check_layout(gpu, wanted.mig_layout, bool(wanted.mig), offered.get(device.index, []), faults)
    _check_clocks(gpu, "graphics_clocks", wanted.graphics_clocks, faults)
    _check_clocks(gpu, "memory_clocks", wanted.memory_clocks, faults)


def _check_power(gpu: _Gpu, wanted: _Wanted, request: Request, faults: _Faults) -> None:
    if request.power_limit is None:
        return
    low, high, watts = gpu.device.power_limit_min_watts, gpu.device.power_limit_max_watts, wanted.power_limit_watts
    if watts is None:
        faults.add(gpu, f"power_limit: {DEFAULT} is not known of {{gpu}}; write watts, or leave it out.")
    elif low is None or high is None or gpu.settings.power_limit_watts is None:
        faults.add(gpu, f"power_limit: {_watt(watts)} is not for {{gpu}}, whose limit can't be set; leave it out.")
    elif not low <= watts <= high:
        faults.add(gpu, f"power_limit: {_watt(watts)} is out of range for {{gpu}}; write {low:g} to {high:g}.")


def _check_clocks(gpu: _Gpu, option: str, wanted: Clocks | None, faults: _Faults) -> None:
    if not wanted:
        return
    highest, supported = (
        (gpu.device.clock_graphics_max_mhz, gpu.supported_graphics)
        if option == "graphics_clocks"
        else (gpu.device.clock_memory_max_mhz, gpu.supported_memory)
    )
    shown = f"{wanted[0]} MHz" if wanted[0] == wanted[1] else f"{wanted[0]} to {wanted[1]} MHz"
    too_old = _BEFORE_VOLTA if option == "graphics_clocks" else _BEFORE_AMPERE
    if gpu.device.architecture in too_old or (highest is None and not supported):
        faults.add(gpu, f"{option}: {shown} is not for {{gpu}}, whose clocks can't be locked; leave it out.")
        return
    low, high = min(supported, default=1), max([*supported, highest or 0])
    outside = wanted[0] < low or wanted[1] > high
    if option == "memory_clocks" and supported:
        # Of these there are only a few.
        if outside or not any(wanted[0] <= clock <= wanted[1] for clock in supported):
            choices = ", ".join(map(str, supported))
            faults.add(gpu, f"{option}: {shown} is no clock of {{gpu}}; its memory runs at {choices} MHz.")
    elif outside:
        faults.add(gpu, f"{option}: {shown} is out of range for {{gpu}}; write {low} to {high} MHz.")


def _check_layout(gpu: _Gpu, layout: list[str], turned_on: bool, offered: Sequence[Profile], faults: _Faults) -> None:
    shown = ", ".join(layout)
    if not (turned_on or gpu.settings.mig_current or gpu.settings.mig_pending):
        faults.add(gpu, f"mig_layout: {shown} is not for {{gpu}}, which is not in MIG mode; write mig: true too.")
        return
    fault = ""
    if offered:
        fault = find_layout_fault(layout, offered)
    elif gpu.settings.mig_current:
        fault = "it offers no profile at all"
    else:
        fault = find_unlisted_fault(layout, gpu.device.memory_total_mib)
    if fault:
        faults.add(gpu, f"mig_layout: {shown} is not for {{gpu}}: {fault}.")


def _check_use(gpu: _Gpu, wanted: _Wanted, root: str, faults: _Faults) -> None:
    """Refuse what would take the GPU from a process."""
    for option in sorted({"ecc", "mig", "mig_layout"} & set(_differing(gpu, wanted))):
        users = ", ".join(
            f"{process.pid} ({process.name or _program(root, process.pid)})" for process in gpu.device.processes
        )
        if users:
            count = len(gpu.device.processes)
            value = getattr(wanted, option)
            said = ", ".join(value) or "[]" if isinstance(value, list) else str(value).lower()
            faults.add(
                gpu,
                f"{option}: {said} waits until {{gpu}} is free; now process{'es' if count > 1 else ''} {users} "
                f"{'hold' if count > 1 else 'holds'} it, so let {'them' if count > 1 else 'it'} end first.",
            )


def _program(root: str, pid: int | None) -> str:
    try:
        with open(os.path.join(root, f"proc/{pid}/comm"), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "program unknown"


# --- what differs ---


def _differing(gpu: _Gpu, wanted: _Wanted) -> list[str]:
    """Return the options that have to be set. A mode that waits for a reset already is not set again."""
    now = gpu.settings
    differing = []
    if wanted.persistence_mode not in (None, now.persistence_mode):
        differing.append("persistence_mode")
    if wanted.mig not in (None, now.mig_pending):
        differing.append("mig")
    if wanted.mig_layout is not None and _layout_differs(now, wanted):
        differing.append("mig_layout")
    if wanted.ecc not in (None, now.ecc_pending):
        differing.append("ecc")
    if wanted.compute_mode not in (None, now.compute_mode):
        differing.append("compute_mode")
    if wanted.power_limit_watts is not None and (
        now.power_limit_watts is None or abs(wanted.power_limit_watts - now.power_limit_watts) >= _SAME_WATTS
    ):
        differing.append("power_limit")
    if wanted.graphics_clocks not in (None, now.graphics_clocks_mhz):
        differing.append("graphics_clocks")
    if wanted.memory_clocks not in (None, now.memory_clocks_mhz):
        differing.append("memory_clocks")
    return differing


def _layout_differs(now: GpuSettings, wanted: _Wanted) -> bool:
    if now.mig_current:
        return now.mig_layout != sorted(wanted.mig_layout or [])
    # It can't be made before MIG mode is in force: while that waits, so does the layout.
    return bool(wanted.mig_layout) and not now.mig_pending


def _predict(gpu: _Gpu, wanted: _Wanted) -> GpuSettings:
    """Return the settings as they will be, supposing that the driver does what its documentation says."""
    now = gpu.settings
    differing = _differing(gpu, wanted)
    after = now
    if "mig" in differing:
        at_once = gpu.device.architecture not in _MIG_NEEDS_RESET
        current = wanted.mig if at_once else now.mig_current
        layout = now.mig_layout if current == now.mig_current and wanted.mig else ([] if current else None)
        after = replace(after, mig_pending=wanted.mig, mig_current=current, mig_layout=layout)
    if "mig_layout" in differing and after.mig_current:
        after = replace(after, mig_layout=sorted(wanted.mig_layout or []))
    if "ecc" in differing:
        after = replace(after, ecc_pending=wanted.ecc)
    return replace(
        after,
        persistence_mode=now.persistence_mode if wanted.persistence_mode is None else wanted.persistence_mode,
        compute_mode=wanted.compute_mode or now.compute_mode,
        power_limit_watts=wanted.power_limit_watts if "power_limit" in differing else now.power_limit_watts,
        graphics_clocks_mhz=now.graphics_clocks_mhz if wanted.graphics_clocks is None else wanted.graphics_clocks,
        memory_clocks_mhz=now.memory_clocks_mhz if wanted.memory_clocks is None else wanted.memory_clocks,
    )


def _difference(before: Sequence[GpuSettings], after: Sequence[GpuSettings]) -> tuple[str, str]:
    old_lines, new_lines = [], []
    for old, new in zip(before, after):
        was, becomes = _described(old), _described(new)
        for name, value in becomes.items():
            if value != was[name]:
                old_lines.append(f"GPU {old.index} {name}: {was[name]}\n")
                new_lines.append(f"GPU {old.index} {name}: {value}\n")
    return "".join(old_lines), "".join(new_lines)


def _described(settings: GpuSettings) -> dict[str, str]:
    """Return the settings by the options' names, in words."""
    return {
        "persistence_mode": _switch(settings.persistence_mode),
        "mig": _mode(settings.mig_current, settings.mig_pending),
        "mig_layout": "none" if settings.mig_layout is None else ", ".join(settings.mig_layout) or "no instances",
        "ecc": _mode(settings.ecc_current, settings.ecc_pending),
        "compute_mode": settings.compute_mode or "none",
        "power_limit": "none" if settings.power_limit_watts is None else _watt(settings.power_limit_watts),
        "graphics_clocks": _locked(settings.graphics_clocks_mhz),
        "memory_clocks": _locked(settings.memory_clocks_mhz),
    }


def _switch(value: bool | None) -> str:
    return "none" if value is None else "on" if value else "off"


def _mode(current: bool | None, pending: bool | None) -> str:
    return _switch(current) + (f" ({_switch(pending)} is pending)" if pending != current else "")


def _watt(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + " W"


def _locked(clocks: Clocks | None) -> str:
    return "unknown" if clocks is None else f"{clocks[0]} to {clocks[1]} MHz" if clocks else DEFAULT


def _named(indices: Sequence[int], model: str | None) -> str:
    numbers = [str(index) for index in indices]
    listed = ", ".join(numbers[:-1]) + (" and " if len(numbers) > 1 else "") + numbers[-1]
    return f"GPU{'s' if len(numbers) > 1 else ''} {listed}" + (f" ({model})" if model else "")


def _pending(settings: GpuSettings, device: Device, wanted: _Wanted) -> list[Pending]:
    waiting = []
    if settings.ecc_pending != settings.ecc_current:
        waiting.append("ecc")
    if settings.mig_pending != settings.mig_current:
        waiting.append("mig")
        if wanted.mig_layout and settings.mig_pending:
            waiting.append("mig_layout")
    # A GPU in a virtual machine, or one that shows a screen, can't be reset from here.
    virtual = (device.virtualization_mode or "None").lower() not in {"none", "host vgpu", "host vsga"}
    needs = REBOOT if virtual or boolean(device.display_active) else RESET
    how = "Reboot the machine."
    if needs == RESET:
        together = ""
        if device.architecture in _MIG_NEEDS_RESET and device.fabric_state is not None:
            together = " (GPUs behind an NVSwitch are reset all together, without --id)"
        how = (
            f"Drain the node, end whatever has GPU {settings.index} open (monitoring too), then run "
            f"nvidia-smi --gpu-reset --id={settings.index}{together}, or reboot the machine."
        )
    return [
        Pending(settings.index, name, needs, f"{how} Run this task again then." if name == "mig_layout" else how)
        for name in waiting
    ]


def _warnings(after: Sequence[GpuSettings], wishes: dict[int, _Wanted], devices: dict[int, Device]) -> list[str]:
    fleeting = []
    for settings in after:
        wanted = wishes[settings.index]
        limited = wanted.power_limit_watts not in (None, devices[settings.index].power_limit_default_watts)
        if settings.persistence_mode is False and (limited or wanted.graphics_clocks or wanted.memory_clocks):
            fleeting.append(settings.index)
    if not fleeting:
        return []
    return [
        f"Persistence mode is off on {_named(fleeting, None)}: the driver may forget power limits and locked clocks as "
        "soon as nothing uses the GPU; set persistence_mode: true."
    ]


# --- carrying it out ---


def _carry_out(
    machine: Machine, chosen: Sequence[_Gpu], wishes: dict[int, _Wanted], offered: dict[int, list[Profile]]
) -> list[GpuSettings]:
    """Set what differs, look again, and return what is there then."""
    try:
        _set_all(machine, chosen, wishes, offered)
        now = _reread(machine, chosen)
        _verify(now, wishes)
    except SettingsError as error:
        raise _with_changes(machine, chosen, error) from None
    return [gpu.settings for gpu in now]


def _set_all(
    machine: Machine, chosen: Sequence[_Gpu], wishes: dict[int, _Wanted], offered: dict[int, list[Profile]]
) -> None:
    todo = {gpu.index: _differing(gpu, wishes[gpu.index]) for gpu in chosen}

    def alike(option: str, name: str) -> list[tuple[list[_Gpu], object]]:
        """Return the GPUs that need the option, by the value they need; one call does for those."""
        groups: dict[object, list[_Gpu]] = {}
        for gpu in chosen:
            if option in todo[gpu.index]:
                groups.setdefault(getattr(wishes[gpu.index], name), []).append(gpu)
        return [(gpus, value) for value, gpus in groups.items()]

    for gpus, value in alike("persistence_mode", "persistence_mode"):
        _set(machine, "persistence_mode", gpus, "-pm", "1" if value else "0")
    for gpu in chosen:
        if "mig" in todo[gpu.index] and not wishes[gpu.index].mig:
            _destroy(machine, gpu)
    for gpus, value in alike("mig", "mig"):
        _set(machine, "mig", gpus, "-mig", "1" if value else "0")
        _keep_notes(machine, [gpu for gpu in gpus if gpu.device.architecture not in _MIG_NEEDS_RESET], bool(value))
    divided = [gpu.index for gpu in chosen if "mig_layout" in todo[gpu.index]]
    if divided:
        _divide(machine, chosen, divided, wishes, offered)
    for gpus, value in alike("ecc", "ecc"):
        _set(machine, "ecc", gpus, "-e", "1" if value else "0")
    for gpus, value in alike("compute_mode", "compute_mode"):
        _set(machine, "compute_mode", gpus, "-c", str(value).upper())
    for gpus, value in alike("power_limit", "power_limit_watts"):
        _set(machine, "power_limit", gpus, "-pl", _watt(float(str(value))).removesuffix(" W"))
    clocked = [gpu for gpu in chosen if {"graphics_clocks", "memory_clocks"} & set(todo[gpu.index])]
    if any("mig" in options for options in todo.values()):
        clocked = _reread(machine, clocked)  # the record names the modes of now
    for gpu in clocked:
        _set_clocks(machine, gpu, wishes[gpu.index], todo[gpu.index])


def _set(machine: Machine, option: str, gpus: Sequence[_Gpu], flag: str, value: str) -> None:
    result = _run(machine, "-i", ",".join(gpu.id for gpu in gpus), flag, value)
    if result.rc != 0:
        raise _refused(
            result, f"{option}: nvidia-smi {flag} {value} failed for {_named([g.index for g in gpus], None)}"
        )


def _set_clocks(machine: Machine, gpu: _Gpu, wanted: _Wanted, todo: Sequence[str]) -> None:
    """Lock or unlock the clocks of one GPU, and note it: what isn't noted is set again."""
    for option, clocks, lock, unlock in (
        ("graphics_clocks", wanted.graphics_clocks, "-lgc", "-rgc"),
        ("memory_clocks", wanted.memory_clocks, "-lmc", "-rmc"),
    ):
        if option not in todo or clocks is None:
            continue
        words = [lock, ",".join(map(str, clocks))] if clocks else [unlock]
        result = _run(machine, "-i", gpu.id, *words)
        # A card whose clocks can't be locked has them unlocked.
        if (clocks and _NOT_DONE.search(result.out)) or (
            result.rc != 0 and "not supported" not in _said(result).lower()
        ):
            raise _refused(result, f"{option}: nvidia-smi {' '.join(words)} failed for {_named([gpu.index], None)}")
        if _NO_PERMISSION.search(result.out):
            raise SettingsError(_NOT_ROOT)
        _note(machine, gpu, option, clocks)


def _note(machine: Machine, gpu: _Gpu, option: str, clocks: Clocks) -> None:
    record = read_record(machine.root)
    modes = (gpu.settings.ecc_current, gpu.settings.mig_current)
    known = record.get(gpu.id)
    if known is None or (known.ecc, known.mig) != modes:
        known = Entry(None, None, *modes)
    record[gpu.id] = replace(known, graphics=clocks) if option == "graphics_clocks" else replace(known, memory=clocks)
    _write(machine, record, option)


def _keep_notes(machine: Machine, gpus: Sequence[_Gpu], mig: bool) -> None:
    """Let what is noted of the GPUs be true in their new mode, which no reset brought about."""
    record = read_record(machine.root)
    noted = {gpu.id: record.pop(gpu.id) for gpu in gpus if gpu.id in record}
    if not noted:
        return
    for gpu in gpus:
        known = noted.get(gpu.id)
        if known and (known.ecc, known.mig) == (gpu.settings.ecc_current, gpu.settings.mig_current):
            record[gpu.id] = replace(known, mig=mig)
    _write(machine, record, "mig")


def _write(machine: Machine, record: dict[str, Entry], option: str) -> None:
    try:
        write_record(machine.root, record)
    except OSError as error:
        raise SettingsError(f"{option}: what was set can't be noted in {error.filename}: {error.strerror}.") from None


def _divide(
    machine: Machine,
    chosen: Sequence[_Gpu],
    indices: Sequence[int],
    wishes: dict[int, _Wanted],
    offered: dict[int, list[Profile]],
) -> None:
    """Replace the instances of the GPUs that are in MIG mode by those wanted. The others wait for their reset."""
    ready = [gpu for gpu in _reread(machine, chosen) if gpu.index in indices and gpu.settings.mig_current]
    if not ready:
        return
    fresh = offered if all(offered.get(gpu.index) for gpu in ready) else _profiles(machine)
    faults = _Faults()
    for gpu in ready:
        if wishes[gpu.index].mig_layout:
            _check_layout(gpu, wishes[gpu.index].mig_layout or [], True, fresh.get(gpu.index, []), faults)
    if faults.found:
        raise SettingsError(" ".join(faults.sentences()))
    for gpu in ready:
        _destroy(machine, gpu)
        layout = ordered(wishes[gpu.index].mig_layout or [], fresh.get(gpu.index, []))
        if layout:
            result = _run(machine, "mig", "-i", gpu.id, "-cgi", ",".join(layout), "-C")
            if result.rc != 0:
                raise _refused(
                    result, f"mig_layout: {', '.join(layout)} could not be made on {_named([gpu.index], None)}"
                )


def _destroy(machine: Machine, gpu: _Gpu) -> None:
    steps = [["-dci"]] if any(instance.compute for instance in gpu.instances) else []
    for step in [*steps, ["-dgi"]] if gpu.instances else []:
        result = _run(machine, "mig", "-i", gpu.id, *step)
        if result.rc != 0:
            raise _refused(result, f"mig_layout: the MIG instances of {_named([gpu.index], None)} could not be removed")


def _reread(machine: Machine, chosen: Sequence[_Gpu]) -> list[_Gpu]:
    """Return the same GPUs as they are now, in the same order."""
    found = {gpu.id: gpu for gpu in _read(machine) if gpu.device.state == OK}
    missing = [gpu.index for gpu in chosen if gpu.id not in found]
    if missing:
        raise SettingsError(
            f"{_named(missing, None)} stopped to answer while the settings were made; reboot the machine."
        )
    return [found[gpu.id] for gpu in chosen]


def _verify(gpus: Sequence[_Gpu], wishes: dict[int, _Wanted]) -> None:
    """Raise SettingsError where the driver didn't take what it was given."""
    faults = _Faults()
    for gpu in gpus:
        left = _differing(gpu, wishes[gpu.index])
        described = _described(gpu.settings)
        for option in left:
            hint = ""
            if gpu.settings.persistence_mode is False and option in {"power_limit", "compute_mode"}:
                hint = ", perhaps since persistence mode is off"
            faults.add(
                gpu,
                f"{option}: nvidia-smi took the setting, but {{gpu}} has {described[option]} now{hint}; "
                "read the kernel log, and see what gpu_facts says.",
            )
    if faults.found:
        raise SettingsError(" ".join(faults.sentences()))


def _with_changes(machine: Machine, chosen: Sequence[_Gpu], error: SettingsError) -> SettingsError:
    """Return the error with the GPUs that were changed before it."""
    try:
        now = None if isinstance(error, _HangsError) else _reread(machine, chosen)
    except SettingsError:
        now = None
    if now is None:
        return SettingsError(f"{error} What was changed until then is unknown.", changed=True)
    changed = []
    for old, new in zip(chosen, now):
        was, becomes = _described(old.settings), _described(new.settings)
        options = [name for name in was if was[name] != becomes[name]]
        if options:
            changed.append(f"GPU {old.index} ({', '.join(f'{name} {becomes[name]}' for name in options)})")
    told = f"Changed until then, and left so: {'; '.join(changed)}." if changed else "No GPU was changed."
    return SettingsError(f"{error} {told}", changed=bool(changed))


def _refused(result: CommandResult, what: str) -> SettingsError:
    said = _said(result)
    if _NO_PERMISSION.search(said):
        return SettingsError(_NOT_ROOT)
    return SettingsError(f"{what}: {said or f'status {result.rc}'}.")


def _said(result: CommandResult) -> str:
    return " ".join(f"{result.out} {result.err}".split())[:300].rstrip(".")


def _run(machine: Machine, *words: str) -> CommandResult:
    result = machine.run([machine.nvidia_smi, *words], machine.timeout)
    if result.missing:
        raise SettingsError(
            f"nvidia_smi: {machine.nvidia_smi} can't be run ({result.err}); install the driver (role nvidia_driver), "
            "or give the command's path."
        )
    if result.timed_out:
        raise _HangsError(
            f"timeout: {machine.nvidia_smi} {' '.join(words)} gave no answer within {machine.timeout:g} seconds, so a "
            "GPU or the driver is stuck; read the kernel log for Xid messages, drain the node and reboot it."
        )
    return result
