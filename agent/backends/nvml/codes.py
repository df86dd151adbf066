"""Answers that are a code or a mask rather than a number: which readings each one represents.

A one-hot row has a series for each name, 1 for the current one. A code that this version does not
know is not a value: it becomes a gap, and is never mapped to a known name.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.catalogue import nvml_constants as nvml
from agent.catalogue.gpu import EVENT_REASONS, RECOVERY_ACTIONS
from agent.catalogue.links import FABRIC_STATES
from agent.model import Entity, Metric, Reading, Series

LINK_UP = {0: 0.0, 1: 1.0, 2: 0.0, 3: 0.0}
"""NVML_NVLINK_STATE_*: inactive, active, sleep, active with traffic disabled (nvidia-ml-py).

A link is up when it may carry data. State 3 is trained but closed to traffic, so it is not.
"""

CodeTable = Mapping[int, tuple[Reading, ...]]


def one_hot(metric: Metric, entity: Entity, names: tuple[str, ...]) -> CodeTable:
    """For each code, every name's reading; the readings are made once and reused."""
    label = metric.labels[0]
    series = [Series(metric, entity, ((label, name),)) for name in names]
    return {
        code: tuple(Reading(each, 1.0 if i == code else 0.0) for i, each in enumerate(series))
        for code in range(len(names))
    }


def field_codes(field: int, metric: Metric, entity: Entity) -> CodeTable | None:
    """The code table of a field that gives a code; None for one that gives a number."""
    if field == nvml.FI_DEV_GET_GPU_RECOVERY_ACTION:
        return one_hot(metric, entity, RECOVERY_ACTIONS)
    if field == nvml.FI_DEV_NVLINK_GET_STATE:
        series = Series(metric, entity)
        return {code: (Reading(series, value),) for code, value in LINK_UP.items()}
    return None


def fabric_codes(metric: Metric, entity: Entity) -> CodeTable:
    """The code table of the fabric state."""
    return one_hot(metric, entity, FABRIC_STATES)


class EventReasons:
    """The bit mask of `nvmlDeviceGetCurrentClocksEventReasons`: a reading for each named bit, or for one bit."""

    def __init__(self, metric: Metric, entity: Entity, bit: int | None = None) -> None:
        if bit is not None:
            shown = [(bit, Series(metric, entity))]
        else:
            label = metric.labels[0]
            shown = [(each, Series(metric, entity, ((label, name),))) for each, name in EVENT_REASONS]
        self._bits = [(each, Reading(series, 1.0), Reading(series, 0.0)) for each, series in shown]

    def readings(self, mask: int) -> list[Reading]:
        return [on if mask & bit else off for bit, on, off in self._bits]
