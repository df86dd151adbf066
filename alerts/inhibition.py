"""Finds the alerts that are effects of others, by Alertmanager's inhibition rules.

`alerts/inhibition.yml` is the one source: the agent holds back what it inhibits, and the configuration of an
Alertmanager, `alerts/server/alertmanager.yml`, has the same rules. A rule says that alerts which match its target
matchers are muted while an alert that matches its source matchers fires and has the same values of the labels
`equal`; a missing label counts as empty. As in Alertmanager, alerts that match both sides do not mute each other.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from agent.lib import textfile, yamltree
from agent.lib.record import replace
from agent.lib.yamltree import Bounds
from agent.model import Alert, GroupReport, Labels, Phase
from alerts.promql.labels import Matcher

FILE = Path(__file__).with_name("inhibition.yml")
LARGEST_BYTES = 2**20
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
    return all(each.matches(labels.get(each.name, "")) for each in matchers)


def parse(text: str) -> tuple[InhibitRule, ...]:
    """Return the rules of a document with the key `inhibit_rules`, such as that of the pack."""
    document: Any = yamltree.load(text, Bounds())
    return tuple(
        InhibitRule(_matchers(each["source_matchers"]), _matchers(each["target_matchers"]), tuple(each["equal"]))
        for each in document["inhibit_rules"]
    )


def _matchers(given: Iterable[str]) -> tuple[Matcher, ...]:
    return tuple(Matcher(name, operator, value) for each in given for name, operator, value in _MATCHER.findall(each))


@lru_cache(maxsize=1)
def shipped() -> tuple[InhibitRule, ...]:
    """Return the rules of alerts/inhibition.yml."""
    return parse(textfile.read_text(FILE, LARGEST_BYTES))


class Inhibition:
    """Keeps which of the firing alerts are inhibited, and by which. For the thread of the rules."""

    def __init__(self, rules: Sequence[InhibitRule] | None = None) -> None:
        self._rules = rules
        self._firing: tuple[Labels, ...] = ()
        self._external: Labels = ()
        self.causes: Mapping[Labels, Labels] = {}
        """The labels of each inhibited alert, with those of the alert that inhibits it."""

    def update(self, alerts: Iterable[Alert], external: Labels = ()) -> None:
        """Take in all alerts. `external` are labels that the agent adds to alerts that lack them."""
        firing = tuple(alert.labels for alert in alerts if alert.phase is Phase.FIRING)
        if (firing, external) != (self._firing, self._external):
            self._firing, self._external = firing, external
            self.causes = find_causes(firing, shipped() if self._rules is None else self._rules, external)


def find_causes(firing: Sequence[Labels], rules: Iterable[InhibitRule], external: Labels = ()) -> dict[Labels, Labels]:
    """Return the labels of each alert that is inhibited, with those of the first alert that inhibits it."""
    found: dict[Labels, Labels] = {}
    if len(firing) < 2:
        return found
    labels = [{**dict(external), **dict(each)} for each in firing]
    for rule in rules:
        sources = [number for number, each in enumerate(labels) if _match(rule.source, each)]
        for number, each in enumerate(labels) if sources else ():
            if firing[number] not in found:
                by = next((source for source in sources if rule.inhibits(labels[source], each)), None)
                if by is not None:
                    found[firing[number]] = firing[by]
    return found


def mark(report: GroupReport, causes: Mapping[Labels, Labels]) -> GroupReport:
    """Return the report with the name of its cause on each alert that is inhibited; the same object if no alert is."""
    if not any(alert.labels in causes for rule in report.rules for alert in rule.alerts):
        return report
    rules = tuple(
        rule._replace(alerts=tuple(
            replace(alert, inhibited_by=dict(causes[alert.labels])["alertname"]) if alert.labels in causes else alert
            for alert in rule.alerts
        ))
        for rule in report.rules
    )  # fmt: skip
    return replace(report, rules=rules)
