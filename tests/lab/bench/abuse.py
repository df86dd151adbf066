"""How long a scraper waits while others do what they should not, beside a daemon that they leave alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.lab.bench import client
from tests.lab.bench.processes import Program
from tests.lab.bench.report import CannotRunError, Line, Section, at_most, milliseconds
from tests.lab.bench.rig import ROOT, Rig
from tests.lab.bench.rude import KINDS

TARGET = 0.05
PRIORITY = 5
"""Of the daemon, among real-time programs: whoever asks a daemon is elsewhere, and does not take its processor."""

UNDER_WAY = 1.0
"""Seconds after which all of them have come, before anybody is measured."""

RULES = 500
GROUP = 50
KIND = {
    "slowloris": "200 connections that drip requests",
    "snapshots": "60 clients, each with 8 snapshots pipelined, without end",
    "stalled": "160 readers that take nothing",
    "flood": "connections as fast as they can be made",
    "selections": "60 clients, each asks for 500 rules in ever-new words",
    "reloads": "reloads of 500 rules in a loop",
    "compressed": "30 clients, every page gzipped",
    "heads": "60 clients with laborious requests",
}


def under_abuse(rig: Rig) -> Section:
    """One kind of abuse after the other, and what two scrapers see of it."""
    with rig.coldplate(more=_lifecycle_and_rules(rig.directory)) as daemon:
        rig.wait(rig.pace.warm, "abuse: a daemon with 500 rules settles")
        alone = prefer(daemon.pids[0], PRIORITY)
        lines = _lines(rig, daemon.address, "")
        for kind in KINDS:
            lines += _lines(rig, daemon.address, kind)
    share = "with real-time priority" if alone else "sharing the processors with those who abuse it"
    return Section(
        f"A scraper's latency under abuse, {rig.pace.abuse:.0f} s each; {RULES:,} rules beside the rule pack; {share}",
        tuple(lines),
    )


def prefer(pid: int, priority: int) -> bool:
    """Let a process have a processor whenever it wants one; whether that is allowed."""
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError:
        return False
    return True


def _lines(rig: Rig, address: client.Address, kind: str) -> list[Line]:
    title = KIND.get(kind, "nobody else")
    with ExitStack() as stack:
        rude: Program | None = None
        if kind:
            command = [sys.executable, "-m", "tests.lab.bench.rude", kind, str(address[1])]
            rude = stack.enter_context(Program(command, rig.directory / f"{kind}.log", rig.environment, ROOT))
            time.sleep(UNDER_WAY)
        rig.progress.say(f"abuse: {title}, {rig.pace.abuse:.0f} s ...")
        done = subprocess.run(
            [sys.executable, "-m", "tests.lab.bench.patience", str(address[1]), str(rig.pace.abuse)],
            cwd=ROOT, capture_output=True, text=True, check=False, env=rig.environment,
        )  # fmt: skip
        if rude is not None and not rude.alive:
            raise CannotRunError(f"those who abuse it have ended: {rude.log.read_text()[-500:]}")
    if done.returncode != 0:
        raise CannotRunError(f"the scrapers failed: {done.stderr[-500:]}")
    found = json.loads(done.stdout)
    slow, fast = found["slow"], found["fast"]
    return [
        at_most(f"{title}: p99 at ten a second", client.highest_hundredth(fast), TARGET, milliseconds),
        Line("  p50", milliseconds(client.middle(fast))),
        Line("  at one a second: p50, highest", f"{milliseconds(client.middle(slow))}, {milliseconds(max(slow))}"),
    ]


def _lifecycle_and_rules(directory: Path) -> str:
    path = directory / "load.yml"
    path.write_text(rule_file())
    return f"web: {{enable_lifecycle: true}}\nrules: {{files: [builtin, {path}]}}\n"


def rule_file() -> str:
    """500 rules that are as dear as those that people write."""
    return "groups:\n" + "".join(map(_group, range(RULES // GROUP)))


def _group(number: int) -> str:
    rules = "".join(
        f"""
      - alert: Hot{number}x{place}
        expr: >-
          avg_over_time(coldplate_gpu_temperature_celsius{{gpu="{place % 8}"}}[5m]) > {80 + place}
          and on (gpu) coldplate_gpu_up == 1
        for: 1m
        labels: {{severity: warning}}
        annotations: {{summary: "GPU {{{{ $labels.gpu }}}} is at {{{{ $value }}}} degrees"}}"""
        for place in range(GROUP)
    )
    return f"  - name: load{number}\n    rules:{rules}\n"
