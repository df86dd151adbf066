"""The date functions, for every second that 64 bits can count: Prometheus's calendar has years of twelve digits.

Python's ends with the year 9999. This is Go's: the proleptic Gregorian one in UTC, counted from a year so long ago that
no count is negative, and wrapping around where 64 bits end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

_DAY_SECONDS = 86_400
_CYCLE_DAYS = 146_097
"""Days of 400 years, after which the calendar repeats."""
_CYCLES = 730_692_556
"""Cycles between the first year of the count and the year 0."""
_EPOCH_DAY = _CYCLES * _CYCLE_DAYS + 719_468
"""1 January 1970 in days since 1 March of that first year."""
_SMALLEST = -(2**63)


class Date(NamedTuple):
    """A second as a date and time."""

    year: int
    month: int
    day: int
    second: int
    """Seconds of the day."""
    weekday: int
    """0 is Sunday."""


def date_of(seconds: float) -> Date:
    """The date from seconds since the epoch. A number that 64 bits cannot hold becomes their smallest, as on x86-64."""
    whole = int(seconds) if -(2.0**63) <= seconds < 2.0**63 else _SMALLEST
    days, second = divmod((whole + _EPOCH_DAY * _DAY_SECONDS) % 2**64, _DAY_SECONDS)
    cycle, day_of_cycle = divmod(days, _CYCLE_DAYS)
    # Years begin in March here, so that the day which some years lack is their last.
    year = (day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36_524 - day_of_cycle // 146_096) // 365
    day_of_year = day_of_cycle - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    return Date((cycle - _CYCLES) * 400 + year + (month <= 2), month, day, second, (days - _EPOCH_DAY + 4) % 7)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _month_days(date: Date) -> int:
    if date.month == 2:
        return 29 if _is_leap(date.year) else 28
    return 30 if date.month in (4, 6, 9, 11) else 31


def _day_of_year(date: Date) -> int:
    before = (153 * ((date.month + 9) % 12) + 2) // 5  # days since the first of March
    return before - 306 + date.day if date.month <= 2 else before + 59 + _is_leap(date.year) + date.day


def _function(part: Callable[[Date], int]) -> Callable[[float], float]:
    return lambda value: float(part(date_of(value if math.isfinite(value) else math.nan)))


DATE_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "minute": _function(lambda date: date.second // 60 % 60),
    "hour": _function(lambda date: date.second // 3600),
    "day_of_month": _function(lambda date: date.day),
    "day_of_week": _function(lambda date: date.weekday),
    "day_of_year": _function(_day_of_year),
    "days_in_month": _function(_month_days),
    "month": _function(lambda date: date.month),
    "year": _function(lambda date: date.year),
}
