"""Divides the time of each GPU instance (MIG) among states, as the ledger does with the time of whole GPUs.

An instance has no power and no clock of its own, and MIG has no peer-to-peer transfers, neither over NVLink nor PCIe
(NVIDIA's MIG User Guide, "Application Considerations"). So instances are not compared with each other, and there are
four states: those in which an instance could wait for another do not occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.catalogue.gpu import MIG_STATES
from agent.model import EMPTY_FRAME, EMPTY_LAYOUT, Entity, Frame, Layout, Series
from agent.sampler.ledger import KEPT_SECONDS, is_working
from agent.sampler.node_sums import Where, series_of

_SECONDS = BY_NAME["coldplate_gpu_mig_state_seconds_total"]
_HOLDER = BY_NAME["coldplate_gpu_job_info"]
_BUSY = "busy"
_ROWS = {
    BY_NAME[f"coldplate_gpu_mig_{name}_ratio"]: key
    for key, name in ((_BUSY, "utilization"), ("tensor", "tensor_active"), ("sm", "sm_active"), ("dram", "dram_active"))
}

_InstanceKey = tuple[Entity, str]
"""A GPU, and the number of one of its GPU instances."""


class _Instance(NamedTuple):
    """Where the activity of an instance is among the values of a round, whether a job holds it, and its totals."""

    key: _InstanceKey
    places: tuple[tuple[str, Where], ...]
    is_held: bool
    totals: dict[str, float]


class MigLedger:
    """Counts the seconds of each GPU instance by state. For the sampling thread.

    The counters of an instance are absent while its activity is: before Hopper, and while its GPU does not answer.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._layouts: tuple[Layout, ...] = ()
        self._instances: list[_Instance] = []
        self._totals: dict[_InstanceKey, tuple[float, dict[str, float]]] = {}
        """When each instance was last seen, and its seconds by state."""
        self._layout = EMPTY_LAYOUT

    def frame(self, now: float, frames: Sequence[Frame]) -> Frame:
        """Add the time since the tick before, and return all counters. `now` in monotonic seconds."""
        layouts = tuple(map(itemgetter(0), frames))
        if layouts != self._layouts:
            self._layouts = layouts
            self._find(layouts, now)
        elapsed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now
        if not self._instances:
            return EMPTY_FRAME
        values = [frame.values for frame in frames]
        for instance in self._instances:
            _add(instance, values, elapsed)
        return Frame(self._layout, tuple(seconds for each in self._instances for seconds in each.totals.values()))

    def _find(self, layouts: Sequence[Layout], now: float) -> None:
        """Note where the activity of each instance is, and which of them jobs hold."""
        places: dict[tuple[_InstanceKey, str], dict[str, Where]] = {}
        held: set[_InstanceKey] = set()
        for series, at in series_of(layouts):
            if series.metric in _ROWS:
                labels = dict(series.labels)
                name = (series.entity, labels["gpu_instance"]), labels["mig_uuid"]
                places.setdefault(name, {})[_ROWS[series.metric]] = at
            elif series.metric is _HOLDER:
                held.add((series.entity, dict(series.labels)["mig"]))
        self._totals.update({each.key: (now, each.totals) for each in self._instances})
        self._totals = {key: each for key, each in self._totals.items() if now - each[0] <= KEPT_SECONDS}
        self._instances, shown = [], []
        for (key, uuid), found in places.items():
            if _BUSY in found:
                totals = self._totals[key][1] if key in self._totals else dict.fromkeys(MIG_STATES, 0.0)
                self._instances.append(_Instance(key, tuple(found.items()), key in held, totals))
                own = ("mig_uuid", uuid), ("gpu_instance", key[1])
                shown += [Series(_SECONDS, key[0], (*own, ("state", state))) for state in MIG_STATES]
        if tuple(shown) != self._layout.series:
            self._layout = Layout(tuple(shown))


def _add(instance: _Instance, values: Sequence[Sequence[float]], elapsed: float) -> None:
    """Divide the time that passed between what the instance did while it was busy, and while it was idle."""
    read = {key: values[frame][place] for key, (frame, place) in instance.places}
    busy = min(max(read[_BUSY], 0.0), 1.0)
    instance.totals["computing" if is_working(read, None) else "waiting"] += busy * elapsed
    instance.totals["held" if instance.is_held else "free"] += (1.0 - busy) * elapsed
