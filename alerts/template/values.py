"""The values that templates work with, and how Go prints them.

A closed set: text, whole number, float, truth, map of texts, query result, sample, nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Union

from alerts.limits import LONGEST_TEXT
from alerts.template.errors import RenderError


class Element(NamedTuple):
    """One sample of a query's result, as templates see it."""

    labels: Mapping[str, str]
    value: float


class Root(NamedTuple):
    """What `.` is outside of `with` and `range`: the alert at hand."""

    labels: Mapping[str, str]
    value: float
    external_labels: Mapping[str, str]
    external_url: str


Value = Union[str, bool, int, float, Mapping[str, str], Sequence[Element], Element, Root, None]

FIELDS = {"Labels": "labels", "Value": "value", "ExternalLabels": "external_labels", "ExternalURL": "external_url"}


def type_name(value: Value) -> str:
    """Go's name of a value's type, as its error messages and bad printf verbs show it."""
    if value is None:
        return "<nil>"
    if isinstance(value, Element):
        return "*template.sample"
    if isinstance(value, Mapping):
        return "map[string]string"
    names = {str: "string", bool: "bool", int: "int", float: "float64"}
    return names.get(type(value), "template.queryResult")


def truth(value: Value) -> bool:
    """Go's idea of truth: zero and empty are false. NaN is not zero."""
    return value is not None and (isinstance(value, (Element, Root)) or bool(value))


def octets(text: str) -> bytes:
    """A text's bytes, which Go counts; those that were no characters, of odd file names, are what they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def joined(pieces: Iterable[str]) -> str:
    """Texts put together. Raises RenderError where that is longer than any text has to be."""
    kept = []
    left = LONGEST_TEXT
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise RenderError(f"a text is longer than {LONGEST_TEXT} characters")
        kept.append(piece)
    return "".join(kept)


def special(value: float) -> str | None:
    """The text of a float that has no digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return None


def shortest(value: float) -> str:
    """Go's %v and %g of a float: as few digits as tell it apart, an exponent from 1e+06 on or below 1e-04."""
    odd = special(value)
    if odd is not None:
        return odd
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    power = len(whole) + int(exponent or 0)
    power -= len(whole + fraction) - len((whole + fraction).lstrip("0")) if digits else 0
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0"
    scale = power - 1
    if scale < -4 or scale >= 6:
        return f"{sign}{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e{'-' if scale < 0 else '+'}{abs(scale):02d}"
    if power <= 0:
        return f"{sign}0.{'0' * -power}{digits}"
    if power >= len(digits):
        return f"{sign}{digits}{'0' * (power - len(digits))}"
    return f"{sign}{digits[:power]}.{digits[power:]}"


def show(value: Value) -> str:
    """A value as an action prints it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return shortest(value)
    if isinstance(value, Element):
        return f"{{{show(value.labels)} {shortest(value.value)}}}"
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{name}:{value[name]}' for name in sorted(value))}]"
    raise RenderError(f"a {type_name(value)} has no text; take a value or a label of it")
