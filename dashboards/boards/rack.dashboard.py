"""Rack: does its power fit its budget, will it, and is all of it known."""

from dashboards.alert_thresholds import limits, steps
from dashboards.board import Board
from dashboards.panels import UP_DOWN, gauge, graph, small_graph, stat, state_timeline
from dashboards.queries import BREACH, FORECAST, OVER, in_rack
from dashboards.tables import TableColumn, alerts, table

POWER = steps("RackPowerHigh")
LIMITS = {
    0.8: ("near: mean of 15 minutes", "yellow"),
    0.9: ("near: mean of 1 minute", "orange"),
    1.0: ("over: mean of 1 minute, near: peak", "red"),
    1.35: ("trip: power", "purple"),
}
"""By limit of RackPowerHigh, the level and the line that may not cross it, and its colour."""
LEVELS = [
    (f"rack:power_budget_watts:min * {value:g}", f"limit {value:.0%}, {LIMITS[value][0]}")
    for value in sorted({each.value for each in limits("RackPowerHigh")})
]
NODES = (
    "max by (instance) (up and on (instance) last_over_time(coldplate_rack_nodes_expected[$__range])) or "
    'max by (instance) (label_replace(rack:peer_up:max == 0, "instance", "$1", "peer", "(.+)"))'
)
"""1 for each node of the rack whose agent answers, 0 for one that is silent, or that its peers cannot reach."""
ANSWERS = ((0, "silent", "red"), (1, "up", "transparent"))


def not_ok(state: str) -> str:
    """Return the states of parts that are not ok, as numbers."""
    words = (("warning", 1), ("critical", 2), ("unavailable", 3))
    return " or ".join(f'({state}{{state="{word}"}} == 1) * {number}' for word, number in words)


NOT_OK = ((1, "warning", "orange"), (2, "critical", "red"), (3, "unavailable", "purple"))
TOP = max(each.value for each in limits("RackPowerHigh"))

dashboard = Board(
    "rack", "Is the rack's power within its budget, will it be in ten minutes, and is all of it known?", profile="lean"
)
dashboard.row("Is it within budget?")
dashboard.add(
    gauge("rack:power_ratio:max", "green.", title="Share of budget, now",
        what="Power of the rack divided by its budget.", limits=POWER, span=(0, TOP), size=(4, 6)),
    gauge("rack:power_ratio:mean1m", "green.", title="Mean of a minute",
        what="RackPowerHigh is near from 90%, and over from 100%.", limits=POWER, span=(0, TOP), size=(4, 6)),
    gauge("rack:power_ratio:mean15m", "green.", title="Mean of 15 minutes",
        what="RackPowerHigh is near from 80%: a breaker may carry 80% of its rating continuously.",
        limits=POWER, span=(0, TOP), size=(4, 6)),
    stat("rack:headroom_watts:min", "positive, and enough for the next job.", title="Headroom",
        what="Budget minus power now.", limits=(("red", None), ("green", 0)), size=(4, 6), trend=True),
    stat(BREACH, "no value: power is not rising towards the budget.",
        title="Time to breach", none="none in sight, or unknown",
        what="When a straight line through the last 5 minutes reaches the budget; no value while power is not "
        "rising by more than it varies, nor below 70% of the budget.",
        limits=steps("RackPowerBreachSoon"), mapped=OVER, decimals=0, size=(4, 6)),
    stat([(f"max(rack:nodes_missing:max) or count(({NODES}) == 0)", "missing"),
        ("max by (rack) (coldplate_rack_nodes_reporting)", "reporting")],
        "0 missing.", title="Nodes", none="unknown: no agent sums the rack",
        what="Nodes in the rack's sum, and expected nodes that are not: with one missing, the sum is too low.",
        size=(4, 6)),
    alerts({"alertname": "Alert", "equipment": "Equipment", "part": "Part", "level": "Level", "feed": "Feed"},
        matchers='rack="$rack"', what="Alerts about this rack.", size=(24, 7), explained=True),
)  # fmt: skip
dashboard.row("Power against budget")
dashboard.add(
    graph([("rack:power_watts:max", "power"), ("rack:power_watts:peak10s", "10-second peak"),
        ("rack:power_watts:mean1m", "mean of 1 minute"), ("rack:power_watts:mean15m", "mean of 15 minutes"),
        ("rack:power_conservative_watts:min", "with silent nodes at nameplate"), *LEVELS],
          "every line below its dashed limit.", title="Power and the limits of the rules",
              what="Power of the rack in one second, its peaks and means, and the levels of RackPowerHigh.",
              size=(24, 10),
              lines=[(f"^limit {value:.0%}", color) for value, (_, color) in LIMITS.items()]),
    graph(in_rack("max by (instance) (coldplate_node_power_mean_watts)"),
        "equal power for nodes of one job.", title="By node",
        what="Power of each node of the rack, mean of a minute, by its best source.", stack=True, size=(12, 9)),
    table("Nodes", [TableColumn("State", NODES, unit="short", mapped=ANSWERS, row=True),
        TableColumn("Power", in_rack("max by (instance) (coldplate_node_power_watts)")),
        TableColumn("Peak", in_rack("max by (instance) (coldplate_node_power_max_watts)")), TableColumn("GPUs",
        in_rack("sum by (instance) (coldplate_gpu_power_mean_watts)")), TableColumn("GPUs up",
        in_rack("sum by (instance) (coldplate_gpu_up)"), unit="short"), TableColumn("Least margin",
        in_rack("min by (instance) (coldplate_gpu_temperature_margin_celsius)"), limits=steps("GpuHot.margin"))],
          "equal rows for nodes of one job, and green margins. A node links to its board.",
              what="The nodes of the rack, silent ones first.", labels={"instance": "Node"}, size=(12, 9),
              rows=f"({NODES})", sort=("+State", "Power")),
)  # fmt: skip
dashboard.row("Trend")
dashboard.add(
    small_graph([("rack:power_ratio:swing1m", "swing")],
        "below the line: nodes do not all compute and wait at the same time.", title="Swing within a minute",
        what="Highest minus lowest power of a minute, as a share of the budget.",
        limits=steps("RackPowerSwing.swing")),
    small_graph("rack:power_ratio:ramp10s", "below the line, except at the start and end of jobs.", title="Ramp",
        what="How fast power changes over 10 seconds, as a share of the budget in a second.",
        limits=steps("RackPowerSwing.ramp"), decimals=2),
    small_graph([(FORECAST, "time to breach")], "empty: power is not rising.", decimals=0,
        title="Time to breach over time", none="none in sight, or unknown",
        what="When a straight line through 5 minutes reaches the budget; only while power rises by more than it "
        "varies, from 70% of the budget on.",
        limits=steps("RackPowerBreachSoon")),
)  # fmt: skip
dashboard.row("Feeds", collapsed=True)
dashboard.add(
    graph([("feed:load_ratio:peak10s", "feed {{feed}}")],
        "below 100%; below 50% for two feeds that must carry each other's load.", title="Load of each feed",
        what="Even share of the 10-second peak divided by the feed's limit; shares are assumed, not metered.",
        limits=steps("RackFeedOverload"), legend="list"),
    graph([("rack:failover_load_ratio:mean1m", "without the largest feed")],
        "below 100%: the rack survives the loss of a feed.", title="If a feed fails",
        what="Load of the other feeds if the largest fails, mean of a minute.", limits=steps("RackPowerNotRedundant"),
        legend="list"),
)  # fmt: skip
dashboard.row("Breakers", collapsed=True)
dashboard.add(
    small_graph([("feed:breaker_heat_ratio:max", "{{feed}}")], "below 80%: it trips at 100%.",
        title="Thermal state of each breaker",
        what="How warm each breaker of rack.breakers is, by the trip curve of its class."),
    small_graph([("feed:breaker_load_ratio:max", "{{feed}}")], "below what its class carries continuously.",
        title="Load of each breaker", what="Load divided by rating; an even share if nothing else is known."),
    small_graph([("feed:breaker_trip_seconds:min", "{{feed}}")], "empty: no breaker trips at this load.",
        title="Trips in", what="When a breaker trips if its load stays, by its class and its past load.",
        limits=steps("RackBreaker")),
)  # fmt: skip
dashboard.row("Water", collapsed=True)
dashboard.add(
    state_timeline(f"max by (equipment, kind, part) ({not_ok('coldplate_rack_part_state')})",
        "empty: a part has a row only while it is not ok.", title="Parts of the equipment that are not ok",
        what="State that leak detectors, pumps, reservoirs, filters, shelves, supplies and feeds report. One that "
        "cannot be read may have failed.", mapped=NOT_OK, size=(12, 9)),
    table("Leak detectors of the nodes", [TableColumn("State", in_rack(
        f"max by (instance, chassis, detector) ({not_ok('coldplate_leak_detector_state')})"),
        unit="short", mapped=NOT_OK)], "empty.", what="Detectors in the trays that report coolant or cannot be read.",
        labels={"instance": "Node", "chassis": "Chassis", "detector": "Detector"}, size=(12, 9), sort="State"),
    graph([("max by (equipment, unit, loop) (coldplate_rack_coolant_supply_temperature_celsius)",
        "{{equipment}} {{loop}} supply"),
        ("max by (equipment, unit, loop) (coldplate_rack_coolant_return_temperature_celsius)",
        "{{equipment}} {{loop}} return"),
        ("max by (equipment, unit) (coldplate_rack_dew_point_celsius)", "{{equipment}} dew point")],
        "supply below its limit and above the dew point, the loop named secondary is the rack's.",
        title="Coolant supplied and returned", what="At the distribution units; below the dew point water condenses.",
        limits=steps("RackCoolantSupplyHot"), legend="list"),
    graph([("sum by (equipment, unit, loop) (coldplate_rack_coolant_flow_liters_per_second)",
        "{{equipment}} {{loop}}")], "steady, near what the unit is rated for.",
        title="Coolant flow", what="Litres a second, by loop.", legend="list"),
    small_graph([("sum by (equipment, unit, loop) (coldplate_rack_coolant_heat_removed_watts)",
        "{{equipment}} {{loop}}"), ("rack:power_watts:max", "power of the rack")], "the heat follows the power.",
        title="Heat that the coolant carries away"),
    small_graph("max by (equipment, part) (coldplate_rack_pump_speed_ratio)",
        "alike: one pump that is far below the others has failed, and the others run faster for it.", title="Pumps"),
    small_graph("max by (equipment, part) (coldplate_rack_filter_delta_pressure_pascals)",
        "steady: it rises as a filter clogs.", title="Pressure lost in filters",
        what="Pressure that the coolant loses in each filter."),
)  # fmt: skip
dashboard.row("Power shelves and PDUs", collapsed=True)
dashboard.add(
    graph([("coldplate_rack_distribution_power_watts", "{{equipment}} {{unit}}")],
        "shelves alike; the feeds of a PDU pair each below half of what one may carry.", title="Power by shelf and PDU",
        what="As the equipment measures it.", size=(12, 8), legend="list"),
    state_timeline("min by (equipment) (coldplate_rack_equipment_up)", "all green.", title="Equipment that answers",
        what="Whether its service answers the agent of the rack that asks it.", mapped=UP_DOWN, size=(12, 8)),
)  # fmt: skip
dashboard.row("Is all of it known?")
dashboard.add(
    small_graph([("max by (rack) (coldplate_rack_nodes_reporting)", "reporting"),
        ("max by (rack) (coldplate_rack_nodes_expected)", "expected")], "the two lines coincide.",
        title="Nodes in the sum", what="Nodes that report their power, and those that should.", lines=("^expected$",
        )),
    state_timeline([("rack:peer_up:max", "{{peer}}")], "all green.", title="Peers",
        what="Whether at least one agent of the rack can reach each node.", mapped=UP_DOWN, size=(8, 8)),
    small_graph([("sum by (reason, peer) (rate(coldplate_rack_peer_failures_total[$__rate_interval]))",
        "{{peer}} {{reason}}")], "0.", title="Failed or rejected peer responses"),
    table("Sources of node power", [
        TableColumn("Nodes", in_rack("count by (instance, source) (coldplate_node_power_watts)"),
        unit="short")], "a measured source on each node: estimate is computed from GPU power, not measured.",
        what="Source of each node's power.", labels={"instance": "Node", "source": "Source"}, size=(24, 8),
        sort="+Source"),
)  # fmt: skip
