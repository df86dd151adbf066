"""Counters that only grow, whatever the device does.

A driver that is loaded anew starts its counters from zero; now and then one value is garbage. Both
look alike at first: the counter took a step that it cannot take. So the reading that breaks the rule is
left out, and the one after it decides. If that follows on from it plausibly, the counter did start
anew, and is re-based; if it follows on from what was before, the odd one was garbage.
"""

from __future__ import annotations


class Counter:
    """One counter's state. `fastest` is the most that it can grow in a second; `shown` is what was last exposed."""

    __slots__ = ("_fastest", "_offset", "_raw", "_suspect", "_suspect_at", "at", "shown", "still")

    def __init__(self, fastest: float) -> None:
        self._fastest = fastest
        self._raw: float | None = None
        self.at = 0.0
        """When the last good value was read."""
        self.still: float | None = None
        """The raw value that, if it comes again, is shown as it is: the caller may then only set `at`."""
        self._offset: float = 0
        self._suspect: float | None = None
        self._suspect_at = 0.0
        self.shown: float = 0

    def feed(self, at: float, raw: float) -> float | None:
        """The value to show for a raw one read at `at` (monotonic seconds); None if it is suspect."""
        # The usual case in one go: a node has hundreds of counters, and each comes here at every tick.
        if self._raw is None or 0 <= raw - self._raw <= self._fastest * (at - self.at + 1.0):
            return self._accept(at, raw)
        if self._suspect is not None and self._follows(raw - self._suspect, at - self._suspect_at):
            self._rebase(self._suspect)
            return self._accept(at, raw)
        self._suspect, self._suspect_at, self.still = raw, at, None
        return None

    def _follows(self, step: float, seconds: float) -> bool:
        # A second's worth more, since the device counts when it likes and not when it is asked.
        return 0 <= step <= self._fastest * (seconds + 1.0)

    def _accept(self, at: float, raw: float) -> float:
        self._raw, self.at, self._suspect = raw, at, None
        if not self._offset:
            self.still = raw
        else:
            # Rounding of a large offset must not make the sum fall by its last bit.
            raw = max(raw + self._offset, self.shown)
        self.shown = raw
        return raw

    def _rebase(self, start: float) -> None:
        """Go on from the value last shown, now that the device counts from `start`.

        A counter that fell far was restarted from zero, and what it holds has been counted since. One
        that fell a little, or leapt, was set right by its driver: what it holds is not new.
        """
        assert self._raw is not None
        restarted = start < self._raw / 2
        self._offset = self.shown if restarted else self.shown - start
