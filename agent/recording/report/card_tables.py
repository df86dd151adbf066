"""The tables of a report, as texts in rows: the card on the terminal and the page show the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.lib.wording import one_line
from agent.model import IbPort, Node
from agent.recording.report import chosen_series as chosen
from agent.recording.report.run_facts import GpuFacts, NodeFacts, Run
from agent.recording.report.series_figures import GrowthFigure
from agent.recording.report.slowness_remarks import NORMAL_REASONS

ABSENT = "n/a"
MOST_ROWS = 72
"""Rows of a table: the GPUs of the largest NVLink domain. The document for programs has all."""
_GIB, _KWH = 2.0**30, 3.6e6


class ReportTable(NamedTuple):
    """Heads, which may have two lines, rows of as many cells, and a note below."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def activity_table(run: Run) -> ReportTable:
    """What each GPU did."""
    heads = ("GPU", "util\nmean", "\np5-p95", "SM\nmean", "tensor\nmean", "DRAM\nmean", "mem GiB\npeak",
             "power W\nmean", "\npeak", "temp C\nmean", "\npeak")  # fmt: skip
    return ReportTable(heads, [_activity(gpu) for gpu in run.gpus()[:MOST_ROWS]], _left_out(len(run.gpus()), "GPUs"))


def loss_table(run: Run) -> ReportTable:
    """What each GPU took, lost and moved."""
    heads = ("GPU", "energy\nkWh", "throttled\nseconds", "at power\nlimit", "NVLink GB/s\nmean", "\npeak",
             "PCIe GB/s\nmean", "\npeak", "seen\nseconds")  # fmt: skip
    gpus = run.gpus()[:MOST_ROWS]
    sources = {source for gpu in gpus for source in _sources(gpu)}
    notes = [
        "NVLink and PCIe: sent and received together.",
        "Throttled: for whatever reason but idleness and power cap.",
    ]
    if "power" in sources:
        notes.append("Energy is integrated from power where the GPU has no counter.")
    if "samples" in sources:
        notes.append("Throttled time is that of the samples where the driver does not count it.")
    return ReportTable(heads, [_losses(gpu) for gpu in gpus], " ".join(notes))


def port_table(run: Run) -> ReportTable:
    """What each InfiniBand port moved, in GB/s."""
    heads = ("port", "sent\nmean", "\npeak", "received\nmean", "\npeak", "peak of\nrate", "\nerrors")
    rows = [_port(node, port, named=len(run.nodes) > 1) for node, port in run.ports()[:MOST_ROWS]]
    return ReportTable(heads, rows, _left_out(len(run.ports()), "ports"))


def node_table(run: Run) -> ReportTable:
    """What each node did besides."""
    heads = ("node", "recorded\nseconds", "CPU\nbusy", "waiting\nfor I/O", "power W\nmean", "\npeak", "\nsource")
    return ReportTable(heads, [_node(node) for node in run.nodes[:MOST_ROWS]], _left_out(len(run.nodes), "nodes"))


def _left_out(count: int, what: str) -> str:
    return f"And {count - MOST_ROWS} {what} more: --json has all." if count > MOST_ROWS else ""


def _activity(gpu: GpuFacts) -> list[str]:
    util = gpu.summary(chosen.UTILIZATION)
    power, heat, memory = (gpu.summary(name) for name in (chosen.POWER, chosen.TEMPERATURE, chosen.MEMORY))
    return [
        one_line(gpu.title, 32),
        _percent(util.mean if util else None),
        f"{util.p5 * 100:.0f}-{util.p95 * 100:.0f}%" if util else ABSENT,
        *(_percent(gpu.mean(name)) for name in (chosen.SM, chosen.TENSOR, chosen.DRAM)),
        _number(memory.high / _GIB if memory else None, 1),
        _number(power.mean if power else None), _number(power.high if power else None),
        _number(heat.mean if heat else None), _number(heat.high if heat else None),
    ]  # fmt: skip


def _losses(gpu: GpuFacts) -> list[str]:
    energy, capped, util = gpu.energy(), gpu.capped(), gpu.summary(chosen.UTILIZATION)
    return [
        one_line(gpu.title, 32),
        _number(energy[0] / _KWH if energy else None, 3),
        _number(throttled_seconds(gpu)),
        _percent(capped[0] if capped else None),
        *_traffic(gpu, (chosen.NVLINK_OUT, chosen.NVLINK_IN)),
        *_traffic(gpu, (chosen.PCIE_OUT, chosen.PCIE_IN)),
        _number(util.seconds if util else None),
    ]


def throttled_seconds(gpu: GpuFacts) -> float | None:
    """Seconds with clocks reduced for the longest of the reasons that are not normal; None where nothing told."""
    told = [seconds for reason, (seconds, _, _) in gpu.throttled().items() if reason not in NORMAL_REASONS]
    return max(told, default=None)


def _sources(gpu: GpuFacts) -> Iterator[str]:
    energy = gpu.energy()
    if energy is not None:
        yield energy[2]
    yield from (how for reason, (_, _, how) in gpu.throttled().items() if reason not in NORMAL_REASONS)


def _traffic(gpu: GpuFacts, names: tuple[str, str]) -> tuple[str, str]:
    counters = [counter for name in names if (counter := gpu.growth(name)) is not None]
    return _rates(counters) if len(counters) == len(names) else (ABSENT, ABSENT)


def _rates(counters: Sequence[GrowthFigure]) -> tuple[str, str]:
    mean = sum(counter.rate or 0.0 for counter in counters)
    peak = sum(counter.peak or 0.0 for counter in counters)
    return _number(mean / 1e9, 1), _number(peak / 1e9, 1)


def _port(node: NodeFacts, port: IbPort, *, named: bool) -> list[str]:
    name = one_line(f"{port.device}/{port.port}", 32)
    sent, received = node.growth(chosen.PORT_OUT, port), node.growth(chosen.PORT_IN, port)
    gauge = node.gauge(chosen.PORT_RATE, port)
    rate = gauge.last if gauge is not None else None
    highest = max((one.peak or 0.0 for one in (sent, received) if one is not None), default=None)
    errors = [counter.growth for each in chosen.PORT_ERRORS if (counter := node.growth(each, port)) is not None]
    return [
        f"{one_line(node.name, 32)} {name}" if named else name,
        *(_rates([sent]) if sent is not None else (ABSENT, ABSENT)),
        *(_rates([received]) if received is not None else (ABSENT, ABSENT)),
        _percent(highest / rate if rate and highest is not None else None),
        _number(sum(errors) if errors else None),
    ]


def _node(node: NodeFacts) -> list[str]:
    power = next(
        ((labels, summary) for name, entity, labels in node.figures if name == chosen.NODE_POWER
         if (summary := node.summary(name, entity, labels)) is not None), None)  # fmt: skip
    io = node.growth(chosen.PRESSURE, Node(), (("resource", "io"),))
    return [
        one_line(node.name, 40) or "-",
        _number(node.seconds),
        _percent(node.processor_share()),
        _percent(io.rate if io else None),
        _number(power[1].mean if power else None),
        _number(power[1].high if power else None),
        one_line(dict(power[0]).get("source", ""), 16) if power else "",
    ]


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.0%}"


def _number(value: float | None, digits: int = 0) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"
