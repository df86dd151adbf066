"""Finds the alerts that are effects of others, by Alertmanager's inhibition rules.

`alerts/inhibition.yml` is the one source: the agent holds back what it inhibits, and the configuration of an
Alertmanager, `alerts/server/alertmanager.yml`, has the same rules. A rule says that alerts which match its target
matchers are muted while an alert that matches its source matchers fires and has the same values of the labels
`equal`; a missing label counts as empty. As in Alertmanager, alerts that match both sides do not mute each other.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from agent.lib import textfile, yamltree
from agent.lib.yamltree import Bounds
from agent.model import GroupReport, Labels, Phase
from alerts.lifecycle import AlertRecord
from alerts.promql.labels import Matcher

FILE = Path(__file__).with_name("inhibition.yml")
LARGEST_BYTES = 2**20
AFTERMATH_SECONDS = 300.0
"""Seconds after the end of its cause for which an effect whose condition holds on is no news.

Most rules look back for five minutes or less: what the cause did is out of sight then.
"""
_MATCHER = re.compile(r'^([a-zA-Z_]\w*)(=~|!~|!=|=)"(.*)"$')


class InhibitRule(NamedTuple):
    """One rule: the matchers of its two sides, and the labels that must be equal."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def inhibits(self, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
        """Return True if an alert with the first labels, which match the source side, mutes one with the second."""
        return (
            all(source.get(name, "") == target.get(name, "") for name in self.equal)
            and _match(self.target, target)
            and not (_match(self.target, source) and _match(self.source, target))
        )


def _match(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    return all(matcher.matches(labels.get(matcher.name, "")) for matcher in matchers)


def parse(text: str) -> tuple[InhibitRule, ...]:
    """Return the rules of a document with the key `inhibit_rules`, such as that of the pack."""
    document: Any = yamltree.load(text, Bounds())
    return tuple(
        InhibitRule(_matchers(rule["source_matchers"]), _matchers(rule["target_matchers"]), tuple(rule["equal"]))
        for rule in document["inhibit_rules"]
    )


def _matchers(texts: Iterable[str]) -> tuple[Matcher, ...]:
    return tuple(Matcher(name, operator, value) for text in texts for name, operator, value in _MATCHER.findall(text))


@lru_cache(maxsize=1)
def shipped() -> tuple[InhibitRule, ...]:
    """Return the rules of alerts/inhibition.yml."""
    return parse(textfile.read_text(FILE, LARGEST_BYTES))


class _Effect(Struct):
    """An alert that began while its cause fired. `ended_at`: the monotonic second at which that was first over."""

    cause: Labels
    ended_at: float | None = None
    has_lapsed: bool = False
    """Whether its condition did not hold at some evaluation since: the alert only lasts for its `keep_firing_for`."""

    def is_news(self, labels: Labels, mono: float) -> bool:
        """Return whether an alert with these labels, whose condition outlasts its cause, is more than an effect.

        The lower level of the same alert is at once: the fault is less severe then, and not over.
        """
        assert self.ended_at is not None
        is_level = dict(labels)["alertname"] == dict(self.cause)["alertname"]
        return is_level or self.has_lapsed or mono - self.ended_at >= AFTERMATH_SECONDS


class Inhibition:
    """Keeps which of the firing alerts are inhibited, and by which. For the thread of the rules.

    An alert that began while its cause fired is not news when the cause ends: it stays inhibited until it ends, too,
    or until it shows that it is no effect. It does by a condition that begins again, or that holds on for
    `AFTERMATH_SECONDS`; a lower level of the same alert does by one that holds when the higher level ends. Alertmanager
    knows no such thing: it gets from the agent only what is not inhibited here.
    """

    def __init__(self, rules: Sequence[InhibitRule] | None = None) -> None:
        self._rules = rules
        self._firing: tuple[Labels, ...] = ()
        self._found_for: tuple[tuple[Labels, ...], Labels] = ((), ())
        """The alerts and external labels of which `_present` was found."""
        self._present: Mapping[Labels, Labels] = {}
        """What is inhibited by alerts that fire now."""
        self._effects: dict[Labels, _Effect] = {}
        self.causes: Mapping[Labels, Labels] = {}
        """The labels of each inhibited alert, with those of the alert that inhibits it."""

    @property
    def effects(self) -> Mapping[Labels, Labels]:
        """The labels of each alert that began while its cause fired, with those of the cause: for a later run."""
        return {labels: effect.cause for labels, effect in self._effects.items()}

    def resume(self, records: Iterable[AlertRecord], effects: Mapping[Labels, Labels]) -> None:
        """Take over the alerts and the effects of an earlier run, before the first update."""
        self._firing = tuple(r.alert.labels for r in records if r.alert.phase is Phase.FIRING)
        self._effects = {labels: _Effect(cause) for labels, cause in effects.items()}

    def update(self, records: Iterable[AlertRecord], mono: float, external: Labels = ()) -> None:
        """Take in all alerts at a monotonic second.

        `external` are labels that the agent adds to alerts that lack them.
        """
        lapsed: dict[Labels, bool] = {}
        for record in records:
            if record.alert.phase is Phase.FIRING:
                labels = record.alert.labels
                lapsed[labels] = record.missing_since is not None and lapsed.get(labels, True)
        before, firing = self._firing, tuple(lapsed)
        if (firing, external) != self._found_for:
            self._firing, self._found_for = firing, (firing, external)
            self._present = find_causes(firing, shipped() if self._rules is None else self._rules, external)
            begun = self._present.keys() - set(before) - self._effects.keys()
            self._effects.update((labels, _Effect(self._present[labels])) for labels in begun)
        self._follow(lapsed, mono)
        past = {labels: effect.cause for labels, effect in self._effects.items() if effect.ended_at is not None}
        self.causes = {**self._present, **past} if past else self._present

    def _follow(self, lapsed: Mapping[Labels, bool], mono: float) -> None:
        """Forget the effects that have ended or that are news; `lapsed` has what fires, and whether it only lasts."""
        for labels, effect in list(self._effects.items()):
            if labels not in lapsed:
                del self._effects[labels]
            elif labels in self._present:
                self._effects[labels] = _Effect(self._present[labels])
            else:
                effect.ended_at = mono if effect.ended_at is None else effect.ended_at
                if lapsed[labels]:
                    effect.has_lapsed = True
                elif effect.is_news(labels, mono):
                    del self._effects[labels]


def find_causes(firing: Sequence[Labels], rules: Iterable[InhibitRule], external: Labels = ()) -> dict[Labels, Labels]:
    """Return the labels of each alert that is inhibited, with those of the first alert that inhibits it."""
    causes: dict[Labels, Labels] = {}
    if len(firing) < 2:
        return causes
    mappings = [{**dict(external), **dict(labels)} for labels in firing]
    for rule in rules:
        sources = [number for number, mapping in enumerate(mappings) if _match(rule.source, mapping)]
        for number, target in enumerate(mappings) if sources else ():
            if firing[number] not in causes:
                cause = next((source for source in sources if rule.inhibits(mappings[source], target)), None)
                if cause is not None:
                    causes[firing[number]] = firing[cause]
    return causes


def mark(report: GroupReport, causes: Mapping[Labels, Labels]) -> GroupReport:
    """Return the report with the name of its cause on each alert that is inhibited; the same object if no alert is."""
    if not any(alert.labels in causes for rule in report.rules for alert in rule.alerts):
        return report
    rules = tuple(
        rule._replace(
            alerts=tuple(
                replace(alert, inhibited_by=dict(causes[alert.labels])["alertname"])
                if alert.labels in causes
                else alert
                for alert in rule.alerts
            )
        )
        for rule in report.rules
    )
    return replace(report, rules=rules)
