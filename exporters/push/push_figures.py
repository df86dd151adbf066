"""What a push tells of itself. Written by its threads, and read by the sampling thread without waiting for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.model import Frame, Instant, Labels

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
        self._own = OwnSeries()

    def frame(self, now: Instant) -> Frame:
        """The figures as they are now. For any thread."""
        return self._own.frame(reading for push in self._pushes for reading in _readings(push, now))


def _readings(push: PushFigures, now: Instant) -> Iterator[OwnReading]:
    labels = (("push", push.name),)
    oldest, success = push.oldest, push.success
    yield _one("samples_total", push.samples, labels)
    yield _one("failures_total", push.failures, labels)
    yield _one("pending_age_seconds", 0.0 if oldest is None else max(now.wall - oldest, 0.0), labels)
    if push.bytes is not None and push.pending is not None:
        yield _one("bytes_total", push.bytes, labels)
        yield _one("pending_bytes", push.pending, labels)
    for reason in REASONS:
        yield _one("samples_dropped_total", push.dropped[reason], (*labels, ("reason", reason)))
    if success is not None:
        yield _one("last_success_timestamp_seconds", success, labels)


def _one(name: str, value: float, labels: Labels) -> OwnReading:
    return OwnReading(f"coldplate_push_{name}", value, labels)
