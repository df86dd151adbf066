"""Decides when to write the state of alerts and windows, so that a restart or a crash does not lose it."""

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from agent.lib.state_files import StateFiles, load_state
from agent.model import Alert, Instant, Labels, Phase
from alerts import alert_state
from alerts.engine import Evaluation, RuleEngine

log = logging.getLogger("coldplate.rules")

WITHOUT = "starting without its saved state"
EVERY_SECONDS = 5.0
"""Seconds between two writes while some alert is pending: a crash may lose that much of its waiting time."""
STEADY_SECONDS = 60.0
"""Seconds between two writes while alerts merely keep firing: the file's age shows how long the agent was down."""
WINDOWS_EVERY_SECONDS = 15.0
"""Seconds between two writes of the windows while some alert is pending or firing; they are written at the end, too."""


class SavedDeliveries(NamedTuple):
    """What an earlier run knew of its alerts beside their state.

    `lost` fired, and no rule watches them any more; `notified` are the receivers that knew every state; `effects` are
    the labels of alerts that were inhibited when they began, with those of their causes.
    """

    lost: Sequence[Alert] = ()
    notified: frozenset[str] = frozenset()
    effects: Mapping[Labels, Labels] = MappingProxyType({})


class AlertStateStore:
    """Passes the state to `files`. `source` names the devices: a drill's alerts are not the node's."""

    def __init__(self, folder: Path, source: str, files: StateFiles) -> None:
        self._alerts = folder / "alerts.state"
        self._windows = folder / "windows.state"
        self._source = source
        self._files = files
        self._alerts_at = self._windows_at = 0.0
        self._count = 0
        self._notified: Collection[str] = ()

    def load(self, engine: RuleEngine, now: Instant) -> SavedDeliveries:
        """Give the engine what an earlier run saved, unless it is too old to mean anything."""
        saved = load_state(self._alerts, alert_state.decode, log, WITHOUT)
        windows = load_state(self._windows, alert_state.decode_windows, log, WITHOUT)
        if windows is not None and self._is_ours(windows.source, engine.time(now) - windows.at):
            engine.restore_windows(windows, now)
        if saved is None or not saved.count:
            return SavedDeliveries()
        down = engine.time(now) - saved.at
        if saved.source != self._source:
            log.info("saved alerts ignored: they are of %s, this run samples %s", saved.source, self._source)
            return SavedDeliveries()
        if not self._is_ours(saved.source, down):
            log.warning("saved alerts are too old to restore: %.0f minutes", down / 60)
            firing = [record.alert for _, _, record in saved.all() if record.alert.phase is Phase.FIRING]
            return SavedDeliveries(firing, saved.notified)
        lost = engine.restore(saved, now)
        self._count = sum(1 for _ in engine.remembered())
        facts = {"alerts": self._count, "of": saved.count, "down": f"{max(down, 0.0):.1f}s"}
        log.info("alerts restored", extra={"facts": facts})
        return SavedDeliveries(lost, saved.notified, saved.effects)

    def _is_ours(self, source: str, down: float) -> bool:
        return source == self._source and down <= alert_state.OUTAGE_TOLERANCE_SECONDS

    def after(
        self,
        engine: RuleEngine,
        evaluations: Sequence[Evaluation],
        now: Instant,
        notified: Collection[str],
        effects: Mapping[Labels, Labels] = MappingProxyType({}),
    ) -> None:
        """Write the changes of a round, with what a later run is to know beside the state of the alerts.

        `notified` are the receivers that are notified once and have nothing queued; `effects` as in SavedDeliveries.
        """
        if not evaluations:
            return
        records = [record for _, _, record in engine.remembered()]
        changed = len(records) != self._count or any(evaluation.outcome.transitions for evaluation in evaluations)
        waiting = any(r.alert.phase is Phase.PENDING or r.missing_since is not None for r in records)
        age = now.mono - self._alerts_at
        every = EVERY_SECONDS if waiting or notified != self._notified else STEADY_SECONDS
        if changed or (records and age >= every):
            self._count = len(records)
            self._alerts_at = now.mono
            self._write_alerts(engine, now, notified, effects)
        if now.mono - self._windows_at >= WINDOWS_EVERY_SECONDS and any(
            r.alert.phase is not Phase.RESOLVED for r in records
        ):
            self._windows_at = now.mono
            self._write_windows(engine, now)

    def close(
        self,
        engine: RuleEngine,
        now: Instant,
        notified: Collection[str],
        effects: Mapping[Labels, Labels] = MappingProxyType({}),
    ) -> None:
        if self._count or any(True for _ in engine.remembered()):
            self._write_alerts(engine, now, notified, effects)
        if engine.reports():
            self._write_windows(engine, now)

    def _write_alerts(
        self, engine: RuleEngine, now: Instant, notified: Collection[str], effects: Mapping[Labels, Labels]
    ) -> None:
        self._notified = notified
        at, records = engine.time(now), engine.remembered()
        self._files.put(self._alerts, alert_state.encode(at, self._source, records, notified, effects))

    def _write_windows(self, engine: RuleEngine, now: Instant) -> None:
        self._files.put(
            self._windows, alert_state.encode_windows(engine.time(now), self._source, engine.windows.kept())
        )
