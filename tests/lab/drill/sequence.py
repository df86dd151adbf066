"""Every fault there is, each on a daemon that has got over the one before."""

import time
from collections.abc import Callable, Iterator, Sequence

from tests.lab.bench.processes import MIB, Peak
from tests.lab.bench.rig import Rig
from tests.lab.drill.drilled_daemon import Page, drilled
from tests.lab.drill.faults import AT_START, PLAIN, THREADS_SHORTAGE, Fault, fallen, restarts
from tests.lab.drill.measured_fault import MeasuredFault, attempt, measure, scraper, settle

Chosen = Callable[[str], bool]


def in_turn(rig: Rig, chosen: Chosen) -> Iterator[MeasuredFault]:
    """Each as it has been measured. Raises CannotRunError where no daemon can be had at all."""
    yield from _of_one_daemon(rig, [fault for fault in PLAIN if chosen(fault.title)])
    if chosen(AT_START.title):
        yield _at_the_start(rig)
    yield from _of_threads(rig, chosen)
    yield from _of_restarts(rig, [fault for fault in restarts() if chosen(fault.title)])


def _of_one_daemon(rig: Rig, faults: Sequence[Fault]) -> Iterator[MeasuredFault]:
    if not faults:
        return
    with drilled(rig) as drill, scraper(rig, drill.daemon.address) as asking:
        settle(rig, drill)
        held = Peak(drill.pid)
        for fault in faults:
            yield attempt(rig, drill, asking, fault)
        rig.progress.say(f"all of these: {held.now() / MIB:+.1f} MiB are kept in the end")
        kept = Fault("all of these, in the end", "no more memory is held", lambda drill: None, answers=False)
        yield MeasuredFault(kept, whole=0.0, memory=held.now())


def _at_the_start(rig: Rig) -> MeasuredFault:
    """The times count from the start of the process."""
    began = time.monotonic()
    with drilled(rig, "hang-init") as drill, scraper(rig, drill.daemon.address) as asking:
        return measure(rig, drill, asking, AT_START, Page(""), began)


def _of_threads(rig: Rig, chosen: Chosen) -> Iterator[MeasuredFault]:
    """Which threads there are, only the daemon itself can say."""
    with drilled(rig, sabotaged=True) as drill, scraper(rig, drill.daemon.address) as asking:
        page = settle(rig, drill)
        names = sorted(page.family("coldplate_thread_up", "thread"))
        for fault in (*map(fallen, names), THREADS_SHORTAGE):
            if chosen(fault.title):
                yield attempt(rig, drill, asking, fault)


def _of_restarts(rig: Rig, faults: Sequence[Fault]) -> Iterator[MeasuredFault]:
    if not faults:
        return
    with drilled(rig) as drill:
        settle(rig, drill)
        for fault in faults:
            yield attempt(rig, drill, None, fault)
