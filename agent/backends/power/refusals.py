"""Reads that lack a permission: logged once, and once when they are allowed again."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from agent.model import Gap, Reason

log = logging.getLogger("coldplate.power")


class Refusals:
    """Keeps them by metric: the counters of RAPL's many domains are refused together."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def see(self, gaps: Iterable[Gap], read: Iterable[str]) -> None:
        """Take in the gaps of a look, and the names of the metrics that it could read."""
        denied = {gap.metric.name: gap.detail for gap in reversed(list(gaps)) if gap.reason is Reason.DENIED}
        for name, detail in denied.items():
            if name not in self._told:
                self._told.add(name)
                log.warning("%s", detail, extra={"facts": {"missing": name}})
        if self._told:
            for name in self._told.intersection(read) - denied.keys():
                self._told.discard(name)
                log.info("source recovered: %s", name)
