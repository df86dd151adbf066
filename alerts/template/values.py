"""The values that templates work with, their type names in Go, their errors, and limits on the size of a template.

A closed set: nil, booleans, integers and floats, strings, maps of strings, the result of `args`,
query results, samples, the alert, and the results of `toTime` and `toDuration`, with those of Go's methods that need no
time zone. The budget of its evaluation limits one rendering (see `alerts.limits`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import NamedTuple, Union

from alerts.limits import LONGEST_TEXT

LONGEST_TEMPLATE = 65_536
"""Characters of a template."""

DEEPEST_NESTING = 100
"""Levels of branches and parentheses; an `else if` is not a level.

For each level rendering takes four of the 1,000 nested calls that Python allows, and reading three; so half of them are
left to the caller."""

MOST_TURNS = 10_000
"""Turns of all the `range` of one rendering together, some 50 ms of work."""

WIDEST_VERB = 1000
"""Most characters of the width of a printf verb."""


class TemplateError(Exception):
    """The text is not a valid template; names the construct, its place and the remedy.

    `prometheus_message` is the message of Prometheus for it, after the line: `2: unexpected EOF`.
    """

    def __init__(self, problem: str, prometheus_message: str = "") -> None:
        super().__init__(problem)
        self.prometheus_message = prometheus_message or f"1: {problem}"


class UnknownQueryError(TemplateError):
    """What a template reads by `query` is unknown until an alert fires: Prometheus loads it, and a node does not."""


class RenderError(Exception):
    """A template met a value that it cannot handle, such as a percentage of a word."""


class Element(NamedTuple):
    """One sample of a query's result, as templates see it."""

    labels: Mapping[str, str]
    value: float


class Root(NamedTuple):
    """What `.` is outside of `with` and `range`: the alert."""

    labels: Mapping[str, str]
    value: float
    external_labels: Mapping[str, str]
    external_url: str


class Arguments(dict[str, "Value"]):
    """The result of `args`: its arguments as arg0, arg1 and so on."""

    __slots__ = ()


class Boxed(NamedTuple):
    """A value of which Go knows only that it is one of any type, and says so in its errors."""

    value: Value


class Html(str):
    """A text made by `safeHtml`, which has a type of its own in Go."""

    __slots__ = ()


class Typed(int):
    """A whole number that is not an int in Go: a byte, an int64, or one of a named type such as a month."""

    kind: str
    name: str

    def __new__(cls, value: int, kind: str, name: str = "") -> Typed:  # noqa: PYI034 Self is newer than 3.10
        typed = super().__new__(cls, value)
        typed.kind = kind
        typed.name = name
        return typed


FIELDS = {"Labels": "labels", "Value": "value", "ExternalLabels": "external_labels", "ExternalURL": "external_url"}
_ROOT = "struct { Labels map[string]string; ExternalLabels map[string]string; ExternalURL string; Value interface {} }"
_NAMES: Mapping[type, str] = {
    str: "string", bool: "bool", int: "int", float: "float64", Html: "template.HTML",
    Element: "*template.sample", Root: _ROOT, Arguments: "map[string]interface {}", list: "template.queryResult",
}  # fmt: skip


def unboxed(value: Value | Boxed) -> Value:
    return value.value if isinstance(value, Boxed) else value


def type_name(value: Value) -> str:
    """Return Go's name of a value's type, as its error messages and bad printf verbs show it."""
    if value is None:
        return "<nil>"
    if isinstance(value, Typed):
        return value.kind
    if isinstance(value, (Moment, Span)):
        return value.type_name
    return _NAMES.get(type(value), "map[string]string")


def truth(value: Value) -> bool:
    """Return Go's idea of truth: zero and empty are false. NaN is not zero."""
    if isinstance(value, Span):
        return value.is_pointer or value.nanoseconds != 0
    return value is not None and (isinstance(value, (Element, Root, Moment)) or bool(value))


def joined(pieces: Iterable[str], separator: str = "") -> str:
    """Return texts joined. Raises RenderError if the result is unreasonably long."""
    kept = []
    remaining = LONGEST_TEXT + len(separator)
    for piece in pieces:
        remaining -= len(piece) + len(separator)
        if remaining < 0:
            raise RenderError(f"a text is longer than {LONGEST_TEXT} characters")
        kept.append(piece)
    return separator.join(kept)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLION = 1_000_000
_BILLION = 1_000_000_000
LONGEST_NANOSECONDS = 2**63
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
        """Return what Go's Format does."""
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
        remaining = abs(self.nanoseconds)
        if remaining == 0:
            return "0s"
        sign = "-" if self.nanoseconds < 0 else ""
        if remaining < _BILLION:
            return f"{sign}{_below_a_second(remaining)}"
        hours_and_minutes = ""
        for unit, text in _UNITS:
            if remaining >= unit or hours_and_minutes:
                hours_and_minutes += f"{remaining // unit}{text}"
                remaining %= unit
        return f"{sign}{hours_and_minutes}{_fraction(remaining, _BILLION)}s"


def _below_a_second(nanoseconds: int) -> str:
    if nanoseconds < 1000:
        return f"{nanoseconds}ns"
    if nanoseconds < _MILLION:
        return f"{_fraction(nanoseconds, 1000)}\u00b5s"
    return f"{_fraction(nanoseconds, _MILLION)}ms"


def _fraction(value: int, unit: int) -> str:
    digits = f"{value % unit:0{len(str(unit)) - 1}d}".rstrip("0") if unit > 1 else ""
    return f"{value // unit}.{digits}" if digits else f"{value // unit}"


def to_span(seconds: float) -> Span:
    """Return the duration of these seconds; what 64 bits cannot hold becomes the smallest one, as in Go on x86-64."""
    nanoseconds = seconds * 1e9
    return Span(int(nanoseconds) if abs(nanoseconds) < LONGEST_NANOSECONDS else -LONGEST_NANOSECONDS)


Value = Union[str, bool, int, float, Mapping[str, str], Arguments, list[Element], Element, Root, Moment, Span, None]
