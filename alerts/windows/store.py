"""Keeps the samples of the series that rules read, for as long as they read them, within a fixed memory.

A snapshot corresponds to a scrape in Prometheus: each of its readings becomes a sample at the time of the
round, and a series that is no longer present ends at once. Target labels are added as a scrape would add them, so that
rules see on the node what they see on the server. The memory that a series will need is reserved when it first appears.
Where it does not fit, the rule of the site that takes most is refused; the shipped rules keep what they read. Only if
they alone are too much, new series are dropped and counted, never existing ones.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.lib.picking import picker
from agent.lib.precedence import give_way
from agent.model import Frame, Layout, Reading, Series
from alerts import durations
from alerts.promql import STALE, is_stale
from alerts.promql.budget import Budget
from alerts.promql.index import Index
from alerts.promql.labels import Labels, make_labels
from alerts.promql.matchers import Matcher
from alerts.promql.storage import Newest, Window, is_newer, newest_of, to_milliseconds, windows_of
from alerts.rulefile import Rule
from alerts.windows.archive import ArchivedSeries
from alerts.windows.needs import Needs

CAPACITY = 64 * 2**20
"""Bytes that all windows together may take."""
LOOKBACK_SECONDS = 300.0
SERIES_BYTES = 700
"""Bytes of one series without history, measured: two arrays, the label set, and the entries that find it."""
SAMPLE_BYTES = 18
"""Bytes of a sample: two doubles, and the arrays' reserve."""
_SLACK = 64
"""Samples by which a window may exceed its history before it is cut."""
_SWEEP = 16
"""Rounds between two cuts of the windows."""
_REMEMBERED = 50_000
"""Most series remembered as read by no rule."""
_UNREAD = 10_000
"""Most label sets remembered as such, of those that rules write."""


def price_of(history: float, period: float) -> int:
    """Return the bytes that a series takes whose samples, one each `period`, are kept for `history` seconds."""
    samples = 1.0 if history == 0.0 else history / period * 9 / 8 + _SLACK
    return SERIES_BYTES + int(SAMPLE_BYTES * samples)


def too_long(history: float, price: int, capacity: int) -> str:
    """Say what a range costs, and what is there for all."""
    return (
        f"its range of {durations.show(history)} takes {price / 2**20:.1f} MiB for each series, and all rules together "
        f"have {capacity / 2**20:.0f} MiB; shorten the range, or leave the rule to a server"
    )


class _Window:
    """The samples of one series. `live` while the last round's readings had it."""

    __slots__ = ("fed", "history", "labels", "live", "reserved", "times", "values")

    def __init__(self, labels: Labels, history: float, reserved: int) -> None:
        self.labels = labels
        self.history = history
        self.reserved = reserved
        self.times: array[float] = array("d")
        self.values: array[float] = array("d")
        self.live = False
        self.fed = 0
        """The number of the round whose readings brought the newest sample."""

    def put(self, at: float, value: float) -> None:
        if self.history == 0.0 and self.times:
            self.times[0] = at
            self.values[0] = value
        else:
            self.times.append(at)
            self.values.append(value)

    def cut(self, now: float) -> None:
        """Drop what is older than the history, except the newest such sample, which an instant selector may need."""
        spare = bisect_right(self.times, now - self.history) - 1
        if spare >= _SLACK or spare > len(self.times) // 8:
            del self.times[:spare]
            del self.values[:spare]

    def end(self, at: float) -> None:
        if self.times[-1] < at and not is_stale(self.values[-1]):
            self.put(at, STALE)


class _Wanted(NamedTuple):
    """What is needed of the frames of one layout: the positions, and the window of each."""

    pick: Callable[[Sequence[float]], tuple[float, ...]]
    windows: tuple[_Window, ...]


class Windows:
    """The store that rule groups evaluate on.

    `target` are the labels that a scrape would add to every series, `period` the seconds between two rounds,
    `capacity` is in bytes.
    """

    forgetful = True
    """Samples are kept for as long as rules look back: those at a fixed time may be gone (see `promql.plan`)."""

    def __init__(self, needs: Needs, target: Labels, period: float, capacity: int = CAPACITY) -> None:
        self.dropped = 0
        """Samples that a rule reads but that were left out for lack of memory."""
        self._target = dict(target)
        self._index: Index[_Window] = Index()
        self._round = 0
        self._live: list[_Window] = []
        self.rewire(needs, period, capacity)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def bytes(self) -> int:
        """The bytes reserved for all windows."""
        return self._reserved

    @property
    def refused(self) -> Mapping[Rule, str]:
        """The rules for which nothing is kept, since their range does not fit, and why."""
        return self._needs.refused

    def rewire(self, needs: Needs, period: float, capacity: int = CAPACITY) -> None:
        """Serve other rules: keep the windows that they read, and drop those that no rule reads any more."""
        self._needs = needs
        self._period = period
        self._capacity = capacity
        self._sampled: dict[Series, _Window | None] = {}
        self._unread: set[Labels] = set()
        self._refused: set[Labels] = set()
        self._is_packed = False
        self._layouts: list[Layout] | None = None
        self._wanted: list[_Wanted] = []
        self._fit()

    def _fit(self) -> None:
        """Give each window the history that the rules need now, and drop those that no rule reads."""
        for window in list(self._index):
            history = self._needs.history_of(window.labels)
            if history is None:
                self._index.remove(window)
                continue
            window.history = history
            window.reserved = self._price(history)
            if history == 0.0:
                del window.times[:-1]
                del window.values[:-1]
        self._reserved = sum(window.reserved for window in self._index)
        self._live = [window for window in self._index if window.live]

    def take(self, frames: Sequence[Frame], at: float, foreign: Iterable[Reading] = ()) -> None:
        """Take in the frames of one round, in wall seconds; series that are not among them end.

        `foreign` are readings of other nodes, with their own target labels. Rounds come in the order of their times.
        """
        at = to_milliseconds(at) / 1000
        self._round += 1
        layouts = [frame.layout for frame in frames]
        while layouts != self._layouts:  # a rule that is refused meanwhile changes what is needed
            self._layouts = layouts
            self._wanted = self._look_up(layouts)
        fed = sum(self._feed(wanted, values, at) for wanted, (_, values) in zip(self._wanted, frames, strict=True))
        fed += self._feed_foreign(foreign, at)
        self.dropped += len(self._refused)
        if fed != len(self._live):
            self._end_missing(at)
        if self._round % _SWEEP == 0:
            self._sweep(at)

    def _look_up(self, layouts: Iterable[Layout]) -> list[_Wanted]:
        """What is needed of each frame of a round; of a series that comes twice the first counts."""
        seen: set[_Window] = set()
        made = []
        for layout in layouts:
            found = []
            for place, series in enumerate(layout.series):
                give_way()
                window = self._window_of(series, self._target)
                if window is not None and window not in seen:
                    seen.add(window)
                    self._revive(window)
                    found.append((place, window))
            made.append(_Wanted(picker([place for place, _ in found]), tuple(window for _, window in found)))
        return made

    def _feed(self, wanted: _Wanted, values: Sequence[float], at: float) -> int:
        """Put the values of a frame into their windows; returns how many were needed."""
        number, windows = self._round, wanted.windows
        for window, value in zip(windows, wanted.pick(values), strict=True):  # `put` inlined: there are hundreds
            window.fed = number
            if window.history:
                window.times.append(at)
                window.values.append(value)
            else:
                window.put(at, value)
        return len(windows)

    def _feed_foreign(self, readings: Iterable[Reading], at: float) -> int:
        fed = 0
        for series, value in readings:
            window = self._window_of(series, {})
            if window is not None and window.fed != self._round:
                self._revive(window)
                window.fed = self._round
                window.put(at, value)
                fed += 1
        return fed

    def _window_of(self, series: Series, target: Mapping[str, str]) -> _Window | None:
        window = self._sampled.get(series, _UNMET)
        return self._meet(series, target) if window is _UNMET else window

    def _revive(self, window: _Window) -> None:
        if not window.live:
            window.live = True
            self._live.append(window)

    def append(self, labels: Labels, at: float, value: float) -> None:
        """Add a sample that a rule wrote, if a rule reads it. Raises OutOfOrderError."""
        if labels in self._unread:
            return
        window = self._window(labels)
        if window is None:
            self._remember_unread(labels)
            return
        at = to_milliseconds(at) / 1000
        if not window.times or is_newer(window.times[-1], window.values[-1], at, value):
            window.put(at, value)

    def mark_stale(self, labels: Labels, at: float) -> None:
        """End a series; one that does not exist, or has ended, is left alone."""
        window = self._index.get(labels)
        if window is not None:
            window.end(to_milliseconds(at) / 1000)

    def expire(self, labels: Labels, since: float, at: float) -> None:
        """End a series, unless it was written after `since`."""
        window = self._index.get(labels)
        if window is not None and window.times[-1] <= to_milliseconds(since) / 1000:
            window.end(to_milliseconds(at) / 1000)

    def select(
        self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget | None = None
    ) -> Iterator[Window]:
        """See `alerts.promql.storage.SampleSource`."""
        return windows_of(self._index.matching(matchers, budget), start, end, budget)

    def newest(
        self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget | None = None
    ) -> list[Newest]:
        """See `alerts.promql.storage.InstantSource`."""
        return newest_of(self._index.matching(matchers, budget), start, end, budget)

    def lacks(self, matchers: tuple[Matcher, ...], budget: Budget) -> bool:
        """See `alerts.promql.plan.EvaluationContext`."""
        return not self._index.matching(matchers, budget)

    def shift(self, seconds: float) -> None:
        """Move the whole past in time: the clock was set, but the distances between samples did not change."""
        for window in self._index:
            window.times = array("d", (to_milliseconds(time + seconds) / 1000 for time in window.times))

    def kept(self) -> Iterator[ArchivedSeries]:
        """All series, for the archive."""
        for window in self._index:
            yield ArchivedSeries(window.labels, window.live, window.times, window.values)

    def restore(self, series: Iterable[ArchivedSeries], step: float = 0.0) -> None:
        """Take in an archive, as far as rules still read it and before the first round; `step` as in `shift`.

        Series that were live end with the first round, if that does not have them.
        """
        for each in series:
            window = self._window(each.labels)
            if window is None or window.times:
                continue
            window.times, window.values = each.times, each.values
            if window.history == 0.0:
                del window.times[:-1]
                del window.values[:-1]
            window.live = each.live
        self._live = [window for window in self._index if window.live]
        self._layouts = None
        if step:
            self.shift(step)

    def _meet(self, series: Series, target: Mapping[str, str]) -> _Window | None:
        """The window of a series that was not looked up since the rules were loaded, or since there was no room."""
        labels = make_labels({**dict(series.all_labels), **target}, series.metric.name)
        window = self._sampled[series] = self._window(labels)
        return window

    def _window(self, labels: Labels) -> _Window | None:
        """The window of a label set; None if no rule reads it, or there is no room."""
        window = self._index.get(labels)
        if window is not None or labels in self._refused:
            return window
        history = self._needs.history_of(labels)
        if history is None:
            return None
        while self._reserved + self._price(history) > self._capacity:
            if not self._make_room(labels):
                self._refused.add(labels)
                return None
            history = self._needs.history_of(labels)
            if history is None:
                return None
        price = self._price(history)
        self._reserved += price
        return self._index.add(_Window(labels, history, price))

    def _make_room(self, labels: Labels) -> bool:
        """Refuse the rule that takes most of the memory, for a new series; returns whether there was one to refuse."""
        if self._is_packed:  # asked once for many series that find no room
            return False
        found = self._needs.costliest([*(window.labels for window in self._index), labels], self._price)
        if found is None:
            self._is_packed = True
            return False
        rule, history = found
        self._needs.refuse(rule, too_long(history, self._price(history), self._capacity))
        self._sampled, self._unread, self._layouts = {}, set(), None
        self._fit()
        return True

    def _remember_unread(self, labels: Labels) -> None:
        if labels not in self._refused:
            if len(self._unread) >= _UNREAD:  # a rule may write other labels each time
                self._unread.clear()
            self._unread.add(labels)

    def _price(self, history: float) -> int:
        return price_of(history, self._period)

    def _end_missing(self, at: float) -> None:
        for window in self._live:
            if window.fed != self._round:
                window.live = False
                window.end(at)
        self._live = [window for window in self._live if window.live]

    def _sweep(self, at: float) -> None:
        """Cut what is too old, and forget series that ended longer ago than any rule looks back."""
        gone = set()
        for window in list(self._index):
            if window.times[-1] <= at - window.history - LOOKBACK_SECONDS:
                gone.add(window.labels)
                self._index.remove(window)
                self._reserved -= window.reserved
            elif window.history:
                window.cut(at)
        if gone or self._refused or len(self._sampled) > 2 * len(self._live) + _REMEMBERED:
            # Looked up again in the next round: those that ended may come back, those without room may find some.
            self._sampled = {}
            self._unread = set()
            self._refused = set()
            self._is_packed = False
            self._layouts = None


_UNMET = _Window((), 0.0, 0)
