"""The time and memory that one evaluation may use, checked by the code that does the work.

All iteration over elements or samples goes through `each`, and code that keeps some reports them to `hold`; both
cost next to nothing. The limits are checked between two pieces of work and never within one: no piece may be large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from alerts.limits import DEADLINE_SECONDS, ELEMENT, MOST_SAMPLES, STRIDE
from alerts.promql.labels import LimitError

T = TypeVar("T")

_TOO_MANY = "query processing would load too many samples into memory in query execution"


class SampleLedger:
    """The memory that all rules keep between evaluations, counted in samples (see `alerts.limits`)."""

    __slots__ = ("kept", "remembered")

    def __init__(self) -> None:
        self.remembered = 0
        """Label sets that queries remember, which only make them faster."""
        self.kept = 0
        """Alerts, and series written by rules."""


class Budget:
    """The budget of one evaluation, that of a rule with its templates or that of a query.

    `timer` gives seconds, and the time starts now; without a timer there is no deadline. At most `samples` may be held
    at once.
    """

    __slots__ = ("_end", "_most", "_timer", "_until_look", "held", "labels", "ledger")

    def __init__(
        self,
        timer: Callable[[], float] = lambda: 0.0,
        ledger: SampleLedger | None = None,
        *,
        seconds: float = DEADLINE_SECONDS,
        samples: float = MOST_SAMPLES,
    ) -> None:
        self._timer = timer
        self._end = timer() + seconds
        self._most = samples
        self._until_look = STRIDE
        self.ledger = SampleLedger() if ledger is None else ledger
        self.held = 0
        """Samples that are held now. Code that is done with some sets it back to what it was before."""
        self.labels = 0
        """Samples that the new label sets count for; they stay until the end."""

    def spend(self, units: int) -> None:
        """Count work that is about to be done. Raises LimitError after the deadline."""
        self._until_look -= units
        if self._until_look <= 0:
            self._until_look = STRIDE
            if self._timer() > self._end:
                raise LimitError("query timed out in expression evaluation")

    def each(self, items: Sequence[T], units: int = 1) -> Iterable[T]:
        """Go through a list or an array, spending `units` of work for each item."""
        work = len(items) * units
        if work > STRIDE:
            return chain.from_iterable(self._strides(items, STRIDE // units))
        self._until_look -= work
        if self._until_look <= 0:
            self.spend(0)
        return items

    def _strides(self, items: Sequence[T], length: int) -> Iterator[Sequence[T]]:
        for start in range(0, len(items), length):
            self.spend(STRIDE)
            yield items[start : start + length]

    def hold(self, samples: int) -> None:
        """Count samples that are held from now on. Raises LimitError if they are too many."""
        self.held += samples
        if self.held + self.labels > self._most:
            raise LimitError(_TOO_MANY)

    def fit(self, samples: int) -> None:
        """Raise LimitError if this many more samples would be too many."""
        if self.held + self.labels + samples > self._most:
            raise LimitError(_TOO_MANY)

    def settle(self, before: int, elements: int) -> None:
        """Release what was held since `before`, except `elements` of a vector."""
        self.held = before
        self.hold(ELEMENT * elements)

    def remember(self, samples: int) -> None:
        """Count new label sets. Raises LimitError if they are too many."""
        self.labels += samples
        if self.held + self.labels > self._most:
            raise LimitError(_TOO_MANY)
