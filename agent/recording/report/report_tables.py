"""The figures of a run by GPU, port and node, and the tables of them that the card and the page show."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agent.catalogue.gpu import STATES
from agent.lib.wording import one_line
from agent.model import IbPort
from agent.recording.report import report_series as chosen
from agent.recording.report.run_facts import EntityFacts, GpuFacts, Measured, NodeFacts, RecordedRun

ABSENT = "n/a"
MOST_ROWS = 72
"""Rows of a table: the GPUs of the largest NVLink domain. The document for programs has all."""
_SCALES = {"GiB": 2.0**30, "GB/s": 1e9, "MHz": 1e6, "kWh": 3.6e6}


def scale_of(unit: str) -> float:
    """Return by what a value in base units is divided to be shown in a unit."""
    return _SCALES.get(unit, 1.0)


class GpuFigure(NamedTuple):
    """A figure of each GPU: `of` returns it in base units, as a text that is shown as it is, or None if not seen.

    `head` is that of its column in a table and `compared` its name in a comparison; empty where it is not shown there.
    """

    head: str
    compared: str
    unit: str
    value_of: Callable[[GpuFacts], "float | str | None"]
    digits: int = 0


def _mean(*names: str) -> Callable[[GpuFacts], "float | None"]:
    return lambda gpu: gpu.mean(*names)


def _peak(*names: str) -> Callable[[GpuFacts], "float | None"]:
    return lambda gpu: gpu.peak(*names)


def _amount(measure: Callable[[GpuFacts], "Measured | None"]) -> Callable[[GpuFacts], "float | None"]:
    def amount(gpu: GpuFacts) -> float | None:
        measured = measure(gpu)
        return measured.amount if measured is not None else None

    return amount


def _per_second(measure: Callable[[GpuFacts], "Measured | None"]) -> Callable[[GpuFacts], "float | None"]:
    def per_second(gpu: GpuFacts) -> float | None:
        measured = measure(gpu)
        return measured.per_second if measured is not None else None

    return per_second


def _usual_utilization(gpu: GpuFacts) -> str | None:
    util = gpu.summary(chosen.UTILIZATION)
    return f"{util.p5 * 100:.0f}-{util.p95 * 100:.0f}%" if util is not None else None


def _seen_seconds(gpu: GpuFacts) -> float | None:
    gauge = gpu.gauge(chosen.UTILIZATION) or gpu.gauge(chosen.POWER)  # a divided GPU (MIG) has no utilization
    return gauge.seconds if gauge is not None else None


ACTIVITY = (
    GpuFigure("util\nmean", "utilization", "%", _mean(chosen.UTILIZATION)),
    GpuFigure("util\np5-p95", "", "%", _usual_utilization),
    GpuFigure("SM\nmean", "SM activity", "%", _mean(chosen.SM)),
    GpuFigure("tensor\nmean", "tensor activity", "%", _mean(chosen.TENSOR)),
    GpuFigure("DRAM\nmean", "DRAM activity", "%", _mean(chosen.DRAM)),
    GpuFigure("mem GiB\npeak", "memory, peak", "GiB", _peak(chosen.MEMORY), 1),
    GpuFigure("power W\nmean", "", "W", _mean(chosen.POWER)),
    GpuFigure("", "power by energy", "W", _per_second(GpuFacts.energy)),
    GpuFigure("power W\npeak", "power, peak", "W", _peak(chosen.POWER)),
    GpuFigure("temp C\nmean", "temperature", "C", _mean(chosen.TEMPERATURE)),
    GpuFigure("temp C\npeak", "temperature, peak", "C", _peak(chosen.TEMPERATURE)),
    GpuFigure("", "SM clock", "MHz", _mean(chosen.CLOCK)),
)
LOSSES = (
    GpuFigure("energy\nkWh", "", "kWh", _amount(GpuFacts.energy), 3),
    GpuFigure("throttled\nseconds", "", "s", _amount(GpuFacts.lost_seconds)),
    GpuFigure("", "throttled", "%", _per_second(GpuFacts.lost_seconds)),
    GpuFigure("at power\nlimit", "at power limit", "%", _amount(GpuFacts.capped_share)),
    GpuFigure("NVLink GB/s\nmean", "NVLink", "GB/s", _mean(*chosen.NVLINK), 1),
    GpuFigure("NVLink GB/s\npeak", "", "GB/s", _peak(*chosen.NVLINK), 1),
    GpuFigure("PCIe GB/s\nmean", "PCIe", "GB/s", _mean(*chosen.PCIE), 1),
    GpuFigure("PCIe GB/s\npeak", "", "GB/s", _peak(*chosen.PCIE), 1),
    GpuFigure("seen\nseconds", "", "s", _seen_seconds),
)


class ReportTable(NamedTuple):
    """Heads, which may have two lines, rows of as many cells, and a note below."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def _gpu_table(run: RecordedRun, figures: Sequence[GpuFigure], note: str) -> ReportTable:
    figures_of_table = [figure for figure in figures if figure.head]
    rows = [
        [
            one_line(gpu.title, 32),
            *(_cell(figure.value_of(gpu), figure.unit, figure.digits) for figure in figures_of_table),
        ]
        for gpu in run.gpus()[:MOST_ROWS]
    ]
    return ReportTable(("GPU", *(figure.head for figure in figures_of_table)), rows, note)


def _cell(value: "float | str | None", unit: str = "", digits: int = 0) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return value
    return f"{value:.0%}" if unit == "%" else f"{value / scale_of(unit):.{digits}f}"


def _left_out(count: int, rows: str) -> str:
    return f"And {count - MOST_ROWS} {rows} more: --json has all." if count > MOST_ROWS else ""


def activity_table(run: RecordedRun) -> ReportTable:
    return _gpu_table(run, ACTIVITY, _left_out(len(run.gpus()), "GPUs"))


def loss_table(run: RecordedRun) -> ReportTable:
    """Return what each GPU took, lost and moved."""
    gpus = run.gpus()[:MOST_ROWS]
    sources = {energy.source for gpu in gpus if (energy := gpu.energy()) is not None}
    sources |= {slowed.source for gpu in gpus for slowed in gpu.slowed_seconds().values()}
    notes = ["NVLink and PCIe: sent and received together. Throttled: for any reason except idleness and power cap."]
    if "power" in sources:
        notes.append("Energy is integrated from power where the GPU has no counter.")
    if "samples" in sources:
        notes.append("Throttled time is that of the samples where the driver does not count it.")
    return _gpu_table(run, LOSSES, " ".join(notes))


def state_table(run: RecordedRun) -> ReportTable:
    """Return the shares of each GPU's time by what it did, and the GPU-hours of all; no rows if not counted."""
    states_of = [(gpu, seconds) for gpu in run.gpus() if (seconds := gpu.state_seconds())]
    sums = {state: sum(seconds.get(state, 0.0) for _, seconds in states_of) for state in STATES}
    states = [state for state, seconds in sums.items() if seconds >= 0.5]
    rows = [
        [one_line(gpu.title, 32), *(_cell(seconds.get(state, 0.0) / whole, "%") for state in states), _hours(whole)]
        for gpu, seconds in states_of[:MOST_ROWS]
        if (whole := sum(seconds.values()))
    ]
    if rows:
        rows.append(["all, GPU-hours", *(_hours(sums[state]) for state in states), _hours(sum(sums.values()))])
    return ReportTable(("GPU", *states, "hours"), rows, _left_out(len(states_of), "GPUs"))


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"


def port_table(run: RecordedRun) -> ReportTable:
    """Return what each InfiniBand port moved, in GB/s."""
    heads = ("port", "sent\nmean", "sent\npeak", "received\nmean", "received\npeak", "peak of\nrate", "errors")
    rows = [_port(port, facts, named=len(run.nodes) > 1) for port, facts in run.ports()[:MOST_ROWS]]
    return ReportTable(heads, rows, _left_out(len(run.ports()), "ports"))


def _port(port: IbPort, facts: EntityFacts, *, named: bool) -> list[str]:
    name = one_line(f"{port.device}/{port.port}", 32)
    rate = facts.gauge(chosen.PORT_RATE)
    highest = max((peak for name in chosen.PORTS if (peak := facts.peak(name)) is not None), default=None)
    errors = [counter.growth for name in chosen.PORT_ERRORS if (counter := facts.growth(name)) is not None]
    return [
        f"{one_line(facts.node.name, 32)} {name}" if named else name,
        *(_cell(value, "GB/s", 1) for name in chosen.PORTS for value in (facts.mean(name), facts.peak(name))),
        _cell(highest / rate.last if rate and rate.last and highest is not None else None, "%"),
        _cell(sum(errors) if errors else None),
    ]


def node_table(run: RecordedRun) -> ReportTable:
    heads = ("node", "recorded\nseconds", "CPU\nbusy", "waiting\nfor I/O", "power W\nmean", "power W\npeak", "source")
    return ReportTable(heads, [_node(node) for node in run.nodes[:MOST_ROWS]], _left_out(len(run.nodes), "nodes"))


def _node(node: NodeFacts) -> list[str]:
    source, power = next(iter(node.power().items()), ("", None))
    return [
        one_line(node.name, 40) or "-",
        _cell(node.seconds),
        _cell(node.processor_share(), "%"),
        _cell(node.io_waiting(), "%"),
        _cell(power.mean if power else None),
        _cell(power.high if power else None),
        one_line(source, 16),
    ]
