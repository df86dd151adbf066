"""Choose what a client gets by its headers Accept and Accept-Encoding.

OpenMetrics is for clients that name it, in a supported version (RFC 9110, 12.5); all others, including browsers and
scrapers with unusual preferences, get Prometheus text.
"""

from collections.abc import Iterator
from typing import NamedTuple

from exporters.encoder import Format

_OPENMETRICS_VERSIONS = frozenset({"", "1.0.0"})
_TEXT_VERSIONS = frozenset({"", "0.0.4", "1.0.0"})  # 1.0.0 only adds quoted names, which coldplate does not use
_MAX_ENTRIES = 32
"""Most items of a header that are examined; a header of commas has room for thousands."""


class _AcceptEntry(NamedTuple):
    value: str
    version: str
    weight: float


def choose_format(accept: str) -> Format:
    """Return the format that the client prefers; OpenMetrics if it accepts both equally."""
    openmetrics = text = 0.0
    specific: int = -1
    for entry in _accept_entries(accept):
        if entry.value == "application/openmetrics-text" and entry.version in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, entry.weight)
        rank = _text_rank(entry)
        if rank > specific:
            specific, text = rank, entry.weight
        elif rank == specific >= 0:
            text = max(text, entry.weight)
    return Format.OPENMETRICS if openmetrics > 0.0 and openmetrics >= text else Format.TEXT


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether gzip may be used: named, or covered by a star, and not with a weight of 0."""
    weights = {entry.value: entry.weight for entry in _accept_entries(accept_encoding)}
    return next((weights[name] > 0.0 for name in ("gzip", "x-gzip", "*") if name in weights), False)


def _text_rank(entry: _AcceptEntry) -> int:
    """Return how specifically an item of Accept means our text format; the most specific decides; -1: not at all."""
    if entry.value == "text/plain" and entry.version in _TEXT_VERSIONS:
        return 2
    return {"text/*": 1, "*/*": 0}.get(entry.value, -1)


def _accept_entries(header: str) -> Iterator[_AcceptEntry]:
    for item in header.split(",", _MAX_ENTRIES)[:_MAX_ENTRIES]:
        value, *parameters = (part.strip() for part in item.split(";", _MAX_ENTRIES)[:_MAX_ENTRIES])
        if not value:
            continue
        pairs = (parameter.partition("=") for parameter in parameters)
        named = {name.strip().lower(): text.strip().strip('"') for name, _, text in pairs}
        yield _AcceptEntry(value.lower(), named.get("version", ""), _weight(named.get("q", "1")))


def _weight(text: str) -> float:
    """Return a weight from 0 to 1; a malformed one counts as not given."""
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0.0 <= weight <= 1.0 else 1.0
