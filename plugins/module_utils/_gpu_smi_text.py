# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What nvidia-smi prints for people and for spreadsheets: `-q`, `-L` and `--query-… --format=csv`.

Format: captures of drivers 525 to 610. A report of `-q` is turned into the elements that `-q -x` has, so that both are
read by the same rules.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from xml.etree import ElementTree

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_no_handle import (
    numbers_without,
    parse_messages,
    place_lost,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_smi import (
    SmiError,
    SmiReport,
    lost_devices,
    read_gpu,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import (
    integer,
    pci_bus_id,
    text,
    version,
    without_escapes,
)

_TITLE = "NVSMI LOG"
_GPU = re.compile(r"^GPU ([0-9A-Fa-f:.]{7,18})\s*$")
_HEADER = re.compile(r"^(Timestamp|Driver Version|CUDA Version|Attached GPUs)\s*:\s*(.*?)\s*$")
_LINE = re.compile(r"^(?P<blanks> +)(?P<label>\S.*?)\s*(?: : ?(?P<value>.*))?$")
_LIST_GPU = re.compile(r"^GPU (\d{1,4}): (.*?) \(UUID: ([^)]+)\)")
_LIST_MIG = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d{1,4}): \(UUID: ([^)]+)\)")
_UNIT = re.compile(r"^(?P<name>[\w.]+) \[(?P<unit>[^\]]+)\]$")
_MOST_DEPTH = 12

# Sections and values whose element isn't the label in lower case with underscores; values by section.
_SECTIONS = {
    "gpu_link_info": "pci_gpu_link_info",
    "pcie_generation": "pcie_gen",
    "link_width": "link_widths",
    "bank_remap_availability_histogram": "row_remapper_histogram",
    "shared_fb_memory_usage": "fb_memory_usage",
    "shared_bar1_memory": "bar1_memory_usage",
}
_CLOCKS = {"graphics": "graphics_clock", "sm": "sm_clock", "memory": "mem_clock", "video": "video_clock"}
_VALUES: dict[str, dict[str, str]] = {
    "gpu": {"serial_number": "serial", "gpu_uuid": "uuid"},
    "mig_mode": {"current": "current_mig", "pending": "pending_mig"},
    "driver_model": {"current": "current_dm", "pending": "pending_dm"},
    "inforom_version": {"image_version": "img_version"},
    "pci": {
        "bus_id": "pci_bus_id",
        "device_id": "pci_device_id",
        "sub_system_id": "pci_sub_system_id",
        "replays_since_reset": "replay_counter",
    },
    "pcie_gen": {
        "max": "max_link_gen",
        "current": "current_link_gen",
        "device_max": "max_device_link_gen",
        "host_max": "max_host_link_gen",
    },
    "link_widths": {"max": "max_link_width", "current": "current_link_width"},
    "utilization": {"gpu": "gpu_util", "memory": "memory_util", "encoder": "encoder_util", "decoder": "decoder_util"},
    "ecc_mode": {"current": "current_ecc", "pending": "pending_ecc"},
    "retired_pages": {
        "single_bit_ecc": "multiple_single_bit_retirement/retired_count",
        "double_bit_ecc": "double_bit_retirement/retired_count",
        "pending_page_blacklist": "pending_blacklist",
        "pending_page_retirement": "pending_retirement",
    },
    "remapped_rows": {
        "correctable_error": "remapped_row_corr",
        "uncorrectable_error": "remapped_row_unc",
        "pending": "remapped_row_pending",
        "remapping_failure_occurred": "remapped_row_failure",
    },
    "row_remapper_histogram": {
        name: f"row_remapper_histogram_{name}" for name in ("max", "high", "partial", "low", "none")
    },
    "temperature": {
        "gpu_current_temp": "gpu_temp",
        "gpu_t_limit_temp": "gpu_temp_tlimit",
        "gpu_current_t_limit_temp": "gpu_temp_tlimit",
        "gpu_shutdown_temp": "gpu_temp_max_threshold",
        "gpu_slowdown_temp": "gpu_temp_slow_threshold",
        "gpu_max_operating_temp": "gpu_temp_max_gpu_threshold",
        "gpu_shutdown_t_limit_temp": "gpu_temp_max_tlimit_threshold",
        "gpu_slowdown_t_limit_temp": "gpu_temp_slow_tlimit_threshold",
        # As drivers from 610 on have it.
        "gpu_shutdown_t_limit_temp_specification": "gpu_temp_max_tlimit_threshold",
        "gpu_slowdown_t_limit_temp_specification": "gpu_temp_slow_tlimit_threshold",
        "gpu_target_temperature_specification": "gpu_target_temperature",
        "memory_current_temp": "memory_temp",
        "memory_max_operating_temp": "gpu_temp_max_mem_threshold",
    },
    "gpu_power_readings": {"instantaneous_power_draw": "instant_power_draw"},
    "clocks": _CLOCKS,
    "max_clocks": _CLOCKS,
    "applications_clocks": _CLOCKS,
    "fabric": {"cliqueid": "cliqueId", "clusteruuid": "clusterUuid"},
    "volatile": {"sram_uncorrectable_sec_ded": "sram_uncorrectable_secded"},
    "aggregate": {"sram_uncorrectable_sec_ded": "sram_uncorrectable_secded"},
    "process_info": {"name": "process_name", "used_gpu_memory": "used_memory"},
}
_EVENTS = {"clocks_event_reasons": "clocks_event_reason", "clocks_throttle_reasons": "clocks_throttle_reason"}
_EVENT_NAMES = {"idle": "gpu_idle", "display_clock_setting": "display_clocks_setting"}


@dataclass(frozen=True)
class ListedMig:
    """A MIG device as `-L` names it: profile ("3g.40gb"), number and UUID."""

    profile: str
    index: int
    uuid: str


@dataclass(frozen=True)
class ListedGpu:
    """A GPU as `-L` names it."""

    index: int
    name: str
    uuid: str
    mig: list[ListedMig]


def parse_list(output: str) -> list[ListedGpu]:
    """Read `nvidia-smi -L`; lines of another kind are passed over."""
    found: list[ListedGpu] = []
    for line in output.splitlines():
        match = _LIST_GPU.match(line)
        if match:
            found.append(ListedGpu(int(match[1]), match[2], match[3], []))
            continue
        match = _LIST_MIG.match(line)
        if match and found:
            found[-1].mig.append(ListedMig(match[1], int(match[2]), match[3]))
    return found


def parse_csv(output: str) -> list[dict[str, str | None]]:
    """Read `--query-… --format=csv`: a dict per line by field; a unit stands in the name after a blank ("used MiB").

    Raises SmiError where no head line is there. What the driver prints in place of a value it doesn't have is None.
    """
    lines = [line for line in without_escapes(output).splitlines() if line.strip()]
    start = next((number for number, line in enumerate(lines) if _is_head(line)), None)
    if start is None:
        first = lines[0].strip()[:120] if lines else "(nothing)"
        raise SmiError(f"the output holds no head line of --format=csv; it begins: {first}")
    names = []
    for name in lines[start].split(","):
        match = _UNIT.match(name.strip())
        names.append(f"{match['name']} {match['unit']}" if match else name.strip())
    found = []
    for line in lines[start + 1 :]:
        if _is_head(line):
            continue  # printed again by a loop
        cells = next(csv.reader([line.replace("\x00", "")], skipinitialspace=True), [])
        if len(cells) > len(names) and "process_name" in names:
            # A process may bear any name, commas too, and nothing escapes them.
            at, extra = names.index("process_name"), len(cells) - len(names)
            cells[at : at + extra + 1] = [", ".join(cells[at : at + extra + 1])]
        if len(cells) == len(names):
            found.append({name: text(cell) for name, cell in zip(names, cells)})
    return found


def _is_head(line: str) -> bool:
    names = [name.strip() for name in line.split(",")]
    return len(names) > 1 and all(re.match(r"^[a-z][\w.]*(?: \[[^\]]+\])?$", name) for name in names)


def parse_text(output: str, messages: str = "") -> SmiReport:
    """Read the output of `nvidia-smi -q`, whole or a part of it (-d); raise SmiError where it holds no report.

    messages: what was printed to the error output.
    """
    plain = without_escapes(output)
    before, title, report = plain.partition(_TITLE)
    if not title:
        first = next((line.strip() for line in before.splitlines() if line.strip()), "(nothing)")
        raise SmiError(f"the output holds no {_TITLE}; it begins: {first[:120]}")
    header: dict[str, str] = {}
    trees: list[ElementTree.Element] = []
    open_: list[tuple[int, ElementTree.Element]] = []
    for line in report.partition(_TITLE)[0].splitlines():  # a loop (-l) prints one report after another
        match = _HEADER.match(line)
        if match and not trees:
            header.setdefault(match[1], match[2])
            continue
        match = _GPU.match(line)
        if match:
            trees.append(ElementTree.Element("gpu", {"id": match[1]}))
            open_ = [(0, trees[-1])]
            continue
        match = _LINE.match(line)
        if match and open_:
            _add(open_, len(match["blanks"]), match["label"], match["value"])
    attached = integer(header.get("Attached GPUs"))
    addresses = [pci_bus_id(tree.get("id")) for tree in trees]
    no_handles = place_lost(parse_messages(f"{plain}\n{messages}"), addresses, attached)
    gpus = [
        read_gpu(index, tree, f'<gpu id="{tree.get("id")}">') for index, tree in zip(numbers_without(no_handles), trees)
    ]
    return SmiReport(
        timestamp=text(header.get("Timestamp")),
        driver_version=version(header.get("Driver Version")),
        cuda_version=version(header.get("CUDA Version")),
        attached_gpus=attached,
        devices=sorted([*(gpu.device for gpu in gpus), *lost_devices(no_handles)], key=lambda device: device.index),
        no_handles=no_handles,
        needing_reset=[gpu.device.index for gpu in gpus if gpu.needs_reset],
        failed_values={gpu.device.index: gpu.failed_values for gpu in gpus if gpu.failed_values},
        # Text has no closing tag: only the count tells that GPUs are missing.
        truncated=False,
    )


def _add(open_: list[tuple[int, ElementTree.Element]], depth: int, label: str, value: str | None) -> None:
    """Hang a line below the section that it is indented in."""
    while len(open_) > 1 and open_[-1][0] >= depth:
        open_.pop()
    parent = open_[-1][1]
    slug = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_") or "_"
    if value is None:
        if len(open_) < _MOST_DEPTH:
            open_.append((depth, _section(parent, slug)))
        return
    if parent.tag in {"processes", "process_info"}:
        _process(open_, depth, slug, value)
        return
    if parent.tag in _EVENTS:
        name = f"{_EVENTS[parent.tag]}_{_EVENT_NAMES.get(slug, slug)}"
        ElementTree.SubElement(parent, name).text = value
        return  # HW Thermal Slowdown is indented below HW Slowdown, but is a reason like it
    names = _VALUES.get(parent.tag, {}).get(slug, slug).split("/")
    for name in names[:-1]:
        parent = ElementTree.SubElement(parent, name)
    ElementTree.SubElement(parent, names[-1]).text = value


def _section(parent: ElementTree.Element, slug: str) -> ElementTree.Element:
    if slug == "mig_device":
        devices = parent.find("mig_devices")
        parent = ElementTree.SubElement(parent, "mig_devices") if devices is None else devices
    elif parent.tag == "mig_device" and slug == "ecc_errors":
        slug = "ecc_error_count"
    elif parent.tag == "ecc_error_count" and slug == "volatile":
        slug = "volatile_count"
    return ElementTree.SubElement(parent, _SECTIONS.get(slug, slug))


def _process(open_: list[tuple[int, ElementTree.Element]], depth: int, slug: str, value: str) -> None:
    """Gather a process: instance IDs, then the process ID, then its fields one step deeper."""
    processes = next(element for _depth, element in open_ if element.tag == "processes")
    last = processes[-1] if len(processes) else None
    begins = last is None or (slug in {"gpu_instance_id", "process_id"} and last.find("pid") is not None)
    if last is None or begins:
        last = ElementTree.SubElement(processes, "process_info")
    name = "pid" if slug == "process_id" else _VALUES["process_info"].get(slug, slug)
    ElementTree.SubElement(last, name).text = value
