"""The NVML functions that the catalogue's `Call` bindings name: how to call each and what it returns.

One device call may serve several rows (both utilizations, all parts of the memory); it is made once.
Scale factors to base units are given here for calls, as in the binding for fields.

Some return a code or a mask rather than a number. A one-hot row has a series for each name, 1 for the current one. A
code that this version does not know is not a value: it becomes a gap, and is never mapped to a known name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.backends.nvml.arrays import SENTINELS, U32_ONES, Slot, SlotError, slot_error
from agent.backends.nvml.driver import DriverError, GpuHandle, escalate
from agent.catalogue import nvml_constants as nvml
from agent.catalogue.gpu import EVENT_REASONS, MEGA, MILLI, PERCENT, RECOVERY_ACTIONS
from agent.model import Entity, Instant, Metric, Reading, Reason, Series

_DOMAINS: Mapping[str, object] = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}  # nvmlClockType_t
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU


@dataclass(frozen=True, slots=True)
class CallSpec:
    """One function. `older` is its name in older drivers; `domains` maps a binding's label to an argument.

    `constant`: the answer stays the same until the driver is opened again, so that it is called once.
    """

    scale: float = 1.0
    older: str | None = None
    args: tuple[object, ...] = ()
    domains: Mapping[str, object] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    sentinels: frozenset[int] = SENTINELS
    constant: bool = False


SPECS: Mapping[str, CallSpec] = {
    "nvmlDeviceGetUtilizationRates": CallSpec(PERCENT, parts=("gpu", "memory")),
    "nvmlDeviceGetEncoderUtilization": CallSpec(PERCENT),
    "nvmlDeviceGetDecoderUtilization": CallSpec(PERCENT),
    "nvmlDeviceGetMemoryInfo_v2": CallSpec(
        older="nvmlDeviceGetMemoryInfo", parts=("total", "reserved", "free", "used")
    ),
    # TemperatureV gives a signed number, so a sensor without a value shows as -1: no core is that cold.
    "nvmlDeviceGetTemperatureV": CallSpec(
        older="nvmlDeviceGetTemperature", args=(_GPU_SENSOR,), sentinels=SENTINELS | {-1}
    ),
    "nvmlDeviceGetMarginTemperature": CallSpec(),  # signed, and -1 is a margin
    "nvmlDeviceGetPowerUsage": CallSpec(MILLI),
    "nvmlDeviceGetPowerManagementLimit": CallSpec(MILLI),
    "nvmlDeviceGetEnforcedPowerLimit": CallSpec(MILLI),
    "nvmlDeviceGetPowerManagementDefaultLimit": CallSpec(MILLI),
    "nvmlDeviceGetClockInfo": CallSpec(MEGA, domains=_DOMAINS),
    "nvmlDeviceGetMaxClockInfo": CallSpec(MEGA, domains=_DOMAINS, constant=True),
    "nvmlDeviceGetCurrentClocksEventReasons": CallSpec(older="nvmlDeviceGetCurrentClocksThrottleReasons"),
    "nvmlDeviceGetCurrPcieLinkGeneration": CallSpec(),
    "nvmlDeviceGetMaxPcieLinkGeneration": CallSpec(constant=True),
    "nvmlDeviceGetCurrPcieLinkWidth": CallSpec(),
    "nvmlDeviceGetMaxPcieLinkWidth": CallSpec(constant=True),
    "nvmlDeviceGetEccMode": CallSpec(constant=True),
    "nvmlDeviceGetPersistenceMode": CallSpec(),
}


def arguments(name: str, labels: tuple[str, ...]) -> tuple[object, ...]:
    """Return the arguments after the device with which a binding with these labels calls the function."""
    spec = SPECS[name]
    return (spec.domains[labels[0]],) if spec.domains else spec.args


class DeviceCall:
    """One device call: its answer, or each requested part of it, is a slot."""

    def __init__(self, key: str, name: str, args: tuple[object, ...]) -> None:
        """`key` names the spec; `name` is the function that this driver has."""
        self._spec = SPECS[key]
        self.name = name
        self._args = args
        self._parts: list[str] = []
        self._constant: Sequence[Slot] | None = None
        """The answer of a constant function, once it has answered."""

    def place(self, part: str) -> int:
        """Return the place of the slot of a part; "" for an answer that is one number."""
        if part not in self._parts:
            self._parts.append(part)
        return self._parts.index(part)

    def fetch(self, device: GpuHandle, _: Instant) -> Sequence[Slot]:
        if self._constant is not None:
            return self._constant
        try:
            answer = device.call(self.name, *self._args)
        except DriverError as error:
            escalate(error)
            return [slot_error(error.code)] * len(self._parts)
        slots: list[Slot] = [answer[part] for part in self._parts] if isinstance(answer, dict) else [answer]
        if not self._spec.sentinels.isdisjoint(slots):
            return [_sentinel(raw) if raw in self._spec.sentinels else raw for raw in slots]
        if self._spec.constant:
            self._constant = slots
        return slots


def _sentinel(raw: Any) -> SlotError:
    return SlotError(Reason.IMPLAUSIBLE, f"{raw & U32_ONES if raw < 0 else raw:#x} means no value")


LINK_UP = {0: 0.0, 1: 1.0, 2: 0.0, 3: 0.0}
"""NVML_NVLINK_STATE_*: inactive, active, sleep, active with traffic disabled (nvidia-ml-py).

A link is up when it may carry data. State 3 is trained but closed to traffic, so it is not.
"""

CodeTable = Mapping[int, tuple[Reading, ...]]


def one_hot(metric: Metric, entity: Entity, names: tuple[str, ...]) -> CodeTable:
    """Return for each code every name's reading; the readings are made once and reused."""
    label = metric.labels[0]
    series = [Series(metric, entity, ((label, name),)) for name in names]
    return {
        code: tuple(Reading(s, 1.0 if i == code else 0.0) for i, s in enumerate(series)) for code in range(len(names))
    }


def field_codes(field: int, metric: Metric, entity: Entity) -> CodeTable | None:
    """Return the code table of a field that gives a code; None for one that gives a number."""
    if field == nvml.FI_DEV_GET_GPU_RECOVERY_ACTION:
        return one_hot(metric, entity, RECOVERY_ACTIONS)
    if field == nvml.FI_DEV_NVLINK_GET_STATE:
        series = Series(metric, entity)
        return {code: (Reading(series, value),) for code, value in LINK_UP.items()}
    return None


def clock_event_reasons(metric: Metric, entity: Entity, bit: int | None) -> Callable[[int], list[Reading]]:
    """Return what splits `nvmlDeviceGetCurrentClocksEventReasons`: a reading for each named bit, or for one bit."""
    if bit is not None:
        bit_series = [(bit, Series(metric, entity))]
    else:
        label = metric.labels[0]
        bit_series = [(bit, Series(metric, entity, ((label, name),))) for bit, name in EVENT_REASONS]
    bits = [(bit, Reading(series, 1.0), Reading(series, 0.0)) for bit, series in bit_series]
    return lambda mask: [on if mask & bit else off for bit, on, off in bits]
