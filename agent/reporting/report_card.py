"""The report card on a terminal: what stands out first, and then the figures GPU by GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from agent.lib.wording import one_line
from agent.model import Node
from agent.recording.recording_reader import utc
from agent.reporting import chosen_series as chosen
from agent.reporting.imbalance import imbalance_of
from agent.reporting.remarks import Remark, gpu_names, share_text, span_text
from agent.reporting.run_facts import GpuFacts, HeldJob, Run
from agent.reporting.series_figures import GrowthFigure
from agent.reporting.slowness_remarks import NORMAL_REASONS
from agent.reporting.text_table import ABSENT, TextStyle
from agent.reporting.told_rules import ToldAlert

MOST_ROWS = 72
"""Rows of a table: the GPUs of the largest node. `--json` has all."""
_GIB, _KWH = 2.0**30, 3.6e6
_MARKS = {"fault": "FAULT", "slow": "SLOW", "note": "note"}


def report_card(run: Run, found: Sequence[Remark], alerts: Sequence[ToldAlert], style: TextStyle) -> list[str]:
    """The lines of the card."""
    lines = list(_head(run, style))
    lines += [*style.heading("What stands out"), *_remarks(found, style)]
    if run.gpus():
        lines += [*style.heading("GPUs"), *_gpu_tables(run, style)]
        lines += _groups(run, style)
    if run.ports():
        lines += [*style.heading("Between nodes: InfiniBand, GB/s"), *_ports(run, style)]
    lines += [*style.heading("Nodes"), *_nodes(run, style)]
    lines += [
        *style.heading("What the rules said while it was recorded"),
        *_alerts(alerts, style, len(run.nodes) > 1),
    ]
    return lines


def _head(run: Run, style: TextStyle) -> Iterator[str]:
    yield from style.wrapped(", ".join(one_line(file, 200) for file in run.files), later="  ")
    nodes = (
        f"{len(run.nodes)} nodes" if len(run.nodes) > 1 else one_line(run.nodes[0].name, 64) or "node without a name"
    )
    models = sorted({gpu.model or "GPU of unknown model" for gpu in run.gpus()})
    count = len(run.gpus())
    yield from style.wrapped(f"{nodes}: {f'{count} x {one_line(chr(44).join(models), 120)}' if count else 'no GPU'}")
    recorded = sum(node.seconds for node in run.nodes)
    whole = run.span * len(run.nodes)
    gaps = "" if recorded >= whole - 1.5 * run.interval else f", {share_text(recorded / whole)} of it recorded"
    yield from style.wrapped(f"{utc(run.first)} to {utc(run.last)}: {span_text(run.span)}{gaps}")
    header = run.nodes[0].headers[0]
    if header.command:
        yield from style.wrapped(f"ran: {one_line(' '.join(header.command), 300)}", later="  ")
    if header.scenario:
        yield from style.wrapped(f"synthetic devices played {one_line(header.scenario, 64)}: nothing of this is real")
    for job, gpus in run.groups():
        if job is not None:
            yield from style.wrapped(f"{job_text(job)}: {gpu_names(gpus)}", later="  ")


def job_text(job: HeldJob) -> str:
    """A job in words."""
    name = f" {one_line(job.name, 64)}" if job.name else ""
    owner = f" of {one_line(job.user, 64)}" if job.user else ""
    return f"job {one_line(job.job_id, 64)}{name}{owner} ({one_line(job.scheduler, 32)})"


def _remarks(found: Sequence[Remark], style: TextStyle) -> Iterator[str]:
    if not found:
        yield from style.wrapped(
            "Nothing: no error, no loss of time that shows, no clear character of the work.", "  ", "  "
        )
    for place, remark in enumerate(found):
        mark = _MARKS[remark.rank]
        first, *others = style.wrapped(remark.text, "", " " * 8)
        yield style.marked(mark.rjust(6), remark.rank) + f"  {first}"
        yield from others
        if remark.limits and all(other.limits != remark.limits for other in found[place + 1 :]):
            yield from style.wrapped(f"({remark.limits})", " " * 8, " " * 8)


def _gpu_tables(run: Run, style: TextStyle) -> Iterator[str]:
    gpus = run.gpus()[:MOST_ROWS]
    heads = ("GPU", "util\nmean", "\np5-p95", "SM\nmean", "tensor\nmean", "DRAM\nmean", "mem GiB\npeak",
             "power W\nmean", "\npeak", "temp C\nmean", "\npeak")  # fmt: skip
    yield from style.table(heads, [_activity(gpu) for gpu in gpus])
    yield ""
    others = ("GPU", "energy\nkWh", "throttled\nseconds", "at power\nlimit", "NVLink GB/s\nmean", "\npeak",
              "PCIe GB/s\nmean", "\npeak", "seen\nseconds")  # fmt: skip
    yield from style.table(others, [_losses(gpu) for gpu in gpus])
    if len(run.gpus()) > MOST_ROWS:
        yield f"  and {len(run.gpus()) - MOST_ROWS} GPUs more: --json has all"
    hows = {how for gpu in gpus for how in _sources(gpu)}
    notes = [
        "NVLink and PCIe: sent and received together.",
        "Throttled: for whatever reason but idleness and power cap.",
    ]
    if "power" in hows:
        notes.append("Energy is integrated from power where the GPU has no counter.")
    if "samples" in hows:
        notes.append("Throttled time is that of the samples where the driver does not count it.")
    yield from style.wrapped(" ".join(notes), "  ", "  ")


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
    if len(counters) < len(names):
        return ABSENT, ABSENT
    return _rates(counters)


def _rates(counters: Sequence[GrowthFigure]) -> tuple[str, str]:
    mean = sum(counter.rate or 0.0 for counter in counters)
    peak = sum(counter.peak or 0.0 for counter in counters)
    return _number(mean / 1e9, 1), _number(peak / 1e9, 1)


def _groups(run: Run, style: TextStyle) -> Iterator[str]:
    for job, gpus in run.groups():
        found = imbalance_of(gpus)
        if found is None:
            continue
        what = f"Imbalance of {job_text(job)}" if job is not None else f"Imbalance of {gpu_names(gpus)}"
        text = (
            f"{what}: utilization of its GPUs differs by {share_text(found.mean)} on average and "
            f"{share_text(found.most)} at most, as means over {span_text(found.window)}."
        )
        yield from style.wrapped(text, "  ", "  ")


def _ports(run: Run, style: TextStyle) -> Iterator[str]:
    rows = []
    for node, port in run.ports()[:MOST_ROWS]:
        name = one_line(f"{port.device}/{port.port}", 32)
        sent, received = node.growth(chosen.PORT_OUT, port), node.growth(chosen.PORT_IN, port)
        gauge = node.gauge(chosen.PORT_RATE, port)
        rate = gauge.last if gauge is not None else None
        highest = max((one.peak or 0.0 for one in (sent, received) if one is not None), default=None)
        errors = [counter.growth for each in chosen.PORT_ERRORS if (counter := node.growth(each, port)) is not None]
        rows.append([
            f"{node.name} {name}" if len(run.nodes) > 1 else name,
            *(_rates([sent]) if sent is not None else (ABSENT, ABSENT)),
            *(_rates([received]) if received is not None else (ABSENT, ABSENT)),
            _percent(highest / rate if rate and highest is not None else None),
            _number(sum(errors) if errors else None),
        ])  # fmt: skip
    yield from style.table(
        ("port", "sent\nmean", "\npeak", "received\nmean", "\npeak", "peak of\nrate", "\nerrors"), rows
    )
    if len(run.ports()) > MOST_ROWS:
        yield f"  and {len(run.ports()) - MOST_ROWS} ports more: --json has all"


def _nodes(run: Run, style: TextStyle) -> Iterator[str]:
    rows = []
    for node in run.nodes[:MOST_ROWS]:
        power = [(labels, summary) for (name, entity, labels) in node.figures if name == chosen.NODE_POWER
                 if (summary := node.summary(name, entity, labels)) is not None]  # fmt: skip
        modes = {dict(labels).get("mode", ""): one.growth for labels, one in node.growths(chosen.CPU, Node())}
        io = node.growth(chosen.PRESSURE, Node(), (("resource", "io"),))
        busy = (
            1 - (modes.get("idle", 0.0) + modes.get("iowait", 0.0)) / sum(modes.values())
            if sum(modes.values())
            else None
        )
        rows.append([
            one_line(node.name, 40) or "-", _number(node.seconds), _percent(busy), _percent(io.rate if io else None),
            _number(fmean(one.mean for _, one in power[:1]) if power else None),
            _number(max(one.high for _, one in power[:1]) if power else None),
            one_line(dict(power[0][0]).get("source", ""), 16) if power else "",
        ])  # fmt: skip
    heads = ("node", "recorded\nseconds", "CPU\nbusy", "waiting\nfor I/O", "power W\nmean", "\npeak", "\nsource")
    yield from style.table(heads, rows)


def _alerts(alerts: Sequence[ToldAlert], style: TextStyle, named: bool) -> Iterator[str]:
    if not alerts:
        yield from style.wrapped(
            "No alert fired, or the recording is not of an agent that evaluates rules.", "  ", "  "
        )
    for told in alerts[:MOST_ROWS]:
        labels = ", ".join(f"{name}={one_line(value, 64)}" for name, value in told.labels)
        of = f" on {one_line(told.node, 64)}" if named else ""
        times = f", {told.times} times" if told.times > 1 else ""
        severity = one_line(told.severity, 20) or "no severity"
        text = (
            f"{one_line(told.alert, 80)} ({severity}){of} from {utc(told.first)} for "
            f"{span_text(told.seconds)}{times}: {labels or 'no labels'}"
        )
        yield from style.wrapped(text, "  ", "    ")
    if len(alerts) > MOST_ROWS:
        yield f"  and {len(alerts) - MOST_ROWS} more: --json has all"


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.0%}"


def _number(value: float | None, digits: int = 0) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"
