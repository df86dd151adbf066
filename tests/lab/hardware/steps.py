"""The steps of the hardware checks, each of which writes one section of the report."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from statistics import median
from typing import Any, NamedTuple

from agent.backends.nvml.driver import TIMEOUT, Driver, DriverError
from agent.backends.protocol import BackendSample
from agent.model import Lane
from tests.lab.bench.client import highest_hundredth
from tests.lab.hardware.compare import Comparison, Smi, SmiError
from tests.lab.hardware.node import FAST_CALLS, LANES, Node, Timed, TimedDriver, violations
from tests.lab.hardware.rows import Report, Section

STEPS = ("permissions", "calls", "compare", "events")
XID_CRITICAL_ERROR = 8
PERIOD = 0.12
"""Seconds between samples: GPM needs more than 0.1."""


class Session(NamedTuple):
    """What the steps of one run share: the opened GPUs, how many samples to time, and the nvidia-smi to ask."""

    node: Node
    driver: TimedDriver
    report: Report
    samples: int
    smi: str


def permissions(report: Report, mine: dict[str, Any], nobody: dict[str, Any] | None) -> None:
    """What root sees and nobody does not: GPM, the kernel log, and every other metric."""
    section = report.add("permissions", "Permissions")
    me = "root" if os.geteuid() == 0 else "this user"
    section.measured(f"GPM as {me}", str(mine.get("gpm", mine.get("detail", "?"))))
    section.measured(f"kernel log as {me}", str(mine.get("kmsg", "not tried")))
    if nobody is None:
        section.skipped("as nobody", "only root can become nobody; run it as root to compare")
        return
    if nobody["outcome"] != "ok":
        tried = nobody["outcome"] != "untried"
        (section.measured if tried else section.skipped)("as nobody", f"{nobody['outcome']}: {nobody['detail']}")
        return
    section.measured("GPM as nobody", str(nobody["gpm"]))
    section.measured("kernel log as nobody", str(nobody["kmsg"]))
    lost = sorted({*mine["families"]} - {*nobody["families"]})
    text = f"{len(nobody['families'])} metrics, root has {len(mine['families'])}"
    section.measured(
        "metrics as nobody", text + "".join(f"; {each}: {nobody['reasons'].get(each, '?')}" for each in lost)
    )


def calls(session: Session) -> None:
    """Count and time the driver calls of every lane, and hold every sample to the laws."""
    section = session.report.add("calls", "Driver calls")
    node, driver = session.node, session.driver
    driver.calls.clear()
    counted: list[tuple[int, int]] = []
    broken: list[str] = []
    for gpu, lane in product(range(len(node.channels)), LANES):  # probing costs more calls: only values are judged
        driver.place = ("probe", node.identities[gpu].gpu.index)
        broken += violations(BackendSample(node.read(gpu, lane).readings), lane)
    rounds = session.samples
    slow = max(2, rounds // 10)
    for turn in range(rounds):
        for gpu in range(len(node.channels)):
            for lane in LANES:
                if lane is Lane.FAST or turn < slow:
                    driver.place = (lane.value, node.identities[gpu].gpu.index)
                    before = len(driver.calls)
                    sample = node.read(gpu, lane)
                    seen = sum(call.on_device for call in driver.calls[before:])
                    broken += violations(sample, lane)
                    if lane is Lane.FAST:
                        counted.append((sample.calls, seen))
        time.sleep(PERIOD)
    driver.place = ("", "")
    worst = max(seen for _, seen in counted)
    text = f"{worst} at most, in {len(counted)} samples of {len(node.channels)} GPUs"
    section.judge(f"at most {FAST_CALLS} device calls in a fast sample", worst <= FAST_CALLS, text)
    wrong = [pair for pair in counted if pair[0] != pair[1]]
    section.judge("coldplate counts its calls rightly", not wrong, f"it says {wrong[0]}" if wrong else "the spy agrees")
    section.judge("every value is within its range", not broken, "; ".join(broken[:5]) or "no value outside")
    _tell_calls(section, driver.calls)


def _tell_calls(section: Section, timed: Sequence[Timed]) -> None:
    """Latencies by lane and function, over all GPUs, and the whole of a fast sample for each GPU."""
    groups: dict[tuple[str, str], list[float]] = {}
    for call in timed:
        if call.place[0]:
            groups.setdefault((call.place[0], call.name), []).append(call.seconds)
    rows = [
        [lane, name, str(len(each)), *(f"{of(each) * 1e6:.0f}" for of in (median, highest_hundredth, max))]
        for (lane, name), each in sorted(groups.items())
    ]
    section.table("Calls one at a time, in us", ("lane", "function", "calls", "p50", "p99", "max"), rows)
    sums = []
    for gpu in sorted({call.place[1] for call in timed if call.place[0] == "fast"}):
        device = [call for call in timed if call.place == ("fast", gpu) and call.on_device]
        turns = min(Counter(call.name for call in device).values(), default=1)
        sums.append([gpu, str(len(device)), f"{sum(call.seconds for call in device) * 1e6 / turns:.0f}"])
    section.table("Fast lane by GPU", ("GPU", "device calls", "mean us of device time in a sample"), sums)


def compare(session: Session) -> None:
    section = session.report.add("compare", "Values against nvidia-smi")
    program = shutil.which(session.smi)
    if program is None:
        section.skipped("values against nvidia-smi", f"there is no {session.smi} on the PATH")
        return
    try:
        comparison = Comparison(session.node, Smi(program))
        comparison.run()
    except SmiError as error:
        section.skipped("values against nvidia-smi", str(error))
        return
    comparison.tell(section)


def events(session: Session) -> None:
    """The XID path as far as it goes without an XID: an event set is made, each GPU registered, one wait."""
    section = session.report.add("events", "XID events (none is provoked)")
    driver = session.driver
    try:
        made = driver.call("nvmlEventSetCreate")
    except DriverError as error:
        section.failed("event set", str(error))
        return
    registered = 0
    for identity in session.node.identities:
        name = f"GPU {identity.gpu.index}"
        try:
            handle = driver.call("nvmlDeviceGetHandleByUUID", identity.gpu.uuid)
            types = driver.call("nvmlDeviceGetSupportedEventTypes", handle)
            if not types & XID_CRITICAL_ERROR:
                section.measured(f"{name} registers for XIDs", f"it does not offer them (event types {types:#x})")
                continue
            driver.call("nvmlDeviceRegisterEvents", handle, XID_CRITICAL_ERROR, made)
        except DriverError as error:
            section.failed(f"{name} registers for XIDs", str(error))
        else:
            registered += 1
            section.judge(f"{name} registers for XIDs", True, f"event types {types:#x}")
    if registered:
        _wait(section, driver, made)
    driver.call("nvmlEventSetFree", made)


def _wait(section: Section, driver: Driver, made: object) -> None:
    try:
        _, kind, data = driver.call("nvmlEventSetWait_v2", made, 200)
    except DriverError as error:
        good = error.code == TIMEOUT
        section.judge("a wait without an XID", good, "ends with a timeout, as it should" if good else str(error))
    else:
        section.measured("a wait without an XID", f"an event came meanwhile: type {kind:#x}, data {data}")


RUN: dict[str, Callable[[Session], None]] = {"calls": calls, "compare": compare, "events": events}
