"""Where the parts of a rack's equipment are, and what one round told of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.model import Labels, Metric


class RackPart(NamedTuple):
    """A part of a unit: the unit's Id, what kind of part it is, and its own name."""

    unit: str
    kind: str
    name: str


class PartDocument(NamedTuple):
    """A document that is read each round, and the part that it is about."""

    part: RackPart
    path: str


class Told(NamedTuple):
    """What a document says: states of parts, and values with the labels that follow those of the unit."""

    states: Iterable[tuple[RackPart, str | None]] = ()
    values: Iterable[tuple[Metric, Labels, float | None]] = ()


class RackSeen(NamedTuple):
    """What a round told: states by part, values by row and labels, and what was wrong with single documents."""

    states: dict[RackPart, str]
    values: dict[tuple[Metric, Labels], float]
    problems: tuple[str, ...]
    calls: int
