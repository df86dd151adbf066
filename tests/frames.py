"""Frames, snapshots and reads of plain readings."""

from collections.abc import Iterable, Sequence

from agent.backends.protocol import BackendSample
from agent.model import BackendReport, Frame, Framer, Instant, Lane, Outcome, Reading, Reason, Snapshot
from agent.sampler.backend_runner import Read


def frame_of(readings: Iterable[Reading]) -> Frame:
    return Framer().frame(readings)


def snapshot_of(
    sequence: int, at: Instant, readings: Iterable[Reading], reports: Sequence[BackendReport] = ()
) -> Snapshot:
    return Snapshot(sequence, at, (frame_of(readings),), tuple(reports))


def read_of(
    backend: str,
    lane: Lane,
    mono: float,
    duration: float,
    outcome: Outcome,
    sample: BackendSample,
    detail: str = "",
    reason: Reason = Reason.MALFORMED,
) -> Read:
    """A read as the runner reports it."""
    frame = frame_of(sample.readings)
    return Read(backend, lane, mono, duration, outcome, frame, sample, detail, reason)
