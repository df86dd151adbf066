"""What alerting rules read: which metrics, and how far back, also through the series of recording rules."""

from collections.abc import Iterator

from msgspec import Struct

from alerts.engine import Ruleset
from alerts.promql.labels import only_metric_name
from alerts.rulefile import AlertingRule, RecordingRule, Rule

SUMS = {
    "coldplate_gpu_xid_errors_total": "coldplate_gpu_xids_total",
    "coldplate_nvlink_errors_total": "coldplate_gpu_nvlink_errors_total",
    "coldplate_ethernet_fec_lane_corrected_blocks_total": "coldplate_ethernet_fec_corrected_blocks_total",
    "coldplate_ethernet_fec_lane_uncorrectable_blocks_total": "coldplate_ethernet_fec_uncorrectable_blocks_total",
    "coldplate_ethernet_fec_lane_corrected_bit_errors_total": "coldplate_ethernet_fec_corrected_bit_errors_total",
}
"""What is there from the start, for each counter whose series begin with their first error."""


class RuleInputs(Struct, frozen=True):
    """What a rule reads: `metrics` by name, empty if any metric may match, and the seconds that it looks back."""

    metrics: frozenset[str] = frozenset()
    history: float = 0.0


def alerting_rules(rules: Ruleset) -> Iterator[AlertingRule]:
    """Yield the rules that make alerts."""
    return (rule for group in rules.groups for rule in group.rules if isinstance(rule, AlertingRule))


class RuleReader:
    """Finds what rules read. The series of a recording rule stand for what that rule reads itself."""

    def __init__(self, rules: Ruleset) -> None:
        self._recording: dict[str, list[RecordingRule]] = {}
        self._inputs: dict[str, RuleInputs] = {}
        for rule in (rule for group in rules.groups for rule in group.rules):
            if isinstance(rule, RecordingRule):
                self._recording.setdefault(rule.name, []).append(rule)

    def inputs_of(self, rule: Rule) -> RuleInputs:
        """Return what a rule reads; of one that reads its own series, what it reads beside them."""
        metrics: set[str] = set()
        history, is_open = 0.0, False
        for selector in rule.query.selectors:
            name = only_metric_name(selector.matchers)
            inputs = self._inputs_of_series(name) if name is not None else RuleInputs()
            is_open = is_open or not inputs.metrics
            metrics |= inputs.metrics
            history = max(history, selector.history + inputs.history)
        return RuleInputs(frozenset() if is_open else frozenset(metrics), history)

    def _inputs_of_series(self, name: str) -> RuleInputs:
        if name not in self._recording:
            return RuleInputs(frozenset({name}))
        if name not in self._inputs:
            self._inputs[name] = RuleInputs(frozenset({name}))  # what a rule that reads its own series finds
            parts = [self.inputs_of(rule) for rule in self._recording[name]]
            metrics = frozenset().union(*(part.metrics for part in parts)) if all(p.metrics for p in parts) else ()
            self._inputs[name] = RuleInputs(frozenset(metrics), max(part.history for part in parts))
        return self._inputs[name]
