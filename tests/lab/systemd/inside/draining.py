"""The examples of packaging/slurm with a real Slurm: a node that is sick is drained, and no other."""

from __future__ import annotations

import pwd
import re
from pathlib import Path

from inside.checks import NotHereError, check
from inside.people import user
from inside.slurm_daemons import (
    ETC,
    as_alice,
    await_idle,
    job_script,
    needs_the_full_machine,
    start_slurm,
    stop_slurm,
    written,
)
from inside.tools import CONTROL, CheckError, command, configure, sh, until

EXAMPLES = Path("/usr/src/coldplate/packaging/slurm")
HEALTH_CHECK = ETC / "coldplate-health-check.sh"
PROLOG = ETC / "coldplate-prolog.sh"
INTERVAL = 20
SLURM_CONF = (
    f"HealthCheckProgram={HEALTH_CHECK}",
    f"HealthCheckInterval={INTERVAL}",
    "HealthCheckNodeState=ANY,CYCLE",
    f"Prolog={PROLOG}",
)
COMMAND = Path("/usr/local/sbin/coldplate-on-stand-in")
CALLS = Path("/run/coldplate-calls")
SITE = Path("/etc/coldplate/site.yaml")
BOUND = 60.0
"""Seconds after which slurmd ends a HealthCheckProgram, and nothing is drained."""
PATIENCE = 18.0
"""Ten times as many seconds: for the interval, the bound, and what Slurm itself takes in a slow machine."""
started: list[bool] = []


def install(example: str, target: Path, arguments: str) -> None:
    """The example as a site adapts it: its command, which tells the stand-in from the driver, and its arguments."""
    text, commands = re.subn(
        r"(?m)^(COLDPLATE=\$\{COLDPLATE:-).*\}$", rf"\g<1>{COMMAND}}}", (EXAMPLES / example).read_text()
    )
    text, others = re.subn(r"(?m)^(ARGUMENTS=\$\{COLDPLATE_CHECK:-).*\}$", rf"\g<1>{arguments}}}", text)
    if (commands, others) != (1, 1):
        raise CheckError(f"{example} has {commands} lines for the command and {others} for its arguments")
    put(target, text)


def put(target: Path, text: str) -> None:
    """At once, so that Slurm starts the old program or the new one."""
    fresh = target.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(target)


def watch(arguments: str = "--timeout 20s --skip xids,alerts") -> None:
    """The kernel log has the XIDs of other checks, and the agent's alerts may be about theirs."""
    install("coldplate-health-check.sh", HEALTH_CHECK, arguments)


def node() -> str:
    return sh("scontrol", "show", "node", "n1")


def fact(name: str) -> str:
    """What `scontrol show node` says of it, "" if it says nothing."""
    found = re.search(rf"\b{name}=(.*?)(?= \w+=|\n|$)", node())
    return found[1] if found else ""


def is_drained() -> bool:
    if "DRAIN" not in fact("State"):
        raise CheckError(node())
    return True


def calls() -> int:
    return len(CALLS.read_text().splitlines()) if CALLS.exists() else 0


def await_checks(begun: int) -> None:
    """Wait until so many more health checks have begun, and all before the last of them have ended."""
    before = calls()
    until(f"{begun} more health checks", lambda: calls() >= before + begun, PATIENCE)


def mend() -> None:
    command()
    sh("scontrol", "update", "NodeName=n1", "State=resume")
    await_idle("n1")


def needs_slurm() -> None:
    if not started:
        raise NotHereError("Slurm does not run")


@check("slurm healthy")
def a_healthy_node_stays() -> str:
    needs_the_full_machine()
    user("alice")
    command()
    put(
        COMMAND,
        f'#!/bin/sh\nexport COLDPLATE_FAKE_NVML={CONTROL}\necho >>{CALLS}\nexec /opt/coldplate/bin/coldplate "$@"\n',
    )
    sh(str(COMMAND), "check", "--timeout", "30s", "--agent", "none", "--learn", str(SITE))
    configure(f"expectations: {SITE}\n")
    watch()
    install("coldplate-prolog.sh", PROLOG, "--timeout 40s --skip xids,alerts")
    start_slurm(*SLURM_CONF)
    started.append(True)
    await_checks(3)
    if fact("State") != "IDLE" or fact("Reason"):
        raise CheckError(node())
    said = sh(str(COMMAND), "check", "--timeout", "30s", "--skip", "xids,alerts").splitlines()[0]
    return f"{calls()} health checks, and node n1 is {fact('State')}; {said}"


def drained_by(fault: str) -> tuple[float, str]:
    """Seconds until a fault of the devices drained the node, and the reason that Slurm gives; then the fault ends."""
    needs_slurm()
    command(fault)
    took = until("the node is drained", is_drained, PATIENCE)
    reason = fact("Reason")
    mend()
    return took, reason


@check("slurm drains")
def a_sick_node_is_drained_with_the_finding_as_its_reason() -> str:
    took, reason = drained_by("lost 2")
    if not re.match("coldplate: gpus-present: .*GPU 2", reason):
        raise CheckError(f"Reason={reason}")
    return f"a GPU lost: after {took:.0f} s Reason={reason}"


@check("slurm driver hangs")
def a_hanging_driver_drains_the_node_before_slurm_gives_up() -> str:
    took, reason = drained_by("hang-init")
    if took > INTERVAL + BOUND or not reason.startswith("coldplate: driver:"):
        raise CheckError(f"after {took:.0f} s: Reason={reason}")
    return f"after {took:.0f} s: Reason={reason}"


@check("slurm mistake")
def a_mistake_of_the_operator_drains_nothing() -> str:
    needs_slurm()
    watch("--timeout 20s --skp xids")
    await_checks(1)  # one that began with the right arguments may be under way, and would find the GPU
    command("lost 2")
    try:
        await_checks(3)
        state = fact("State")
        if state != "IDLE":
            raise CheckError(node())
    finally:
        command()
        watch()
    return f"an unknown option, a GPU lost: State={state}"


@check("slurm prolog")
def no_job_starts_on_a_sick_node() -> str:
    needs_slurm()
    put(HEALTH_CHECK, "#!/bin/sh\n")
    home = Path(pwd.getpwnam("alice").pw_dir)
    place = home / "after-prolog"
    command("lost 2")
    job = as_alice("sbatch", "--parsable", f"--chdir={home}", "--output=/dev/null", str(job_script(home, place)))
    took = until("the node is drained", is_drained, PATIENCE)
    reason, state = fact("Reason"), sh("squeue", "--noheader", f"--jobs={job}", "--format=%T %r")
    if place.exists():
        raise CheckError("the job ran")
    mend()
    until("the job runs on the node that is mended", lambda: written(place), 40)
    sh("scancel", job)
    stop_slurm()
    return f"after {took:.0f} s Reason={reason}, and the job is {state}; mended, it runs"
