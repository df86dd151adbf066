"""The report card on a terminal: what stands out first, and then the figures GPU by GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.lib.wording import one_line, utc
from agent.recording.report.card_tables import (
    MOST_ROWS,
    ReportTable,
    activity_table,
    loss_table,
    node_table,
    port_table,
)
from agent.recording.report.imbalance import imbalance_of
from agent.recording.report.remarks import Remark, gpu_names, share_text, span_text
from agent.recording.report.run_facts import HeldJob, Run
from agent.recording.report.text_table import TextStyle
from agent.recording.report.told_rules import WHILE_RECORDED, RulesWording, ToldAlert

_MARKS = {"fault": "FAULT", "slow": "SLOW", "note": "note"}


def report_card(
    run: Run,
    found: Sequence[Remark],
    alerts: Sequence[ToldAlert],
    style: TextStyle,
    rules: RulesWording = WHILE_RECORDED,
) -> list[str]:
    """The lines of the card. `rules` says whose alerts they are."""
    lines = list(_head(run, style))
    lines += [*style.heading("What stands out"), *_remarks(found, style)]
    if run.gpus():
        lines += [*style.heading("GPUs"), *_table(activity_table(run), style), "", *_table(loss_table(run), style)]
        lines += _groups(run, style)
    if run.ports():
        lines += [*style.heading("Between nodes: InfiniBand, GB/s"), *_table(port_table(run), style)]
    lines += [*style.heading("Nodes"), *_table(node_table(run), style)]
    lines += [
        *style.heading(rules.heading),
        *(_alerts(alerts, style, len(run.nodes) > 1) if alerts else style.wrapped(rules.none, "  ", "  ")),
    ]
    return lines


def _head(run: Run, style: TextStyle) -> Iterator[str]:
    yield from style.wrapped(", ".join(one_line(file, 200) for file in run.files), later="  ")
    for line in run_lines(run):
        yield from style.wrapped(line, later="  ")


def run_lines(run: Run) -> Iterator[str]:
    """What was recorded, in a few lines: nodes, time, command, jobs."""
    nodes = (
        f"{len(run.nodes)} nodes" if len(run.nodes) > 1 else one_line(run.nodes[0].name, 64) or "node without a name"
    )
    models = ", ".join(sorted({one_line(gpu.model, 64) or "GPU of unknown model" for gpu in run.gpus()}))
    yield f"{nodes}: {f'{len(run.gpus())} x {models}' if models else 'no GPU'}"
    recorded, whole = sum(node.seconds for node in run.nodes), run.span * len(run.nodes)
    gaps = "" if recorded >= whole - 1.5 * run.interval else f", {share_text(recorded / whole)} of it recorded"
    yield f"{utc(run.first)} to {utc(run.last)}: {span_text(run.span)}{gaps}"
    header = run.nodes[0].headers[0]
    if header.command:
        yield f"ran: {one_line(' '.join(header.command), 300)}"
    if header.scenario:
        yield f"synthetic devices played {one_line(header.scenario, 64)}: nothing of this is real"
    for job, gpus in run.groups():
        if job is not None:
            yield f"{job_text(job)}: {gpu_names(gpus)}"


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


def _table(table: ReportTable, style: TextStyle) -> Iterator[str]:
    yield from style.table(table.heads, table.rows)
    if table.note:
        yield from style.wrapped(table.note, "  ", "  ")


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


def _alerts(alerts: Sequence[ToldAlert], style: TextStyle, named: bool) -> Iterator[str]:
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
