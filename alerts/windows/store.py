"""Keeps the samples of the series that rules read, for as long as they read them, within a fixed memory.

A snapshot corresponds to a scrape in Prometheus: each of its readings becomes a sample at the time of the
round, and a series that is no longer present ends at once. Target labels are added as a scrape would add them, so that
rules see on the node what they see on the server. A window takes its samples over from the rounds when a rule reads it:
most are read every 5 or 15 seconds, and many for their newest sample only.

The memory that a series will need is reserved when it first appears. Where it does not fit, the rule of the site that
takes most is refused; the shipped rules keep what they read. Only if they alone are too much, new series are dropped
and counted, never existing ones.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agent.model import Frame, Layout, Reading, Series
from alerts import durations
from alerts.alert_state import ArchivedSeries
from alerts.promql import STALE, is_stale
from alerts.promql.budget import Budget
from alerts.promql.labels import Labels, Matcher, make_labels
from alerts.promql.storage import SampledSeries, SampleStore, is_newer, to_milliseconds
from alerts.rulefile import Rule
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
_BEHIND = 8
"""Rounds that are kept for windows that have not taken their samples over."""
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


class _Window(SampledSeries):
    """The samples of one series. `live` while the last round's readings had it."""

    __slots__ = ("history", "last_round", "live", "place", "reserved")

    def __init__(self, labels: Labels, history: float, reserved: int) -> None:
        super().__init__(labels)
        self.history = history
        self.reserved = reserved
        self.live = False
        self.place: tuple[int, int] | None = None
        """The number of the frame that has the series, and the position in it; None if no frame has it."""
        self.last_round = 0
        """The number of the last round whose sample the window has."""

    def add_sample(self, at: float, value: float) -> None:
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
            self.add_sample(at, STALE)


class Windows(SampleStore[_Window]):
    """The store that rule groups evaluate on.

    `target` are the labels that a scrape would add to every series, `period` the seconds between two rounds,
    `capacity` is in bytes.
    """

    forgetful = True
    """Samples are kept for as long as rules look back: those at a fixed time may be gone (see `promql.plan`)."""

    def __init__(self, needs: Needs, target: Labels, period: float, capacity: int = CAPACITY) -> None:
        super().__init__()
        self.bytes = 0
        """The bytes reserved for all windows."""
        self.dropped = 0
        """Samples that a rule reads but that were left out for lack of memory."""
        self._target = dict(target)
        self._round = 0
        self._live: list[_Window] = []
        self._placed: list[_Window] = []
        """The windows of series that the frames have."""
        self._times: array[float] = array("d")
        self._rows: list[list[Sequence[float]]] = []
        """Of the rounds that some window has not taken over: their times, and for each frame the values of each."""
        self.rewire(needs, period, capacity)

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
        self._fit()

    def _fit(self) -> None:
        """Give each window the history that the rules need now, and drop those that no rule reads."""
        self._catch_up(self._series.values())
        for window in list(self._series.values()):
            history = self._needs.history_of(window.labels)
            if history is None:
                self._remove(window)
                continue
            window.history = history
            window.reserved = self._price(history)
            if history == 0.0:
                del window.times[:-1]
                del window.values[:-1]
        self.bytes = sum(window.reserved for window in self._series.values())
        self._live = [window for window in self._series.values() if window.live]

    def ingest_round(self, frames: Sequence[Frame], at: float, foreign: Iterable[Reading] = ()) -> None:
        """Add the frames of one round, in wall seconds; series that are not among them end.

        `foreign` are readings of other nodes, with their own target labels. Rounds come in the order of their times.
        """
        at = to_milliseconds(at) / 1000
        layouts = [frame.layout for frame in frames]
        if layouts != self._layouts:
            self._catch_up(self._placed)
            self._times, self._rows = array("d"), [[] for _ in layouts]
        while layouts != self._layouts:  # a rule that is refused meanwhile changes what is needed
            self._layouts = layouts
            self._look_up(layouts)
        self._round += 1
        self._times.append(at)
        for rows, frame in zip(self._rows, frames, strict=True):
            rows.append(frame.values)
        updated = len(self._placed) + self._add_foreign(foreign, at)
        self.dropped += len(self._refused)
        if updated != len(self._live):
            self._end_missing(at)
        if len(self._times) >= _BEHIND:
            self._release_rounds()
        if self._round % _SWEEP == 0:
            self._sweep(at)

    def _look_up(self, layouts: Iterable[Layout]) -> None:
        """Find the windows of the series of a round's frames; of a series that comes twice the first counts."""
        for placed in self._placed:
            placed.place = None
        self._placed = []
        for number, layout in enumerate(layouts):
            for position, series in enumerate(layout.series):
                window = self._window_of(series, self._target)
                if window is not None and window.place is None:
                    window.place, window.last_round = (number, position), self._round
                    self._placed.append(window)
                    self._revive(window)

    def _catch_up(self, windows: Iterable[_Window]) -> None:
        """Have windows take over the samples of the rounds since they last did."""
        number = self._round
        for window in windows:
            if window.last_round == number or window.place is None:
                continue
            frame, position = window.place
            rows = self._rows[frame]
            if window.history:
                first = window.last_round - number
                window.times.extend(self._times[first:])
                window.values.fromlist([values[position] for values in rows[first:]])
            else:
                window.add_sample(self._times[-1], rows[-1][position])
            window.last_round = number

    def _release_rounds(self) -> None:
        self._catch_up(window for window in self._placed if window.history)
        del self._times[:-1]  # the other windows need the newest sample only
        for rows in self._rows:
            del rows[:-1]

    def _add_foreign(self, readings: Iterable[Reading], at: float) -> int:
        updated = 0
        for series, value in readings:
            window = self._window_of(series, {})
            if window is not None and window.place is None and window.last_round != self._round:
                self._revive(window)
                window.last_round = self._round
                window.add_sample(at, value)
                updated += 1
        return updated

    def _window_of(self, series: Series, target: Mapping[str, str]) -> _Window | None:
        window = self._sampled.get(series, _NOT_LOOKED_UP)
        return self._look_up_window(series, target) if window is _NOT_LOOKED_UP else window

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
        self._catch_up((window,))
        at = to_milliseconds(at) / 1000
        if not window.times or is_newer(window.times[-1], window.values[-1], at, value):
            window.add_sample(at, value)

    def mark_stale(self, labels: Labels, at: float) -> None:
        window = self._series.get(labels)
        if window is not None:
            self._catch_up((window,))
            window.end(to_milliseconds(at) / 1000)

    def expire(self, labels: Labels, since: float, at: float) -> None:
        """End a series, unless it was written after `since`."""
        window = self._series.get(labels)
        if window is None:
            return
        self._catch_up((window,))
        if window.times[-1] <= to_milliseconds(since) / 1000:
            window.end(to_milliseconds(at) / 1000)

    def _matching(self, matchers: tuple[Matcher, ...], budget: Budget) -> list[_Window]:
        windows = self._find(matchers, budget)
        self._catch_up(windows)
        return windows

    def shift(self, seconds: float) -> None:
        """Move the whole past in time: the clock was set, but the distances between samples did not change."""
        self._catch_up(self._series.values())
        for window in self._series.values():
            window.times = array("d", (to_milliseconds(time + seconds) / 1000 for time in window.times))

    def kept(self) -> Iterator[ArchivedSeries]:
        """Yield all series, for the archive."""
        self._catch_up(self._series.values())
        for window in self._series.values():
            yield ArchivedSeries(window.labels, window.live, window.times, window.values)

    def restore(self, series: Iterable[ArchivedSeries], step: float = 0.0) -> None:
        """Take in an archive, as far as rules still read it and before the first round; `step` as in `shift`.

        Series that were live end with the first round, if that does not have them.
        """
        for archived in series:
            window = self._window(archived.labels)
            if window is None or window.times:
                continue
            window.times, window.values = archived.times, archived.values
            if window.history == 0.0:
                del window.times[:-1]
                del window.values[:-1]
            window.live = archived.live
        self._live = [window for window in self._series.values() if window.live]
        self._layouts = None
        if step:
            self.shift(step)

    def _look_up_window(self, series: Series, target: Mapping[str, str]) -> _Window | None:
        """Return the window of a series not looked up since the rules were loaded, or since there was no room."""
        labels = make_labels({**dict(series.all_labels), **target}, series.metric.name)
        window = self._sampled[series] = self._window(labels)
        return window

    def _window(self, labels: Labels) -> _Window | None:
        """Return the window of a label set; None if no rule reads it, or there is no room."""
        window = self._series.get(labels)
        if window is not None or labels in self._refused:
            return window
        history = self._needs.history_of(labels)
        if history is None:
            return None
        while self.bytes + self._price(history) > self._capacity:
            if not self._make_room(labels):
                self._refused.add(labels)
                return None
            history = self._needs.history_of(labels)
            if history is None:
                return None
        price = self._price(history)
        self.bytes += price
        return self._add(_Window(labels, history, price))

    def _make_room(self, labels: Labels) -> bool:
        """Refuse the rule that takes most of the memory, for a new series; returns whether there was one to refuse."""
        if self._is_packed:  # asked once for many series that find no room
            return False
        costliest = self._needs.costliest([*(window.labels for window in self._series.values()), labels], self._price)
        if costliest is None:
            self._is_packed = True
            return False
        rule, history = costliest
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
            if window.place is None and window.last_round != self._round:
                window.live = False
                window.end(at)
        self._live = [window for window in self._live if window.live]

    def _sweep(self, at: float) -> None:
        """Cut what is too old, and forget series that ended longer ago than any rule looks back."""
        self._release_rounds()
        removed = set()
        for window in list(self._series.values()):
            if window.place is not None and not window.history:  # it may not have its newest sample
                continue
            if window.times[-1] <= at - window.history - LOOKBACK_SECONDS:
                removed.add(window.labels)
                self._remove(window)
                self.bytes -= window.reserved
            elif window.history:
                window.cut(at)
        if removed or self._refused or len(self._sampled) > 2 * len(self._live) + _REMEMBERED:
            # Looked up again in the next round: those that ended may come back, those without room may find some.
            self._sampled = {}
            self._unread = set()
            self._refused = set()
            self._is_packed = False
            self._layouts = None


_NOT_LOOKED_UP = _Window((), 0.0, 0)
