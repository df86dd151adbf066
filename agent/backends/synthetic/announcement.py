"""The faults of a scenario to come, in words: viewers of a demonstration must know when and where to look."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from agent.backends.synthetic.scenario import Scenario, ScenarioFault

MOST = 12
"""Most faults that are announced one by one."""


def announced(scenario: Scenario, wall: float) -> Iterator[str]:
    """A line for each fault, by its time; the scenario begins at `wall`, in seconds since the epoch."""
    faults = sorted(scenario.faults, key=lambda fault: fault.window.at)
    for fault in faults[:MOST]:
        yield f"{fault.kind}{_where(fault)}{_when(fault, wall)}"
    if len(faults) > MOST:
        yield f"and {len(faults) - MOST} more faults"


def _where(fault: ScenarioFault) -> str:
    part = fault.port or fault.part
    if part:
        return f" of {part}"
    if not fault.gpus:
        return ""
    gpus = f"GPU {', '.join(map(str, fault.gpus))}"
    return f" of link {fault.link} of {gpus}" if fault.kind.startswith("nvlink") else f" of {gpus}"


def _when(fault: ScenarioFault, wall: float) -> str:
    window = fault.window
    again = "" if window.repeat is None else f", repeated every {window.repeat:g} s"
    if window.at <= 0.0:
        return f" from the start{again}"
    at = datetime.fromtimestamp(wall + window.at, timezone.utc)
    return f" starts at {at:%H:%M:%S} UTC, in {window.at:g} s{again}"
