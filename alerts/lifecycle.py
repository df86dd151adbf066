"""The life cycle of one alert, as a pure function with Prometheus's states.

`step` gets the state of an alert, the result of this evaluation, and the time; it returns the new state. It keeps
nothing, reads no clock, and knows neither queries nor templates nor receivers. The table that it implements is
Prometheus's own `AlertingRule.Eval`.
"""

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct, field, structs

from agent.model import Alert, Labels, Phase

RETENTION_SECONDS = 15 * 60.0
"""Seconds for which a resolved alert is remembered, so that its end can be sent again."""


class RuleTiming(Struct, frozen=True):
    """How long a rule waits before its alerts fire and before they resolve: `for` and `keep_firing_for`, in seconds."""

    rule: str
    hold: float = 0.0
    keep_firing: float = 0.0


class Holds(Struct, frozen=True):
    """This evaluation has the element: its labels (the alert's identity), value and annotations."""

    labels: Labels
    value: float
    annotations: Mapping[str, str] = field(default_factory=dict)


class AlertRecord(Struct, frozen=True):
    """What must be kept of an alert between evaluations.

    `missing_since` is the first evaluation without the element, while `keep_firing_for` bridges it.
    """

    alert: Alert
    missing_since: float | None = None


def moved(alert: Alert, seconds: float) -> Alert:
    """Return the same incident after the clock was set: everything is as long ago as before."""

    def later(wall: float | None) -> float | None:
        return None if wall is None else wall + seconds

    return replace(
        alert,
        active_at=alert.active_at + seconds,
        fired_at=later(alert.fired_at),
        resolved_at=later(alert.resolved_at),
        fires_at=later(alert.fires_at),
    )


def step(record: AlertRecord | None, condition: Holds | None, now: float, terms: RuleTiming) -> AlertRecord | None:
    """Return the new record of an alert at `now`, in wall seconds; None if there is no alert.

    Without a `condition` its query is false, or its series is gone, which is the same to Prometheus.
    """
    if condition is not None:
        if record is None or record.alert.phase is Phase.RESOLVED:
            return _begin(condition, now, terms)
        return _continue(record, condition, now, terms)
    if record is None or record.alert.phase is Phase.PENDING:
        return None
    return _remember(record, now) if record.alert.phase is Phase.RESOLVED else _miss(record, now, terms)


def _reached(since: float, now: float, span: float) -> bool:
    """Return whether `span` seconds have passed, in whole milliseconds, the resolution of Prometheus's timestamps."""
    return round((now - since) * 1000) >= round(span * 1000)


def _begin(condition: Holds, now: float, terms: RuleTiming) -> AlertRecord:
    """Begin a new incident, even if an old one is still remembered."""
    fires = _reached(now, now, terms.hold)
    alert = Alert(
        rule=terms.rule,
        labels=condition.labels,
        phase=Phase.FIRING if fires else Phase.PENDING,
        value=condition.value,
        active_at=now,
        fired_at=now if fires else None,
        annotations=condition.annotations,
        fires_at=None if fires else now + terms.hold,
    )
    return AlertRecord(alert)


def _continue(record: AlertRecord, condition: Holds, now: float, terms: RuleTiming) -> AlertRecord:
    before = record.alert.phase
    alert = replace(record.alert, value=condition.value, annotations=condition.annotations)
    held = _reached(alert.active_at, now, terms.hold)
    if before is Phase.PENDING and held:
        alert = replace(alert, phase=Phase.FIRING, fired_at=now, fires_at=None)
    elif not held:  # of a firing alert, a reload made `for` longer: as in Prometheus 3, it must pass first
        alert = replace(alert, phase=Phase.PENDING, fired_at=None, fires_at=alert.active_at + terms.hold)
    return AlertRecord(alert)


def _miss(record: AlertRecord, now: float, terms: RuleTiming) -> AlertRecord:
    """Handle a firing alert whose element is gone: it is kept for a while, or resolved."""
    since = now if record.missing_since is None else record.missing_since
    if terms.keep_firing > 0 and not _reached(since, now, terms.keep_firing):
        return structs.replace(record, missing_since=since)
    return AlertRecord(replace(record.alert, phase=Phase.RESOLVED, resolved_at=now))


def _remember(record: AlertRecord, now: float) -> AlertRecord | None:
    resolved_at = record.alert.resolved_at
    assert resolved_at is not None, "a resolved alert knows when"
    return None if round((now - resolved_at) * 1000) > round(RETENTION_SECONDS * 1000) else record
