"""Which plays there are: each scenario as shipped, and varied by other seeds and other moments.

A seed alone changes the noise, how the chips differ, how bursts of requests fall, and the devices' names. So that the
phase between a fault and the rules' time grid varies too, every further play moves all faults of a scenario to a later
moment, by up to ten minutes; where there are none, its jobs begin later, and those of a quiet scenario end as well.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

import msgspec
from msgspec.structs import replace

from agent.backends.synthetic import Scenario, load_scenario, shipped_names
from agent.backends.synthetic.scenario import ScenarioFault, ScenarioJob, Window
from alerts.rulefile import AlertingRule, RecordingRule, RuleFile
from tests.lab.score.expectations import EXPECTED
from tests.lab.score.expected import Expectation
from tests.lab.score.own_expectations import UNPLAYED
from tests.lab.score.work import FAULTY

PLAYS = 3
SCENARIOS = Path(__file__).with_name("scenarios")
LATEST = 600.0
"""Seconds by which faults or jobs come later, at most."""
LAST = 1200.0
"""Seconds before the end of a quiet play within which its jobs end."""


class ScoreError(Exception):
    """The table of expectations does not fit what is shipped; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Part:
    """One play: of which scenario, the how-manieth (0: as shipped), and for how many seconds."""

    name: str
    number: int
    seconds: int

    @property
    def expectation(self) -> Expectation:
        return EXPECTED[self.name]

    def scenario(self) -> Scenario:
        as_shipped = of_name(self.name)
        return as_shipped if self.number == 0 else _varied(as_shipped, self)


def parts(plays: int = PLAYS) -> Iterator[Part]:
    """All plays of all scenarios."""
    for name, expectation in EXPECTED.items():
        for number in range(plays):
            later = 0 if number == 0 or expectation.is_quiet else int(_delay(name, number)) + 1
            yield Part(name, number, expectation.seconds + later)


def of_name(name: str) -> Scenario:
    """A scenario of the table, as it is shipped but for what the table changes."""
    expectation = EXPECTED[name]
    file = SCENARIOS / f"{expectation.base or name}.yaml"
    scenario = load_scenario(str(file) if file.exists() else expectation.base or name)
    changes = expectation.changes
    faults = [_changed(fault, changes.get(number, {})) for number, fault in enumerate(scenario.faults)]
    return replace(scenario, faults=(*faults, *expectation.surroundings))


def _changed(fault: ScenarioFault, values: Mapping[str, float | str]) -> ScenarioFault:
    """Return a fault with other numbers and words, at another time or for another duration."""
    numbers = {name: value for name, value in values.items() if name in fault.parameters and not isinstance(value, str)}
    words = {name: value for name, value in values.items() if name in fault.options and isinstance(value, str)}
    times = {name: float(value) for name, value in values.items() if name in ("at", "duration")}
    window = replace(fault.window, **times)
    assert numbers.keys() | words.keys() | times.keys() == values.keys(), f"{fault.kind} lacks one of {sorted(values)}"
    return replace(fault, window=window, parameters={**fault.parameters, **numbers}, options={**fault.options, **words})


def refuse_gaps(alerts: set[str]) -> None:
    """Raises ScoreError where the table lacks a scenario or an alert, or names one that is not there."""
    shipped = set(shipped_names())
    if missing := shipped - EXPECTED.keys():
        raise ScoreError(f"no expectations for {_list(missing)}: add them to tests/lab/score/expectations.py")
    own = {path.stem for path in SCENARIOS.glob("*.yaml")}
    if gone := {each.base or name for name, each in EXPECTED.items()} - shipped - own:
        raise ScoreError(f"expectations for {_list(gone)}, which there is no shipped scenario: mend the name")
    must = {wanted.alert for each in EXPECTED.values() for wanted in each.must}
    if silent := alerts - must - {fault.alert for fault in FAULTY.values()} - UNPLAYED.keys():
        raise ScoreError(f"no scenario has {_list(silent)}: add one, or say why not in own_expectations.py")
    if unknown := set().union(*(each.named for each in EXPECTED.values())) - alerts:
        raise ScoreError(f"expectations name {_list(unknown)}, which no rule of the pack is called: mend the name")


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _delay(name: str, number: int) -> float:
    return round(LATEST * Random(f"{name} {number}").random(), 2)


def _varied(scenario: Scenario, part: Part) -> Scenario:
    later = _delay(part.name, part.number)
    seed = scenario.seed + 1000 * part.number
    if scenario.faults:
        return replace(scenario, seed=seed, faults=tuple(_moved(fault, later) for fault in scenario.faults))
    draw = Random(f"{part.name} {part.number} jobs")
    jobs = []
    for job in scenario.jobs:
        end = round(part.seconds - LAST * draw.random(), 2) if part.expectation.is_quiet else None
        jobs.append(_begun_later(job, later, end))
    return replace(scenario, seed=seed, jobs=tuple(jobs))


def _moved(fault: ScenarioFault, later: float) -> ScenarioFault:
    return replace(fault, window=replace(fault.window, at=fault.window.at + later))


def _begun_later(job: ScenarioJob, later: float, end: float | None) -> ScenarioJob:
    phases = tuple(replace(each, window=replace(each.window, at=each.window.at + later)) for each in job.phases)
    start = job.window.at + later
    return replace(job, phases=phases, window=Window(start, None if end is None else end - start))


def digest(pack: Iterable[RuleFile]) -> str:
    """Of everything, in hexadecimal."""
    plays = [
        (part.name, part.number, part.seconds, replace(part.scenario(), description="", expect=())) for part in parts()
    ]
    rules = [_rule(group.name, group.interval, rule) for file in pack for group in file.groups for rule in group.rules]
    expected = {name: dataclasses.replace(each, changes={}) for name, each in EXPECTED.items()}  # which the plays have
    return sha256(msgspec.json.encode((rules, plays, expected), order="deterministic")).hexdigest()


def _rule(group: str, interval: float | None, rule: AlertingRule | RecordingRule) -> tuple[object, ...]:
    query = " ".join(rule.expression.split())
    if isinstance(rule, RecordingRule):
        return group, interval, rule.name, query, rule.labels
    return group, interval, rule.name, query, rule.terms.hold, rule.terms.keep_firing
