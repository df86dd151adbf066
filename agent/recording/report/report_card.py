"""Write the report for a terminal: the alerts that fired first, then tables of figures GPU by GPU, within a width.

Everything is ASCII but the texts of the recording.
"""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise

from agent.lib.wording import one_line, utc
from agent.model import Severity
from agent.recording.report.observation import AlertOfRun, Judgement, Observation, PendingAlert, coverage_texts
from agent.recording.report.report_tables import (
    MOST_ROWS,
    ReportTable,
    activity_table,
    loss_table,
    node_table,
    port_table,
    state_table,
)
from agent.recording.report.report_wording import format_gpus, share_text, span_text
from agent.recording.report.run_facts import (
    GpuFacts,
    JobIdentity,
    RecordedRun,
    imbalance_of,
    step_of,
    unknown_utilization,
)

NARROWEST = 20


class TextStyle:
    """How wide the text may be, in columns, and whether it may be coloured."""

    def __init__(self, width: int = 80, *, colour: bool = False) -> None:
        self.width = max(width, NARROWEST)
        self._colour = colour

    def heading(self, text: str) -> list[str]:
        """Return a heading behind an empty line."""
        return ["", *(f"\x1b[1m{line}\x1b[0m" if self._colour else line for line in self.wrap(text))]

    def colour(self, text: str, severity: Severity) -> str:
        """Return a word in the colour of a severity."""
        code = {Severity.CRITICAL: "31;1", Severity.WARNING: "33;1"}.get(severity)
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text

    def wrap(self, text: str, first: str = "", later: str = "") -> list[str]:
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
            return self._list_rows([head.replace("\n", " ") for head in heads], rows)
        texts = []
        for line in lines:
            first, *other_cells = zip(line, widths, strict=True)
            texts.append(
                "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in other_cells)]).rstrip()
            )
        return texts

    def _list_rows(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        lines = []
        for row in rows:
            lines += self.wrap(f"{heads[0]} {row[0]}".strip(), later="  ")
            for head, cell in zip(heads[1:], row[1:], strict=True):
                lines += self.wrap(f"{head}: {cell}", "  ", "    ")
        return lines


def report_card(run: RecordedRun, judgement: Judgement, recorded: Sequence[Observation], style: TextStyle) -> list[str]:
    """Return the lines; `recorded` are alerts that the node's own agent had, and that the judgement lacks."""
    lines = [*_head(run, style), *style.heading("What the rules say"), *_judgement(judgement, run, style)]
    if run.gpus():
        lines += [*style.heading("GPUs"), *_table(activity_table(run), style), "", *_table(loss_table(run), style)]
        states = state_table(run)
        if states.rows:
            lines += [*style.heading("What the GPUs did with their time"), *_table(states, style)]
        for text in (*imbalance_texts(run), *step_texts(run)):
            lines += style.wrap(text, "  ", "  ")
    if run.ports():
        lines += [*style.heading("Between nodes: InfiniBand, GB/s"), *_table(port_table(run), style)]
    lines += [*style.heading("Nodes"), *_table(node_table(run), style)]
    if recorded:
        lines += [*style.heading(RECORDED), *_alerts(recorded, style, len(run.nodes) > 1)]
    return lines


PROBLEM = "Damaged or doubled:"
"""What stands before a problem of a recording."""

RECORDED = "What only the rules of its own agent said while it was recorded"
"""The heading of alerts that are in the recording, and that the evaluated rules do not have."""


def _head(run: RecordedRun, style: TextStyle) -> Iterator[str]:
    yield from style.wrap(", ".join(one_line(file, 200) for file in run.files), later="  ")
    for line in (*run_lines(run), *problem_lines(run)):
        yield from style.wrap(line, later="  ")


def problem_lines(run: RecordedRun) -> Iterator[str]:
    """Yield what was wrong with the files, a line for each problem."""
    return (f"{PROBLEM} {one_line(problem, 1000)}" for problem in run.problems)


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
    scenarios = [header.scenario for node in run.nodes for header in node.headers]
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


def _judgement(judgement: Judgement, run: RecordedRun, style: TextStyle) -> Iterator[str]:
    named = len(run.nodes) > 1
    described: set[str] = set()
    for observation in judgement.observations[:MOST_ROWS]:
        first, *further_lines = style.wrap(observation.summary, "", _INDENT)
        yield style.colour(f"{observation.severity.value:>8}", observation.severity) + f"  {first}"
        yield from further_lines
        yield from style.wrap(observation_text(observation, named), _INDENT, _INDENT)
        description = one_line(observation.annotations.get("description", ""), MAX_DESCRIPTION_LENGTH)
        similar = {
            description,
            f"{observation.alert} {observation.severity.value}",
        }  # of other devices it differs by their names
        if description and not similar & described:
            yield from style.wrap(description, _INDENT, _INDENT)
        described |= similar
    yield from _left_out(judgement.observations)
    for alert in judgement.pending[:MOST_ROWS]:
        first, *further_lines = style.wrap(pending_text(alert, named), "", _INDENT)
        yield f" pending  {first}"
        yield from further_lines
        if alert.annotations.get("summary"):
            yield from style.wrap(f"would fire as: {alert.summary}", _INDENT, _INDENT)
    yield from _left_out(judgement.pending)
    for text in coverage_texts(judgement, run.problems):
        yield from style.wrap(text, "  ", "  ")


_INDENT = " " * 10
MAX_DESCRIPTION_LENGTH = 2000


def observation_text(observation: Observation, named: bool) -> str:
    """Return which alert it was, on what, when, and how often; with its node if it is `named`."""
    times = f", {observation.times} times" if observation.times > 1 else ""
    end = ", until the end" if observation.fires_at_end else ""
    cause = f", an effect of {one_line(observation.inhibited_by, 80)}" if observation.inhibited_by else ""
    when = f"from {utc(observation.first)} for {span_text(observation.seconds)}"
    return f"{_name_text(observation, named)} {when}{times}{end}{cause}{_labels_text(observation)}"


def pending_text(alert: PendingAlert, named: bool) -> str:
    """Return which alert was pending, on what, since when, and how much of its `for` was missing."""
    when = f"{alert.severity.value}, pending from {utc(alert.first)} for {span_text(int(alert.seconds))}, until the end"
    missing = f"{span_text(alert.missing)} of its {span_text(alert.hold)} missing"
    return f"{_name_text(alert, named)} {when}, {missing}{_labels_text(alert)}"


def _name_text(alert: AlertOfRun, named: bool) -> str:
    device = f" on {alert.device}" if alert.device else ""
    node = f" of {one_line(alert.node, 64)}" if named else ""
    return f"{one_line(alert.alert, 80)}{device}{node}"


def _labels_text(alert: AlertOfRun) -> str:
    return f": {alert.own_labels}" if alert.own_labels else ""


def _left_out(observations: Sequence[AlertOfRun]) -> Iterator[str]:
    if len(observations) > MOST_ROWS:
        yield f"  and {len(observations) - MOST_ROWS} more: --json has all"


def _table(table: ReportTable, style: TextStyle) -> Iterator[str]:
    yield from style.table(table.heads, table.rows)
    if table.note:
        yield from style.wrap(table.note, "  ", "  ")


def imbalance_texts(run: RecordedRun) -> Iterator[str]:
    """Yield a sentence on the GPUs of each job, and on those of none, and one on GPUs that could not be compared."""
    for job, gpus in run.groups():
        imbalance, unknown = imbalance_of(gpus), list(unknown_texts(gpus))
        if imbalance is not None:
            subject = f"Imbalance of {job_text(job)}" if job is not None else f"Imbalance of {format_gpus(gpus)}"
            limit = ", where it is known," if unknown else ""
            yield (
                f"{subject}: utilization of its GPUs{limit} differs by {share_text(imbalance.mean)} on average and "
                f"{share_text(imbalance.largest)} at most, as means over {span_text(imbalance.window)}."
            )
        yield from unknown


def unknown_texts(gpus: Sequence[GpuFacts]) -> Iterator[str]:
    """Yield a sentence on those of a group whose utilization is not known for a part of the time."""
    by_share: dict[str, list[GpuFacts]] = {}
    for gpu, ratio in unknown_utilization(gpus):
        by_share.setdefault(share_text(ratio), []).append(gpu)
    for share, gpus_of_share in by_share.items():
        yield (
            f"Utilization of {format_gpus(gpus_of_share)} is not known for {share} of the time in which that of others "
            "is, and not compared there."
        )


def step_texts(run: RecordedRun) -> Iterator[str]:
    """Yield a sentence on the steps of each job that shows some."""
    for job, gpus in run.groups():
        agreed_step = step_of(gpus)
        if agreed_step is not None:
            step, signal, agreeing = agreed_step
            whose = f"of {job_text(job)}" if job is not None else f"on {format_gpus(gpus)}"
            yield (
                f"Steps {whose} take about {step.seconds:.1f} s, by the rhythm of {signal} (autocorrelation "
                f"{step.clarity:.2f}, {agreeing} GPUs agree)."
            )


def _alerts(recorded: Sequence[Observation], style: TextStyle, named: bool) -> Iterator[str]:
    for alert in recorded[:MOST_ROWS]:
        yield from style.wrap(f"{alert.severity.value}  {observation_text(alert, named)}", "  ", "    ")
    yield from _left_out(recorded)
