"""What is expected of a scenario, and the racks that scenarios are played in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.backends.synthetic.scenario import ScenarioFault
from agent.rack.breakers import CLASSES, Breaker

QUIET = 3600
"""Seconds for which a scenario in which nothing is wrong is played. Its noise repeats: more of it would show little."""


@dataclass(frozen=True, slots=True)
class PlayedRack:
    """A rack as it is configured on each of its nodes; watts."""

    name: str
    power_budget: float | None = None
    nodes_expected: int | None = None
    feeds: tuple[tuple[str, float], ...] = ()
    breakers: tuple[Breaker, ...] = ()
    nameplate: float | None = None


RACK = PlayedRack("r12", 40_800.0, 4)
"""Four nodes of this kind on 40.8 kW, as the scenarios about power assume. Healthy ones stay below 80% of it."""


FED = PlayedRack("r12", 40_800.0, 4, (("A", 30_000.0), ("B", 30_000.0), ("C", 17_000.0)))
"""The same with three feeds: an even share of what trips the rack is too much for the smallest of them."""


TRAYS = PlayedRack("r14", 144_000.0, 18)
"""An NVL72 of eighteen trays, below 80% of its power when it is well."""


UNBUDGETED = PlayedRack("r14", None, 18)


OVERSUBSCRIBED = PlayedRack("r12", 20_000.0, 5, nameplate=10_200.0)
"""Five nodes on less than they can draw: one idle rack in which two agents are silent may be above its budget."""


BREAKER = PlayedRack("r12", 60_000.0, 4, breakers=(Breaker("A", CLASSES["ul489"], 34_000.0),))
"""Four nodes on a breaker that carries what they draw for as long as it is no more than usual."""


@dataclass(frozen=True, slots=True)
class Expected:
    """An alert, explained by the fault with this number, or by the first job's start where it is None.

    `of`: what it is told of, `gpu`, `port` and `detector` once for each of the fault's, `job` for the first job, or
    `node`. `labels` are further ones that it must have. `occurrence` is that of a fault which repeats. `within` is a
    limit in seconds, where there is one.
    """

    alert: str
    fault: int | None = 0
    of: str = "gpu"
    labels: Mapping[str, str] = field(default_factory=dict)
    occurrence: int = 1
    within: float | None = None


@dataclass(frozen=True, slots=True)
class Companion:
    """An alert that may fire as well, and why that is right."""

    alert: str
    why: str
    fault: int | None = 0
    of: str = "gpu"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One scenario. `seconds` is how long it is played, counted from where its faults are as shipped.

    `is_quiet`: nothing is wrong in it. `base` is the scenario that it is a variation of, if it is one: with other
    parameters of some faults, by their numbers, and with `surroundings`, faults beside the devices, which have the
    numbers after those of the scenario.
    """

    seconds: int
    must: tuple[Expected, ...] = ()
    may: tuple[Companion, ...] = ()
    rack: PlayedRack | None = None
    is_quiet: bool = False
    base: str = ""
    changes: Mapping[int, Mapping[str, float | str]] = field(default_factory=dict)
    surroundings: tuple[ScenarioFault, ...] = ()

    @property
    def named(self) -> set[str]:
        return {each.alert for each in self.must} | {each.alert for each in self.may}
