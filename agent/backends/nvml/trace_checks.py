"""Checks of one line of a trace of driver calls: whatever it says, the answers are what the library could have given.

Nothing behind the driver's interface expects a count that is a text. A call that this version does not make may have
any answer: it is never asked for.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.backends.nvml.arrays import FieldArray
from agent.backends.nvml.calls import SPECS
from agent.backends.nvml.trace import FIELDS, GPM, HANDLES, SAMPLE_CALLS, WAIT, fill_slot
from agent.catalogue import nvml_constants as nvml
from agent.lib.wording import shown

MOST_GPUS, MOST_LINKS, MOST_INSTANCES = 80, 64, 64
MOST_PROCESSES = 4096
"""On one GPU."""
MOST_TEXT = 200
_BUS_ID = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])?")
_CLUSTER = re.compile(r"[0-9A-Fa-f]{0,32}")

AnswerCheck = Callable[[Any], bool]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**64


def _is_count(most: int) -> AnswerCheck:
    return lambda value: isinstance(value, int) and 0 <= value <= most


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= MOST_TEXT


def _is_handle(value: object) -> bool:
    """Return whether it is a name for what is opaque; some drivers' handles are texts themselves."""
    return _is_text(value["is"]) if isinstance(value, dict) and value.keys() == {"is"} else _is_text(value)


def _is_nothing(value: object) -> bool:
    return value is None or _is_whole(value)


def _has(*parts: str) -> AnswerCheck:
    return lambda value: isinstance(value, dict) and all(_is_whole(value.get(part)) for part in parts)


def _is_row(least: int) -> AnswerCheck:
    return lambda value: (
        isinstance(value, list) and len(value) >= least and all(_is_whole(number) and number >= 0 for number in value)
    )


def _is_list(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST_PROCESSES and all(map(_is_row(3), value))


def _is_event(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and _is_handle(value[0]) and _is_row(2)(value[1:])


def _is_fabric(value: Any) -> bool:
    text = value.get("cluster_uuid") if isinstance(value, dict) else None
    has_codes = _has("clique", "state", "status")(value) and _is_whole(value.get("health", 0))
    return has_codes and isinstance(text, str) and bool(_CLUSTER.fullmatch(text))


ANSWERS: Mapping[str, AnswerCheck] = {
    **dict.fromkeys(SPECS, _is_whole),
    **dict.fromkeys((spec.older for spec in SPECS.values() if spec.older), _is_whole),
    **dict.fromkeys(HANDLES, _is_handle),
    **dict.fromkeys(("nvmlEventSetCreate", "nvmlGpmSampleAlloc"), _is_handle),
    **dict.fromkeys(
        ("nvmlInit", "nvmlShutdown", "nvmlEventSetFree", "nvmlDeviceRegisterEvents", "nvmlGpmSampleFree",
         *SAMPLE_CALLS),
        _is_nothing,
    ),
    **dict.fromkeys(
        ("nvmlDeviceGetArchitecture", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetGpuInstanceId",
         "nvmlDeviceGetMigMode", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetNumaNodeId",
         "nvmlDeviceGetSupportedEventTypes", "nvmlGpmQueryDeviceSupport"),
        _is_whole,
    ),
    **dict.fromkeys(
        ("nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetName", "nvmlDeviceGetSerial", "nvmlDeviceGetUUID",
         "nvmlDeviceGetVbiosVersion", "nvmlSystemGetDriverVersion"),
        _is_text,
    ),
    "nvmlDeviceGetPciInfo_v3": lambda value: isinstance(value, str) and bool(_BUS_ID.fullmatch(value)),
    "nvmlDeviceGetCount_v2": _is_count(MOST_GPUS),
    "nvmlDeviceGetMaxMigDeviceCount": _is_count(MOST_INSTANCES),
    "nvmlDeviceGetCudaComputeCapability": lambda value: _is_row(2)(value) and len(value) == 2,
    "nvmlDeviceGetUtilizationRates": _has("gpu", "memory"),
    "nvmlDeviceGetMemoryInfo": _has("total", "free", "used"),
    "nvmlDeviceGetMemoryInfo_v2": _has("total", "reserved", "free", "used"),
    "nvmlDeviceGetGpuFabricInfoV": _is_fabric,
    "nvmlDeviceGetComputeRunningProcesses_v3": _is_list,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": _is_list,
    "nvmlDeviceGetProcessUtilization": lambda value: _is_list(value) and all(len(row) == 3 for row in value),
    WAIT: _is_event,
}  # fmt: skip
"""What each call that this version makes may answer, but for those that fill an array."""


def check_call(line: Mapping[str, Any]) -> int:
    """Return the number of answers in the line. Raises ValueError."""
    name, args = line.get("call"), line.get("args")
    if not _is_text(name):
        raise ValueError("is neither a call nor the end of the trace")
    assert isinstance(name, str)
    if not isinstance(args, list) or not all(_is_whole(arg) or _is_handle(arg) for arg in args):
        raise ValueError(f"{name}: args: is not a list of numbers, texts and handles")
    if name in (FIELDS, WAIT, *SAMPLE_CALLS) and not (args and _is_handle(args[0])):
        raise ValueError(f"{name}: args: does not begin with a handle")
    if "code" in line and not _is_count(2**31)(line["code"]):
        raise ValueError(f"{name}: code: {shown(line['code'])} is not a return code")
    if name == FIELDS:
        return _check_fields(line)
    if name == GPM:
        return _check_gpm(line)
    if "code" in line:
        return 1
    if "value" not in line:
        raise ValueError(f"{name}: has neither value nor code")
    if not ANSWERS.get(name, lambda _: True)(line["value"]):
        raise ValueError(f"{name}: value: {shown(line['value'])} is not what this call answers")
    return 1


def _check_fields(line: Mapping[str, Any]) -> int:
    pairs = line.get("fields")
    is_pair = _is_row(2)
    if not isinstance(pairs, list) or not all(is_pair(pair) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"{FIELDS}: fields: is not a list of pairs of numbers")
    if "code" in line:
        return len(pairs)
    for pair, slot in zip(pairs, _as_many(line, "slots", pairs), strict=True):
        if not _is_slot(slot, is_count=pair[0] == nvml.FI_DEV_NVLINK_LINK_COUNT):
            raise ValueError(f"{FIELDS}: slots: {shown(slot)} is not what field {pair[0]} answers")
    return len(pairs)


def _is_slot(slot: Any, *, is_count: bool) -> bool:
    if isinstance(slot, list) and is_count and not (len(slot) == 2 and _is_count(MOST_LINKS)(slot[1])):
        return False
    try:
        fill_slot(FieldArray([(0, 0)]), 0, slot)
    except (ArithmeticError, ValueError, TypeError, LookupError, struct.error):
        return False
    return True


def _check_gpm(line: Mapping[str, Any]) -> int:
    metrics = line.get("metrics")
    if not _is_row(0)(metrics) or not _is_text(line.get("device")):
        raise ValueError(f"{GPM}: has no list of metrics, or no device")
    assert isinstance(metrics, list)
    for result in () if "code" in line else _as_many(line, "results", metrics):
        if not (isinstance(result, list) and len(result) == 2 and _is_count(2**31)(result[0]) and _is_real(result[1])):
            raise ValueError(f"{GPM}: results: {shown(result)} is not a code and a value")
    return len(metrics)


def _is_real(value: object) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _as_many(line: Mapping[str, Any], key: str, requested: Sequence[Any]) -> list[Any]:
    answers = line.get(key)
    if not isinstance(answers, list) or len(answers) != len(requested):
        raise ValueError(f"{key}: is not a list of {len(requested)}")
    return answers
