"""How the alerts of two versions of the rules differ: which fire with one alone, earlier, later, or otherwise.

Two spans are of the same alert if its name, its node and its labels agree and their times overlap. Labels that a rule
of that name sets itself are left out of this: a version that changes the severity still speaks of the same alert.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from agent.model import Labels
from alerts.backtest.play import AlertSpan
from alerts.engine import Ruleset
from alerts.rulefile import AlertingRule

_Key = tuple[str, str, Labels]


class SpanDifference(Struct, frozen=True):
    """An alert that fires otherwise with the new version than with the old one; one of them may have none."""

    old: AlertSpan | None
    new: AlertSpan | None

    @property
    def at(self) -> float:
        """The earlier time at which one of the two begins to fire."""
        return min(span.fired_at for span in (self.old, self.new) if span is not None and span.fired_at is not None)

    @property
    def start_shift(self) -> float:
        """Seconds by which it fires later than before."""
        return self._shift(*(None if span is None else span.fired_at for span in (self.old, self.new)))

    @property
    def end_shift(self) -> float:
        """Seconds by which it ends later than before, where both end."""
        return self._shift(*(None if span is None else span.ended_at for span in (self.old, self.new)))

    @property
    def end_changes(self) -> bool:
        """Whether it ends with one of them only."""
        return (
            self.old is not None and self.new is not None and (self.old.ended_at is None) != (self.new.ended_at is None)
        )

    @property
    def labels_change(self) -> bool:
        """Whether both have it under different labels."""
        return self.old is not None and self.new is not None and self.old.labels != self.new.labels

    @property
    def is_none(self) -> bool:
        """Whether there is no difference."""
        both = self.old is not None and self.new is not None
        return both and not (self.start_shift or self.end_shift or self.end_changes or self.labels_change)

    @staticmethod
    def _shift(old: float | None, new: float | None) -> float:
        return 0.0 if old is None or new is None else round(new - old, 3)


def differences(
    old: Iterable[AlertSpan], new: Iterable[AlertSpan], set_labels: Mapping[str, Collection[str]]
) -> tuple[list[SpanDifference], int]:
    """Return the differences in the order of time, and how many alerts fire in the same way.

    Only what fired counts. `set_labels` has the names of the labels that rules set, by the name of the alert.
    """
    before, after = _by_key(old, set_labels), _by_key(new, set_labels)
    pairs = [pair for key in {**before, **after} for pair in _pairs(before[key], after[key])]
    changed = sorted((pair for pair in pairs if not pair.is_none), key=lambda pair: pair.at)
    return changed, len(pairs) - len(changed)


def labels_set_by(*versions: Ruleset) -> dict[str, frozenset[str]]:
    """Return the names of the labels that rules of each name set, in any of the versions."""
    by_alert: dict[str, frozenset[str]] = {}
    for version in versions:
        for rule in (rule for group in version.groups for rule in group.rules):
            if isinstance(rule, AlertingRule):
                by_alert[rule.name] = by_alert.get(rule.name, frozenset()) | {name for name, _ in rule.labels}
    return by_alert


def _by_key(
    spans: Iterable[AlertSpan], set_labels: Mapping[str, Collection[str]]
) -> defaultdict[_Key, list[AlertSpan]]:
    by_key: defaultdict[_Key, list[AlertSpan]] = defaultdict(list)
    for span in spans:
        if span.fired:
            own = set_labels.get(span.alert, ())
            labels = tuple(pair for pair in span.labels if pair[0] not in own)
            by_key[span.node, span.alert, labels].append(span)
    return by_key


def _pairs(old: Sequence[AlertSpan], new: Sequence[AlertSpan]) -> list[SpanDifference]:
    """Return spans that overlap, two by two in time's order, those of equal labels first, and those that are alone."""
    unmatched, pairs = list(old), []
    alone: list[AlertSpan] = []
    for same_labels, spans in ((True, list(new)), (False, alone)):
        for span in spans:
            partner = next(
                (s for s in unmatched if _overlap(s, span) and (s.labels == span.labels or not same_labels)), None
            )
            if partner is not None:
                unmatched.remove(partner)
                pairs.append(SpanDifference(partner, span))
            elif same_labels:
                alone.append(span)
            else:
                pairs.append(SpanDifference(None, span))
    return [*pairs, *(SpanDifference(span, None) for span in unmatched)]


def _overlap(one: AlertSpan, other: AlertSpan) -> bool:
    return one.active_at <= _end(other) and other.active_at <= _end(one)


def _end(span: AlertSpan) -> float:
    return float("inf") if span.ended_at is None else span.ended_at
