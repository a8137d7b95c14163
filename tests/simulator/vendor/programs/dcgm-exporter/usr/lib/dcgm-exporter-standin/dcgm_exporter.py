# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stand-in of NVIDIA's dcgm-exporter: the series of DCGM's fields, read from NVML, in the real one's form.

Facts are those of NVIDIA's public sources: options, labels and their order, the treatment of missing values and of
unknown fields from dcgm-exporter 4.5.3-4.8.2 and the release notes of 4.8.3; the fields' numbers from go-dcgm.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Union

VERSION = "4.6.0-4.8.3"
_TYPES = ("gauge", "counter", "histogram", "summary", "label")
_PROFILING = range(1000, 1100)
_XID = "DCGM_FI_DEV_XID_ERRORS"
# NVIDIA's names of the Xids that tests use; the real exporter knows all up to 172.
_XID_NAMES = {
    0: "No Error",
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    48: "Double Bit ECC Error",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    92: "High single-bit ECC error rate",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
}

Value = Union[int, float, str, None]


class ExporterError(Exception):
    """What ends the exporter, in the real one's words where it has any."""


def log(level: str, message: str, **values: object) -> None:
    """A line as Go's slog writes it."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
    rest = "".join(f" {key}={value}" for key, value in values.items())
    print(f"time={stamp} level={level} msg={json.dumps(message)}{rest}", file=sys.stderr, flush=True)


# --- NVML ---


class _FieldValue(ctypes.Structure):
    """nvmlFieldValue_t; its union is read as the number that the type says."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", ctypes.c_int),
        ("status", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )


class _Memory(ctypes.Structure):
    """nvmlMemory_v2_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    )


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Violation(ctypes.Structure):
    """nvmlViolationTime_t."""

    _fields_ = (("reference", ctypes.c_ulonglong), ("nanoseconds", ctypes.c_ulonglong))


class _Pci(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "identifier", "subsystem")),
        ("address", ctypes.c_char * 32),
    )


class _Event(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


_EVENT_XID = 8


@dataclass(frozen=True)
class Gpu:
    """What a series says of its GPU."""

    index: int
    uuid: str
    address: str
    name: str
    handle: int = 0


class Nvml:
    """libnvidia-ml.so.1; a value that can't be had is None."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise ExporterError("failed to initialize NVML: libnvidia-ml.so.1 isn't there") from error
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        code = self._library.nvmlInit_v2()
        if code:
            said = self._library.nvmlErrorString(code).decode()
            raise ExporterError(f"failed to initialize NVML: {said}")
        self._links: dict[int, tuple[float, int]] = {}

    def call(self, function: str, *arguments: Any) -> bool:
        """Whether a call succeeded."""
        return bool(getattr(self._library, function)(*arguments) == 0)

    def gpus(self) -> list[Gpu]:
        """The GPUs that this process may use."""
        count, found = ctypes.c_uint(), []
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            handle, pci = ctypes.c_void_p(), _Pci()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            address = handle.value or 0
            self.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
            names = [self.text(function, address) or "" for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetName")]
            found.append(Gpu(index, names[0], pci.address.decode(), names[1], address))
        return found

    def text(self, function: str, *before: int) -> str | None:
        """A text: the device first where there is one."""
        buffer = ctypes.create_string_buffer(96)
        good = self.call(function, *(ctypes.c_void_p(item) for item in before), buffer, ctypes.c_uint(96))
        return buffer.value.decode() if good else None

    def number(self, function: str, device: int, *arguments: int) -> int | None:
        """An unsigned number behind the last pointer."""
        value = ctypes.c_ulonglong()
        numbers = [ctypes.c_uint(argument) for argument in arguments]
        return value.value if self.call(function, ctypes.c_void_p(device), *numbers, ctypes.byref(value)) else None

    def field(self, device: int, field: int, scope: int = 0) -> int | None:
        """A value of nvmlDeviceGetFieldValues."""
        entry = _FieldValue(field=field, scope=scope)
        asked = self.call("nvmlDeviceGetFieldValues", ctypes.c_void_p(device), 1, ctypes.byref(entry))
        if not asked or entry.status:
            return None
        return int(entry.value) & 0xFFFFFFFF if entry.type in (1, 5) else int(entry.value)

    def memory(self, device: int) -> _Memory | None:
        """Bytes of memory."""
        info = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
        return info if self.call("nvmlDeviceGetMemoryInfo_v2", ctypes.c_void_p(device), ctypes.byref(info)) else None

    def utilization(self, device: int) -> _Utilization | None:
        """Percent of time in which the GPU and its memory were busy."""
        rates = _Utilization()
        return (
            rates if self.call("nvmlDeviceGetUtilizationRates", ctypes.c_void_p(device), ctypes.byref(rates)) else None
        )

    def sampled(self, function: str, device: int) -> int | None:
        """A utilization with its sampling period behind it."""
        value, period = ctypes.c_uint(), ctypes.c_uint()
        good = self.call(function, ctypes.c_void_p(device), ctypes.byref(value), ctypes.byref(period))
        return value.value if good else None

    def mode(self, function: str, device: int, which: int) -> int | None:
        """The current (0) or pending (1) one of two modes."""
        modes = [ctypes.c_uint(), ctypes.c_uint()]
        good = self.call(function, ctypes.c_void_p(device), *(ctypes.byref(mode) for mode in modes))
        return modes[which].value if good else None

    def remapped(self, device: int, which: int) -> int | None:
        """Rows remapped for correctable (0) or uncorrectable (1) errors; whether one is pending (2), has failed (3)."""
        values = [ctypes.c_uint() for _part in range(4)]
        good = self.call(
            "nvmlDeviceGetRemappedRows", ctypes.c_void_p(device), *(ctypes.byref(value) for value in values)
        )
        return values[which].value if good else None

    def violation(self, device: int, policy: int) -> int | None:
        """Nanoseconds for which a limit held the clocks down."""
        time_held = _Violation()
        good = self.call("nvmlDeviceGetViolationStatus", ctypes.c_void_p(device), policy, ctypes.byref(time_held))
        return int(time_held.nanoseconds) if good else None

    def link_rate(self, device: int) -> int | None:
        """MB/s over all NVLinks since the last question."""
        counts = [self.field(device, field, link) for link in range(18) for field in (138, 139)]
        known = [count for count in counts if count is not None]
        if not known:
            return None
        now, total = time.monotonic(), sum(known)
        before, counted = self._links.get(device, (now, total))
        self._links[device] = (now, total)
        return int((total - counted) * 1024 / 1e6 / (now - before)) if now > before else 0

    def watch_xids(self, gpus: Sequence[Gpu], happened: Callable[[int, int], None]) -> None:
        """Call happened(index, xid) for each Xid from now on; never returns."""
        handle, event = ctypes.c_void_p(), _Event()
        self.call("nvmlEventSetCreate", ctypes.byref(handle))
        for gpu in gpus:
            self.call("nvmlDeviceRegisterEvents", ctypes.c_void_p(gpu.handle), ctypes.c_ulonglong(_EVENT_XID), handle)
        indexes = {gpu.handle: gpu.index for gpu in gpus}
        while True:
            if self.call("nvmlEventSetWait_v2", handle, ctypes.byref(event), ctypes.c_uint(1000)):
                happened(indexes.get(event.device, -1), int(event.data))


def _mib(memory: _Memory | None, part: str) -> int | None:
    return int(getattr(memory, part)) >> 20 if memory else None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _ecc(error: int, lifetime: int) -> Callable[[Nvml, int], Value]:
    return lambda nvml, device: nvml.number("nvmlDeviceGetTotalEccErrors", device, error, lifetime)


def _number(function: str, *arguments: int) -> Callable[[Nvml, int], Value]:
    return lambda nvml, device: nvml.number(function, device, *arguments)


def _field(field: int) -> Callable[[Nvml, int], Value]:
    return lambda nvml, device: nvml.field(device, field)


def _remapped(which: int) -> Callable[[Nvml, int], Value]:
    return lambda nvml, device: nvml.remapped(device, which)


def _violation(policy: int) -> Callable[[Nvml, int], Value]:
    return lambda nvml, device: nvml.violation(device, policy)


def _text(function: str) -> Callable[[Nvml, int], Value]:
    return lambda nvml, device: nvml.text(function, device)


def _nothing(nvml: Nvml, device: int) -> Value:
    """A field of DCGM's that is valid and has no value here."""
    del nvml, device
    return None


# Field: its number in DCGM, by which series are sorted, and how to read it.
FIELDS: dict[str, tuple[int, Callable[[Nvml, int], Value]]] = {
    "DCGM_FI_DRIVER_VERSION": (1, lambda nvml, device: nvml.text("nvmlSystemGetDriverVersion")),
    "DCGM_FI_NVML_VERSION": (2, lambda nvml, device: nvml.text("nvmlSystemGetNVMLVersion")),
    "DCGM_FI_DEV_NAME": (50, _text("nvmlDeviceGetName")),
    "DCGM_FI_DEV_BRAND": (51, _nothing),
    "DCGM_FI_DEV_SERIAL": (53, _text("nvmlDeviceGetSerial")),
    "DCGM_FI_DEV_UUID": (54, _text("nvmlDeviceGetUUID")),
    "DCGM_FI_DEV_OEM_INFOROM_VER": (56, _nothing),
    "DCGM_FI_DEV_PERSISTENCE_MODE": (66, _number("nvmlDeviceGetPersistenceMode")),
    "DCGM_FI_DEV_MIG_MODE": (67, lambda nvml, device: nvml.mode("nvmlDeviceGetMigMode", device, 0)),
    "DCGM_FI_DEV_ECC_INFOROM_VER": (80, _nothing),
    "DCGM_FI_DEV_POWER_INFOROM_VER": (81, _nothing),
    "DCGM_FI_DEV_INFOROM_IMAGE_VER": (82, _text("nvmlDeviceGetInforomImageVersion")),
    "DCGM_FI_DEV_VBIOS_VERSION": (85, _text("nvmlDeviceGetVbiosVersion")),
    "DCGM_FI_DEV_SM_CLOCK": (100, _number("nvmlDeviceGetClockInfo", 1)),
    "DCGM_FI_DEV_MEM_CLOCK": (101, _number("nvmlDeviceGetClockInfo", 2)),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": (112, _number("nvmlDeviceGetCurrentClocksThrottleReasons")),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": (112, _number("nvmlDeviceGetCurrentClocksThrottleReasons")),
    "DCGM_FI_DEV_MAX_SM_CLOCK": (113, _number("nvmlDeviceGetMaxClockInfo", 1)),
    "DCGM_FI_DEV_MAX_MEM_CLOCK": (114, _number("nvmlDeviceGetMaxClockInfo", 2)),
    "DCGM_FI_DEV_MEMORY_TEMP": (140, _field(82)),
    "DCGM_FI_DEV_GPU_TEMP": (150, _number("nvmlDeviceGetTemperature", 0)),
    "DCGM_FI_DEV_GPU_MAX_OP_TEMP": (152, _number("nvmlDeviceGetTemperatureThreshold", 3)),
    "DCGM_FI_DEV_POWER_USAGE": (155, lambda nvml, device: _watts(nvml.number("nvmlDeviceGetPowerUsage", device))),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (156, _number("nvmlDeviceGetTotalEnergyConsumption")),
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": (157, lambda nvml, device: _watts(nvml.field(device, 186))),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": (158, _number("nvmlDeviceGetTemperatureThreshold", 1)),
    "DCGM_FI_DEV_SHUTDOWN_TEMP": (159, _number("nvmlDeviceGetTemperatureThreshold", 0)),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": (
        160,
        lambda nvml, device: _watts(nvml.number("nvmlDeviceGetPowerManagementLimit", device)),
    ),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": (
        164,
        lambda nvml, device: _watts(nvml.number("nvmlDeviceGetEnforcedPowerLimit", device)),
    ),
    "DCGM_FI_DEV_PSTATE": (190, _number("nvmlDeviceGetPerformanceState")),
    "DCGM_FI_DEV_FAN_SPEED": (191, _number("nvmlDeviceGetFanSpeed")),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": (202, _number("nvmlDeviceGetPcieReplayCounter")),
    "DCGM_FI_DEV_GPU_UTIL": (203, lambda nvml, device: getattr(nvml.utilization(device), "gpu", None)),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (204, lambda nvml, device: getattr(nvml.utilization(device), "memory", None)),
    "DCGM_FI_DEV_ENC_UTIL": (206, lambda nvml, device: nvml.sampled("nvmlDeviceGetEncoderUtilization", device)),
    "DCGM_FI_DEV_DEC_UTIL": (207, lambda nvml, device: nvml.sampled("nvmlDeviceGetDecoderUtilization", device)),
    _XID: (230, _nothing),  # comes by event
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": (235, _number("nvmlDeviceGetMaxPcieLinkGeneration")),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": (236, _number("nvmlDeviceGetMaxPcieLinkWidth")),
    "DCGM_FI_DEV_PCIE_LINK_GEN": (237, _number("nvmlDeviceGetCurrPcieLinkGeneration")),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": (238, _number("nvmlDeviceGetCurrPcieLinkWidth")),
    "DCGM_FI_DEV_POWER_VIOLATION": (240, _violation(0)),
    "DCGM_FI_DEV_THERMAL_VIOLATION": (241, _violation(1)),
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": (242, _violation(2)),
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": (243, _violation(3)),
    "DCGM_FI_DEV_LOW_UTIL_VIOLATION": (244, _violation(4)),
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": (245, _violation(5)),
    "DCGM_FI_DEV_FB_TOTAL": (250, lambda nvml, device: _mib(nvml.memory(device), "total")),
    "DCGM_FI_DEV_FB_FREE": (251, lambda nvml, device: _mib(nvml.memory(device), "free")),
    "DCGM_FI_DEV_FB_USED": (252, lambda nvml, device: _mib(nvml.memory(device), "used")),
    "DCGM_FI_DEV_FB_RESERVED": (253, lambda nvml, device: _mib(nvml.memory(device), "reserved")),
    "DCGM_FI_DEV_ECC_CURRENT": (300, lambda nvml, device: nvml.mode("nvmlDeviceGetEccMode", device, 0)),
    "DCGM_FI_DEV_ECC_PENDING": (301, lambda nvml, device: nvml.mode("nvmlDeviceGetEccMode", device, 1)),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": (310, _ecc(0, 0)),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (311, _ecc(1, 0)),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": (312, _ecc(0, 1)),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": (313, _ecc(1, 1)),
    "DCGM_FI_DEV_RETIRED_SBE": (390, _field(29)),
    "DCGM_FI_DEV_RETIRED_DBE": (391, _field(30)),
    "DCGM_FI_DEV_RETIRED_PENDING": (392, _field(31)),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (393, _remapped(1)),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": (394, _remapped(0)),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": (395, _remapped(3)),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": (396, _remapped(2)),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (409, _field(38)),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": (419, _field(45)),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": (429, _field(52)),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": (439, _field(59)),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0": (440, _nothing),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (449, lambda nvml, device: nvml.link_rate(device)),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": (526, lambda nvml, device: 0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (1001, _nothing),
    "DCGM_FI_PROF_SM_ACTIVE": (1002, _nothing),
    "DCGM_FI_PROF_SM_OCCUPANCY": (1003, _nothing),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (1004, _nothing),
    "DCGM_FI_PROF_DRAM_ACTIVE": (1005, _nothing),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": (1006, _nothing),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": (1007, _nothing),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": (1008, _nothing),
    "DCGM_FI_PROF_PCIE_TX_BYTES": (1009, _nothing),
    "DCGM_FI_PROF_PCIE_RX_BYTES": (1010, _nothing),
}

# --- counters file ---


@dataclass(frozen=True)
class Counter:
    """A line of the counters file."""

    name: str
    kind: str
    help: str


def read_counters(lines: Iterable[str]) -> list[Counter]:
    """Read a counters file. Raises ExporterError on what the real exporter ends at."""
    found = []
    rows = csv.reader(line for line in lines if line.strip() and not line.startswith("#"))
    for number, row in enumerate(rows):
        fields = [field.strip(" ") for field in row]
        if len(fields) != 3:
            said = (
                f"malformed CSV record; err: failed to parse line {number} (`[{' '.join(fields)}]`), expected 3 fields"
            )
            raise ExporterError(said)
        counter = Counter(*fields)
        if counter.name not in FIELDS:
            raise ExporterError(f"could not find DCGM field; err: unknown ExporterCounter field '{counter.name}'")
        if FIELDS[counter.name][0] in _PROFILING:
            log("WARN", f"Skipping line {number} ('{counter.name}'): metric not enabled")
            continue
        if counter.kind not in _TYPES:
            raise ExporterError(f"could not find Prometheus metric type '{counter.kind}'")
        found.append(counter)
    return found


# --- text ---


def formatted(value: Value) -> str:
    """A value as the real exporter writes it."""
    return f"{value:f}" if isinstance(value, float) else str(value)


def render(
    counters: Sequence[Counter], gpus: Sequence[Gpu], values: Mapping[tuple[int, str], Value], hostname: str
) -> str:
    """The text that Prometheus scrapes: by field number; what has no value has no series."""
    lines = []
    series = sorted((counter for counter in counters if counter.kind != "label"), key=lambda one: FIELDS[one.name][0])
    for counter in series:
        present = [gpu for gpu in gpus if values.get((gpu.index, counter.name)) is not None]
        if not present:
            continue
        lines += [f"# HELP {counter.name} {counter.help}", f"# TYPE {counter.name} {counter.kind}"]
        for gpu in present:
            value = values[gpu.index, counter.name]
            labels = {
                "gpu": str(gpu.index),
                "UUID": gpu.uuid,
                "pci_bus_id": gpu.address,
                "device": f"nvidia{gpu.index}",
                "modelName": gpu.name,
            }
            if hostname:
                labels["hostname"] = hostname
            for label in sorted(counter.name for counter in counters if counter.kind == "label"):
                if values.get((gpu.index, label)) is not None:
                    labels[label] = formatted(values[gpu.index, label])
            if counter.name == _XID:
                labels["err_code"] = formatted(value)
                labels["err_msg"] = _XID_NAMES.get(value if isinstance(value, int) else -1, "Unknown Error")
            text = ",".join(f'{key}="{item}"' for key, item in labels.items())
            lines.append(f"{counter.name}{{{text}}} {formatted(value)}")
    return "".join(f"{line}\n" for line in lines)


# --- the program ---


class Exporter:
    """Samples the counters every interval, as DCGM does; an Xid is there at once."""

    def __init__(self, counters: Sequence[Counter], hostname: str) -> None:
        self.counters, self.hostname = counters, hostname
        self.nvml = Nvml()
        self.gpus = self.nvml.gpus()
        if not self.gpus:
            raise ExporterError(
                "DCGM collector for entity type 'GPU' cannot be initialized; err: deviceWatchList is empty"
            )
        self._values: dict[tuple[int, str], Value] = {}
        self._xids = dict.fromkeys((gpu.index for gpu in self.gpus), 0)

    def sample(self) -> None:
        """Read every counter of every GPU."""
        self._values = {
            (gpu.index, counter.name): FIELDS[counter.name][1](self.nvml, gpu.handle)
            for gpu in self.gpus
            for counter in self.counters
        }

    def run(self, interval: float) -> None:
        """Sample for as long as the program runs."""
        self.sample()
        threading.Thread(target=self.nvml.watch_xids, args=(self.gpus, self._xids.__setitem__), daemon=True).start()
        threading.Thread(target=self._sample_forever, args=(interval,), daemon=True).start()

    def _sample_forever(self, interval: float) -> None:
        while True:
            time.sleep(interval)
            self.sample()

    def text(self) -> str:
        """What a scrape gets."""
        xids: dict[tuple[int, str], Value] = {(index, _XID): xid for index, xid in self._xids.items()}
        return render(self.counters, self.gpus, {**self._values, **xids}, self.hostname)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    exporter: Exporter

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:  # the name that http.server asks for
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, self.server.exporter.text(), "text/plain; charset=utf-8")
        elif path == "/health":
            self._answer(200, "OK", "text/plain; charset=utf-8")
        elif path == "/":
            self._answer(200, '<html><body><a href="./metrics">Metrics</a></body></html>', "text/html; charset=utf-8")
        else:
            self._answer(404, "404 page not found\n", "text/plain; charset=utf-8")

    def _answer(self, status: int, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        """The real exporter doesn't log scrapes."""


def listen_address(text: str) -> tuple[str, int]:
    """HOST:PORT as Go reads it: no host means every address, an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise ExporterError(f"listen tcp: address {text}: missing port in address")
    return host.strip("[]"), int(port)


def _listen(exporter: Exporter, address: str) -> _Server:
    host, port = listen_address(address)
    family = socket.AF_INET6 if ":" in host or (not host and Path("/proc/net/if_inet6").exists()) else socket.AF_INET
    _Server.address_family = family
    server = _Server((host or ("::" if family == socket.AF_INET6 else "0.0.0.0"), port), _Handler)  # noqa: S104 # as asked
    server.exporter = exporter
    return server


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dcgm-exporter", description="Stand-in of NVIDIA's dcgm-exporter for tests.")
    parser.add_argument("--version", "-v", action="version", version=f"DCGM Exporter version {VERSION}")
    for names, variable, default in (
        (("--collectors", "-f"), "DCGM_EXPORTER_COLLECTORS", "/etc/dcgm-exporter/default-counters.csv"),
        (("--address", "-a"), "DCGM_EXPORTER_LISTEN", ":9400"),
        (("--collect-interval", "-c"), "DCGM_EXPORTER_INTERVAL", "30000"),
        (("--configmap-data", "-m"), "DCGM_EXPORTER_CONFIGMAP_DATA", "none"),
        (("--remote-hostengine-info", "-r"), "DCGM_REMOTE_HOSTENGINE_INFO", ""),
        (("--devices", "-d"), "DCGM_EXPORTER_DEVICES_STR", "f"),
        (("--switch-devices", "-s"), "DCGM_EXPORTER_OTHER_DEVICES_STR", "f"),
        (("--cpu-devices", "-p"), "DCGM_EXPORTER_CPU_DEVICES_STR", "f"),
        (("--xid-count-window-size", "-x"), "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", "300000"),
        (("--log-format",), "DCGM_EXPORTER_LOG_FORMAT", "text"),
        (("--web-config-file",), "DCGM_EXPORTER_WEB_CONFIG_FILE", ""),
    ):
        parser.add_argument(*names, default=os.environ.get(variable) or default)
    for names, variable in (
        (("--kubernetes", "-k"), "DCGM_EXPORTER_KUBERNETES"),
        (("--use-old-namespace", "-o"), "DCGM_EXPORTER_USE_OLD_NAMESPACE"),
        (("--no-hostname", "-n"), "DCGM_EXPORTER_NO_HOSTNAME"),
        (("--replace-blanks-in-model-name",), "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME"),
        (("--debug",), "DCGM_EXPORTER_DEBUG"),
    ):
        set_by_environment = os.environ.get(variable, "").lower() in ("1", "t", "true")
        parser.add_argument(*names, action="store_true", default=set_by_environment)
    return parser.parse_args(arguments)


def _check(options: argparse.Namespace) -> None:
    for name in ("kubernetes", "use_old_namespace", "web_config_file"):
        if getattr(options, name):
            raise ExporterError(f"this test stand-in has no --{name.replace('_', '-')}")
    if options.remote_hostengine_info:
        host, port = listen_address(options.remote_hostengine_info)
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError as error:
            raise ExporterError(
                f"error connecting to nv-hostengine: Host engine connection invalid/disconnected ({error})"
            ) from error


def main(arguments: Sequence[str]) -> int:
    """Serve until told to end; returns the exit status."""
    options = _options(arguments)
    log("INFO", "Starting dcgm-exporter", Version=VERSION)
    try:
        _check(options)
        try:
            text = Path(options.collectors).read_text(encoding="utf-8")
        except OSError as error:
            raise ExporterError(f"Could not read metrics file '{options.collectors}'; err: {error.strerror}") from error
        counters = read_counters(text.splitlines())
        hostname = "" if options.no_hostname else os.environ.get("NODE_NAME") or socket.gethostname()
        exporter = Exporter(counters, hostname)
        log("INFO", "DCGM successfully initialized!")
        exporter.run(int(options.collect_interval) / 1000)
        server = _listen(exporter, options.address)
    except (ExporterError, OSError, ValueError) as error:
        log("ERROR", str(error))
        return 1
    log("INFO", "HTTP server started - ready to serve metrics")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0
