"""Logs of `dcgmi dmon -e 203,155,... -d 1000`: a table with a header, a line of units and a line for each GPU.

It has no times: the reader says when it began and how many seconds lie between two passes. Tags and units are
those of DCGM's field identifiers (`dcgmi dmon -l`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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

REMEDY = "log with: dcgmi dmon -e 203,150,155,156,252,1002,1004,1005 -d 1000"
TAGS = {
    "GPUTL": ("gpu_utilization_ratio", "%"),
    "MCUTL": ("gpu_memory_activity_ratio", "%"),
    "POWER": ("gpu_power_watts", "W"),
    "TOTEC": ("gpu_energy_joules_total", "mJ"),
    "TMPTR": ("gpu_temperature_celsius", "C"),
    "MMTMP": ("gpu_memory_temperature_celsius", "C"),
    "SMCLK": ("gpu_clock_hertz sm", "MHz"),
    "MMCLK": ("gpu_clock_hertz memory", "MHz"),
    "FBTTL": ("gpu_memory_total_bytes", "MiB"),
    "FBFRE": ("gpu_memory_free_bytes", "MiB"),
    "FBUSD": ("gpu_memory_used_bytes", "MiB"),
    "SMACT": ("gpu_sm_active_ratio", ""),
    "SMOCC": ("gpu_sm_occupancy_ratio", ""),
    "TENSO": ("gpu_tensor_active_ratio", ""),
    "DRAMA": ("gpu_dram_active_ratio", ""),
    "FP64A": ("gpu_fp64_active_ratio", ""),
    "FP32A": ("gpu_fp32_active_ratio", ""),
    "FP16A": ("gpu_fp16_active_ratio", ""),
}
"""Our row for each tag, with the value of its label, and the unit of its values."""

_NEAR = 4
"""Characters by which a unit may stand beside its tag."""


class _Table:
    """The columns of a header."""

    def __init__(self, line: str, number: int, problems: ImportProblems) -> None:
        self.tags = line.split()[1:]
        self.starts = [line.index(tag) for tag in self.tags]
        self.targets: dict[int, Target] = {}
        for place, tag in enumerate(self.tags):
            row, unit = TAGS.get(tag, ("", ""))
            if not row:
                problems.note(number, f"column {shown(tag)} is left out: coldplate has nothing of that kind")
                continue
            self.targets[place] = target_of(row, unit)

    def check_units(self, line: str, number: int, problems: ImportProblems) -> None:
        """Leave out columns whose unit is another than that of their tag; a unit stands below its tag."""
        for found in list(re.finditer(r"\S+", line))[1:]:
            unit, at = found[0], found.start()
            place = min(self.targets, key=lambda each: abs(self.starts[each] - at), default=-1)
            if place >= 0 and abs(self.starts[place] - at) < _NEAR and unit != TAGS[self.tags[place]][1]:
                problems.note(
                    number, f"column {shown(self.tags[place])} is left out: its unit {shown(unit)} is not known"
                )
                del self.targets[place]


def ticks(lines: Iterable[str], start: float, period: float, problems: ImportProblems) -> Iterator[Tick]:
    """What was logged: the first pass at `start` in wall seconds, the others `period` apart.

    Raises UnsuitableLogError.
    """
    table: _Table | None = None
    passed, found = 0, dict[Gpu, tuple[Reading, ...]]()
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words:
            continue
        if words[0] in ("#Entity", "#"):
            table = _Table(line.replace("# Entity", "#Entity"), number, problems)
        elif table is None:
            raise UnsuitableLogError(
                f"{problems.file}:{number}: is no header of dcgmi dmon's ({shown(line.rstrip())}); {REMEDY}"
            )
        elif words[0] in ("ID", "Id"):
            table.check_units(line, number, problems)
        elif words[0] != "GPU" or len(words) != len(table.tags) + 2 or not is_index(words[1]):
            problems.note(
                number, f"{shown(line.strip())} is no line about a GPU with {len(table.tags)} values; left out"
            )
        else:
            gpu = Gpu(words[1], "")
            if gpu in found:
                yield pass_over(start + passed * period, found)
                passed, found = passed + 1, {}
            read = column_readings(table.targets, table.tags, words[2:], "N/A", gpu, number, problems)
            found[gpu] = (up(gpu), *read)
    if table is None:
        raise UnsuitableLogError(f"{problems.file}: is empty; {REMEDY}")
    if found:
        yield pass_over(start + passed * period, found)
