"""Counters that only grow, whatever the device does.

A reloaded driver starts its counters from zero; occasionally a single value is garbage. Both
look alike at first: the counter took an impossible step. So the reading that breaks the rule is
rejected, and the next one decides. If that follows plausibly from the rejected one, the counter did restart,
and is re-based; if it follows from the one before, the rejected one was garbage.
"""

from collections.abc import Sequence
from itertools import repeat
from operator import ge, mul, sub, truediv

from agent.lib.layout_columns import picker

Raws = tuple[float | None, ...]


class Counter:
    """One counter's state. `fastest` is the most that it can grow in a second; `shown` is the last exposed value."""

    __slots__ = ("_at", "_offset", "_raw", "_suspect", "_suspect_at", "fastest", "rate", "shown")

    def __init__(self, fastest: float) -> None:
        self.fastest = fastest
        self._raw: float | None = None
        self._at = 0.0
        """When the last good value was read."""
        self._offset: float = 0
        self._suspect: float | None = None
        self._suspect_at = 0.0
        self.shown: float = 0
        self.rate: float | None = None
        """Growth per second up to the last value; None if that was suspect, or the first."""

    def feed(self, at: float, raw: float) -> float | None:
        """Return the value to show for a raw one read at `at` (monotonic seconds); None if it is suspect."""
        # The usual case first: a node has hundreds of counters, and each comes here at every tick.
        if self._raw is None or 0 <= raw - self._raw <= self.fastest * (at - self._at + 1.0):
            return self._accept(at, raw)
        if self._suspect is not None and self._follows(raw - self._suspect, at - self._suspect_at):
            self._rebase(self._suspect)
            return self._accept(at, raw)
        self._suspect, self._suspect_at = raw, at
        self.rate = None
        return None

    @property
    def is_plain(self) -> bool:
        """Whether the last value was good and is shown as read."""
        return self._raw is not None and self._suspect is None and not self._offset

    def resume(self, at: float, raw: float) -> None:
        """Go on from a good value that was judged elsewhere, while this counter was plain."""
        self._raw, self._at, self.shown = raw, at, raw

    def _follows(self, step: float, seconds: float) -> bool:
        # A second's growth more, since the device updates its counters in its own time.
        return 0 <= step <= self.fastest * (seconds + 1.0)

    def _accept(self, at: float, raw: float) -> float:
        # Rounding with a large offset must not make the sum fall by its last bit.
        exposed = max(raw + self._offset, self.shown) if self._offset else raw
        is_later = self._raw is not None and at > self._at
        self.rate = (exposed - self.shown) / (at - self._at) if is_later else None
        self._raw, self._at, self._suspect, self.shown = raw, at, None, exposed
        return exposed

    def _rebase(self, start: float) -> None:
        """Go on from the value last shown, now that the device counts from `start`.

        A counter that fell far was restarted from zero, and its value has been counted since. One that fell a little,
        or jumped, was corrected by its driver: its value is not new.
        """
        assert self._raw is not None
        restarted = start < self._raw / 2
        self._offset = self.shown if restarted else self.shown - start


class Counters:
    """Counters that are sampled together. While all of them are plain, they are judged at once.

    A node has hundreds, and nearly always each of them stands still or grows a little. `rated` are the places of those
    whose rates are wanted.
    """

    def __init__(self, counters: Sequence[Counter], rated: Sequence[int] = ()) -> None:
        self._counters = tuple(counters)
        self._rated = rated
        self._pick_rated = picker(rated)
        self.rates: Raws = ()
        """Growth per second of the rated ones since the value before the last; None without one of them."""
        self._fastest = tuple(counter.fastest for counter in counters)
        self._raws: Raws | None = None
        """The last values, while all are plain; otherwise each counter has its own."""
        self._at = 0.0

    def feed(self, at: float, raws: Raws) -> Raws:
        """Return the values to show for raw ones read at `at`: `raws` itself if they are the same. A counter without a
        raw value has None, and so has one that is suspect.
        """
        before = self._raws
        if before is not None and (raws == before or (None not in raws and self._follow(at, raws, before))):
            if self._rated:
                steps = map(sub, self._pick_rated(raws), self._pick_rated(before))
                seconds = at - self._at
                self.rates = tuple(map(truediv, steps, repeat(seconds))) if seconds > 0 else (None,) * len(self._rated)
            self._at, self._raws = at, raws
            return raws
        self.let_go()
        pairs = zip(self._counters, raws, strict=True)
        exposed = tuple(None if raw is None else counter.feed(at, raw) for counter, raw in pairs)
        self.rates = tuple([None if raws[place] is None else self._counters[place].rate for place in self._rated])
        if None not in exposed and all(counter.is_plain for counter in self._counters):
            self._at, self._raws = at, raws
            return raws
        return exposed

    def let_go(self) -> None:
        """Pass its last value to each counter: from now on it may be judged elsewhere."""
        if self._raws is not None:
            for counter, raw in zip(self._counters, self._raws, strict=True):
                assert raw is not None
                counter.resume(self._at, raw)
            self._raws = None

    def _follow(self, at: float, raws: Raws, before: Raws) -> bool:
        steps: tuple[float, ...] = tuple(map(sub, raws, before))
        room = at - self._at + 1.0  # as for one counter
        return min(steps) >= 0 and all(map(ge, map(mul, self._fastest, repeat(room)), steps))
