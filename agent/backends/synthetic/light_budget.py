"""How errors of an optical link follow the light that its receiver gets, and their integral while light is lost.

A lane of PAM4 with thermal noise has a margin Q in proportion to the light, and 0.375 erfc(Q / sqrt(2)) wrong bits;
below that lies a floor of what the transmitter spoils. RS(544,514) of 400G links corrects 15 symbols of 10 bits in a
codeword of 544 (IEEE 802.3 clause 119), errors taken as independent.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from math import erfc, exp, factorial, sqrt
from typing import NamedTuple

from agent.backends.synthetic.scenario import ScenarioFault

LANES = 4
"""Of 400GBASE-DR4."""
RECEIVED_DBM, SENT_DBM = -0.5, 1.0
"""Of a healthy lane."""
WARNING_DBM, ALARM_DBM = -5.9, -8.9
"""What modules of this kind set as their lower limits."""
LIMIT_DBM = -6.5
"""Where a lane alone has all the errors that the code can correct: 2.4e-4 of its bits, a margin of Q_AT_LIMIT."""
Q_AT_LIMIT = 3.42
FLOOR = 1e-10
SYMBOLS, SYMBOL_BITS, CORRECTABLE = 544, 10, 15
STEPS = 128
"""Steps of the integral over the time in which light goes away."""


class ErrorRates(NamedTuple):
    """Of a link, in a second."""

    bits: float  # wrong before correction
    corrected: float  # codewords
    lost: float  # codewords


def watts_of(dbm: float) -> float:
    """Light in watts."""
    return float(1e-3 * 10.0 ** (dbm / 10.0))


def error_ratio(loss: float) -> float:
    """Wrong bits of a lane that lost so many decibels of its light, as a share of its bits."""
    margin = Q_AT_LIMIT * 10.0 ** ((RECEIVED_DBM - loss - LIMIT_DBM) / 10.0)
    return FLOOR + 0.375 * erfc(margin / sqrt(2.0))


def error_rates(loss: float, lanes: int, bits: float) -> ErrorRates:
    """Of a link of `bits` a second; so many of its lanes lost `loss` decibels. Codewords are spread over all lanes."""
    wrong = (lanes * error_ratio(loss) + (LANES - lanes) * FLOOR) / LANES
    codewords = bits / (SYMBOLS * SYMBOL_BITS)
    mean = SYMBOLS * (1.0 - (1.0 - wrong) ** SYMBOL_BITS)
    lost = _tail(mean)
    return ErrorRates(wrong * bits, (1.0 - exp(-mean) - lost) * codewords, lost * codewords)


def _tail(mean: float) -> float:
    """How often there are more wrong symbols than can be corrected, by Poisson."""
    terms = (mean**count / factorial(count) for count in range(CORRECTABLE + 1, CORRECTABLE + 40))
    return exp(-mean) * sum(terms)


class LightLoss:
    """One fault of light: the decibels that are lost, and the errors beyond those of a healthy link."""

    def __init__(self, fault: ScenarioFault, bits: float) -> None:
        self.window = fault.window
        self._loss, self._ramp = fault.parameters["loss"], fault.parameters["ramp"]
        lane = int(fault.parameters["lane"])
        self.lanes = (lane,) if lane else tuple(range(1, LANES + 1))
        healthy = error_rates(0.0, LANES, bits)
        steps = [
            ErrorRates(*(a - b for a, b in zip(self._rates(step / STEPS, bits), healthy, strict=True)))
            for step in range(STEPS + 1)
        ]
        self._times = [self._ramp * step / STEPS for step in range(STEPS + 1)]
        self._after = steps[-1]
        self._sums = [ErrorRates(0.0, 0.0, 0.0)]
        for before, each in pairwise(steps):
            self._sums.append(_added(self._sums[-1], _added(before, each), self._ramp / STEPS / 2.0))

    def _rates(self, share: float, bits: float) -> ErrorRates:
        return error_rates(self._loss * share, len(self.lanes), bits)

    def decibels(self, t: float) -> float:
        """What is lost at `t`."""
        begun = self.window.begun(t)
        if begun is None:
            return 0.0
        return self._loss * (min(1.0, (t - begun) / self._ramp) if self._ramp else 1.0)

    def errors(self, t: float) -> ErrorRates:
        """All that it has brought by `t`."""
        times = self.window.started(t)
        if not times:
            return self._sums[0]
        start = self.window.at + (times - 1) * (self.window.repeat or 0.0)
        now, length = max(0.0, t - start), self.window.duration
        if length is None:
            length = self.window.repeat or now
        return _added(self._since(min(now, length)), self._since(length), times - 1.0)

    def _since(self, seconds: float) -> ErrorRates:
        """The errors of the first seconds of an occurrence."""
        if seconds >= self._ramp:
            return _added(self._sums[-1], self._after, seconds - self._ramp)
        step = bisect_right(self._times, seconds) - 1
        share = (seconds - self._times[step]) / (self._ramp / STEPS)
        first, last = self._sums[step], self._sums[step + 1]
        return ErrorRates(*(a + (b - a) * share for a, b in zip(first, last, strict=True)))


def _added(first: ErrorRates, second: ErrorRates, factor: float = 1.0) -> ErrorRates:
    return ErrorRates(*(a + factor * b for a, b in zip(first, second, strict=True)))
