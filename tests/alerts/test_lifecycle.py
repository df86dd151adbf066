"""The life of an alert, as a table and as an algebra."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from agent.model import Phase, Transition
from alerts.lifecycle import AlertRecord, Condition, Holds, RuleTiming, Silence, step

HOLDS = Holds((("alertname", "A"),), 1.0)
CLEAR, FAILED = Silence.CLEAR, Silence.FAILED
T0 = 1_700_000_000.0


@dataclass
class Life:
    """An alert that is stepped through conditions, one each `interval` seconds."""

    terms: RuleTiming
    interval: float = 1.0
    start: float = T0
    record: AlertRecord | None = None
    ticks: int = 0
    transitions: list[Transition] = field(default_factory=list)

    def see(self, condition: Condition, count: int = 1) -> Life:
        for _ in range(count):
            now = self.start + self.ticks * self.interval
            self.record, transition = step(self.record, condition, now, self.terms)
            self.ticks += 1
            if transition is not None:
                self.transitions.append(transition)
        return self

    @property
    def phase(self) -> Phase | None:
        return self.record.alert.phase if self.record else None

    @property
    def story(self) -> list[tuple[Phase | None, Phase, float]]:
        return [(each.before, each.alert.phase, round(each.at - self.start, 3)) for each in self.transitions]


def life(hold: float = 0, keep: float = 0, interval: float = 1.0) -> Life:
    return Life(RuleTiming("A", hold, keep), interval)


def test_fractions_of_seconds_do_not_delay_by_rounding() -> None:
    """300.1 - 0.1 is less than 300 in binary."""
    alert = life(hold=0.3, interval=0.1)
    alert.start = 0.1
    assert alert.see(HOLDS, 4).phase is Phase.FIRING


def test_a_firing_alert_resolves_and_is_remembered_for_fifteen_minutes() -> None:
    alert = life(interval=60).see(HOLDS).see(CLEAR)
    assert alert.story[-1] == (Phase.FIRING, Phase.RESOLVED, 60)
    assert alert.see(CLEAR, 15).phase is Phase.RESOLVED
    assert alert.see(CLEAR).record is None
    assert len(alert.transitions) == 2


def test_a_resolved_alert_that_holds_again_is_a_new_incident() -> None:
    alert = life(hold=2).see(HOLDS, 3).see(CLEAR).see(HOLDS)
    assert alert.story[-1] == (Phase.RESOLVED, Phase.PENDING, 4)
    assert alert.record is not None
    assert alert.record.alert.active_at == T0 + 4
    assert alert.record.alert.fired_at is None


def test_value_and_annotations_are_refreshed_and_the_start_is_not() -> None:
    alert = life(hold=5).see(HOLDS).see(Holds(HOLDS.labels, 7.0, {"summary": "hot"}))
    assert alert.record is not None
    assert (alert.record.alert.value, alert.record.alert.annotations) == (7.0, {"summary": "hot"})
    assert alert.record.alert.active_at == T0


def test_a_longer_for_after_a_reload_has_to_be_served() -> None:
    alert = life(hold=1).see(HOLDS, 3)
    alert.terms = RuleTiming("A", 5)
    assert alert.see(HOLDS).story[-1] == (Phase.FIRING, Phase.PENDING, 3)
    assert alert.see(HOLDS, 2).phase is Phase.FIRING


CONDITIONS = st.lists(st.sampled_from([HOLDS, CLEAR, FAILED]), max_size=60)
SPANS = st.integers(0, 8)


def lived(conditions: list[Condition], hold: int, keep: int, start: float = T0) -> Life:
    alert = Life(RuleTiming("A", hold, keep), start=start)
    for condition in conditions:
        alert.see(condition)
    return alert


@given(CONDITIONS, SPANS, SPANS, st.integers(-(10**12), 10**12))
def test_the_time_of_day_changes_nothing(conditions: list[Condition], hold: int, keep: int, shift: int) -> None:
    moved = lived(conditions, hold, keep, start=T0 + shift / 1000)
    assert moved.story == lived(conditions, hold, keep).story


@given(CONDITIONS, SPANS, SPANS)
def test_a_failed_evaluation_changes_nothing(conditions: list[Condition], hold: int, keep: int) -> None:
    record: AlertRecord | None = None
    for tick, condition in enumerate(conditions):
        after, transition = step(record, condition, T0 + tick, RuleTiming("A", hold, keep))
        if condition is FAILED:
            assert after is record
            assert transition is None
        record = after
