"""The expectations of the running agent: one series for each fact that is checked, told with every snapshot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.health.examination import FACTS, examined, expected_of, view_of
from agent.health.expected_node import Expected
from agent.health.verdicts import HealthFinding
from agent.model import EMPTY_FRAME, Frame, Instant, Snapshot

log = logging.getLogger("coldplate.expectations")

MET = "coldplate_expectation_met"
SET = "coldplate_expectations_info"
FIRST_SECONDS, SETTLED_SECONDS = 15.0, 60.0
"""Seconds until the next look at the facts after one that found something new, and after one that did not."""


@dataclass(frozen=True, slots=True)
class ExpectationChoice:
    """What is expected: nothing, what is shipped for the node's GPUs (`by_gpus`), or `named`."""

    by_gpus: bool = True
    named: Expected | None = None


class ExpectationSeries:
    """Holds the latest snapshot against the expectations. For the sampling thread, but for `reconfigure`.

    `devices` is the family of devices in it, where that is known.
    """

    def __init__(self, latest: Callable[[], Snapshot | None], choice: ExpectationChoice, devices: str = "") -> None:
        self._latest = latest
        self._devices = devices
        self._choice = choice
        self._due = -inf
        """The monotonic second of the next look."""
        self._frame = EMPTY_FRAME
        self._own = OwnSeries()
        self._told: dict[str, bool] = {}
        """By fact, whether the log was told that it is as it should be."""

    def reconfigure(self, choice: ExpectationChoice) -> None:
        """Expect something else from the next look on."""
        self._choice = choice
        self._due = -inf

    def frame(self, now: Instant) -> Frame:
        """A series for each expectation of which it is known whether it is met."""
        snapshot = self._latest()
        if snapshot is not None and now.mono >= self._due:
            before, self._frame = self._frame, self._look(snapshot)
            self._due = now.mono + (SETTLED_SECONDS if self._frame == before else FIRST_SECONDS)
        return self._frame

    def _look(self, snapshot: Snapshot) -> Frame:
        choice = self._choice
        if choice.named is None and not choice.by_gpus:
            return EMPTY_FRAME
        view = view_of(snapshot, self._devices)
        expected = choice.named or expected_of(view)
        findings = [each for each in examined(view, expected, FACTS) if each.is_met is not None]
        self._tell(findings)
        if not findings:
            return EMPTY_FRAME
        met = (OwnReading(MET, int(bool(each.is_met)), (("expectation", each.name),)) for each in findings)
        return self._own.frame((OwnReading(SET, 1, (("expectations", expected.name),)), *met))

    def _tell(self, findings: list[HealthFinding]) -> None:
        """Log what is not as expected, once, and once that it is again."""
        for each in findings:
            before, self._told[each.name] = self._told.get(each.name, True), bool(each.is_met)
            if each.is_met and not before:
                log.info("expectation is met again: %s", each.name)
            elif before and not each.is_met:
                facts = {"expectation": each.name, "expected": each.expected, "found": each.found}
                log.warning("expectation is not met", extra={"facts": facts})
