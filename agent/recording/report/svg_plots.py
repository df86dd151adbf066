"""Plots over time as SVG in a page: a line for each GPU and a band from the lowest to the highest value of any.

The band holds what happened within each part of the grid: a peak of one snapshot in a day is seen.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil, floor, log10

from msgspec import Struct

from agent.recording.report.series_statistics import Envelope, TimeGrid

WIDTH, HEIGHT = 960, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 8, 12, 28
_ROUND_SECONDS = (5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two marks of the axis of time."""


class PlotCurve(Struct, frozen=True):
    """The plotted values of one GPU or port: `style` is the class that colours its line."""

    title: str
    envelopes: Sequence[Envelope]
    """Those that are added up, such as traffic sent and received."""
    style: str

    def means(self) -> list[float | None]:
        """Return the mean of each part of the grid; None where one of the envelopes has none."""
        rows = zip(*(envelope.means() for envelope in self.envelopes), strict=True)
        present = ([value for value in row if value is not None] for row in rows)
        return [sum(values) if len(values) == len(self.envelopes) else None for values in present]

    def extremes(self) -> Iterator[tuple[float, float] | None]:
        """Yield the lowest and the highest value in each part; of several envelopes the sums, which bound the truth."""
        for part in range(self.envelopes[0].grid.count):
            if all(envelope.seconds[part] for envelope in self.envelopes):
                yield (
                    sum(envelope.lows[part] for envelope in self.envelopes),
                    sum(envelope.highs[part] for envelope in self.envelopes),
                )
            else:
                yield None


def plot(
    grid: TimeGrid,
    curves: Sequence[PlotCurve],
    drawn: Sequence[PlotCurve],
    *,
    unit: str,
    scale: float,
    spans: Sequence[tuple[float, float, str]],
) -> str:
    """Return one plot as an SVG element; titles must be escaped already.

    All `curves` make the band, those `drawn` have lines. Values are divided by `scale` to be in `unit`; an axis
    of per cent ends at 100. `spans` are wall seconds, from and until, that are marked, and what they are.
    """
    band = [
        (min(low for low, _ in present) / scale, max(high for _, high in present) / scale) if present else None
        for parts in zip(*(curve.extremes() for curve in curves), strict=True)
        for present in [[part for part in parts if part is not None]]
    ]
    top = 1.0 if unit == "%" else _axis_end(max((high for _, high in filter(None, band)), default=0.0))
    place = _PlotArea(grid, top)
    body = [*_axes(grid, place, top, unit), *_marks(place, spans), _band(place, band)]
    for curve in drawn:
        values = [value / scale if value is not None else None for value in curve.means()]
        body.append(f'<path class="line {curve.style}" d="{_line(place, values)}"><title>{curve.title}</title></path>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(body)}</svg>'


class _PlotArea:
    """Where in the picture a part of the grid, a moment and a value are."""

    def __init__(self, grid: TimeGrid, top: float) -> None:
        self._grid, self._top = grid, top
        self._step = (WIDTH - _LEFT - _RIGHT) / grid.count

    def x(self, part: float) -> float:
        return _LEFT + (part + 0.5) * self._step

    def at(self, wall: float) -> float:
        part = min(max((wall - self._grid.start) / self._grid.width, 0.0), float(self._grid.count))
        return _LEFT + part * self._step

    def y(self, value: float) -> float:
        share = min(max(value / self._top, 0.0), 1.0)
        return _TOP + (1 - share) * (HEIGHT - _TOP - _BOTTOM)


def _line(place: _PlotArea, values: Sequence[float | None]) -> str:
    pieces = []
    for is_known, run in groupby(enumerate(values), key=lambda pair: pair[1] is not None):
        if is_known:
            points = [f"{place.x(part):.1f} {place.y(value):.1f}" for part, value in run if value is not None]
            # A line of one point would not be seen.
            pieces.append(f"M{'L'.join(points)}" + ("h.1" if len(points) == 1 else ""))
    return "".join(pieces)


def _band(place: _PlotArea, band: Sequence[tuple[float, float] | None]) -> str:
    pieces = []
    for is_known, run in groupby(enumerate(band), key=lambda pair: pair[1] is not None):
        if is_known:
            points = [(part, extremes) for part, extremes in run if extremes is not None]
            upper = [f"{place.x(part):.1f} {place.y(high):.1f}" for part, (_, high) in points]
            lower = [f"{place.x(part):.1f} {place.y(low):.1f}" for part, (low, _) in reversed(points)]
            pieces.append(f"M{'L'.join(upper + lower)}Z")
    return f'<path class="band" d="{"".join(pieces)}"/>'


def _axes(grid: TimeGrid, place: _PlotArea, top: float, unit: str) -> Iterator[str]:
    for quarter in range(0, 5, 2):
        value = top * quarter / 4
        y = place.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        text = f"{value * 100:.0f}%" if unit == "%" else f"{value:.{0 if top >= 10 else 1}f}"
        yield f'<text x="{_LEFT - 6}" y="{y + 7:.1f}" text-anchor="end">{text}</text>'
    span = grid.width * grid.count
    step = next((one for one in _ROUND_SECONDS if span / one <= 7), 86400 * ceil(span / 86400 / 7))
    shape = _time_format(span, step)
    first = ceil(grid.start / step) * step
    for mark in range(first, floor(grid.start + span) + 1, step):
        yield f'<path class="grid" d="M{place.at(mark):.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
        text = _clock(shape, mark)
        yield f'<text x="{place.at(mark):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{text}</text>'


def _time_format(span: float, step: int) -> str:
    if span > 86400:
        return "%m-%d %H:%M"
    return "%H:%M" if step >= 60 else "%H:%M:%S"


def _clock(shape: str, wall: int) -> str:
    try:
        return time.strftime(shape, time.gmtime(wall))
    except (ValueError, OverflowError, OSError):  # a file may say that it is of any time
        return ""


def _marks(place: _PlotArea, spans: Sequence[tuple[float, float, str]]) -> Iterator[str]:
    for first, last, title in spans:
        x = place.at(first)
        width = max(place.at(last) - x, 1.5)
        yield (
            f'<rect class="mark" x="{x:.1f}" y="{_TOP}" width="{width:.1f}" height="{HEIGHT - _TOP - _BOTTOM}">'
            f"<title>{title}</title></rect>"
        )


def _axis_end(highest: float) -> float:
    """Return the end of an axis that holds a value: a round number."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** floor(log10(highest))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20) if highest <= step * power * 1.0000001)
