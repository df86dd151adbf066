"""Problems in attribution: each is counted, and logged only the first time."""

from __future__ import annotations

import logging

from agent.catalogue import metric
from agent.model import Node, Reading, Series

log = logging.getLogger("coldplate.jobs")

PROBLEMS = (
    "vanished",  # a process ended while it was read
    "unreadable",  # a file of a process may not be read
    "malformed",  # a file or an answer could not be understood
    "unknown_cgroup",  # a cgroup path of a shape that is not known
    "foul_id",  # what stands in place of a job's id cannot be one
    "unknown_device",  # a pod or a mapping file names a device that this node does not have
    "too_many",  # more jobs or processes than are kept
    "kubelet",  # the kubelet did not answer
    "mapping",  # a mapping directory or file could not be read
)


class Problems:
    """Counts by problem, from 0, so that the first of a kind shows as an increase."""

    def __init__(self) -> None:
        row = metric("coldplate_job_attribution_problems_total")
        self._series = {problem: Series(row, Node(), (("problem", problem),)) for problem in PROBLEMS}
        self.counts = dict.fromkeys(PROBLEMS, 0)

    def count(self, problem: str) -> None:
        """Count a problem that is logged elsewhere."""
        self.counts[problem] += 1

    def note(self, problem: str, detail: str) -> None:
        self.counts[problem] += 1
        level = logging.WARNING if self.counts[problem] == 1 else logging.DEBUG
        log.log(level, "%s", detail, extra={"facts": {"problem": problem}})

    def readings(self) -> list[Reading]:
        return [Reading(self._series[problem], count) for problem, count in self.counts.items()]
