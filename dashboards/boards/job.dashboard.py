"""Job: do its GPUs work alike, which one is behind, and why."""

from dashboards.board import Board
from dashboards.panels import YES_NO, Column, bars, graph, heat, stat, table
from dashboards.rulebook import steps
from dashboards.shapes import HARMFUL, of_job, per_gpu

NONE = (("green", None), ("red", 1))
BEHIND = (("red", None), ("orange", 0.7), ("green", 0.85))
SPREAD = (("green", None), ("orange", 0.5))
RATE = "[$__rate_interval]"
MEMORY = "coldplate_gpu_memory_used_bytes / coldplate_gpu_memory_total_bytes"
PCIE = "coldplate_gpu_pcie_link_width / coldplate_gpu_pcie_link_width_max"
CLOCK = of_job('coldplate_gpu_clock_mean_hertz{domain="sm"}')
POWER = of_job("coldplate_gpu_power_mean_watts")
BUSY = of_job("coldplate_gpu_utilization_mean_ratio")

dashboard = Board(
    "job",
    "Do the GPUs of the job work alike, which is behind, and why? GPUs that jobs share, and MIG instances, are left "
    "out.",
)
dashboard.row("Do its GPUs work alike?")
dashboard.add(
    stat("count(gpu:job_info:exclusive)", "the number that the job asked for.", title="GPUs",
        what="GPUs that the job holds alone."),
    stat("count(count by (instance) (gpu:job_info:exclusive))", "the number that the job asked for.", title="Nodes",
        what="Nodes on which the job holds GPUs."),
    stat(f"avg({BUSY})", "above 90% in training.", title="Mean utilization", trend=True),
    stat(f"max({BUSY}) - min({BUSY})", "small: GpuImbalance begins at half.", title="Spread of utilization",
        what="Utilization of the busiest less that of the idlest GPU, means of a minute.", limits=SPREAD, trend=True),
    stat(f"min({POWER}) / quantile(0.5, {POWER})", "above 85%.", title="Weakest over median",
        what="Power of the GPU that draws least over the median: who draws little computes slowly, or not at all.",
        unit="percentunit", limits=BEHIND),
    stat(f"sum({of_job('increase(coldplate_gpu_energy_joules_total[$__range])')})", "in proportion to the work done.",
        title="Energy in this range", unit="joule"),
    bars([(f"max by (instance, gpu) ({BUSY})")], "bars of one length.", title="Utilization", size=(12, 9)),
    bars([(f"max by (instance, gpu) ({POWER})")], "bars of one length.", title="Power", size=(12, 9)),
)  # fmt: skip
dashboard.row("Which one is behind, and why?")
dashboard.add(
    table("Cause", [
        Column("Busy", per_gpu("max", BUSY)),
        Column("Power/median", f"{per_gpu('max', POWER)} / scalar(quantile(0.5, {POWER}))", unit="percentunit",
            limits=BEHIND),
        Column("Clock/median", f"{per_gpu('max', CLOCK)} / scalar(quantile(0.5, {CLOCK}))", unit="percentunit",
            limits=(("red", None), ("orange", 0.9), ("green", 0.97))),
        Column("Throttled", per_gpu("max", of_job(f"rate(coldplate_gpu_throttle_seconds_total{{{HARMFUL}}}{RATE})")),
            limits=steps("GpuSoftwareThermalThrottle", "GpuHardwareThermalThrottle")),
        Column("Margin", per_gpu("min", of_job("coldplate_gpu_temperature_margin_celsius")), limits=steps("GpuHot")),
        Column("PCIe lanes", per_gpu("min", of_job(PCIE)), unit="percentunit", limits=(("orange", None), ("green", 1))),
        Column("NVLinks down", per_gpu("sum", of_job("1 - coldplate_nvlink_up")), unit="short", limits=NONE),
        Column("Remap", per_gpu("max", of_job("coldplate_gpu_row_remap_pending")), unit="short", mapped=YES_NO),
        Column("XIDs, 1 h", per_gpu("sum", of_job("increase(coldplate_gpu_xids_total[1h])")), unit="short",
            limits=(("green", None), ("orange", 1))),
        Column("Memory", per_gpu("max", of_job(MEMORY)), unit="percentunit"),
    ], "nothing but green. A GPU that is behind with all else green gets too little work: look at the job.",
        what="Each GPU of the job with what can hold it back.", labels={"instance": "Node", "gpu": "GPU"}, size=(24,
        10), links=(("Node", "node"),), sort="Power/median", descending=False),
)  # fmt: skip
dashboard.row("Side by side")
dashboard.add(
    heat([(of_job("coldplate_gpu_utilization_ratio"), "{{instance}} GPU {{gpu}}")],
        "rows alike: a dark row among bright ones is the straggler.", max=1, unit="percentunit"),
    graph([(of_job("coldplate_gpu_power_watts"), "{{instance}} GPU {{gpu}}")],
        "one band. All at full utilization and a fifth of the limit: they wait for one."),
    graph([(of_job("coldplate_gpu_sm_active_ratio"), "{{instance}} GPU {{gpu}}")], "one band.", span=(0, 1), size=(8,
        8), quiet=True),
    graph([(of_job("coldplate_gpu_tensor_active_ratio"), "{{instance}} GPU {{gpu}}")], "one band, above 0 in training.",
        span=(0, 1), size=(8, 8), quiet=True),
    graph([(of_job("coldplate_gpu_dram_active_ratio"), "{{instance}} GPU {{gpu}}")], "one band.", span=(0, 1), size=(8,
        8), quiet=True),
    graph([(of_job(f"max by (instance, gpu, uuid) (rate(coldplate_gpu_throttle_seconds_total{{{HARMFUL}}}{RATE}))"),
        "{{instance}} GPU {{gpu}}")], "0.", title="Throttled time", size=(8, 8), quiet=True),
    graph([(CLOCK, "{{instance}} GPU {{gpu}}")], "one band.", title="SM clock, mean of a minute", size=(8, 8),
        quiet=True),
    graph([(of_job(f"rate(coldplate_gpu_nvlink_transmit_bytes_total{RATE})"), "{{instance}} GPU {{gpu}}")],
        "one band; silence at full utilization is a collective that never completes.", title="NVLink, sent", size=(8,
        8), quiet=True),
    graph([(of_job("coldplate_gpu_memory_used_bytes"), "{{instance}} GPU {{gpu}}")], "flat.", size=(8, 8), quiet=True),
    graph([(of_job(f"rate(coldplate_gpu_pcie_receive_bytes_total{RATE})"), "{{instance}} GPU {{gpu}}")],
        "low in training; high with idle GPUs is a data loader.", title="PCIe, received", size=(8, 8), quiet=True),
    graph([(f"sum({of_job('coldplate_gpu_power_watts')})", "power")], "as flat as the job.", title="Power of the job",
        size=(8, 8), few=True),
)  # fmt: skip
dashboard.row("What it has had")
dashboard.add(
    table("The job", [Column("Nodes", "count by (scheduler, job_id, user, name) (count by (instance, scheduler, "
        "job_id, user, name) (coldplate_gpu_job_info))", unit="short")], "the job that you meant.",
        labels={"job_id": "Job", "name": "Name", "user": "User", "scheduler": "Scheduler"}, size=(8, 6)),
    stat("min(coldplate_job_start_timestamp_seconds) * 1000", "when you started it.", title="Began", size=(4, 6),
        unit="dateTimeFromNow"),
    stat("sum(coldplate_job_energy_joules_total)", "in proportion to the work done.", title="Energy so far", size=(4,
        6)),
    table("Firing alerts", [Column("Alerts",
        'count by (alertname, severity, instance, gpu) (ALERTS{alertstate="firing", job_id="$job"})', unit="short")],
        "empty.", what="Alerts about this job on the server.", labels={"severity": "Severity", "alertname": "Alert",
        "instance": "Node", "gpu": "GPU"}, links=(("Node", "node"),), size=(8, 6), sort="Severity"),
)  # fmt: skip
