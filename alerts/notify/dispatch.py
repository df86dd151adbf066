"""Decides after each evaluation which alerts are sent to which receiver.

For receivers that need repetition, this is Prometheus's `needsSending` and `sendAlerts`. The others get one
notification when an incident fires and one when it is resolved. Nothing is delivered here, and nothing here waits.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress

from msgspec import Struct

from agent.lib.threads import Threads
from agent.model import Alert, Labels, Phase
from alerts.lifecycle import moved
from alerts.notify.receiver import Notice, Receiver

RESEND_SECONDS = 60.0
"""Prometheus's --rules.alert.resend-delay, in seconds."""
LAST_WORD_SECONDS = 1.0
"""Seconds that a receiver may take to stop, beyond its grace period."""
VALID_FOR = 4
"""Two evaluations or deliveries may fail before a firing alert counts as ended."""


class _SendRecord(Struct, eq=False):
    """What was sent about one alert. `notified` are the identities of the receivers that know its state.

    `is_held`: it was inhibited from its beginning on, so no receiver knows of it.
    """

    alert: Alert
    sent_at: float | None = None
    notified: frozenset[int] = frozenset()
    is_held: bool = False


class Dispatcher:
    """Knows what was sent when. `resend` in seconds; external labels are added to alerts that lack them."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        resend: float = RESEND_SECONDS,
        external_labels: Labels = (),
        threads: Threads | None = None,
    ) -> None:
        self._threads = threads or Threads()
        self._lock = threading.Lock()  # a reload comes from another thread than the evaluations
        self._groups: dict[str, dict[Labels, _SendRecord]] = {}
        self._restored: dict[Labels, tuple[Alert, frozenset[int]]] = {}
        self.receivers = tuple(receivers)
        self._resend = resend
        self._external = external_labels

    def consider(
        self,
        group: str,
        alerts: Iterable[Alert],
        at: float,
        interval: float,
        *,
        unknown: Iterable[Alert] = (),
        inhibited: Container[Labels] = frozenset(),
    ) -> None:
        """Notify receivers about a group that was evaluated at `at`, in wall seconds, and is evaluated every
        `interval`.

        `alerts` are all of the group's: pending, firing, and resolved ones as long as they are remembered. Those of
        rules that failed are `unknown`: they are remembered, but not sent again. An alert that is `inhibited` is not
        sent as long as it is, unless it was sent before.
        """
        with self._lock:
            before = self._groups.get(group, {})
            after: dict[Labels, _SendRecord] = {}
            batch = _NoticeBatch(self.receivers, self._external, at + VALID_FOR * max(interval, self._resend))
            for alert in unknown:
                if alert.labels in before:
                    after[alert.labels] = before[alert.labels]
            for alert in _distinct(alerts):
                if alert.phase is not Phase.PENDING:
                    held = alert.labels in inhibited
                    after[alert.labels] = self._notify_receivers(before.get(alert.labels), alert, at, batch, held)
            self._groups[group] = after
            _end_vanished(before, after, at, batch)
            batch.hand_over(at)

    def mark_notified(self, alerts: Iterable[Alert], receivers: Sequence[Receiver]) -> None:
        """Mark incidents restored at the start as known to these receivers that get changes only."""
        with self._lock:
            notified = frozenset(map(id, receivers))
            incidents = (alert for alert in alerts if alert.phase is not Phase.PENDING)
            self._restored.update((alert.labels, (alert, notified)) for alert in incidents)

    def end(self, alerts: Iterable[Alert], at: float) -> None:
        """Notify receivers of changes that these incidents are over: no rule watches them any more."""
        with self._lock:
            batch = _NoticeBatch(self.receivers, self._external, at)
            for alert in alerts:
                batch.add_change(replace(alert, phase=Phase.RESOLVED, resolved_at=at), frozenset())
            batch.hand_over(at)

    def shift(self, seconds: float) -> None:
        """Adjust to a clock that was set: what was sent is as long ago as before, and the incidents are the same."""
        with self._lock:
            for record in self._records():
                record.alert = moved(record.alert, seconds)
                if record.sent_at is not None:
                    record.sent_at += seconds
            self._restored = {
                labels: (moved(alert, seconds), notified) for labels, (alert, notified) in self._restored.items()
            }

    def forget(self, group: str, at: float) -> None:
        """Forget a group that is no longer evaluated; its incidents end at `at` for receivers of changes."""
        with self._lock:
            batch = _NoticeBatch(self.receivers, self._external, at)
            _end_vanished(self._groups.pop(group, {}), {}, at, batch)
            batch.hand_over(at)

    def reconfigure(
        self,
        receivers: Sequence[Receiver],
        resend: float,
        external_labels: Labels,
        at: float = 0.0,
        successors: Sequence[tuple[Receiver, Receiver]] = (),
    ) -> None:
        """Take over a changed configuration, remembering what was sent when. The caller stops receivers.

        A new receiver is notified of what fires, but not of what had already ended, unless it succeeds one that was
        notified. Other external labels make other alerts: for receivers of changes the ones before end at `at`.
        """
        with self._lock:
            kept = frozenset(map(id, self.receivers)) & frozenset(map(id, receivers))
            everyone = frozenset(map(id, receivers))
            changed = external_labels != self._external
            batch = _NoticeBatch(self.receivers, self._external, at)
            for record in self._records():
                notified = record.notified & kept | {id(new) for old, new in successors if id(old) in record.notified}
                if record.alert.phase is Phase.RESOLVED:
                    notified = everyone
                elif changed and not record.is_held:
                    resolved = replace(record.alert, phase=Phase.RESOLVED, resolved_at=at)
                    batch.add_change(resolved, batch.everyone - record.notified)
                    notified = frozenset()
                record.notified = frozenset(notified)
            batch.hand_over(at)
            self.receivers = tuple(receivers)
            self._resend = resend
            self._external = external_labels

    def stop(self, grace: float) -> None:
        """Stop all receivers, in parallel."""
        stops = [self._threads.begin("notify", partial(receiver.stop, grace)) for receiver in self.receivers]
        for stop in stops:
            stop.join(grace + LAST_WORD_SECONDS)

    def _records(self) -> Iterator[_SendRecord]:
        for group in self._groups.values():
            yield from group.values()

    def _notify_receivers(
        self, record: _SendRecord | None, alert: Alert, at: float, batch: _NoticeBatch, inhibited: bool
    ) -> _SendRecord:
        """Add what has to be sent about an alert that is not pending; returns what was sent so far."""
        if record is None or _state(record.alert) != _state(alert):
            was_held = record is not None and record.is_held
            record = _SendRecord(alert, is_held=was_held if alert.phase is Phase.RESOLVED else inhibited)
            restored = self._restored.pop(alert.labels, None)
            if restored is not None and _state(restored[0]) == _state(alert):
                record.notified = restored[1] & batch.everyone
        record.alert = alert
        record.is_held = record.is_held and (inhibited or alert.phase is Phase.RESOLVED)
        if record.is_held and not record.notified:
            return record
        if _needs_sending(record.sent_at, at, self._resend):
            record.sent_at = at
            batch.add_repeated(alert)
        if record.notified != batch.everyone:
            batch.add_change(alert, record.notified)
            record.notified = batch.everyone
        return record


def _needs_sending(sent_at: float | None, at: float, resend: float) -> bool:
    """Apply Prometheus's rule of the same name, in whole milliseconds as its timestamps are.

    Prometheus sends what was resolved after `sent_at`; here a new state has not been sent at all, which amounts to the
    same, unless the clock was set back. By how much is unknown, so then everything is sent.
    """
    if sent_at is None:
        return True
    sent, now = _ms(sent_at), _ms(at)
    return sent + _ms(resend) < now or now < sent


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _state(alert: Alert) -> tuple[Phase, int, int]:
    """Return the phase of an incident, with the times at which it fired and was resolved, in milliseconds."""
    return alert.phase, _ms(alert.fired_at or 0.0), _ms(alert.resolved_at or 0.0)


_WEIGHT = {Phase.PENDING: 0, Phase.RESOLVED: 1, Phase.FIRING: 2}


def _distinct(alerts: Iterable[Alert]) -> Collection[Alert]:
    """Return one alert for each label set: two rules may have the same one, which fires while either does."""
    by_labels: dict[Labels, Alert] = {}
    for alert in alerts:
        other = by_labels.get(alert.labels)
        if other is None or _WEIGHT[alert.phase] > _WEIGHT[other.phase]:
            by_labels[alert.labels] = alert
    return by_labels.values()


def _end_vanished(
    before: dict[Labels, _SendRecord], after: dict[Labels, _SendRecord], at: float, batch: _NoticeBatch
) -> None:
    """Add the end of incidents that vanished without one: their rule is gone, or they are pending again.

    Alertmanager finds out by itself, from endsAt; for receivers of changes they would fire forever.
    """
    for labels, record in before.items():
        if labels not in after and record.alert.phase is Phase.FIRING and not record.is_held:
            batch.add_change(
                replace(record.alert, phase=Phase.RESOLVED, resolved_at=at), batch.everyone - record.notified
            )


class _NoticeBatch:
    """The notices of one evaluation, by receiver."""

    def __init__(self, receivers: Sequence[Receiver], external: Labels, valid_until: float) -> None:
        self.everyone = frozenset(map(id, receivers))
        self._receivers = receivers
        self._external = external
        self._valid_until = valid_until
        self._notices: list[list[Notice]] = [[] for _ in receivers]

    def add_repeated(self, alert: Alert) -> None:
        """Add a notice for receivers that need repetition."""
        self._add(alert, [receiver.repeats for receiver in self._receivers])

    def add_change(self, alert: Alert, notified: frozenset[int]) -> None:
        """Add a notice for receivers of changes, except those that know."""
        self._add(alert, [not r.repeats and id(r) not in notified for r in self._receivers])

    def hand_over(self, at: float) -> None:
        for receiver, notices in zip(self._receivers, self._notices, strict=True):
            if notices:
                receiver.accept_notices(notices, at)

    def _add(self, alert: Alert, chosen: Sequence[bool]) -> None:
        if any(chosen):
            notice = Notice(replace(alert, labels=_with(alert.labels, self._external)), self._valid_until)
            for notices in compress(self._notices, chosen):
                notices.append(notice)


def _with(labels: Labels, external: Labels) -> Labels:
    """Return the labels, and those external ones that they lack, in order; an empty label counts as missing."""
    pairs = {name: value for name, value in external if value}
    pairs.update((name, value) for name, value in labels if value)
    return tuple(sorted(pairs.items()))
