# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host's kernel log: /var/log/kern.log in rsyslog's format, and the journal under the identifier kernel.

The fabric manager's log is written beside it.

/dev/kmsg is the outer machine's, shared by all test hosts, and stays untouched. So `journalctl -k` and the real
dmesg know nothing of these lines; `journalctl -t kernel`, /var/log/kern.log and the host's dmesg stand-in do.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FILE = "var/log/kern.log"
FABRIC_MANAGER_FILE = "var/log/fabricmanager.log"
_JOURNAL = "run/systemd/journal/dev-log"

# What the driver says behind "Xid (PCI:...): CODE, ". Wording: captures of drivers 525 to 560.
_UNKNOWN = "pid='<unknown>', name=<unknown>, "
_REGISTERS = "(0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
TEXTS = {
    13: _UNKNOWN + "Graphics SM Warp Exception on (GPC 8, TPC 5, SM 1): Out Of Range Address",
    31: "pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 "
    "faulted @ 0x7f12_34560000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "pid=4711, name=python3, Ch 00000008",
    45: "pid=4711, name=python3, Ch 00000010",
    48: _UNKNOWN
    + "An uncorrectable double bit error (DBE) has been detected on GPU "
    + "in the framebuffer at physAddr 0x12bac1c3e0 partition 2, subpartition 0.",
    61: _UNKNOWN + "Internal micro-controller breakpoint/warning 22cf(24a0) 00000000 00000000",
    62: _UNKNOWN + "2027a5d4 2027a5d4 2027a7ac 2027a81c 00000000",
    63: _UNKNOWN + "Row Remapper: New row (0x00000012bac1c3e0) marked for remapping, reset gpu to activate.",
    64: _UNKNOWN + "Row Remapper: Error writing to inforom",
    69: "pid=4711, name=python3, Class Error: ChId 0008, Class 0000cbc0, Offset 00000100, Data 00000000",
    74: _UNKNOWN + "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: _UNKNOWN + "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate",
    94: _UNKNOWN + "Contained: SM (0x1). RST: No, D-RST: No",
    95: _UNKNOWN + "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: "pid=4711, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x5c015",
    119: "pid=4711, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP! "
    "Expected function 76 (GSP_RM_CONTROL) (0x2080a097 0x490).",
    120: _UNKNOWN + "GSP task exception: load access fault, cause:0x5 @ pc:0x1ab6c3c, partition:4#0, task:1",
    137: "pid=4711, name=python3, Ch 00000008, NVLink privilege error on link 3",
    140: _UNKNOWN + "Uncorrectable ECC error in HBM",
    143: _UNKNOWN + "GPU initialization failed",
    144: "SAW_MVB Fatal XC0 i0 Link 02 " + _REGISTERS,
    145: "RLW_CTRL Fatal XC0 i0 Link 03 " + _REGISTERS,
    146: "TLW_TX Fatal XC0 i0 Link 04 " + _REGISTERS,
    147: "TREX Fatal XC0 i0 Link 05 " + _REGISTERS,
    148: "NVLPW_CTRL Fatal XC0 i0 Link 06 " + _REGISTERS,
    149: "NETIR_LINK_EVT Fatal XC0 i0 Link 01 " + _REGISTERS,
    150: "MSE_WATCHDOG Fatal XC0 i0 Link 07 " + _REGISTERS,
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}


def xid_lines(address: str, code: int, uuid: str, serial: str | None, text: str | None) -> list[str]:
    """The lines that the driver writes for an Xid. address: domain:bus:device.function."""
    short = address.rpartition(".")[0]
    if text is None:
        text = TEXTS.get(code)
    body = f"NVRM: Xid (PCI:{short}): {code}, {text}" if text else f"NVRM: Xid (PCI:{short}): {code}"
    lines = [f"NVRM: GPU at PCI:{short}: {uuid}"]
    if serial:
        lines.append(f"NVRM: GPU Board Serial Number: {serial}")
    lines.append(body)
    if code == 79:
        lines.append(f"NVRM: GPU {address}: GPU has fallen off the bus.")
        if serial:
            lines.append(f"NVRM: GPU {address}: GPU serial number is {serial}.")
    return lines


@dataclass(frozen=True)
class Sxid:
    """An error of an NVSwitch. address: domain:bus:device.function."""

    switch: int
    address: str
    code: int
    link: int
    fatal: bool


def report_sxid(root: Path, sxid: Sxid) -> None:
    """Put an SXid into the kernel log, and into that of the fabric manager, which watches the NVSwitches."""
    head = f"nvidia-nvswitch{sxid.switch}: SXid (PCI:{sxid.address}): {sxid.code}"
    registers = "0x10000000, 0x10000000, 0x00000000, 0x10000000, 0x00000000, 0x00000000, 0x00000000"
    append(
        root,
        [
            f"{head}, {'Fatal' if sxid.fatal else 'Non-fatal'}, Link {sxid.link:02d} an error (First)",
            f"{head}, Severity {int(sxid.fatal)} Engine instance {sxid.link:02d} Sub-engine instance 00",
            f"{head}, Data {{{registers}}}",
        ],
    )
    line = (
        f"[ERROR] [tid 1803] detected NVSwitch {'fatal' if sxid.fatal else 'non-fatal'} error {sxid.code} on fid 0 on "
        f"NVSwitch pci bus id 0000{sxid.address.upper()} physical id {sxid.switch} port {sxid.link}"
    )
    with (root / FABRIC_MANAGER_FILE).open("a", encoding="utf-8") as file:
        file.write(f"[{datetime.datetime.now().strftime('%b %d %Y %H:%M:%S')}] {line}\n")


def append(root: Path, lines: Iterable[str]) -> None:
    path = root / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now().astimezone().isoformat(timespec="microseconds")
    lines = list(lines)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{now} {socket.gethostname()} kernel: [{time.monotonic():12.6f}] {line}\n" for line in lines)
    # A host without journald has no such socket.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        for line in lines:
            journal.sendto(f"<3>kernel: {line}".encode(), str(root / _JOURNAL))


def as_dmesg(root: Path) -> Iterable[str]:
    """The log as dmesg shows it."""
    with contextlib.suppress(FileNotFoundError):
        for line in (root / FILE).read_text(encoding="utf-8").splitlines():
            found = re.search(r" kernel: (\[.*)", line)
            if found:
                yield found.group(1)
