# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What `nvidia-smi -q -x` prints.

Format: NVIDIA's nvsmi_device DTDs v9 to v13 and captures of drivers 384 to 610. Each <gpu> element is read on its own,
so that one spoilt element doesn't cost the others; warnings printed before, between or after the elements are read too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from xml.etree import ElementTree
from xml.parsers import expat

from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_no_handle import (
    NoHandle,
    numbers_without,
    parse_messages,
    place_lost,
)
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_slurm_type import slurm_type
from ansible_collections.trainyard.cluster.plugins.module_utils._gpu_values import (
    boolean,
    integer,
    is_failure,
    is_lost,
    mebibytes,
    needs_reset,
    number,
    pci_bus_id,
    text,
    version,
)

OK = "ok"
LOST = "lost"
INCOMPLETE = "incomplete"

_ROOT = re.compile(r"<nvidia_smi_log(?:\s[^>]*)?>")
_ROOT_END = "</nvidia_smi_log>"
_OTHER_ROOT = re.compile(r"<(\w+_log)(?:\s[^>]*)?>")
_GPU = re.compile(r"<gpu(?:\s[^>]*)?>")
_GPU_END = "</gpu>"
_GPU_ID = re.compile(r"""\sid\s*=\s*["']([^"']*)["']""")
_HEADER_FIELD = re.compile(r"<(timestamp|driver_version|cuda_version|attached_gpus)>([^<]*)</")
# Hundreds of lines that nothing here reads; without them an 8-GPU report parses several times faster.
_SUPPORTED_CLOCKS = re.compile(r"<supported_clocks>.*?</supported_clocks>", re.DOTALL)
_PROCESSES = re.compile(r"<(processes|accounted_processes)>.*?</\1>", re.DOTALL)
# A process may bear any name, and no driver escapes it.
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);)")
_BARE_LESS_THAN = re.compile(r"<(?!/?[A-Za-z_][\w.-]*(?:\s[^<>]*)?/?>)")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What drivers tell about a GPU's way through the NVLink switches, newer ones more, and what they say if all is well.
_FABRIC_HEALTH = (
    "bandwidth",
    "route_recovery_in_progress",
    "route_unhealthy",
    "access_timeout_recovery",
    "incorrect_configuration",
)
_NO_FAULT = frozenset({"full", "false", "none"})
# Values whose failure says that the GPU is sick. Drivers fail to read others of healthy GPUs too: the addressing mode
# where kernel and driver don't agree, the host's PCIe generation in a virtual machine.
_VITAL = (
    "fan_speed",
    "performance_state",
    "persistence_mode",
    "compute_mode",
    "serial",
    "uuid",
    "inforom_version/",
    "pci/replay_counter",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pci/pci_gpu_link_info/link_widths/",
    "clocks/",
    "clocks_throttle_reasons/",
    "clocks_event_reasons/",
    "fb_memory_usage/",
    "bar1_memory_usage/",
    "utilization/",
    "ecc_mode/",
    "ecc_errors/",
    "retired_pages",
    "remapped_rows",
    "temperature/",
    "power_readings/",
    "gpu_power_readings/",
)


class SmiError(ValueError):
    """The text is no report of nvidia-smi; the message says what it is instead."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds the GPU. type: C (compute), G (graphics), C+G, M+C (MPS)."""

    pid: int | None
    type: str | None
    name: str | None
    memory_used_mib: int | None
    gpu_instance_id: int | None
    compute_instance_id: int | None


@dataclass(frozen=True)
class MigInstance:
    """A compute instance of a GPU in MIG mode. uuid, profile ("1g.10gb"): from `nvidia-smi -L`."""

    index: int | None
    gpu_instance_id: int | None
    compute_instance_id: int | None
    multiprocessor_count: int | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    memory_free_mib: int | None
    memory_reserved_mib: int | None
    bar1_total_mib: int | None
    bar1_used_mib: int | None
    ecc_volatile_sram_uncorrected: int | None
    uuid: str | None = None
    profile: str | None = None


@dataclass(frozen=True)
class NvlinkLink:
    """One NVLink of a GPU; speed in one direction, null while the link is inactive.

    Errors up to NVLink 4: replay, recovery, crc; from NVLink 5 on: recovery, recovery_failed, effective.
    """

    link: int
    active: bool
    speed_gigabytes_per_second: float | None
    errors_replay: int | None = None
    errors_recovery: int | None = None
    errors_crc: int | None = None
    errors_recovery_failed: int | None = None
    errors_effective: int | None = None


@dataclass(frozen=True)
class Device:
    """A GPU as nvidia-smi numbers them. None is: the driver, or this card, has no such value.

    state: "ok", "lost" (fallen off the bus, or the driver fails to read most of it), "incomplete" (the report ended or
    broke in the middle of this GPU).
    """

    index: int
    state: str
    pci_bus_id: str | None
    minor: int | None = None
    uuid: str | None = None
    serial: str | None = None
    model: str | None = None
    slurm_type: str | None = None
    brand: str | None = None
    architecture: str | None = None
    compute_mode: str | None = None
    persistence_mode: str | None = None
    performance_state: str | None = None
    display_active: str | None = None
    driver_model: str | None = None
    virtualization_mode: str | None = None
    vgpu_license_status: str | None = None
    vbios_version: str | None = None
    gsp_firmware_version: str | None = None
    inforom_image_version: str | None = None
    inforom_ecc_version: str | None = None
    board_part_number: str | None = None
    gpu_part_number: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    memory_reserved_mib: int | None = None
    bar1_total_mib: int | None = None
    bar1_used_mib: int | None = None
    bar1_free_mib: int | None = None
    pci_device_id: str | None = None
    pci_sub_system_id: str | None = None
    pci_link_generation_current: int | None = None
    pci_link_generation_max: int | None = None
    pci_link_generation_device_max: int | None = None
    pci_link_generation_host_max: int | None = None
    pci_link_width_current: int | None = None
    pci_link_width_max: int | None = None
    pci_link_width_host_max: int | None = None
    pci_replay_count: int | None = None
    pci_numa_node: int | None = None
    pci_cpu_affinity: str | None = None
    power_draw_watts: float | None = None
    power_draw_instant_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_enforced_watts: float | None = None
    power_limit_default_watts: float | None = None
    power_limit_min_watts: float | None = None
    power_limit_max_watts: float | None = None
    temperature_gpu_celsius: int | None = None
    temperature_memory_celsius: int | None = None
    temperature_slowdown_celsius: int | None = None
    temperature_shutdown_celsius: int | None = None
    temperature_target_celsius: int | None = None
    temperature_operating_max_celsius: int | None = None
    temperature_memory_operating_max_celsius: int | None = None
    temperature_margin_celsius: int | None = None
    temperature_slowdown_margin_celsius: int | None = None
    temperature_shutdown_margin_celsius: int | None = None
    fan_speed_percent: int | None = None
    clock_graphics_current_mhz: int | None = None
    clock_graphics_max_mhz: int | None = None
    clock_graphics_application_mhz: int | None = None
    clock_sm_current_mhz: int | None = None
    clock_sm_max_mhz: int | None = None
    clock_memory_current_mhz: int | None = None
    clock_memory_max_mhz: int | None = None
    clock_memory_application_mhz: int | None = None
    clock_video_current_mhz: int | None = None
    clock_video_max_mhz: int | None = None
    throttle_reasons_active: list[str] | None = None
    utilisation_gpu_percent: int | None = None
    utilisation_memory_percent: int | None = None
    utilisation_encoder_percent: int | None = None
    utilisation_decoder_percent: int | None = None
    ecc_mode_current: str | None = None
    ecc_mode_pending: str | None = None
    ecc_volatile_corrected: int | None = None
    ecc_volatile_uncorrected: int | None = None
    ecc_aggregate_corrected: int | None = None
    ecc_aggregate_uncorrected: int | None = None
    ecc_volatile_sram_uncorrected: int | None = None
    ecc_volatile_dram_uncorrected: int | None = None
    ecc_aggregate_sram_uncorrected: int | None = None
    ecc_aggregate_dram_uncorrected: int | None = None
    ecc_sram_threshold_exceeded: bool | None = None
    ecc_channel_repair_pending: bool | None = None
    ecc_tpc_repair_pending: bool | None = None
    ecc_unrepairable_memory: bool | None = None
    retired_pages_single_bit_count: int | None = None
    retired_pages_double_bit_count: int | None = None
    retired_pages_pending: bool | None = None
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failure: bool | None = None
    remapped_rows_histogram_max_banks: int | None = None
    remapped_rows_histogram_high_banks: int | None = None
    remapped_rows_histogram_partial_banks: int | None = None
    remapped_rows_histogram_low_banks: int | None = None
    remapped_rows_histogram_none_banks: int | None = None
    recovery_action: str | None = None
    reset_required: bool | None = None
    reset_drain_recommended: bool | None = None
    mig_mode_current: str | None = None
    mig_mode_pending: str | None = None
    mig_instances: list[MigInstance] = field(default_factory=list)
    nvlink_links_total: int | None = None
    nvlink_links_active: int | None = None
    nvlink_links: list[NvlinkLink] = field(default_factory=list)
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_clique_id: int | None = None
    fabric_cluster_uuid: str | None = None
    fabric_health_summary: str | None = None
    fabric_health_faults: list[str] | None = None
    processes: list[GpuProcess] = field(default_factory=list)


@dataclass(frozen=True)
class SmiReport:
    """A whole report.

    attached_gpus: how many the driver says there are. truncated: the report ends before its closing tag.
    failed_values: per GPU index the elements that the driver failed to read (ERR!, Unknown Error).
    """

    timestamp: str | None
    driver_version: str | None
    cuda_version: str | None
    attached_gpus: int | None
    devices: list[Device]
    no_handles: list[NoHandle]
    needing_reset: list[int]
    failed_values: dict[int, list[str]]
    truncated: bool


def parse_report(output: str, indices: Sequence[int] = (), messages: str = "") -> SmiReport:
    """Read the output of `nvidia-smi -q -x`; raise SmiError where it holds no report.

    indices: the GPUs asked for with -i, in that order. A report doesn't say which index a GPU has; without -i it lists
    all of them in order, except those that can't be opened. messages: what was printed to the error output; newer
    drivers name such a GPU there and go on with the next.
    """
    root = _ROOT.search(output)
    if root is None:
        other = _OTHER_ROOT.search(output)
        if other:
            raise SmiError(f"the output is a <{other[1]}> document, which NVIDIA's nvidia-smi doesn't write")
        raise SmiError(f"the output holds no <nvidia_smi_log> document; it begins: {_first_line(output)}")
    body = output[root.end() :]
    before, ended, after = body.partition(_ROOT_END)
    body = _SUPPORTED_CLOCKS.sub("", before)
    header: dict[str, str] = {}
    first = _GPU.search(body)
    for match in _HEADER_FIELD.finditer(body[: first.start() if first else len(body)]):
        header.setdefault(match[1], match[2])
    parts = list(_parts(body))
    attached = integer(header.get("attached_gpus"))
    inside = {handle.line for handle in parse_messages(body)}
    outside = parse_messages("\n".join((output[: root.start()], after, messages)))
    no_handles = [handle for handle in outside if handle.line not in inside]
    if not indices:
        no_handles = place_lost(no_handles, [_address(part.tag) for part in parts if part.tag is not None], attached)
    numbers = numbers_without(no_handles, indices)
    devices = lost_devices(no_handles)
    needing_reset: list[int] = []
    failed_values: dict[int, list[str]] = {}
    for part in parts:
        if part.tag is None:
            for handle in parse_messages(part.text):  # nvidia-smi goes on with the next GPU
                index = next(numbers)
                no_handles.append(replace(handle, index=index))
                devices.append(Device(index, LOST, handle.pci_bus_id))
            continue
        tree, whole = _tree(part)
        gpu = read_gpu(next(numbers), tree, part.tag, whole)
        devices.append(gpu.device)
        if not whole:
            no_handles += parse_messages(part.text)
        if gpu.needs_reset:
            needing_reset.append(gpu.device.index)
        if gpu.failed_values:
            failed_values[gpu.device.index] = gpu.failed_values
    return SmiReport(
        timestamp=text(header.get("timestamp")),
        driver_version=version(header.get("driver_version")),
        cuda_version=version(header.get("cuda_version")),
        attached_gpus=attached,
        devices=sorted(devices, key=lambda device: device.index),
        no_handles=no_handles,
        needing_reset=needing_reset,
        failed_values=failed_values,
        truncated=not ended,
    )


def lost_devices(handles: Sequence[NoHandle]) -> list[Device]:
    """Return a device for each GPU that a message names and the report doesn't list, as far as its index is known."""
    found = {handle.index: handle for handle in handles if handle.index is not None}
    return [Device(index, LOST, handle.pci_bus_id) for index, handle in found.items()]


@dataclass(frozen=True)
class _Part:
    """A piece of the document's body: a <gpu> element (tag: its opening tag) or the text between two (tag: None)."""

    tag: str | None
    text: str
    closed: bool


def _parts(body: str) -> Iterator[_Part]:
    position = 0
    opening = _GPU.search(body)
    while opening:
        yield _Part(None, body[position : opening.start()], True)
        following = _GPU.search(body, opening.end())
        limit = following.start() if following else len(body)
        end = body.find(_GPU_END, opening.end(), limit)
        position = limit if end < 0 else end + len(_GPU_END)
        yield _Part(opening[0], body[opening.start() : position], end >= 0)
        opening = following
    yield _Part(None, body[position:], True)


def _tree(part: _Part) -> tuple[ElementTree.Element, bool]:
    """Return the element and whether it is whole; of a broken one as much as came before the break."""
    tree, whole = _built(part.text)
    if not whole:
        repaired = _BARE_LESS_THAN.sub("&lt;", _BARE_AMPERSAND.sub("&amp;", _NOT_XML.sub("", part.text)))
        for candidate in (repaired, _PROCESSES.sub("", repaired)):
            tree, whole = _built(candidate)
            if whole:
                break
    return tree, whole


def _built(xml: str) -> tuple[ElementTree.Element, bool]:
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    # A root of our own: the element is reachable however early the text breaks off.
    root = builder.start("report", {})
    whole = True
    try:
        parser.Parse(xml, True)
    except (expat.ExpatError, ValueError):
        whole = False
    return (root[0] if len(root) else root), whole


def _fields(tree: ElementTree.Element) -> dict[str, str]:
    """Return every leaf by its path below the GPU, the first of each; lists (MIG instances, processes) are left out."""
    fields: dict[str, str] = {}
    stack: list[tuple[str, ElementTree.Element]] = [("", tree)]
    while stack:
        path, parent = stack.pop()
        for child in parent:
            if child.tag in {"mig_devices", "processes", "accounted_processes"}:
                continue
            name = f"{path}{child.tag}"
            if len(child):
                stack.append((f"{name}/", child))
            elif child.text is not None:
                fields.setdefault(name, child.text)
    return fields


def _address(tag: str) -> str | None:
    identity = _GPU_ID.search(tag)
    return pci_bus_id(identity[1]) if identity else None


def _device(index: int, state: str, tag: str, tree: ElementTree.Element, fields: Mapping[str, str]) -> Device:
    get = fields.get
    model = text(get("product_name"))
    power = "gpu_power_readings" if any(name.startswith("gpu_power_readings/") for name in fields) else "power_readings"
    # Drivers from 610 on tell limits of two kinds apart.
    ceiling = f"{power}/gpu_ceiling_power_limit"
    requested = number(_first(fields, f"{power}/requested_power_limit", f"{ceiling}/requested_power_limit"))
    current = number(_first(fields, f"{power}/current_power_limit", f"{ceiling}/current_power_limit"))
    default = number(_first(fields, f"{power}/default_power_limit", f"{ceiling}/default_power_limit"))
    plain_limit = number(get(f"{power}/power_limit"))
    enforced = number(get(f"{power}/enforced_power_limit"))
    average = number(get(f"{power}/average_power_draw"))
    instant = number(get(f"{power}/instant_power_draw"))
    last = number(get(f"{power}/power_draw"))
    width = "pci/pci_gpu_link_info/link_widths"
    generation = "pci/pci_gpu_link_info/pcie_gen"
    histogram = "remapped_rows/row_remapper_histogram/row_remapper_histogram"
    return Device(
        index=index,
        state=state,
        pci_bus_id=pci_bus_id(get("pci/pci_bus_id")) or _address(tag),
        minor=integer(get("minor_number")),
        uuid=text(get("uuid")),
        serial=text(get("serial")),
        model=model,
        slurm_type=slurm_type(model),
        brand=text(get("product_brand")),
        architecture=text(get("product_architecture")),
        compute_mode=text(get("compute_mode")),
        persistence_mode=text(get("persistence_mode")),
        performance_state=text(get("performance_state")),
        display_active=text(get("display_active")),
        driver_model=text(_first(fields, "driver_model/current_dm", "driver_model/current_driver_model")),
        virtualization_mode=text(get("gpu_virtualization_mode/virtualization_mode")),
        vgpu_license_status=text(
            _first(fields, "vgpu_software_licensed_product/license_status", "grid_licensed_product/license_status")
        ),
        vbios_version=text(get("vbios_version")),
        gsp_firmware_version=text(get("gsp_firmware_version")),
        inforom_image_version=text(get("inforom_version/img_version")),
        inforom_ecc_version=text(get("inforom_version/ecc_object")),
        board_part_number=text(get("board_part_number")),
        gpu_part_number=text(get("gpu_part_number")),
        memory_total_mib=mebibytes(_first(fields, "fb_memory_usage/total", "memory_usage/total")),
        memory_used_mib=mebibytes(_first(fields, "fb_memory_usage/used", "memory_usage/used")),
        memory_free_mib=mebibytes(_first(fields, "fb_memory_usage/free", "memory_usage/free")),
        memory_reserved_mib=mebibytes(get("fb_memory_usage/reserved")),
        bar1_total_mib=mebibytes(get("bar1_memory_usage/total")),
        bar1_used_mib=mebibytes(get("bar1_memory_usage/used")),
        bar1_free_mib=mebibytes(get("bar1_memory_usage/free")),
        pci_device_id=text(get("pci/pci_device_id")),
        pci_sub_system_id=text(get("pci/pci_sub_system_id")),
        pci_link_generation_current=integer(get(f"{generation}/current_link_gen")),
        pci_link_generation_max=integer(get(f"{generation}/max_link_gen")),
        pci_link_generation_device_max=integer(get(f"{generation}/max_device_link_gen")),
        pci_link_generation_host_max=integer(get(f"{generation}/max_host_link_gen")),
        pci_link_width_current=integer(get(f"{width}/current_link_width")),
        pci_link_width_max=integer(get(f"{width}/max_link_width")),
        pci_replay_count=integer(get("pci/replay_counter")),
        # The field that nvidia-smi calls power.draw: the average on boards that have one, else the last reading.
        power_draw_watts=_first_number(average, last, instant),
        power_draw_instant_watts=instant,
        power_limit_watts=_first_number(plain_limit, requested, current),
        power_limit_enforced_watts=_first_number(enforced, current),
        power_limit_default_watts=default,
        power_limit_min_watts=number(get(f"{power}/min_power_limit")),
        power_limit_max_watts=number(get(f"{power}/max_power_limit")),
        temperature_gpu_celsius=integer(get("temperature/gpu_temp")),
        temperature_memory_celsius=integer(get("temperature/memory_temp")),
        temperature_slowdown_celsius=integer(get("temperature/gpu_temp_slow_threshold")),
        temperature_shutdown_celsius=integer(get("temperature/gpu_temp_max_threshold")),
        temperature_target_celsius=integer(get("temperature/gpu_target_temperature")),
        temperature_operating_max_celsius=integer(get("temperature/gpu_temp_max_gpu_threshold")),
        temperature_memory_operating_max_celsius=integer(get("temperature/gpu_temp_max_mem_threshold")),
        temperature_margin_celsius=integer(get("temperature/gpu_temp_tlimit")),
        temperature_slowdown_margin_celsius=integer(get("temperature/gpu_temp_slow_tlimit_threshold")),
        temperature_shutdown_margin_celsius=integer(get("temperature/gpu_temp_max_tlimit_threshold")),
        fan_speed_percent=integer(get("fan_speed")),
        clock_graphics_current_mhz=integer(get("clocks/graphics_clock")),
        clock_graphics_max_mhz=integer(get("max_clocks/graphics_clock")),
        clock_graphics_application_mhz=integer(get("applications_clocks/graphics_clock")),
        clock_sm_current_mhz=integer(get("clocks/sm_clock")),
        clock_sm_max_mhz=integer(get("max_clocks/sm_clock")),
        clock_memory_current_mhz=integer(get("clocks/mem_clock")),
        clock_memory_max_mhz=integer(get("max_clocks/mem_clock")),
        clock_memory_application_mhz=integer(get("applications_clocks/mem_clock")),
        clock_video_current_mhz=integer(get("clocks/video_clock")),
        clock_video_max_mhz=integer(get("max_clocks/video_clock")),
        throttle_reasons_active=_throttle_reasons(fields),
        utilisation_gpu_percent=integer(get("utilization/gpu_util")),
        utilisation_memory_percent=integer(get("utilization/memory_util")),
        utilisation_encoder_percent=integer(get("utilization/encoder_util")),
        utilisation_decoder_percent=integer(get("utilization/decoder_util")),
        ecc_mode_current=text(get("ecc_mode/current_ecc")),
        ecc_mode_pending=text(get("ecc_mode/pending_ecc")),
        ecc_volatile_corrected=_ecc(fields, "volatile", "corrected"),
        ecc_volatile_uncorrected=_ecc(fields, "volatile", "uncorrected"),
        ecc_aggregate_corrected=_ecc(fields, "aggregate", "corrected"),
        ecc_aggregate_uncorrected=_ecc(fields, "aggregate", "uncorrected"),
        ecc_volatile_sram_uncorrected=_sram_uncorrected(fields, "volatile"),
        ecc_volatile_dram_uncorrected=integer(get("ecc_errors/volatile/dram_uncorrectable")),
        ecc_aggregate_sram_uncorrected=_sram_uncorrected(fields, "aggregate"),
        ecc_aggregate_dram_uncorrected=integer(get("ecc_errors/aggregate/dram_uncorrectable")),
        ecc_sram_threshold_exceeded=boolean(get("ecc_errors/aggregate/sram_threshold_exceeded")),
        ecc_channel_repair_pending=boolean(get("ecc_errors/channel_repair_pending")),
        ecc_tpc_repair_pending=boolean(get("ecc_errors/tpc_repair_pending")),
        ecc_unrepairable_memory=boolean(get("ecc_errors/unrepairable_memory")),
        retired_pages_single_bit_count=integer(get("retired_pages/multiple_single_bit_retirement/retired_count")),
        retired_pages_double_bit_count=integer(get("retired_pages/double_bit_retirement/retired_count")),
        retired_pages_pending=boolean(
            _first(fields, "retired_pages/pending_retirement", "retired_pages/pending_blacklist")
        ),
        remapped_rows_correctable=integer(get("remapped_rows/remapped_row_corr")),
        remapped_rows_uncorrectable=integer(get("remapped_rows/remapped_row_unc")),
        remapped_rows_pending=boolean(get("remapped_rows/remapped_row_pending")),
        remapped_rows_failure=boolean(get("remapped_rows/remapped_row_failure")),
        remapped_rows_histogram_max_banks=integer(get(f"{histogram}_max")),
        remapped_rows_histogram_high_banks=integer(get(f"{histogram}_high")),
        remapped_rows_histogram_partial_banks=integer(get(f"{histogram}_partial")),
        remapped_rows_histogram_low_banks=integer(get(f"{histogram}_low")),
        remapped_rows_histogram_none_banks=integer(get(f"{histogram}_none")),
        recovery_action=text(get("gpu_recovery_action")),
        reset_required=boolean(get("gpu_reset_status/reset_required")),
        reset_drain_recommended=boolean(get("gpu_reset_status/drain_and_reset_recommended")),
        mig_mode_current=text(get("mig_mode/current_mig")),
        mig_mode_pending=text(get("mig_mode/pending_mig")),
        mig_instances=[_mig_instance(element) for element in tree.iterfind("mig_devices/mig_device")],
        fabric_state=text(get("fabric/state")),
        fabric_status=text(get("fabric/status")),
        fabric_clique_id=integer(_first(fields, "fabric/cliqueId", "fabric/clique_id")),
        fabric_cluster_uuid=text(_first(fields, "fabric/clusterUuid", "fabric/cluster_uuid")),
        fabric_health_summary=text(get("fabric/health/summary")),
        fabric_health_faults=_fabric_health_faults(fields),
        processes=[_process(element) for element in tree.iterfind("processes/process_info")],
    )


@dataclass(frozen=True)
class ReadGpu:
    """A <gpu> element. failed_values: elements that the driver failed to read of a GPU that works."""

    device: Device
    needs_reset: bool
    failed_values: list[str]


def read_gpu(index: int, tree: ElementTree.Element, tag: str, whole: bool = True) -> ReadGpu:
    """Read a <gpu> element. tag: its opening tag. whole: it didn't break off."""
    fields = _fields(tree)
    failed = sorted(name for name, value in fields.items() if name.startswith(_VITAL) and is_failure(value))
    told = sum(text(value) is not None for value in fields.values())
    # CUDA can't use a GPU whose UUID can't be read, whatever else the driver still remembers of it.
    gone = any(is_lost(value) for value in fields.values()) or is_failure(fields.get("uuid"))
    lost = gone or len(failed) > told
    return ReadGpu(
        device=_device(index, LOST if lost else OK if whole else INCOMPLETE, tag, tree, fields),
        needs_reset=any(needs_reset(value) for value in fields.values()),
        failed_values=[] if lost or not whole else failed,
    )


def _first(fields: Mapping[str, str], *names: str) -> str | None:
    """Return the first of these fields that holds a value."""
    return next((fields[name] for name in names if name in fields and text(fields[name]) is not None), None)


def _first_number(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _throttle_reasons(fields: Mapping[str, str]) -> list[str] | None:
    known = False
    active = []
    for name, value in fields.items():
        section, _slash, leaf = name.partition("/")
        if section not in {"clocks_throttle_reasons", "clocks_event_reasons"}:
            continue
        state = boolean(value)
        known = known or state is not None
        if state:
            active.append(leaf.replace("clocks_throttle_reason_", "").replace("clocks_event_reason_", ""))
    return active if known else None


def _fabric_health_faults(fields: Mapping[str, str]) -> list[str] | None:
    """Return what is wrong: the name where the driver says True, else name and value ("bandwidth Degraded")."""
    told = {name: text(fields.get(f"fabric/health/{name}")) for name in _FABRIC_HEALTH}
    known = {name: value for name, value in told.items() if value is not None}
    faults = [
        name if boolean(value) else f"{name} {value}" for name, value in known.items() if value.lower() not in _NO_FAULT
    ]
    return faults if known else None


def _sum(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _ecc(fields: Mapping[str, str], since: str, kind: str) -> int | None:
    """Add up the errors. Cards before Turing count them as single and double bit and give the total."""
    old = integer(fields.get(f"ecc_errors/{since}/{'single' if kind == 'corrected' else 'double'}_bit/total"))
    if old is not None:
        return old
    if kind == "corrected":
        sram = integer(fields.get(f"ecc_errors/{since}/sram_correctable"))
        return _sum(sram, integer(fields.get(f"ecc_errors/{since}/dram_correctable")))
    return _sum(_sram_uncorrected(fields, since), integer(fields.get(f"ecc_errors/{since}/dram_uncorrectable")))


def _sram_uncorrected(fields: Mapping[str, str], since: str) -> int | None:
    """Drivers from 545 on tell parity from SEC-DED errors, older ones don't."""
    names = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
    return _sum(*(integer(fields.get(f"ecc_errors/{since}/{name}")) for name in names))


def _mig_instance(element: ElementTree.Element) -> MigInstance:
    get = element.findtext
    return MigInstance(
        index=integer(get("index")),
        gpu_instance_id=integer(get("gpu_instance_id")),
        compute_instance_id=integer(get("compute_instance_id")),
        multiprocessor_count=integer(get("device_attributes/shared/multiprocessor_count")),
        memory_total_mib=mebibytes(get("fb_memory_usage/total")),
        memory_used_mib=mebibytes(get("fb_memory_usage/used")),
        memory_free_mib=mebibytes(get("fb_memory_usage/free")),
        memory_reserved_mib=mebibytes(get("fb_memory_usage/reserved")),
        bar1_total_mib=mebibytes(get("bar1_memory_usage/total")),
        bar1_used_mib=mebibytes(get("bar1_memory_usage/used")),
        ecc_volatile_sram_uncorrected=integer(get("ecc_error_count/volatile_count/sram_uncorrectable")),
    )


def _process(element: ElementTree.Element) -> GpuProcess:
    get = element.findtext
    return GpuProcess(
        pid=integer(get("pid")),
        type=text(get("type")),
        name=text(get("process_name")),
        memory_used_mib=mebibytes(get("used_memory")),
        gpu_instance_id=integer(get("gpu_instance_id")),
        compute_instance_id=integer(get("compute_instance_id")),
    )


def _first_line(output: str) -> str:
    line = next((line.strip() for line in output.splitlines() if line.strip()), "")
    return f"{line[:120]}" if line else "(nothing)"
