"""How soon a fault is noticed and over, and what it costs everybody else: one daemon, and one fault after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import client, harm
from tests.bench.drill import DEVICES, EVERYTHING, GPUS, SETTLED_AFTER, Drill, Page, drilled
from tests.bench.harm import Fault
from tests.bench.processes import MIB, Peak, Program
from tests.bench.report import CannotRunError, Line, Section, Verdict, milliseconds
from tests.bench.rig import ROOT, Rig

NOTICED, BACK = 5.0, 15.0
MEMORY = 64 * MIB
LATENCY = 0.05
GLANCE = 0.2
"""Seconds between two looks at the page: so late may a change be seen."""
PATIENCE = 60.0
"""Seconds after which what has not come is said never to come."""
STEADY = 1.0
"""Seconds that a page has to be well in a row, until it counts as well from their beginning."""
COLUMNS = "{:>8}  {:>8}  {:>8}  {:>9}  {:>8}"


@dataclass(slots=True)
class Found:
    """What was measured of one fault: bytes, latencies, and seconds.

    `noticed` is until the page shows it, `back` from the cure until all devices are back and fresh, `whole` until
    everything is as it was, the rows that are read every 15 or 60 s included.
    """

    fault: Fault
    noticed: float | None = None
    back: float | None = None
    whole: float | None = None
    memory: float = 0.0
    scrapes: list[float] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def line(self) -> Line:
        missed = list(self._missed())
        figures = COLUMNS.format(
            _seconds(self.noticed),
            _seconds(self.back),
            _seconds(self.whole),
            f"{self.memory / MIB:+.1f} MiB",
            milliseconds(client.highest_hundredth(self.scrapes)) if self.scrapes else "-",
        )
        return Line(self.fault.title, figures, "; ".join(missed), Verdict.MISSED if missed else Verdict.MET)

    def _missed(self) -> Iterator[str]:
        """What goes beyond its target, in words."""
        if self.fault.device and (self.noticed is None or self.noticed > NOTICED):
            yield "noticed too late"
        if self.whole is None:
            yield "never whole"
        if self.fault.device and (self.back is None or self.back > BACK):
            yield "back too late"
        if self.memory > MEMORY:
            yield "memory"
        if not self.scrapes or client.highest_hundredth(self.scrapes) > LATENCY:
            yield "p99"
        yield from self.troubles


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


class Scraper:
    """One who scrapes ten times a second, in a process of its own, and all the time."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def between(self, began: float, ended: float) -> list[float]:
        """Latencies of the scrapes that began within these monotonic seconds."""
        if not self._program.alive:
            raise CannotRunError(f"the scraper failed: {self._program.log.read_text()[-500:]}")
        lines = self._program.log.read_text().splitlines()
        rows = [tuple(map(float, line.split())) for line in lines if line.count(" ") == 1]
        return [seconds for at, seconds in rows if began <= at < ended]


@contextmanager
def scraper(rig: Rig, address: client.Address) -> Iterator[Scraper]:
    command = [sys.executable, "-m", "tests.bench.patience", str(address[1])]
    with Program(command, rig.directory / f"scraper-{address[1]}.log", rig.environment, ROOT) as program:
        yield Scraper(program)


def in_turn(rig: Rig) -> Section:
    """Every fault there is, each on a daemon that has got over the one before."""
    lines = [Line("", COLUMNS.format("noticed", "back", "whole", "memory", "p99"), "beyond its target")]
    lines += _of_one_daemon(rig, harm.PLAIN)
    lines += _silent(rig)
    lines += _threads(rig)
    return Section(
        f"Faults: a device is to be noticed within {NOTICED:.0f} s and back within {BACK:.0f} s, memory to stay within"
        f" {MEMORY / MIB:.0f} MiB of what it was, a scrape's p99 within {milliseconds(LATENCY)}",
        tuple(lines),
    )


def _of_one_daemon(rig: Rig, faults: Sequence[Fault]) -> list[Line]:
    with drilled(rig) as drill, scraper(rig, drill.daemon.address) as asking:
        settle(rig, drill)
        held = Peak(drill.pid)
        lines = [attempt(rig, drill, asking, fault) for fault in faults]
        return [*lines, _kept(drill, held)]


def _silent(rig: Rig) -> list[Line]:
    """The times count from the start of the process."""
    began = time.monotonic()
    with drilled(rig, *harm.SILENT_FROM) as drill, scraper(rig, drill.daemon.address) as asking:
        return [_measure(rig, drill, asking, harm.SILENT, Page(""), began).line()]


def _threads(rig: Rig) -> list[Line]:
    with drilled(rig, sabotaged=True) as drill, scraper(rig, drill.daemon.address) as asking:
        page = settle(rig, drill)
        names = sorted(page.family("coldplate_thread_up", "thread"))
        return [attempt(rig, drill, asking, fault) for fault in (*map(harm.fallen, names), harm.SHORTAGE)]


def settle(rig: Rig, drill: Drill) -> Page:
    """Wait until everything has begun, and nothing changes any more; the page as it is then."""
    rig.progress.say("faults: a daemon settles ...")
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
    """Whether all parts have begun that a fault may touch."""
    return bool(
        page.total("coldplate_rack_peer_up")
        and page.total("coldplate_notifications_total")
        and page.total("coldplate_state_write_successful")
        and page.total("coldplate_gpu_up") == GPUS
    )


def attempt(rig: Rig, drill: Drill, asking: Scraper, fault: Fault) -> Line:
    """One fault, beginning with a daemon that is well."""
    before = drill.page()
    if before is None or not drill.healthy():
        return Line(fault.title, "the daemon was not well before", "", Verdict.NOT_RUN)
    try:
        return _measure(rig, drill, asking, fault, before, None).line()
    except CannotRunError as error:
        return Line(fault.title, str(error), "", Verdict.NOT_RUN)


def _measure(rig: Rig, drill: Drill, asking: Scraper, fault: Fault, before: Page, began: float | None) -> Found:
    rig.progress.say(f"faults: {fault.title} ...")
    found, peak = Found(fault), Peak(drill.pid)
    provoked = began
    if provoked is None:
        provoked = time.monotonic()
        fault.provoke(drill)
    watch = _Watch(drill, peak, before, found, provoked)
    least = rig.pace.fault if fault.holds else 0.0
    watch.until(lambda now: found.noticed is not None, least, PATIENCE if fault.device else least)
    cured = provoked
    if fault.cure is not None:
        cured = time.monotonic()
        fault.cure(drill)
    watch.until_well(cured)
    while time.monotonic() < provoked + rig.pace.fault:
        watch.look()
    found.memory = peak.look()
    found.scrapes = asking.between(provoked, time.monotonic())
    found.troubles += _damage(drill, fault, before)
    for trouble in found.troubles:
        rig.progress.say(f"  {trouble}")
    return found


class _Watch:
    """Looks at the page every now and then, and notes when it shows a fault and when it is well again."""

    def __init__(self, drill: Drill, peak: Peak, before: Page, found: Found, began: float) -> None:
        self._drill = drill
        self._peak = peak
        self._before = before
        self._found = found
        self._began = began

    def look(self) -> Page | None:
        time.sleep(GLANCE)
        self._peak.look()
        now = self._drill.page()
        noticed = self._found.fault.noticed
        if now is not None and self._found.noticed is None and noticed is not None and noticed(self._before, now):
            self._found.noticed = time.monotonic() - self._began
        return now

    def until(self, holds: Callable[[Page | None], bool], least: float, most: float) -> None:
        while True:
            now = self.look()
            passed = time.monotonic() - self._began
            if (passed >= least and holds(now)) or passed >= most:
                return

    def until_well(self, cured: float) -> None:
        """Note since when the devices, and then everything, are well, once they have been so for a while."""
        devices, everything = _Spell(), _Spell()
        wrong = "no page"
        while not everything.lasts and time.monotonic() < cured + PATIENCE:
            now = self.look()
            devices.go_on(now is not None and not now.differs(self._before, DEVICES))
            wrong = "no page" if now is None else self._wrong(now)
            everything.go_on(not wrong)
        if devices.lasts:
            self._found.back = devices.since - cured
        if everything.lasts:
            self._found.whole = everything.since - cured
        else:
            self._found.troubles.append(wrong)

    def _wrong(self, now: Page) -> str:
        """What is not as it was, or not yet as it is to be; empty if nothing."""
        if not self._found.fault.back(self._before, now):
            return "no sign of work that goes on"
        return now.differs(self._before, EVERYTHING)


class _Spell:
    """For how long something has held."""

    def __init__(self) -> None:
        self.since = self._seen = 0.0

    @property
    def lasts(self) -> bool:
        return self.since > 0.0 and self._seen - self.since >= STEADY

    def go_on(self, holds: bool) -> None:
        self._seen = time.monotonic()
        if not holds:
            self.since = 0.0
        elif not self.since:
            self.since = self._seen


def _damage(drill: Drill, fault: Fault, before: Page) -> Iterator[str]:
    """What a fault left behind that it must not."""
    if not Path(f"/proc/{drill.pid}/fd").exists():
        yield "the daemon is gone"
        return
    if not drill.healthy():
        yield "/-/healthy is not 200"
    now = drill.page()
    if now is None:
        return
    was, count = (each.family("coldplate_thread_restarts_total", "thread") for each in (before, now))
    for thread in sorted(count):
        if count[thread] > was.get(thread, 0.0) and thread != fault.falls:
            yield f"thread {thread} fell"


def _kept(drill: Drill, held: Peak) -> Line:
    """What the process holds at the end beyond what it held at the beginning."""
    most = held.now()
    verdict = Verdict.MET if most <= MEMORY else Verdict.MISSED
    figures = COLUMNS.format("", "", "", f"{most / MIB:+.1f} MiB", "")
    return Line("all of these: memory that is kept in the end", figures, "", verdict)
