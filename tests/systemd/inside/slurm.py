"""A real Slurm: slurmctld, slurmd and munge of Debian, and jobs of theirs. What they do has not been written here."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from inside.checks import NotHereError, check
from inside.people import Process, cgroup, user
from inside.tools import EMULATED, CheckError, command, one, series, sh, until

ADDRESS = "10.9.0.1"
CONFIG = f"""ClusterName=machine
SlurmctldHost=coldplate({ADDRESS})
SlurmUser=slurm
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd.%n
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=5,bf_interval=5
MessageTimeout=100
SlurmdTimeout=3000
NodeName=n1 NodeHostname=coldplate NodeAddr={ADDRESS} Port=17001 CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname=coldplate NodeAddr={ADDRESS} Port=17002 CPUs=4 State=UNKNOWN
PartitionName=gpu Nodes=n1 Default=YES
PartitionName=fast Nodes=n2
"""
"""Debian's slurmd may run several times on a machine; the components of a heterogeneous job need a node each."""
JOB = ("--account=science", "--job-name=llama", "--partition=gpu", "--ntasks=1", "--output=/dev/null")
TOLD = (b"SLURM_JOB_ID", b"SLURM_JOB_PARTITION", b"SLURM_JOB_ACCOUNT", b"SLURM_HET")
jobs: list[str] = []


def as_alice(*words: str) -> str:
    return sh("setpriv", "--reuid=alice", "--regid=alice", "--clear-groups", *words)


def start_slurm() -> None:
    if not EMULATED:
        raise NotHereError("Slurm's daemons, and a cgroup v2 of their own, are in the full machine alone: MACHINE=full")
    sh("ip", "link", "add", "d0", "type", "dummy")
    sh("ip", "address", "add", f"{ADDRESS}/24", "dev", "d0")
    sh("ip", "link", "set", "d0", "up")
    with Path("/etc/hosts").open("a") as hosts:
        hosts.write(f"{ADDRESS} coldplate\n")
    etc = Path("/etc/slurm")
    etc.mkdir(exist_ok=True)
    (etc / "slurm.conf").write_text(CONFIG)
    (etc / "cgroup.conf").write_text("CgroupPlugin=cgroup/v2\n")
    owner = pwd.getpwnam("slurm")
    for folder in ("/var/spool/slurmctld", "/var/log/slurm"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    Path("/etc/default/slurmd").write_text("SLURMD_OPTIONS='-N n1'\n")
    sh("systemctl", "start", "dbus.service", "munge.service", "slurmctld.service", "slurmd.service")
    await_idle("n1")


def await_idle(node: str) -> None:
    idle = ("sinfo", "--noheader", f"--nodes={node}", "--format=%T")
    until(f"node {node} is idle", lambda: sh(*idle, check=False) == "idle", 60)


def submit(*words: str) -> int:
    """The process of a job of Alice's, which writes its number down and sleeps."""
    home = Path(pwd.getpwnam("alice").pw_dir)
    place = home / f"job-{len(jobs)}"
    jobs.append(as_alice("sbatch", "--parsable", f"--chdir={home}", *words, str(script(home, place))))
    until(f"job {jobs[-1]} runs", lambda: written(place), 40)
    return int(place.read_text())


def written(place: Path) -> bool:
    """Whether a job has written its process's number there. Raises CheckError with what Slurm says, if it has not."""
    if not place.exists():
        raise CheckError(sh("squeue", "--noheader", "--format=%i %P %T %r", check=False))
    return True


def script(home: Path, place: Path) -> Path:
    made = home / f"{place.name}.sh"
    made.write_text(f"#!/bin/sh\necho $$ >{place}.new && mv {place}.new {place}\nexec sleep infinity\n")
    made.chmod(0o755)
    return made


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
    batch.write_text(f"#!/bin/sh\nexec srun --het-group=1 {script(home, place)}\n")
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
    sh("systemctl", "stop", "slurmd.service", "slurmd@n2.service", "slurmctld.service", "munge.service")
    return "after scancel no GPU is said to be held by it"
