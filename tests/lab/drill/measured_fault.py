"""How soon one fault is noticed and over, what it costs everybody else, and what is lost."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.bench import client
from tests.lab.bench.processes import MIB, Peak, Program, started
from tests.lab.bench.report import CannotRunError
from tests.lab.bench.rig import ROOT, Rig
from tests.lab.drill.drilled_daemon import (
    DEVICES,
    EVERYTHING,
    FIRING,
    GPUS,
    PENDING,
    SETTLED_AFTER,
    STATE_WRITTEN,
    Drill,
    Page,
)
from tests.lab.drill.faults import Fault

NOTICED, BACK = 5.0, 15.0
MEMORY = 64 * MIB
LATENCY = 0.02
GLANCE = 0.2
"""Seconds between two looks at the page: so late may a change be seen."""
PATIENCE = 60.0
"""Seconds after which what has not come is said never to come."""
SHIFTED = {FIRING: 1, PENDING: 60}
"""Seconds by which the beginning of an alert may change: a pending one's by those in which no daemon ran."""
STEADY = 1.0
"""Seconds that a page has to be well in a row, until it counts as well from their beginning."""


@dataclass(slots=True)
class MeasuredFault:
    """What was measured of one fault: bytes, latencies, and seconds.

    `noticed` is until the page shows it, `back` from the cure until all devices are back and fresh, `whole` until
    everything is as it was, the rows that are read every 15 or 60 s included. `down` is for how many seconds the page
    showed fewer GPUs than before, and `fewest` how many. `why` is why it could not be measured.
    """

    fault: Fault
    noticed: float | None = None
    back: float | None = None
    whole: float | None = None
    memory: float = 0.0
    down: float = 0.0
    fewest: int = GPUS
    scrapes: list[float] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    why: str = ""

    @property
    def latency(self) -> float:
        """The 99th percentile of the scrapes, seconds."""
        return client.highest_hundredth(self.scrapes)

    def missed(self) -> list[str]:
        """What goes beyond its target, in words."""
        return [self.why] if self.why else list(self._missed())

    def _missed(self) -> Iterator[str]:
        timed = self.fault.device
        if timed and self.fault.noticed is not None and (self.noticed is None or self.noticed > NOTICED):
            yield "noticed too late"
        if self.whole is None:
            yield "never whole"
        if timed and (self.back is None or self.back > BACK):
            yield "back too late"
        if self.memory > MEMORY:
            yield "memory"
        if self.fault.answers and (not self.scrapes or self.latency > LATENCY):
            yield "p99"
        yield from self.troubles

    def lost(self) -> str:
        failed = sum(seconds >= client.GIVEN_UP for seconds in self.scrapes)
        gone = GPUS - self.fewest
        found = [f"samples of {gone} GPU{'s' if gone > 1 else ''} for {self.down:.1f} s"] if self.down else []
        found += [f"{failed} scrapes"] if failed else []
        return ", ".join(found) or "nothing"


def scraper(rig: Rig, address: client.Address) -> AbstractContextManager[Program]:
    """One who scrapes ten times a second, in a process of its own, and all the time."""
    command = [sys.executable, "-m", "tests.lab.bench.client", str(address[1])]
    return started(command, rig.directory / f"scraper-{address[1]}.log", rig.environment, ROOT)


def latencies(scraper: Program, began: float, ended: float) -> list[float]:
    """Those of its scrapes that began within these monotonic seconds."""
    said = scraper.log.read_text()
    if not scraper.alive:
        raise CannotRunError(f"the scraper failed: {said[-500:]}")
    rows = [tuple(map(float, line.split())) for line in said.splitlines() if line.count(" ") == 1]
    return [seconds for at, seconds in rows if began <= at < ended]


def settle(rig: Rig, drill: Drill) -> Page:
    """Wait until everything has begun, and nothing changes any more; the page as it is then."""
    rig.progress.say("a daemon settles ...")
    until = time.monotonic() + SETTLED_AFTER
    before, since = drill.page(), time.monotonic()
    while time.monotonic() < until:
        time.sleep(GLANCE)
        now = drill.page()
        if now is None or before is None or not _complete(now) or now.differs(before, EVERYTHING):
            before, since = now, time.monotonic()
        elif time.monotonic() - since > rig.pace.warm:
            return now
    raise CannotRunError(f"the daemon does not come to rest: {drill.log[-1000:]}")


def _complete(page: Page) -> bool:
    return bool(
        page.total("coldplate_rack_peer_up")
        and page.total("coldplate_notifications_sent_total")
        and page.total("coldplate_state_write_successful")
        and page.total("coldplate_gpu_up") == GPUS
    )


def attempt(rig: Rig, drill: Drill, asking: Program | None, fault: Fault) -> MeasuredFault:
    """One fault, beginning with a daemon that is well."""
    before = drill.page()
    if before is None or not drill.healthy():
        return MeasuredFault(fault, why="the daemon was not well before")
    try:
        return measure(rig, drill, asking, fault, before, None)
    except CannotRunError as error:
        return MeasuredFault(fault, why=str(error))


def measure(
    rig: Rig, drill: Drill, asking: Program | None, fault: Fault, before: Page, began: float | None
) -> MeasuredFault:
    """Provoke a fault, unless one `began` with the process already, cure it, and see what comes of it."""
    rig.progress.say(f"{fault.title} ...")
    found, active = MeasuredFault(fault), drill.active_since()
    peak = Peak(drill.pid) if fault.answers else None
    provoked = began
    if provoked is None:
        provoked = time.monotonic()
        fault.provoke(drill)
    watch = _Watch(drill, before, found, provoked)
    least = rig.pace.fault if fault.holds and fault.cure is not None else 0.0
    watch.until(lambda now: found.noticed is not None, least, PATIENCE if fault.device and fault.noticed else least)
    cured = max(provoked, drill.killed)
    if fault.cure is not None:
        cured = time.monotonic()
        fault.cure(drill)
    watch.until_well(cured)
    while time.monotonic() < provoked + rig.pace.fault:
        watch.look()
    if peak is not None:
        found.memory = peak.highest()
    if asking is not None and fault.answers:
        found.scrapes = latencies(asking, provoked, time.monotonic())
    found.troubles += _damage(drill, fault, before, active)
    for trouble in found.missed():
        rig.progress.say(f"  {trouble}")
    return found


class _Watch:
    """Looks at the page every now and then, and notes when it shows a fault and when it is well again."""

    def __init__(self, drill: Drill, before: Page, found: MeasuredFault, began: float) -> None:
        self._drill = drill
        self._before = before
        self._found = found
        self._began = self._looked = began

    def look(self) -> Page | None:
        time.sleep(GLANCE)
        now = self._drill.page()
        if now is not None:
            self._note(now, time.monotonic())
        return now

    def _note(self, now: Page, at: float) -> None:
        found = self._found
        if found.noticed is None and found.fault.noticed is not None and found.fault.noticed(self._before, now):
            found.noticed = at - self._began
        up = int(now.total("coldplate_gpu_up"))
        if up < GPUS:
            found.down += at - self._looked
            found.fewest = min(found.fewest, up)
        if self._before.fires and not now.fires and found.fault.answers:
            found.troubles[:] = dict.fromkeys((*found.troubles, "a firing alert was not on the page"))
        self._looked = at

    def until(self, holds: Callable[[Page | None], bool], least: float, most: float) -> None:
        while True:
            now = self.look()
            passed = time.monotonic() - self._began
            if (passed >= least and holds(now)) or passed >= most:
                return

    def until_well(self, cured: float) -> None:
        """Note since when the devices, and then everything, are well, once they have been so for a while."""
        found, wrong = self._found, ""
        devices_since = all_since = math.inf
        while found.whole is None and time.monotonic() < cured + PATIENCE:
            now = self.look()
            at = time.monotonic()
            wrong = "no page" if now is None else self._wrong(now)
            devices_since = math.inf if now is None or now.differs(self._before, DEVICES) else min(devices_since, at)
            all_since = math.inf if wrong else min(all_since, at)
            found.back = devices_since - cured if at - devices_since >= STEADY else None
            found.whole = all_since - cured if at - all_since >= STEADY else None
        if found.whole is None:
            found.troubles.append(wrong)

    def _wrong(self, now: Page) -> str:
        """What is not as it was, or not yet as it is to be; empty if nothing."""
        if not self._found.fault.back(self._before, now):
            return "no sign of work that goes on"
        # A daemon that took another's place writes a state when it changes, and says how that went from then on.
        names = EVERYTHING if self._found.fault.answers else tuple(name for name in EVERYTHING if name != STATE_WRITTEN)
        return now.differs(self._before, names)


def _damage(drill: Drill, fault: Fault, before: Page, active: dict[str, int]) -> Iterator[str]:
    if not Path(f"/proc/{drill.pid}/fd").exists():
        yield "the daemon is gone"
        return
    if not drill.healthy():
        yield "/-/healthy is not 200"
    now = drill.page()
    if now is None:
        return
    active_now = drill.active_since()
    if not fault.forgets and any(abs(active_now.get(name, 0) - at) > SHIFTED[name] for name, at in active.items()):
        yield f"alerts were active since {active}, and are since {active_now}"
    was, count = (each.family("coldplate_thread_restarts_total", "thread") for each in (before, now))
    for thread in sorted(count):
        if count[thread] > was.get(thread, 0.0) and thread != fault.falls and drill.killed == 0.0:
            yield f"thread {thread} fell"
