"""Rows that a round of questions did not give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.backends.file_relay import Unread
from agent.backends.optics.ethtool_questions import EthtoolQuestion, PortValue
from agent.backends.optics.relayed_questions import NoAnswer
from agent.model import Gap, Metric, Node, Reason


class MissingRows:
    """Which rows are missing, of which ports, and why. What only some drivers do not offer is not missing."""

    def __init__(self) -> None:
        self._given: set[Metric] = set()
        self._missing: dict[tuple[Metric, Reason], list[str]] = {}

    def take(self, question: EthtoolQuestion, device: str, answer: list[PortValue] | NoAnswer | Unread) -> None:
        """Note what a question about a port gave."""
        if isinstance(answer, list):
            given = {each.row for each in answer}
            self.give(given)
            rows: Iterable[Metric] = (row for row in question.offered if row not in given)
            why: NoAnswer | Unread = NoAnswer(Reason.UNSUPPORTED, "not counted by this driver")
        else:
            rows, why = question.rows, answer
        for row in rows:
            self.miss(row, why.reason, f"{question.name} {device}: {why.detail}")

    def give(self, rows: Iterable[Metric]) -> None:
        """Note rows that a port has."""
        self._given.update(rows)

    def miss(self, row: Metric, reason: Reason, told: str) -> None:
        """Note that a port lacks a row; `told` names the port and says why."""
        self._missing.setdefault((row, reason), []).append(told)

    def gaps(self) -> Iterator[Gap]:
        """One for each row and reason; it names one port, and how many there are."""
        for (row, reason), told in self._missing.items():
            if reason is not Reason.UNSUPPORTED or row not in self._given:
                more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
                yield Gap(row, Node(), reason, f"{told[0]}{more}")
