"""What the agent may not read itself, and the broker tells it: the job of another user's process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

from inside.tools import (
    CheckError,
    active,
    alerts,
    check,
    command,
    details,
    journal,
    main_pid,
    missing,
    one,
    sh,
    show,
    status,
    total,
    unit_file,
    until,
)

CGROUPS = Path("/sys/fs/cgroup")
UNIFIED = (CGROUPS / "cgroup.controllers").exists()


def slurm_cgroup(job: int, uid: int) -> Path:
    """As slurmd makes them: cgroup v2, or v1, there in the hierarchy of memory."""
    if UNIFIED:
        made = CGROUPS / f"system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0"
    else:
        made = CGROUPS / f"memory/slurm/uid_{uid}/job_{job}/step_0/task_0"
    made.mkdir(parents=True, exist_ok=True)
    return made


BROKER, SOCKET = "coldplate-broker.service", "/run/coldplate-broker.sock"
FACTS = {"SLURM_JOB_NAME": "llama", "SLURM_JOB_ACCOUNT": "science", "SLURM_JOB_PARTITION": "gpu"}
SECRET = "correct-horse-battery-staple"
running: dict[int, int] = {}
"""The process of each job."""


def slurm_job(number: int) -> int:
    """Start a job of alice's, which sleeps; its process."""
    sh("useradd", "--create-home", "--shell", "/bin/sh", "alice", check=False)
    place = slurm_cgroup(number, int(sh("id", "--user", "alice")))

    def enter() -> None:
        (place / "cgroup.procs").write_text(str(os.getpid()))

    facts = {"SLURM_JOB_ID": str(number), "SLURM_JOB_USER": "alice", **FACTS, "TOKEN": SECRET}
    program = ["setpriv", "--reuid=alice", "--regid=alice", "--clear-groups", "sleep", "infinity"]
    process = subprocess.Popen(program, env={"PATH": os.environ["PATH"], **facts}, preexec_fn=enter)
    running[number] = process.pid
    return process.pid


def holder(number: int) -> dict[str, str]:
    return one("coldplate_job_info", job_id=str(number))


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def ask(pid: int, start: int) -> str:
    """Ask the broker as root."""
    code = f"from agent.broker.asking import BrokerClient; print(BrokerClient().variables({pid}, {start}))"
    return sh("/opt/coldplate/bin/python", "-I", "-c", code, check=False)


@check("broker")
def tells_the_job_of_another_user() -> str:
    job = slurm_job(4711)
    command(f"process 2 {job}", f"process 3 {job}")
    took = until("the job has a name", lambda: holder(4711).get("name"), 60)
    seen = {key: holder(4711)[key] for key in ("user", "name", "account", "partition")}
    if seen != {"user": "alice", "name": "llama", "account": "science", "partition": "gpu"}:
        raise CheckError(f"{seen}")
    if total("coldplate_backend_up", backend="jobs_environ") != 1 or "coldplate_job_info" in missing():
        raise CheckError(f"the names are there, and yet: {missing()}")
    return f"{seen}, {took:.1f} s after the process appeared on a GPU"


@check("broker's answers")
def tells_nothing_else() -> str:
    pid = running[4711]
    answer = ask(pid, started(pid))
    if "SLURM_JOB_NAME=llama" not in answer or SECRET in answer or "TOKEN" in answer or "PATH" in answer:
        raise CheckError(answer)
    other = ask(pid, started(pid) + 1)
    if "No such process" not in other:
        raise CheckError(f"a process with the same number, started at another time: {other}")
    return "the known variables and no others; nothing for a number that was given anew"


@check("strangers")
def refuses_strangers() -> str:
    code = "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(5); "
    code += f"s.connect('{SOCKET}'); s.send(b'job1' + bytes(12)); print(repr(s.recv(100)))"
    stranger = ("setpriv", "--reuid=alice", "--regid=alice", "--clear-groups", "python3", "-c", code)
    kept_out = sh(*stranger, check=False)
    if "PermissionError" not in kept_out:
        raise CheckError(f"alice may connect: {kept_out}")
    os.chmod(SOCKET, 0o666)
    try:
        ignored = sh(*stranger, check=False)
    finally:
        os.chmod(SOCKET, 0o600)
    if ignored != "b''" and "ConnectionResetError" not in ignored and "BrokenPipeError" not in ignored:
        raise CheckError(f"alice was answered: {ignored}")
    return "alice may not connect; where the socket's mode would let her, the broker hangs up without a word"


@check("broker's sandbox")
def sees_next_to_nothing() -> str:
    ask(1, 0)
    pid = main_pid(BROKER)
    facts = status(pid)
    if (facts["CapEff"], facts["CapBnd"]) != ("0000000000080004", "0000000000080004"):
        raise CheckError(
            f"capabilities {facts['CapEff']} of {facts['CapBnd']}, not DAC_READ_SEARCH and SYS_PTRACE alone"
        )
    if facts["Uid"].split()[1] != sh("id", "--user", "coldplate-broker"):
        raise CheckError(f"user {facts['Uid']}")
    inside = sorted(os.listdir(f"/proc/{pid}/root"))
    if not set(inside) <= {"dev", "etc", "lib", "lib64", "opt", "proc", "run", "sys", "tmp", "usr", "var"}:
        raise CheckError(f"/ has {inside}")
    devices = set(os.listdir(f"/proc/{pid}/root/dev"))
    if devices & {"kmsg", "mem", "sda", "vda"}:
        raise CheckError(f"/dev has {sorted(devices)}")
    seen = {each: sorted(os.listdir(f"/proc/{pid}/root/{each}")) for each in ("etc", "opt", "run")}
    links = sh("nsenter", f"--target={pid}", "--net", "ip", "-o", "link")
    if len(links.splitlines()) != 1 or " lo:" not in links:
        raise CheckError(f"it has a network: {links}")
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return f"CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE alone, no network, sees {seen}; {pss / 1024:.1f} MiB PSS"


@check("broker taken over")
def can_do_little_even_then() -> str:
    beside = Path("/etc/systemd/system/coldplate-taken-over.service")
    program = Path("/opt/coldplate/taken_over.py")  # where the broker sees it
    program.write_bytes(Path(__file__).with_name(program.name).read_bytes())
    unit = unit_file(BROKER).read_text()
    unit = re.sub(r"ExecStart=.*", f"ExecStart=/opt/coldplate/bin/python -I {program}", unit)
    beside.write_text(unit.replace("CollectMode=inactive-or-failed", ""))
    sh("systemctl", "daemon-reload")
    try:
        sh("systemctl", "start", beside.name)
        until("its end", lambda: active(beside.name) in ("inactive", "failed"))
        status = show("ExecMainStatus", beside.name)
    finally:
        beside.unlink()
        program.unlink()
        sh("systemctl", "reset-failed", beside.name, check=False)
        sh("systemctl", "daemon-reload")
    if status != "100":
        written = Path("/tmp/taken-over").read_bytes() if Path("/tmp/taken-over").exists() else None
        raise CheckError(f"status {status} of taken_over.py, /tmp/taken-over has {written!r}: {journal(beside.name)}")
    return "memory of others, files, processes, network: every attempt to do anything but read is refused"


@check("no alarm")
def does_not_alarm_as_installed() -> str:
    gaps = {metric: reason for metric, reason in missing().items() if reason not in ("unsupported", "lost", "timeout")}
    firing = alerts("MetricsMissing")
    if firing or gaps:
        raise CheckError(f"{firing}, {gaps}")
    return "nothing is denied, malformed or implausible, and MetricsMissing is quiet"


@check("broker that hangs")
def costs_nothing_when_it_hangs() -> str:
    ask(1, 0)
    hanging = main_pid(BROKER)
    os.kill(hanging, signal.SIGSTOP)
    job = slurm_job(4712)
    command(f"process 2 {running[4711]}", f"process 4 {job}")
    until("the job is known by its cgroup", lambda: holder(4712), 60)
    ages = [total("coldplate_sample_age_seconds") for _ in range(20)]
    if holder(4712)["name"] or holder(4712)["user"] != "alice" or holder(4711)["name"] != "llama":
        raise CheckError(f"{holder(4711)}, {holder(4712)}")
    gap = missing().get("coldplate_job_info")
    if gap != "denied" or "coldplate-broker" not in details():
        raise CheckError(f"gap {gap}")
    os.kill(hanging, signal.SIGKILL)
    until("its end", lambda: show("MainPID", BROKER) != str(hanging))
    return f"job 4712 is known by cgroup and user, samples stay fresh ({max(ages):.1f} s old at most), gap: {gap}"


def _told() -> list[str]:
    return [line for line in journal().splitlines() if "job names: " in line and "broker.sock" in line]


@check("without the broker")
def says_what_is_missing_without_it() -> str:
    # Disabled, or the agent that starts would have it started. A runtime mask does not count for a unit in /etc.
    sh("systemctl", "disable", "--now", "coldplate-broker.socket")
    sh("systemctl", "restart", "coldplate.service")
    until("the jobs", lambda: holder(4711) and holder(4712), 60)
    gap = missing().get("coldplate_job_info")
    told = _told()
    if gap != "denied" or not told or "systemctl enable --now coldplate-broker.socket" not in details():
        raise CheckError(f"gap {gap}; log {told}")
    until("two more looks", lambda: total("coldplate_backend_reads_total", backend="jobs", outcome="ok") >= 3, 60)
    if _told() != told:
        raise CheckError(f"told {len(_told())} times")
    if alerts("MetricsMissing"):
        raise CheckError("MetricsMissing is on its way for what is an option of the installation")
    sh("systemctl", "enable", "--now", "coldplate-broker.socket")
    took = until("the names are back", lambda: holder(4711)["name"] and holder(4712)["name"], 90)
    if "coldplate_job_info" in missing():
        raise CheckError(f"still missing: {missing()}")
    return f"gap: denied, with the remedy, said once in the log, no alert; names are back {took:.0f} s after it is"
