"""When what is told to whom: beside a model of Prometheus's own rule, and case by case."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model import Alert, Phase
from alerts.lifecycle import AlertRecord, Holds, RuleTiming, Silence, step
from alerts.notify.dispatch import Dispatcher

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
def test_alertmanagers_are_notified_exactly_when_prometheus_would(h, resend, interval, hold, keep, steps) -> None:
    ear, once = h.Ear(), h.Ear(repeats=False)
    dispatcher = Dispatcher([ear, once], resend=resend)
    record: AlertRecord | None = None
    theirs = Theirs(None)
    expected: list[tuple[float, Phase, float]] = []
    incidents: list[tuple[float | None, Phase]] = []
    at = 1_700_000_000.0
    for holds, later in steps:
        at += later
        condition = Holds(LABELS, 1.0) if holds else Silence.CLEAR
        record, _ = step(record, condition, at, RuleTiming("GpuHot", hold, keep))
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


def test_a_resend_is_due_only_after_the_delay_and_not_at_it(h) -> None:
    ear = h.Ear()
    dispatcher = Dispatcher([ear], resend=60.0)
    for at in range(1000, 1201, 60):
        dispatcher.consider("g", [h.alert()], float(at), 60.0)
    assert [at for at, _ in ear.heard] == [1000.0, 1120.0]  # prometheus #10844: every other minute


def test_a_receiver_of_changes_gets_the_beginning_and_the_end_of_each_incident(h) -> None:
    once = h.Ear(repeats=False)
    dispatcher = Dispatcher([once], resend=1.0)
    history = [
        h.alert(fired_at=None), h.alert(fired_at=10.0), h.alert(fired_at=10.0, value=95.0),
        h.alert(fired_at=10.0, resolved_at=13.0), h.alert(fired_at=10.0, resolved_at=13.0),
        h.alert(fired_at=15.0), h.alert(fired_at=15.0, resolved_at=16.0),
    ]  # fmt: skip
    for at, alert in enumerate(history):
        dispatcher.consider("g", [alert], 10.0 * at, 1.0)
    assert once.phases() == [(10.0, "firing"), (30.0, "resolved"), (50.0, "firing"), (60.0, "resolved")]


def test_groups_do_not_disturb_each_other(h) -> None:
    ear = h.Ear()
    dispatcher = Dispatcher([ear])
    dispatcher.consider("a", [h.alert()], 1000.0, 1.0)
    dispatcher.consider("b", [], 1000.5, 1.0)
    dispatcher.consider("a", [h.alert()], 1001.0, 1.0)
    assert len(ear.heard) == 1


@pytest.mark.parametrize("gone", [lambda d: d.consider("g", [], 1001.0, 1.0), lambda d: d.forget("g")])
def test_what_a_group_no_longer_reports_is_forgotten(h, gone) -> None:
    ear = h.Ear()
    dispatcher = Dispatcher([ear])
    dispatcher.consider("g", [h.alert()], 1000.0, 1.0)
    gone(dispatcher)
    dispatcher.consider("g", [h.alert()], 1002.0, 1.0)
    assert [at for at, _ in ear.heard] == [1000.0, 1002.0]


VANISH = {
    "no longer reported": lambda d, h: d.consider("g", [], 1001.0, 1.0),
    "pending again": lambda d, h: d.consider("g", [h.alert(fired_at=None)], 1001.0, 1.0),
    "its group is gone": lambda d, h: d.forget("g", 1001.0),
}


@pytest.mark.parametrize("how", VANISH)
def test_an_incident_that_vanishes_is_sent_as_over_to_receivers_that_know_no_end(h, how: str) -> None:
    repeats, once = h.Ear(), h.Ear(repeats=False)
    dispatcher = Dispatcher([repeats, once])
    dispatcher.consider("g", [h.alert()], 1000.0, 1.0)
    VANISH[how](dispatcher, h)
    dispatcher.consider("g", [], 1002.0, 1.0)
    assert once.phases() == [(1000.0, "firing"), (1001.0, "resolved")]
    assert once.heard[-1][1].alert.resolved_at == 1001.0
    assert repeats.phases() == [(1000.0, "firing")]  # it lets endsAt pass, as after Prometheus


def test_the_alerts_of_a_rule_that_failed_are_neither_sent_nor_forgotten(h) -> None:
    """As in Prometheus, where a failed evaluation sends nothing; and it is no end, either."""
    repeats, once = h.Ear(), h.Ear(repeats=False)
    dispatcher = Dispatcher([repeats, once], resend=10.0)
    dispatcher.consider("g", [h.alert("Bad"), h.alert("Good")], 1000.0, 1.0)
    dispatcher.consider("g", [h.alert("Good")], 1020.0, 1.0, unknown=[h.alert("Bad")])
    assert [notice.alert.rule for _, notice in repeats.heard] == ["Bad", "Good", "Good"]
    assert once.phases() == [(1000.0, "firing")] * 2
    dispatcher.consider("g", [h.alert("Bad")], 1021.0, 1.0)
    assert repeats.heard[-1][0] == 1021.0


def test_what_was_sent_before_a_restart_is_sent_again_only_to_alertmanager(h) -> None:
    repeats, once = h.Ear(), h.Ear(repeats=False)
    dispatcher = Dispatcher([repeats, once])
    fires, over = h.alert("Fires"), h.alert("Over", resolved_at=1010.0)
    ends, anew = h.alert("Ends"), h.alert("Anew")
    dispatcher.mark_notified([fires, over, ends, anew, h.alert("Waits", fired_at=None)])
    ended, begun = h.alert("Ends", resolved_at=1100.0), h.alert("Anew", fired_at=1100.0)
    dispatcher.consider("g", [fires, over, ended, begun, h.alert("Waits")], 1100.0, 1.0)
    told = [(notice.alert.rule, notice.alert.phase.value) for _, notice in once.heard]
    assert told == [("Ends", "resolved"), ("Anew", "firing"), ("Waits", "firing")]
    assert len(repeats.heard) == 5


def test_a_new_receiver_gets_what_fires_and_not_what_was_over_before_it_came(h) -> None:
    old, gone, new = h.Ear(repeats=False), h.Ear(repeats=False), h.Ear(repeats=False)
    dispatcher = Dispatcher([old, gone])
    alerts = [h.alert("Fires"), h.alert("Over", resolved_at=1005.0)]
    dispatcher.consider("g", alerts, 1010.0, 1.0)
    dispatcher.reconfigure([new, old], 60.0, ())
    dispatcher.consider("g", alerts, 1011.0, 1.0)
    assert [notice.alert.rule for _, notice in new.heard] == ["Fires"]
    assert len(old.heard) == len(gone.heard) == 2


def test_a_reload_does_not_send_everything_again(h) -> None:
    ear = h.Ear()
    dispatcher = Dispatcher([ear], resend=60.0)
    dispatcher.consider("g", [h.alert()], 1000.0, 1.0)
    dispatcher.reconfigure([ear], 30.0, ())
    for at in (1001.0, 1030.0, 1031.0):
        dispatcher.consider("g", [h.alert()], at, 1.0)
    assert [at for at, _ in ear.heard] == [1000.0, 1031.0]


def test_a_clock_that_is_set_back_does_not_silence(h) -> None:
    ear = h.Ear()
    dispatcher = Dispatcher([ear], resend=60.0)
    dispatcher.consider("g", [h.alert()], 100_000.0, 1.0)
    dispatcher.consider("g", [h.alert()], 50_000.0, 1.0)
    dispatcher.consider("g", [h.alert(resolved_at=40_000.0)], 40_000.0, 1.0)
    assert ear.phases() == [(100_000.0, "firing"), (50_000.0, "firing"), (40_000.0, "resolved")]


@given(
    own=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "x", "y"])),
    external=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "1"])),
)
def test_external_labels_fill_in_what_an_alert_lacks(h, own: dict[str, str], external: dict[str, str]) -> None:
    ear = h.Ear()
    Dispatcher([ear], external_labels=tuple(external.items())).consider("g", [h.alert(**own)], 1000.0, 1.0)
    labels = ear.heard[0][1].alert.labels
    wanted = {name: own.get(name) or external.get(name) or "" for name in {*own, *external}} | {"alertname": "GpuHot"}
    assert labels == tuple(sorted((name, value) for name, value in wanted.items() if value))


def test_of_two_rules_with_one_alert_the_one_that_fires_is_sent(h) -> None:
    ear = h.Ear()
    dispatcher = Dispatcher([ear], resend=5.0)
    for at in (1000.0, 1010.0):
        dispatcher.consider("g", [h.alert(resolved_at=990.0), h.alert(), h.alert(fired_at=None)], at, 1.0)
    assert Counter(ear.phases()) == Counter([(1000.0, "firing"), (1010.0, "firing")])


def test_all_receivers_are_stopped(h) -> None:
    ears = [h.Ear(), h.Ear()]
    Dispatcher(ears).stop(1.5)
    assert [ear.stopped for ear in ears] == [[1.5], [1.5]]


def test_a_receiver_that_does_not_stop_delays_nothing(h, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.notify.dispatch.LAST_WORD_SECONDS", 0.05)
    let_go = threading.Event()
    stubborn, good = h.Ear(), h.Ear()
    stubborn.stop = lambda grace: let_go.wait(20)
    Dispatcher([stubborn, good]).stop(0.05)
    assert not let_go.is_set() and len(good.stopped) == 1
    let_go.set()


def test_the_successor_of_a_receiver_does_not_get_again_what_that_one_knew(h) -> None:
    old, heir = h.Ear(repeats=False), h.Ear(repeats=False)
    dispatcher = Dispatcher([old])
    dispatcher.consider("g", [h.alert("Fires")], 1010.0, 1.0)
    dispatcher.reconfigure([heir], 60.0, (), 1011.0, [(old, heir)])
    dispatcher.consider("g", [h.alert("Fires")], 1012.0, 1.0)
    assert heir.heard == []


def test_other_external_labels_end_the_alerts_before_and_begin_new_ones(h) -> None:
    ear = h.Ear(repeats=False)
    dispatcher = Dispatcher([ear], external_labels=(("site", "a"),))
    dispatcher.consider("g", [h.alert("Fires")], 1010.0, 1.0)
    dispatcher.reconfigure([ear], 60.0, (("site", "b"),), 1011.0)
    dispatcher.consider("g", [h.alert("Fires")], 1012.0, 1.0)
    told = [(dict(notice.alert.labels)["site"], notice.alert.phase.value) for _, notice in ear.heard]
    assert told == [("a", "firing"), ("a", "resolved"), ("b", "firing")]


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_clock_that_is_set_makes_no_new_incident(h, step: float) -> None:
    repeats, once = h.Ear(), h.Ear(repeats=False)
    dispatcher = Dispatcher([repeats, once], resend=60.0)
    dispatcher.consider("g", [h.alert("Fires"), h.alert("Over", resolved_at=1005.0)], 1010.0, 1.0)
    dispatcher.shift(step)
    moved = [
        h.alert("Fires", fired_at=1000.0 + step),
        h.alert("Over", fired_at=1000.0 + step, resolved_at=1005.0 + step),
    ]
    dispatcher.consider("g", moved, 1011.0 + step, 1.0)
    assert len(once.heard) == 2
    assert len(repeats.heard) == 2


def test_a_receiver_for_which_something_was_queued_is_notified_after_a_restart(h) -> None:
    knew, waited = h.Ear(repeats=False), h.Ear(repeats=False)
    dispatcher = Dispatcher([knew, waited])
    dispatcher.mark_notified([h.alert("Fires")], [knew])
    dispatcher.consider("g", [h.alert("Fires")], 1100.0, 1.0)
    assert (len(knew.heard), len(waited.heard)) == (0, 1)


def test_incidents_that_no_rule_watches_any_more_are_sent_as_over(h) -> None:
    repeats, once = h.Ear(), h.Ear(repeats=False)
    Dispatcher([repeats, once]).end([h.alert("Gone")], 1100.0)
    assert once.phases() == [(1100.0, "resolved")]
    assert repeats.heard == []


def test_an_inhibited_alert_is_held_back_and_sent_when_its_cause_is_over(h) -> None:
    repeats, once = h.Ear(), h.Ear(repeats=False)
    dispatcher, held = Dispatcher([repeats, once], resend=60.0), {h.alert().labels}
    dispatcher.consider("g", [h.alert()], 1000.0, 1.0, inhibited=held)
    dispatcher.consider("g", [h.alert()], 1001.0, 1.0, inhibited=held)
    assert repeats.heard == once.heard == []
    dispatcher.consider("g", [h.alert()], 1002.0, 1.0)
    assert repeats.phases() == once.phases() == [(1002.0, "firing")]


@pytest.mark.parametrize(
    "end", [*VANISH.values(), lambda d, h: d.consider("g", [h.alert(resolved_at=1001.0)], 1001.0, 1.0)]
)
def test_no_end_is_sent_of_an_alert_of_which_no_receiver_knows(h, end) -> None:
    repeats, once = h.Ear(), h.Ear(repeats=False)
    dispatcher = Dispatcher([repeats, once])
    dispatcher.consider("g", [h.alert()], 1000.0, 1.0, inhibited={h.alert().labels})
    end(dispatcher, h)
    assert repeats.heard == once.heard == []


def test_an_alert_that_was_sent_before_its_cause_fired_is_not_held_back(h) -> None:
    repeats, once = h.Ear(), h.Ear(repeats=False)
    dispatcher = Dispatcher([repeats, once], resend=10.0)
    dispatcher.consider("g", [h.alert()], 1000.0, 1.0)
    dispatcher.consider("g", [h.alert()], 1020.0, 1.0, inhibited={h.alert().labels})
    assert [at for at, _ in repeats.heard] == [1000.0, 1020.0]
    dispatcher.consider("g", [h.alert(resolved_at=1021.0)], 1021.0, 1.0, inhibited={h.alert().labels})
    assert once.phases() == [(1000.0, "firing"), (1021.0, "resolved")]


def test_no_end_is_sent_of_a_held_alert_when_the_labels_of_the_site_change(h) -> None:
    once = h.Ear(repeats=False)
    dispatcher = Dispatcher([once])
    dispatcher.consider("g", [h.alert()], 1000.0, 1.0, inhibited={h.alert().labels})
    dispatcher.reconfigure([once], 60.0, (("site", "north"),), 1001.0)
    assert once.heard == []
