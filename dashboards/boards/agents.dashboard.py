"""coldplate itself: can what the other boards show be believed."""

from dashboards.board import Board
from dashboards.panels import UP_DOWN, Column, alerts, graph, stat, states, table
from dashboards.rulebook import steps

NONE = (("green", None), ("red", 1))
FEW = (("green", None), ("orange", 1))
RATE = "[$__rate_interval]"
SERVED = f"rate(coldplate_ticks_total{RATE})"
MISSED = f"rate(coldplate_ticks_missed_total{RATE})"

dashboard = Board(
    "agents", "Can the other boards be believed: do all agents sample, see what they should, judge and tell?"
)
dashboard.row("Can it be believed?")
dashboard.add(
    stat('count(up{job=~".*coldplate.*"} == 0) or vector(0)', "0.", title="Agents down",
        what="Agents that the server cannot scrape.", limits=NONE),
    stat("max(coldplate_sample_age_seconds)", "below the limit of SamplerStalled.", title="Oldest sample",
        limits=steps("SamplerStalled")),
    stat('count(coldplate_metric_missing{reason=~"denied|malformed|implausible"} == 1) or vector(0)', "0.",
        title="Missing without need",
        what="Series that are absent though the hardware has them: a permission, a file or a sensor is wrong.",
        limits=FEW),
    stat("round(sum(increase(coldplate_worker_restarts_total[1h])))", "0.", title="Worker restarts, 1 h", unit="short",
        limits=FEW, decimals=0),
    stat("round(sum(increase(coldplate_rule_evaluation_failures_total[1h])))", "0.", title="Rule failures, 1 h",
        unit="short", limits=NONE, decimals=0),
    stat("sum(coldplate_notifications_queued) or vector(0)", "0, but for seconds.", title="Alerts that wait",
        what="Alerts that wait to be delivered.", limits=FEW),
    stat("count(coldplate_build_info)", "the number of your nodes.", title="Agents", trend=True),
    stat("count(coldplate_synthetic_info) or vector(0)", "0: nothing that a synthetic node shows is real.",
        title="Synthetic nodes", limits=FEW),
    stat("count(coldplate_config_last_reload_successful == 0) or vector(0)", "0.", title="Refused configurations",
        what="Agents that keep an older configuration because the new one cannot be used.", limits=NONE),
    stat("count(count by (version) (coldplate_build_info))", "1: all agents are of one version.", title="Versions",
        limits=(("green", None), ("orange", 2))),
    stat(f"max(sum by (instance) (rate(coldplate_process_cpu_seconds_total{RATE})))", "below 4% of a core.",
        title="Dearest agent, processor", limits=(("green", None), ("orange", 0.1))),
    stat("max(sum by (instance) (coldplate_process_resident_memory_bytes))", "below 100 MiB.",
        title="Dearest agent, memory", limits=(("green", None), ("orange", 104857600))),
)  # fmt: skip
dashboard.row("Sampling")
dashboard.add(
    graph("topk(20, coldplate_sample_age_seconds)", "at most the sampling interval and a little.",
        legend="{{instance}}", title="Sample age, the oldest", limits=steps("SamplerStalled"), size=(8, 8), few=True),
    graph([(f"topk(20, {MISSED} / ({SERVED} + {MISSED}))", "{{instance}}")], "0.", title="Missed ticks",
        unit="percentunit", size=(8, 8), few=True),
    graph([("topk(20, coldplate_backend_duration_seconds)", "{{instance}} {{backend}}")],
        "a small part of the sampling interval.", title="Time of a read, the slowest", size=(8, 8), few=True),
    states([("min by (instance, backend) (coldplate_backend_up)", "{{instance}} {{backend}}")],
        "all up; hardware that is absent has no row.", title="Backends", mapped=UP_DOWN),
    table("What each backend found", [Column("Nodes", "count by (backend, outcome) (coldplate_backend_info == 1)",
        unit="short")], "ok, or absent where there is no such hardware; never failed.", labels={"backend": "Backend",
        "outcome": "Outcome"}, size=(12, 8), sort="+Outcome"),
)  # fmt: skip
dashboard.row("What is missing, and why")
dashboard.add(
    table("Missing metrics", [Column("Series", "count by (metric, reason) (coldplate_metric_missing == 1)",
        unit="short")], "unsupported at most: that hardware or driver does not offer it.",
        what="Metrics that are absent somewhere, with the reason.", labels={"reason": "Reason", "metric": "Metric"},
        size=(12, 9), sort="Series"),
    table("Nodes that miss something", [Column("Series",
        'topk(50, count by (instance, reason) (coldplate_metric_missing{reason!="unsupported"} == 1))', unit="short")],
        "empty.", what="Nodes with series that are denied, malformed, implausible, lost or silent.",
        labels={"instance": "Node", "reason": "Reason"}, links=(("Node", "node"),), size=(6, 9), sort="Series"),
    graph([(f"sum by (backend, cause) (rate(coldplate_readings_rejected_total{RATE}))")],
        "0 or no data: no sensor says nonsense.", title="Readings rejected", size=(6, 9), few=True),
)  # fmt: skip
dashboard.row("The worker and the cost")
dashboard.add(
    graph([("topk(20, increase(coldplate_worker_restarts_total[10m])) > 0", "{{instance}}")], "empty.",
        title="Worker restarts in 10 minutes", unit="short", limits=steps("WorkerRestarting"), size=(8, 8), few=True),
    graph([(f"topk(20, sum by (instance, process) (rate(coldplate_process_cpu_seconds_total{RATE})))")],
        "flat, some percent of one core.", title="Processor time of agents", size=(8, 8), few=True),
    graph([("topk(20, sum by (instance, process) (coldplate_process_resident_memory_bytes))")], "flat.",
        title="Memory of agents", size=(8, 8), few=True),
)  # fmt: skip
dashboard.row("Rules and notifications")
dashboard.add(
    graph([(f"sum by (rule_group) (rate(coldplate_rule_evaluations_total{RATE}))")],
        "flat: every group is evaluated in its rhythm.", title="Rules evaluated", size=(8, 8), few=True),
    graph([(f"topk(10, avg by (rule_group) (rate(coldplate_rule_evaluation_seconds_total{RATE})))")],
        "a few thousandths of a core.", title="Time on rules, a node", size=(8, 8), few=True),
    graph([("sum by (instance, rule_group) (increase(coldplate_rule_evaluation_failures_total[5m])) > 0")], "empty.",
        title="Rule failures", unit="short", size=(8, 8), few=True),
    graph([(f"sum by (notifier) (rate(coldplate_notifications_total{RATE}))", "{{notifier}} delivered"),
        (f"sum by (notifier) (rate(coldplate_notifications_dropped_total{RATE}))", "{{notifier}} dropped"),
        (f"sum by (notifier) (rate(coldplate_notification_failures_total{RATE}))", "{{notifier}} failed attempts")],
        "nothing dropped.", title="Notifications", size=(8, 8), few=True),
    graph("topk(20, coldplate_notifications_queued)", "0 but for seconds.", title="Alerts that wait",
        legend="{{instance}} {{notifier}}", size=(8, 8), few=True),
    alerts({"alertstate": "State", "alertname": "Alert"}, title="Alerts that nodes tell", series="coldplate_alert",
        matchers="", what="Alerts that fire or wait on the nodes themselves.",
        good="as on the server: what only one of the two shows is a rule that one of them lacks.", size=(8, 8)),
)  # fmt: skip
