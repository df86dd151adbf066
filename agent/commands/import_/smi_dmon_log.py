"""Logs of `nvidia-smi dmon`: a table whose header and line of units come again every so many lines.

With `-o DT` each line has its date and time, in the local zone; without, the reader says when it began and how many
seconds lie between two passes. Columns and units are those that `-s pucvmet` shows; its MB are MiB, as a device with
7 MiB in use by `--query-gpu=memory.used` is one with 7 MB here. What a device does not offer is a dash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo

from agent.commands.import_.imported_readings import (
    ImportProblems,
    Target,
    Tick,
    UnsuitableLogError,
    column_readings,
    is_index,
    pass_over,
    target_of,
    up,
)
from agent.lib.wording import shown
from agent.model import Gpu, Reading

REMEDY = "log with: nvidia-smi dmon -s pucm -o DT"
TAGS = {
    "pwr": ("gpu_power_watts", "W"),
    "gtemp": ("gpu_temperature_celsius", "C"),
    "mtemp": ("gpu_memory_temperature_celsius", "C"),
    "sm": ("gpu_utilization_ratio", "%"),
    "mem": ("gpu_memory_activity_ratio", "%"),
    "enc": ("gpu_encoder_utilization_ratio", "%"),
    "dec": ("gpu_decoder_utilization_ratio", "%"),
    "mclk": ("gpu_clock_hertz memory", "MHz"),
    "pclk": ("gpu_clock_hertz sm", "MHz"),
    "fb": ("gpu_memory_used_bytes", "MB"),
}
"""Our row for each column, with the value of its label, and the unit that stands below it."""
_MEBI = {"MB": "MiB"}
_TIMES = ("Date", "Time")


class _Columns:
    """What the words of a line are."""

    def __init__(self, names: list[str], line: int, problems: ImportProblems) -> None:
        self.names = names
        self.is_timed = tuple(names[:2]) == _TIMES
        self.first = names.index("gpu")
        self.targets: dict[int, Target] = {}
        for place, name in enumerate(names[self.first + 1 :], self.first + 1):
            row, unit = TAGS.get(name, ("", ""))
            if not row:
                problems.note(line, f"column {shown(name)} is left out: coldplate has nothing of that kind")
                continue
            self.targets[place] = target_of(row, _MEBI.get(unit, unit))

    def check_units(self, units: list[str], line: int, problems: ImportProblems) -> None:
        """Leave out columns that have another unit than usual."""
        for place in [place for place in self.targets if place < len(units)]:
            name, unit = self.names[place], units[place]
            if unit != TAGS[name][1]:
                problems.note(line, f"column {shown(name)} is left out: its unit {shown(unit)} is not known")
                del self.targets[place]


def is_timed(header: str) -> bool:
    """Whether a header announces dates and times."""
    return tuple(_names(header)[:2]) == _TIMES


def is_header(line: str) -> bool:
    """Whether a line names the columns."""
    return line.lstrip().startswith("#") and "gpu" in _names(line)


def _names(line: str) -> list[str]:
    return line.strip().removeprefix("#").replace(",", " ").split()


def ticks(
    lines: Iterable[str], start: float, period: float, zone: tzinfo | None, problems: ImportProblems
) -> Iterator[Tick]:
    """What was logged, a tick for each pass over the GPUs.

    Without times in the log the first is at `start` in wall seconds, and the others `period` apart.
    """
    columns: _Columns | None = None
    passed, wall, found = 0, start, dict[Gpu, tuple[Reading, ...]]()
    for number, line in enumerate(lines, start=1):
        if is_header(line):
            columns = _Columns(_names(line), number, problems)
        elif line.lstrip().startswith("#") and columns is not None:
            columns.check_units(_names(line), number, problems)
        elif line.strip():
            told = _line(line, columns, zone, number, problems)
            if told is None:
                continue
            gpu, at, readings = told
            if gpu in found:
                yield pass_over(wall, found)
                passed, found = passed + 1, {}
            if not found:
                wall = start + passed * period if at is None else at
            found[gpu] = (up(gpu), *readings)
    if columns is None:
        raise UnsuitableLogError(f"{problems.file}: has no header of nvidia-smi dmon's; {REMEDY}")
    if found:
        yield pass_over(wall, found)


def _line(
    line: str, columns: _Columns | None, zone: tzinfo | None, number: int, problems: ImportProblems
) -> tuple[Gpu, float | None, list[Reading]] | None:
    """GPU, time and values of a line; None, and why is noted, if it has none."""
    words = line.replace(",", " ").split()
    if columns is None or len(words) != len(columns.names) or not is_index(words[columns.first]):
        wanted = "a header" if columns is None else f"{len(columns.names)} values"
        problems.note(number, f"{shown(line.strip())} is no line about a GPU with {wanted}; left out")
        return None
    at = None
    if columns.is_timed:
        try:
            at = datetime.strptime(f"{words[0]} {words[1]}", "%Y%m%d %H:%M:%S").replace(tzinfo=zone).timestamp()
        except ValueError:
            problems.note(number, f"{shown(f'{words[0]} {words[1]}')} is no date and time; the line is left out")
            return None
    gpu = Gpu(words[columns.first], "")
    return gpu, at, list(column_readings(columns.targets, columns.names, words, "-", gpu, number, problems))
