"""What each XID asks for: one table, from which the rules, the runbooks and all texts about a code come.

The facts are those of NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as it was
when its last code was 172): its immediate action for each code, in `bucket`. Where it names none, the class is our
judgement of its description, and `bucket` is empty.

How bad an NVLink 5 error is (XID 144 to 150), the driver's log line says, not the code (sheet "XID 144-150 Decode"):
149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x025525c6 0x00000000 ...)
It has the unit, a word, and registers: the first describes the interrupt, the second is the unit's error status.
"""

import re
from collections.abc import Iterable
from enum import Enum

from msgspec import Struct


class Grade(Enum):
    """What the line says."""

    FATAL = "fatal"
    NONFATAL = "nonfatal"


_PREFIXES = {144: "SAW", 145: "RLW", 146: "TLW", 147: "TREX", 148: "NVLPW", 149: "NETIR", 150: "MSE"}
"""How the names of a code's units begin."""

_LINE = re.compile(
    r"\b([A-Z][A-Z0-9_/]{2,40}) {1,8}(Fatal|Nonfatal)\b(?: {1,8}XC[0-9]{1,4} (i1)\b)?"
    r"(?:[^()]{0,60}\((0x[0-9a-fA-F]{1,8}) (0x[0-9a-fA-F]{1,8}))?"
)

_RESET_BITS = {
    "SAW_MVB": 0x12,
    "RLW_REMAP": 0xC0,
    "RLW_RSPCOL": 0x2,
    "RLW_SRC_TRACK": 0x31,
    "RLW_TAGSTATE": 0x12_0002,
    "TLW_CTRL": 0x4,
    "TLW_RX": 0x4,
    "TLW_TX": 0x4,
}
"""Bits of the error status after which the catalog asks for a reset, by the unit's name without its pipe."""

_LINK_EVENTS = ("NETIR_LINK_EVT", "NETIR_LINK_DOWN")
"""A link went down; the name before driver R575, and since."""
_HARMLESS_DOWNS = frozenset({0x26, 0x28})
"""Reasons of a link that is down for which the catalog asks for no reset: software or a user on the peer, and the host.
The reason is in bits 20 to 25 of the first register."""


def grade_of(code: int, text: str) -> Grade | None:
    """Return what a log line says of an error; None if it is no line of such a code, or cannot be read."""
    prefix = _PREFIXES.get(code)
    if prefix is None:
        return None
    # The name of a process stands before the unit, and may be anything: the last match is the driver's.
    matches = [match for match in _LINE.finditer(text) if match[1].startswith(prefix)]
    if not matches:
        return None
    unit, word, injected, interrupt, status = matches[-1].groups()
    if injected:  # "i1": a tool made the error, to try what follows it
        return Grade.NONFATAL
    if interrupt is None:
        return Grade.FATAL if word == "Fatal" else Grade.NONFATAL
    is_fatal = _is_fatal(unit, word == "Fatal", int(interrupt, 16), int(status, 16))
    return Grade.FATAL if is_fatal else Grade.NONFATAL


def _is_fatal(unit: str, is_called_fatal: bool, interrupt: int, status: int) -> bool:
    """Return True if the driver or the catalog's line for the error status calls the error fatal."""
    if unit.startswith(_LINK_EVENTS):
        return is_called_fatal and (interrupt >> 20) & 0x3F not in _HARMLESS_DOWNS
    if unit == "RLW_RXPIPE" and status & 0x7:
        return is_called_fatal or _is_promoted(interrupt)
    return is_called_fatal or bool(status & _RESET_BITS.get(unit.split("_PIPE")[0], 0))


def _is_promoted(interrupt: int) -> bool:
    """Return whether an error of RLW_RXPIPE was made fatal: the bit after the unit's number, which R575 moved."""
    if interrupt & 0x3FF == 0x0C2:
        return bool(interrupt & 0x400)
    return interrupt & 0x7F == 0x06 and bool(interrupt & 0x80)


class XidClass(Enum):
    """What a code asks for, in order of severity."""

    NOTE = "note"
    APPLICATION = "application"
    CLEANUP = "cleanup"
    WORDS = "words"
    LOOK = "look"
    POWER = "power"
    RESET = "reset"
    NODE = "node"


ACTIONS: dict[XidClass, str] = {
    XidClass.NOTE: "nothing to be done on the node",
    XidClass.APPLICATION: "restart the application; the GPU is fine",
    XidClass.CLEANUP: "follow the XID before it; alone, the process was terminated",
    XidClass.WORDS: "its log line decides: fatal is reset, anything else is the application's",
    XidClass.LOOK: "read the log line and the catalog",
    XidClass.POWER: "check the power connector",
    XidClass.RESET: "reset the GPU",
    XidClass.NODE: "restart the node",
}
"""What to do for a class, unless a code has an action of its own."""


class TriagedXid(Struct, frozen=True):
    """One code. `bucket` is the catalog's immediate action; without one the class is judged from the description."""

    code: int
    name: str
    triage: XidClass
    bucket: str
    own_action: str = ""

    @property
    def action(self) -> str:
        """What to do: a text that fits after a colon."""
        return self.own_action or ACTIONS[self.triage]


def _unclassified(code: int, name: str, triage: XidClass, action: str = "") -> TriagedXid:
    return TriagedXid(code, name, triage, "", action)


def _note(code: int, name: str, action: str = "") -> TriagedXid:
    return TriagedXid(code, name, XidClass.NOTE, "IGNORE", action)


def _application(code: int, name: str) -> TriagedXid:
    return TriagedXid(code, name, XidClass.APPLICATION, "RESTART_APP")


def _engines(name: str, codes: Iterable[int], first: int = 0) -> Iterable[TriagedXid]:
    """Yield engines of one kind, numbered from `first`."""
    return (_application(code, f"{name} {number} error") for number, code in enumerate(codes, first))


def _words(code: int, unit: str) -> TriagedXid:
    return TriagedXid(code, f"NVLink 5 error, unit {unit}", XidClass.WORDS, "WORKFLOW_NVLINK5_ERR")


def _reset(code: int, name: str, action: str = "", bucket: str = "RESET_GPU") -> TriagedXid:
    return TriagedXid(code, name, XidClass.RESET, bucket, action)


_ROWS = (
    _application(8, "GPU stopped processing"),
    _application(11, "invalid push buffer"),
    _application(13, "graphics engine exception"),
    _note(14, "unused test error"),
    _application(25, "illegal push buffer"),
    _application(31, "memory page fault"),
    _application(32, "corrupted push buffer"),
    _note(37, "driver firmware error"),
    _note(38, "driver firmware watchdog"),
    *_engines("copy engine", range(39, 42)),
    _note(43, "GPU stopped processing", "the program is at fault and was ended; the GPU is fine"),
    _note(44, "fault during a context switch"),
    TriagedXid(45, "preemptive cleanup", XidClass.CLEANUP, "WORKFLOW_XID_45"),
    _reset(46, "GPU stopped processing"),
    _reset(48, "double bit ECC error", bucket="WORKFLOW_XID_48"),
    TriagedXid(54, "auxiliary power is not connected", XidClass.POWER, "CHECK_MECHANICALS"),
    _application(60, "video processor exception"),
    _reset(62, "microcontroller halt"),
    _note(63, "memory row remapped", "the remap takes effect with the next reset"),
    _reset(64, "memory row remap failed", "reset the GPU; replace it if the remap failure stays"),
    _note(66, "illegal access by the driver"),
    _note(67, "illegal access by the driver"),
    _application(68, "video decoder 0 error"),
    _application(69, "graphics engine class error"),
    *_engines("copy engine", (70, 71, 72), 3),
    _reset(74, "NVLink error", bucket="WORKFLOW_NVLINK_ERR"),
    *_engines("copy engine", (75, 76, 77), 6),
    TriagedXid(78, "vGPU start error", XidClass.LOOK, "UPDATE_SWFW", "update driver and vGPU software"),
    TriagedXid(79, "GPU has fallen off the bus", XidClass.NODE, "RESTART_BM", "power-cycle the node"),
    _application(80, "corrupted data sent to the GPU"),
    _application(82, "JPEG engine 0 error"),
    *_engines("video decoder", (83, 84), 1),
    _application(85, "copy engine 9 error"),
    _application(86, "optical flow 0 error"),
    *_engines("video decoder", (88, 89), 3),
    _note(92, "high rate of corrected ECC errors", "watch coldplate_gpu_ecc_errors_total"),
    _note(93, "InfoROM is written too often"),
    _application(94, "contained memory error"),
    _reset(95, "uncontained memory error"),
    *_engines("video decoder", (96, 97, 98), 5),
    *_engines("JPEG engine", range(99, 106), 1),
    _note(106, "test message"),
    _note(107, "silent test message"),
    _note(108, "NVLink remote translation error", "a fault of the peer's"),
    _reset(109, "context switch timeout"),
    _reset(110, "security fault"),
    _reset(119, "GSP RPC timeout"),
    _reset(120, "GSP error"),
    _note(121, "C2C link error", "the link corrects it; look into it if it recurs"),
    *_engines("copy engine", range(126, 136), 10),
    _reset(136, "NVLink training failed"),
    _note(137, "NVLink privilege error", "a fault of the program on a peer"),
    _application(139, "optical flow 1 error"),
    _reset(140, "unrecovered ECC error"),
    _note(141, "CUDA fast path error"),
    TriagedXid(142, "video encoder 3 error", XidClass.LOOK, "CONTACT_SUPPORT"),
    _reset(143, "GPU initialization error"),
    _words(144, "SAW"),
    _words(145, "RLW"),
    _words(146, "TLW"),
    _words(147, "TREX"),
    _words(148, "NVLPW_CTRL"),
    _words(149, "NETIR"),
    _words(150, "MSE"),
    TriagedXid(151, "key rotation error", XidClass.NODE, "RESTART_VM", "restart the virtual machine, or the node"),
    _note(152, "DLA memory error"),
    _note(153, "DLA timeout"),
    TriagedXid(154, "recovery action changed", XidClass.NOTE, "XID_154", "see coldplate_gpu_recovery_action"),
    _reset(155, "NVLink down by software"),
    _reset(156, "memory resource retired"),
    _note(157, "no memory resource left to retire", "the error may come again; the GPU can be used"),
    _reset(158, "GPU fatal timeout"),
    TriagedXid(
        159,
        "CHI error on the C2C link",
        XidClass.LOOK,
        "CHECK_UVM",
        "follows another error; alone, report it to NVIDIA",
    ),
    _note(160, "channel retired"),
    _note(161, "channel could not be retired"),
    _unclassified(162, "power smoothing is on again", XidClass.NOTE),
    _unclassified(163, "power smoothing is off", XidClass.LOOK, "repair the cooling, then reload the driver"),
    _unclassified(164, "power smoothing is nearly worn out", XidClass.LOOK, "plan the GPU's replacement"),
    _unclassified(165, "power smoothing is worn out", XidClass.LOOK, "power will swing: replace the GPU if it matters"),
    _unclassified(166, "unencrypted NVLink traffic", XidClass.LOOK),
    _unclassified(167, "PCIe fatal timeout", XidClass.NODE),
    _unclassified(168, "less memory: errors in a protected region", XidClass.LOOK, "switch ECC on, then restart"),
    _unclassified(169, "SEC2 microcontroller halt", XidClass.LOOK),
    _unclassified(170, "NVLink interrupt in confidential mode", XidClass.LOOK),
    _unclassified(171, "uncorrectable DRAM error", XidClass.NOTE, "a detail of the XID 48 beside it"),
    _unclassified(172, "uncorrectable SRAM error", XidClass.NOTE, "a detail of the XID 48 beside it"),
)

TRIAGE: dict[int, TriagedXid] = {row.code: row for row in _ROWS}
"""Every code that the catalog describes, in order."""
if len(TRIAGE) != len(_ROWS) or list(TRIAGE) != sorted(TRIAGE):
    raise AssertionError("the table of XIDs has a code twice, or out of order")


def codes_of(*classes: XidClass) -> tuple[int, ...]:
    """Return the codes of these classes, in order."""
    return tuple(row.code for row in _ROWS if row.triage in classes)


def class_of(code: int, text: str = "") -> XidClass:
    """Return what an XID asks for, if `text` is the driver's log line: WORDS is decided by it, where it can be read."""
    row = TRIAGE.get(code)
    if row is None:
        return XidClass.LOOK
    grade = grade_of(code, text) if row.triage is XidClass.WORDS else None
    if grade is None:
        return row.triage
    return XidClass.RESET if grade is Grade.FATAL else XidClass.APPLICATION


def called(code: int | str) -> str:
    """Return a code as people read it, `79 (GPU has fallen off the bus)`; an unknown code alone."""
    text = str(code)
    row = TRIAGE.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else None
    return text if row is None else f"{text} ({row.name})"
