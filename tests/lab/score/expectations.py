"""What every shipped scenario must make fire, and what else it lawfully may. Everything else is a false alarm.

This is data. When a fault begins, and whom it befalls, is read from the scenario; here stands only by which fault
an alert is explained. Alerts that nobody names for a scenario must stay silent in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

QUIET = 3600
"""Seconds for which a scenario in which nothing is wrong is played. Its noise repeats: more of it would show little."""


@dataclass(frozen=True, slots=True)
class PlayedRack:
    """A rack as it is configured on each of its nodes; watts."""

    name: str
    power_budget: float | None = None
    nodes_expected: int | None = None
    feeds: tuple[tuple[str, float], ...] = ()


RACK = PlayedRack("r12", 40_800.0, 4)
"""Four nodes of this kind on 40.8 kW, as the scenarios about power assume. Healthy ones stay below 80% of it."""


TRAYS = PlayedRack("r14", 144_000.0, 18)
"""An NVL72 of eighteen trays, below 80% of its power when it is well."""


@dataclass(frozen=True, slots=True)
class Expected:
    """An alert, explained by the fault with this number, or by the first job's start where it is None.

    `of`: what it is told of, `gpu`, `port` and `detector` once for each of the fault's, `job` for the first job, or
    `node`. `labels` are further ones that it must have. `occurrence` is that of a fault which repeats. `within` is a
    limit in seconds, where there is one.
    """

    alert: str
    fault: int | None = 0
    of: str = "gpu"
    labels: Mapping[str, str] = field(default_factory=dict)
    occurrence: int = 1
    within: float | None = None


@dataclass(frozen=True, slots=True)
class Companion:
    """An alert that may fire as well, and why that is right."""

    alert: str
    why: str
    fault: int | None = 0
    of: str = "gpu"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One scenario. `seconds` is how long it is played, counted from where its faults are as shipped.

    `is_quiet`: nothing is wrong in it. `base` is the scenario that it is a variation of, if it is one, by `parameters`
    of the first fault.
    """

    seconds: int
    must: tuple[Expected, ...] = ()
    may: tuple[Companion, ...] = ()
    rack: PlayedRack | None = None
    is_quiet: bool = False
    base: str = ""
    parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def named(self) -> set[str]:
        """The alerts that must or may fire."""
        return {each.alert for each in self.must} | {each.alert for each in self.may}


def _xid(kind: str, code: int, fault: int) -> Expected:
    return Expected(kind, fault, labels={"xid": str(code)})


_NOTHING_WRONG = Expectation(QUIET, rack=RACK, is_quiet=True)

EXPECTED: dict[str, Expectation] = {
    "healthy-training": _NOTHING_WRONG,
    "idle": _NOTHING_WRONG,
    "inference-mix": _NOTHING_WRONG,
    "two-jobs": _NOTHING_WRONG,
    "straggler": Expectation(
        700,
        must=(Expected("GpuImbalanceSharp", labels={"job_id": "6001"}, within=240),),
    ),
    "checkpoint-stall": Expectation(
        2200,
        must=(
            Expected("GpuImbalanceSharp", labels={"job_id": "6002"}, within=240),
            Expected("GpuImbalanceBlocked", labels={"job_id": "6002"}),
        ),
    ),
    "checkpoint-stall-milder": Expectation(
        900,
        base="checkpoint-stall",
        parameters={"takes": 83.0},
        must=(Expected("GpuImbalance", labels={"job_id": "6002"}, within=360),),
    ),
    "slow-gpu": Expectation(1000, must=(Expected("GpuPowerStraggler", labels={"job_id": "6003"}),)),
    "data-starvation": Expectation(1500, must=(Expected("GpuDataStarvation", None, of="job"),)),
    "thermal-throttle": Expectation(
        1000,
        must=(
            Expected("GpuSoftwareThermalThrottle", 0),
            Expected("GpuHardwareThermalThrottle", 1, within=60),
            Expected("GpuHot", 0),
            Expected("GpuHot", 1),
            Expected("GpuMemoryHot", 0),
            Expected("GpuMemoryHot", 1),
        ),
        may=(
            Companion("GpuPowerStraggler", "throttled by the driver it draws less than its peers", 0),
            Companion("GpuPowerStraggler", "throttled by the hardware it draws less than its peers", 1),
            Companion("GpuSoftwareThermalThrottle", "the driver throttles first, before the hardware has to", 1),
        ),
    ),
    "power-brake": Expectation(
        1300,
        must=(Expected("GpuPowerBrake", 0, within=15), Expected("GpuPowerBrake", 1, within=15)),
        may=(Companion("GpuPowerStraggler", "stays braked and draws less than its peers, which do not", 0),),
    ),
    "rack-overrun": Expectation(
        900,
        must=(
            Expected("NodePowerOverShare", 0, of="node"),
            Expected("RackPower", 0, of="node", labels={"level": "peak10s"}),
            Expected("RackPower", 0, of="node", labels={"level": "over1m"}),
            Expected("RackPower", 1, of="node", labels={"level": "trip"}),
        ),
        may=(Companion("RackPowerBreachSoon", "power rises towards the budget before it is above it", 0, "node"),),
        rack=RACK,
    ),
    "power-swing": Expectation(
        1200,
        must=(Expected("RackPowerSwing", None, of="node"),),
        may=(Companion("RackPowerRamp", "each swing has two ramps", None, "node"),),
        rack=RACK,
    ),
    "gpu-lost": Expectation(
        1200,
        must=(
            Expected("GpuLost", within=10),
            _xid("GpuXidNode", 79, 0),
            _xid("GpuXidInfo", 45, 1),
            Expected("GpuJobSyncStall", 0, of="job"),
        ),
    ),
    "driver-hang": Expectation(600, must=(Expected("GpuLost", within=10), _xid("GpuXidReset", 119, 0))),
    "xid-storm": Expectation(
        1400,
        must=(
            _xid("GpuXidReset", 48, 0),
            _xid("GpuXidReset", 95, 1),
            _xid("GpuXidInfo", 45, 2),
            _xid("GpuXidInfo", 94, 3),
            _xid("GpuXidInfo", 31, 4),
            Expected("GpuEccUncorrected", 5),
        ),
    ),
    "ecc-remap": Expectation(
        900,
        must=(
            Expected("GpuEccUncorrected", 1),
            _xid("GpuXidReset", 48, 2),
            _xid("GpuXidInfo", 63, 3),
            Expected("GpuRowRemapPending", 4),
            Expected("GpuRecoveryActionNeeded", 4, labels={"action": "gpu_reset"}),
            _xid("GpuXidReset", 64, 5),
            Expected("GpuRowRemapFailure", 6),
            Expected("GpuRecoveryActionNeeded", 6, labels={"action": "drain_and_reset"}),
        ),
    ),
    "nvlink-down": Expectation(
        600,
        must=(
            Expected("NvLinkErrors", 0, labels={"type": "crc_flit"}),
            Expected("NvLinkErrors", 1, labels={"type": "recovery"}),
            Expected("NvLinkDown", 2),
            _xid("GpuXidReset", 74, 3),
        ),
    ),
    "ib-flap": Expectation(
        700,
        must=(
            Expected("InfinibandPortDown", of="port"),
            Expected("InfinibandFlapping", of="port", occurrence=3),
        ),
    ),
    "ib-symbol-errors": Expectation(
        900,
        must=(
            Expected("InfinibandSymbolErrors", 0, of="port"),
            Expected("InfinibandLinkRecoveries", 1, of="port"),
        ),
    ),
    "optic-decay": Expectation(
        3600,
        must=(
            Expected("EthernetPreFecErrors", of="port"),
            Expected("TransceiverReceivePowerLow", of="port"),
        ),
    ),
    "dirty-fibre": Expectation(
        2400,
        must=(
            Expected("EthernetFecUncorrectable", of="port", within=120),
            Expected("EthernetPreFecErrors", of="port"),
            Expected("TransceiverReceivePowerLow", of="port"),
            Expected("TransceiverLanesUneven", of="port"),
        ),
    ),
    "module-swap": Expectation(600, must=(Expected("TransceiverReplaced", of="port"),)),
    "leak": Expectation(
        400,
        must=(
            Expected("LeakSuspected", 0, of="detector", within=30),
            Expected("LeakDetected", 1, of="detector", within=30),
            Expected("RackLeakDetected", 2, of="node", labels={"part": "DripTray"}, within=30),
        ),
        rack=TRAYS,
    ),
    "clique-split": Expectation(
        400,
        must=(Expected("RackNvlinkSplit", of="node", labels={"rack": "r14"}, within=120),),
        rack=TRAYS,
    ),
    "coolant-warm": Expectation(
        1800,
        must=(
            Expected("CoolantSupplyHot", 0, of="node"),
            Expected("CoolantSupplyCritical", 1, of="node"),
            Expected("RackCoolantSupplyHot", 0, of="node"),
            Expected("RackCoolantSupplyCritical", 1, of="node"),
        ),
        rack=TRAYS,
    ),
    "pump-failure": Expectation(
        1400,
        must=(
            Expected("RackPumpRedundancyLost", 0, of="node", labels={"equipment": "cdu"}, within=120),
            Expected("RackPumpsFailed", 1, of="node", labels={"equipment": "cdu"}, within=30),
            Expected("RackCoolantFlowLow", 1, of="node", labels={"equipment": "cdu"}, within=180),
            Expected("CoolantFlowLow", 1, of="node", within=180),
        ),
        may=(Companion("GpuSoftwareThermalThrottle", "in coolant that stands all GPUs overheat", 1),),
        rack=TRAYS,
    ),
    "feed-lost": Expectation(
        600,
        must=tuple(
            Expected("RackPowerFeedLost", of="node", labels={"unit": unit, "part": "B"}, within=30)
            for unit in ("2", "4", "6", "8")
        ),
        rack=TRAYS,
    ),
    "sensor-gaps": Expectation(1200),
}
