"""Without the user that sysusers.d makes, and without the agent at last."""

from __future__ import annotations

from pathlib import Path

from inside.broker import running
from inside.checks import NotHereError, check
from inside.tools import CheckError, active, command, main_pid, missing, one, ready, sh, status, total, until

SOCKETS = ("coldplate-broker.socket", "coldplate-kubelet.socket")


@check("idle broker")
def the_broker_ends_when_nobody_asks() -> str:
    if Path("/dev/ipmi0").exists():
        raise NotHereError("somebody asks every five seconds: there is a management controller")
    took = until("its end", lambda: active("coldplate-broker.service") == "inactive", 100)
    return f"gone after {took:.0f} more seconds; its socket is {active('coldplate-broker.socket')}"


@check("without the static user")
def works_with_a_dynamic_user() -> str:
    static = int(sh("id", "--user", "coldplate"))
    sh("systemctl", "disable", "--quiet", "--now", *SOCKETS)
    sh("systemctl", "stop", "coldplate.service")
    sh("userdel", "coldplate")
    command(f"process 2 {running[4711].pid}", "count 7")
    sh("systemctl", "start", "coldplate.service")
    ready()
    uid = int(status(main_pid())["Uid"].split()[0])
    if uid == static or not 61184 <= uid <= 65519:
        raise CheckError(f"user {uid}")
    until("its state", lambda: total("coldplate_gpus_expected") == 8)
    until("the job, by its cgroup", lambda: one("coldplate_job_info", job_id="4711")["name"] == "", 30)
    gap = missing().get("coldplate_job_info")
    if gap != "denied":
        raise CheckError(f"{missing()}")
    sh("systemctl", "stop", "coldplate.service")
    sh("systemd-sysusers", "/etc/sysusers.d/coldplate.conf")
    sh("systemctl", "enable", "--quiet", *SOCKETS)
    command(f"process 2 {running[4711].pid}")
    sh("systemctl", "start", "coldplate.service")
    ready()
    until("the job's name", lambda: one("coldplate_job_info", job_id="4711")["name"] == "llama", 30)
    if status(main_pid())["Uid"].split()[0] != sh("id", "--user", "coldplate"):
        raise CheckError("the user is there again, and it runs as another")
    return f"a dynamic user ({uid}) keeps the state of the static one ({static}), loses the job names, and says so"


@check("uninstall")
def nothing_is_left() -> str:
    said = sh("make", "--silent", "-C", "/usr/src/coldplate", "uninstall")
    places = (
        "/etc/systemd/system",
        "/etc/sysusers.d",
        "/etc/udev/rules.d",
        "/etc/tmpfiles.d",
        "/run/systemd/transient",
        "/usr/local",
    )
    left = [str(path) for place in places for path in Path(place).rglob("*coldplate*")]
    known = sh("systemctl", "list-units", "--all", "--plain", "--no-legend", "coldplate*")
    if left or Path("/opt/coldplate").exists() or known or sh("pgrep", "-u", "coldplate", check=False):
        raise CheckError(f"left: {left} {known}")
    kept = [Path(each, "coldplate", "inventory.state") for each in ("/var/lib", "/var/lib/private")]
    if not any(path.exists() for path in kept):
        raise CheckError("the state went along")
    return said.splitlines()[-1]
