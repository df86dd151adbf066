"""A line of the last fifteen minutes for each GPU on the page at `/`: how busy it was."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import groupby

from agent.catalogue import BY_NAME
from agent.model import Entity, PastMoment

BUSY = BY_NAME["coldplate_gpu_utilization_ratio"]
SECONDS = 900.0
POINTS = 60
"""Points of a line; each is the mean of fifteen seconds."""
_HEIGHT = 14
_PAUSE = 32
"""Moments that are looked at without a break: some tenths of a millisecond for eight GPUs."""


def busy_lines(moments: Sequence[PastMoment]) -> Generator[str, None, dict[Entity, str]]:
    """Return an SVG for each GPU that is remembered; yields empty texts often, as pauses for other clients."""
    if not moments:
        return {}
    end = moments[-1].wall
    sums: dict[Entity, list[float]] = {}
    counts: dict[Entity, list[int]] = {}
    for number, moment in enumerate(moments):
        point = POINTS - 1 - int((end - moment.wall) * POINTS / SECONDS)
        if 0 <= point < POINTS:
            for layout, values in moment.parts:
                for series, value in zip(layout.series, values, strict=True):
                    if series.metric is BUSY:
                        sums.setdefault(series.entity, [0.0] * POINTS)[point] += value
                        counts.setdefault(series.entity, [0] * POINTS)[point] += 1
        if number % _PAUSE == 0:
            yield ""
    return {gpu: _drawn(sums[gpu], counts[gpu]) for gpu in sums}


def _drawn(sums: Sequence[float], counts: Sequence[int]) -> str:
    """Draw the means; where nothing was read, the line is interrupted."""
    lines = []
    for is_known, points in groupby(range(POINTS), key=lambda point: counts[point] > 0):
        if is_known:
            known = [(point, _HEIGHT + 1 - _HEIGHT * min(sums[point] / counts[point], 1.0)) for point in points]
            lines.append(f'<polyline points="{" ".join(f"{x},{y:.1f}" for x, y in known)}"/>')
    title = "busy in the last 15 minutes, 0 to 100 %"
    return (
        f'<svg class="line" viewBox="0 0 {POINTS} {_HEIGHT + 2}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(lines)}</svg>"
    )
