"""Check coldplate on a machine with a GPU: `make hardware` (docs/dev/hardware.md)."""

import argparse
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Sequence

from agent.commands.doctor.driver_calls import facts_of_trace
from agent.lib.clock import clock
from agent.recording.redaction import Redaction
from tests.lab.bench.report import Progress
from tests.lab.hardware import apart, steps
from tests.lab.hardware.node import Node, TimedDriver
from tests.lab.hardware.rows import STAND_IN, Report, Verdict

WELL, DIFFERENCE, NOTHING = 0, 1, 77
PROGRAM = "python -m tests.lab.hardware"
say = Progress().say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Check coldplate on this machine's NVIDIA GPUs: its values against nvidia-smi's, the number and "
        "the time of its driver calls, and what an unprivileged user sees. It changes no setting, provokes no XID, and "
        "loads no GPU.",
        epilog="Exit status: 0 nothing that was checked failed (what was skipped is named), 1 something differs or "
        "failed, 2 a mistake in the command line, 77 nothing was checked: there is no driver or no GPU.",
    )
    add = parser.add_argument
    add("--samples", type=int, default=40, metavar="N", help="fast samples of each GPU to time (default %(default)s)")
    add("--only", nargs="+", choices=steps.STEPS, default=steps.STEPS, help="run these steps only")
    add("--nvidia-smi", default="nvidia-smi", metavar="PROGRAM", help="the nvidia-smi to compare with")
    add(
        "--limit",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="give up after this long with what was found until then (default %(default)g)",
    )
    return parser


def _nothing(reason: str) -> int:
    line = f"NOTHING WAS CHECKED: no GPU can be read here ({reason})"
    print(f"\n{'*' * 20} {line} {'*' * 20}\n", file=sys.stderr, flush=True)
    return NOTHING


def _start_limit(report: Report, options: argparse.Namespace, step: list[str]) -> threading.Timer:
    """End the run with what was found so far when the time is up: a driver may hang, and a thread in it with it."""

    def expire() -> None:
        what = f"not done within {options.limit:g} s; what comes after it did not run"
        report.add("limit", "Time limit").failed(step[-1], what)
        try:
            print(report.markdown(), end="", flush=True)
        finally:
            os._exit(DIFFERENCE)

    timer = threading.Timer(options.limit, expire)
    timer.daemon = True
    timer.start()
    return timer


def _run_step(session: steps.Session, name: str) -> None:
    say(name)
    sections = session.report.sections
    known = len(sections)
    try:
        steps.RUN[name](session)
    except Exception as error:
        # One step that breaks is a finding of its own, and must not hide what the others find.
        section = sections[-1] if len(sections) > known else session.report.add(name, name)
        section.failed(name, f"ended with {type(error).__name__}: {error}")
    for check in sections[-1].checks:
        say(session.report.scrub(f"  {check.verdict.value:8} {check.name}: {check.text}")[:200])


def _open(options: argparse.Namespace, report: Report) -> steps.Session:
    from agent.backends.nvml.pynvml_driver import PynvmlDriver

    driver = TimedDriver(PynvmlDriver(), time.perf_counter)
    node = Node(driver, clock)
    names = Redaction(os.urandom(32))
    names.pseudonym("host", socket.gethostname())
    for identity in node.identities:
        part = dict(identity.facts).get("board_part", "")
        for kind, original in (("uuid", identity.gpu.uuid), ("serial", identity.serial), ("part", part)):
            names.pseudonym(kind, original)
    facts = facts_of_trace(node.identities, driver, PROGRAM)
    report.scrub, report.stand_in = names.without_known, facts.pop("stand_in")
    if report.stand_in:
        facts["GPUs"] += " (as a stand-in library says; no real GPU)"
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    report.provenance = {**facts, "kernel": platform.release(), "run as": user}
    return steps.Session(node, driver, report, options.samples, options.nvidia_smi)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.samples < 2:
        parser.error("--samples: at least 2 are needed")
    wanted = [step for step in steps.STEPS if step in options.only]
    say("looking for GPUs, in a process apart")
    mine = apart.try_apart(None, clock)
    if mine["outcome"] == "absent":
        return _nothing(mine["detail"])
    if mine["outcome"] != "ok":
        print(f"{PROGRAM}: THE GPUs CANNOT BE OPENED: {mine['detail']}", file=sys.stderr)
        return DIFFERENCE
    nobody = None
    if "permissions" in wanted and os.geteuid() == 0:
        say("permissions: the same as nobody")
        nobody = apart.try_apart(apart.NOBODY, clock)
    report, step = Report(), ["opening the GPUs"]
    limit = _start_limit(report, options, step)
    session = _open(options, report)
    if report.stand_in:
        say(STAND_IN)
    say(f"{report.provenance['GPUs']}, driver {report.provenance['driver']}")
    if "permissions" in wanted:
        steps.permissions(report, mine, nobody)
    for name in [each for each in wanted if each in steps.RUN]:
        step.append(name)
        _run_step(session, name)
    step.append("closing the library")
    session.node.close()
    limit.cancel()
    print(report.markdown(), end="", flush=True)
    skipped, failed = report.having(Verdict.SKIPPED), report.having(Verdict.FAILED)
    say(report.summary() + (f"; NOT CHECKED: {', '.join(skipped)}" if skipped else ""))
    if not (failed or report.having(Verdict.OK) or report.having(Verdict.MEASURED)):
        return _nothing("every check was skipped")
    return DIFFERENCE if failed else WELL


if __name__ == "__main__":
    sys.exit(main())
