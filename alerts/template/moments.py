"""The results of `toTime` and `toDuration`, with those of Go's methods that need no time zone."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLION = 1_000_000
_BILLION = 1_000_000_000
_LONGEST = 2**63
_UNITS = ((3600 * _BILLION, "h"), (60 * _BILLION, "m"))
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PARTS = re.compile(
    r"2006|06|002|01|02|03|04|05|__2|_2(?!006)|15|January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|PM|pm"
    r"|Z070000|Z07:00:00|Z0700|Z07:00|Z07(?![0-9])|-070000|-07:00:00|-0700|-07:00|-07(?![0-9])"
    r"|[.,]0+(?![0-9])|[.,]9+(?![0-9])|1|2|3|4|5"
)


class Moment(NamedTuple):
    """A time in UTC, in nanoseconds since the epoch. `is_pointer` unless a method returned it."""

    nanoseconds: int
    is_pointer: bool = True

    @property
    def type_name(self) -> str:
        return "*time.Time" if self.is_pointer else "time.Time"

    @property
    def date(self) -> datetime:
        """The time to the microsecond. Raises OverflowError beyond Python's calendar."""
        return _EPOCH + timedelta(microseconds=self.nanoseconds // 1000)

    def __str__(self) -> str:
        fraction = f".{self.nanoseconds % _BILLION:09d}".rstrip("0").rstrip(".")
        return f"{self.date:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"

    def formatted(self, layout: str) -> str:
        """Go's Format."""
        return _PARTS.sub(lambda match: self._part(match[0]), layout)

    def _part(self, part: str) -> str:
        date = self.date
        if part[0] in ".,":
            digits = f"{self.nanoseconds % _BILLION:09d}"[: len(part) - 1]
            digits = digits if part[1] == "0" else digits.rstrip("0")
            return part[0] + digits if digits else ""
        if part[0] == "Z":
            return "Z"
        if part[0] == "-":
            return "+" + re.sub("[0-9]", "0", part[1:])
        day, hour = date.timetuple().tm_yday, date.hour % 12 or 12
        return {
            "2006": f"{date.year:04d}", "06": f"{date.year % 100:02d}", "002": f"{day:03d}", "__2": f"{day:3d}",
            "01": f"{date.month:02d}", "1": f"{date.month}", "January": _MONTHS[date.month - 1],
            "Jan": _MONTHS[date.month - 1][:3], "02": f"{date.day:02d}", "_2": f"{date.day:2d}", "2": f"{date.day}",
            "15": f"{date.hour:02d}", "03": f"{hour:02d}", "3": f"{hour}", "04": f"{date.minute:02d}",
            "4": f"{date.minute}", "05": f"{date.second:02d}", "5": f"{date.second}",
            "Monday": _DAYS[date.weekday()], "Mon": _DAYS[date.weekday()][:3], "MST": "UTC",
            "PM": "PM" if date.hour >= 12 else "AM", "pm": "pm" if date.hour >= 12 else "am",
        }[part]  # fmt: skip

    @property
    def month(self) -> str:
        return _MONTHS[self.date.month - 1]

    @property
    def weekday(self) -> str:
        return _DAYS[self.date.weekday()]


class Span(NamedTuple):
    """A duration in nanoseconds. `is_pointer` unless a method returned it."""

    nanoseconds: int
    is_pointer: bool = True

    @property
    def type_name(self) -> str:
        return "*time.Duration" if self.is_pointer else "time.Duration"

    def __str__(self) -> str:
        left = abs(self.nanoseconds)
        if left == 0:
            return "0s"
        sign = "-" if self.nanoseconds < 0 else ""
        if left < _BILLION:
            unit, text = (1, "ns") if left < 1000 else (1000, "\u00b5s") if left < _MILLION else (_MILLION, "ms")
            return f"{sign}{_fraction(left, unit)}{text}"
        found = ""
        for unit, text in _UNITS:
            if left >= unit or found:
                found += f"{left // unit}{text}"
                left %= unit
        return f"{sign}{found}{_fraction(left, _BILLION)}s"


def _fraction(value: int, unit: int) -> str:
    digits = f"{value % unit:0{len(str(unit)) - 1}d}".rstrip("0") if unit > 1 else ""
    return f"{value // unit}.{digits}" if digits else f"{value // unit}"


def to_moment(seconds: float) -> Moment:
    """The time at this many seconds after the epoch, to the millisecond. Raises ValueError with Prometheus's words."""
    if not math.isfinite(seconds):
        raise ValueError("value is NaN or Inf")
    if not -_LONGEST <= seconds * 1e9 <= _LONGEST:
        raise OverflowError
    nanoseconds = min(max(int(seconds * 1e9), -_LONGEST), _LONGEST - 1)
    milliseconds = -(-nanoseconds // _MILLION) if nanoseconds < 0 else nanoseconds // _MILLION
    return Moment(milliseconds * _MILLION)


def to_span(seconds: float) -> Span:
    """The duration of this many seconds; what 64 bits cannot hold becomes the smallest one, as in Go on x86-64."""
    nanoseconds = seconds * 1e9
    return Span(int(nanoseconds) if abs(nanoseconds) < _LONGEST else -_LONGEST)
