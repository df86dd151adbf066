"""Limits the time and memory of one evaluation; the code that does the work calls it.

All iteration over elements or samples goes through `Budget.iterate`, and code that stores samples counts them by
`Budget.hold`. Limits are checked only in these calls, so the work between two of them must be small.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import Struct

from alerts.limits import DEADLINE_SECONDS, MAX_SAMPLES, SAMPLES_PER_ELEMENT, UNITS_PER_CHECK
from alerts.promql.labels import LimitError

T = TypeVar("T")


class SampleLedger(Struct, eq=False):
    """The memory that all rules keep between evaluations, counted in samples (see `alerts.limits`)."""

    remembered: int = 0
    """For the label sets that queries cache between evaluations."""
    kept: int = 0
    """For alerts, and series written by rules."""


class Budget:
    """The budget of one evaluation: of a rule with its templates, or of a query.

    The time of `seconds` starts now, by `timer`; without a timer there is no deadline. At most `samples` may be held at
    once.
    """

    __slots__ = ("_deadline", "_max_samples", "_timer", "_units_to_check", "held", "labels", "ledger")

    def __init__(
        self,
        timer: Callable[[], float] = lambda: 0.0,
        ledger: SampleLedger | None = None,
        *,
        seconds: float = DEADLINE_SECONDS,
        samples: float = MAX_SAMPLES,
    ) -> None:
        self._timer = timer
        self._deadline = timer() + seconds
        self._max_samples = samples
        self._units_to_check = UNITS_PER_CHECK
        self.ledger = SampleLedger() if ledger is None else ledger
        self.held = 0
        """Samples held now. Code that releases its samples sets this back to the value from before."""
        self.labels = 0
        """Samples that new label sets count for; they are held until the evaluation ends."""

    def spend(self, units: int) -> None:
        """Count units of work that are about to be done. Raises LimitError after the deadline."""
        self._units_to_check -= units
        if self._units_to_check <= 0:
            self._units_to_check = UNITS_PER_CHECK
            if self._timer() > self._deadline:
                raise LimitError("query timed out in expression evaluation")

    def iterate(self, items: Sequence[T], units: int = 1) -> Iterable[T]:
        """Iterate over a list or an array, and spend `units` of work for each item."""
        work = len(items) * units
        if work > UNITS_PER_CHECK:
            return chain.from_iterable(self._strides(items, UNITS_PER_CHECK // units))
        self._units_to_check -= work
        if self._units_to_check <= 0:
            self.spend(0)
        return items

    def _strides(self, items: Sequence[T], length: int) -> Iterator[Sequence[T]]:
        for start in range(0, len(items), length):
            self.spend(UNITS_PER_CHECK)
            yield items[start : start + length]

    def hold(self, samples: int) -> None:
        """Count samples that are held from now on. Raises LimitError if that exceeds the limit."""
        self.held += samples
        self.fit(0)

    def fit(self, samples: int) -> None:
        """Raise LimitError if this many more samples would exceed the limit."""
        if self.held + self.labels + samples > self._max_samples:
            raise LimitError("query processing would load too many samples into memory in query execution")

    def hold_result(self, held_before: int, elements: int) -> None:
        """Set the held samples to `held_before`, and hold a result of `elements` elements."""
        self.held = held_before
        self.hold(SAMPLES_PER_ELEMENT * elements)

    def remember(self, samples: int) -> None:
        """Count the samples of new label sets. Raises LimitError if that exceeds the limit."""
        self.labels += samples
        self.fit(0)
