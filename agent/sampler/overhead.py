"""Keeps the agent's processor time within a budget, by steps of longer periods.

It looks ahead: it goes a step further as soon as the time used, with what the present rate adds, would come near to the
budget. It goes a step back only if what that step had saved fits in as well, so that a constant load does not make it
swing. Where that is unknown or long ago, it tries a step back now and then, and ever more rarely if it has to take it
back.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

LOOK_SECONDS = 5.0
"""Seconds between two looks."""
START_SECONDS = 30.0
"""Seconds at the beginning that do not count: reading rules and opening devices is not what sampling costs."""
SPAN_SECONDS = 60.0
"""Seconds over which the budget is to be kept."""
RECENT_SECONDS = 15.0
"""Seconds over which the present rate is measured, and within which no second decision is made."""
BRINK, ROOM, PROBE = 0.9, 0.8, 0.6
"""Shares of the budget: what is foreseen may come up to the first; a step back must be foreseen within the second;
below the third it may be tried: no step back more than doubles the cost, and it is noticed within a third of the span.
"""
PROBE_SECONDS, RAREST_PROBE_SECONDS = 600.0, 4 * 3600.0
"""Seconds on one step until one back is tried, doubled each time that had to be taken back, up to the second."""
REGRET_SECONDS = 300.0
"""A step further so soon after one back takes it back."""
SETTLED_SECONDS = 3600.0
"""Seconds without any slowing after which trying is as frequent as at first."""


class _Spent(NamedTuple):
    at: float
    seconds: float


class OverheadGovernor:
    """Decides on the step.

    `budget` is a share of one core; `rounds` has the seconds after which all reads of each step have come by.
    """

    def __init__(self, budget: float, rounds: Sequence[float]) -> None:
        self.budget = budget
        self.step = 0
        self._rounds = tuple(rounds)
        self._looks: deque[_Spent] = deque()
        self._began: float | None = None
        self._changed_at = 0.0
        self._before: float | None = None
        """The load before the step that was gone last, as long as it is compared with what came of it."""
        self._savings = [0.0] * len(self._rounds)
        """What the step after each saved when it was gone last, as a share of one core."""
        self._eased_at: float | None = None
        self._probe = PROBE_SECONDS

    @property
    def load(self) -> float | None:
        """The share of one core in the last minute; None in the first seconds."""
        return self._mean(SPAN_SECONDS)

    @property
    def state(self) -> str:
        """`normal`: all lanes are read as configured; `slowed`: not; `exhausted`: the last step does not suffice."""
        is_over = (self.load or 0.0) > self.budget
        if is_over and self.step == len(self._rounds) - 1 and self._looks[-1].at - self._changed_at >= SPAN_SECONDS:
            return "exhausted"  # the last step was in force for the whole minute
        return "slowed" if self.step else "normal"

    def change(self, budget: float, rounds: Sequence[float]) -> None:
        """Continue with other limits. What was learned of other steps no longer counts."""
        if (budget, tuple(rounds)) != (self.budget, self._rounds):
            self.budget, self._rounds = budget, tuple(rounds)
            self.step = min(self.step, len(self._rounds) - 1)
            self._savings = [0.0] * len(self._rounds)
            self._before = self._eased_at = None
            self._probe = PROBE_SECONDS

    def is_due(self, at: float) -> bool:
        """Return whether it looks again at this monotonic second."""
        return self._is_starting(at) or at - self._looks[-1].at >= LOOK_SECONDS

    def _is_starting(self, at: float) -> bool:
        return self._began is None or at - self._began < START_SECONDS

    def observe(self, at: float, seconds: float) -> bool:
        """Take in the processor time used so far, at a monotonic second; returns whether the step has changed."""
        if not self.is_due(at):
            return False
        if self._is_starting(at):
            self._began = at if self._began is None else self._began
            self._looks = deque((_Spent(at, seconds),))
            self._changed_at = at
            return False
        self._looks.append(_Spent(at, seconds))
        while at - self._looks[1].at >= max(SPAN_SECONDS, self._rounds[self.step]):
            self._looks.popleft()
        held = at - self._changed_at
        if held < RECENT_SECONDS:
            return False
        return self._go_further(at, held) or self._go_back(at, held)

    def _go_further(self, at: float, held: float) -> bool:
        span = min(held, SPAN_SECONDS - RECENT_SECONDS)
        past, recent = self._mean(span), self._mean(RECENT_SECONDS)
        assert past is not None and recent is not None
        foreseen = (past * span + recent * RECENT_SECONDS) / (span + RECENT_SECONDS)
        self._record_saving(past, held)
        if foreseen <= BRINK * self.budget or self.step == len(self._rounds) - 1:
            return False
        if self._eased_at is not None and at - self._eased_at < REGRET_SECONDS:
            self._probe, self._eased_at = min(2 * self._probe, RAREST_PROBE_SECONDS), None
        self._before = max(past, recent)
        self._move(1, at)
        return True

    def _go_back(self, at: float, held: float) -> bool:
        if not self.step:
            if held >= SETTLED_SECONDS:
                self._probe = PROBE_SECONDS
            return False
        whole = max(SPAN_SECONDS, self._rounds[self.step])
        if held < whole:
            return False
        load = self._mean(whole)
        assert load is not None
        foreseen = load + min(self._savings[self.step - 1], load)
        if foreseen > ROOM * self.budget and (load > PROBE * self.budget or held < self._probe):
            return False
        self._eased_at = at
        self._before = None
        self._move(-1, at)
        return True

    def _record_saving(self, load: float, held: float) -> None:
        """Compare with the load before the step, until the longest of its reads has come by once."""
        if self._before is not None and self.step:
            self._savings[self.step - 1] = max(self._before - load, 0.0)
            if held >= max(SPAN_SECONDS, self._rounds[self.step]):
                self._before = None

    def _move(self, by: int, at: float) -> None:
        self.step += by
        self._changed_at = at

    def _mean(self, span: float) -> float | None:
        """Return the share of one core over `span` seconds, or over all known looks if they cover less."""
        if len(self._looks) < 2:
            return None
        last = self._looks[-1]
        # Half a look of tolerance, so that rounding does not make the span one look longer.
        first = next(look for look in self._looks if last.at - look.at <= span + LOOK_SECONDS / 2)
        if first is last:  # the process did not run for longer than that
            first = self._looks[-2]
        return max(last.seconds - first.seconds, 0.0) / (last.at - first.at)
