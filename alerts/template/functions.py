"""The functions of templates: those of Prometheus that rules use, and Go's own for logic and comparison.

Each has its arity, so that a call with too few or too many arguments is refused when the file is read.
`query` is not here: it needs the series, and the renderer has them.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from alerts import durations
from alerts.limits import LONGEST_TEXT
from alerts.regex import Expansion, Regex, RegexError, TextTooLongError, compile_regex
from alerts.template import humanize
from alerts.template.errors import RenderError, TemplateError
from alerts.template.printf import sprintf
from alerts.template.values import Element, Value, joined, octets, show, truth, type_name

Watch = Callable[[int], None]
"""Counts units of work, and raises where they are too many."""
_COMPILED = 100
"""Units of work that it takes to compile a regular expression."""


class Called(NamedTuple):
    """A function and how many arguments it takes; `most` is None where there is no limit.

    One that may take long is `watched`: it is given a `Watch` before its arguments.
    """

    call: Callable[..., Value]
    least: int
    most: int | None
    watched: bool = False


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    raise RenderError(f"wrong type for value; expected string; got {type_name(value)}")


def _element(value: Value) -> Element:
    if isinstance(value, Element):
        return value
    raise RenderError(f"wrong type for value; expected *template.sample; got {type_name(value)}")


def _result(value: Value) -> Sequence[Element]:
    if isinstance(value, list):
        return value
    raise RenderError(f"wrong type for value; expected template.queryResult; got {type_name(value)}")


def pattern(text: str) -> Regex:
    """Compile an expression of a template, where unlike in a matcher a dot is no line break. Raises RenderError."""
    try:
        return compile_regex(text, dot_all=False, groups=True)
    except RegexError as error:
        raise RenderError(f"regular expression {text!r}: {error}") from None


def _match(watch: Watch, regex: Value, text: Value) -> bool:
    watch(_COMPILED + len(_text(text)))
    try:
        return pattern(_text(regex)).found_in(_text(text))
    except TextTooLongError as error:
        raise RenderError(str(error)) from None


def _replace_all(watch: Watch, regex: Value, replacement: Value, text: Value) -> str:
    watch(_COMPILED)
    compiled = pattern(_text(regex))
    try:
        return compiled.replaced(_text(text), Expansion(_text(replacement), compiled.names), LONGEST_TEXT, watch)
    except TextTooLongError as error:
        raise RenderError(str(error)) from None


_WITHIN_WORDS = frozenset("'.:\u2018\u2019\u2024\u00b7\u0387\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a")
"""Marks that end no word where one of its characters follows at once (Unicode's MidLetter and MidNumLet, UAX 29)."""


_OF_WORDS = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc", "Cf"))


def _title(value: Value) -> str:
    """The first letter of each word as a capital, the others as they are, as Prometheus does it since 3.3."""
    text, found, begun = _text(value), [], False
    for index, letter in enumerate(text):
        if letter.islower() or letter.isupper() or letter.istitle():
            found.append(letter if begun else letter.title())
            begun = True
            continue
        found.append(letter)
        within = (
            letter in _WITHIN_WORDS and _of_a_word(text[index - 1 : index]) and _of_a_word(text[index + 1 : index + 2])
        )
        begun = begun and (within or _of_a_word(letter))
    return "".join(found)


def _of_a_word(letter: str) -> bool:
    """Letters, their marks, digits, and what joins them."""
    return bool(letter) and unicodedata.category(letter) in _OF_WORDS


def _split_host_port(text: str) -> tuple[str, str] | None:
    match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)", text)
    return (match[1] if match[1] is not None else match[2], match[3]) if match else None


def _strip_port(value: Value) -> str:
    parts = _split_host_port(_text(value))
    return parts[0] if parts else _text(value)


def _strip_domain(value: Value) -> str:
    text = _text(value)
    host, port = _split_host_port(text) or (text, "")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = host.split(".")[0]
        return f"{host}:{port}" if port else host
    return text


def _parse_duration(value: Value) -> float:
    try:
        return durations.parse(_text(value))
    except ValueError as error:
        raise RenderError(str(error)) from None


def _first(value: Value) -> Value:
    found = _result(value)
    if not found:
        raise RenderError("first() called on vector with no elements")
    return found[0]


def _label(name: Value, of: Value) -> str:
    return _element(of).labels.get(_text(name), "")


def _sort_by_label(watch: Watch, name: Value, of: Value) -> Value:
    key = _text(name)
    watch(len(_result(of)))
    return sorted(_result(of), key=lambda each: each.labels.get(key, ""))


def _index(value: Value, *keys: Value) -> Value:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(_text(key), "")
        elif isinstance(value, (str, list)) and isinstance(key, int) and not isinstance(key, bool):
            if not 0 <= key < _len(value):
                raise RenderError(f"index out of range: {key}")
            value = octets(value)[key] if isinstance(value, str) else value[key]
        else:
            raise RenderError(f"can't index {type_name(value)} with {type_name(key)}")
    return value


def _len(value: Value) -> int:
    if isinstance(value, str):
        return len(octets(value))
    if isinstance(value, (Mapping, list)):
        return len(value)
    raise RenderError(f"len of type {type_name(value)}")


def _kind(value: Value) -> str:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind.__name__
    raise RenderError("non-comparable type")


def _comparable(left: Value, right: Value) -> None:
    if _kind(left) != _kind(right):
        raise RenderError(
            f"incompatible types for comparison: {type_name(left)} and {type_name(right)}; a float needs 80.0, not 80"
        )


def _eq(left: Value, *others: Value) -> bool:
    for right in others:
        _comparable(left, right)
        if left == right:
            return True
    return False


def _ne(left: Value, right: Value) -> bool:
    _comparable(left, right)
    return left != right


def _lt(left: Value, right: Value) -> bool:
    _comparable(left, right)
    if isinstance(left, bool):
        raise RenderError("invalid type for comparison: bool")
    return left < right  # type: ignore[operator] # _comparable made both numbers, or both texts


def _le(left: Value, right: Value) -> bool:
    return _lt(left, right) or left == right


def _and(*values: Value) -> Value:
    return next((value for value in values if not truth(value)), values[-1])


def _or(*values: Value) -> Value:
    return next((value for value in values if truth(value)), values[-1])


def _printf(text: Value, *values: Value) -> str:
    try:
        return sprintf(_text(text), values)
    except TemplateError as error:  # of a text that only the alert's labels made
        raise RenderError(str(error)) from None


def _print(*values: Value) -> str:
    """Go's fmt.Sprint: a space between two neighbours of which neither is a text."""
    pieces = []
    for position, value in enumerate(values):
        if position and not isinstance(value, str) and not isinstance(values[position - 1], str):
            pieces.append(" ")
        pieces.append("<nil>" if value is None else show(value))
    return joined(pieces)


FUNCTIONS: Mapping[str, Called] = {
    "and": Called(_and, 1, None),
    "eq": Called(_eq, 2, None),
    "first": Called(_first, 1, 1),
    "ge": Called(lambda left, right: not _lt(left, right), 2, 2),
    "gt": Called(lambda left, right: not _le(left, right), 2, 2),
    "humanize": Called(humanize.humanize, 1, 1),
    "humanize1024": Called(humanize.humanize1024, 1, 1),
    "humanizeDuration": Called(humanize.humanize_duration, 1, 1),
    "humanizePercentage": Called(humanize.humanize_percentage, 1, 1),
    "humanizeTimestamp": Called(humanize.humanize_timestamp, 1, 1),
    "index": Called(_index, 1, None),
    "label": Called(_label, 2, 2),
    "le": Called(_le, 2, 2),
    "len": Called(_len, 1, 1),
    "lt": Called(_lt, 2, 2),
    "match": Called(_match, 2, 2, watched=True),
    "ne": Called(_ne, 2, 2),
    "not": Called(lambda value: not truth(value), 1, 1),
    "or": Called(_or, 1, None),
    "parseDuration": Called(_parse_duration, 1, 1),
    "print": Called(_print, 0, None),
    "printf": Called(_printf, 1, None),
    "reReplaceAll": Called(_replace_all, 3, 3, watched=True),
    "sortByLabel": Called(_sort_by_label, 2, 2, watched=True),
    "stripDomain": Called(_strip_domain, 1, 1),
    "stripPort": Called(_strip_port, 1, 1),
    "title": Called(_title, 1, 1),
    "toLower": Called(lambda value: _text(value).lower(), 1, 1),
    "toUpper": Called(lambda value: _text(value).upper(), 1, 1),
    "value": Called(lambda of: _element(of).value, 1, 1),
}

CONTEXTUAL: Mapping[str, tuple[int, int]] = {"query": (1, 1), "externalURL": (0, 0), "pathPrefix": (0, 0)}
"""Functions that the renderer supplies, and their arity."""

REFUSED = {
    "args": "define and template are for consoles",
    "call": "there are no functions to call",
    "graphLink": "write the link as text",
    "html": "notifications are not HTML",
    "js": "notifications are not HTML",
    "println": "write the line break as text",
    "safeHtml": "notifications are not HTML",
    "slice": "use reReplaceAll",
    "strvalue": "use value",
    "tableLink": "write the link as text",
    "tmpl": "define and template are for consoles",
    "toTime": "use humanizeTimestamp",
    "urlquery": "notifications are not HTML",
}
"""Functions that Go or Prometheus has and coldplate has not, and what to do instead."""


def arity(name: str) -> tuple[int, int | None] | None:
    """Least and most arguments of a function; None if there is no such function."""
    if name in CONTEXTUAL:
        return CONTEXTUAL[name]
    found = FUNCTIONS.get(name)
    return (found.least, found.most) if found else None
