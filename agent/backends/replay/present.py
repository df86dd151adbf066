"""Makes frames of the past into frames of the present: times are moved, and counters go on growing in a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from agent.catalogue.agent import FLIGHT, NOTIFICATIONS, RULES, VITALS
from agent.lib.layout_columns import picker
from agent.model import Frame, Kind, Layout, Metric, Series

TIMES = "_timestamp_seconds"
OWN = frozenset(
    {
        *(row.name for row in (*VITALS, *RULES, *NOTIFICATIONS, *FLIGHT)),
        "coldplate_build_info", "coldplate_config_last_reload_successful",
        "coldplate_config_last_reload_success_timestamp_seconds", "coldplate_replay_info",
        "coldplate_web_config_last_reload_successful", "coldplate_web_config_last_reload_success_timestamp_seconds",
        "coldplate_web_certificate_expiry_timestamp_seconds", "coldplate_web_refusals_total",
    }
)  # fmt: skip
"""What the agent that replays tells of itself; what the agent that was recorded told of itself there is left out."""


@dataclass(frozen=True, slots=True)
class _KeptColumns:
    """What is done with the frames of one layout. `places` are those of its values that stay."""

    layout: Layout
    pick: Callable[[Sequence[float]], tuple[float, ...]] | None
    times: tuple[int, ...]
    counters: tuple[int, ...]


class Presenter:
    """Remembers what to do with each layout, and what each frame became while it stays the same."""

    def __init__(self) -> None:
        self.shift = 0.0
        """Seconds by which the recording's wall clock is behind the present."""
        self._told: AbstractSet[Metric] = frozenset()
        self._plans: dict[Layout, _KeptColumns] = {}
        self._made: dict[Layout, tuple[Frame, Frame]] = {}
        self._first: dict[Series, float] = {}
        self._last: dict[Series, float] = {}
        self._gone: dict[Series, float] = {}
        """By how much each counter grew in the passes before."""

    def leave_out(self, told: AbstractSet[Metric]) -> None:
        """These rows are told by the agent that replays."""
        if told != self._told:
            self._told = told
            self._plans.clear()
            self._made.clear()

    def another_pass(self, shift: float) -> None:
        """The recording begins anew, and is moved by so many seconds."""
        self.shift = shift
        for series, last in self._last.items():
            self._gone[series] = self._gone.get(series, 0.0) + max(last - self._first.get(series, last), 0.0)
        self._first, self._last = {}, {}
        self._plans.clear()
        self._made.clear()

    def frame(self, recorded: Frame) -> Frame:
        """The frame as it is to be shown."""
        known = self._made.get(recorded.layout)
        if known is not None and known[0] is recorded:
            return known[1]
        plan = self._plans.get(recorded.layout) or self._plan(recorded.layout)
        values = recorded.values if plan.pick is None else plan.pick(recorded.values)
        if plan.times or plan.counters:
            values = self._moved(plan, values)
        made = Frame(plan.layout, values)
        self._made[recorded.layout] = recorded, made
        return made

    def _plan(self, layout: Layout) -> _KeptColumns:
        kept = [
            place
            for place, each in enumerate(layout.series)
            if each.metric.name not in OWN and each.metric not in self._told
        ]
        series = tuple(layout.series[place] for place in kept)
        whole = len(kept) == len(layout)
        plan = self._plans[layout] = _KeptColumns(
            layout if whole else Layout(series),
            None if whole else picker(kept),
            tuple(place for place, each in enumerate(series) if each.metric.name.endswith(TIMES)),
            tuple(place for place, each in enumerate(series) if each.metric.kind is Kind.COUNTER),
        )
        return plan

    def _moved(self, plan: _KeptColumns, values: tuple[float, ...]) -> tuple[float, ...]:
        moved = list(values)
        for place in plan.times:
            moved[place] += self.shift
        for place in plan.counters:
            series, value = plan.layout.series[place], values[place]
            self._first.setdefault(series, value)
            self._last[series] = value
            gone = self._gone.get(series)
            if gone:
                moved[place] += gone
        return tuple(moved)
