"""The real daemon, in its own processes, at a lane of 100 ms, while everything around it comes and goes."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from math import ceil

from tests.lab.bench import client
from tests.lab.bench.rig import Rig
from tests.lab.drill.drilled_daemon import Drill, drilled
from tests.lab.soak.churn import Churn
from tests.lab.soak.growth import Footprint, Soaked

FAST = "100ms"
KEPT = "recorder: {flight: 2m, keep: 4MiB}\n"
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


def in_real_time(rig: Rig, seconds: float, looks: int = LOOKS) -> Soaked:
    """Soak for so long, and look so often. Raises CannotRunError where no daemon can be had."""
    with drilled(rig, fast=FAST, further=KEPT) as drill, Visitors(drill.daemon.address) as visitors:
        footprint, rounds = _go_on(rig, drill, seconds, looks)
        told = f"{rounds} rounds of changes, {visitors.answers} pages"
        return Soaked(seconds, seconds * WARM, footprint.trends, told, _troubles(drill, visitors))


def _go_on(rig: Rig, drill: Drill, seconds: float, looks: int) -> tuple[Footprint, int]:
    """What it held, and how often everything has changed."""
    footprint = Footprint({"the main process": drill.pid, "the worker": drill.worker}, drill.state)
    began, pause = time.monotonic(), seconds / looks
    with Churn(drill) as churn:
        for look in range(looks):
            time.sleep(max(0.0, began + look * pause - time.monotonic()))
            churn.step()
            with suppress(OSError, IndexError):  # the worker is being replaced
                if look == ceil(looks * WARM):
                    footprint.follow("the worker", drill.worker)
                if look % KILL_EVERY == 0 and not WARM <= look / looks < CALM:
                    churn.kill_the_worker()
            footprint.look(time.monotonic() - began)
            if look % TELL_EVERY == TELL_EVERY - 1:
                known = [trend for trend in footprint.trends if trend.samples]  # the first worker did not live for long
                now = ", ".join(f"{trend.what.strip()} {trend.samples[-1][1]:.0f}" for trend in known)
                rig.progress.say(f"{(look + 1) / looks:.0%}: {now}")
        return footprint, churn.rounds


def _troubles(drill: Drill, visitors: Visitors) -> list[str]:
    troubles = [f"{visitors.failures} pages were not served"] if visitors.failures else []
    page = drill.page()
    if page is None or not drill.healthy():
        return [*troubles, "the daemon is not well at the end"]
    restarts = page.family("coldplate_thread_restarts_total", "thread")
    return troubles + [f"thread {name} fell" for name, times in restarts.items() if times]
