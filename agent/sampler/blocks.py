"""The newest readings of each lane of each channel, and when they become stale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.catalogue.bindings import Derived
from agent.model import EMPTY_FRAME, Frame, Gap, Lane, Layout, Reason

Key = tuple[str, str, Lane]
"""Backend, channel (empty for a backend without channels), lane."""


@dataclass(frozen=True, slots=True)
class Block:
    """The last sample of one lane, read at `at` (monotonic seconds)."""

    at: float
    frame: Frame
    gaps: Sequence[Gap]
    withdrawn: Layout = EMPTY_FRAME.layout
    """The series that were shown before a failure, which are now missing."""


def withdrawn(block: Block, at: float, reason: Reason, detail: str) -> Block:
    """The block after a failed read at `at`: its readings are now gaps, with the newest reason."""
    layout = block.frame.layout if len(block.frame.layout) else block.withdrawn
    return Block(at, EMPTY_FRAME, missed(layout, reason, detail), layout)


def missed(layout: Layout, reason: Reason, detail: str) -> list[Gap]:
    """A gap for each metric of these series.

    What the agent computes from a missing metric, such as its rolling mean, gets no gap of its own.
    """
    metrics = {
        (series.metric, series.entity): None
        for series in layout.series
        if not isinstance(series.metric.origin[0], Derived)
    }
    return [Gap(metric, entity, reason, detail) for metric, entity in metrics]


def gaps_for(block: Block, reason: Reason, detail: str) -> list[Gap]:
    """The gaps of a block that is not shown any more: those for its readings, and its own."""
    return missed(block.frame.layout, reason, detail) + list(block.gaps)
