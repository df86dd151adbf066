"""Two runs side by side: what differs, and by how much. Figures of GPUs are means over all GPUs of a run."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from agent.lib.wording import one_line
from agent.recording.report import report_series as chosen
from agent.recording.report.observation import span_text
from agent.recording.report.performance_observations import all_observations, step_of
from agent.recording.report.report_card import ABSENT, TextStyle, run_lines
from agent.recording.report.run_facts import GpuFacts, RecordedRun, imbalance_of


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


_Of = Callable[[GpuFacts], "float | None"]


def _mean_of(name: str, scale: float = 1.0, labels: tuple[tuple[str, str], ...] = ()) -> _Of:
    return lambda gpu: mean / scale if (mean := gpu.mean(name, labels)) is not None else None


def _peak_of(name: str, scale: float = 1.0) -> _Of:
    return lambda gpu: summary.high / scale if (summary := gpu.summary(name)) is not None else None


def _rate_of(*names: str) -> _Of:
    def rate(gpu: GpuFacts) -> float | None:
        counters = gpu.counters(names)
        return sum(one.rate or 0.0 for one in counters) / 1e9 if counters else None

    return rate


def _mean_power(gpu: GpuFacts) -> float | None:
    energy = gpu.energy()
    return energy[0] / energy[1] if energy is not None and energy[1] else None


def _throttled_share(gpu: GpuFacts) -> float | None:
    lost = gpu.slowed_seconds()
    over = max((over for _, over, _ in gpu.throttled().values()), default=0.0)
    return lost / over if lost is not None and over else None


_OF_GPUS: tuple[tuple[str, str, _Of], ...] = (
    ("utilization", "%", _mean_of(chosen.UTILIZATION)),
    ("SM activity", "%", _mean_of(chosen.SM)),
    ("tensor activity", "%", _mean_of(chosen.TENSOR)),
    ("DRAM activity", "%", _mean_of(chosen.DRAM)),
    ("memory, peak", "GiB", _peak_of(chosen.MEMORY, 2.0**30)),
    ("power by energy", "W", _mean_power),
    ("power, peak", "W", _peak_of(chosen.POWER)),
    ("temperature", "C", _mean_of(chosen.TEMPERATURE)),
    ("temperature, peak", "C", _peak_of(chosen.TEMPERATURE)),
    ("SM clock", "MHz", _mean_of(chosen.CLOCK, 1e6, chosen.SM_CLOCK)),
    ("throttled", "%", _throttled_share),
    ("at power limit", "%", lambda gpu: capped[0] if (capped := gpu.capped()) is not None else None),
    ("NVLink", "GB/s", _rate_of(chosen.NVLINK_OUT, chosen.NVLINK_IN)),
    ("PCIe", "GB/s", _rate_of(chosen.PCIE_OUT, chosen.PCIE_IN)),
)


def comparison(one: RecordedRun, other: RecordedRun) -> list[ComparedFigure]:
    """Return the figures of two runs that can be set against each other."""
    rows = [ComparedFigure("duration", "s", one.span, other.span)]
    rows.append(ComparedFigure("GPUs", "", float(len(one.gpus())), float(len(other.gpus()))))
    for name, unit, of in _OF_GPUS:
        values = [[value for gpu in run.gpus() if (value := of(gpu)) is not None] for run in (one, other)]
        rows.append(ComparedFigure(name, unit, *(fmean(some) if some else None for some in values)))
    rows.append(ComparedFigure("energy, all GPUs", "kWh", _energy(one), _energy(other)))
    rows.append(ComparedFigure("InfiniBand, all ports", "GB/s", _fabric(one), _fabric(other)))
    rows.append(ComparedFigure("imbalance, mean", "%", _imbalance(one), _imbalance(other)))
    rows.append(ComparedFigure("step", "s", _step(one), _step(other)))
    return rows


def _energy(run: RecordedRun) -> float | None:
    energies = [energy[0] for gpu in run.gpus() if (energy := gpu.energy()) is not None]
    return sum(energies) / 3.6e6 if energies else None


def _fabric(run: RecordedRun) -> float | None:
    rates = [counter.rate for _, facts in run.ports() for name in (chosen.PORT_OUT, chosen.PORT_IN)
             if (counter := facts.growth(name)) is not None and counter.rate is not None]  # fmt: skip
    return sum(rates) / 1e9 if rates else None


def _imbalance(run: RecordedRun) -> float | None:
    return max((found.mean for _, gpus in run.groups() if (found := imbalance_of(gpus)) is not None), default=None)


def _step(run: RecordedRun) -> float | None:
    """Return the step of a run of one job; runs of several jobs have no comparable step."""
    groups = run.groups()
    found = step_of(groups[0][1]) if len(groups) == 1 else None
    return found[0].seconds if found is not None else None


def comparison_card(one: RecordedRun, other: RecordedRun, style: TextStyle) -> list[str]:
    lines: list[str] = []
    for letter, run in (("A", one), ("B", other)):
        lines += style.wrapped(f"{letter}: {', '.join(one_line(file, 200) for file in run.files)}", later="   ")
        for line in run_lines(run):
            lines += style.wrapped(line, "   ", "   ")
    rows = [[_named(row), _shown(row.one, row.unit), _shown(row.other, row.unit), *_difference(row)]
            for row in comparison(one, other) if row.one is not None or row.other is not None]  # fmt: skip
    lines += [*style.heading("Side by side"), *style.table(("", "A", "B", "difference", "of A"), rows)]
    lines += style.wrapped("Figures of GPUs are means over all GPUs of a run that have them.", "  ", "  ")
    lines += [*style.heading("What stands out in one of them only"), *_only(one, other, style)]
    return lines


def _named(row: ComparedFigure) -> str:
    return f"{row.name}, {row.unit}" if row.unit and row.unit not in ("%", "s") else row.name


def _shown(value: float | None, unit: str, size: float = 0.0) -> str:
    """Return a figure, or a difference of figures of this size, with as many decimals as they have."""
    if value is None:
        return ABSENT
    if unit == "%":
        return f"{value:.1%}"
    if unit == "s":
        return span_text(value)
    if max(abs(value), size) >= 100 or not unit:
        return f"{value:.0f}"
    return f"{value:.3f}" if unit == "kWh" else f"{value:.2f}"


def _difference(row: ComparedFigure) -> tuple[str, str]:
    if row.one is None or row.other is None:
        return "", ""
    less = row.other - row.one
    if row.unit == "%":
        return _signed(less, f"{abs(less) * 100:.1f} points"), ""
    share = "" if row.change is None else _signed(row.change, f"{abs(row.change):.1%}")
    return _signed(less, _shown(abs(less), row.unit, max(row.one, row.other))), share


def _signed(value: float, shown: str) -> str:
    """Return the text of an amount with the sign of its value; what rounds to zero has not fallen."""
    is_less = value < 0 and any(digit in shown for digit in "123456789")
    return f"{'-' if is_less else '+'}{shown}"


def _only(one: RecordedRun, other: RecordedRun, style: TextStyle) -> Iterator[str]:
    said = [all_observations(run) for run in (one, other)]
    kinds = [{remark.kind for remark in some} for some in said]
    lines = []
    for letter, some, others in (("A", said[0], kinds[1]), ("B", said[1], kinds[0])):
        for remark in some:
            if remark.kind not in others:
                lines += style.wrapped(remark.text, f"  {letter}: ", "     ")
    yield from lines or style.wrapped("Nothing: the same stands out in both.", "  ", "  ")


def comparison_document(one: RecordedRun, other: RecordedRun, rows: Sequence[ComparedFigure]) -> dict[str, Any]:
    """Return the comparison for programs. Shares are ratios; what was not seen is null."""
    return {
        "version": 1,
        "one": {"files": one.files, "problems": one.problems},
        "other": {"files": other.files, "problems": other.problems},
        "figures": [
            {"figure": row.name, "unit": "ratio" if row.unit == "%" else row.unit, "one": row.one, "other": row.other,
             "change_ratio": row.change}
            for row in rows
        ],
    }  # fmt: skip
