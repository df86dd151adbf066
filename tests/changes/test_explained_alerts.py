"""Alerts with what else changed: added once when they fire, kept, saved, and never in place of a rule's own."""

from __future__ import annotations

from agent.model import Alert, Phase
from alerts import alert_state
from alerts.changes import ANNOTATION
from alerts.engine import RuleEngine, Ruleset
from tests.engine.conftest import Node, later, ruleset

HOT = "{alert: Hot, expr: t > 80, for: 10s, annotations: {summary: 'at {{ $value }}'}}"
OWN = "{alert: Hot, expr: t > 80, annotations: {changes: mine}}"
HOT_NODE = {("t", "0"): 90.0}


class Explained:
    """An engine whose explanations are numbered, so that each is seen to be asked for once."""

    def __init__(self, rules: str | Ruleset) -> None:
        self.asked: list[Alert] = []
        self._node = Node()
        found = ruleset(rules) if isinstance(rules, str) else rules
        self.engine = RuleEngine(found, (), later(0), explain=self._explain)

    def _explain(self, alert: Alert, now: float) -> str:
        self.asked.append(alert)
        return f"story {len(self.asked)} at {now - later(0).wall:.0f}"

    def rounds(self, first: int, last: int, hot: bool = True) -> Explained:
        for second in range(first, last + 1):
            snapshot = self._node.snapshot(HOT_NODE if hot else {("t", "0"): 20.0}, later(second))
            self.engine.round(snapshot, later(second))
        return self

    @property
    def alert(self) -> Alert:
        (found,) = [record.alert for _, _, record in self.engine.remembered()]
        return found


def test_an_alert_that_fires_is_explained_once_and_keeps_it_until_it_is_over() -> None:
    run = Explained(HOT).rounds(0, 9)
    assert run.alert.phase is Phase.PENDING and ANNOTATION not in run.alert.annotations
    run.rounds(10, 30)
    assert dict(run.alert.annotations) == {"summary": "at 90", ANNOTATION: "story 1 at 10"}
    assert run.rounds(31, 31, hot=False).alert.annotations[ANNOTATION] == "story 1 at 10"
    assert run.alert.phase is Phase.RESOLVED


def test_the_next_incident_has_an_explanation_of_its_own() -> None:
    run = Explained(HOT).rounds(0, 20).rounds(21, 25, hot=False).rounds(26, 40)
    assert run.alert.annotations[ANNOTATION] == "story 2 at 36"


def test_a_restart_keeps_it() -> None:
    run = Explained(HOT).rounds(0, 12)
    content = alert_state.encode(run.engine.time(later(12)), "devices", run.engine.remembered())
    after = Explained(HOT)
    after.engine.restore(alert_state.decode(content), later(14))
    assert after.rounds(14, 20).alert.annotations[ANNOTATION] == "story 1 at 10"
    assert after.asked == []


def test_a_reload_keeps_it() -> None:
    run = Explained(HOT).rounds(0, 12)
    run.engine.reload(ruleset(HOT.replace("at {{", "now at {{")), later(13))
    assert dict(run.rounds(13, 20).alert.annotations) == {"summary": "now at 90", ANNOTATION: "story 1 at 10"}


def test_a_rule_with_an_annotation_of_that_name_keeps_its_own() -> None:
    run = Explained(OWN).rounds(0, 5)
    assert dict(run.alert.annotations) == {ANNOTATION: "mine"}
    assert run.asked == []
