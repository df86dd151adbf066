"""The units start as they were installed, and are as confined as they claim."""

from __future__ import annotations

import re
from pathlib import Path

from inside.tools import (
    UNIT,
    CheckError,
    active,
    check,
    command,
    main_pid,
    one,
    ready,
    series,
    sh,
    show,
    status,
    unit_file,
    until,
    worker_pid,
)


@check("verify")
def units_are_clean() -> str:
    units = sorted(map(str, unit_file().parent.glob("coldplate*.s*")))
    said = sh("systemd-analyze", "verify", *units)
    if said:
        raise CheckError(said)
    tells = sh("grep", "-rlE", "/opt/coldplate[.](new|old)", "/opt/coldplate", check=False)
    if tells:
        raise CheckError(f"files that name the place where they were made: {tells}")
    return f"{len(units)} units without a complaint, and a program that knows where it is"


@check("start")
def starts() -> str:
    command()
    sh("systemctl", "enable", "--quiet", UNIT)
    took = until("systemctl start", lambda: sh("systemctl", "start", UNIT) == "", 120)
    ready()
    until("8 GPUs", lambda: len(series("coldplate_gpu_up")) == 8)
    return f"READY=1 after {took:.1f} s: {active()}, {show('StatusText')}"


@check("sockets")
def sockets_wait() -> str:
    until("the broker's socket", lambda: active("coldplate-broker.socket") == "active")
    kubelet = f"{active('coldplate-kubelet.socket')}, condition {show('ConditionResult', 'coldplate-kubelet.socket')}"
    if kubelet != "inactive, condition no":
        raise CheckError(f"a node without a kubelet, and coldplate-kubelet.socket is {kubelet}")
    about = sh("stat", "--format=%U %a", "/run/coldplate-broker.sock")
    if about != "coldplate 600":
        raise CheckError(f"/run/coldplate-broker.sock: {about}")
    return f"came with the agent: broker ({about}); kubelet's passed over, as there is none"


@check("user")
def runs_as_nobody_in_particular() -> str:
    facts = status(main_pid())
    uid, gid = sh("id", "--user", "coldplate"), sh("id", "--group", "coldplate")
    seen = {key: facts[key] for key in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")}
    none = "0" * 16
    if seen != {**dict.fromkeys(("CapEff", "CapPrm", "CapBnd", "CapAmb"), none), "NoNewPrivs": "1", "Seccomp": "2"}:
        raise CheckError(f"{seen}")
    if {*facts["Uid"].split(), *facts["Gid"].split()} != {uid, gid}:
        raise CheckError(f"user {facts['Uid']}, group {facts['Gid']}; coldplate is {uid}, {gid}")
    return f"coldplate ({uid}), no capability, no new privileges, seccomp filter"


@check("worker")
def the_worker_goes_first() -> str:
    """Its bounds are its own doing: the unit must let it."""
    worker = worker_pid()
    data = re.search(r"Max data size +(\d+)", Path(f"/proc/{worker}/limits").read_text())
    scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (worker, main_pid())]
    if data is None or int(data[1]) != 2**30 or scores[0] <= scores[1]:
        raise CheckError(f"{data and data[0]}, oom_score_adj {scores}")
    return f"may map {int(data[1]) >> 20} MiB; oom_score_adj {scores[0]}, and the daemon's {scores[1]}"


@check("limits")
def limits_are_in_force() -> str:
    limits = Path(f"/proc/{main_pid()}/limits").read_text()
    files = re.search(r"Max open files +(\d+) +(\d+)", limits)
    tasks, memory = show("TasksMax"), show("MemoryMax")
    most = re.search(r"Max open files +\d+ +(\d+)", Path("/proc/1/limits").read_text())
    if (
        files is None
        or most is None
        or int(files[1]) != min(8192, int(most[1]))
        or tasks != "256"
        or memory != str(256 * 2**20)
    ):
        raise CheckError(f"files {files and files[0]}, tasks {tasks}, memory {memory}")
    path = show("ControlGroup")
    held = list(Path("/sys/fs/cgroup").glob(f"**{path}/pids.max"))
    if not held or held[0].read_text().strip() != "256":
        raise CheckError(f"pids.max of {path}: {held and held[0].read_text()}")
    one("coldplate_build_info")
    return f"files {files[1]}, tasks {tasks} (pids.max says so too), memory {int(memory) >> 20} MiB"
