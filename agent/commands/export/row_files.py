"""Recordings as rows in the order of time: CSV with a row for each value or each snapshot, and lines of JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import NamedTuple, TextIO

from agent.commands.export.selected_snapshots import SelectedSnapshots
from agent.model import Layout, Series
from exporters.encoder import escape_label, labels_of


class Row(NamedTuple):
    """One value. `labels` are in Prometheus's notation, without the braces."""

    wall: float
    node: str
    metric: str
    labels: str
    value: float


COLUMNS = ("time", "node", "metric", "labels", "value")


def rows_of(snapshots: SelectedSnapshots) -> Iterator[Row]:
    """Every value. Raises RecordingError."""
    known: dict[Layout, list[tuple[str, str]]] = {}
    for node, wall, frames in snapshots:
        for layout, values in frames:
            names = known.get(layout)
            if names is None:
                names = known[layout] = [(each.metric.name, _labels(each)) for each in layout.series]
            for (metric, labels), value in zip(names, values, strict=True):
                yield Row(wall, node, metric, labels, value)


def write_long(snapshots: SelectedSnapshots, out: TextIO) -> None:
    """CSV with a row for each value. Raises RecordingError."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    moment = _moments()
    writer.writerows((moment(wall), *others) for wall, *others in rows_of(snapshots))


def write_wide(snapshots: SelectedSnapshots, out: TextIO) -> None:
    """CSV with a row for each snapshot and a column for each series; a cell is empty where there was no value.

    The recordings are gone through twice. Raises RecordingError.
    """
    columns: dict[Series, int] = {}
    for snapshot in snapshots:
        for frame in snapshot.frames:
            for series in frame.layout.series:
                columns.setdefault(series, len(columns))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time", "node", *map(_named, columns)])
    moment = _moments()
    places: dict[Layout, list[int]] = {}
    for node, wall, frames in snapshots:
        row: list[object] = [""] * len(columns)
        for layout, values in frames:
            if layout not in places:
                places[layout] = [columns[each] for each in layout.series]
            for place, value in zip(places[layout], values, strict=True):
                row[place] = value
        writer.writerow([moment(wall), node, *row])


def write_json_lines(snapshots: SelectedSnapshots, out: TextIO) -> None:
    """A JSON object in a line for each value; `time` is in seconds since the epoch. Raises RecordingError."""
    known: dict[tuple[str, Layout], list[str]] = {}
    for node, wall, frames in snapshots:
        start = f'{{"time":{wall:.3f},'
        for layout, values in frames:
            middles = known.get((node, layout))
            if middles is None:
                middles = known[node, layout] = [_json_middle(node, each) for each in layout.series]
            out.writelines([f"{start}{middle}{value!r}}}\n" for middle, value in zip(middles, values, strict=True)])


def _json_middle(node: str, series: Series) -> str:
    parts = {"node": node, "metric": series.metric.name, "labels": dict(labels_of(series))}
    return json.dumps(parts, separators=(",", ":"))[1:-1] + ',"value":'


def _labels(series: Series) -> str:
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in labels_of(series))


def _named(series: Series) -> str:
    labels = _labels(series)
    return f"{series.metric.name}{{{labels}}}" if labels else series.metric.name


def _moments() -> Callable[[float], str]:
    """Wall seconds in ISO 8601; hundreds of rows have the same."""
    last: tuple[float, str] = (float("nan"), "")

    def moment(wall: float) -> str:
        nonlocal last
        if wall != last[0]:
            text = datetime.fromtimestamp(wall, timezone.utc).isoformat(timespec="milliseconds")
            last = wall, text.replace("+00:00", "Z")
        return last[1]

    return moment
