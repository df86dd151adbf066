"""Evaluates the configured rules in a command that reads devices itself, without receivers and without saved state."""

from agent.config.schema import Config
from agent.health.conditions import is_active
from agent.health.evaluated_rules import next_evaluation, why_unjudged
from agent.model import Alert, Instant, Snapshot
from agent.wiring.identity import external_labels, target_labels
from alerts.engine import RuleEngine, Ruleset
from alerts.inhibition import Inhibition, mark
from alerts.promql.labels import make_labels


class LocalRules:
    """The rules of the configuration over the samples of one command. For one thread."""

    def __init__(self, config: Config, rules: Ruleset, now: Instant) -> None:
        self._engine = RuleEngine(rules, target_labels(config), now)
        self._inhibition = Inhibition(None if config.notify.inhibition else ())
        self._external = make_labels(external_labels(config))

    def evaluate(self, snapshot: Snapshot, now: Instant) -> list[Alert]:
        """Evaluate what is due, and return the conditions, those that are effects of others marked."""
        if self._engine.round(snapshot, now):
            records = (record for _, _, record in self._engine.remembered())
            self._inhibition.update(records, now.mono, self._external)
        reports = (mark(report, self._inhibition.causes) for report in self._engine.reports())
        return [alert for report in reports for rule in report.rules for alert in rule.alerts if is_active(alert)]

    def why_unjudged(self, now: Instant) -> str:
        """Return why the absence of conditions proves nothing; empty if the rules are up to date."""
        groups = self._engine.reports()
        return why_unjudged(bool(groups), next_evaluation(groups), self._engine.time(now))
