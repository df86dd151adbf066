"""The processes of each GPU, those of the last list where the driver cannot list them now.

A GPU that is lost or hangs is still held by its job: the job's processes live, and wait for it. Without this, a job of
four GPUs would have three as soon as one of them is lost, and the alert about that one would not name its owner.
"""

from collections.abc import Mapping, Sequence

from agent.backends.jobs.process_table import GpuProcessFacts
from agent.backends.protocol import GpuProcess
from agent.model import Gpu


class LastProcesses:
    """Remembers the processes of each GPU, until they end or the driver lists others."""

    def __init__(self) -> None:
        self._listed: dict[Gpu, Sequence[GpuProcess]] = {}
        self._unlisted: frozenset[Gpu] = frozenset()
        self._started: dict[int, int] = {}
        """When each process was started, in clock ticks since the boot: a later one may have its number."""

    def complete(self, listed: Mapping[Gpu, Sequence[GpuProcess] | None]) -> Mapping[Gpu, Sequence[GpuProcess]]:
        """Return the processes of each GPU, with the last ones known of a GPU that cannot list them (None)."""
        self._unlisted = frozenset(gpu for gpu, processes in listed.items() if processes is None)
        self._listed = {
            gpu: self._listed.get(gpu, ()) if processes is None else processes for gpu, processes in listed.items()
        }
        return self._listed

    def remove_ended(self, running: Mapping[int, GpuProcessFacts]) -> set[tuple[Gpu, int]]:
        """Forget the remembered processes that do not run any more, and return them with their GPUs."""
        ended: set[tuple[Gpu, int]] = set()
        for gpu in self._unlisted:
            for process in self._listed[gpu]:
                facts = running.get(process.pid)
                if facts is None or facts.started != self._started.get(process.pid, facts.started):
                    ended.add((gpu, process.pid))
            self._listed[gpu] = [process for process in self._listed[gpu] if (gpu, process.pid) not in ended]
        self._started = {pid: facts.started for pid, facts in running.items()}
        return ended
