"""The GPUs that Slurm gave to the jobs of this node, though no process may have opened them.

Slurm keeps a cgroup for each step of a job (slurm.schedmd.com/cgroup_v2.html, cgroups.html), and names the GPUs in the
environment of the step's processes: SLURM_JOB_GPUS in the batch or interactive step (slurm.schedmd.com/sbatch.html),
SLURM_STEP_GPUS in the others (srun.html). Both hold the numbers of the device files, also where a job sees its GPUs
only. Users can change the environment of their processes, so it counts only for GPUs on which no job computes.
"""

import re
from collections.abc import Iterator

from agent.backends.jobs.job_files import TimedReader

JOB_GPUS, STEP_GPUS = "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"
MAX_JOBS, MAX_STEPS, MAX_GPUS = 64, 16, 64
"""Most jobs of the node and steps of a job that are looked at, and most GPUs that a step names."""
MAX_LIST_BYTES = 4096
_UNIFIED = re.compile(r"(?:.*_)?slurmstepd\.scope")
_VERSION_1 = re.compile(r"slurm(?:_.*)?")
_CONTROLLERS = ("cpuset", "devices", "freezer", "memory")
_WHOLE_JOB = frozenset({"step_batch", "step_interactive"})
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")


def gpu_numbers(text: str) -> list[int]:
    """Return the numbers in a list such as `0,2-3`; empty if it is another text."""
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        found += range(first, min(last, first + MAX_GPUS) + 1)
    return found[:MAX_GPUS]


class SlurmSteps:
    """Finds the steps of Slurm's jobs below `root`, where cgroups are mounted."""

    def __init__(self, root: str, read: TimedReader) -> None:
        self._root = root
        self._read = read

    def look(self) -> dict[int, str]:
        """Return one process of each step that runs now, with the variable that names the step's GPUs.

        Empty on a node without Slurm's cgroups.
        """
        found: dict[int, str] = {}
        for job in self._jobs():
            for step in self._folders(job, re.compile(r"step_.*"))[:MAX_STEPS]:
                pid = next(self._processes(step), None)
                if pid is not None:
                    name = step.rpartition("/")[2]
                    found[pid] = JOB_GPUS if name in _WHOLE_JOB else STEP_GPUS
        return found

    def _jobs(self) -> list[str]:
        scopes = self._folders(f"{self._root}/system.slice", _UNIFIED)
        for controller in () if scopes else _CONTROLLERS:
            scopes = [
                user
                for scope in self._folders(f"{self._root}/{controller}", _VERSION_1)
                for user in self._folders(scope, re.compile(r"uid_[0-9]+"))
            ]
            if scopes:
                break
        return [job for scope in scopes for job in self._folders(scope, re.compile(r"job_[0-9]+"))][:MAX_JOBS]

    def _folders(self, folder: str, names: re.Pattern[str]) -> list[str]:
        try:
            return [f"{folder}/{name}" for name in self._read.names(folder).folders if names.fullmatch(name)]
        except OSError:
            return []

    def _processes(self, step: str) -> Iterator[int]:
        """Give the lowest process of the first task that has one; version 2 has tasks below `user`."""
        for above in (step, f"{step}/user"):
            for task in self._folders(above, re.compile(r"task_.*")):
                try:
                    words = self._read(f"{task}/cgroup.procs", MAX_LIST_BYTES).split()
                except OSError:
                    continue
                yield from sorted(int(word) for word in words if word.isdigit() and word != b"0")[:1]
