"""What every shipped scenario must make fire, and what else it lawfully may. Everything else is a false alarm.

This is data. When a fault begins, and whom it befalls, is read from the scenario; here stands only by which fault
an alert is explained. Alerts that nobody names for a scenario must stay silent in it. The scenarios of the score alone
are in own_expectations.py.
"""

from tests.lab.score.expected import FED, QUIET, RACK, TRAYS, UNBUDGETED, Expectation, Expected
from tests.lab.score.own_expectations import OWN


def _xid_info(code: int, fault: int) -> Expected:
    return Expected("GpuXidInfo", fault, labels={"xid": str(code)})


_NOTHING_WRONG = Expectation(QUIET, rack=RACK, is_quiet=True)

_SHIPPED: dict[str, Expectation] = {
    "healthy-training": _NOTHING_WRONG,
    "idle": _NOTHING_WRONG,
    "inference-mix": _NOTHING_WRONG,
    "two-jobs": _NOTHING_WRONG,
    "straggler": Expectation(
        1000, must=(Expected("GpuImbalance", labels={"job_id": "6001", "cause": "uneven"}, within=240),)),
    "checkpoint-stall": Expectation(2200, must=(
        Expected("GpuImbalance", labels={"job_id": "6002", "severity": "info"}, within=120),
        Expected("GpuImbalance", labels={"job_id": "6002", "severity": "warning"}, within=320),
        Expected("GpuImbalance", labels={"job_id": "6002", "severity": "critical"}),
    )),
    "checkpoint-stall-milder": Expectation(900, base="checkpoint-stall", changes={0: {"takes": 83.0}}, must=(
        Expected("GpuImbalance", labels={"job_id": "6002", "severity": "info"}, within=120),
        Expected("GpuImbalance", labels={"job_id": "6002", "severity": "warning"}, within=320),
    )),
    "slow-gpu": Expectation(1500, must=(Expected("GpuStraggler", labels={"job_id": "6003"}, within=300),),
        may=(Expected("GpuClockLow", why="the same clock beside the node's GPUs; GpuStraggler holds it back"),)),
    "data-starvation": Expectation(1500, must=(Expected("GpuDataStarvation", None, of="job"),)),
    "thermal-throttle": Expectation(1000, must=(
        Expected("GpuThrottled", 0, labels={"reason": "sw_thermal_slowdown"}),
        Expected("GpuThrottled", 1, labels={"reason": "hw_thermal_slowdown"}, within=60),
        Expected("GpuHot", 0),
        Expected("GpuHot", 1),
    ), may=(
        Expected("GpuStraggler", 0, why="throttled by the driver it draws less than its peers"),
        Expected("GpuStraggler", 1, why="throttled by the hardware it draws less than its peers"),
        Expected("GpuThrottled", 1, why="the driver throttles first, before the hardware has to"),
    )),
    "power-brake": Expectation(1300, must=(Expected("GpuPowerBrake", of="node", within=15),),
        may=(Expected("GpuStraggler", 0, why="stays braked and draws less than its peers, which do not"),)),
    "rack-overrun": Expectation(900, must=(
        Expected("NodePowerOverShare", 0, of="node"),
        Expected("RackPowerHigh", 0, of="node", labels={"level": "near"}),
        Expected("RackPowerHigh", 0, of="node", labels={"level": "over"}),
        Expected("RackPowerHigh", 1, of="node", labels={"level": "trip"}),
        Expected("RackFeedOverload", 1, of="node", labels={"feed": "C"}),
        Expected("RackPowerNotRedundant", 1, of="node", labels={"what": "feed"}),
    ), may=(Expected("RackPowerBreachSoon", 0, "node", why="power rises towards the budget before it is above it"),),
        rack=FED),
    "power-swing": Expectation(1200, must=(Expected("RackPowerSwing", None, of="node", labels={"kind": "swing"}),),
        may=(Expected("RackPowerSwing", None, "node", why="each swing has two ramps"),), rack=RACK),
    "gpu-lost": Expectation(1200, must=(
        Expected("GpuLost", within=10),
        Expected("GpuXid", 0, labels={"action": "node_reboot"}),
        _xid_info(45, 1),
    )),
    "collective-hang": Expectation(1300, must=(Expected("GpuJobSyncStall", None, of="job"),)),
    "driver-hang": Expectation(
        600, must=(Expected("GpuLost", within=10), Expected("GpuXid", 0, labels={"action": "gpu_reset"}))),
    "xid-storm": Expectation(1400, must=(
        Expected("GpuXid", 0, labels={"action": "gpu_reset"}),
        _xid_info(45, 2),
        _xid_info(94, 3),
        _xid_info(31, 4),
        Expected("GpuEccErrors", 5, labels={"type": "uncorrected"}),
    )),
    "ecc-remap": Expectation(900, must=(
        Expected("GpuEccErrors", 1, labels={"type": "uncorrected"}),
        Expected("GpuXid", 2, labels={"action": "gpu_reset"}),
        _xid_info(63, 3),
        Expected("GpuRowRemap", 4, labels={"state": "pending"}),
        Expected("GpuRecoveryActionNeeded", 4, labels={"action": "gpu_reset"}),
        Expected("GpuXid", 5, labels={"action": "gpu_reset"}),
        Expected("GpuRowRemap", 6, labels={"state": "failure"}),
        Expected("GpuRecoveryActionNeeded", 6, labels={"action": "drain_and_reset"}),
    )),
    "nvlink-down": Expectation(600, must=(
        Expected("NvLinkErrors", 0, labels={"kind": "counted"}),
        Expected("NvLinkDown", 2),
        Expected("GpuXid", 3, labels={"action": "gpu_reset"}),
    ), may=(Expected("NodeExpectationNotMet", 2, "node", why="fewer links than its model; NvLinkDown inhibits it"),)),
    "ib-flap": Expectation(
        700, must=(Expected("InfinibandPortDown", of="port"), Expected("PortFlapping", of="port", occurrence=3))),
    "ib-symbol-errors": Expectation(900, must=(Expected("InfinibandErrors", 0, of="port", labels={"kind": "symbol"}),)),
    "optic-decay": Expectation(3600, must=(
        Expected("EthernetFecErrors", of="port", labels={"kind": "corrected"}),
        Expected("TransceiverDegrading", of="port"),
    )),
    "dirty-fibre": Expectation(2400, must=(
        Expected("EthernetFecErrors", of="port", labels={"kind": "uncorrectable"}, within=120),
        Expected("TransceiverDegrading", of="port", labels={"sign": "receive_power"}),
    )),
    "module-swap": Expectation(600, must=(Expected("PartReplaced", of="port"),)),
    "leak": Expectation(400, must=(
        Expected("LeakDetected", 0, of="detector", labels={"state": "suspected"}, within=30),
        Expected("LeakDetected", 1, of="detector", labels={"state": "detected"}, within=30),
        Expected("RackLeak", 2, of="node", labels={"part": "DripTray", "state": "detected"}, within=30),
    ), rack=TRAYS),
    "clique-split": Expectation(400,
        must=(Expected("RackNvlink", of="node", labels={"rack": "r14", "problem": "split"}, within=120),),
        rack=TRAYS),
    "coolant-warm": Expectation(1800, must=(
        Expected("CoolantSupplyHot", 0, of="node", labels={"severity": "warning"}),
        Expected("CoolantSupplyHot", 1, of="node", labels={"severity": "critical"}),
        Expected("RackCoolantSupplyHot", 0, of="node", labels={"severity": "warning"}),
        Expected("RackCoolantSupplyHot", 1, of="node", labels={"severity": "critical"}),
    ), rack=TRAYS),
    "pump-failure": Expectation(1400, must=(
        Expected("RackPumps", 0, of="node", labels={"equipment": "cdu", "state": "redundancy_lost"}, within=120),
        Expected("RackPumps", 1, of="node", labels={"equipment": "cdu", "state": "failed"}, within=30),
        Expected("RackCoolantFlowLow", 1, of="node", labels={"equipment": "cdu"}, within=180),
        Expected("CoolantFlowLow", 1, of="node", within=180),
    ), may=(Expected("GpuThrottled", 1, why="in coolant that stands all GPUs overheat"),), rack=TRAYS),
    "rack-equipment": Expectation(1000, must=(
        Expected("LeakDetectorBlind", 0, of="detector"),
        Expected("RackEquipmentUnreachable", 1, of="node", labels={"part": "Cabinet"}, within=150),
        Expected("RackCoolantService", 2, of="node", labels={"kind": "reservoir"}, within=150),
        Expected("RackPowerPartFailed", 3, of="node", labels={"unit": "3", "kind": "power-supply"}, within=90),
        Expected("RackPowerUnknown", None, of="node", labels={"why": "no_budget"}),
    ), rack=UNBUDGETED),
    "feed-lost": Expectation(600, must=tuple(
        Expected("RackPowerFeedLost", of="node", labels={"unit": unit, "part": "B"}, within=30)
        for unit in ("2", "4", "6", "8")
    ), rack=TRAYS),
    "sensor-gaps": Expectation(1200),
}  # fmt: skip

EXPECTED: dict[str, Expectation] = _SHIPPED | OWN
