"""What the scenarios of the score alone must make fire: those in its folder, and variations.

A variation whose name ends in `-healthy` looks like the fault of its base and is harmless: nothing may fire.
"""

from collections.abc import Mapping

from agent.backends.synthetic.scenario import ScenarioFault
from tests.lab.score.expected import (
    BREAKER,
    FED,
    OVERSUBSCRIBED,
    RACK,
    TRAYS,
    WALL,
    Expectation,
    Expected,
    figure,
    silent_peers,
)

DAY = 86_400.0
UNPLAYED = {"AgentDown": "a server alone has `up`, and no agent evaluates it: alerts/tests/agent.test.yml"}
"""Alerts that can fire in no scenario, why, and what shows that they fire."""


def _of_node(alert: str, fault: int, within: float | None = None, **labels: str) -> Expected:
    return Expected(alert, fault, of="node", labels=labels, within=within)


Figure = tuple[str, Mapping[str, float], Mapping[str, float | None] | None]
"""A series, what it reads from second 120 on, and what it reads otherwise where it looks like that and is harmless."""


def _figures(*rows: Figure) -> tuple[tuple[ScenarioFault, ...], ...]:
    """Return what goes wrong, and what only looks like it."""
    wrong = tuple(figure(series, **{"at": 120, **values}) for series, values, _ in rows)
    well = ((series, {"at": 120, **values, **milder}) for series, values, milder in rows if milder is not None)
    return wrong, tuple(figure(series, **values) for series, values in well)  # type: ignore[arg-type]  # None fits


_AGENT, _AGENT_WELL = _figures(
    ("coldplate_ticks_missed_total", {"rate": 2.0}, {"rate": 0.5}),
    ('coldplate_thread_up{thread="rules"}', {"value": 0, "healthy": 1}, {"duration": 20}),
    ("coldplate_worker_restarts_total", {"value": 1, "repeat": 120, "duration": 1}, {"repeat": None, "duration": None}),
    ('coldplate_backend_up{backend="redfish"}', {"value": 0, "healthy": 1}, {"duration": 20}),
    ('coldplate_state_write_successful{file="alerts"}', {"value": 0, "healthy": 1}, {"duration": 50}),
    ("coldplate_flight_recorder_failures_total", {"value": 1, "healthy": 0}, None),
    ("coldplate_config_last_reload_successful", {"value": 0}, {"duration": 240}),
    ("coldplate_web_config_last_reload_successful", {"value": 0, "healthy": 1}, {"duration": 240}),
    ("coldplate_web_certificate_expiry_timestamp_seconds", {"value": WALL + 13 * DAY, "healthy": WALL + 80 * DAY},
     {"value": WALL + 20 * DAY}),
    ('coldplate_rule_evaluation_failures_total{rule_group="site"}', {"value": 1, "healthy": 0}, None),
    ("coldplate_rule_window_dropped_total", {"rate": 1.0}, None),
    ('coldplate_notifications_dropped_total{notifier="webhook",url="http://pager"}', {"value": 1, "healthy": 0}, None),
    ('coldplate_notifications_queue_length{notifier="alertmanager",url="http://am"}', {"value": 2, "healthy": 0},
     {"duration": 240}),
    ('coldplate_notifications_errors_total{notifier="alertmanager",url="http://am"}', {"rate": 0.1, "healthy": 0},
     {"duration": 240}),
    ("coldplate_gpus_expected", {"value": 9}, {"duration": 30}),
)  # fmt: skip
_HOST, _HOST_WELL = _figures(
    ('coldplate_node_mount_up{mountpoint="/data",fstype="nfs4"}', {"value": 0, "healthy": 1}, {"duration": 90}),
    ("coldplate_node_processes_stuck", {"value": 3, "healthy": 0}, {"value": 1, "duration": 120}),
    ("coldplate_node_fabric_manager_up", {"value": 0, "healthy": 1}, {"duration": 60}),
    ('coldplate_node_memory_errors_total{type="corrected"}', {"rate": 5.0, "healthy": 40}, {"rate": 0.2}),
    ('coldplate_node_memory_errors_total{type="uncorrected"}', {"value": 1, "healthy": 0},
     {"at": 0, "value": 0, "healthy": 2}),
)  # fmt: skip
_LEAD, _DIFFERS = (
    'coldplate_rack_clock_offset_seconds{rack="r12"}',
    'coldplate_rack_config_mismatch{rack="r12",setting="power_budget"}',
)

OWN: dict[str, Expectation] = {
    "hardware-degraded": Expectation(1800, must=(
        Expected("GpuPcieDegraded", 0, labels={"problem": "downtrained"}),
        Expected("GpuPcieDegraded", 1, labels={"problem": "replays"}),
        Expected("InfinibandRateDegraded", 2, of="port"),
        Expected("InfinibandCongestion", 3, of="port"),
        Expected("NvSwitchErrors", 4, of="node", labels={"grade": "fatal", "sxid": "20034"}),
        Expected("NvSwitchErrors", 5, of="node", labels={"grade": "nonfatal", "sxid": "12028"}),
        Expected("GpuXidUnknown", 6, labels={"xid": "999"}),
    ), may=(
        Expected("NodeExpectationNotMet", 0, "node", why="a narrower link than its model; GpuPcieDegraded inhibits it"),
        Expected("NodeExpectationNotMet", 2, "node", why="a slower port; InfinibandRateDegraded inhibits it"),
    )),
    "power-limited": Expectation(1500, must=(
        Expected("GpuPowerLimitLow", 0, of="node"),
        Expected("NodeExpectationNotMet", 0, of="node", labels={"expectation": "power-limit"}),
    )),
    "held-idle": Expectation(2700, must=(Expected("GpuAllocatedIdle", None, of="job"),)),
    "rack-ramp": Expectation(2400, must=(
        Expected("RackPowerBreachSoon", 0, of="node"),
        Expected("RackPowerHigh", 0, of="node", labels={"level": "near"}),
    ), may=(
        Expected("NodePowerOverShare", 0, "node", why="each node draws more than its share of the budget in the end"),
        Expected("RackPowerHigh", 0, "node", why="the level over follows at the end"),
    ), rack=RACK),
    "parts-degraded": Expectation(1000, must=(
        _of_node("GpuFabricDegraded", 0, problem="in_progress"),
        _of_node("GpuFabricDegraded", 1, problem="degraded_bandwidth"),
        Expected("PortHot", 2, of="port", labels={"part": "transceiver"}),
        Expected("PortHot", 3, of="port", labels={"part": "adapter"}),
        _of_node("MetricsMissing", 4, reason="denied"),
        _of_node("NodePowerEstimated", 5, within=120),
        Expected("GpuEccErrors", 6, labels={"type": "corrected"}),
        Expected("InfinibandErrors", 7, of="port", labels={"kind": "recovery"}),
        Expected("TransceiverDegrading", 8, of="port", labels={"sign": "bias"}),
        Expected("GpuXid", 9, labels={"action": "power_check"}),
    )),
    "parts-degraded-healthy": Expectation(1000, base="parts-degraded", changes={
        0: {"duration": 180.0},
        1: {"label": "partition_unassigned"},
        2: {"value": 69.0},
        3: {"value": 100.0},
        4: {"reason": "unsupported"},
        5: {"duration": 40.0},
        6: {"corrected_rate": 2.0},
        7: {"rate": 0.05},
        8: {"value": 0.08},
        9: {"code": 45.0},
    }),
    "slow-changes": Expectation(
        5100, must=(Expected("InfinibandRailLagging", 0, of="port"), Expected("GpuTemperatureDrift", 1))),
    "rack-air": Expectation(5200,
        must=(_of_node("RackDewPointNear", 0, equipment="cdu"), _of_node("RackCoolantDeltaRising", 1, equipment="cdu")),
        rack=TRAYS),
    "rack-air-worse": Expectation(600, base="rack-air", changes={
        0: {"humidity": 0.6},
        1: {"at": 120.0, "flow": 0.45},
    }, must=(
        _of_node("CoolantFlowLow", 1, within=180),
        _of_node("RackCoolantFlowLow", 1, within=180, equipment="cdu"),
    ), rack=TRAYS),
    "rack-overrun-healthy": Expectation(
        900, base="rack-overrun", changes={0: {"watts": 300.0}, 1: {"watts": 100.0}}, rack=FED),
    "straggler-milder": Expectation(1000, base="straggler", changes={0: {"utilization": 0.25}},
        must=(Expected("GpuImbalance", labels={"job_id": "6001", "cause": "uneven"}, within=320),)),
    "straggler-healthy": Expectation(1300, base="straggler", changes={0: {"utilization": 0.55}}),
    "slow-gpu-milder": Expectation(1000, base="slow-gpu", changes={0: {"factor": 0.85}},
        must=(Expected("GpuStraggler", labels={"job_id": "6003"}, within=300),)),
    "slow-replica": Expectation(1500, must=(Expected("GpuClockLow", within=1200),)),
    "slow-replica-milder": Expectation(1500, base="slow-replica", changes={0: {"factor": 0.9}},
        must=(Expected("GpuClockLow", within=1300),)),
    "slow-replica-healthy": Expectation(1500, base="slow-replica", changes={0: {"factor": 0.97}}),
    "ib-symbol-errors-milder": Expectation(1300, base="ib-symbol-errors",
        changes={0: {"rate": 0.05}, 1: {"rate": 0.02}},
        must=(Expected("InfinibandErrors", 0, of="port", labels={"kind": "symbol"}),)),
    "breaker-heats": Expectation(900, must=(
        _of_node("RackBreaker", 0, within=120, feed="A", level="heating"),
        _of_node("RackBreaker", 0, feed="A", level="trips_soon"),
    ), rack=BREAKER),
    "breaker-heats-healthy": Expectation(900, base="breaker-heats", changes={0: {"watts": 500.0}}, rack=BREAKER),
    "agents-silent": Expectation(700, base="idle", surroundings=(silent_peers(1, 60), silent_peers(2, 240)), must=(
        _of_node("RackPowerUnknown", 0, within=60, why="nodes_silent"),
        _of_node("RackPowerConservativeOverBudget", 1, within=60),
    ), rack=OVERSUBSCRIBED),
    "agents-silent-healthy": Expectation(
        700, base="idle", surroundings=(silent_peers(1, 60, 25), silent_peers(2, 240, 25)), rack=OVERSUBSCRIBED),
    "agents-disagree": Expectation(700, base="idle",
        surroundings=(figure(_DIFFERS, 120, 1, healthy=0), figure(_LEAD, 120, -6.0, healthy=0.1)), must=(
        _of_node("RackAgentsDisagree", 0, what="config_mismatch", setting="power_budget"),
        _of_node("RackAgentsDisagree", 1, what="clock_skew"),
    ), rack=RACK),
    "agents-disagree-healthy": Expectation(700, base="idle",
        surroundings=(figure(_DIFFERS, 120, 1, healthy=0, duration=90), figure(_LEAD, 120, -1.5, healthy=0.1)),
        rack=RACK),
    "agent-troubles": Expectation(900, base="healthy-training", surroundings=_AGENT, must=(
        _of_node("AgentStalled", 0, problem="sampling"),
        _of_node("AgentStalled", 1, problem="thread", thread="rules"),
        _of_node("AgentStalled", 2, problem="worker"),
        _of_node("BackendFailing", 3, backend="redfish"),
        _of_node("AgentDiskFailing", 4, what="state", file="alerts"),
        _of_node("AgentDiskFailing", 5, what="flight_recorder"),
        _of_node("ConfigReloadFailed", 6),
        _of_node("WebCertificateExpiring", 8),
        _of_node("RulesFailing", 9, problem="evaluation", rule_group="site"),
        _of_node("RulesFailing", 10, problem="memory"),
        _of_node("AlertsUndelivered", 11, problem="dropped", notifier="webhook"),
        _of_node("AlertsUndelivered", 13, problem="failing", notifier="alertmanager"),
        _of_node("GpuCountWrong", 14, within=90),
    )),
    "agent-troubles-healthy": Expectation(900, base="healthy-training", surroundings=_AGENT_WELL),
    "host-troubles": Expectation(800, base="healthy-training", surroundings=_HOST, must=(
        _of_node("NodeMountDown", 0, mountpoint="/data"),
        _of_node("NodeProcessesStuck", 1),
        _of_node("FabricManagerDown", 2),
        _of_node("NodeMemoryErrors", 3, type="corrected"),
        _of_node("NodeMemoryErrors", 4, type="uncorrected"),
    )),
    "host-troubles-healthy": Expectation(1500, base="healthy-training", surroundings=_HOST_WELL),
    "near-misses": Expectation(1500),
    "near-misses-rack": Expectation(1200, rack=TRAYS),
}  # fmt: skip
