"""Two runs side by side: what differs, and by how much. Figures of GPUs are means over all GPUs of a run."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from agent.lib.wording import one_line
from agent.recording.report import report_series as chosen
from agent.recording.report.observation import Judgement, coverage_texts
from agent.recording.report.report_card import (
    TextStyle,
    observation_text,
    pending_text,
    problem_lines,
    run_lines,
    unknown_texts,
)
from agent.recording.report.report_document import VERSION, judgement_document
from agent.recording.report.report_tables import ABSENT, ACTIVITY, LOSSES, scale_of
from agent.recording.report.report_wording import span_text
from agent.recording.report.run_facts import RecordedRun, imbalance_of, step_of


class ComparedFigure(NamedTuple):
    """A figure of both runs, in `unit`; None where a run does not have it."""

    name: str
    unit: str
    one: float | None
    other: float | None

    @property
    def change(self) -> float | None:
        """Return the difference as a share of the first; None if unknown, or of degrees: they have no zero."""
        if self.one is None or self.other is None or not self.one or self.unit == "C":
            return None
        return (self.other - self.one) / self.one


def comparison(one: RecordedRun, other: RecordedRun) -> list[ComparedFigure]:
    """Return the figures of two runs that can be set against each other."""
    pairs = zip(_figures(one), _figures(other), strict=True)
    return [ComparedFigure(name, unit, mine, yours) for (name, unit, mine), (_, _, yours) in pairs]


def _figures(run: RecordedRun) -> Iterator[tuple[str, str, float | None]]:
    gpus = run.gpus()
    yield "duration", "s", run.span
    yield "GPUs", "", float(len(gpus))
    for figure in (*ACTIVITY, *LOSSES):
        if figure.compared:
            values = [value / scale_of(figure.unit) for gpu in gpus if isinstance(value := figure.value_of(gpu), float)]
            yield figure.compared, figure.unit, fmean(values) if values else None
    energies = [energy.amount for gpu in gpus if (energy := gpu.energy()) is not None]
    yield "energy, all GPUs", "kWh", sum(energies) / scale_of("kWh") if energies else None
    rates = [rate for _, facts in run.ports() for name in chosen.PORTS if (rate := facts.mean(name)) is not None]
    yield "InfiniBand, all ports", "GB/s", sum(rates) / scale_of("GB/s") if rates else None
    groups = [gpus for _, gpus in run.groups()]
    differences = [imbalance.mean for gpus in groups if (imbalance := imbalance_of(gpus)) is not None]
    yield "imbalance, mean", "%", max(differences, default=None)
    step = step_of(groups[0]) if len(groups) == 1 else None  # several jobs have no comparable step
    yield "step", "s", step[0].seconds if step is not None else None


def comparison_card(
    one: RecordedRun, other: RecordedRun, judgements: Sequence[Judgement], style: TextStyle
) -> list[str]:
    """Return the lines; the two judgements are in the order of the runs."""
    lines: list[str] = []
    for letter, run in (("A", one), ("B", other)):
        lines += style.wrap(f"{letter}: {', '.join(one_line(file, 200) for file in run.files)}", later="   ")
        for line in (*run_lines(run), *problem_lines(run)):
            lines += style.wrap(line, "   ", "   ")
    rows = [_cells(row) for row in comparison(one, other) if row.one is not None or row.other is not None]
    lines += [*style.heading("Side by side"), *style.table(("", "A", "B", "difference", "of A"), rows)]
    lines += style.wrap("Figures of GPUs are means over all GPUs of a run that have them.", "  ", "  ")
    for letter, run in (("A", one), ("B", other)):
        for text in (text for _, gpus in run.groups() for text in unknown_texts(gpus)):
            lines += style.wrap(text, f"  {letter}: ", "     ")
    lines += [
        *style.heading("What the rules say of one of them only"),
        *_alerts_of_one((one, other), judgements, style),
    ]
    return lines


def _cells(row: ComparedFigure) -> list[str]:
    size = max(row.one or 0.0, row.other or 0.0)
    name = f"{row.name}, {row.unit}" if row.unit and row.unit not in ("%", "s") else row.name
    return [
        name,
        _figure_text(row.one, row.unit, size),
        _figure_text(row.other, row.unit, size),
        *_difference(row, size),
    ]


def _figure_text(value: float | None, unit: str, size: float) -> str:
    """Return a figure, or a difference, with as many decimals as the largest figure of its row has, of this size."""
    if value is None:
        return ABSENT
    if unit == "%":
        return f"{value:.1%}"
    if unit == "s":
        return span_text(value)
    if size >= 100 or not unit:
        return f"{value:.0f}"
    return f"{value:.3f}" if unit == "kWh" else f"{value:.2f}"


def _difference(row: ComparedFigure, size: float) -> tuple[str, str]:
    if row.one is None or row.other is None:
        return "", ""
    less = row.other - row.one
    if row.unit == "%":
        return _signed_text(less, f"{abs(less) * 100:.1f} points"), ""
    share = "" if row.change is None else _signed_text(row.change, f"{abs(row.change):.1%}")
    return _signed_text(less, _figure_text(abs(less), row.unit, size)), share


def _signed_text(value: float, amount: str) -> str:
    """Return the text of an amount with the sign of its value; what rounds to zero has not fallen."""
    is_less = value < 0 and any(digit in amount for digit in "123456789")
    return f"{'-' if is_less else '+'}{amount}"


def _alerts_of_one(runs: Sequence[RecordedRun], judgements: Sequence[Judgement], style: TextStyle) -> Iterator[str]:
    fired, pending = (
        [{alert.alert for alert in alerts} for alerts in alerts_of_runs]
        for alerts_of_runs in (
            [judgement.observations for judgement in judgements],
            [judgement.pending for judgement in judgements],
        )
    )
    for place, (letter, run, judgement) in enumerate(zip("AB", runs, judgements, strict=True)):
        first, indent, named = f"  {letter}: ", " " * 5, len(run.nodes) > 1
        for observation in judgement.observations:
            if observation.alert not in fired[1 - place]:
                yield from style.wrap(f"{observation.severity.value}: {observation.summary}", first, indent)
                yield from style.wrap(observation_text(observation, named), indent, indent)
        for alert in judgement.pending:
            if alert.alert not in pending[1 - place]:
                yield from style.wrap(f"pending: {pending_text(alert, named)}", first, indent)
    if fired[0] == fired[1]:
        yield from style.wrap("No alert fired in one of them only.", "  ", "  ")
    for letter, run, judgement in zip("AB", runs, judgements, strict=True):
        for text in coverage_texts(judgement, run.problems):
            yield from style.wrap(text, f"  {letter}: ", "     ")


def comparison_document(one: RecordedRun, other: RecordedRun, judgements: Sequence[Judgement]) -> dict[str, Any]:
    """Return the comparison for programs. Shares are ratios; what was not seen is null."""
    runs = [
        {"files": run.files, "problems": run.problems, **judgement_document(judgement)}
        for run, judgement in zip((one, other), judgements, strict=True)
    ]
    return {
        "version": VERSION,
        "one": runs[0],
        "other": runs[1],
        "figures": [
            {
                "figure": row.name,
                "unit": "ratio" if row.unit == "%" else row.unit,
                "one": row.one,
                "other": row.other,
                "change_ratio": row.change,
            }
            for row in comparison(one, other)
        ],
    }
