"""Job: do its GPUs work alike, which one is behind, and why."""

from dashboards.alert_thresholds import steps
from dashboards.board import Board
from dashboards.panels import NONE, YES_NO, bar_gauge, graph, heatmap, small_graph, stat
from dashboards.queries import ITS_GPUS, RATE, THROTTLED, alerts_of_job, count_of, held, of_job, per_gpu
from dashboards.tables import TableColumn, alerts, table

BEHIND = (("red", None), ("orange", 0.7), ("green", 0.85))
SPREAD = (("green", None), ("orange", 0.5))
MEMORY = "coldplate_gpu_memory_used_bytes / coldplate_gpu_memory_total_bytes"
PCIE = "coldplate_gpu_pcie_link_width / coldplate_gpu_pcie_link_width_max"
CLOCK = of_job('coldplate_gpu_clock_mean_hertz{domain="sm"}')
POWER = of_job("coldplate_gpu_power_mean_watts")
BUSY = of_job("coldplate_gpu_utilization_mean_ratio")

HELD = held("$__range")
UP = f"{HELD} * on (instance, gpu) min by (instance, gpu) (coldplate_gpu_up)"
LOST = ((0, "lost", "red"), (1, "up", "green"))


def share(expr: str, of: str) -> str:
    """Return each GPU's value as a share of the job's; a lost one has a bar without a value."""
    return f"{per_gpu('max', expr)} / scalar({of}) or {HELD} * NaN"


dashboard = Board(
    "job", "Do the GPUs of the job work equally, which one lags, and why? Excludes shared GPUs and MIG instances."
)
dashboard.row("Do its GPUs work equally?")
dashboard.add(
    stat(f"count({HELD})", "the number that the job requested.", title="GPUs",
        what="GPUs that the job holds exclusively, or held when they were lost.", size=(3, 4)),
    stat(count_of(f"{UP} == 0", UP), "0.", title="GPUs lost", what="GPUs of the job that do not answer.",
        limits=NONE, size=(3, 4)),
    stat(f"count(count by (instance) ({ITS_GPUS}))", "the number that the job requested.", title="Nodes",
        what="Nodes on which the job holds GPUs.", size=(3, 4)),
    stat(f"avg({BUSY})", "above 90% in training.", title="Mean utilization", trend=True, size=(4, 4)),
    stat(f"max({BUSY}) - min({BUSY})", "small: GpuImbalance starts at half.", title="Spread of utilization",
        what="Utilization of the busiest minus that of the idlest GPU, means of a minute.", limits=SPREAD, trend=True,
        size=(4, 4)),
    stat(f"min({POWER}) / quantile(0.5, {POWER})", "above 85%.", title="Weakest GPU",
        what="Lowest GPU power divided by the median: a GPU that draws little computes slowly, or not at all.",
        unit="percentunit", limits=BEHIND, size=(3, 4)),
    stat(f"sum({of_job('increase(coldplate_gpu_energy_joules_total[$__range])')}) / 3600",
        "in proportion to the work done.", title="Energy in this range", unit="watth", size=(4, 4)),
    alerts({"alertname": "Alert", "instance": "Node", "gpu": "GPU"}, among=alerts_of_job("$__range"),
        what="Alerts about this job, its GPUs and its nodes.", size=(24, 7), explained=True),
    bar_gauge([(share(BUSY, f"max({BUSY})"), "{{instance}} GPU {{gpu}}")], "long, green bars.",
        title="Utilization, share of the busiest", what="Utilization of each GPU divided by that of the busiest, means "
        "of a minute. A red bar is a laggard.", unit="percentunit", limits=BEHIND, absent="lost", size=(12, 10)),
    bar_gauge([(share(POWER, f"quantile(0.5, {POWER})"), "{{instance}} GPU {{gpu}}")], "long, green bars.",
        title="Power, share of the median", what="Power of each GPU divided by the median, means of a minute. A red "
        "bar is a GPU that computes slowly, or not at all.", unit="percentunit", limits=BEHIND, absent="lost",
        size=(12, 10)),
)  # fmt: skip
dashboard.row("Which one lags, and why?")
dashboard.add(
    table("Cause", [
        TableColumn("State", UP, unit="short", mapped=LOST),
        TableColumn("Busy", per_gpu("max", BUSY)),
        TableColumn("Power/median", f"{per_gpu('max', POWER)} / scalar(quantile(0.5, {POWER}))", unit="percentunit",
            limits=BEHIND),
        TableColumn("Clock/median", f"{per_gpu('max', CLOCK)} / scalar(quantile(0.5, {CLOCK}))", unit="percentunit",
            limits=(("red", None), ("orange", 0.9), ("green", 0.97))),
        TableColumn("Throttled", per_gpu("max", of_job(THROTTLED)),
            limits=steps("GpuThrottled")),
        TableColumn("Margin", per_gpu("min", of_job("coldplate_gpu_temperature_margin_celsius")),
            limits=steps("GpuHot.margin")),
        TableColumn("PCIe lanes", per_gpu("min", of_job(PCIE)), unit="percentunit",
            limits=(("orange", None), ("green", 1))),
        TableColumn("NVLinks down", per_gpu("sum", of_job("1 - coldplate_nvlink_up")), unit="short", limits=NONE),
        TableColumn("Remap", per_gpu("max", of_job("coldplate_gpu_row_remap_pending")), unit="short", mapped=YES_NO),
        TableColumn("XIDs, 1 h", per_gpu("sum", "round(increase(coldplate_gpu_xids_total[1h]))")
            + f" * on (instance, gpu) {HELD}", unit="short", limits=(("green", None), ("orange", 1)), zero=True,
            decimals=0),
        TableColumn("Memory", per_gpu("max", of_job(MEMORY)), unit="percentunit"),
    ], "all green. A GPU that lags while all else is green gets too little work: look at the job.",
        what="Each GPU of the job with what can slow it down; lost ones first.",
        labels={"instance": "Node", "gpu": "GPU"}, size=(24, 12), rows=HELD, sort=("+State", "+Power/median")),
)  # fmt: skip
dashboard.row("Side by side")
dashboard.add(
    graph('sum by (state) (rate(coldplate_job_gpu_seconds_total{job_id="$job"}[$__rate_interval])) > 0',
        "almost all of it computing. Waiting without awaited: the cause is on another node.",
        title="Where the job's GPU time goes", what="The job's GPUs by what they do, in GPU-seconds a second.",
        unit="short", decimals=1, stack=True, legend="list", size=(24, 8)),
    heatmap([(of_job("coldplate_gpu_utilization_ratio"), "{{instance}} GPU {{gpu}}")],
        "equal rows: a dark row among bright ones is the straggler.", unit="percentunit"),
    graph([(of_job("coldplate_gpu_power_watts"), "{{instance}} GPU {{gpu}}")],
        "one band. All at full utilization and a fifth of the limit means that they wait for one.",
        legend="hidden"),
    small_graph([(of_job("coldplate_gpu_sm_active_ratio"), "{{instance}} GPU {{gpu}}")], "one band.", span=(0, 1),
        legend="hidden"),
    small_graph([(of_job("coldplate_gpu_tensor_active_ratio"), "{{instance}} GPU {{gpu}}")],
        "one band, above 0 in training.", span=(0, 1), legend="hidden"),
    small_graph([(of_job("coldplate_gpu_dram_active_ratio"), "{{instance}} GPU {{gpu}}")], "one band.", span=(0, 1),
        legend="hidden"),
    small_graph(of_job(f"max by (instance, gpu, uuid) ({THROTTLED})"), "0.", title="Throttled time", legend="hidden"),
    small_graph([(CLOCK, "{{instance}} GPU {{gpu}}")], "one band.", title="SM clock, mean of a minute",
        legend="hidden"),
    small_graph([(of_job(f"rate(coldplate_gpu_nvlink_transmit_bytes_total{RATE})"), "{{instance}} GPU {{gpu}}")],
        "one band; no traffic at full utilization is a collective that never completes.", title="NVLink transmit rate",
        legend="hidden"),
    small_graph([(of_job("coldplate_gpu_memory_used_bytes"), "{{instance}} GPU {{gpu}}")], "flat.", legend="hidden"),
    small_graph([(of_job(f"rate(coldplate_gpu_pcie_receive_bytes_total{RATE})"), "{{instance}} GPU {{gpu}}")],
        "low in training; high with idle GPUs is a data loader.", title="PCIe receive rate", legend="hidden"),
    small_graph([(f"sum({of_job('coldplate_gpu_power_watts')})", "power")], "as flat as the job.",
        title="Power of the job"),
)  # fmt: skip
dashboard.row("History of the job")
dashboard.add(
    table("The job", [TableColumn("Nodes", "count by (scheduler, job_id, user, name, account, partition) "
        "(coldplate_job_info)", unit="short")], "the job that you selected.",
        labels={"job_id": "Job", "name": "Name", "user": "User", "account": "Account",
        "partition": "Partition", "scheduler": "Scheduler"}, size=(24, 5)),
    stat("min(coldplate_job_start_timestamp_seconds) * 1000", "when you started it.", title="Started", size=(12, 4),
        unit="dateTimeFromNow", none="unknown: no process of the job runs, and its scheduler reports no start time"),
    stat("sum(coldplate_job_energy_joules_total) / 3600", "in proportion to the work done.", title="Energy so far",
        unit="watth", size=(12, 4), none="unknown: the job has no GPU of its own with an energy counter"),
)  # fmt: skip
