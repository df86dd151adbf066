"""What is expected of a scenario, and the racks that scenarios are played in."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.backends.synthetic.scenario import ScenarioFault, Window
from agent.catalogue import BY_NAME
from agent.model import Backend, Entity, Frame, Framer, Kind, Layout, Node, Rack, Reading, Series, Snapshot
from agent.rack.breakers import CLASSES, Breaker
from agent.rack.rack_options import RackOptions

QUIET = 3600
"""Seconds for which a scenario in which nothing is wrong is played. Its noise repeats: more of it would show little."""


RACK = RackOptions("r12", 4, budget=40_800.0)
"""Four nodes of this kind on 40.8 kW, as the scenarios about power assume. Healthy ones stay below 80% of it."""

FED = RackOptions("r12", 4, budget=40_800.0, feeds=(("A", 30_000.0), ("B", 30_000.0), ("C", 17_000.0)))
"""The same with three feeds: an even share of what trips the rack is too much for the smallest of them."""

TRAYS = RackOptions("r14", 18, budget=144_000.0)
"""An NVL72 of eighteen trays, below 80% of its power when it is well."""

UNBUDGETED = RackOptions("r14", 18)
OVERSUBSCRIBED = RackOptions("r12", 5, nameplate=10_200.0, budget=20_000.0)
"""Five nodes on less than they can draw: one idle rack in which two agents are silent may be above its budget."""

BREAKER = RackOptions("r12", 4, budget=60_000.0, breakers=(Breaker("A", CLASSES["ul489"], 34_000.0),))
"""Four nodes on a breaker that carries what they draw for as long as it is no more than usual."""


@dataclass(frozen=True, slots=True)
class Expected:
    """An alert, explained by the fault with this number, or by the first job's start where it is None.

    `of`: what it is told of, `gpu`, `port` and `detector` once for each of the fault's, `job` for the first job, or
    `node`. `labels` are further ones that it must have. `occurrence` is that of a fault which repeats. `within` is a
    limit in seconds, where there is one. `why` says of one that may fire as well why that is right.
    """

    alert: str
    fault: int | None = 0
    of: str = "gpu"
    labels: Mapping[str, str] = field(default_factory=dict)
    occurrence: int = 1
    within: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One scenario. `seconds` is how long it is played, counted from where its faults are as shipped.

    `is_quiet`: nothing is wrong in it. `base` is the scenario that it is a variation of, if it is one: with other
    parameters of some faults, by their numbers, and with `surroundings`, faults beside the devices, which have the
    numbers after those of the scenario.
    """

    seconds: int
    must: tuple[Expected, ...] = ()
    may: tuple[Expected, ...] = ()
    rack: RackOptions | None = None
    is_quiet: bool = False
    base: str = ""
    changes: Mapping[int, Mapping[str, float | str]] = field(default_factory=dict)
    surroundings: tuple[ScenarioFault, ...] = ()

    @property
    def named(self) -> set[str]:
        return {each.alert for each in self.must} | {each.alert for each in self.may}


# What goes wrong beside the devices of a synthetic node: on its host, in the agent itself, and in its rack.


WALL = 1_700_000_000.0
"""Wall seconds at which every play begins."""
FIGURE, SILENT = "figure", "peers-silent"
_SERIES = re.compile(r"(\w+)(?:\{(.*)\})?")
_LABEL = re.compile(r'(\w+)="([^"]*)",?')


def figure(
    series: str, at: float, value: float = 0.0, *, healthy: float | None = None, rate: float = 0.0,
    duration: float | None = None, repeat: float | None = None,
) -> ScenarioFault:  # fmt: skip
    """Return a series, written as on a page, that reads `value` while the fault lasts.

    Otherwise it reads `healthy`; None leaves what the node shows, if it shows anything. A counter grows from `healthy`
    by `value` at each onset, and by `rate` a second.
    """
    match = _SERIES.fullmatch(series)
    assert match is not None, series
    parameters = {"value": value, "rate": rate} | ({} if healthy is None else {"healthy": healthy})
    options = {"metric": match[1], **dict(_LABEL.findall(match[2] or ""))}
    return ScenarioFault(FIGURE, Window(at, duration, repeat), parameters=parameters, options=options)


def silent_peers(nodes: int, at: float, duration: float | None = None) -> ScenarioFault:
    """Return that the agents of so many other nodes of the rack do not answer."""
    return ScenarioFault(SILENT, Window(at, duration), parameters={"nodes": float(nodes)})


def silent_at(faults: Sequence[ScenarioFault], t: float) -> int:
    """Return how many nodes of the rack do not answer at `t`."""
    return sum(int(each.parameters["nodes"]) for each in faults if each.kind == SILENT and each.window.holds(t))


class Surroundings:
    def __init__(self, faults: Sequence[ScenarioFault]) -> None:
        self._figures = [(_series(fault), fault) for fault in faults if fault.kind == FIGURE]
        self._framer = Framer()
        self._places: dict[Layout, tuple[tuple[int, Series], ...]] = {}

    def around(self, snapshot: Snapshot, t: float) -> Snapshot:
        """Return the snapshot with the figures of second `t`, in place of what it has of the same series."""
        if not self._figures:
            return snapshot
        values = dict(self._values(t))
        frames = tuple(self._set(frame, values) for frame in snapshot.frames)
        added = self._framer.frame(Reading(series, value) for series, value in values.items())
        return Snapshot(snapshot.sequence, snapshot.at, (*frames, added), snapshot.reports)

    def _values(self, t: float) -> Iterator[tuple[Series, float]]:
        for series, fault in self._figures:
            value = _value(fault, t, is_counter=series.metric.kind is Kind.COUNTER)
            if value is not None:
                yield series, value

    def _set(self, frame: Frame, values: dict[Series, float]) -> Frame:
        """Return the frame with the values of its own series, which are taken out of `values`."""
        places = self._places.get(frame.layout)
        if places is None:
            wanted = {series for series, _ in self._figures}
            found = enumerate(frame.layout.series)
            places = self._places[frame.layout] = tuple((place, each) for place, each in found if each in wanted)
        if not places:
            return frame
        changed = list(frame.values)
        for place, series in places:
            changed[place] = values.pop(series, changed[place])
        return Frame(frame.layout, tuple(changed))


def _series(fault: ScenarioFault) -> Series:
    labels = dict(fault.options)
    metric = BY_NAME[labels.pop("metric")]
    entity: Entity = Node()
    if metric.entity is Backend:
        entity = Backend(labels.pop("backend"))
    elif metric.entity is Rack:
        entity = Rack(labels.pop("rack"))
    return Series(metric, entity, tuple((name, labels.pop(name)) for name in metric.labels if name in labels))


def _value(fault: ScenarioFault, t: float, *, is_counter: bool) -> float | None:
    healthy = fault.parameters.get("healthy")
    value, window = fault.parameters["value"], fault.window
    if is_counter:
        return (healthy or 0.0) + window.started(t) * value + window.elapsed(t) * fault.parameters["rate"] // 1.0
    return value if window.holds(t) else healthy
