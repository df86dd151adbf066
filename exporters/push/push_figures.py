"""What a push tells of itself. Written by its threads, and read by the sampling thread without waiting for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnLayout
from agent.model import Frame, Instant, Labels, Node, Series

REJECTED, EXPIRED, OVERFLOW, DAMAGED = REASONS = ("rejected", "expired", "overflow", "damaged")
"""Why samples never reached the receiver."""


@dataclass(slots=True)
class PushFigures:
    """One push. `oldest` is the time of the oldest sample that is not sent, in wall seconds; None if all are.

    `bytes` and `pending` are None for ever where they are not known.
    """

    name: str
    samples: int = 0
    bytes: int | None = 0
    failures: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    pending: int | None = 0
    oldest: float | None = None
    success: float | None = None
    """When the receiver last took something, in seconds since the epoch."""


class PushSeries:
    """Makes the frame of all pushes."""

    def __init__(self, pushes: Sequence[PushFigures]) -> None:
        self._pushes = pushes
        self._layout = OwnLayout()

    def frame(self, now: Instant) -> Frame:
        """The figures as they are now. For any thread."""
        told = [(each, each.success) for each in self._pushes]
        shape = tuple((each.name, success is None) for each, success in told)
        return self._layout.frame(shape, lambda: _series(told), _values(told, now))


_Told = Iterable[tuple[PushFigures, float | None]]


def _series(told: _Told) -> Iterator[Series]:
    for push, success in told:
        labels = (("push", push.name),)
        for name in ("samples_total", "failures_total", "pending_age_seconds"):
            yield _one(name, labels)
        if push.bytes is not None and push.pending is not None:
            yield _one("bytes_total", labels)
            yield _one("pending_bytes", labels)
        for reason in REASONS:
            yield _one("samples_dropped_total", (*labels, ("reason", reason)))
        if success is not None:
            yield _one("last_success_timestamp_seconds", labels)


def _values(told: _Told, now: Instant) -> Iterator[float]:
    """Those of `_series`, in the same order."""
    for push, success in told:
        oldest = push.oldest
        yield from (push.samples, push.failures)
        yield 0.0 if oldest is None else max(now.wall - oldest, 0.0)
        if push.bytes is not None and push.pending is not None:
            yield from (push.bytes, push.pending)
        yield from (push.dropped[reason] for reason in REASONS)
        if success is not None:
            yield success


def _one(name: str, labels: Labels) -> Series:
    return Series(BY_NAME[f"coldplate_push_{name}"], Node(), labels)
