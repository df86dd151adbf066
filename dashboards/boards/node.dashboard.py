"""Node: is each GPU well, does it do true work, and what holds it back."""

from dashboards.alert_thresholds import steps
from dashboards.board import Board
from dashboards.panels import NONE, graph, heatmap, small_graph, stat
from dashboards.queries import ITS_GPUS, RATE, THROTTLED
from dashboards.tables import TableColumn, alerts, table

MARGIN = steps("GpuHot.margin")
THROTTLE = steps("GpuThrottled")
STATES = ((0, "lost", "red"), (0.5, "behind", "orange"), (1, "up", "transparent"))
REMAPS = ((2, "failed", "red"), (1, "pending", "orange"), (0, "no", "green"))


def per_gpu(operator: str, expr: str) -> str:
    """Return one value for each GPU of the node."""
    return f"{operator} by (gpu) ({expr})"


UP = per_gpu("min", "coldplate_gpu_up")
AWAITED = per_gpu("max", 'rate(coldplate_gpu_state_seconds_total{state="awaited"}[2m])')
BUSY = f"coldplate_gpu_utilization_mean_ratio * on (instance, gpu, uuid) group_left (job_id) {ITS_GPUS}"
LAGGING = f"{BUSY} < on (job_id) group_left () (quantile by (job_id) (0.5, {BUSY}) - 0.5)"
STATE = f"0.5 * ({UP} == 1 and on (gpu) ({AWAITED} > 0.4 or {LAGGING})) or {UP}"
"""0 for a lost GPU; a half for one that others wait for, or that is much less busy than the median of its job."""
PENDING = per_gpu("max", "coldplate_gpu_row_remap_pending")
REMAP = f"2 * {per_gpu('max', 'coldplate_gpu_row_remap_failure == 1')} or {PENDING}"
PCIE = f"rate(coldplate_gpu_pcie_transmit_bytes_total{RATE}) + rate(coldplate_gpu_pcie_receive_bytes_total{RATE})"

dashboard = Board("node", "Is each GPU of the node healthy, does it do useful work, and what slows it down?")
dashboard.row("Is the node healthy?")
dashboard.add(
    stat("sum(coldplate_gpu_up)", "as many as expected.", title="GPUs up", limits=(("red", None), ("green", 1)),
        size=(6, 4)),
    stat('max(coldplate_gpus_expected) - sum(coldplate_gpu_up{gpu!=""})', "0.", title="GPUs missing",
        what="GPUs that the node should have but that do not answer.", limits=NONE, size=(6, 4)),
    stat("max(coldplate_node_power_watts)", "below the node's share of its rack's budget.", title="Node power",
        trend=True, size=(6, 4)),
    stat("min(coldplate_gpu_temperature_margin_celsius)", "green: more degrees left than the threshold of GpuHot.",
        title="Least margin", limits=MARGIN, trend=True, size=(6, 4)),
    alerts({"alertname": "Alert", "gpu": "GPU", "device": "Port"},
        what="Alerts about this node, without those that are effects of others.", size=(24, 7), explained=True),
    table("GPUs", [
        TableColumn("State", STATE, unit="short", mapped=STATES, row=True),
        TableColumn("Busy", per_gpu("max", "coldplate_gpu_utilization_mean_ratio")),
        TableColumn("SM active", per_gpu("max", "coldplate_gpu_sm_active_mean_ratio")),
        TableColumn("Tensor", per_gpu("max", "coldplate_gpu_tensor_active_mean_ratio")),
        TableColumn("Clock", per_gpu("max", 'coldplate_gpu_clock_mean_hertz{domain="sm"}')),
        TableColumn("Power", per_gpu("max", "coldplate_gpu_power_mean_watts")),
        TableColumn("Peak", per_gpu("max", "coldplate_gpu_power_max_watts")),
        TableColumn("Margin", per_gpu("min", "coldplate_gpu_temperature_margin_celsius"), limits=MARGIN),
        TableColumn("Mem. temp", per_gpu("max", "coldplate_gpu_memory_temperature_celsius"),
            limits=steps("GpuHot.memory")),
        TableColumn("Throttled", per_gpu("max", THROTTLED),
            limits=THROTTLE),
        TableColumn("Memory", per_gpu("max", "coldplate_gpu_memory_used_bytes / coldplate_gpu_memory_total_bytes"),
            unit="percentunit"),
        TableColumn("PCIe", per_gpu("sum", PCIE)),
        TableColumn("Remap", REMAP, unit="short", mapped=REMAPS),
        TableColumn("XIDs, 1 h", per_gpu("sum", "round(increase(coldplate_gpu_xids_total[1h]))"), unit="short",
            limits=(("green", None), ("orange", 1)), zero=True, decimals=0),
        TableColumn("Links down", per_gpu("sum", "1 - coldplate_nvlink_up"), unit="short", limits=NONE),
    ], "all green, and GPUs of one job equal.",
        what="Each GPU of the node now, lost ones first, then those that are behind the others of their job (an "
        "orange row); means of a minute.",
        labels={"gpu": "GPU"}, size=(24, 11), rows=per_gpu("max", "coldplate_gpu_up"), sort=("+State", "+GPU")),
)  # fmt: skip
dashboard.row("Useful work")
dashboard.add(
    graph(f"sum by (state) (rate(coldplate_gpu_state_seconds_total{RATE})) > 0",
        "almost all of it computing. Awaited names a GPU that its job's others wait for.",
        title="Where GPU time goes", what="GPUs by what they do, in GPU-seconds a second (docs/jobs.md).",
        unit="short", decimals=1, stack=True, legend="list", size=(24, 8)),
    heatmap("coldplate_gpu_utilization_ratio", "equal rows within a job: a dark row among bright ones is a straggler.",
        unit="percentunit"),
    graph("coldplate_gpu_sm_active_ratio",
        "near the utilization: kernels fill the GPU. Full utilization with a low value here is a GPU that waits.",
        span=(0, 1)),
)  # fmt: skip
dashboard.row("Shared GPUs and MIG instances", collapsed=True)
dashboard.add(
    graph(f"sum by (state) (rate(coldplate_gpu_mig_state_seconds_total{RATE})) > 0",
        "mostly computing. Held is what jobs hold and leave idle; free can be given to others.",
        title="Where the time of instances goes", what="GPU instances by what they do, in seconds a second.",
        unit="short", decimals=1, stack=True, legend="list", size=(24, 8)),
    graph([("coldplate_gpu_mig_sm_active_ratio", "GPU {{gpu}} instance {{gpu_instance}}")],
        "high on each instance that a job holds; one near 0 is not used.", title="SM active by instance",
        what="Share of cycles in which multiprocessors of the GPU instance had work (Hopper and newer).",
        span=(0, 1)),
    graph([("coldplate_gpu_mig_memory_used_bytes", "GPU {{gpu}} instance {{gpu_instance}}")],
        "flat while a job runs; steady growth ends in an out-of-memory error.", title="Memory by instance"),
    graph([("max by (gpu, job_id, pod) (coldplate_gpu_job_sm_ratio)", "GPU {{gpu}} job {{job_id}} {{pod}}")],
        "a share for each job that runs; one at 0 waits for its turn, or has nothing to do.", title="SM time by job",
        what="Share of time in which kernels of each job ran, on GPUs that several jobs share.", span=(0, 1)),
    graph([("sum by (gpu, job_id, pod) (coldplate_gpu_job_memory_used_bytes)", "GPU {{gpu}} job {{job_id}} {{pod}}")],
        "below the GPU's memory together; a job that grows takes it from the others.", title="Memory by job",
        what="Device memory of each job, where the driver says it of all its processes."),
)  # fmt: skip
dashboard.row("Power")
dashboard.add(
    graph([("coldplate_gpu_power_watts"), ("max(coldplate_gpu_power_limit_watts)", "limit")],
        "busy GPUs near the dashed limit, and equal: full utilization far below it is waiting.", lines=("^limit$",)),
    graph([("coldplate_node_power_watts"), ("coldplate_node_power_max_watts", "{{source}}, highest of the minute"),
        ("sum(coldplate_gpu_power_watts)", "GPUs together")],
        "about a third above the GPUs together; more is fans and processors.", title="Node power",
        what="Power of the node by source, and of its GPUs.", legend="list"),
)  # fmt: skip
dashboard.row("Heat and throttling")
dashboard.add(
    graph("coldplate_gpu_temperature_margin_celsius", "above the dashed threshold of GpuHot.", limits=MARGIN),
    graph(f"max by (gpu, reason) ({THROTTLED}) > 0", "empty: these reasons slow work down.",
        title="Throttled time by reason", limits=THROTTLE),
)  # fmt: skip
dashboard.row("Memory")
dashboard.add(
    graph("coldplate_gpu_memory_used_bytes", "flat while a job runs; steady growth ends in an out-of-memory error."),
    graph(f"sum by (gpu, type) (rate(coldplate_gpu_ecc_errors_total{RATE})) > 0",
        "empty; uncorrected errors lose data."),
)  # fmt: skip
dashboard.row("Faults")
dashboard.add(
    table("XIDs", [TableColumn("Times", "max by (gpu, xid) (coldplate_gpu_xid_errors_total > 0)", unit="short"),
        TableColumn("Last", "max by (gpu, xid) (coldplate_gpu_xid_last_timestamp_seconds) * 1000",
            unit="dateTimeFromNow")],
        "empty. The runbooks of the alerts GpuXid* say what to do for each code.", labels={"gpu": "GPU", "xid": "XID"},
        rows="max by (gpu, xid) (coldplate_gpu_xid_errors_total > 0)", sort="Last", size=(12, 9)),
    table("Requested recovery action", [TableColumn("Requested",
        'max by (gpu, action) (coldplate_gpu_recovery_action{action!="none"} == 1)', unit="short")], "empty.",
        none="none, or not reported", labels={"gpu": "GPU", "action": "Action"}, size=(12, 9), sort="+GPU"),
)  # fmt: skip
dashboard.row("Links", collapsed=True)
dashboard.add(
    graph(f"sum by (gpu) (rate(coldplate_gpu_nvlink_transmit_bytes_total{RATE}))",
        "equal for GPUs of a data-parallel job.", title="NVLink, sent"),
    graph(f"8 * sum by (device, port) (rate(coldplate_infiniband_port_data_transmitted_bytes_total{RATE}))",
        "depends on how the job uses its rails; they need not be equal.", title="InfiniBand, sent", unit="bps"),
)  # fmt: skip
dashboard.row("Host")
dashboard.add(
    small_graph(f'sum by (mode) (rate(coldplate_node_cpu_seconds_total{{mode!="idle"}}{RATE})) / '
        'scalar(max(coldplate_node_cpus))', "headroom left; high iowait with idle GPUs means slow storage.",
        title="Processors", unit="percentunit", stack=True),
    small_graph([("coldplate_node_memory_used_bytes", "used"), ("coldplate_node_memory_total_bytes", "total"),
        ("coldplate_node_swap_used_bytes", "swap")], "below the dashed total, and no swap.",
        title="Memory of the node", what="Memory in use and total.", lines=("^total$", )),
    small_graph([(f'clamp_max(rate(coldplate_node_pressure_waiting_seconds_total{RATE}), 1)', "{{resource}}")],
        "near 0: nothing waits for processors, memory or storage.", title="Pressure", span=(0, None)),
)  # fmt: skip
