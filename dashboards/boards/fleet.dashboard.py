"""Fleet: is everything there, what fires, and where to look first."""

from dashboards.alert_thresholds import limits, steps
from dashboards.board import Board
from dashboards.panels import NONE, bar_gauge, graph, small_graph, stat
from dashboards.queries import ACTIVE_ALERTS, BREACH, OVER, count_of, per_gpu
from dashboards.tables import TableColumn, alerts, table

SOME = (("red", None), ("green", 1))
POWER = steps("RackPowerHigh")
JOBS = "cluster:job_gpu_seconds:rate5m"
OF_JOB = "sum by (job_id) (rate(coldplate_job_gpu_seconds_total[5m]))"
WORKING = 'sum by (job_id) (rate(coldplate_job_gpu_seconds_total{state="computing"}[5m]))'
COMPUTING = f"({WORKING} or 0 * {OF_JOB}) / ({OF_JOB} > 0)"
LEAST = f"bottomk(10, {COMPUTING})"
BUSY = (("red", None), ("orange", 0.5), ("green", 0.8))
WASTED = 'cluster:job_gpu_seconds:rate5m{state!="computing"}'
UTILIZATION = "coldplate_node_gpu_utilization_mean_ratio"
DARK = (
    "(max by (rack) (node:gpus_expected:max) and on (rack) last_over_time(rack:power_watts:max[$__range])"
    " unless on (rack) rack:power_watts:max)"
)
"""Racks of which no agent answers, while their nodes are targets."""

dashboard = Board(
    "fleet",
    "What is missing, what fires, and which rack or GPU to look at first. Reads recorded series: the server needs "
    "the rule pack and fleet.rules.yml.",
    profile="lean",
)


def alerts_of(severity: str) -> str:
    """Return how many active alerts have this severity: 0 only where a node answers."""
    return f'count({ACTIVE_ALERTS}{{severity="{severity}"}}) or 0 * sum(cluster:nodes_up:sum > 0)'


dashboard.row("Do the GPUs work, and is anything missing?")
dashboard.add(
    stat(f'(sum({JOBS}{{state="computing"}}) or 0 * sum({JOBS})) / (sum({JOBS}) > 0)',
        "green: jobs compute with the GPUs that they hold.", title="GPUs of jobs that compute", unit="percentunit",
        what="Share of the GPUs that jobs hold whole which compute. A job that hangs shows full utilization and "
        "computes nothing.", limits=BUSY, trend=True, none="unknown: no job is known, or none holds a whole GPU"),
    stat("sum(cluster:nodes_up:sum)", "the number of your nodes.", title="Nodes up",
        what="Nodes whose agent the server can scrape.", limits=SOME),
    stat("sum(cluster:nodes:count) - sum(cluster:nodes_up:sum)", "0.", title="Nodes missing",
        what="Nodes whose agent cannot be scraped: their GPUs are not monitored.", limits=NONE),
    stat("sum(cluster:gpus_up:sum)", "the number of your GPUs.", title="GPUs up", what="GPUs that answer.",
        limits=SOME),
    stat("sum(cluster:gpus_missing:sum)", "0.", title="GPUs missing",
        what="GPUs that should be present and do not answer, on nodes that are up or down.", limits=NONE),
    stat(alerts_of("critical"), "0.", title="Critical alerts", none="unknown: no node answers",
        what="Critical alerts of agents and of the server's rules for them, without those that are effects of others.",
        limits=NONE),
    stat(alerts_of("warning"), "0.", title="Warnings", none="unknown: no node answers",
        what="Warnings of agents and of the server's rules for them, without those that are effects of others.",
        limits=(("green", None), ("orange", 1))),
    stat(f"count(rack:power_budget_watts:min or {DARK})", "the number of your racks with a budget.",
        title="Racks", what="Racks that have a power budget."),
    stat(count_of(f"rack:nodes_missing:max > 0 or {DARK}", "rack:nodes_missing:max"), "0.", title="Racks incomplete",
        what="Racks whose power sum lacks some of their nodes, or of which no agent answers.", limits=NONE),
    stat("max(rack:power_ratio:max)", "below the first limit of RackPowerHigh.", title="Rack nearest its budget",
        what="Largest share of its power budget that any rack draws now.", limits=POWER),
    stat("sum(cluster:power_watts:sum)", "flat, or following your jobs.", title="Power of all nodes",
        what="Measured or estimated power summed over nodes, mean of a minute.", trend=True),
    stat("avg(cluster:gpu_throttle_worst_ratio:rate5m)",
        "0: only idleness and the GPUs' own power cap reduce clocks.", title="Throttled time",
        what="Share of all GPU time in which heat, a power brake or another cause reduced clocks.",
        limits=steps("GpuThrottled"), decimals=1),
)  # fmt: skip
dashboard.row("Firing alerts")
dashboard.add(
    alerts({"alertname": "Alert", "instance": "Node", "rack": "Rack", "gpu": "GPU", "device": "Port", "job_id": "Job"},
        what="Alerts of agents and servers, without those that are effects of others. The summary is of when an alert "
        "began to fire; of an alert that only the server reports it is what the alert means.",
        size=(24, 12), explained=True),
)  # fmt: skip
dashboard.row("Where GPU time goes")
dashboard.add(
    graph("sum by (state) (cluster:job_gpu_seconds:rate5m) > 0", "almost all of it computing.",
        title="GPUs of jobs, by what they do", what="GPUs that jobs hold whole, by what they do (docs/jobs.md).",
        unit="short", decimals=1, stack=True, legend="list", size=(14, 9)),
    bar_gauge([(f"sort_desc(sum by (state) (sum_over_time({WASTED}[1d:1m])) / 60)", "{{state}}")],
        "short bars. Awaited and starved GPUs are a job's matter, throttled and lost ones a node's.",
        title="GPU-hours of the last day that did not compute",
        what="GPU-hours that jobs held and did not compute in, by cause.", unit="short", decimals=1,
        size=(10, 9)),
)  # fmt: skip
dashboard.row("Power against budget")
dashboard.add(
    bar_gauge([("rack:power_ratio:max", "{{rack}}")], "every bar green; orange is the first level of the rules.",
        title="Share of budget by rack, now", what="Power of each rack divided by its budget.",
        limits=POWER, span=(0, max(each.value for each in limits("RackPowerHigh")))),
    graph([("topk(10, rack:power_ratio:mean1m)", "{{rack}}")], "below the dashed lines, and flat.",
        title="Ten fullest racks, mean of a minute", what="Power divided by budget, mean of a minute.", limits=POWER),
    graph([("sum(rack:power_watts:max)", "racks"), ("sum(rack:power_budget_watts:min)", "budget"),
        ("sum(cluster:power_watts:sum)", "nodes"), ("sum(cluster:gpu_power_watts:sum)", "GPUs")],
        "well below the dashed budget.", title="Power of the fleet",
        what="Power of all racks with their budgets, of all nodes, and of their GPUs.", lines=("^budget$",)),
    table("Racks", [TableColumn("Power", "max by (rack) (rack:power_watts:max)"), TableColumn("Budget",
        "max by (rack) (rack:power_budget_watts:min)"),
        TableColumn("Share", "max by (rack) (rack:power_ratio:max)", limits=POWER), TableColumn("Headroom",
            "max by (rack) (rack:headroom_watts:min)"),
        TableColumn("Breach in", f"max by (rack) ({BREACH})",
            limits=steps("RackPowerBreachSoon"), mapped=OVER, decimals=0),
        TableColumn("Missing nodes", "max by (rack) (rack:nodes_missing:max)", limits=NONE)],
          "all green. A rack links to its board.",
              what="Every rack with its power, budget and missing nodes; with dashes one of which no agent answers.",
              labels={"rack": "Rack"}, size=(12, 8), rows=f"max by (rack) (rack:power_watts:max or {DARK})",
              sort="Share"),
)  # fmt: skip
dashboard.row("GPUs to look at first")
dashboard.add(
    table("Ten hottest GPUs by margin", [TableColumn("Margin", "bottomk(10, " + per_gpu("min",
        "coldplate_gpu_temperature_margin_celsius") + ")", limits=steps("GpuHot.margin"))],
          "above the threshold of GpuHot in every row.", labels={"instance": "Node", "gpu": "GPU"}, size=(8, 11),
              sort="+Margin"),
    table("Ten most throttled nodes", [TableColumn("Throttled",
        "topk(10, max by (instance) (node:gpu_throttle_worst_ratio:rate5m) > 0)",
            limits=steps("GpuThrottled"))],
          "empty.", what="Share of GPU time in which heat, a brake or another cause reduced clocks.",
              labels={"instance": "Node"}, size=(8, 11), sort="Throttled"),
    table("Ten jobs that compute least", [
        TableColumn("GPUs", f"sum by (job_id) (coldplate_job_exclusive_gpus) and {LEAST}", unit="short", decimals=0),
        TableColumn("Computing", LEAST, unit="percentunit", limits=BUSY),
    ], "green: the job computes with nearly all of its GPU time.",
        what="Share of the GPU time of each job, on all of its nodes, in which its GPUs compute: a hung job is at 0%, "
        "one that waits for a single GPU far down.",
        labels={"job_id": "Job"}, size=(8, 11), rows=LEAST, sort="+Computing"),
    table("Nodes with GPUs missing", [TableColumn("Missing", "max by (instance) (node:gpus_missing:max)", limits=NONE)],
          "empty.", what="GPUs that a node should have but does not show.", labels={"instance": "Node"}, size=(8, 8),
              sort="Missing"),
    small_graph("avg by (reason) (cluster:gpu_throttle_ratio:rate5m) > 0", "empty, except for idle moments.",
        title="Throttled time by reason", what="Share of all GPU time, by what reduced the clocks; reasons overlap."),
    small_graph([(f"quantile(0.05, {UTILIZATION})", "p5"), (f"quantile(0.5, {UTILIZATION})", "median"),
        (f"quantile(0.95, {UTILIZATION})", "p95")], "lines close together while one job uses all nodes.",
        title="Utilization across nodes", what="Mean utilization of each node's GPUs, across nodes.", span=(0, 1)),
)  # fmt: skip
