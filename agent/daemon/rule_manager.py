"""Evaluates rules in a separate thread: ingests each snapshot, evaluates due groups, sends alerts, saves their state.

Sampling never waits for it. If snapshots arrive faster than rules are evaluated, it skips some; without new ones it
continues with the last, as a Prometheus server does that scrapes an unchanged page.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from agent.daemon.alert_store import AlertStateStore
from agent.daemon.hub import Hub
from agent.lib.threads import CLOSING_SECONDS, KeptThread, Threads
from agent.model import EMPTY_FRAME, Frame, GroupReport, Instant, Labels, Reading, Snapshot
from alerts.changes.change_journal import ChangeJournal, explain
from alerts.engine import Evaluation, RuleEngine, Ruleset
from alerts.exposition import Exposition
from alerts.inhibition import Inhibition, mark
from alerts.limits import patient_time, prompt_time
from alerts.notify.delivery import HttpReceiver
from alerts.notify.dispatch import Dispatcher
from alerts.notify.receiver import Receiver

log = logging.getLogger("coldplate.rules")

ENGINE = "engine"
"""The group under which failures are counted that do not belong to a rule."""
STALL_TIMEOUT_SECONDS = 30.0
"""Seconds that a round may take before the thread counts as stuck."""


class AlertingSettings(Struct, frozen=True):
    """Rules and receivers from the configuration; `resend` in seconds."""

    rules: Ruleset
    receivers: tuple[Receiver, ...]
    resend: float
    external_labels: Labels
    inhibition: bool = True


class RuleManager:
    """Runs the rule engine on the snapshots of the hub.

    `foreign` gives what is known of other nodes at a moment, for rules that look beyond this one.
    """

    def __init__(
        self,
        alerting: AlertingSettings,
        target: Labels,
        clock: Callable[[], Instant],
        hub: Hub,
        *,
        store: AlertStateStore | None = None,
        foreign: Callable[[Instant], Sequence[Reading]] = lambda _: (),
        threads: Threads | None = None,
    ) -> None:
        self._threads = threads or Threads()
        self._thread: KeptThread | None = None
        self._clock = clock
        self._hub = hub
        self._store = store
        self._foreign = foreign
        self._exposition = Exposition(target)
        self._due = threading.Event()
        self._prompt = -math.inf
        """The monotonic second from which a snapshot begins the next round."""
        self._stopping = threading.Event()
        self._requested: AlertingSettings | None = None
        self._asking = threading.Lock()
        self._broken = ""
        self._failing: set[tuple[str, str]] = set()
        self._journal = ChangeJournal()
        self._engine = RuleEngine(
            alerting.rules,
            target,
            clock(),
            time.perf_counter,
            halted=self._stopping.is_set,
            explain=partial(explain, self._journal),
        )
        self._announce(alerting)
        self._inhibits = alerting.inhibition
        self._inhibition = Inhibition(None if alerting.inhibition else ())
        self._reports = self._engine.reports()
        """With the inhibited alerts marked. Swapped by reference."""
        self._external = alerting.external_labels
        self._dispatcher = Dispatcher(alerting.receivers, alerting.resend, alerting.external_labels, self._threads)
        self._frame = EMPTY_FRAME
        """Swapped by reference."""
        hub.follow("waking the rule manager", self._notice)

    def start(self) -> None:
        """Take over what an earlier run saved, and start."""
        if self._store is not None:
            now = self._clock()
            saved = self._store.load(self._engine, now)
            knowing = [
                receiver
                for receiver in self._dispatcher.receivers
                if not receiver.url or receiver.url in saved.notified
            ]
            restored = [record for _, _, record in self._engine.remembered()]
            if self._inhibits:
                self._inhibition.resume(restored, saved.effects)
            self._inhibition.update(restored, now.mono, self._external)
            self._dispatcher.mark_notified(
                [each.alert for each in restored if each.alert.labels not in self._inhibition.effects], knowing
            )
            self._dispatcher.end(saved.lost, self._engine.time(now))
        self._show()
        self._thread = self._threads.begin("rules", self._run, stall_timeout=STALL_TIMEOUT_SECONDS, vital=True)

    def stop(self) -> None:
        """End the thread, save the state, and give notifications a moment to be sent."""
        self._stopping.set()
        self._due.set()
        ended = self._thread is None or self._thread.join(CLOSING_SECONDS)
        self._dispatcher.stop(CLOSING_SECONDS)
        if self._store is not None and ended:
            self._store.close(self._engine, self._clock(), self._notified(), self._inhibition.effects)

    def frame(self, _now: Instant) -> Frame:
        """Return the engine's own series after the last round. For any thread."""
        return self._frame

    def reconfigure(self, alerting: AlertingSettings) -> None:
        """Use other rules and receivers from the next round on. For any thread."""
        with self._asking:
            self._requested = alerting

    def failing(self) -> str:
        """Return a text that says why the last round failed as a whole; empty if it did not. For any thread."""
        return self._broken

    def reports(self) -> tuple[GroupReport, ...]:
        """Return the state of groups and rules after the last round. For any thread."""
        return self._reports

    def _notice(self, snapshot: Snapshot) -> None:
        if snapshot.at.mono >= self._prompt:
            self._due.set()

    def _run(self) -> None:
        began = self._clock().mono
        while self._await_round(began):
            if self._thread is not None:
                self._thread.beat()
            now = self._clock()
            began = now.mono
            try:
                self._round(now)
            except Exception as error:
                self._log_defect(error)

    def _await_round(self, began: float) -> bool:
        """Wait until the next round is due; return False if the thread is to stop."""
        interval = self._engine.interval
        self._prompt = prompt_time(began, interval)
        self._due.clear()
        if self._stopping.is_set():
            return False
        self._due.wait(max(patient_time(began, interval, self._hub.period) - self._clock().mono, 0.0))
        return not self._stopping.is_set()

    def _round(self, now: Instant) -> None:
        with self._asking:  # a reload that arrives just now must not be lost
            alerting, self._requested = self._requested, None
        if alerting is not None:
            self._apply_settings(alerting, now)
        snapshot = self._hub.latest
        if snapshot is None:
            return
        self._journal.record_snapshot(snapshot.frames, self._engine.time(now), snapshot.reports)
        evaluations = self._engine.round(snapshot, now, self._foreign(now))
        step = self._engine.take_step()
        if step:
            self._dispatcher.shift(step)
            self._journal.shift(step)
        if evaluations:
            records = (record for _, _, record in self._engine.remembered())
            self._inhibition.update(records, now.mono, self._external)
        for evaluation in evaluations:
            self._notify(evaluation)
        self._show()
        if self._store is not None:
            self._store.after(self._engine, evaluations, now, self._notified(), self._inhibition.effects)
        self._broken = ""

    def _notified(self) -> frozenset[str]:
        """Return the receivers that are notified once and have nothing queued."""
        return frozenset(
            receiver.url
            for receiver in self._dispatcher.receivers
            if receiver.url and not receiver.repeats and not receiver.queued
        )

    def _notify(self, evaluation: Evaluation) -> None:
        self._note_failing(evaluation)
        group = evaluation.group
        outcome = evaluation.outcome
        self._exposition.count(
            group.name, len(outcome.rules), len(outcome.failures), outcome.seconds, evaluation.missed
        )
        alerts, unknown = group.alerts_by_certainty()
        self._dispatcher.consider(
            evaluation.key,
            alerts,
            evaluation.at,
            evaluation.interval,
            unknown=unknown,
            inhibited=self._inhibition.causes,
        )

    def _note_failing(self, evaluation: Evaluation) -> None:
        """Log once that a rule fails, and once that it no longer does."""
        failing = {(evaluation.key, failure.rule) for failure in evaluation.outcome.failures}
        for failure in evaluation.outcome.failures:
            if (evaluation.key, failure.rule) not in self._failing:
                facts = {"rule_group": evaluation.key, "rule": failure.rule, "error": failure.error}
                log.warning("rule failed; its alerts keep their state", extra={"facts": facts})
        mended = {
            group_rule
            for group_rule in self._failing - failing
            if group_rule[0] == evaluation.key and group_rule[1] in evaluation.outcome.rules
        }
        for _, rule in mended:
            log.info("rule succeeds again", extra={"facts": {"rule_group": evaluation.key, "rule": rule}})
        self._failing = (self._failing - mended) | failing

    def _show(self) -> None:
        reports, causes = self._engine.reports(), self._inhibition.causes
        self._reports = tuple(mark(report, causes) for report in reports) if causes else reports
        self._frame = self._exposition.frame(reports, self._engine.windows, self._dispatcher.receivers, causes)

    def _apply_settings(self, alerting: AlertingSettings, now: Instant) -> None:
        before = self._dispatcher.receivers
        for ended in self._engine.reload(alerting.rules, now):
            self._dispatcher.forget(ended, self._engine.time(now))
        self._failing &= {(key, rule.name) for key, group in self._engine.groups() for rule in group.rules.rules}
        leaving = [receiver for receiver in before if receiver not in alerting.receivers]
        successors = [(old, new) for old in leaving for new in alerting.receivers if _follows(new, old)]
        at = self._engine.time(now)
        self._announce(alerting)
        self._external = alerting.external_labels
        if alerting.inhibition != self._inhibits:
            self._inhibits = alerting.inhibition
            self._inhibition = Inhibition(None if alerting.inhibition else ())
        self._dispatcher.reconfigure(alerting.receivers, alerting.resend, alerting.external_labels, at, successors)
        self._retire(leaving, successors)
        self._show()

    def _retire(self, receivers: Sequence[Receiver], successors: Sequence[tuple[Receiver, Receiver]]) -> None:
        """Let receivers that were removed from the configuration deliver what they hold, without waiting for them.

        What they cannot deliver goes to their successors.
        """
        for old, new in successors:
            if isinstance(old, HttpReceiver) and isinstance(new, HttpReceiver):
                old.successor = new
        for receiver in receivers:
            self._threads.begin("notify", partial(receiver.stop, CLOSING_SECONDS))

    def _announce(self, alerting: AlertingSettings) -> None:
        self._exposition.announce((ENGINE, *(group.name for group in alerting.rules.groups)))

    def _log_defect(self, error: Exception) -> None:
        """Count a defect in this code like a failed rule: it must not end the evaluation."""
        text = f"{type(error).__name__}: {error}"
        if text != self._broken:
            log.error("rule evaluation round failed: continuing with the next", exc_info=error)
        self._broken = text
        self._exposition.count(ENGINE, 0, 1, 0.0)
        with contextlib.suppress(Exception):
            self._show()


def _follows(new: Receiver, old: Receiver) -> bool:
    """Return whether a receiver differs from another only in its login or timeout."""
    return bool(new.url) and (new.name, new.url) == (old.name, old.url)
