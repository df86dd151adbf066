"""Makes rows of the catalogue: a function for each kind of metric. The unit is the one in the metric's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.model import Kind, Lane, Metric, Unit

_UNITS = {unit.value: unit for unit in Unit}


def _maker(kind: Kind, **usual: Any) -> Callable[..., Metric]:
    def make(name: str, entity: type, help: str, lane: Lane, *origin: object, **more: Any) -> Metric:
        word = name.removesuffix("_total").removesuffix("_per_second").rpartition("_")[2]
        return Metric(name, kind, _UNITS.get(word, Unit.NONE), entity, help, lane, origin, **{**usual, **more})

    return make


# Each takes name, entity, help and lane, then the bindings of the origin, then further fields of `Metric` by name.
gauge = _maker(Kind.GAUGE)
counter = _maker(Kind.COUNTER)
state = _maker(Kind.STATE, span=(0, 1))
info = _maker(Kind.INFO, span=(1, 1))
