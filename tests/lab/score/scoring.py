"""Holds what fired against what was expected. Pure: it plays nothing and writes nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.backends.synthetic import Scenario
from tests.lab.score.expected import Expectation, Expected
from tests.lab.score.play import Firing
from tests.lab.score.work import FAULTY, INFORMED
from tests.lab.score.work_play import WorkFiring

Pairs = tuple[tuple[str, str], ...]
_EARLY = 1e-6


@dataclass(frozen=True, slots=True)
class Hit:
    """One alert that must fire: by its name and some labels, from a second on, within a limit if there is one.

    `after` are the seconds from onset to firing, None where it never fired.
    """

    alert: str
    labels: Pairs
    onset: float
    fault: int | None = None
    within: float | None = None
    after: float | None = None

    def explains(self, firing: Firing) -> bool:
        if firing.alert != self.alert or firing.at < self.onset - _EARLY:
            return False
        return set(self.labels) <= set(firing.labels)

    @property
    def is_late(self) -> bool:
        return self.after is not None and self.within is not None and self.after > self.within


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    number: int
    seconds: int
    hits: tuple[Hit, ...] = ()
    false_alarms: tuple[Firing, ...] = ()
    failures: tuple[str, ...] = ()
    fired: int = 0
    sent: tuple[Firing, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkVerdict:
    name: str
    seconds: float
    firings: tuple[WorkFiring, ...]


def judge(expectation: Expectation, scenario: Scenario, firings: Iterable[Firing]) -> tuple[list[Hit], list[Firing]]:
    """What became of the alerts that had to fire, and those that must not have."""
    firings = list(firings)
    wanted = [each for expected in expectation.must for each in wanted_of(expected, scenario)]
    lawful = [each for expected in expectation.may for each in wanted_of(expected, scenario)]
    hits = []
    for each in wanted:
        first = min((firing.at for firing in firings if each.explains(firing)), default=None)
        hits.append(replace(each, after=None if first is None else round(first - each.onset, 3)))
    explained = (*wanted, *lawful)
    return hits, [firing for firing in firings if not any(each.explains(firing) for each in explained)]


def wanted_of(expected: Expected, scenario: Scenario) -> list[Hit]:
    """One for each GPU or port of the fault, or one for the job or the node."""
    fault = None if expected.fault is None else scenario.faults[expected.fault]
    window = scenario.jobs[0].window if fault is None else fault.window
    onset = window.at + (expected.occurrence - 1) * (window.repeat or 0.0)
    return [
        Hit(expected.alert, tuple({**subject, **expected.labels}.items()), onset, expected.fault, expected.within)
        for subject in _subjects(expected, scenario)
    ]


def problems(verdicts: Iterable[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        play = f"{verdict.name}, play {verdict.number}"
        for hit in verdict.hits:
            if hit.after is None:
                yield f"{play}: {hit.alert} {_shown(hit.labels)} did not fire"
            elif hit.is_late:
                yield f"{play}: {hit.alert} {_shown(hit.labels)} fired after {hit.after:g} s, limit {hit.within:g} s"
        for firing in verdict.false_alarms:
            yield f"{play}: {firing.alert} {_shown(firing.labels)} fired at {firing.at:g} s, and must not have"
        for failure in verdict.failures[:3]:
            yield f"{play}: a rule failed at {failure}"


def _subjects(expected: Expected, scenario: Scenario) -> Sequence[Mapping[str, str]]:
    if expected.of == "node":
        return [{}]
    if expected.of == "job":
        return [{"job_id": scenario.jobs[0].id}]
    assert expected.fault is not None, f"{expected.alert}: only a fault has a GPU or a port"
    fault = scenario.faults[expected.fault]
    if expected.of == "port":
        return [{"device": fault.port or fault.part}]
    if expected.of == "detector":
        return [{"detector": fault.part}]
    return [{"gpu": str(gpu)} for gpu in fault.gpus]


def _shown(labels: Pairs) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in labels if name not in ("alertname", "uuid")) + "}"


def problems_of_work(verdicts: Iterable[WorkVerdict]) -> Iterator[str]:
    """Yield each alert about healthy work, and each fault without its alert, with another one, or with a late one."""
    for verdict in verdicts:
        fault = FAULTY.get(verdict.name)
        for each in verdict.firings:
            if fault is None and not (verdict.name in INFORMED and each.severity == "info"):
                yield f"{verdict.name}: {each.alert} of GPU {each.gpu} fired after {each.at:g} s"
            elif fault is not None and (each.alert, each.gpu) != (fault.alert, fault.gpu):
                yield f"{verdict.name}: {each.alert} of GPU {each.gpu} fired"
        if fault is not None and not any(each.at - fault.begins <= fault.within for each in verdict.firings):
            yield f"{verdict.name}: {fault.alert} did not fire within {fault.within:g} s"
