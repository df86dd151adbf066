"""Slurm's daemons as Debian ships them: slurmctld, slurmd and munge, on one machine with two nodes."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from inside.checks import NotHereError
from inside.tools import EMULATED, CheckError, sh, until

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
SchedulerParameters=sched_interval=5,bf_interval=5,nohold_on_prolog_fail
MessageTimeout=100
SlurmdTimeout=3000
NodeName=n1 NodeHostname=coldplate NodeAddr={ADDRESS} Port=17001 CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname=coldplate NodeAddr={ADDRESS} Port=17002 CPUs=4 State=UNKNOWN
PartitionName=gpu Nodes=n1 Default=YES
PartitionName=fast Nodes=n2
"""
"""Debian's slurmd may run several times on a machine; the components of a heterogeneous job need a node each."""
UNITS = ("munge.service", "slurmctld.service", "slurmd.service")
ETC = Path("/etc/slurm")


def needs_the_full_machine() -> None:
    """Raises NotHereError in the others."""
    if not EMULATED:
        raise NotHereError("Slurm's daemons, and a cgroup v2 of their own, are in the full machine alone: MACHINE=full")


def start_slurm(*more: str) -> None:
    """Start the daemons and wait until node n1 is idle; `more` are further lines of slurm.conf."""
    needs_the_full_machine()
    if not Path("/sys/class/net/d0").exists():
        _make_network()
    ETC.mkdir(exist_ok=True)
    (ETC / "slurm.conf").write_text(CONFIG + "".join(f"{line}\n" for line in more))
    (ETC / "cgroup.conf").write_text("CgroupPlugin=cgroup/v2\n")
    owner = pwd.getpwnam("slurm")
    for folder in ("/var/spool/slurmctld", "/var/log/slurm"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    Path("/etc/default/slurmd").write_text("SLURMD_OPTIONS='-N n1'\n")
    sh("systemctl", "start", "dbus.service", *UNITS)
    await_idle("n1")


def stop_slurm() -> None:
    sh("systemctl", "stop", "slurmd@n2.service", check=False)
    sh("systemctl", "stop", *reversed(UNITS))


def _make_network() -> None:
    sh("ip", "link", "add", "d0", "type", "dummy")
    sh("ip", "address", "add", f"{ADDRESS}/24", "dev", "d0")
    sh("ip", "link", "set", "d0", "up")
    with Path("/etc/hosts").open("a") as hosts:
        hosts.write(f"{ADDRESS} coldplate\n")


def await_idle(node: str) -> None:
    def is_idle() -> bool:
        said = sh("sinfo", "--noheader", f"--nodes={node}", "--format=%T %E", check=False)
        if said.split()[:1] != ["idle"]:
            raise CheckError(said)
        return True

    until(f"node {node} is idle", is_idle, 60)


def as_alice(*words: str) -> str:
    return sh("setpriv", "--reuid=alice", "--regid=alice", "--clear-groups", *words)


def written(place: Path) -> bool:
    """Whether a job has written its process's number there. Raises CheckError with what Slurm says, if it has not."""
    if not place.exists():
        raise CheckError(sh("squeue", "--noheader", "--format=%i %P %T %r", check=False))
    return True


def job_script(home: Path, place: Path) -> Path:
    """A job that writes the number of its process to `place` and sleeps."""
    made = home / f"{place.name}.sh"
    made.write_text(f"#!/bin/sh\necho $$ >{place}.new && mv {place}.new {place}\nexec sleep infinity\n")
    made.chmod(0o755)
    return made
