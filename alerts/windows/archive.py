"""The windows as a file, so that rules see after a restart what they saw before it, with a gap as long as it took.

A line with the format and a checksum, a line of JSON that names the series, and then times and values of each as
doubles of this machine.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any, NamedTuple

from agent.lib.state_files import DamagedError, seal, unseal
from agent.model import Labels

FORM = "coldplate-windows-1"
_WIDTH = 8


class ArchivedSeries(NamedTuple):
    """The samples of one series. `live` if the last snapshot had it; a series written by a rule is not."""

    labels: Labels
    live: bool
    times: array[float]
    values: array[float]


class Archive(NamedTuple):
    """The windows at a wall second; `source` names the devices."""

    at: float
    source: str
    series: tuple[ArchivedSeries, ...]


def encode(at: float, source: str, series: Iterable[ArchivedSeries]) -> bytes:
    """Return the content of the file."""
    kept = list(series)
    rows = [[each.labels, each.live, len(each.times)] for each in kept]
    head = json.dumps({"at": at, "source": source, "order": sys.byteorder, "series": rows})
    # Without copies in between: what is allocated and freed every few seconds leaves holes between what stays.
    samples = chain.from_iterable((each.times, each.values) for each in kept)
    return seal(FORM, head.encode("ascii"), b"\n", *samples)


def decode(content: bytes) -> Archive:
    """Return the decoded content of the file. Raises DamagedError."""
    head, _, samples = unseal(FORM, content).partition(b"\n")
    try:
        document = json.loads(head)
        if document["order"] != sys.byteorder:
            raise ValueError(f"was written on a machine with {document['order']} byte order")
        return Archive(float(document["at"]), str(document["source"]), tuple(_series(document["series"], samples)))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DamagedError(f"its content is not understood: {type(error).__name__}: {error}") from error


def _series(rows: Any, samples: bytes) -> Iterable[ArchivedSeries]:
    place = 0
    for pairs, live, count in rows:
        size = int(count) * _WIDTH
        if size <= 0 or place + 2 * size > len(samples):
            raise ValueError("has fewer samples than it says")
        times, values = array("d", samples[place : place + size]), array("d", samples[place + size : place + 2 * size])
        if any(before >= after for before, after in pairwise(times)):
            raise ValueError("has samples out of order")
        labels = tuple((str(name), str(value)) for name, value in pairs)
        yield ArchivedSeries(labels, bool(live), times, values)
        place += 2 * size
