"""The functions of templates: those of Prometheus that rules use, and Go's own for logic and comparison.

Each has its arity, so that a call with too few or too many arguments is refused when the file is read.
`query` is not here: it needs the series, and the renderer has them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from alerts import durations
from alerts.promql import PromqlError
from alerts.promql.matchers import compile_regex
from alerts.template import humanize
from alerts.template.errors import RenderError, TemplateError
from alerts.template.printf import sprintf
from alerts.template.values import Element, Value, show, truth, type_name


class Called(NamedTuple):
    """A function and how many arguments it takes; `most` is None where there is no limit."""

    call: Callable[..., Value]
    least: int
    most: int | None


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


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(compile_regex(text).pattern, re.ASCII)  # here, unlike in a matcher, a dot is no newline
    except PromqlError as error:
        raise RenderError(str(error)) from None


def _match(pattern: Value, text: Value) -> bool:
    return _pattern(_text(pattern)).search(_text(text)) is not None


def _replace_all(pattern: Value, replacement: Value, text: Value) -> str:
    def expand(match: re.Match[str]) -> str:
        def group(reference: re.Match[str]) -> str:
            if reference[0] == "$$":
                return "$"
            name = reference[1] or reference[2]
            try:
                return match[int(name) if name.isdigit() else name] or ""
            except IndexError:
                return ""

        return re.sub(r"\$\$|\$\{(\w+)\}|\$(\w+)", group, _text(replacement))

    return _pattern(_text(pattern)).sub(expand, _text(text))


def _title(value: Value) -> str:
    return re.sub(r"(?<![\w])[^\W\d_]", lambda letter: letter[0].upper(), _text(value))


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


def _sort_by_label(name: Value, of: Value) -> Value:
    key = _text(name)
    return sorted(_result(of), key=lambda each: each.labels.get(key, ""))


def _index(value: Value, *keys: Value) -> Value:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(_text(key), "")
        elif isinstance(value, (str, list)) and isinstance(key, int) and not isinstance(key, bool):
            if not 0 <= key < len(value):
                raise RenderError(f"index out of range: {key}")
            value = value.encode()[key] if isinstance(value, str) else value[key]
        else:
            raise RenderError(f"can't index {type_name(value)} with {type_name(key)}")
    return value


def _len(value: Value) -> int:
    if isinstance(value, str):
        return len(value.encode())
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
    done = ""
    for position, value in enumerate(values):
        if position and not isinstance(value, str) and not isinstance(values[position - 1], str):
            done += " "
        done += "<nil>" if value is None else show(value)
    return done


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
    "match": Called(_match, 2, 2),
    "ne": Called(_ne, 2, 2),
    "not": Called(lambda value: not truth(value), 1, 1),
    "or": Called(_or, 1, None),
    "parseDuration": Called(_parse_duration, 1, 1),
    "print": Called(_print, 0, None),
    "printf": Called(_printf, 1, None),
    "reReplaceAll": Called(_replace_all, 3, 3),
    "sortByLabel": Called(_sort_by_label, 2, 2),
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
