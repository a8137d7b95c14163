# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# PRIVATE to this collection: no promise is made to other code.
"""What the numbers of Xids and SXids mean and what to do about them: the one catalogue of this collection.

Sources, read in November 2026:
- Xid: NVIDIA, "Xid Errors", Xid catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, codes 1 to
  172), its column "immediate action"; what it calls unused since Ampere has its meaning from the same document's
  edition for Volta and older.
- SXid: NVIDIA, "Fabric Manager User Guide", DU-09883-001_v1.3, appendix D (non-fatal, fatal, always fatal).
- Where a remapped row is beyond repair: NVIDIA, "GPU Memory Error Management".
The words are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# What the facts name as their source.
VERSION = "Xid Errors, catalogue of Xids 1 to 172, November 2026; Fabric Manager User Guide DU-09883-001_v1.3"

IGNORE = "ignore"
RESTART = "restart the application"
SUPPORT = "contact support"
UPDATE = "update the driver"
RESET = "reset the GPU"
REBOOT = "reboot"
CABLING = "check cabling"
REPLACE = "RMA"
# From the least to the most severe. What needs a hand at the machine comes after what a command does.
ACTIONS = (IGNORE, RESTART, SUPPORT, UPDATE, RESET, REBOOT, CABLING, REPLACE)

CRITICAL = "critical"
WARNING = "warning"
INFO = "info"
_SEVERITIES = {IGNORE: INFO, RESTART: WARNING, SUPPORT: WARNING, UPDATE: WARNING}

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Meaning:
    """What an event means.

    name: NVIDIA's own, "unknown" where the catalogue has none. advice: None where the action says all.
    """

    name: str
    meaning: str
    action: str
    severity: str
    advice: str | None = None


# Code, name (* stands for ROBUST_CHANNEL_), action, meaning. Actions: i ignore, a restart the application, s contact
# support (also where NVIDIA gives none), u update the driver, g reset the GPU, b reboot, c check cabling, n and x as
# the line itself says.
_XIDS = """
1 *FIFO_ERROR_FIFO_METHOD s The commands sent to the GPU were invalid or spoilt (boards before Ampere).
2 *FIFO_ERROR_SW_METHOD s The commands sent to the GPU were invalid or spoilt (boards before Ampere).
3 *FIFO_ERROR_UNK_METHOD s The commands sent to the GPU were invalid or spoilt (boards before Ampere).
4 *FIFO_ERROR_CHANNEL_BUSY s The commands sent to the GPU were invalid, or a semaphore timed out (boards before Ampere).
5 *FIFO_ERROR_RUNOUT_OVERFLOW s Not in use.
6 *FIFO_ERROR_PARSE_ERR s The commands sent to the GPU were invalid or spoilt (boards before Ampere).
7 *FIFO_ERROR_PTE_ERR s The address of the commands sent to the GPU was invalid or spoilt (boards before Ampere).
8 *FIFO_ERROR_IDLE_TIMEOUT a The GPU stopped processing.
9 *GR_ERROR_INSTANCE s The driver programmed the GPU wrongly (boards before Ampere).
10 *GR_ERROR_SINGLE_STEP s Not in use.
11 *GR_ERROR_MISSING_HW a The commands sent to the GPU were invalid or spoilt.
12 *GR_ERROR_SW_METHOD s The driver failed to handle an exception of the GPU (boards before Ampere).
13 *GR_EXCEPTION a The program made the GPU's compute engine fault, mostly by an access out of bounds.
14 *FAKE_ERROR i A test error that a program asked for.
15 *SCANLINE_TIMEOUT s Not in use.
16 *VBLANK_CALLBACK_TIMEOUT s The display engine hung (boards before Ampere).
17 *PARAMETER_ERROR s Not in use.
18 *BUS_MASTER_TIMEOUT_ERROR s Bus mastering is off in the PCI configuration (boards before Ampere).
19 *DISP_MISSED_NOTIFIER s The display engine failed (boards before Ampere).
20 *MPEG_ERROR_SW_METHOD s The video engine got invalid commands (boards before Ampere).
21 *ME_ERROR_SW_METHOD s The motion estimation engine got invalid commands (boards before Ampere).
22 *VP_ERROR_SW_METHOD s The video processor got invalid commands (boards before Ampere).
23 *RC_LOGGING_ENABLED s Not in use.
24 *GR_SEMAPHORE_TIMEOUT s A semaphore of the GPU timed out (boards before Ampere).
25 *GR_ILLEGAL_NOTIFY a The commands sent to the GPU were invalid or illegal.
26 *FIFO_ERROR_FBISTATE_TIMEOUT s The framebuffer timed out (boards before Ampere).
27 *VP_ERROR s The video processor failed (boards before Ampere).
28 *VP2_ERROR s The video processor failed (boards before Ampere).
29 *BSP_ERROR s The video processor failed (boards before Ampere).
30 *BAD_ADDR_ACCESS s An access to a semaphore failed (boards before Ampere).
31 *FIFO_ERROR_MMU_ERR_FLT a The program accessed an address of GPU memory that isn't its own.
32 *PBDMA_ERROR a The commands arrived at the GPU spoilt, often by a bad PCIe connection.
33 *SEC_ERROR s A microcontroller of the GPU failed (boards before Ampere).
34 *MSVLD_ERROR s The video processor failed (boards before Ampere).
35 *MSPDEC_ERROR s The video processor failed (boards before Ampere).
36 *MSPPP_ERROR s The video processor failed (boards before Ampere).
37 *FECS_ERR_UNIMP_FIRMWARE_METHOD i The firmware of the compute engine got a command that it doesn't know.
38 *FECS_ERR_WATCHDOG_TIMEOUT i The firmware of the compute engine timed out.
39 *CE0_ERROR a Copy engine 0 faulted.
40 *CE1_ERROR a Copy engine 1 faulted.
41 *CE2_ERROR a Copy engine 2 faulted.
42 *VIC_ERROR s The video processor failed (boards before Ampere).
43 *RESETCHANNEL_VERIF_ERROR i A program hit a fault of its own and was stopped; the GPU is well.
44 *GR_FAULT_DURING_CTXSW i The compute engine faulted while it switched from one program to another.
45 *PREEMPTIVE_REMOVAL i The driver cleaned up after a program that was stopped or hit another error.
46 *GPU_TIMEOUT_ERROR g The GPU stopped processing.
47 *NVENC0_ERROR s The video encoder failed (boards before Ampere).
48 *GPU_ECC_DBE g The GPU's memory had an error that ECC could not correct.
49 SILENT_RUNNING_CONSTANT_LEVEL_SET_BY_REGISTRY s Not in use.
50 SILENT_RUNNING_LEVEL_TRANSITION_DUE_TO_RC_ERROR s Not in use.
51 SILENT_RUNNING_STRESS_TEST_FAILURE s Not in use.
52 SILENT_RUNNING_LEVEL_TRANS_DUE_TO_TEMP_RISE s Not in use.
53 SILENT_RUNNING_TEMP_REDUCED_CLOCKING s Not in use.
54 SILENT_RUNNING_PWR_REDUCED_CLOCKING c The auxiliary power of the board isn't connected.
55 SILENT_RUNNING_TEMPERATURE_READ_ERROR s Not in use.
56 DISPLAY_CHANNEL_EXCEPTION s The display engine failed (boards before Ampere).
57 FB_LINK_TRAINING_FAILURE_ERROR s The interface to the video memory was programmed wrongly (boards before Ampere).
58 FB_MEMORY_ERROR s The interface to the video memory is unstable (boards before Ampere).
59 PMU_ERROR s A microcontroller of the GPU failed (boards before Ampere).
60 *SEC2_ERROR a The security or video processor faulted.
61 PMU_BREAKPOINT s The power management microcontroller stopped at a breakpoint or warned (boards before Ampere).
62 PMU_HALT_ERROR g The power management microcontroller halted.
63 INFOROM_DRAM_RETIREMENT_EVENT i A bad part of the memory was noted to be replaced (row remapped or page retired).
64 INFOROM_DRAM_RETIREMENT_FAILURE g A bad part of the memory could not be replaced (row remapped, page retired).
65 *NVENC1_ERROR s The video encoder failed (boards before Ampere).
66 *FECS_ERR_REG_ACCESS_VIOLATION i The driver made an illegal access.
67 *FECS_ERR_VERIF_VIOLATION i The driver made an illegal access.
68 *NVDEC0_ERROR a Video decoder 0 faulted.
69 *GR_CLASS_ERROR a The compute engine got an invalid class of commands.
70 *CE3_ERROR a Copy engine 3 faulted.
71 *CE4_ERROR a Copy engine 4 faulted.
72 *CE5_ERROR a Copy engine 5 faulted.
73 *NVENC2_ERROR s The video encoder failed (boards before Ampere).
74 NVLINK_ERROR g A connection over NVLink to another GPU or an NVSwitch failed.
75 *CE6_ERROR a Copy engine 6 faulted.
76 *CE7_ERROR a Copy engine 7 faulted.
77 *CE8_ERROR a Copy engine 8 faulted.
78 VGPU_START_ERROR u A virtual GPU could not start: guest and host driver, or card and type, don't go together.
79 *GPU_HAS_FALLEN_OFF_THE_BUS b The driver can't reach the GPU over PCIe any more.
80 PBDMA_PUSHBUFFER_CRC_MISMATCH a The commands arrived at the GPU spoilt.
81 *VGA_SUBSYSTEM_ERROR s The VGA part failed (boards before Ampere).
82 *NVJPG0_ERROR a JPEG engine 0 faulted.
83 *NVDEC1_ERROR a Video decoder 1 faulted.
84 *NVDEC2_ERROR a Video decoder 2 faulted.
85 *CE9_ERROR a Copy engine 9 faulted.
86 *OFA0_ERROR a The optical flow engine faulted.
87 NVTELEMETRY_DRIVER_REPORT s Not in use.
88 *NVDEC3_ERROR a Video decoder 3 faulted.
89 *NVDEC4_ERROR a Video decoder 4 faulted.
90 LTC_ERROR s Not in use.
91 RESERVED_XID s Not in use.
92 EXCESSIVE_SBE_INTERRUPTS i The memory has many errors that ECC corrects.
93 INFOROM_ERASE_LIMIT_EXCEEDED i The infoROM was written more often than its wear limit allows.
94 *CONTAINED_ERROR a A memory error that hit one program alone.
95 *UNCONTAINED_ERROR g A memory error that may have hit every program on the GPU.
96 *NVDEC5_ERROR a Video decoder 5 faulted.
97 *NVDEC6_ERROR a Video decoder 6 faulted.
98 *NVDEC7_ERROR a Video decoder 7 faulted.
99 *NVJPG1_ERROR a JPEG engine 1 faulted.
100 *NVJPG2_ERROR a JPEG engine 2 faulted.
101 *NVJPG3_ERROR a JPEG engine 3 faulted.
102 *NVJPG4_ERROR a JPEG engine 4 faulted.
103 *NVJPG5_ERROR a JPEG engine 5 faulted.
104 *NVJPG6_ERROR a JPEG engine 6 faulted.
105 *NVJPG7_ERROR a JPEG engine 7 faulted.
106 SMBPBI_TEST_MESSAGE i A test message.
107 SMBPBI_TEST_MESSAGE_SILENT i A test message.
108 NVLINK_REMOTE_TRANSLATION_ERROR i A program accessed an address of another GPU over NVLink that isn't its own.
109 *CTXSW_TIMEOUT_ERROR g The GPU timed out while it switched from one program to another.
110 SEC_FAULT_ERROR g The GPU reports a security fault, mostly of the hardware.
111 BUNDLE_ERROR_EVENT s Not in use.
112 DISP_SUPERVISOR_ERROR s Not in use.
113 DP_LT_FAILURE s Not in use.
114 HEAD_RG_UNDERFLOW s Not in use.
115 CORE_CHANNEL_REGS s Not in use.
116 WINDOW_CHANNEL_REGS s Not in use.
117 CURSOR_CHANNEL_REGS s Not in use.
118 HEAD_REGS s Not in use.
119 GSP_RPC_TIMEOUT g The GPU system processor (GSP) didn't answer the driver in time.
120 GSP_ERROR g The firmware of the GPU system processor (GSP) failed.
121 C2C_ERROR i The link between Grace CPU and GPU had errors that were corrected.
122 SPI_PMU_RPC_READ_FAIL s Not in use.
123 SPI_PMU_RPC_WRITE_FAIL s Not in use.
124 SPI_PMU_RPC_ERASE_FAIL s Not in use.
125 INFOROM_FS_ERROR s Not in use.
126 *CE10_ERROR a Copy engine 10 faulted.
127 *CE11_ERROR a Copy engine 11 faulted.
128 *CE12_ERROR a Copy engine 12 faulted.
129 *CE13_ERROR a Copy engine 13 faulted.
130 *CE14_ERROR a Copy engine 14 faulted.
131 *CE15_ERROR a Copy engine 15 faulted.
132 *CE16_ERROR a Copy engine 16 faulted.
133 *CE17_ERROR a Copy engine 17 faulted.
134 *CE18_ERROR a Copy engine 18 faulted.
135 *CE19_ERROR a Copy engine 19 faulted.
136 ALI_TRAINING_FAIL g An NVLink could not be trained.
137 NVLINK_PRIV_ERR i A program accessed memory of another GPU over NVLink without leave to do so.
138 *DLA_ERROR s Not in use.
139 *OFA1_ERROR a Optical flow engine 1 faulted.
140 UNRECOVERABLE_ECC_ERROR_ESCAPE g Memory errors that the driver could neither correct nor put aside.
141 *FAST_PATH_ERROR i The fast path of CUDA faulted.
142 *NVENC3_ERROR s Video encoder 3 failed.
143 GPU_INIT_ERROR g The GPU failed to start up.
144 NVLINK_SAW_ERROR n NVLink 5 reports an error of its system address window (SAW).
145 NVLINK_RLW_ERROR n NVLink 5 reports an error of its receiving link wrapper (RLW).
146 NVLINK_TLW_ERROR n NVLink 5 reports an error of its transmitting link wrapper (TLW).
147 NVLINK_TREX_ERROR n NVLink 5 reports an error of its test engine (TREX).
148 NVLINK_NVLPW_CTRL_ERROR n NVLink 5 reports an error of its port wrapper (NVLPW).
149 NVLINK_NETIR_ERROR n NVLink 5 reports an event of its network interface: link, bit errors or firmware (NETIR).
150 NVLINK_MSE_ERROR n NVLink 5 reports an error of its management engine (MSE).
151 *KEY_ROTATION_ERROR b The keys of confidential computing could not be changed.
152 *DLA_SMMU_ERROR i The memory unit of the deep learning accelerator faulted.
153 *DLA_TIMEOUT i The deep learning accelerator timed out.
154 GPU_RECOVERY_ACTION_CHANGED x The driver says what the GPU needs after the errors before this line.
155 NVLINK_SW_DEFINED_ERROR g Software took an NVLink down.
156 RESOURCE_RETIREMENT_EVENT g A bad part of the GPU was noted to be switched off.
157 RESOURCE_RETIREMENT_FAILURE i A bad part of the GPU can't be switched off, for no spare is left.
158 GPU_FATAL_TIMEOUT g The GPU timed out for good.
159 *CHI_NON_DATA_ERROR g The link between CPU and GPU had an error of its protocol.
160 CHANNEL_RETIREMENT_EVENT i A memory channel was noted to be repaired.
161 CHANNEL_RETIREMENT_FAILURE i A memory channel can't be repaired.
162 PSHC_REENGAGED i The power smoothing circuit works again.
163 PSHC_DISENGAGED i The power smoothing circuit switched itself off, by heat or a timeout.
164 PSHC_LOW_LIFETIME s The power smoothing circuit is near the end of its life.
165 PSHC_ZERO_LIFETIME s The power smoothing circuit is at the end of its life.
166 NVLINK_SECURE_CRYPTO_ERR s Traffic of confidential computing came before the link was set up for it.
167 PCIE_FATAL_TIMEOUT s The PCIe link of the GPU timed out for good.
168 REDUCED_GPU_MEMORY_CAPACITY s Errors lie in a part of the memory that can't be moved while ECC is off.
169 SEC2_HALT_ERROR s The security microcontroller halted.
170 NVLINK_SECURE_OTHER s NVLink interrupted confidential computing.
171 UNCORRECTABLE_DRAM_ERROR g The error that ECC could not correct (Xid 48) lay in DRAM.
172 UNCORRECTABLE_SRAM_ERROR g The error that ECC could not correct (Xid 48) lay in SRAM.
"""
_LETTERS = {
    "i": IGNORE,
    "a": RESTART,
    "s": SUPPORT,
    "u": UPDATE,
    "g": RESET,
    "b": REBOOT,
    "c": CABLING,
    "n": RESET,
    "x": SUPPORT,
}
_ADVICE = {
    13: "If it comes again, run the program in compute-sanitizer; if it names the same GPC and TPC, test the GPU.",
    31: "If it comes again, run the program in compute-sanitizer; if it comes on one GPU alone, test that.",
    32: "If it comes again, check the board's seat and the PCIe errors in the kernel log.",
    45: "Look for the Xid before it; one that comes by itself and often asks for a restart of the fabric manager.",
    48: "With Xid 63 or 64 beside it, let the jobs end first; replace the GPU if its SRAM error threshold is exceeded.",
    63: "Reset the GPU when its jobs have ended, so that the spare takes effect.",
    64: "Replace the GPU (RMA) if row_remap_failure stays after the reset.",
    74: "If it comes again on the same link, check the boards' seat and test the links (dcgmi diag).",
    79: "If it is lost again, check its seat, power and PCIe riser, then have it replaced (RMA).",
    92: "Watch the GPU; have it replaced if uncorrectable errors follow.",
    94: "Reset the GPU when its jobs have ended.",
    109: "If it comes again with one program alone, look at the program.",
    110: "Undo recent changes of hardware and start the machine cold.",
    119: "If it comes again after a reset, power the machine off and on, and update the driver.",
    120: "If it comes again after a reset, power the machine off and on, and update the driver.",
    121: "Reset the GPU when it suits, so that the link is trained anew.",
    137: "Run the program in compute-sanitizer.",
    140: "Replace the GPU (RMA) if it comes again after the reset.",
    154: "The line in the kernel log names it.",
    155: "Nothing, if somebody took the link down on purpose.",
    157: "The GPU may be used on; contact support if the error comes again.",
    161: "The GPU may be used on; contact support if the error comes again.",
    163: "Check the cooling.",
    165: "Replace the GPU if the machine room can't bear swings of power.",
    168: "Switch ECC on.",
}


def _xids() -> dict[int, Meaning]:
    found = {}
    for line in _XIDS.strip().splitlines():
        number, name, letter, meaning = line.split(" ", 3)
        action = _LETTERS[letter]
        code = int(number)
        found[code] = Meaning(
            name.replace("*", "ROBUST_CHANNEL_"),
            meaning,
            action,
            _SEVERITIES.get(action, CRITICAL),
            _ADVICE.get(code),
        )
    return found


XIDS = _xids()

_NOT_IN_USE = "Not in use."
# The actions on a node that other people's jobs may run on.
_IN_A_CLUSTER = {
    IGNORE: "Nothing is to be done.",
    RESTART: "The job that ran there has to be started again.",
    SUPPORT: "If it comes again, ask the vendor's support.",
    UPDATE: "Update the driver.",
    RESET: "Drain the node and reset the GPU when its jobs have ended (nvidia-smi --gpu-reset).",
    REBOOT: "Drain the node and reboot it.",
    CABLING: "Drain the node and check the GPU's seat and cables.",
    REPLACE: "Drain the node and have the GPU replaced.",
}


# These are fatal or not as their line says, which an alert doesn't know.
_NVLINK5_CODES = range(144, 151)


def alerts(severities: Mapping[str, Sequence[int]]) -> list[dict[str, object]]:
    """Return what an alert says of each Xid: codes, severity, action.

    severities: the codes by severity where this isn't to be the catalogue's. Raises ValueError where it holds another
    severity or a code that the catalogue doesn't have.
    """
    for severity in severities:
        if severity not in (CRITICAL, WARNING, INFO):
            raise ValueError(f"'{severity}' is no severity; write {CRITICAL}, {WARNING} or {INFO}.")
    chosen = {code: severity for severity, codes in severities.items() for code in codes}
    unknown = [code for code in chosen if code not in XIDS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no Xid of the catalogue; write one of its numbers, such as 79.")
    found: dict[tuple[str, str], list[int]] = {}
    for code, known in XIDS.items():
        if known.meaning == _NOT_IN_USE:
            continue
        severity, todo = known.severity, _IN_A_CLUSTER[known.action]
        if code in _NVLINK5_CODES:
            severity, todo = WARNING, f"If the kernel log calls it fatal: {todo[:1].lower()}{todo[1:]}"
        elif known.advice and known.action in {IGNORE, SUPPORT}:
            todo = ""
        action = " ".join(filter(None, (known.meaning, todo, known.advice)))
        found.setdefault((chosen.get(code, severity), action), []).append(code)
    return [{"codes": codes, "severity": severity, "action": action} for (severity, action), codes in found.items()]


# By number, since drivers name them differently ("Node Reboot Required", since 610 "OS Reboot"): none, reset, reboot,
# drain peer-to-peer, drain and reset, recover the IMEX domain.
_RECOVERY = re.compile(r"\bto\s+0x([0-9a-f]{1,8})\b", re.IGNORECASE)
_RECOVERY_ACTIONS = {0: IGNORE, 1: RESET, 2: REBOOT, 3: RESET, 4: RESET}
_RECOVERY_ADVICE = {
    **dict.fromkeys((0, 1, 2)),
    **dict.fromkeys((3, 4), "Let the jobs on the GPU end first."),
    5: "Restart nvidia-imex on all nodes of the NVLink domain.",
}
# NVLink 5: the part that reports, then Fatal or Nonfatal (blanks vary), at the end numbers; the second is its status.
_NVLINK5 = re.compile(
    r"\b(?P<part>[A-Z][A-Z0-9_]+(?:/[A-Z0-9_]+)?)\s+(?:Link\s+)?(?P<fatal>Non-?fatal|Fatal)\b"
    r"(?:[^(]*\(0x(?P<first>[0-9a-f]{1,8}) 0x(?P<status>[0-9a-f]{1,8})\b)?",
    re.IGNORECASE,
)
# Bits of the status with which a part that isn't at fault itself ends a program.
_CROSS_CONTAINED = {"RLW_REMAP": 0x3F, "RLW_SRC_TRACK": 0x0C}
# Why a link went down, where NVIDIA has nothing done to this GPU: software or the host did it.
_LINK_REASONS_TO_IGNORE = (0x26, 0x28)
_NO_SPARE = re.compile(
    r"all reserved rows for bank are remapped|no more (?:spare )?rows|unable to remap", re.IGNORECASE
)


def of_xid(code: int, text: str) -> Meaning:
    """Return what an Xid means; some codes leave the action to the words of the line."""
    known = XIDS.get(code)
    if known is None:
        return Meaning(
            UNKNOWN,
            f"NVIDIA's catalogue has no Xid {code}.",
            SUPPORT,
            WARNING,
            "Look it up in NVIDIA's newest catalogue.",
        )
    if code in _NVLINK5_CODES:
        return _of_nvlink5(known, text)
    action, advice = known.action, known.advice
    if code == 154:
        match = _RECOVERY.search(text)
        number = int(match[1], 16) if match else -1
        action, advice = _RECOVERY_ACTIONS.get(number, SUPPORT), _RECOVERY_ADVICE.get(number, advice)
    elif code == 64 and _NO_SPARE.search(text):
        action, advice = REPLACE, "No spare row is left in that bank of memory."
    elif code == 159:
        advice = "The reset is needed where unified memory (UVM) or vGPU is in use."
    if (action, advice) == (known.action, known.advice):
        return known
    return Meaning(known.name, known.meaning, action, _SEVERITIES.get(action, CRITICAL), advice)


def _of_nvlink5(known: Meaning, text: str) -> Meaning:
    match = _NVLINK5.search(text)
    if match is None:
        return known
    part = match["part"].upper()
    first, status = (int(match[name], 16) if match[name] else None for name in ("first", "status"))
    if match["fatal"].lower() == "fatal":
        if not part.startswith("NETIR_LINK") or first is None or first >> 20 & 0x3F not in _LINK_REASONS_TO_IGNORE:
            return known
        why = "Software or the host took the link down; find out which, since jobs need it."
        return Meaning(known.name, known.meaning, IGNORE, WARNING, why)
    bits = next((bits for name, bits in _CROSS_CONTAINED.items() if part.startswith(name)), 0)
    action = RESTART if bits and (status is None or status & bits) else IGNORE
    advice = "If it comes again on the same link, check its cables and connectors." if "BER" in part else None
    return Meaning(known.name, known.meaning, action, _SEVERITIES[action], advice)


_ECC = "single-bit ECC error, corrected"
_SXIDS_NON_FATAL = {
    11004: ("ingress invalid ACL", SUPPORT, "Check the fabric manager's partitions."),
    **dict.fromkeys(
        (
            *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068),
            *(19071, 24001, 24002, 24003),
        ),
        (_ECC, IGNORE, None),
    ),
    12028: (
        "egress non-posted PRIV error",
        RESTART,
        "A program accessed memory of another GPU without leave to do so.",
    ),
    19084: ("AN1 heartbeat timeout", RESET, "Reset all GPUs and NVSwitches at once."),
    20001: ("TX replay error", IGNORE, "Packets are sent again, which costs bandwidth."),
    20009: ("RX short error rate", IGNORE, "If it comes again on the same link, check the boards' seat."),
    20012: ("inconsistent connection", CABLING, "Nothing, if a GPU was reset or shut down just then."),
    22013: ("Minion link DLREQ interrupt", IGNORE, None),
}
_SXIDS_FATAL = {
    11001: "ingress invalid command",
    11009: "ingress invalid VCSet",
    11013: "ingress header double-bit error",
    11018: "ingress RID double-bit error",
    11019: "ingress RLAN double-bit error",
    11020: "ingress control parity error",
    12001: "egress crossbar overflow",
    12002: "egress packet route error",
    12022: "egress input double-bit error",
    12024: "egress output double-bit error",
    12025: "egress credit overflow",
    12026: "egress destination request ID error",
    12027: "egress destination response ID error",
    12030: "egress control parity error",
    12031: "egress credit parity error",
    12032: "egress flit type mismatch",
    14017: "TS ATO timeout",
    15001: "route buffer over- or underflow",
    15006: "route transdone over- or underflow",
    15009: "route GLT double-bit error",
    15010: "route parity error",
    15012: "route incoming double-bit error",
    15013: "route credit parity error",
    19047: "NCISOC header double-bit error",
    19048: "NCISOC data double-bit error",
    19054: "header RAM double-bit error",
    19056: "data 0 RAM double-bit error",
    19058: "data 1 RAM double-bit error",
    19060: "CREQ RAM header double-bit error",
    19061: "CREQ RAM data double-bit error",
    19063: "response RAM header double-bit error",
    19064: "response RAM data double-bit error",
    19066: "COM RAM header double-bit error",
    19067: "COM RAM data double-bit error",
    19069: "RSP1 RAM header double-bit error",
    19070: "RSP1 RAM data double-bit error",
    20034: "LTSSM fault up (a link went down)",
    22012: "Minion link NA interrupt",
    24004: "sourcetrack TCEN0 crumbstore double-bit error",
    24005: "sourcetrack TCEN0 TD crumbstore double-bit error",
    24006: "sourcetrack TCEN1 crumbstore double-bit error",
    24007: "sourcetrack timeout",
}
_SXIDS_ALWAYS_FATAL = {
    10003: "host unhandled interrupt",
    12020: "egress sequence ID error",
    22003: "Minion halt",
    22011: "Minion external error",
    23001: "ingress SRC-VC buffer overflow",
    23002: "ingress SRC-VC buffer underflow",
    23003: "egress DST-VC credit overflow",
    23004: "egress DST-VC credit underflow",
    23005: "ingress packet burst error",
    23006: "ingress packet sticky error",
    23007: "possible bubbles at ingress",
    23008: "ingress packet invalid destination",
    23009: "ingress packet parity error",
    23010: "ingress SRC-VC buffer overflow",
    23011: "ingress SRC-VC buffer underflow",
    23012: "egress DST-VC credit overflow",
    23013: "egress DST-VC credit underflow",
    23014: "ingress packet burst error",
    23015: "ingress packet sticky error",
    23016: "possible bubbles at ingress",
    23017: "ingress credit parity error",
}
_SXIDS_NOTABLE = {
    10001: ("host PRIV error", IGNORE, "Look for a fatal SXid after it."),
    10002: ("host PRIV timeout", IGNORE, "Look for a fatal SXid after it."),
    10004: (
        "host thermal event started",
        SUPPORT,
        "The NVSwitch is too hot: check fans, airflow and the inlet temperature.",
    ),
    10005: (
        "host thermal event ended",
        SUPPORT,
        "The NVSwitch was too hot: check fans, airflow and the inlet temperature.",
    ),
}
_RESET_ALL = "Drain the machine, then reset all its GPUs and NVSwitches at once (nvidia-smi --gpu-reset)."


def _sxids() -> dict[int, Meaning]:
    found = {}
    for code, (name, action, advice) in {**_SXIDS_NON_FATAL, **_SXIDS_NOTABLE}.items():
        severity = WARNING if action == CABLING else _SEVERITIES.get(action, CRITICAL)
        found[code] = Meaning(name, f"NVSwitch: {name}; not fatal.", action, severity, advice)
    for code, name in _SXIDS_FATAL.items():
        found[code] = Meaning(name, f"NVSwitch: {name}; fatal to the link.", RESET, CRITICAL, _RESET_ALL)
    for code, name in _SXIDS_ALWAYS_FATAL.items():
        found[code] = Meaning(name, f"NVSwitch: {name}; fatal to the whole fabric.", REBOOT, CRITICAL)
    return found


SXIDS = _sxids()


def of_sxid(code: int, fatal: bool | None) -> Meaning:
    """Return what an SXid means. fatal: what the line says, None where it doesn't; it outranks the catalogue."""
    known = SXIDS.get(code)
    if known is None:
        action = {None: SUPPORT, True: RESET, False: IGNORE}[fatal]
        meaning = (
            f"NVIDIA's guide has no SXid {code}"
            + {None: ".", True: "; the driver calls it fatal.", False: "; the driver calls it not fatal."}[fatal]
        )
        return Meaning(UNKNOWN, meaning, action, CRITICAL if fatal else WARNING, _RESET_ALL if fatal else None)
    if fatal and ACTIONS.index(known.action) < ACTIONS.index(RESET):
        return Meaning(known.name, f"NVSwitch: {known.name}; fatal this time.", RESET, CRITICAL, _RESET_ALL)
    return known


# The fabric manager's own words: a part of the message, what it means, severity, action, advice.
_FABRIC_MANAGER = (
    (
        r"interface version \S+ (?:don't|doesn't|does not) match",
        "FABRIC_MANAGER_VERSION_MISMATCH",
        "The fabric manager is of another version than the driver and doesn't start, so that no program finds a GPU.",
        CRITICAL,
        UPDATE,
        "Install the fabric manager of the driver's version.",
    ),
    (
        r"failed to find the GPU handle \d+ in the multicast team",
        "GPU_NOT_IN_FABRIC",
        "A GPU that a program wants in its multicast team isn't in the NVLink fabric.",
        CRITICAL,
        RESET,
        _RESET_ALL,
    ),
    (
        r"NV_WARN_NOTHING_TO_DO",
        "NO_NVSWITCH",
        "The driver shows no NVSwitch, so that the fabric manager has nothing to do.",
        WARNING,
        SUPPORT,
        "Stop the service on a machine without NVSwitches; on one that has them, see whether lspci lists them, and "
        "from Blackwell on whether the NVLink subnet manager (nvlsm) is installed.",
    ),
    (
        r"(?:access|trunk) (?:nv)?link (?:connection )?(?:failure|failed)|nvlink (?:failure|training|init)",
        "NVLINK_FAILURE",
        "NVLinks between GPUs and NVSwitches failed to come up.",
        CRITICAL,
        CABLING,
        "Reset all GPUs and NVSwitches at once; if the same links fail again, check the boards' seat.",
    ),
)
_FABRIC_MANAGER_PATTERNS = tuple((re.compile(entry[0], re.IGNORECASE), *entry[1:]) for entry in _FABRIC_MANAGER)


def of_fabric_manager(code: int | None, fatal: bool | None, text: str) -> Meaning:
    """Return what an error of the fabric manager means. code, fatal: of the NVSwitch error that it reports, if any."""
    if code is not None:
        return of_sxid(code, fatal)
    for pattern, name, meaning, severity, action, advice in _FABRIC_MANAGER_PATTERNS:
        if pattern.search(text):
            return Meaning(name, meaning, action, severity, advice)
    return Meaning(UNKNOWN, "The fabric manager reports an error.", SUPPORT, WARNING, "Read the fabric manager's log.")


def most_severe(actions: list[str]) -> str:
    """Return the most severe of these actions; "ignore" where there is none."""
    return max(actions, key=ACTIONS.index, default=IGNORE)
