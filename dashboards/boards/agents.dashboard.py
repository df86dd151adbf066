"""coldplate itself: can what the other boards show be believed."""

from dashboards.alert_thresholds import steps
from dashboards.board import Board
from dashboards.panels import FEW, NONE, UP_DOWN, small_graph, stat, state_timeline
from dashboards.queries import RATE, count_of
from dashboards.tables import TableColumn, alerts, table

SERVED = f"rate(coldplate_ticks_total{RATE})"
MISSED = f"rate(coldplate_ticks_missed_total{RATE})"

dashboard = Board(
    "agents",
    "Can the other boards be trusted: do all agents sample, see their devices, evaluate rules and send alerts?",
)
dashboard.row("Can it be trusted?")
dashboard.add(
    stat('count(up{job=~".*coldplate.*"} == 0) or 0 * count(up{job=~".*coldplate.*"})', "0.", title="Agents down",
        what="Agents that the server cannot scrape.", limits=NONE,
        none="unknown: no scrape job's name contains coldplate"),
    stat("max(coldplate_sample_age_seconds)", "below the limit of AgentStalled.", title="Oldest sample",
        limits=steps("AgentStalled.sampling")),
    stat(count_of('coldplate_metric_missing{reason=~"denied|malformed|implausible"} == 1', "coldplate_build_info"),
        "0.",
        title="Missing but supported",
        what="Series that are absent although the hardware has them: a permission, file or sensor is wrong.",
        limits=FEW),
    stat("round(sum(increase(coldplate_worker_restarts_total[1h])))", "0.", title="Worker restarts, 1 h", unit="short",
        limits=FEW, decimals=0),
    stat("round(sum(increase(coldplate_rule_evaluation_failures_total[1h])))", "0.", title="Rule failures, 1 h",
        unit="short", limits=NONE, decimals=0),
    stat("sum(coldplate_notifications_queue_length)", "0, except for seconds.", title="Queued alerts",
        none="unknown: no agent has a receiver",
        what="Alerts queued for delivery.", limits=FEW),
    stat("count(coldplate_build_info)", "the number of your nodes.", title="Agents", trend=True),
    stat(count_of("coldplate_synthetic_info", "coldplate_build_info"), "0: no reading of a synthetic node is real.",
        title="Synthetic nodes", limits=FEW),
    stat(count_of("coldplate_config_last_reload_successful == 0", "coldplate_config_last_reload_successful"), "0.",
        title="Rejected configurations",
        what="Agents that keep an older configuration because the new one is invalid.", limits=NONE),
    stat("count(count by (version) (coldplate_build_info))", "1: all agents run the same version.", title="Versions",
        limits=(("green", None), ("orange", 2))),
    stat(f"max(sum by (instance) (rate(coldplate_process_cpu_seconds_total{RATE})))", "below 4% of a core.",
        title="Highest CPU use of an agent", limits=(("green", None), ("orange", 0.1))),
    stat("max(sum by (instance) (coldplate_process_resident_memory_bytes))", "below 100 MiB.",
        title="Highest memory use of an agent", limits=(("green", None), ("orange", 104857600))),
)  # fmt: skip
dashboard.row("Sampling")
dashboard.add(
    small_graph([("topk(20, coldplate_sample_age_seconds)", "{{instance}}")],
        "at most slightly above the sampling interval.", title="Oldest samples", limits=steps("AgentStalled.sampling")),
    small_graph([(f"topk(20, {MISSED} / ({SERVED} + {MISSED}))", "{{instance}}")], "0.", title="Missed ticks",
        unit="percentunit"),
    small_graph([("topk(20, coldplate_backend_duration_seconds)", "{{instance}} {{backend}}")],
        "a small part of the sampling interval.", title="Slowest reads"),
    state_timeline("min by (instance, backend) (coldplate_backend_up)",
        "all up; hardware that is absent has no row.", title="Backends", mapped=UP_DOWN),
    table("What each backend found", [TableColumn("Nodes", "count by (backend, outcome) (coldplate_backend_info == 1)",
        unit="short")], "ok, or absent if there is no such hardware; never failed.", labels={"backend": "Backend",
        "outcome": "Outcome"}, size=(12, 8), sort="+Outcome"),
)  # fmt: skip
dashboard.row("What is missing, and why")
dashboard.add(
    table("Missing metrics", [TableColumn("Series", "count by (metric, reason) (coldplate_metric_missing == 1)",
        unit="short")], "only unsupported: the hardware or driver does not offer it.",
        what="Metrics that are absent on some node, with the reason.", labels={"reason": "Reason", "metric": "Metric"},
        size=(12, 9), sort="Series"),
    table("Nodes with missing metrics", [TableColumn("Series",
        'topk(50, count by (instance, reason) (coldplate_metric_missing{reason!="unsupported"} == 1))', unit="short")],
        "empty.", what="Nodes with series that are denied, malformed, implausible, lost or silent.",
        labels={"instance": "Node", "reason": "Reason"}, size=(6, 9), sort="Series"),
    small_graph(f"sum by (backend, cause) (rate(coldplate_readings_rejected_total{RATE}))",
        "0 or no data: no sensor reports nonsense.", title="Readings rejected", size=(6, 9)),
)  # fmt: skip
dashboard.row("Worker and cost")
dashboard.add(
    small_graph([("topk(20, increase(coldplate_worker_restarts_total[10m])) > 0", "{{instance}}")], "empty.",
        title="Worker restarts in 10 minutes", unit="short", limits=steps("AgentStalled.worker")),
    small_graph(f"topk(20, sum by (instance, process) (rate(coldplate_process_cpu_seconds_total{RATE})))",
        "flat, a few percent of one core.", title="CPU use of agents"),
    small_graph("topk(20, sum by (instance, process) (coldplate_process_resident_memory_bytes))", "flat.",
        title="Memory of agents"),
    small_graph(f"topk(10, avg by (thread) (rate(coldplate_thread_cpu_seconds_total{RATE})))",
        "sampler, rules and http take the most.", title="CPU use per node, by part"),
    small_graph("topk(20, max by (instance) (coldplate_sampling_slowdown_ratio))", "1: lanes are read as configured.",
        title="Lanes that are slowed down to keep the budget", unit="short"),
    small_graph(f"topk(20, sum by (instance, backend) (rate(coldplate_backend_read_seconds_total{RATE})))", "flat.",
        what="Seconds of each second for which reads are in flight.", title="Time spent in reads"),
)  # fmt: skip
dashboard.row("Rules and notifications")
dashboard.add(
    small_graph(f"sum by (rule_group) (rate(coldplate_rule_evaluations_total{RATE}))",
        "flat: every group is evaluated at its interval.", title="Rules evaluated"),
    small_graph(f"topk(10, avg by (rule_group) (rate(coldplate_rule_evaluation_seconds_total{RATE})))",
        "a few thousandths of a core.", title="Rule evaluation time per node"),
    small_graph("sum by (instance, rule_group) (increase(coldplate_rule_evaluation_failures_total[5m])) > 0", "empty.",
        title="Rule failures", unit="short"),
    small_graph([(f"sum by (notifier) (rate(coldplate_notifications_sent_total{RATE}))", "{{notifier}} delivered"),
        (f"sum by (notifier) (rate(coldplate_notifications_dropped_total{RATE}))", "{{notifier}} dropped"),
        (f"sum by (notifier) (rate(coldplate_notifications_errors_total{RATE}))", "{{notifier}} failed attempts")],
        "nothing dropped.", title="Notifications"),
    small_graph("topk(20, sum by (instance, notifier) (coldplate_notifications_queue_length))",
        "0, except for seconds.", title="Queued alerts by node"),
    alerts({"alertstate": "State", "alertname": "Alert"}, title="Alerts evaluated on the nodes",
        series="coldplate_alert", matchers="", what="Alerts that are pending or firing on the nodes themselves.",
        good="as on the server: an alert that only one of them shows is a rule that the other lacks.", size=(8, 8)),
)  # fmt: skip
