"""Logs of `nvidia-smi --query-gpu=timestamp,index,uuid,... --format=csv -l 1`, also with `nounits`.

A value that the device does not offer is a text in brackets. The names are those of `nvidia-smi --help-query-gpu`; a
name with `current` and one without mean the same.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from math import isfinite
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.catalogue.gpu import EVENT_REASONS, HW_SLOWDOWN
from agent.commands.import_.imported_sample import ImportedSample, ImportProblems, LogFormatError
from agent.lib.wording import shown
from agent.model import Gpu, Labels, Metric, Reading, Series, Unit
from exporters.compatibility import nvidia_smi
from exporters.compatibility.foreign_names import Term

REMEDY = "log with: nvidia-smi --query-gpu=timestamp,index,uuid,utilization.gpu,power.draw --format=csv -l 1"
TERMS = {name.name.removeprefix("nvidia_smi_"): name.simple for name in nvidia_smi.PROFILE.names}
"""What stands for each name of nvidia_gpu_exporter, which makes its names of nvidia-smi's columns."""
_ENDINGS = ("", "_ratio", "_bytes", "_watts", "_current", "_clock_hz", "_seconds")
"""What is in its names besides."""
_CLOCK = re.compile(r"clocks\.(\w+)")
_DOMAINS = {"gr": "graphics", "mem": "memory"}
"""Clocks in the short names of columns."""
PLACES = ("timestamp", "index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "name", "gpu_name")
"""What says when, which GPU, and of which model."""
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""All reasons for lower clocks in one number, with NVML's bits."""
_THROTTLE, _HW_SLOWDOWN = BY_NAME["coldplate_gpu_throttle_active"], BY_NAME["coldplate_gpu_hw_slowdown_active"]
_UP = BY_NAME["coldplate_gpu_up"]
"""A GPU that nvidia-smi could read was there."""
_INFO = BY_NAME["coldplate_gpu_info"]
STATE_COLUMNS: dict[str, tuple[Metric, dict[str, str]]] = {
    "gpu_recovery_action": (
        BY_NAME["coldplate_gpu_recovery_action"],
        {
            "None": "none",
            "Reset": "gpu_reset",
            "GPU Reset": "gpu_reset",
            "Reboot": "node_reboot",
            "Node Reboot": "node_reboot",
            "Drain P2P": "drain_p2p",
            "Drain and Reset": "drain_and_reset",
        },
    ),
    "fabric.state": (
        BY_NAME["coldplate_gpu_fabric_state"],
        {
            "Not Supported": "not_supported",
            "Not Started": "not_started",
            "In Progress": "in_progress",
            "Completed": "completed",
        },
    ),
}
"""Columns of which a word is a state: the row of the catalogue, and its label's value for each word."""
FABRIC_STATUS = "fabric.status"
"""Says whether a registration that is completed succeeded."""
STATES = {"Active": 1.0, "Not Active": 0.0, "Enabled": 1.0, "Disabled": 0.0, "Yes": 1.0, "No": 0.0}
FACTORS: dict[Unit, dict[str, float]] = {
    Unit.RATIO: {"%": 0.01, "": 1.0},
    Unit.BYTES: {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    Unit.WATTS: {"W": 1.0, "mW": 1e-3},
    Unit.HERTZ: {"MHz": 1e6},
    Unit.CELSIUS: {"C": 1.0, "": 1.0},
    Unit.JOULES: {"mJ": 1e-3, "J": 1.0},
    Unit.SECONDS: {"us": 1e-6, "ms": 1e-3, "s": 1.0},
    Unit.NONE: {"": 1.0},
}
"""What one of another unit is in ours. A unit that is not here is not known, and its column is left out."""
_INDEX_DIGITS = 4
_NAME_CHARACTERS = 128


def is_index(text: str) -> bool:
    """Return whether a text is a GPU's number on its node."""
    return text.isascii() and text.isdigit() and len(text) <= _INDEX_DIGITS


def term_of(column: str) -> Term | None:
    """Return what the values of a column are; None for one of which coldplate has nothing."""
    if (clock := _CLOCK.fullmatch(column)) is not None:
        column = f"clocks.current.{_DOMAINS.get(clock[1], clock[1])}"
    stem = column.replace("clocks_throttle_reasons", "clocks_event_reasons").replace(".", "_")
    return next(filter(None, (TERMS.get(stem + ending) for ending in _ENDINGS)), None)


class LogColumn(NamedTuple):
    """Where a column's values go: a row of the catalogue with its labels' values; and how they become ours.

    `unit` stands behind each value, `factor` is what one of it is in the row's unit.
    """

    metric: Metric
    labels: tuple[str, ...]
    unit: str
    factor: float


class _Header:
    """What the columns of a log are."""

    def __init__(self, cells: list[str], line: int, problems: ImportProblems, only: str | None) -> None:
        self.cells = cells
        self.only = only
        self.places: dict[str, int] = {}
        self.columns: dict[int, LogColumn] = {}
        """The places of the values."""
        self.reasons: int | None = None
        """The place of all reasons in one number."""
        self.states: dict[int, str] = {}
        """The places of the columns of STATE_COLUMNS."""
        self.fabric_status: int | None = None
        for place, cell in enumerate(cells):
            name, _, unit = cell.strip().partition(" [")
            if name in REASONS:
                self.reasons = place
            elif name in STATE_COLUMNS:
                self.states[place] = name
            elif name == FABRIC_STATUS:
                self.fabric_status = place
            elif name in PLACES:
                self.places[name.removeprefix("gpu_")] = place
            else:
                self._add_column(place, name, unit.removesuffix("]"), line, problems)
        if "timestamp" not in self.places:
            raise LogFormatError(f"{problems.file}:{line}: has no column timestamp; {REMEDY}")
        if only is None and not {"index", "uuid", "pci.bus_id"} & self.places.keys():
            raise LogFormatError(
                f"{problems.file}:{line}: the lines do not name their GPU; if it is always the same, give its index "
                f"with --gpu 0, else {REMEDY}"
            )

    def _add_column(self, place: int, name: str, unit: str, line: int, problems: ImportProblems) -> None:
        term = term_of(name)
        if term is None:
            problems.add(line, f"column {shown(name)} is left out: coldplate has nothing of that kind")
            return
        metric = BY_NAME[term.row]
        factor = FACTORS.get(metric.unit, {}).get(unit)
        if factor is None:
            problems.add(line, f"column {shown(name)} is left out: its unit {shown(unit)} is not known")
        elif any(column[:2] == (metric, term.labels) for column in self.columns.values()):
            problems.add(line, f"column {shown(name)} is left out: another one has the same")
        else:
            self.columns[place] = LogColumn(metric, term.labels, unit, factor)


def ticks(
    lines: Iterable[str], zone: tzinfo | None, problems: ImportProblems, only: str | None = None
) -> Iterator[ImportedSample]:
    """Yield what was logged, a tick for each pass over the GPUs. Timestamps without a zone are local ones in `zone`.

    `only` is the index of the GPU that all lines are about where they do not say it. Raises LogFormatError, at the
    first line if it is no header.
    """
    header: _Header | None = None
    order: dict[str, str] = {}
    wall, gpus, readings = 0.0, set[Gpu](), list[Reading]()
    for number, cells in _rows(lines, problems):
        if not cells or cells == [""]:
            continue
        if header is None or cells[0].strip() == header.cells[0].strip():  # appended to, a log has another header
            header = _header_of(cells, number, problems, only, is_first=header is None)
            continue
        if len(cells) != len(header.cells):
            problems.add(number, f"has {len(cells)} columns and not {len(header.cells)}; the line is left out")
            continue
        try:
            at = _moment(cells[header.places["timestamp"]], zone)
            gpu = _gpu(header, cells, order)
        except ValueError as error:
            problems.add(number, f"{error}; the line is left out")
            continue
        if gpu in gpus:
            yield ImportedSample(wall, tuple(readings))
            gpus, readings = set(), []
        wall = wall if gpus else at
        gpus.add(gpu)
        readings += (Reading(Series(_UP, gpu), 1.0), *_readings(header, cells, gpu, number, problems))
    if header is None:
        raise LogFormatError(f"{problems.file}: is empty; {REMEDY}")
    if gpus:
        yield ImportedSample(wall, tuple(readings))


def _rows(lines: Iterable[str], problems: ImportProblems) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, skipinitialspace=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise LogFormatError(f"{problems.file}:{reader.line_num}: {error}; {REMEDY}") from error


def _header_of(cells: list[str], line: int, problems: ImportProblems, only: str | None, *, is_first: bool) -> _Header:
    names = [cell.strip().partition(" [")[0] for cell in cells]
    if is_first and not any(name in PLACES or term_of(name) is not None for name in names):
        raise LogFormatError(
            f"{problems.file}:{line}: {shown(','.join(cells))} is not a header of nvidia-smi; {REMEDY}, "
            "without noheader"
        )
    return _Header(cells, line, problems, only)


def _moment(text: str, zone: tzinfo | None) -> float:
    """Return wall seconds. Raises ValueError."""
    for shape in ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S"):
        try:
            return datetime.strptime(text.strip(), shape).replace(tzinfo=zone).timestamp()
        except ValueError:
            continue
    raise ValueError(f"{shown(text)} is not a timestamp of nvidia-smi")


def _gpu(header: _Header, cells: list[str], order: dict[str, str]) -> Gpu:
    """Return the GPU of a line; without an index they are numbered as they come. Raises ValueError."""
    uuid = cells[header.places["uuid"]].strip() if "uuid" in header.places else ""
    if not uuid.isprintable() or len(uuid) > _NAME_CHARACTERS:
        raise ValueError(f"{shown(uuid)} is not a UUID")
    if "index" in header.places:
        index = cells[header.places["index"]].strip()
        if not is_index(index):
            raise ValueError(f"{shown(index)} is not an index of a GPU")
        return Gpu(index, uuid)
    if not uuid and "pci.bus_id" not in header.places:
        return Gpu(header.only or "0", "")
    name = uuid or cells[header.places["pci.bus_id"]].strip()
    return Gpu(order.setdefault(name, str(len(order))), uuid)


def _readings(header: _Header, cells: list[str], gpu: Gpu, line: int, problems: ImportProblems) -> Iterator[Reading]:
    if header.reasons is not None:
        yield from _reasons(cells[header.reasons].strip(), gpu)
    status = "" if header.fabric_status is None else cells[header.fabric_status].strip()
    for place, name in header.states.items():
        text = cells[place].strip()
        if _is_value(text):
            try:
                yield from _state_readings(name, text, status, gpu)
            except ValueError as error:
                problems.add(line, f"{error}; it is left out")
    model = cells[header.places["name"]].strip() if "name" in header.places else ""
    if model.isprintable() and 0 < len(model) <= _NAME_CHARACTERS and not model.startswith("["):
        yield Reading(Series(_INFO, gpu, (("slot", ""), ("serial", ""), ("model", model))), 1.0)
    for place, column in header.columns.items():
        text = cells[place].strip()
        if not _is_value(text):
            continue
        number = STATES.get(text)
        if number is None:
            try:
                number = float(text.removesuffix(column.unit))
            except ValueError:
                name = header.cells[place].strip()
                problems.add(line, f"{shown(text)} is not a value of {shown(name)}, and left out")
                continue
        value = number * column.factor
        low, high = column.metric.span
        if low <= value <= high and isfinite(value):
            labels: Labels = tuple(zip(column.metric.labels, column.labels, strict=False))
            yield Reading(Series(column.metric, gpu, labels), value)


def _is_value(text: str) -> bool:
    return text not in ("N/A", "ERR!", "") and not text.startswith("[")


def _state_readings(column: str, text: str, fabric_status: str, gpu: Gpu) -> Iterator[Reading]:
    """Yield 1 for the state that a word names, and 0 for the others. Raises ValueError for an unknown word."""
    metric, labels = STATE_COLUMNS[column]
    state = labels.get(text)
    if state is None:
        raise ValueError(f"{shown(text)} is not a known value of {shown(column)}")
    names = list(dict.fromkeys(labels.values()))
    if column == "fabric.state":
        names.append("failed")
        if state == "completed" and _is_value(fabric_status) and fabric_status != "Success":
            state = "failed"
    for name in names:
        yield Reading(Series(metric, gpu, ((metric.labels[0], name),)), float(name == state))


def _reasons(text: str, gpu: Gpu) -> Iterator[Reading]:
    """Yield the reasons of a number in hexadecimal; none where it is a text in brackets."""
    try:
        bits = int(text, 16)
    except ValueError:
        return
    for bit, reason in EVENT_REASONS:
        yield Reading(Series(_THROTTLE, gpu, (("reason", reason),)), float(bool(bits & bit)))
    yield Reading(Series(_HW_SLOWDOWN, gpu), float(bool(bits & HW_SLOWDOWN)))
