"""Write the report for a terminal: observations first, then tables of figures GPU by GPU, within a width.

Everything is ASCII but the texts of the recording. The page of HTML shows the same tables.
"""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from agent.catalogue.gpu import STATES
from agent.lib.wording import one_line, utc
from agent.model import IbPort
from agent.recording.report import report_series as chosen
from agent.recording.report.observation import Observation, format_gpus, share_text, span_text
from agent.recording.report.report_document import WHILE_RECORDED, AlertsHeading, AlertSummary
from agent.recording.report.run_facts import EntityFacts, GpuFacts, JobIdentity, NodeFacts, RecordedRun, imbalance_of
from agent.recording.report.series_statistics import CounterStatistic

NARROWEST = 20


class TextStyle:
    """How wide the text may be, in columns, and whether it may be coloured."""

    def __init__(self, width: int = 80, *, colour: bool = False) -> None:
        self.width = max(width, NARROWEST)
        self._colour = colour

    def heading(self, text: str) -> list[str]:
        """Return a heading behind an empty line."""
        return ["", *(f"\x1b[1m{line}\x1b[0m" if self._colour else line for line in self.wrapped(text))]

    def marked(self, text: str, rank: str) -> str:
        """Return a word that is about a fault, or about lost time."""
        code = {"fault": "31;1", "slow": "33;1"}.get(rank)
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text

    def wrapped(self, text: str, first: str = "", later: str = "") -> list[str]:
        """Return a paragraph, with what its first line and the others begin with."""
        lines = textwrap.wrap(text, self.width - len(later), break_on_hyphens=False) or [""]
        return [(first if place == 0 else later) + line for place, line in enumerate(lines)]

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        """Return columns to the right below their heads, the first one to the left; a list of each row where it does
        not fit.

        A head may have two lines; neighbours with the same upper one share it.
        """
        over, under = zip(*(head.rpartition("\n")[::2] for head in heads), strict=True)
        over = [head if head != before else "" for before, head in pairwise(("", *over))]
        lines = [line for line in (over, under, *rows) if any(line)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        if sum(widths) + 2 * (len(widths) - 1) > self.width:
            return self._listed([head.replace("\n", " ") for head in heads], rows)
        made = []
        for line in lines:
            first, *others = zip(line, widths, strict=True)
            made.append("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip())
        return made

    def _listed(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        lines = []
        for row in rows:
            lines += self.wrapped(f"{heads[0]} {row[0]}".strip(), later="  ")
            for head, cell in zip(heads[1:], row[1:], strict=True):
                lines += self.wrapped(f"{head}: {cell}", "  ", "    ")
        return lines


ABSENT = "n/a"
MOST_ROWS = 72
"""Rows of a table: the GPUs of the largest NVLink domain. The document for programs has all."""
_GIB, _KWH = 2.0**30, 3.6e6


class ReportTable(NamedTuple):
    """Heads, which may have two lines, rows of as many cells, and a note below."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def activity_table(run: RecordedRun) -> ReportTable:
    heads = ("GPU", "util\nmean", "util\np5-p95", "SM\nmean", "tensor\nmean", "DRAM\nmean", "mem GiB\npeak",
             "power W\nmean", "power W\npeak", "temp C\nmean", "temp C\npeak")  # fmt: skip
    return ReportTable(heads, [_activity(gpu) for gpu in run.gpus()[:MOST_ROWS]], _left_out(len(run.gpus()), "GPUs"))


def state_table(run: RecordedRun) -> ReportTable:
    """Shares of each GPU's time by what it did, and the GPU-hours of all; no rows if no agent counted them."""
    states_of = [(gpu, seconds) for gpu in run.gpus() if (seconds := gpu.state_seconds())]
    sums = {state: sum(seconds.get(state, 0.0) for _, seconds in states_of) for state in STATES}
    states = [state for state, seconds in sums.items() if seconds >= 0.5]
    rows = [
        [one_line(gpu.title, 32), *(_percent(seconds.get(state, 0.0) / whole) for state in states), _hours(whole)]
        for gpu, seconds in states_of[:MOST_ROWS]
        if (whole := sum(seconds.values()))
    ]
    if rows:
        rows.append(["all, GPU-hours", *(_hours(sums[state]) for state in states), _hours(sum(sums.values()))])
    return ReportTable(("GPU", *states, "hours"), rows, _left_out(len(states_of), "GPUs"))


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"


def loss_table(run: RecordedRun) -> ReportTable:
    """Return what each GPU took, lost and moved."""
    heads = ("GPU", "energy\nkWh", "throttled\nseconds", "at power\nlimit", "NVLink GB/s\nmean", "NVLink GB/s\npeak",
             "PCIe GB/s\nmean", "PCIe GB/s\npeak", "seen\nseconds")  # fmt: skip
    gpus = run.gpus()[:MOST_ROWS]
    sources = {energy[2] for gpu in gpus if (energy := gpu.energy()) is not None}
    sources |= {how for gpu in gpus for _, _, how in gpu.slowed().values()}
    notes = ["NVLink and PCIe: sent and received together. Throttled: for any reason except idleness and power cap."]
    if "power" in sources:
        notes.append("Energy is integrated from power where the GPU has no counter.")
    if "samples" in sources:
        notes.append("Throttled time is that of the samples where the driver does not count it.")
    return ReportTable(heads, [_losses(gpu) for gpu in gpus], " ".join(notes))


def port_table(run: RecordedRun) -> ReportTable:
    """Return what each InfiniBand port moved, in GB/s."""
    heads = ("port", "sent\nmean", "sent\npeak", "received\nmean", "received\npeak", "peak of\nrate", "errors")
    rows = [_port(port, facts, named=len(run.nodes) > 1) for port, facts in run.ports()[:MOST_ROWS]]
    return ReportTable(heads, rows, _left_out(len(run.ports()), "ports"))


def node_table(run: RecordedRun) -> ReportTable:
    heads = ("node", "recorded\nseconds", "CPU\nbusy", "waiting\nfor I/O", "power W\nmean", "power W\npeak", "source")
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
        _number(gpu.slowed_seconds()),
        _percent(capped[0] if capped else None),
        *_rates(gpu.counters((chosen.NVLINK_OUT, chosen.NVLINK_IN))),
        *_rates(gpu.counters((chosen.PCIE_OUT, chosen.PCIE_IN))),
        _number(util.seconds if util else None),
    ]


def _rates(counters: Sequence[CounterStatistic]) -> tuple[str, str]:
    """Return the mean and the peak of counters added up, in GB/s."""
    if not counters:
        return ABSENT, ABSENT
    mean = sum(counter.rate or 0.0 for counter in counters)
    peak = sum(counter.peak or 0.0 for counter in counters)
    return _number(mean / 1e9, 1), _number(peak / 1e9, 1)


def _port(port: IbPort, facts: EntityFacts, *, named: bool) -> list[str]:
    name = one_line(f"{port.device}/{port.port}", 32)
    sent, received = facts.growth(chosen.PORT_OUT), facts.growth(chosen.PORT_IN)
    gauge = facts.gauge(chosen.PORT_RATE)
    rate = gauge.last if gauge is not None else None
    highest = max((one.peak or 0.0 for one in (sent, received) if one is not None), default=None)
    errors = [counter.growth for each in chosen.PORT_ERRORS if (counter := facts.growth(each)) is not None]
    return [
        f"{one_line(facts.node.name, 32)} {name}" if named else name,
        *_rates([sent] if sent is not None else []),
        *_rates([received] if received is not None else []),
        _percent(highest / rate if rate and highest is not None else None),
        _number(sum(errors) if errors else None),
    ]


def _node(node: NodeFacts) -> list[str]:
    source, power = next(((each, power) for each, power in node.power().items() if power is not None), ("", None))
    return [
        one_line(node.name, 40) or "-",
        _number(node.seconds),
        _percent(node.processor_share()),
        _percent(node.io_waiting()),
        _number(power.mean if power else None),
        _number(power.high if power else None),
        one_line(source, 16),
    ]


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.0%}"


def _number(value: float | None, digits: int = 0) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


_MARKS = {"fault": "FAULT", "slow": "SLOW", "note": "note"}


def report_card(
    run: RecordedRun,
    found: Sequence[Observation],
    alerts: Sequence[AlertSummary],
    style: TextStyle,
    rules: AlertsHeading = WHILE_RECORDED,
) -> list[str]:
    """Return the lines of the card. `rules` says whose alerts they are."""
    lines = list(_head(run, style))
    lines += [*style.heading("What stands out"), *_remarks(found, style)]
    if run.gpus():
        lines += [*style.heading("GPUs"), *_table(activity_table(run), style), "", *_table(loss_table(run), style)]
        states = state_table(run)
        if states.rows:
            lines += [*style.heading("What the GPUs did with their time"), *_table(states, style)]
        lines += _groups(run, style)
    if run.ports():
        lines += [*style.heading("Between nodes: InfiniBand, GB/s"), *_table(port_table(run), style)]
    lines += [*style.heading("Nodes"), *_table(node_table(run), style)]
    lines += style.heading(rules.heading)
    lines += _alerts(alerts, style, len(run.nodes) > 1) if alerts else style.wrapped(rules.none, "  ", "  ")
    return lines


def _head(run: RecordedRun, style: TextStyle) -> Iterator[str]:
    yield from style.wrapped(", ".join(one_line(file, 200) for file in run.files), later="  ")
    for line in run_lines(run):
        yield from style.wrapped(line, later="  ")


def run_lines(run: RecordedRun) -> Iterator[str]:
    """Yield what was recorded, in a few lines: nodes, time, command, jobs."""
    only = one_line(run.nodes[0].name, 64) or "node without a name"
    nodes = f"{len(run.nodes)} nodes" if len(run.nodes) > 1 else only
    models = ", ".join(sorted({one_line(gpu.model, 64) or "GPU of unknown model" for gpu in run.gpus()}))
    yield f"{nodes}: {f'{len(run.gpus())} x {models}' if models else 'no GPU'}"
    recorded, whole = sum(node.seconds for node in run.nodes), run.span * len(run.nodes)
    gaps = "" if recorded >= whole - 1.5 * run.interval else f", {share_text(recorded / whole)} of it recorded"
    yield f"{utc(run.first)} to {utc(run.last)}: {span_text(run.span)}{gaps}"
    header = run.nodes[0].headers[0]
    if header.command:
        yield f"ran: {one_line(' '.join(header.command), 300)}"
    scenarios = [each.scenario for node in run.nodes for each in node.headers]
    if any(scenarios):
        played = one_line(", ".join(sorted({*scenarios} - {""})), 64)
        yield f"synthetic devices played {played}: {'nothing' if all(scenarios) else 'not all'} of this is real"
    for job, gpus in run.groups():
        if job is not None:
            yield f"{job_text(job)}: {format_gpus(gpus)}"


def job_text(job: JobIdentity) -> str:
    name = f" {one_line(job.name, 64)}" if job.name else ""
    owner = f" of {one_line(job.user, 64)}" if job.user else ""
    return f"job {one_line(job.job_id, 64)}{name}{owner} ({one_line(job.scheduler, 32)})"


def _remarks(found: Sequence[Observation], style: TextStyle) -> Iterator[str]:
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


def _table(table: ReportTable, style: TextStyle) -> Iterator[str]:
    yield from style.table(table.heads, table.rows)
    if table.note:
        yield from style.wrapped(table.note, "  ", "  ")


def _groups(run: RecordedRun, style: TextStyle) -> Iterator[str]:
    for job, gpus in run.groups():
        found = imbalance_of(gpus)
        if found is None:
            continue
        what = f"Imbalance of {job_text(job)}" if job is not None else f"Imbalance of {format_gpus(gpus)}"
        text = (
            f"{what}: utilization of its GPUs differs by {share_text(found.mean)} on average and "
            f"{share_text(found.most)} at most, as means over {span_text(found.window)}."
        )
        yield from style.wrapped(text, "  ", "  ")


def _alerts(alerts: Sequence[AlertSummary], style: TextStyle, named: bool) -> Iterator[str]:
    for alert in alerts[:MOST_ROWS]:
        labels = ", ".join(f"{name}={one_line(value, 64)}" for name, value in alert.labels)
        of = f" on {one_line(alert.node, 64)}" if named else ""
        times = f", {alert.times} times" if alert.times > 1 else ""
        severity = one_line(alert.severity, 20) or "no severity"
        text = (
            f"{one_line(alert.alert, 80)} ({severity}){of} from {utc(alert.first)} for "
            f"{span_text(alert.seconds)}{times}: {labels or 'no labels'}"
        )
        yield from style.wrapped(text, "  ", "    ")
    if len(alerts) > MOST_ROWS:
        yield f"  and {len(alerts) - MOST_ROWS} more: --json has all"
