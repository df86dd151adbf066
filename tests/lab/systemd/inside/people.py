"""Processes of other people: users, and cgroups of the shapes that batch systems and kubelets make."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from inside.tools import sh

CGROUPS = Path("/sys/fs/cgroup")
UNIFIED = (CGROUPS / "cgroup.controllers").exists()


def user(name: str) -> int:
    """A user with a home; its number."""
    sh("useradd", "--create-home", "--shell", "/bin/sh", name, check=False)
    return int(sh("id", "--user", name))


def cgroup(path: str) -> Path:
    """A cgroup at this path below the hierarchy's root: in the unified hierarchy, or else in that of memory."""
    made = (CGROUPS if UNIFIED else CGROUPS / "memory") / path
    made.mkdir(parents=True, exist_ok=True)
    return made


def slurm_cgroup(job: int, uid: int) -> Path:
    """As slurmd makes them: cgroup v2, or v1."""
    if UNIFIED:
        return cgroup(f"system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0")
    return cgroup(f"slurm/uid_{uid}/job_{job}/step_0/task_0")


class Process:
    """A program of somebody's that sleeps in a cgroup, with an environment."""

    def __init__(self, owner: str, place: Path, environment: dict[str, str]) -> None:
        def enter() -> None:
            (place / "cgroup.procs").write_text(str(os.getpid()))

        command = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups", "sleep", "infinity"]
        self._process = subprocess.Popen(command, env={"PATH": os.environ["PATH"], **environment}, preexec_fn=enter)
        self.pid = self._process.pid
