"""A real Slurm: slurmctld, slurmd and munge of Debian, and jobs of theirs. What they do has not been written here."""

from __future__ import annotations

import pwd
from pathlib import Path

from inside.checks import NotHereError, check
from inside.people import Process, cgroup, user
from inside.slurm_daemons import as_alice, await_idle, job_script, start_slurm, stop_slurm, written
from inside.tools import CheckError, command, one, series, sh, until

JOB = ("--account=science", "--job-name=llama", "--partition=gpu", "--ntasks=1", "--output=/dev/null")
TOLD = (b"SLURM_JOB_ID", b"SLURM_JOB_PARTITION", b"SLURM_JOB_ACCOUNT", b"SLURM_HET")
jobs: list[str] = []


def submit(*words: str) -> int:
    """The process of a job of Alice's, which writes its number down and sleeps."""
    home = Path(pwd.getpwnam("alice").pw_dir)
    place = home / f"job-{len(jobs)}"
    jobs.append(as_alice("sbatch", "--parsable", f"--chdir={home}", *words, str(job_script(home, place))))
    until(f"job {jobs[-1]} runs", lambda: written(place), 40)
    return int(place.read_text())


def facts(job: str) -> dict[str, str]:
    return {key: one("coldplate_job_info", job_id=job)[key] for key in ("user", "name", "account", "partition")}


@check("slurm")
def a_real_job_has_its_name_user_account_and_partition() -> str:
    user("alice")
    start_slurm()
    pid = submit(*JOB)
    command(f"process 5 {pid}")
    took = until(
        "the job", lambda: one("coldplate_gpu_job_info", gpu="5", scheduler="slurm", job_id=jobs[0])["name"], 30
    )
    holder = one("coldplate_gpu_job_info", gpu="5")
    if (holder["user"], holder["name"], holder["shared"]) != ("alice", "llama", "false"):
        raise CheckError(f"{holder}")
    if facts(jobs[0]) != {"user": "alice", "name": "llama", "account": "science", "partition": "gpu"}:
        raise CheckError(f"{facts(jobs[0])}")
    where = Path(f"/proc/{pid}/cgroup").read_text().strip()
    return f"job {jobs[0]} of {sh('slurmd', '-V')} in {where}: {facts(jobs[0])}, {took:.1f} s after it was on a GPU"


FREE = (3, 6)
"""GPUs that nothing holds meanwhile; a pod of another check may have 7 still."""


@check("slurm forged")
def nobody_else_is_that_job() -> str:
    if not jobs:
        raise NotHereError("there is no real job to be taken for")
    uid = user("bob")
    env = {"SLURM_JOB_ID": jobs[0], "SLURM_JOB_NAME": "llama", "SLURM_JOB_USER": "alice"}
    own = (
        f"user.slice/user-{uid}.slice/user@{uid}.service/system.slice/slurmstepd.scope/job_{jobs[0]}/step_0/user/task_0"
    )
    forgers = [
        Process("bob", cgroup(f"user.slice/user-{uid}.slice/session-9.scope"), env),
        Process("bob", cgroup(own), env),
    ]
    command(*(f"process {gpu} {each.pid}" for gpu, each in zip(FREE, forgers, strict=True)))
    try:
        until("the forgers", lambda: all(one("coldplate_gpu_job_info", gpu=str(gpu)) for gpu in FREE), 30)
        seen = [one("coldplate_gpu_job_info", gpu=str(gpu)) for gpu in FREE]
    finally:
        for each in forgers:
            each.end()
    if any(each["job_id"] == jobs[0] or each["scheduler"] == "slurm" or each["user"] != "bob" for each in seen):
        raise CheckError(f"{seen}")
    return f"bob's processes with its variables, and in a cgroup of its name, are {[each['job_id'] for each in seen]}"


@check("slurm component")
def a_component_of_a_heterogeneous_job_has_its_own_facts() -> str:
    if not jobs:
        raise NotHereError("Slurm does not run")
    second = Path("/etc/systemd/system/slurmd@.service")
    unit = Path("/usr/lib/systemd/system/slurmd.service").read_text()
    second.write_text(unit.replace("$SLURMD_OPTIONS", "-N %i").replace("EnvironmentFile", "#EnvironmentFile"))
    sh("systemctl", "daemon-reload")
    sh("systemctl", "start", "slurmd@n2.service")
    await_idle("n2")
    home = Path(pwd.getpwnam("alice").pw_dir)
    place = home / "component"
    batch = home / "batch.sh"
    batch.write_text(f"#!/bin/sh\nexec srun --het-group=1 {job_script(home, place)}\n")
    leader = as_alice(
        "sbatch", "--parsable", f"--chdir={home}", *JOB, ":", "--partition=fast", "--account=letters", "--ntasks=1",
        str(batch),
    )  # fmt: skip
    until("the component runs", lambda: written(place), 40)
    pid = int(place.read_text())
    own = next(part[4:] for part in Path(f"/proc/{pid}/cgroup").read_text().split("/") if part.startswith("job_"))
    command(f"process 5 {pid}")
    until("the component", lambda: one("coldplate_gpu_job_info", gpu="5", job_id=own)["name"], 30)
    seen = one("coldplate_job_info", job_id=own)
    said = [each.decode() for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if each.startswith(TOLD)]
    if own == leader or (seen["array"], seen["account"], seen["partition"]) != (f"{leader}+1", "letters", "fast"):
        raise CheckError(f"{seen}; its environment: {sorted(said)}")
    return (
        f"job {own} is {seen['array']}, account {seen['account']}, partition {seen['partition']}; told: {sorted(said)}"
    )


@check("slurm ends")
def the_job_goes_with_its_processes() -> str:
    if not jobs:
        raise NotHereError("Slurm does not run")
    sh("scancel", "--user=alice")
    until(
        "no job of Slurm's",
        lambda: not [1 for own, _ in series("coldplate_gpu_job_info") if own["scheduler"] == "slurm"],
        60,
    )
    stop_slurm()
    return "after scancel no GPU is said to be held by it"
