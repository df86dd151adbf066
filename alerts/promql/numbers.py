"""Arithmetic and dates as in Go and Prometheus: no exception where IEEE 754 defines a result, and Kahan's summation.

Python raises where Go returns an infinity or a NaN; each function here returns Go's result. Those that loop over many
values get the loop as an argument (`Iterate`), because a window may hold hundreds of thousands and time is limited.

Dates are defined for every second that 64 bits can count: Python's end with the year 9999. The calendar is Go's: the
proleptic Gregorian one in UTC, counted from a year so long ago that no count is negative, and wrapping around where 64
bits end.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from functools import reduce
from itertools import chain
from operator import add

NAN = math.nan
INF = math.inf

Floats = Sequence[float]
Iterate = Callable[[Floats], Iterable[float]]
"""Iterates over values, and may raise in between."""

_RUN = 32_768
"""Values that are sorted at once: other threads cannot run meanwhile."""


def divide(dividend: float, divisor: float) -> float:
    """Divide; by zero gives an infinity, or NaN for zero by zero."""
    try:
        return dividend / divisor
    except ZeroDivisionError:
        if dividend == 0 or dividend != dividend:
            return NAN
        return math.copysign(INF, dividend) * math.copysign(1.0, divisor)


def modulo(dividend: float, divisor: float) -> float:
    """Return the remainder with the sign of the dividend."""
    try:
        return math.fmod(dividend, divisor)
    except ValueError:
        return NAN


def power(base: float, exponent: float) -> float:
    """Raise to a power."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = math.fmod(exponent, 2.0) in (1.0, -1.0)
        return -INF if base < 0 and odd else INF
    except ValueError:
        if base == 0:  # zero to a negative power
            odd = math.fmod(exponent, 2.0) in (1.0, -1.0)
            return math.copysign(INF, base) if odd else INF
        return NAN


def exponential(value: float) -> float:
    """Return e to the power of the value."""
    try:
        return math.exp(value)
    except OverflowError:
        return INF


def total(function: Callable[[float], float]) -> Callable[[float], float]:
    """Return a trigonometric function for every number: NaN without a value, an infinity where it is too large."""

    def everywhere(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return NAN
        except OverflowError:  # from the hyperbolic ones; the cosine has no sign
            return math.copysign(INF, value) if function(-1.0) < 0 else INF

    return everywhere


def area_tangent(value: float) -> float:
    """Return the inverse hyperbolic tangent, an infinity at its two ends."""
    return math.copysign(INF, value) if abs(value) == 1 else total(math.atanh)(value)


def logarithm(function: Callable[[float], float], value: float) -> float:
    """Take a logarithm; that of zero is minus infinity, that of a negative number NaN."""
    if value > 0:
        return function(value)
    return -INF if value == 0 else NAN


def square_root(value: float) -> float:
    """Take the square root; NaN below zero."""
    return math.sqrt(value) if value >= 0 else NAN


def floor(value: float) -> float:
    """Round down, leaving NaN and the infinities."""
    return math.copysign(float(math.floor(value)), value) if math.isfinite(value) else value


def ceil(value: float) -> float:
    """Round up, leaving NaN and the infinities."""
    return math.copysign(float(math.ceil(value)), value) if math.isfinite(value) else value


def minimum(first: float, second: float) -> float:
    """Return the smaller one; NaN if either is, unless the other is minus infinity."""
    if first == -INF or second == -INF:
        return -INF
    return NAN if first != first or second != second else min(first, second)


def maximum(first: float, second: float) -> float:
    """Return the larger one; NaN if either is, unless the other is infinity."""
    if first == INF or second == INF:
        return INF
    return NAN if first != first or second != second else max(first, second)


def kahan(increment: float, total: float, carry: float) -> tuple[float, float]:
    """Add with Neumaier's variant of Kahan's summation, as Prometheus does."""
    new = total + increment
    if math.isinf(new):
        return new, 0.0
    if abs(total) >= abs(increment):
        return new, carry + ((total - new) + increment)
    return new, carry + ((increment - new) + total)


def _plain_sum(values: Iterable[float]) -> float:
    return reduce(add, values, 0.0)


# From Python 3.12 on the built-in sum compensates by itself; here the plain total is needed.
_total: Callable[[Iterable[float]], float] = sum if sys.version_info < (3, 12) else _plain_sum


def compensated(values: Floats, iterate: Iterate) -> tuple[float, float]:
    """Sum as a loop of `kahan` would: the plain total and what rounding lost on the way.

    The lost part is the exact difference between the values and their plain total, which `fsum` finds at C speed.
    """
    total = _total(values)
    if math.isfinite(total):
        try:
            return total, math.fsum(chain(values, (-total,)))
        except OverflowError:
            pass  # sums near the largest number are computed the slow way
    total = carry = 0.0
    for value in iterate(values):
        total, carry = kahan(value, total, carry)
    return total, carry


def kahan_sum(values: Floats, iterate: Iterate) -> float:
    """Return the compensated sum."""
    total, carry = compensated(values, iterate)
    return total if math.isinf(total) else total + carry


def mean(values: Floats, iterate: Iterate) -> float:
    """Return the mean of at least one value, through a running mean where the sum would overflow."""
    count = len(values)
    total, carry = compensated(values, iterate)
    if not math.isinf(total) and total == total:
        return total / count + carry / count
    return _running_mean(values, iterate)


def _running_mean(values: Floats, iterate: Iterate) -> float:
    total, carry = values[0], 0.0
    running = False
    for count, value in enumerate(iterate(values[1:]), start=2):
        if not running:
            new_total, new_carry = kahan(value, total, carry)
            if not math.isinf(new_total):
                total, carry = new_total, new_carry
                continue
            running = True
            total /= count - 1
            carry /= count - 1
        share = (count - 1) / count
        total, carry = kahan(value / count, share * total, share * carry)
    return total + carry if running else total / len(values) + carry / len(values)


def variance(values: Floats, iterate: Iterate) -> float:
    """Return the population variance by Welford's method."""
    average = total = 0.0
    for count, value in enumerate(iterate(values), start=1):
        delta = value - average
        average += delta / count
        total += delta * (value - average)
    return total / len(values) if math.isfinite(values[0]) else NAN


def compensated_variance(values: Floats, iterate: Iterate) -> float:
    """Return the population variance by Welford's method with compensated sums, as the `_over_time` functions do."""
    average = average_carry = total = total_carry = 0.0
    for count, value in enumerate(iterate(values), start=1):
        delta = value - (average + average_carry)
        average, average_carry = kahan(delta / count, average, average_carry)
        total, total_carry = kahan(delta * (value - (average + average_carry)), total, total_carry)
    return (total + total_carry) / len(values)


def quantile(share: float, values: Floats, iterate: Iterate) -> float:
    """Return the quantile, interpolated between neighbours; NaN values count as the smallest."""
    if not values or share != share:
        return NAN
    if share < 0:
        return -INF
    if share > 1:
        return INF
    ordered = _ordered(values, iterate)
    rank = share * (len(ordered) - 1)
    lower = max(0, math.floor(rank))
    upper = min(len(ordered) - 1, lower + 1)
    weight = rank - math.floor(rank)
    return ordered[lower] * (1 - weight) + ordered[upper] * weight


def _ordered(values: Floats, iterate: Iterate) -> list[float]:
    """Sort values, NaN first; parts are sorted one by one and merged at the end, which is quick."""
    numbers = [value for value in iterate(values) if value == value]
    for start in range(0, len(numbers) if len(numbers) > _RUN else 0, _RUN):
        numbers[start : start + _RUN] = sorted(iterate(numbers[start : start + _RUN]))
    numbers.sort()
    return [NAN] * (len(values) - len(numbers)) + numbers


def largest(values: Floats) -> float:
    """Return the largest value; NaN only if there is nothing else."""
    # A comparison with NaN is false, so NaN can only be the result if it comes first.
    if values[0] != values[0]:
        return max((value for value in values if value == value), default=NAN)
    return max(values)


def smallest(values: Floats) -> float:
    """Return the smallest value; NaN only if there is nothing else."""
    if values[0] != values[0]:
        return min((value for value in values if value == value), default=NAN)
    return min(values)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CYCLE_YEARS = 400
_CYCLE_SECONDS = 146_097 * 86_400
"""Seconds of 400 years, after which the calendar repeats, with its weekdays."""
_COUNTED_SECONDS = 730_692_556 * _CYCLE_SECONDS + 719_468 * 86_400
"""Seconds from the beginning of Go's count to the epoch; the count wraps around at 64 bits."""
_SMALLEST = -(2**63)


def date_of(seconds: float) -> tuple[int, datetime]:
    """Return the date from seconds since the epoch: its year, and the same date in one of the 400 years from 1970 on.

    A number that 64 bits cannot hold becomes their smallest, as on x86-64.
    """
    whole = int(seconds) if -(2.0**63) <= seconds < 2.0**63 else _SMALLEST
    counted = (whole + _COUNTED_SECONDS) % 2**64
    cycles, rest = divmod(counted - _COUNTED_SECONDS, _CYCLE_SECONDS)
    date = _EPOCH + timedelta(seconds=rest)
    return date.year + cycles * _CYCLE_YEARS, date


def _function(part: Callable[[datetime], int]) -> Callable[[float], float]:
    return lambda value: float(part(date_of(value)[1]))


DATE_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "minute": _function(lambda date: date.minute),
    "hour": _function(lambda date: date.hour),
    "day_of_month": _function(lambda date: date.day),
    "day_of_week": _function(lambda date: date.isoweekday() % 7),
    "day_of_year": _function(lambda date: date.timetuple().tm_yday),
    "days_in_month": _function(lambda date: 32 - (date.replace(day=28) + timedelta(days=4)).day),
    "month": _function(lambda date: date.month),
    "year": lambda value: float(date_of(value)[0]),
}
