"""The jobs of a synthetic node, in the same rows as on a real node."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from agent.backends.synthetic import levels as ch
from agent.backends.synthetic.scenario import ScenarioJob
from agent.backends.synthetic.track import Track
from agent.catalogue import metric
from agent.model import Gpu, Instant, Labels, Node, Reading, Series


class PlacedJob:
    """A job and its GPUs. Advances the tracks that it is given, so it belongs to one thread."""

    def __init__(self, job: ScenarioJob, gpus: Sequence[Gpu], tracks: Sequence[Track]) -> None:
        self._job, self._tracks = job, tracks
        self._before: list[float] = []
        self._started = 0.0
        facts = {
            "scheduler": job.scheduler, "job_id": job.id, "user": job.user, "name": job.name, "account": job.account,
            "partition": job.partition, "mig": "0", "shared": "false",
        }  # fmt: skip
        self._holders = [Reading(_series("coldplate_gpu_job_info", gpu, facts), 1.0) for gpu in gpus]
        self._facts = [
            Reading(_series("coldplate_job_info", Node(), facts), 1.0),
            Reading(_series("coldplate_job_gpus", Node(), facts), float(len(gpus))),
            Reading(_series("coldplate_job_processes", Node(), facts), float(len(gpus))),
        ]
        self._start = _series("coldplate_job_start_timestamp_seconds", Node(), facts)
        self._energy = _series("coldplate_job_energy_joules_total", Node(), facts)

    def readings(self, t: float, now: Instant) -> list[Reading]:
        """The job's readings `t` seconds into the scenario: none unless it is running. `now` is the same moment."""
        begin = self._job.window.at
        if not self._job.window.holds(t):
            return []
        if not self._before:
            self._before = [track.totals(begin)[ch.POWER] for track in self._tracks]
            self._started = float(floor(now.wall - t + begin))
        joules = sum(track.totals(t)[ch.POWER] for track in self._tracks) - sum(self._before)
        return [*self._holders, *self._facts, Reading(self._start, self._started), Reading(self._energy, joules)]


def _series(name: str, entity: Gpu | Node, facts: dict[str, str]) -> Series:
    row = metric(name)
    labels: Labels = tuple((each, facts.get(each, "")) for each in row.labels)
    return Series(row, entity, labels)
