"""What the steps of one run share: the opened GPUs, how much of everything to do, and how to say and to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.backends.nvml.driver import Driver
from agent.backends.nvml.trace import Pseudonyms
from agent.model import Instant
from tests.lab.hardware.findings import Report
from tests.lab.hardware.node import Node
from tests.lab.hardware.spy import TimedDriver


@dataclass
class Plan:
    """How much of everything. `quick` is for a machine that is lent for minutes."""

    fast: int = 40
    trace: int = 20
    idle: float = 5.0
    loaded: float = 12.0
    rounds: int = 4
    window: float = 8.0

    @classmethod
    def quick(cls) -> Plan:
        return cls(fast=15, trace=20, idle=2.0, loaded=6.0, rounds=2, window=4.0)


@dataclass
class Session:
    """One run: the opened GPUs, and what the steps need to say and to wait."""

    node: Node
    driver: TimedDriver
    base: Driver
    report: Report
    names: Pseudonyms
    plan: Plan
    clock: Callable[[], Instant]
    say: Callable[[str], object]
    pause: Callable[[float], object] = time.sleep
    gpu: int = 0
    smi: str = "nvidia-smi"
    busy_ok: bool = False
    load: tuple[str, str | None, str | None] = ("auto", None, None)
    record: Path | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    def mono(self) -> float:
        return self.clock().mono
