"""Logs of `nvidia-smi --query-gpu=timestamp,index,uuid,... --format=csv -l 1`, also with `nounits`.

A value that the device does not offer is a text in brackets. The names are those of `nvidia-smi --help-query-gpu`; a
name with `current` and one without mean the same.
"""

import csv
from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from math import isfinite
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.catalogue.gpu import EVENT_REASONS, HW_SLOWDOWN
from agent.commands.import_.imported_sample import ImportedSample, ImportProblems, LogFormatError
from agent.lib.wording import shown
from agent.model import Gpu, Labels, Metric, Reading, Series, Unit

REMEDY = "log with: nvidia-smi --query-gpu=timestamp,index,uuid,utilization.gpu,power.draw --format=csv -l 1"
COLUMNS = {
    "utilization.gpu": "gpu_utilization_ratio",
    "utilization.memory": "gpu_memory_activity_ratio",
    "utilization.encoder": "gpu_encoder_utilization_ratio",
    "utilization.decoder": "gpu_decoder_utilization_ratio",
    "memory.used": "gpu_memory_used_bytes",
    "memory.free": "gpu_memory_free_bytes",
    "memory.reserved": "gpu_memory_reserved_bytes",
    "memory.total": "gpu_memory_total_bytes",
    "power.draw": "gpu_power_watts",
    "power.draw.average": "gpu_power_watts",
    "power.draw.instant": "gpu_power_instant_watts",
    "power.limit": "gpu_power_limit_watts",
    "enforced.power.limit": "gpu_power_limit_watts",
    "power.default_limit": "gpu_power_limit_default_watts",
    "temperature.gpu": "gpu_temperature_celsius",
    "temperature.memory": "gpu_memory_temperature_celsius",
    "temperature.gpu.tlimit": "gpu_temperature_margin_celsius",
    "clocks.sm": "gpu_clock_hertz sm",
    "clocks.gr": "gpu_clock_hertz graphics",
    "clocks.mem": "gpu_clock_hertz memory",
    "clocks.video": "gpu_clock_hertz video",
    "pcie.link.gen": "gpu_pcie_link_generation",
    "pcie.link.gen.gpucurrent": "gpu_pcie_link_generation",
    "pcie.link.gen.max": "gpu_pcie_link_generation_max",
    "pcie.link.width": "gpu_pcie_link_width",
    "pcie.link.width.max": "gpu_pcie_link_width_max",
    "ecc.errors.corrected.volatile.total": "gpu_ecc_errors_total corrected",
    "ecc.errors.uncorrected.volatile.total": "gpu_ecc_errors_total uncorrected",
    "ecc.errors.corrected.aggregate.total": "gpu_ecc_aggregate_errors_total corrected",
    "ecc.errors.uncorrected.aggregate.total": "gpu_ecc_aggregate_errors_total uncorrected",
    "clocks_event_reasons.gpu_idle": "gpu_throttle_active gpu_idle",
    "clocks_event_reasons.applications_clocks_setting": "gpu_throttle_active application_clocks",
    "clocks_event_reasons.sw_power_cap": "gpu_throttle_active sw_power_cap",
    "clocks_event_reasons.sync_boost": "gpu_throttle_active sync_boost",
    "clocks_event_reasons.sw_thermal_slowdown": "gpu_throttle_active sw_thermal_slowdown",
    "clocks_event_reasons.hw_thermal_slowdown": "gpu_throttle_active hw_thermal_slowdown",
    "clocks_event_reasons.hw_power_brake_slowdown": "gpu_throttle_active hw_power_brake",
    "clocks_event_reasons.hw_slowdown": "gpu_hw_slowdown_active",
}
"""Our row for each name, and the value of its label."""
PLACES = ("timestamp", "index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
"""What says when and which GPU."""
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""All reasons for lower clocks in one number, with NVML's bits."""
_THROTTLE, _HW_SLOWDOWN = BY_NAME["coldplate_gpu_throttle_active"], BY_NAME["coldplate_gpu_hw_slowdown_active"]
_UP = BY_NAME["coldplate_gpu_up"]
"""A GPU that nvidia-smi could read was there."""
STATES = {"Active": 1.0, "Not Active": 0.0}
FACTORS: dict[Unit, dict[str, float]] = {
    Unit.RATIO: {"%": 0.01, "": 1.0},
    Unit.BYTES: {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    Unit.WATTS: {"W": 1.0, "mW": 1e-3},
    Unit.HERTZ: {"MHz": 1e6},
    Unit.CELSIUS: {"C": 1.0, "": 1.0},
    Unit.JOULES: {"mJ": 1e-3, "J": 1.0},
    Unit.NONE: {"": 1.0},
}
"""What one of another unit is in ours. A unit that is not here is not known, and its column is left out."""
_INDEX_DIGITS = 4
_NAME_CHARACTERS = 128


def is_index(text: str) -> bool:
    """Return whether a text is a GPU's number on its node."""
    return text.isascii() and text.isdigit() and len(text) <= _INDEX_DIGITS


class LogColumn(NamedTuple):
    """Where a column's values go: a row of the catalogue with its label's value; and how they become ours.

    `unit` stands behind each value, `factor` is what one of it is in the row's unit.
    """

    metric: Metric
    label: str
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
        for place, cell in enumerate(cells):
            name, _, unit = cell.strip().partition(" [")
            if name in REASONS:
                self.reasons = place
            elif name in PLACES:
                self.places[name.removeprefix("gpu_")] = place
            else:
                self._enter(place, name, unit.removesuffix("]"), line, problems)
        if "timestamp" not in self.places:
            raise LogFormatError(f"{problems.file}:{line}: has no column timestamp; {REMEDY}")
        if only is None and not {"index", "uuid", "pci.bus_id"} & self.places.keys():
            raise LogFormatError(
                f"{problems.file}:{line}: the lines do not name their GPU; if it is always the same, give its index "
                f"with --gpu 0, else {REMEDY}"
            )

    def _enter(self, place: int, name: str, unit: str, line: int, problems: ImportProblems) -> None:
        plain = name.replace("clocks_throttle_reasons", "clocks_event_reasons").replace("clocks.current.", "clocks.")
        row = COLUMNS.get({"clocks.memory": "clocks.mem", "clocks.graphics": "clocks.gr"}.get(
            plain.removesuffix(".current"), plain.removesuffix(".current")))  # fmt: skip
        if row is None:
            problems.note(line, f"column {shown(name)} is left out: coldplate has nothing of that kind")
            return
        our_name, _, label = row.partition(" ")
        metric = BY_NAME[f"coldplate_{our_name}"]
        factor = FACTORS.get(metric.unit, {}).get(unit)
        if factor is None:
            problems.note(line, f"column {shown(name)} is left out: its unit {shown(unit)} is not known")
        elif any(each[:2] == (metric, label) for each in self.columns.values()):
            problems.note(line, f"column {shown(name)} is left out: another one has the same")
        else:
            self.columns[place] = LogColumn(metric, label, unit, factor)


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
            problems.note(number, f"has {len(cells)} columns and not {len(header.cells)}; the line is left out")
            continue
        try:
            at = _moment(cells[header.places["timestamp"]], zone)
            gpu = _gpu(header, cells, order)
        except ValueError as error:
            problems.note(number, f"{error}; the line is left out")
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
    if is_first and not any(name in PLACES or name in COLUMNS for name in names):
        raise LogFormatError(
            f"{problems.file}:{line}: {shown(','.join(cells))} is no header of nvidia-smi's; {REMEDY}, without noheader"
        )
    return _Header(cells, line, problems, only)


def _moment(text: str, zone: tzinfo | None) -> float:
    """Wall seconds. Raises ValueError."""
    for shape in ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S"):
        try:
            return datetime.strptime(text.strip(), shape).replace(tzinfo=zone).timestamp()
        except ValueError:
            continue
    raise ValueError(f"{shown(text)} is no timestamp of nvidia-smi's")


def _gpu(header: _Header, cells: list[str], order: dict[str, str]) -> Gpu:
    """Return the GPU of a line; without an index they are numbered as they come. Raises ValueError."""
    uuid = cells[header.places["uuid"]].strip() if "uuid" in header.places else ""
    if not uuid.isprintable() or len(uuid) > _NAME_CHARACTERS:
        raise ValueError(f"{shown(uuid)} is no UUID")
    if "index" in header.places:
        index = cells[header.places["index"]].strip()
        if not is_index(index):
            raise ValueError(f"{shown(index)} is no index of a GPU")
        return Gpu(index, uuid)
    if not uuid and "pci.bus_id" not in header.places:
        return Gpu(header.only or "0", "")
    name = uuid or cells[header.places["pci.bus_id"]].strip()
    return Gpu(order.setdefault(name, str(len(order))), uuid)


def _readings(header: _Header, cells: list[str], gpu: Gpu, line: int, problems: ImportProblems) -> Iterator[Reading]:
    if header.reasons is not None:
        yield from _reasons(cells[header.reasons].strip(), gpu)
    for place, column in header.columns.items():
        text = cells[place].strip()
        if text in ("N/A", "ERR!", "") or text.startswith("["):
            continue
        number = STATES.get(text)
        if number is None:
            try:
                number = float(text.removesuffix(column.unit))
            except ValueError:
                name = header.cells[place].strip()
                problems.note(line, f"{shown(text)} is no value of {shown(name)}, and left out")
                continue
        value = number * column.factor
        low, high = column.metric.span
        if low <= value <= high and isfinite(value):
            labels: Labels = ((column.metric.labels[0], column.label),) if column.label else ()
            yield Reading(Series(column.metric, gpu, labels), value)


def _reasons(text: str, gpu: Gpu) -> Iterator[Reading]:
    """Yield the reasons of a number in hexadecimal; none where it is a text in brackets."""
    try:
        bits = int(text, 16)
    except ValueError:
        return
    for bit, reason in EVENT_REASONS:
        yield Reading(Series(_THROTTLE, gpu, (("reason", reason),)), float(bool(bits & bit)))
    yield Reading(Series(_HW_SLOWDOWN, gpu), float(bool(bits & HW_SLOWDOWN)))
