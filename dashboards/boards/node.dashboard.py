"""Node: is each GPU well, does it do true work, and what holds it back."""

from dashboards.alert_thresholds import steps
from dashboards.board import Board
from dashboards.panels import UP_DOWN, YES_NO, TableColumn, alerts, graph, heatmap, stat, state_timeline, table
from dashboards.queries import HARMFUL, THROTTLED

NONE = (("green", None), ("red", 1))
MARGIN = steps("GpuHot")
THROTTLE = steps("GpuThrottled")
LOST = ((0, "lost", "red"), (1, "up", "green"))
ON_OFF = ((1, "held down", "red"), (0, "free", "green"))
RATE = "[$__rate_interval]"


def per_gpu(operator: str, expr: str) -> str:
    """One value for each GPU of the node."""
    return f"{operator} by (gpu) ({expr})"


dashboard = Board("node", "Is each GPU of the node healthy, does it do useful work, and what slows it down?")
dashboard.row("Is the node healthy?")
dashboard.add(
    stat("sum(coldplate_gpu_up)", "as many as expected.", title="GPUs up", limits=(("red", None), ("green", 1))),
    stat('max(coldplate_gpus_expected) - sum(coldplate_gpu_up{gpu!=""})', "0.", title="GPUs missing",
        what="GPUs that the node should have but that do not answer.", limits=NONE),
    stat('count(ALERTS{alertstate="firing"}) or vector(0)', "0.", title="Firing alerts",
        what="Alerts about this node on the server.", limits=NONE),
    stat("max(coldplate_node_power_watts)", "below the node's share of its rack's budget.", title="Node power",
        trend=True),
    stat("min(coldplate_gpu_temperature_margin_celsius)", "green: more degrees left than the threshold of GpuHot.",
        title="Least margin", limits=MARGIN, trend=True),
    stat(f"max({per_gpu('max', THROTTLED)})", "0.",
        title="Most throttled GPU",
        what="Share of time in which heat, a power brake or another cause reduced the clocks of the worst GPU.",
        limits=THROTTLE, decimals=1),
    table("GPUs", [
        TableColumn("State", per_gpu("min", "coldplate_gpu_up"), unit="short", mapped=LOST),
        TableColumn("Busy", per_gpu("max", "coldplate_gpu_utilization_mean_ratio")),
        TableColumn("SM active", per_gpu("max", "coldplate_gpu_sm_active_mean_ratio")),
        TableColumn("Tensor", per_gpu("max", "coldplate_gpu_tensor_active_mean_ratio")),
        TableColumn("Power", per_gpu("max", "coldplate_gpu_power_mean_watts")),
        TableColumn("Peak", per_gpu("max", "coldplate_gpu_power_max_watts")),
        TableColumn("Margin", per_gpu("min", "coldplate_gpu_temperature_margin_celsius"), limits=MARGIN),
        TableColumn("Throttled", per_gpu("max", THROTTLED),
            limits=THROTTLE),
        TableColumn("Memory", per_gpu("max", "coldplate_gpu_memory_used_bytes / coldplate_gpu_memory_total_bytes"),
            unit="percentunit"),
        TableColumn("Remap", per_gpu("max", "coldplate_gpu_row_remap_pending"), unit="short", mapped=YES_NO),
        TableColumn("XIDs, 1 h", per_gpu("sum", "round(increase(coldplate_gpu_xids_total[1h]))"), unit="short",
            limits=(("green", None), ("orange", 1)), zero=True, decimals=0),
        TableColumn("Links down", per_gpu("sum", "1 - coldplate_nvlink_up"), unit="short", limits=NONE),
    ], "all green, and GPUs of one job equal.",
        what="Each GPU of the node now, lost ones first; means of a minute.",
        labels={"gpu": "GPU"}, size=(24, 11), rows=per_gpu("max", "coldplate_gpu_up"), sort=("+State", "+GPU")),
)  # fmt: skip
dashboard.row("Useful work")
dashboard.add(
    graph([(f"sum by (state) (rate(coldplate_gpu_state_seconds_total{RATE})) > 0", "{{state}}")],
        "almost all of it computing. Awaited names a GPU that its job's others wait for.",
        title="Where GPU time goes", what="GPUs by what they do, in GPU-seconds a second (docs/jobs.md).",
        unit="short", stack=True, few=True, size=(24, 8)),
    heatmap("coldplate_gpu_utilization_ratio", "equal rows within a job: a dark row among bright ones is a straggler.",
        max=1, unit="percentunit"),
    graph("coldplate_gpu_sm_active_ratio",
        "near the utilization: kernels fill the GPU. Full utilization with a low value here is a GPU that waits.",
        span=(0, 1)),
    graph("coldplate_gpu_tensor_active_ratio", "above 0 if matrices are multiplied; higher is better.", span=(0,
        1), size=(8, 8), few=True),
    graph("coldplate_gpu_dram_active_ratio",
        "high if memory-bound, as in decoding; low with idle tensor cores is waiting.", span=(0, 1),
        size=(8, 8), few=True),
    graph('coldplate_gpu_clock_hertz{domain="sm"}', "equal among GPUs of a job.", title="SM clock",
        legend="GPU {{gpu}}",
        size=(8, 8), few=True),
)  # fmt: skip
dashboard.row("Power")
dashboard.add(
    graph([("coldplate_gpu_power_watts"), ("max(coldplate_gpu_power_limit_watts)", "limit")],
        "busy GPUs near the dashed limit, and equal: full utilization far below it is waiting.", lines=("^limit$",)),
    graph("coldplate_gpu_power_max_watts", "at most at the limit; includes peaks between scrapes.",
        title="GPU power, highest of the rolling minute"),
    graph([("coldplate_node_power_watts"), ("coldplate_node_power_max_watts", "{{source}}, highest of the minute"),
        ("sum(coldplate_gpu_power_watts)", "GPUs together")],
        "about a third above the GPUs together; more is fans and processors.", title="Node power",
        what="Power of the node by source, and of its GPUs.", few=True),
    graph(f"sum by (gpu) (rate(coldplate_gpu_energy_joules_total{RATE}))",
        "same as the power: the GPU itself counts energy, and misses nothing.",
        title="GPU power from the energy counter", stack=True),
)  # fmt: skip
dashboard.row("Heat and throttling")
dashboard.add(
    graph("coldplate_gpu_temperature_margin_celsius", "above the dashed threshold of GpuHot.", limits=MARGIN),
    graph([("coldplate_gpu_temperature_celsius", "GPU {{gpu}}"), ("coldplate_gpu_memory_temperature_celsius",
        "GPU {{gpu}} memory")],
        "steady; slots of one node may differ by 14 degrees. Memory below its threshold of GpuHot.",
        title="Temperature", limits=steps("GpuHot.memory")),
    graph([(f"max by (gpu, reason) ({THROTTLED}) > 0",
        "GPU {{gpu}} {{reason}}")], "empty: these reasons slow work down.", title="Throttled time by reason",
        limits=THROTTLE),
    state_timeline([("max by (gpu, reason) (coldplate_gpu_throttle_active{" + HARMFUL + "} == 1)",
            "GPU {{gpu}} {{reason}}"),
        ("max by (gpu) (coldplate_gpu_hw_slowdown_active == 1)", "GPU {{gpu}} hw_slowdown, any reason")],
        "empty: a GPU has a row only while it is throttled.", title="Throttled now", mapped=ON_OFF),
)  # fmt: skip
dashboard.row("Memory")
dashboard.add(
    graph("coldplate_gpu_memory_used_bytes", "flat while a job runs; steady growth ends in an out-of-memory error.",
        size=(8, 8), few=True),
    graph([(f"sum by (gpu, type) (rate(coldplate_gpu_ecc_errors_total{RATE})) > 0")],
        "empty; uncorrected errors lose data.", size=(8, 8), few=True),
    state_timeline([("coldplate_gpu_row_remap_pending", "GPU {{gpu}} pending"), ("coldplate_gpu_row_remap_failure",
        "GPU {{gpu}} failed")], "all no: pending asks for a reset, failed for a replacement.", title="Row remaps",
        mapped=((1, "yes", "red"), (0, "no", "green")), size=(8, 8)),
)  # fmt: skip
dashboard.row("Faults")
dashboard.add(
    table("XIDs", [TableColumn("Times", "max by (gpu, xid) (coldplate_gpu_xid_errors_total > 0)", unit="short"),
        TableColumn("Last", "max by (gpu, xid) (coldplate_gpu_xid_last_timestamp_seconds) * 1000",
            unit="dateTimeFromNow")],
        "empty. The runbooks of the alerts GpuXid* say what to do for each code.", labels={"gpu": "GPU", "xid": "XID"},
        rows="max by (gpu, xid) (coldplate_gpu_xid_errors_total > 0)", sort="Last", size=(7, 9)),
    table("Requested recovery action", [TableColumn("Requested",
        'max by (gpu, action) (coldplate_gpu_recovery_action{action!="none"} == 1)', unit="short")], "empty.",
        none="none, or not reported", labels={"gpu": "GPU", "action": "Action"}, size=(5, 9), sort="+GPU"),
    alerts({"alertname": "Alert", "gpu": "GPU", "device": "Port"}, what="Alerts about this node on the server.",
        size=(12, 9)),
)  # fmt: skip
dashboard.row("Links")
dashboard.add(
    graph([(f"sum by (gpu) (rate(coldplate_gpu_nvlink_transmit_bytes_total{RATE}))", "GPU {{gpu}} sent"),
        (f"sum by (gpu) (rate(coldplate_gpu_nvlink_receive_bytes_total{RATE}))", "GPU {{gpu}} received")],
        "equal for GPUs of a data-parallel job.", title="NVLink"),
    graph([(f"sum by (gpu) (rate(coldplate_gpu_pcie_transmit_bytes_total{RATE}))", "GPU {{gpu}} sent"),
        (f"sum by (gpu) (rate(coldplate_gpu_pcie_receive_bytes_total{RATE}))", "GPU {{gpu}} received")],
        "low while training; high with idle GPUs is a data loader at work.", title="PCIe"),
    graph([(f"sum by (device, port) (rate(coldplate_infiniband_port_data_transmitted_bytes_total{RATE}))",
        "{{device}}/{{port}} sent"),
        (f"sum by (device, port) (rate(coldplate_infiniband_port_data_received_bytes_total{RATE}))",
        "{{device}}/{{port}} received")], "depends on how the job uses its rails; they need not be equal.",
        title="InfiniBand"),
    state_timeline("coldplate_infiniband_port_up", "all up.", title="InfiniBand ports", mapped=UP_DOWN),
)  # fmt: skip
dashboard.row("Host")
dashboard.add(
    graph([(f'sum by (mode) (rate(coldplate_node_cpu_seconds_total{{mode!="idle"}}{RATE})) / '
        'scalar(max(coldplate_node_cpus))')], "headroom left; high iowait with idle GPUs means slow storage.",
        title="Processors", unit="percentunit", stack=True, size=(8, 8), few=True),
    graph([("coldplate_node_memory_used_bytes", "used"), ("coldplate_node_memory_total_bytes", "total"),
        ("coldplate_node_swap_used_bytes", "swap")], "below the dashed total, and no swap.", title="Memory of the node",
        what="Memory in use and total.", lines=("^total$",), size=(8, 8), few=True),
    graph([(f'clamp_max(rate(coldplate_node_pressure_waiting_seconds_total{RATE}), 1)', "{{resource}}")],
        "near 0: nothing waits for processors, memory or storage.", title="Pressure", span=(0, None), size=(8, 8),
        few=True),
)  # fmt: skip
