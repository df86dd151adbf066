"""What goes on at a node all the time: devices, jobs, rules and neighbours that come and go, each time others."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from math import ceil

from tests.lab.bench import client
from tests.lab.bench.rig import Rig
from tests.lab.drill.drilled_daemon import GPUS, Drill, drilled
from tests.lab.soak.growth import Footprint, Soaked

JOB_GPUS = range(4)
XID_CODES = (31, 43, 63, 94)
RULE_COUNT = 40


class Churn:
    """Changes one thing at each `step`, and goes round. Use as a context manager: jobs end with it."""

    def __init__(self, drill: Drill) -> None:
        self._drill = drill
        self._jobs: list[subprocess.Popen[bytes]] = []
        self._driver: dict[str, Sequence[str]] = {}
        self._steps = self._go_round()
        self.rounds = 0

    def __enter__(self) -> Churn:  # noqa: PYI034 Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self._end_jobs()

    def step(self) -> None:
        next(self._steps)()

    def kill_the_worker(self) -> None:
        os.kill(self._drill.worker, signal.SIGKILL)

    def _go_round(self) -> Iterator[Callable[[], object]]:
        for turn in count(1):
            gpu = turn % GPUS
            yield lambda gpu=gpu: self._tell("lost", f"lost {gpu}")
            yield lambda turn=turn: self._begin_jobs(turn)
            yield lambda: self._tell("lost")
            yield lambda turn=turn: self._drill.rules(rules_of(f"t{turn}"))
            yield self._drill.take_port
            yield lambda turn=turn: self._log_an_xid(turn)
            yield self._drill.bring_port
            yield lambda: self._drill.behave(receiver="reset", peer="hang", controller="failing")
            yield lambda: self._drill.hang_up("nonsense: 1\n")
            yield self._drill.behave
            yield lambda turn=turn: self._configure(turn)
            yield lambda turn=turn: self._begin_jobs(-turn)
            yield lambda gpu=gpu: self._tell("lost", f"hang-reads {gpu}")
            yield self._drill.rules
            yield lambda: self._tell("lost")
            yield self._end_jobs
            self.rounds = turn

    def _tell(self, subject: str, *commands: str) -> None:
        """Give the driver these commands beside those of other subjects."""
        self._driver[subject] = commands
        self._drill.driver(*(command for each in self._driver.values() for command in each))

    def _begin_jobs(self, number: int) -> None:
        self._end_jobs()
        surroundings = {"SLURM_JOB_ID": str(100_000 + number), "SLURM_JOB_NAME": f"train-{number}"}
        self._jobs = [subprocess.Popen(["sleep", "3600"], env={**os.environ, **surroundings}) for _ in JOB_GPUS]
        self._tell("jobs", *(f"process {gpu} {job.pid}" for gpu, job in zip(JOB_GPUS, self._jobs, strict=True)))

    def _end_jobs(self) -> None:
        for job in self._jobs:
            job.kill()
            job.wait()
        self._jobs = []
        self._tell("jobs")

    def _log_an_xid(self, turn: int) -> None:
        # A line that is appended is an event; the same line in a file that is written anew would be none.
        with (self._drill.folder / "control").open("a") as file:
            file.write(f"xid {turn % GPUS} {XID_CODES[turn % len(XID_CODES)]}\n")

    def _configure(self, turn: int) -> None:
        self._drill.hang_up(self._drill.good.replace("notify:\n", f"notify:\n  labels: {{turn: 't{turn}'}}\n"))


def rules_of(name: str) -> str:
    """A rule file with rules of this name, some of which fire."""
    rules = "".join(
        f"""
  - alert: Churn{name}x{place}
    expr: avg_over_time(coldplate_gpu_temperature_celsius{{gpu="{place % GPUS}"}}[1m]) > {place + 20}
    labels: {{turn: "{name}"}}
    annotations: {{summary: "{name}: {{{{ $value }}}} degrees"}}"""
        for place in range(RULE_COUNT)
    )
    return f"groups:\n- name: churn-{name}\n  rules:{rules}\n"


# The real daemon, in its own processes, at a lane of 100 ms, while everything around it comes and goes.


FAST = "100ms"
KEPT = "recorder: {history: 2m, max_size: 4MiB}\n"
"""So much that the flight recorder is full, and has begun to delete its oldest files, before anything is measured."""
PATHS = ("/metrics", "/", "/api/v1/snapshot", "/api/v1/rules", "/api/v1/alerts", "/metrics", "/-/healthy",
         "/api/v1/rack")  # fmt: skip
WARM, CALM = 1 / 3, 0.75
"""Shares of the time: what counts as growth begins after the first. Workers are killed before it and after the second.

So what killed workers leave behind for a while has been there before it counts, and one worker lives long in between.
"""
LOOKS, KILL_EVERY, TELL_EVERY = 1080, 12, 60
"""Changes and looks in all, and after how many a worker is killed, or something is said."""


class Visitors:
    """One who asks for a page each second, each time another one, in a thread of its own."""

    def __init__(self, address: client.Address) -> None:
        self._address = address
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="visitors", daemon=True)
        self.answers = self.failures = 0

    def __enter__(self) -> Visitors:  # noqa: PYI034 Python 3.10 has no Self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(1.0):
            turn = self.answers + self.failures
            try:
                client.scrape(self._address, PATHS[turn % len(PATHS)], gzip=turn % 3 != 0)
            except (OSError, ValueError):
                self.failures += 1
            else:
                self.answers += 1


def in_real_time(rig: Rig, seconds: float) -> Soaked:
    """Soak for so long. Raises CannotRunError where no daemon can be had."""
    with drilled(rig, fast=FAST, further=KEPT) as drill, Visitors(drill.daemon.address) as visitors:
        footprint, rounds = _go_on(rig, drill, seconds)
        told = f"{rounds} rounds of changes, {visitors.answers} pages"
        return Soaked(seconds, seconds * WARM, footprint.trends, told, _troubles(drill, visitors))


def _go_on(rig: Rig, drill: Drill, seconds: float) -> tuple[Footprint, int]:
    """What it held, and how often everything has changed."""
    footprint = Footprint({"the main process": drill.pid, "the worker": drill.worker}, drill.state)
    began, pause = time.monotonic(), seconds / LOOKS
    with Churn(drill) as churn:
        for look in range(LOOKS):
            time.sleep(max(0.0, began + look * pause - time.monotonic()))
            churn.step()
            with suppress(OSError, IndexError):  # the worker is being replaced
                if look == ceil(LOOKS * WARM):
                    footprint.follow("the worker", drill.worker)
                if look % KILL_EVERY == 0 and not WARM <= look / LOOKS < CALM:
                    churn.kill_the_worker()
            footprint.look(time.monotonic() - began)
            if look % TELL_EVERY == TELL_EVERY - 1:
                known = [trend for trend in footprint.trends if trend.samples]  # the first worker did not live for long
                now = ", ".join(f"{trend.what.strip()} {trend.samples[-1][1]:.0f}" for trend in known)
                rig.progress.say(f"{(look + 1) / LOOKS:.0%}: {now}")
        return footprint, churn.rounds


def _troubles(drill: Drill, visitors: Visitors) -> list[str]:
    troubles = [f"{visitors.failures} pages were not served"] if visitors.failures else []
    page = drill.page()
    if page is None or not drill.healthy():
        return [*troubles, "the daemon is not well at the end"]
    restarts = page.family("coldplate_thread_restarts_total", "thread")
    return troubles + [f"thread {name} fell" for name, times in restarts.items() if times]
