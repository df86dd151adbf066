"""Chooses the format and encoding by the client's Accept and Accept-Encoding headers (RFC 9110, 12.5).

OpenMetrics only for clients that name it, in a supported version; all others, including browsers and
scrapers with unusual preferences, get Prometheus text, which is better than an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from exporters.encoder import Format

_OPENMETRICS_VERSIONS = frozenset({"", "1.0.0"})
_TEXT_VERSIONS = frozenset({"", "0.0.4", "1.0.0"})  # 1.0.0 only adds quoted names, and there are none here


_MOST_WISHES = 32
"""Most items of a header that are examined; a header of commas has room for thousands."""


class _Wish(NamedTuple):
    value: str
    version: str
    weight: float


def choose_format(accept: str) -> Format:
    """The format that the client prefers; OpenMetrics if it accepts both equally."""
    openmetrics = text = 0.0
    specific: int = -1
    for wish in _wishes(accept):
        if wish.value == "application/openmetrics-text" and wish.version in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, wish.weight)
        rank = _text_rank(wish)
        if rank > specific:
            specific, text = rank, wish.weight
        elif rank == specific >= 0:
            text = max(text, wish.weight)
    return Format.OPENMETRICS if openmetrics > 0.0 and openmetrics >= text else Format.TEXT


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether gzip may be used: named, or covered by a star, and not with a weight of 0."""
    weights = {wish.value: wish.weight for wish in _wishes(accept_encoding)}
    for name in ("gzip", "x-gzip", "*"):
        if name in weights:
            return weights[name] > 0.0
    return False


def _text_rank(wish: _Wish) -> int:
    """How specifically an item of Accept means our text format; the most specific one decides. -1: not at all."""
    if wish.value == "text/plain" and wish.version in _TEXT_VERSIONS:
        return 2
    return {"text/*": 1, "*/*": 0}.get(wish.value, -1)


def _wishes(header: str) -> Iterator[_Wish]:
    for item in header.split(",", _MOST_WISHES)[:_MOST_WISHES]:
        value, *parameters = (part.strip() for part in item.split(";", _MOST_WISHES)[:_MOST_WISHES])
        if not value:
            continue
        named = dict(_parameter(each) for each in parameters)
        yield _Wish(value.lower(), named.get("version", ""), _weight(named.get("q", "1")))


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _weight(text: str) -> float:
    """A weight from 0 to 1; a malformed one counts as not given."""
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0.0 <= weight <= 1.0 else 1.0
