"""The steps of the hardware checks, each of which writes one section of the report.

A step that cannot run says so in its section, with the reason, and the next one goes on.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.backends.nvml.driver import TIMEOUT, Driver, DriverError
from agent.backends.nvml.trace import IdentifierLeakError, Pseudonyms
from agent.backends.protocol import BackendSample
from agent.commands.doctor.driver_calls import record_session
from agent.model import Instant, Lane
from tests.lab.hardware import apart
from tests.lab.hardware.compare import Comparison, Smi, SmiError
from tests.lab.hardware.findings import Report, Section, Table, quantile
from tests.lab.hardware.node import FAST_CALLS, LANES, Node, Timed, TimedDriver, violations

STEPS = ("permissions", "calls", "compare", "events", "trace")
XID_CRITICAL_ERROR = 8
TRACE_PERIOD = 0.12
"""Seconds between samples: GPM needs more than 0.1."""


@dataclass
class Session:
    """What the steps of one run share: the opened GPUs, and how many samples to time and to record."""

    node: Node
    driver: TimedDriver
    base: Driver
    report: Report
    names: Pseudonyms
    clock: Callable[[], Instant]
    timed: int = 40
    traced: int = 20
    smi: str = "nvidia-smi"
    record: Path | None = None
    provenance: dict[str, Any] = field(default_factory=dict)


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
    lost = apart.missing(mine["families"], nobody["families"])
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
    for gpu in range(len(node.channels)):
        driver.place = ("probe", node.identities[gpu].gpu.index)
        for lane in LANES:
            broken += violations(node.read(gpu, lane), lane) if lane is not Lane.FAST else _calls_of(node, gpu)
    rounds = session.timed
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
        time.sleep(TRACE_PERIOD)
    driver.place = ("", "")
    worst = max(seen for _, seen in counted)
    text = f"{worst} at most, in {len(counted)} samples of {len(node.channels)} GPUs"
    section.judge(f"at most {FAST_CALLS} device calls in a fast sample", worst <= FAST_CALLS, text)
    wrong = [pair for pair in counted if pair[0] != pair[1]]
    section.judge("coldplate counts its calls rightly", not wrong, f"it says {wrong[0]}" if wrong else "the spy agrees")
    section.judge("every value is within its range", not broken, "; ".join(broken[:5]) or "no value outside")
    section.tables += _call_tables(driver.calls)


def _calls_of(node: Node, gpu: int) -> list[str]:
    """Probing read: it costs more calls than a sample, so only its values are judged."""
    sample = node.read(gpu, Lane.FAST)
    return violations(BackendSample(sample.readings), Lane.FAST)


def _call_tables(timed: Sequence[Timed]) -> list[Table]:
    """Latencies by lane and function, over all GPUs, and the whole of a fast sample for each GPU."""
    groups: dict[tuple[str, str], list[float]] = {}
    for call in timed:
        if call.place[0]:
            groups.setdefault((call.place[0], call.name), []).append(call.seconds)
    rows = [[lane, name, str(len(each)), *(f"{quantile(each, q) * 1e6:.0f}" for q in (0.5, 0.99, 1.0))]
            for (lane, name), each in sorted(groups.items())]  # fmt: skip
    tables = [Table("Calls one at a time, in us", ("lane", "function", "calls", "p50", "p99", "max"), rows)]
    gpus = sorted({call.place[1] for call in timed if call.place[0] == "fast"})
    sums = []
    for gpu in gpus:
        device = [call.seconds for call in timed if call.place == ("fast", gpu) and call.on_device]
        names = {call.name for call in timed if call.place == ("fast", gpu) and call.on_device}
        means = [
            sum(device) * 1e6 / max(1, sum(c.place == ("fast", gpu) and c.name == name for c in timed))
            for name in names
        ]
        sums.append([gpu, str(len(device)), f"{min(means, default=0.0):.0f}"])
    tables.append(Table("Fast lane by GPU", ("GPU", "device calls", "mean us of device time in a sample"), sums))
    return tables


def compare(session: Session) -> None:
    """Every value against nvidia-smi's."""
    section = session.report.add("compare", "Values against nvidia-smi")
    program = shutil.which(session.smi)
    if program is None:
        section.skipped("values against nvidia-smi", f"there is no {session.smi} on the PATH")
        return
    comparison = Comparison(session.node, session.driver, Smi(program), time.sleep)
    try:
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
            section.ok(f"{name} registers for XIDs", f"event types {types:#x}")
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


def trace(session: Session) -> None:
    """Record every driver call of a session of its own, to be played in tests."""
    section = session.report.add("trace", "Recorded trace")
    if session.record is None:
        section.skipped("trace", "no --record FILE was given")
        return
    try:
        recorded = record_session(session.base, session.names, session.clock, session.provenance, session.traced)
        session.record.write_text(recorded.text)
    except (IdentifierLeakError, OSError) as error:
        section.failed("trace", f"not written: {error}")
        return
    size = f"{recorded.calls} calls, {len(recorded.text) / 1000:.0f} kB"
    section.ok("trace", f"{size}, in {session.record.name}; keep it under tests/nvml/traces/ and it is a test")


RUN: dict[str, Callable[[Session], None]] = {"calls": calls, "compare": compare, "events": events, "trace": trace}
