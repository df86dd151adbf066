"""Makes docs/dev/detection.md of the verdicts of all plays. Nothing in it depends on the time or on the machine.

What stands before the tables there is written by hand, and is kept.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from agent.backends.synthetic.scenario import ScenarioFault
from tests.lab.bench.report import markdown
from tests.lab.score.expectations import EXPECTED
from tests.lab.score.expected import FIGURE
from tests.lab.score.own_expectations import UNPLAYED
from tests.lab.score.plays import of_name
from tests.lab.score.scoring import Hit, Verdict, WorkVerdict
from tests.lab.score.work import FAULTY, INFORMED

DAY, HOUR = 86_400, 3600
RULE_OF_THREE = 3.0
"""If nothing was seen in a time T, the rate is below 3/T with 95% confidence."""
SUBJECTS = {"gpu": "GPU", "device": "port", "job_id": "job"}
_SPREAD: tuple[Callable[[list[float]], float], ...] = (min, median, max)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "dev" / "detection.md"
_DIGEST = re.compile(r"(?<=Inputs: )[0-9a-f]+")

_ALERTS = """## Alerts

{plays} plays, {days:.2f} node-days of synthetic time, all of which count for the rate of false alarms. If none was
seen, the rate on such nodes is below {bound:.1f} per node-day with 95% confidence. Seconds are the minimum, the median
and the maximum from fault to firing. Recall counts each GPU, port and job of each play.
"""

_JOBS = re.compile(r"^## Jobs\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
_WORK = Path(__file__).with_name("detection.jobs.md").read_text(encoding="utf-8")


def render(page: str, verdicts: Sequence[Verdict], alerts: Sequence[str], digest: str) -> str:
    """Return the page anew but for its section about jobs; `alerts` are all that were played, in their files' order."""
    jobs = "".join(_JOBS.findall(page))
    return "\n".join([head(page, digest), tables(verdicts, alerts), jobs + "\n".join(_gaps(alerts))])


def head(page: str, digest: str) -> str:
    """Return what the page has before its tables, with this digest of what they are made of."""
    return _DIGEST.sub(digest, page.partition("\n## Alerts\n")[0], count=1)


def with_jobs(page: str, works: Sequence[WorkVerdict]) -> str:
    """Return the page with another section about jobs."""
    section = "".join(f"{line}\n" for line in _jobs(works))
    return _JOBS.sub(lambda _: section, page)


def tables(verdicts: Sequence[Verdict], alerts: Sequence[str]) -> str:
    """Only the tables, for a run that does not play everything."""
    return "\n".join([*_alerts(verdicts, alerts), *_scenarios(verdicts), *_sent(verdicts)])


def shipped(hits: Sequence[Hit]) -> str:
    """Seconds to firing in the shipped play, for the GPUs of one fault."""
    found = sorted({hit.after for hit in hits if hit.after is not None})
    missed = any(hit.after is None for hit in hits)
    shown = " to ".join(f"{each:.1f}" for each in dict.fromkeys(found[:1] + found[-1:]))
    return f"{shown}, never on some" if missed and shown else shown or "never"


def grouped(hits: Iterable[Hit]) -> dict[tuple[str, str], list[Hit]]:
    """Hits by alert and by what it is about; the GPUs of one fault together."""
    causes: dict[tuple[str, int | None, tuple[tuple[str, str], ...]], list[Hit]] = {}
    for hit in hits:
        rest = tuple(pair for pair in hit.labels if pair[0] != "gpu")
        causes.setdefault((hit.alert, hit.fault, rest), []).append(hit)
    return {(alert, _about(each)): each for (alert, _, _), each in causes.items()}


def _alerts(verdicts: Sequence[Verdict], alerts: Sequence[str]) -> Iterator[str]:
    days = sum(verdict.seconds for verdict in verdicts) / DAY
    yield _ALERTS.format(plays=len(verdicts), days=days, bound=RULE_OF_THREE / days)
    head = ("alert", "must fire in", "recall", "seconds", "limit", "must not fire in", "false alarms")
    rows = []
    played = list(dict.fromkeys(verdict.name for verdict in verdicts))
    for alert in alerts:
        hits = [hit for verdict in verdicts for hit in verdict.hits if hit.alert == alert]
        must = [name for name, each in EXPECTED.items() if any(wanted.alert == alert for wanted in each.must)]
        named = [name for name in played if alert in EXPECTED[name].named]
        wrong = sum(firing.alert == alert for verdict in verdicts for firing in verdict.false_alarms)
        recall = f"{sum(hit.after is not None for hit in hits)} of {len(hits)}" if hits else ""
        where = "; ".join(must) or (f"may fire in {', '.join(named)}" if named else "")
        others = f"the other {len(played) - len(named)}" if named else f"all {len(played)}"
        rows.append((alert, where, recall, _spread(hits), _limit(hits), others, str(wrong)))
    yield markdown(head, rows)


def _scenarios(verdicts: Sequence[Verdict]) -> Iterator[str]:
    names = list(dict.fromkeys(verdict.name for verdict in verdicts))
    yield "## Scenarios\n"
    yield "Seconds from fault to firing. Any alert that is not named here is a false alarm.\n"
    head = ("scenario", "node-hours", "must fire", "about", "as shipped", "all plays: minimum, median, maximum")
    each_own = ([verdict for verdict in verdicts if verdict.name == name] for name in names)
    yield markdown(head, [row for name, own in zip(names, each_own, strict=True) for row in _scenario(name, own)])
    yield from _variations(names)
    yield "Alerts that may fire as well, and why:\n"
    for name in names:
        for reason in dict.fromkeys(f"{each.alert}: {each.why}" for each in EXPECTED[name].may):
            yield f"* {name}: {reason}."
    yield ""


def _scenario(name: str, verdicts: Sequence[Verdict]) -> Iterator[tuple[str, ...]]:
    hours = f"{sum(verdict.seconds for verdict in verdicts) / HOUR:.1f}"
    first = grouped(hit for verdict in verdicts if verdict.number == 0 for hit in verdict.hits)
    every = grouped(hit for verdict in verdicts for hit in verdict.hits)
    if not every:
        yield name, hours, "none", "", "", ""
    for (alert, about), hits in every.items():
        yield name, hours, alert, about, shipped(first[alert, about]), _spread(hits)
        name = hours = ""


def _sent(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield how many alerts one fault sends."""
    yield "## Alerts sent\n"
    yield "As shipped: what began to fire at any time, and what the agent sent: no advice, and nothing that"
    yield "`alerts/inhibition.yml` holds back.\n"
    rows = []
    for verdict in verdicts:
        if verdict.number == 0 and not EXPECTED[verdict.name].is_quiet:
            names = [firing.alert for firing in verdict.sent]
            which = ", ".join(
                f"{name} ({names.count(name)})" if names.count(name) > 1 else name for name in dict.fromkeys(names)
            )
            rows.append((verdict.name, str(verdict.fired), str(len(names)), which))
    yield markdown(("scenario", "began to fire", "sent", "which"), rows)


def _jobs(works: Sequence[WorkVerdict]) -> Iterator[str]:
    healthy = [each for each in works if each.name not in FAULTY]
    hours = sum(each.seconds for each in healthy) / HOUR
    wrong = sum(len(each.firings) for each in healthy if each.name not in INFORMED)
    yield _WORK.format(hours=hours, wrong=wrong, bound=RULE_OF_THREE * 24 / hours)
    rows: list[tuple[str, ...]] = []
    for each in healthy:
        fired = sorted({f"{firing.alert} ({firing.severity})" for firing in each.firings})
        rows.append((each.name, f"{each.seconds / HOUR:.0f}", ", ".join(fired) or "none"))
    yield markdown(("healthy work", "node-hours", "alerts"), rows)
    rows = []
    for each in works:
        if each.name in FAULTY:
            fault = FAULTY[each.name]
            about = f"{fault.alert}, GPU {fault.gpu}" if fault.gpu else fault.alert
            at = {firing.severity: f"{firing.at - fault.begins:.0f}" for firing in reversed(each.firings)}
            rows.append((each.name, about, *(at.get(word, "") for word in ("info", "warning", "critical"))))
    yield markdown(("fault", "alert", "seconds to info", "to a warning", "to critical"), rows)


def _variations(names: Iterable[str]) -> Iterator[str]:
    """The scenarios that the table of expectations varies."""
    for name in names:
        expectation = EXPECTED[name]
        if expectation.base:
            faults = of_name(name).faults
            changed = [
                f"{_changes(values)} in `{faults[number].kind}`" for number, values in expectation.changes.items()
            ]
            beside = [_beside(fault) for fault in expectation.surroundings]
            yield f"*{name}* is `{expectation.base}` with {', '.join((*changed, *dict.fromkeys(beside)))}.\n"


def _changes(values: Mapping[str, float | str]) -> str:
    return " and ".join(f"`{key}` {value if isinstance(value, str) else f'{value:g}'}" for key, value in values.items())


def _beside(fault: ScenarioFault) -> str:
    """What is set beside the devices: the metric of a figure, and for how long if it ends."""
    length = fault.window.duration
    what = f"`{fault.options['metric']}`" if fault.kind == FIGURE else f"{fault.parameters['nodes']:g} silent agents"
    return what if length is None or fault.window.repeat else f"{what} for {length:g} s"


def _gaps(alerts: Sequence[str]) -> Iterator[str]:
    yield "## Alerts that fire in no scenario\n"
    for alert in alerts:
        if alert in UNPLAYED:
            yield f"* {alert}: {UNPLAYED[alert]}"
    yield ""


def _spread(hits: Sequence[Hit]) -> str:
    found = [hit.after for hit in hits if hit.after is not None]
    if not found:
        return "never" if hits else ""
    return ", ".join(f"{figure(found):.1f}" for figure in _SPREAD)


def _limit(hits: Sequence[Hit]) -> str:
    limits = sorted({hit.within for hit in hits if hit.within is not None})
    late = sum(hit.is_late for hit in hits)
    return ", ".join(f"{each:g}" for each in limits) + (f" (MISSED {late} times)" if late else "")


def _about(hits: Sequence[Hit]) -> str:
    """`GPU 0 to 2, xid 45`, from the labels of the hits."""
    gpus = sorted({int(value) for hit in hits for name, value in hit.labels if name == "gpu"})
    words = [f"GPU {_numbers(gpus)}"] if gpus else []
    words += [f"{SUBJECTS.get(name, name)} {value}" for name, value in hits[0].labels if name != "gpu"]
    return ", ".join(words) or "the node"


def _numbers(numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(str(each) for each in numbers)
