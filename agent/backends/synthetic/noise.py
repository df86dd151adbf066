"""Numbers that look random and are functions of a seed: no state, so no read depends on an earlier one."""

from __future__ import annotations

from math import cos, pi, sin

_MASK = (1 << 64) - 1


def mix(*parts: int) -> int:
    """A 64-bit hash of whole numbers (the finaliser of splitmix64, once for each part)."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state + part * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def share(*parts: int) -> float:
    """A number from 0 to 1 (not 1 itself), the same for the same parts."""
    return (mix(*parts) >> 11) * 2.0**-53


def spread(*parts: int) -> float:
    """A number from -1 to 1, the same for the same parts."""
    return 2.0 * share(*parts) - 1.0


class Ripple:
    """A smooth wander between -1 and 1 around 0, together with its exact integral.

    Power is the derivative of energy, to the last digit, only if the noise on it can be integrated: three
    sines whose periods have no common multiple can.
    """

    __slots__ = ("_terms",)

    _PERIODS = (0.73, 5.9, 23.1)
    _WEIGHTS = (0.4, 0.35, 0.25)

    def __init__(self, *seed: int) -> None:
        self._terms = tuple(
            (weight, 2 * pi / (period * (1 + 0.1 * spread(*seed, order))), 2 * pi * share(*seed, order + 100))
            for order, (period, weight) in enumerate(zip(self._PERIODS, self._WEIGHTS, strict=True))
        )

    def value(self, t: float) -> float:
        (a, u, x), (b, v, y), (c, w, z) = self._terms
        return a * cos(u * t + x) + b * cos(v * t + y) + c * cos(w * t + z)

    def integral(self, t: float) -> float:
        (a, u, x), (b, v, y), (c, w, z) = self._terms
        return a / u * sin(u * t + x) + b / v * sin(v * t + y) + c / w * sin(w * t + z)
