"""When what is told to whom: beside a model of Prometheus's own rule, and case by case."""

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model import Alert, Phase
from alerts.lifecycle import AlertRecord, Holds, RuleTiming, step
from alerts.notify.delivery import NotificationQueue
from alerts.notify.dispatch import Dispatcher
from alerts.notify.receiver import Notice
from tests.notify.conftest import Ear, make_alert

LABELS = (("alertname", "GpuHot"), ("gpu", "0"))


@dataclass
class Theirs:
    """Prometheus's Alert, as far as it matters for sending."""

    identity: float | None
    last_sent: float = float("-inf")

    def needs_sending(self, alert: Alert, at: float, resend: float) -> bool:
        if alert.phase is Phase.PENDING:
            self.last_sent = float("-inf")
            return False
        if alert.resolved_at is not None and alert.resolved_at > self.last_sent:
            return True
        return self.last_sent + resend < at


@given(
    resend=st.sampled_from([0.0, 1.0, 5.0, 60.0]),
    interval=st.sampled_from([1.0, 5.0, 60.0]),
    hold=st.sampled_from([0.0, 5.0]),
    keep=st.sampled_from([0.0, 3.0]),
    steps=st.lists(st.tuples(st.booleans(), st.sampled_from([1, 1, 1, 4, 59, 60, 61, 901])), max_size=40),
)
def test_alertmanagers_are_notified_exactly_when_prometheus_would(resend, interval, hold, keep, steps) -> None:
    ear, once = Ear(), Ear(repeats=False)
    dispatcher = Dispatcher([ear, once], resend=resend)
    record: AlertRecord | None = None
    theirs = Theirs(None)
    expected: list[tuple[float, Phase, float]] = []
    incidents: list[tuple[float | None, Phase]] = []
    at = 1_700_000_000.0
    for holds, later in steps:
        at += later
        condition = Holds(LABELS, 1.0) if holds else None
        record = step(record, condition, at, RuleTiming("GpuHot", hold, keep))
        alerts = [record.alert] if record else []
        for alert in alerts:
            if theirs.identity != alert.active_at:
                theirs = Theirs(alert.active_at)
            if theirs.needs_sending(alert, at, resend):
                theirs.last_sent = at
                expected.append((at, alert.phase, at + 4 * max(interval, resend)))
            if alert.phase is not Phase.PENDING and (alert.fired_at, alert.phase) not in incidents:
                incidents.append((alert.fired_at, alert.phase))
        dispatcher.consider("g", alerts, at, interval)
    assert [(when, notice.alert.phase, notice.valid_until) for when, notice in ear.heard] == expected
    assert [(notice.alert.fired_at, notice.alert.phase) for _, notice in once.heard] == incidents


def dispatching(resend: float = 60.0) -> tuple[Dispatcher, Ear, Ear]:
    """A dispatcher, one receiver that is sent again what lasts, as Alertmanager is, and one that is not."""
    repeats, once = Ear(), Ear(repeats=False)
    return Dispatcher([repeats, once], resend=resend), repeats, once


VANISH = {
    "no longer reported": lambda d: d.consider("g", [], 1001.0, 1.0),
    "pending again": lambda d: d.consider("g", [make_alert(fired_at=None)], 1001.0, 1.0),
    "its group is gone": lambda d: d.forget("g", 1001.0),
}


@pytest.mark.parametrize("how", VANISH)
def test_an_incident_that_vanishes_is_forgotten_and_over_for_receivers_of_changes(how: str) -> None:
    dispatcher, repeats, once = dispatching()
    dispatcher.consider("g", [make_alert()], 1000.0, 1.0)
    VANISH[how](dispatcher)
    dispatcher.consider("g", [], 1002.0, 1.0)
    assert once.phases() == [(1000.0, "firing"), (1001.0, "resolved")]
    assert once.heard[-1][1].alert.resolved_at == 1001.0
    assert repeats.phases() == [(1000.0, "firing")]  # it lets endsAt pass, as after Prometheus
    dispatcher.consider("g", [make_alert()], 1003.0, 1.0)
    assert repeats.heard[-1][0] == 1003.0


def test_the_alerts_of_a_rule_that_failed_are_neither_sent_nor_forgotten() -> None:
    """As in Prometheus, where a failed evaluation sends nothing; and it is no end, either."""
    dispatcher, repeats, once = dispatching(resend=10.0)
    dispatcher.consider("g", [make_alert("Bad"), make_alert("Good")], 1000.0, 1.0)
    dispatcher.consider("g", [make_alert("Good")], 1020.0, 1.0, unknown=[make_alert("Bad")])
    assert [notice.alert.rule for _, notice in repeats.heard] == ["Bad", "Good", "Good"]
    assert once.phases() == [(1000.0, "firing")] * 2
    dispatcher.consider("g", [make_alert("Bad")], 1021.0, 1.0)
    assert repeats.heard[-1][0] == 1021.0


def test_what_was_sent_before_a_restart_is_sent_again_only_to_alertmanager() -> None:
    dispatcher, repeats, once = dispatching()
    fires, over = make_alert("Fires"), make_alert("Over", resolved_at=1010.0)
    ends, anew = make_alert("Ends"), make_alert("Anew")
    dispatcher.mark_notified([fires, over, ends, anew, make_alert("Waits", fired_at=None)], dispatcher.receivers)
    ended, begun = make_alert("Ends", resolved_at=1100.0), make_alert("Anew", fired_at=1100.0)
    dispatcher.consider("g", [fires, over, ended, begun, make_alert("Waits")], 1100.0, 1.0)
    told = [(notice.alert.rule, notice.alert.phase.value) for _, notice in once.heard]
    assert told == [("Ends", "resolved"), ("Anew", "firing"), ("Waits", "firing")]
    assert len(repeats.heard) == 5


def test_a_new_receiver_gets_what_fires_and_not_what_was_over_before_it_came() -> None:
    old, gone, new = Ear(repeats=False), Ear(repeats=False), Ear(repeats=False)
    dispatcher = Dispatcher([old, gone])
    alerts = [make_alert("Fires"), make_alert("Over", resolved_at=1005.0)]
    dispatcher.consider("g", alerts, 1010.0, 1.0)
    dispatcher.reconfigure([new, old], 60.0, ())
    dispatcher.consider("g", alerts, 1011.0, 1.0)
    assert [notice.alert.rule for _, notice in new.heard] == ["Fires"]
    assert len(old.heard) == len(gone.heard) == 2
    successor = Ear(repeats=False)
    dispatcher.reconfigure([new, successor], 60.0, (), 1012.0, [(old, successor)])
    dispatcher.consider("g", alerts, 1013.0, 1.0)
    assert successor.heard == [], "its predecessor knew of them"


def test_a_reload_repeats_nothing_and_a_clock_that_is_set_back_does_not_silence() -> None:
    dispatcher, ear, _ = dispatching(resend=60.0)
    dispatcher.consider("g", [make_alert()], 1000.0, 1.0)
    dispatcher.consider("other", [], 1000.5, 1.0)
    dispatcher.reconfigure([ear], 30.0, ())
    for at in (1001.0, 1030.0, 1031.0):
        dispatcher.consider("g", [make_alert()], at, 1.0)
    assert [at for at, _ in ear.heard] == [1000.0, 1031.0]
    dispatcher, ear, _ = dispatching(resend=60.0)
    dispatcher.consider("g", [make_alert()], 100_000.0, 1.0)
    dispatcher.consider("g", [make_alert()], 50_000.0, 1.0)
    dispatcher.consider("g", [make_alert(resolved_at=40_000.0)], 40_000.0, 1.0)
    assert ear.phases() == [(100_000.0, "firing"), (50_000.0, "firing"), (40_000.0, "resolved")]


@given(
    own=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "x", "y"])),
    external=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "1"])),
)
def test_external_labels_fill_in_what_an_alert_lacks(own: dict[str, Any], external: dict[str, str]) -> None:
    ear = Ear()
    Dispatcher([ear], external_labels=tuple(external.items())).consider("g", [make_alert(**own)], 1000.0, 1.0)
    labels = ear.heard[0][1].alert.labels
    wanted = {name: own.get(name) or external.get(name) or "" for name in {*own, *external}} | {"alertname": "GpuHot"}
    assert labels == tuple(sorted((name, value) for name, value in wanted.items() if value))


def test_of_two_rules_with_one_alert_the_one_that_fires_is_sent() -> None:
    dispatcher, ear, _ = dispatching(resend=5.0)
    for at in (1000.0, 1010.0):
        dispatcher.consider("g", [make_alert(resolved_at=990.0), make_alert(), make_alert(fired_at=None)], at, 1.0)
    assert Counter(ear.phases()) == Counter([(1000.0, "firing"), (1010.0, "firing")])


def test_a_receiver_that_does_not_stop_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.notify.dispatch.LAST_WORD_SECONDS", 0.05)
    let_go = threading.Event()
    stubborn, good = Ear(), Ear()
    monkeypatch.setattr(stubborn, "stop", lambda grace: let_go.wait(20))
    Dispatcher([stubborn, good]).stop(0.05)
    assert not let_go.is_set() and len(good.stopped) == 1
    let_go.set()


def test_other_external_labels_end_the_alerts_before_and_begin_new_ones() -> None:
    ear = Ear(repeats=False)
    dispatcher = Dispatcher([ear], external_labels=(("site", "a"),))
    dispatcher.consider("g", [make_alert("Fires")], 1010.0, 1.0)
    dispatcher.reconfigure([ear], 60.0, (("site", "b"),), 1011.0)
    dispatcher.consider("g", [make_alert("Fires")], 1012.0, 1.0)
    told = [(dict(notice.alert.labels)["site"], notice.alert.phase.value) for _, notice in ear.heard]
    assert told == [("a", "firing"), ("a", "resolved"), ("b", "firing")]


def test_an_inhibited_alert_is_held_back_until_its_cause_ends_unless_sent_before() -> None:
    (dispatcher, repeats, once), held = dispatching(), {make_alert().labels}
    dispatcher.consider("g", [make_alert()], 1000.0, 1.0, inhibited=held)
    dispatcher.consider("g", [make_alert()], 1001.0, 1.0, inhibited=held)
    assert repeats.heard == once.heard == []
    dispatcher.consider("g", [make_alert()], 1002.0, 1.0)
    assert repeats.phases() == once.phases() == [(1002.0, "firing")]
    dispatcher, repeats, once = dispatching(resend=10.0)
    dispatcher.consider("g", [make_alert()], 1000.0, 1.0)
    dispatcher.consider("g", [make_alert()], 1020.0, 1.0, inhibited={make_alert().labels})
    assert [at for at, _ in repeats.heard] == [1000.0, 1020.0]
    dispatcher.consider("g", [make_alert(resolved_at=1021.0)], 1021.0, 1.0, inhibited={make_alert().labels})
    assert once.phases() == [(1000.0, "firing"), (1021.0, "resolved")]


ENDS = {
    **VANISH,
    "resolved": lambda d: d.consider("g", [make_alert(resolved_at=1001.0)], 1001.0, 1.0),
    "other labels of the site": lambda d: d.reconfigure([*d.receivers], 60.0, (("site", "north"),), 1001.0),
}


@pytest.mark.parametrize("end", ENDS)
def test_no_end_is_sent_of_an_alert_of_which_no_receiver_knows(end: str) -> None:
    dispatcher, repeats, once = dispatching()
    dispatcher.consider("g", [make_alert()], 1000.0, 1.0, inhibited={make_alert().labels})
    ENDS[end](dispatcher)
    assert repeats.heard == once.heard == []


# What waits for a receiver: bounded, the newest state of each alert, in the order in which they came.
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.lists(st.sampled_from("ABCDEFG"), max_size=6)),
            st.tuples(st.just("take"), st.integers(0, 5)),
            st.tuples(st.sampled_from(["back first", "back last"]), st.just(0)),
        )
    )
)
def test_nothing_is_lost_uncounted_and_nothing_old_outlives_the_new(moves) -> None:
    """Every notice put in is given out, replaced by a newer one, counted as dropped, or still there."""
    queue = NotificationQueue(capacity=4)
    newest: dict[str, float] = {}
    put = delivered = replaced = dropped = 0
    hand: list[Notice] = []

    def stays_true(before: int, added: int, lost: int) -> int:
        assert len(queue) <= 4
        return before + added - lost - len(queue)  # what is neither there nor lost was replaced

    for move, argument in moves:
        before = len(queue)
        if move == "put":
            for name in argument:
                put += 1
                newest[name] = float(put)
            lost = queue.add([Notice(make_alert(name, value=newest[name]), 2000.0) for name in argument])
            replaced += stays_true(before, len(argument), lost)
            dropped += lost
        elif move == "take":
            delivered += len(hand)
            hand, outdated = queue.take_batch(argument, 0.0)
            assert outdated == 0
            assert len(hand) == min(argument, before)
            assert all(notice.alert.value == newest[notice.alert.rule] for notice in hand)
        else:
            lost = queue.give_back(hand, first=move == "back first")
            replaced += stays_true(before, len(hand), lost)
            dropped += lost
            hand = []
    assert replaced >= 0
    assert put == delivered + len(hand) + replaced + dropped + len(queue)
