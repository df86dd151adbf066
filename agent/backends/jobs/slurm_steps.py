"""The cgroups of Slurm's steps: the GPUs that it gave to jobs, though no process opened them, and the jobs' numbers.

Slurm keeps a cgroup for each step of a job (slurm.schedmd.com/cgroup_v2.html, cgroups.html), and names the GPUs in the
environment of the step's processes: SLURM_JOB_GPUS in the batch or interactive step (slurm.schedmd.com/sbatch.html),
SLURM_STEP_GPUS in the others (srun.html). Both hold the numbers of the device files, also where a job sees its GPUs
only. Users can change the environment of their processes, so it counts only for GPUs on which no job computes.

The scope of the jobs may be in any slice (CgroupSlice of cgroup.conf(5)), or in the container of a slurmd: it is looked
for wherever a process below it would count as a job's, see cgroup.py.
"""

import re
from collections import deque
from collections.abc import Iterator
from math import inf

from agent.backends.jobs.cgroup import may_hold_schedulers
from agent.backends.jobs.job_files import TimedReader
from agent.backends.jobs.schedulers.slurm import JOB, SCOPE, VERSION_1

JOB_GPUS, STEP_GPUS = "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"
MAX_JOBS, MAX_STEPS, MAX_GPUS = 64, 16, 64
"""Most jobs of the node and steps of a job that are looked at, and most GPUs that a step names."""
MAX_LIST_BYTES = 4096
MAX_TITLE_BYTES = 256
SEARCH_INTERVAL_SECONDS = 120.0
"""Seconds between two searches for scopes: slurmd makes one when it starts."""
MAX_FOLDERS = 1024
"""Most cgroups that are listed in one search."""
_SCOPE, _VERSION_1, _JOB = map(re.compile, (SCOPE, VERSION_1, JOB))
_CONTROLLERS = ("cpuset", "devices", "freezer", "memory")
_STEP = re.compile(r"step_.*")
_WHOLE_JOB = frozenset({"step_batch", "step_interactive"})
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_TITLE = re.compile(rb"slurmstepd: \[([0-9]+)\.")
"""How a step's slurmstepd calls itself (_set_job_log_prefix in src/slurmd/slurmstepd/slurmstepd.c)."""


def gpu_numbers(text: str) -> list[int]:
    """Return the numbers in a list such as `0,2-3`; empty if it is another text."""
    numbers: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        numbers += range(first, min(last, first + MAX_GPUS) + 1)
    return numbers[:MAX_GPUS]


class SlurmSteps:
    """Finds the steps of Slurm's jobs below `root`, where cgroups are mounted; `procfs` has the processes."""

    def __init__(self, root: str, procfs: str, read: TimedReader) -> None:
        self._root = root
        self._procfs = procfs
        self._read = read
        self._scopes: list[str] = []
        self._searched = -inf
        """When the scopes were last looked for, in monotonic seconds."""

    def running_steps(self) -> dict[int, str]:
        """Return one process of each step that runs now, with the variable that names the step's GPUs.

        Empty on a node without Slurm's cgroups.
        """
        variables: dict[int, str] = {}
        for job in self._jobs():
            for step in self._folders(job, _STEP)[:MAX_STEPS]:
                pid = next(self._processes(step), None)
                if pid is not None:
                    name = step.rpartition("/")[2]
                    variables[pid] = JOB_GPUS if name in _WHOLE_JOB else STEP_GPUS
        return variables

    def job_number(self, cgroup: str) -> str:
        """Return the number of the job that has this cgroup, by the title of its slurmstepd; "" if none can be seen.

        No user can change it: the process is root's, and so is the cgroup in which it is.
        """
        for step in self._folders(f"{self._root}{cgroup}", _STEP)[:MAX_STEPS]:
            for pid in self._listed(f"{step}/slurm"):
                try:
                    match = _TITLE.match(self._read(f"{self._procfs}/{pid}/cmdline", MAX_TITLE_BYTES))
                except OSError:
                    continue
                if match is not None:
                    return match[1].decode("ascii")
        return ""

    def _jobs(self) -> list[str]:
        if self._read.mono - self._searched >= SEARCH_INTERVAL_SECONDS:
            self._scopes, self._searched = self._search(), self._read.mono
        if self._scopes:
            return [job for scope in self._scopes for job in self._folders(scope, _JOB)][:MAX_JOBS]
        for controller in _CONTROLLERS:
            users = [
                user
                for scope in self._folders(f"{self._root}/{controller}", _VERSION_1)
                for user in self._folders(scope, re.compile(r"uid_[0-9]+"))
            ]
            if users:
                return [job for user in users for job in self._folders(user, re.compile(r"job_[0-9]+"))][:MAX_JOBS]
        return []

    def _search(self) -> list[str]:
        """Return the scopes of jobs in the unified hierarchy."""
        scopes: list[str] = []
        pending = deque([self._root])
        for _ in range(MAX_FOLDERS):
            if not pending:
                break
            for folder in self._folders(pending.popleft(), re.compile(r".*")):
                is_scope = _SCOPE.fullmatch(folder.rpartition("/")[2]) is not None
                if is_scope:
                    scopes.append(folder)
                if is_scope or may_hold_schedulers(folder.removeprefix(self._root)):
                    pending.append(folder)
        return scopes

    def _folders(self, folder: str, names: re.Pattern[str]) -> list[str]:
        try:
            return [f"{folder}/{name}" for name in self._read.names(folder).folders if names.fullmatch(name)]
        except OSError:
            return []

    def _processes(self, step: str) -> Iterator[int]:
        """Give the lowest process of the first task that has one; version 2 has tasks below `user`."""
        for above in (step, f"{step}/user"):
            for task in self._folders(above, re.compile(r"task_.*")):
                yield from self._listed(task)[:1]

    def _listed(self, cgroup: str) -> list[int]:
        """Return the processes of a cgroup, the lowest first; none if it cannot be read."""
        try:
            words = self._read(f"{cgroup}/cgroup.procs", MAX_LIST_BYTES).split()
        except OSError:
            return []
        return sorted(int(word) for word in words if word.isdigit() and word != b"0")
