"""The values that templates work with, and their type names in Go.

A closed set: nil, booleans, integers and floats (and complex ones), strings, maps of strings, the result of `args`,
query results, samples, the alert, and times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Union

from alerts.limits import LONGEST_TEXT
from alerts.template.moments import Moment, Span
from alerts.template.template_errors import RenderError


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
        made = super().__new__(cls, value)
        made.kind = kind
        made.name = name
        return made


Value = Union[
    str, bool, int, float, complex, Mapping[str, str], Arguments, list[Element], Element, Root, Moment, Span, None
]

FIELDS = {"Labels": "labels", "Value": "value", "ExternalLabels": "external_labels", "ExternalURL": "external_url"}
_ROOT = "struct { Labels map[string]string; ExternalLabels map[string]string; ExternalURL string; Value interface {} }"
_NAMES: Mapping[type, str] = {
    str: "string", bool: "bool", int: "int", float: "float64", complex: "complex128", Html: "template.HTML",
    Element: "*template.sample", Root: _ROOT, Arguments: "map[string]interface {}", list: "template.queryResult",
}  # fmt: skip


def unboxed(value: Value | Boxed) -> Value:
    return value.value if isinstance(value, Boxed) else value


def type_name(value: Value) -> str:
    """Go's name of a value's type, as its error messages and bad printf verbs show it."""
    if value is None:
        return "<nil>"
    if isinstance(value, Typed):
        return value.kind
    if isinstance(value, (Moment, Span)):
        return value.type_name
    return _NAMES.get(type(value), "map[string]string")


def truth(value: Value) -> bool:
    """Go's idea of truth: zero and empty are false. NaN is not zero."""
    if isinstance(value, Span):
        return value.is_pointer or value.nanoseconds != 0
    return value is not None and (isinstance(value, (Element, Root, Moment)) or bool(value))


def joined(pieces: Iterable[str]) -> str:
    """Texts joined. Raises RenderError if the result is unreasonably long."""
    kept = []
    left = LONGEST_TEXT
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise RenderError(f"a text is longer than {LONGEST_TEXT} characters")
        kept.append(piece)
    return "".join(kept)
