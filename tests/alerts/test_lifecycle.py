"""The life of an alert, as a table and as an algebra."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
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


def test_without_for_it_fires_at_once() -> None:
    assert life().see(HOLDS).story == [(None, Phase.FIRING, 0)]


def test_for_is_served_at_exactly_its_length() -> None:
    assert life(hold=3).see(HOLDS, 4).story == [(None, Phase.PENDING, 0), (Phase.PENDING, Phase.FIRING, 3)]


def test_fractions_of_seconds_do_not_delay_by_rounding() -> None:
    """300.1 - 0.1 is less than 300 in binary."""
    alert = life(hold=0.3, interval=0.1)
    alert.start = 0.1
    assert alert.see(HOLDS, 4).phase is Phase.FIRING


def test_one_clear_evaluation_ends_a_pending_alert_silently() -> None:
    alert = life(hold=3).see(HOLDS, 3).see(CLEAR)
    assert alert.record is None
    assert len(alert.transitions) == 1
    assert alert.see(HOLDS, 3).phase is Phase.PENDING


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


def test_keep_firing_for_counts_from_the_first_missing_evaluation() -> None:
    alert = life(keep=3).see(HOLDS).see(CLEAR, 3)
    assert alert.phase is Phase.FIRING
    assert alert.see(CLEAR).story[-1] == (Phase.FIRING, Phase.RESOLVED, 4)


def test_keep_firing_for_starts_again_when_the_condition_holds_again() -> None:
    assert life(keep=3).see(HOLDS).see(CLEAR, 3).see(HOLDS).see(CLEAR, 3).phase is Phase.FIRING


def test_keep_firing_for_does_not_protect_what_is_pending() -> None:
    assert life(hold=5, keep=60).see(HOLDS, 3).see(CLEAR).record is None


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


@pytest.mark.parametrize("condition", [CLEAR, FAILED])
def test_silence_about_an_unknown_alert_changes_nothing(condition: Silence) -> None:
    assert step(None, condition, T0, RuleTiming("A")) == (None, None)
