"""The trace of a driver: the answers of one machine, call by call, in lines of JSON, without what identifies it.

The first line is the provenance. Then one line for each call, in order:

    {"at": 0.1534, "us": 12, "call": "nvmlDeviceGetClockInfo", "args": [{"is": "gpu0"}, 1], "value": 1980}

`at` is seconds since the recording started, `us` the duration of the call in microseconds; `code` replaces
`value` if it failed. Handles and other opaque things are `{"is": NAME}`. A batch of fields has
`fields`, the (field, scope) pairs, and `slots`: [type, value] each, or the field's own error code; GPM has `metrics`
and `results`, [code, value] each. The last line lists the metrics that the recorded run showed.
"""

from collections.abc import Sequence
from typing import Any

from agent.backends.nvml.arrays import FieldArray

FORMAT = 1

Slot = list[int | float] | int
"""A field's type and value, or its error code."""


def fill_slot(array: FieldArray, index: int, slot: Slot) -> None:
    if isinstance(slot, int):
        array.store(index, slot, 3, 0)
    else:
        kind, value = int(slot[0]), slot[1]
        array.store(index, 0, kind, value)


HANDLES = frozenset(
    {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMigDeviceHandleByIndex"}
)
"""Calls that answer with a device's handle."""

FIELDS, GPM = "nvmlDeviceGetFieldValues", "nvmlGpmMetricsGet"
"""Calls that fill an array."""
WAIT = "nvmlEventSetWait_v2"
SAMPLE_CALLS = ("nvmlGpmSampleGet", "nvmlGpmMigSampleGet")
"""Calls that take a sample, which is their last argument: of a GPU, and of a GPU instance."""


def sampled_part(device: object, args: Sequence[Any]) -> str:
    """Return what a sample is of: the device, or its GPU instance, which is the argument between device and sample."""
    return "/".join(map(str, (device, *args[1:-1])))
