"""A recording as a node: what was recorded is shown again as if it were now.

No worker reads it and no sampler conditions it: values in a recording have been through both.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from agent.catalogue.agent import FLIGHT, NOTIFICATIONS, RULES, VITALS
from agent.lib.layout_columns import picker
from agent.model import Frame, Instant, Kind, Layout, Metric, Series, Snapshot
from agent.recording.recording_reader import Recording

TIMES = "_timestamp_seconds"
OWN = frozenset(
    {
        *(row.name for row in (*VITALS, *RULES, *NOTIFICATIONS, *FLIGHT)),
        "coldplate_build_info",
        "coldplate_config_last_reload_successful",
        "coldplate_config_last_reload_success_timestamp_seconds",
        "coldplate_replay_info",
        "coldplate_web_config_last_reload_successful",
        "coldplate_web_config_last_reload_success_timestamp_seconds",
        "coldplate_web_certificate_expiry_timestamp_seconds",
        "coldplate_web_requests_rejected_total",
    }
)
"""What the agent that replays reports of itself; the values of the recorded agent in these are left out."""


class _ColumnSelection(Struct, frozen=True):
    """What is done with the frames of one layout. `places` are those of its values that stay."""

    layout: Layout
    pick: Callable[[Sequence[float]], tuple[float, ...]] | None
    times: tuple[int, ...]
    counters: tuple[int, ...]


class FrameShifter:
    """Remembers what to do with each layout, and what each frame became while it stays the same."""

    def __init__(self) -> None:
        self.shift = 0.0
        """Seconds by which the recording's wall clock is behind the present."""
        self._left_out: AbstractSet[Metric] = frozenset()
        self._plans: dict[Layout, _ColumnSelection] = {}
        self._shifted: dict[Layout, tuple[Frame, Frame]] = {}
        self._first: dict[Series, float] = {}
        self._last: dict[Series, float] = {}
        self._earlier_growth: dict[Series, float] = {}
        """By how much each counter grew in the passes before."""

    def leave_out(self, metrics: AbstractSet[Metric]) -> None:
        """Leave out these rows, which the agent that replays reports itself."""
        if metrics != self._left_out:
            self._left_out = metrics
            self._plans.clear()
            self._shifted.clear()

    def another_pass(self, shift: float) -> None:
        """Start another pass of the recording, moved by `shift` seconds."""
        self.shift = shift
        for series, last in self._last.items():
            self._earlier_growth[series] = self._earlier_growth.get(series, 0.0) + max(
                last - self._first.get(series, last), 0.0
            )
        self._first, self._last = {}, {}
        self._plans.clear()
        self._shifted.clear()

    def frame(self, recorded: Frame) -> Frame:
        cached = self._shifted.get(recorded.layout)
        if cached is not None and cached[0] is recorded:
            return cached[1]
        plan = self._plans.get(recorded.layout) or self._plan(recorded.layout)
        values = recorded.values if plan.pick is None else plan.pick(recorded.values)
        if plan.times or plan.counters:
            values = self._moved(plan, values)
        shifted_frame = Frame(plan.layout, values)
        self._shifted[recorded.layout] = recorded, shifted_frame
        return shifted_frame

    def _plan(self, layout: Layout) -> _ColumnSelection:
        kept = [
            place
            for place, s in enumerate(layout.series)
            if s.metric.name not in OWN and s.metric not in self._left_out
        ]
        series = tuple(layout.series[place] for place in kept)
        whole = len(kept) == len(layout)
        plan = self._plans[layout] = _ColumnSelection(
            layout if whole else Layout(series),
            None if whole else picker(kept),
            tuple(place for place, s in enumerate(series) if s.metric.name.endswith(TIMES)),
            tuple(place for place, s in enumerate(series) if s.metric.kind is Kind.COUNTER),
        )
        return plan

    def _moved(self, plan: _ColumnSelection, values: tuple[float, ...]) -> tuple[float, ...]:
        moved = list(values)
        for place in plan.times:
            moved[place] += self.shift
        for place in plan.counters:
            series, value = plan.layout.series[place], values[place]
            self._first.setdefault(series, value)
            self._last[series] = value
            growth = self._earlier_growth.get(series)
            if growth:
                moved[place] += growth
        return tuple(moved)


log = logging.getLogger("coldplate.replay")

GAP_SECONDS = 5.0
"""Seconds for which a snapshot is shown where the recording has a hole behind it, or ends."""
INTERVALS = 3
"""The same in intervals of the recording, where these are longer."""


class RecordingPlayer:
    """The snapshots of one node in a recording, of the first if none is named. Belongs to one thread.

    `again` opens the recording; a loop opens it again each time.

    Its time begins with the first call of `at`, and is in seconds of the recording: to replay faster, pass a faster
    clock.
    """

    def __init__(self, again: Callable[[], Recording], *, node: str | None = None, loop: bool = False) -> None:
        self._again = again
        self._node = node
        self._loop = loop
        self._recording: Recording | None = None
        self._snapshots: Iterator[Snapshot] = iter(())
        self._interval, self._longest_gap = 1.0, GAP_SECONDS
        self._began: float | None = None
        """The monotonic second at which the running pass began."""
        self._current: Snapshot | None = None
        self._next: Snapshot | None = None
        self._place = self._next_place = 0.0
        """Seconds from the recording's beginning to the snapshot that is shown, and to the one behind it."""
        self._logged_problems = 0
        self.passes = 0
        """How many times it was begun."""
        self.over = False

    def at(self, now: Instant) -> Snapshot | None:
        """Return what is to be shown; None in a hole of the recording, and when it is over. Raises RecordingError."""
        if self._began is None:
            self._begin(now.mono)
        place = now.mono - (self._began or 0.0)
        while self._next is not None and self._next_place <= place:
            self._current, self._place = self._next, self._next_place
            self._step()
        if self._next is None and place >= self._place + (self._interval if self._loop else self._longest_gap):
            self._end(now.mono)
        elif place > self._place + self._longest_gap:
            return None
        return self._current

    def close(self) -> None:
        if self._recording is not None:
            self._recording.close()

    def _begin(self, mono: float) -> None:
        self.close()
        self.passes += 1
        self._recording = recording = self._again()
        header, parts = recording.header, None
        if self._node is not None:
            spans = [span for span in recording.survey() if span.header.node == self._node]
            header, parts = (spans[0].header if spans else header), [span.at for span in spans]
        self._interval = header.interval
        self._longest_gap = max(GAP_SECONDS, INTERVALS * self._interval)
        self._snapshots = (r.snapshot for r in recording.recorded(parts) if r.header.node == header.node)
        self._began, self._place, self._next_place = mono, 0.0, 0.0
        self._current = None
        self._next = next(self._snapshots, None)

    def _end(self, mono: float) -> None:
        """Start again from the beginning, or show nothing any more."""
        if self.over:
            return
        if self._loop and self._current is not None:
            log.info("replay restarted: from the beginning of the recording")
            self._begin(mono)
            if self._next is not None:
                self._current = self._next
                self._step()
            return
        self.over, self._current = True, None
        self.close()
        log.info("replay ended: no more snapshots")

    def _step(self) -> None:
        before = self._next
        self._next = next(self._snapshots, None)
        self._log_problems()
        if before is not None and self._next is not None:
            passed = self._next.at.mono - before.at.mono
            if passed < 0:  # the node was restarted between them
                passed = max(self._next.at.wall - before.at.wall, 0.0)
            self._next_place += passed

    def _log_problems(self) -> None:
        problems = self._recording.problems if self._recording is not None else []
        for problem in problems[self._logged_problems :]:
            log.warning("%s", problem)
        self._logged_problems = max(self._logged_problems, len(problems))
