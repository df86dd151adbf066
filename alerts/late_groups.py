"""Logs which rule groups are evaluated less often than configured: at once, and then in a summary each minute."""

from __future__ import annotations

import logging
from collections import Counter
from math import inf

log = logging.getLogger("coldplate.rules")

SUMMARY_SECONDS = 60.0
"""Seconds between two summaries: a busy node is late again and again."""
MOST_NAMED = 10
"""Groups that a summary names, those first that missed the most."""


class LateGroups:
    """Counts what groups missed since the last summary. Seconds are monotonic."""

    def __init__(self) -> None:
        self._missed: Counter[str] = Counter()
        self._said = -inf

    def count(self, group: str, missed: int) -> None:
        """Note that a group, named FILE;GROUP, skipped so many points of its grid."""
        if missed:
            self._missed[group] += missed

    def say(self, now: float) -> None:
        """Log a summary if there is something to say, and it is time."""
        if not self._missed or now - self._said < SUMMARY_SECONDS:
            return
        named = [f"{group} {missed}" for group, missed in self._missed.most_common(MOST_NAMED)]
        if len(self._missed) > MOST_NAMED:
            named.append(f"and {len(self._missed) - MOST_NAMED} more groups")
        facts = {"missed": self._missed.total(), "rule_groups": ", ".join(named)}
        log.warning("rule groups evaluated less often than configured", extra={"facts": facts})
        self._missed.clear()
        self._said = now
