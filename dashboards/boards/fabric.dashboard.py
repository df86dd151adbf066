"""Fabric: is every link up and clean, and is one of them held up."""

from dashboards.alert_thresholds import steps
from dashboards.board import Board
from dashboards.panels import FEW, NONE, UP_DOWN, graph, small_graph, stat, state_timeline
from dashboards.queries import RATE, count_of, per_gpu
from dashboards.tables import TableColumn, table

PORT = {"instance": "Node", "device": "Device", "port": "Port"}


def per_port(operator: str, expr: str) -> str:
    """Return one value for each port."""
    return f"{operator} by (instance, device, port) ({expr})"


SERIOUS = 'type!~"buffer_overrun|receive_.*|transmit_discard|recovery_successful"'
"""The types of NVLink errors on which NvLinkErrors acts: not those that are part of error correction."""

FLAPS = per_port("sum", "round(increase(coldplate_infiniband_link_down_events_total[1h]))")
SYMBOLS = per_port("sum", "round(increase(coldplate_infiniband_symbol_error_total[1h]))")
RECOVERIES = per_port("sum", "round(increase(coldplate_infiniband_link_error_recovery_total[5m]))")
OF_KIND = "port:infiniband_rate_bytes_per_second:board"
MEDIAN = f"quantile by (instance, board_id) (0.5, {OF_KIND})"
BEST = f"max_over_time({OF_KIND}[4h])"
SLOW_LINKS = per_port(
    "min",
    f"({OF_KIND} < on (instance, board_id) group_left () 0.95 * {MEDIAN}"
    f" and on (instance, board_id) (count by (instance, board_id) ({OF_KIND}) >= 3)) or {OF_KIND} < 0.95 * {BEST}",
)
EXPECTED = per_port("max", f"({OF_KIND} * 0 + on (instance, board_id) group_left () {MEDIAN}) > {BEST} or {BEST}")
"""The rate that a port should have: the median of its node's ports with the same adapter, or its own best of late."""
FASTEST = ("8 * max(coldplate_infiniband_rate_bytes_per_second)", "rate of the fastest port")
PORT_DOWN = (
    "(coldplate_infiniband_port_up == 0 and on (instance, device, port) "
    "(coldplate_infiniband_link_down_events_total > 0) or coldplate_infiniband_port_up == 0 and on (instance, device) "
    'coldplate_gpu_nearest_hca_info{distance=~"PIX|PXB"}) '
    "unless on (instance, device, port) (coldplate_infiniband_physical_state_id == 3)"
)
"""As InfinibandPortDown counts: ports that were up or belong to a GPU, and are not disabled."""
UNREADABLE = (
    'coldplate_metric_missing{metric="coldplate_infiniband_port_up", reason=~"lost|timeout"} == 1 '
    'unless on (instance) (coldplate_backend_up{backend="infiniband"} == 0)'
)
DOWN = per_port("max", f"{PORT_DOWN} or {UNREADABLE}")
WORST = f"(topk(20, {DOWN}) or topk(20, {FLAPS} > 0) or topk(20, {SYMBOLS} > 0) or topk(20, {RECOVERIES} > 0))"


def per_device(expr: str) -> str:
    """Return one value for each Ethernet port."""
    return f"max by (instance, device) ({expr})"


LIGHT = (
    "min by (instance, device) (coldplate_transceiver_receive_power_lowest_watts) / on (instance, device) "
    'min by (instance, device) (coldplate_transceiver_receive_power_limit_watts{level="warning"})'
)
DARKEST = f"bottomk(20, {LIGHT})"
FACTS = (
    "({}) * on (instance, device) group_left (vendor, part_number, serial) "
    "max by (instance, device, vendor, part_number, serial) (coldplate_transceiver_info)"
)

dashboard = Board("fabric", "Is every NVLink and InfiniBand port up and free of errors, and is any of them congested?")
dashboard.row("Is every link up and free of errors?")
dashboard.add(
    stat("sum(coldplate_infiniband_port_up)", "the number of your ports.", title="Ports up",
        what="InfiniBand ports in the active state.", limits=(("red", None), ("green", 1))),
    stat(count_of(DOWN, "coldplate_infiniband_port_up"), "0.", title="Ports down",
        what="InfiniBand ports that are down or cannot be read, as InfinibandPortDown counts them: neither spare "
        "ports nor disabled ones.", limits=NONE),
    stat("round(sum(increase(coldplate_infiniband_link_down_events_total[1h])))", "0.", title="Flaps in an hour",
        what="Times that a port left the active state in an hour.", unit="short", limits=FEW, decimals=0),
    stat(count_of("coldplate_nvlink_up == 0", "coldplate_nvlink_up"), "0.", title="NVLinks down", limits=NONE),
    stat("round(sum(increase(coldplate_gpu_nvlink_errors_total{" + SERIOUS + "}[1h])))", "0.",
        title="NVLink errors in an hour", unit="short", limits=FEW, decimals=0),
    stat(count_of('coldplate_gpu_fabric_state{state=~"not_started|in_progress|failed"} == 1',
        "coldplate_gpu_fabric_state"), "0.",
        title="GPUs not in the fabric", what="GPUs that have not joined the NVLink fabric: CUDA cannot start on them.",
        limits=NONE),
)  # fmt: skip
dashboard.row("Ports to look at first")
dashboard.add(
    table("Ports with trouble", [
        TableColumn("State", f"{per_port('max', 'coldplate_infiniband_port_up')} and {WORST}", mapped=UP_DOWN),
        TableColumn("Flaps, 1 h", f"{FLAPS} and {WORST}", unit="short", limits=FEW, decimals=0),
        TableColumn("Symbol errors, 1 h", f"{SYMBOLS} and {WORST}", unit="short", limits=FEW, decimals=0),
        TableColumn("Recoveries, 5 min", f"{RECOVERIES} and {WORST}", unit="short",
            limits=steps("InfinibandErrors.recovery"), decimals=0),
    ], "empty.", what="Ports that are or went down, retrained or lost bits; the twenty worst by each.", labels=PORT,
        size=(14, 9), sort="+State", rows=WORST),
    state_timeline(per_port("max", PORT_DOWN), "empty: a port has a row only while it is down.",
        title="Ports that were down", mapped=UP_DOWN, size=(10, 9)),
    table("Links below their rate", [TableColumn("Rate", f"8 * {SLOW_LINKS}", unit="bps", limits=(("orange", None),)),
        TableColumn("Expected", f"8 * {EXPECTED} and {SLOW_LINKS}", unit="bps")],
        "empty: adapters of one kind run at the same rate.", what="Ports that are up at a lower rate than the others "
        "of their node with the same adapter, or than before, as in InfinibandRateDegraded.", labels=PORT,
        size=(12, 8), sort="+Rate", rows=SLOW_LINKS, none="none is reported, or no server rule records the rates"),
    table("NVLinks down", [TableColumn("Links", "count by (instance, gpu) (coldplate_nvlink_up == 0)", unit="short",
        limits=NONE)], "empty.", what="Links that are inactive, by GPU.", labels={"instance": "Node", "gpu": "GPU"},
        size=(12, 8), sort="Links"),
)  # fmt: skip
dashboard.row("InfiniBand")
dashboard.add(
    graph([("8 * topk(16, " + per_port("sum",
        f"rate(coldplate_infiniband_port_data_transmitted_bytes_total{RATE})") + ")"), FASTEST],
        "below the dashed rate of a port. Rails of one job need not be equal.", title="Transmit rate, busiest ports",
        unit="bps", lines=("^rate of",)),
    graph([("8 * topk(16, " + per_port("sum",
        f"rate(coldplate_infiniband_port_data_received_bytes_total{RATE})") + ")"), FASTEST],
        "below the dashed rate of a port.", title="Receive rate, busiest ports", unit="bps", lines=("^rate of",)),
    small_graph("topk(16, " + per_port("sum", f"rate(coldplate_infiniband_port_transmit_wait_total{RATE})") + ")",
        "far below the threshold of InfinibandCongestion.", title="Congestion: ticks without credit",
        limits=steps("InfinibandCongestion"), legend="hidden"),
    small_graph("topk(16, " + per_port("sum", f"rate(coldplate_infiniband_symbol_error_total{RATE})") + " > 0)",
        "empty.", title="Symbol errors"),
    small_graph("topk(16, " + per_port("sum", f"rate(coldplate_infiniband_link_error_recovery_total{RATE})") + " > 0)",
        "empty.", title="Link recoveries"),
    graph("topk(16, " + per_port("sum", f"rate(coldplate_infiniband_port_discards_transmitted_total{RATE}) + "
        f"rate(coldplate_infiniband_port_errors_received_total{RATE})") + ")", "0.",
        title="Discards and receive errors", size=(12, 8), legend="hidden"),
    graph("topk(16, " + per_port("sum", f"rate(coldplate_infiniband_local_ack_timeout_errors_total{RATE}) + "
        f"rate(coldplate_infiniband_out_of_sequence_packets_received_total{RATE}) + "
        f"rate(coldplate_infiniband_packet_sequence_errors_total{RATE})") + ")",
        "0: packets are neither lost nor retransmitted.", title="Retransmissions", size=(12, 8), legend="hidden"),
)  # fmt: skip
dashboard.row("NVLink", collapsed=True)
dashboard.add(
    graph("topk(16, " + per_gpu("sum", f"rate(coldplate_gpu_nvlink_transmit_bytes_total{RATE})") + ")",
        "GPUs of a job alike.", title="Transmit rate, busiest GPUs"),
    graph("topk(16, " + per_gpu("sum", f"rate(coldplate_gpu_nvlink_receive_bytes_total{RATE})") + ")",
        "GPUs of a job alike.", title="Receive rate, busiest GPUs"),
    graph("topk(16, sum by (instance, gpu, type) (rate(coldplate_gpu_nvlink_errors_total[5m])) > 0)",
        "empty; from Blackwell on, malformed_packet, local_integrity and recovery_failed are the types that matter.",
        title="NVLink errors of GPUs"),
    graph("topk(16, sum by (instance, gpu, link, type) (coldplate_nvlink_errors_total) > 0)",
        "empty: a link appears at its first error. A single link points to a cable or port, all links to the GPU.",
        title="NVLink errors by link, total"),
    graph("topk(16, " + per_gpu("max", "coldplate_gpu_nvlink_symbol_error_highest_ratio") + ")", "below the line.",
        title="Symbol errors left after correction (NVLink 5)", unit="sci", limits=steps("NvLinkErrors.ratio")),
    graph("sum by (problem) (coldplate_gpu_fabric_problem)", "empty: each is there while it lasts.",
        title="Fabric problems of GPUs", what="GPUs with each problem that the driver reports of its fabric."),
)  # fmt: skip
dashboard.row("Ethernet and RoCE: light, and what error correction does", collapsed=True)
dashboard.add(
    stat("round(sum(increase(coldplate_ethernet_fec_uncorrectable_blocks_total[1h])))", "0.",
        title="Blocks lost in an hour", what="Codewords that forward error correction could not correct: lost packets.",
        unit="short", limits=FEW, decimals=0),
    stat("round(sum(increase(coldplate_ethernet_link_down_events_total[1h])))", "0.", title="Ethernet flaps in an hour",
        what="Times that drivers saw a physical link go down.", unit="short", limits=FEW, decimals=0),
    stat(count_of(f"{LIGHT} < 1", LIGHT), "0.", title="Modules short of light",
        what="Modules that receive less light on their worst lane than their own limit.", limits=NONE),
    table("Modules nearest to their limit", [
        TableColumn("Light, of its limit", f"{FACTS.format(LIGHT)} and on (instance, device) {DARKEST}", unit="none",
            limits=(("red", None), ("green", 1)), decimals=2),
    ], "well above 1: at 1 a module receives as little as its maker allows.",
        what="Light received on the worst lane, divided by the module's own lower limit; the twenty lowest.",
        labels={"instance": "Node", "device": "Port", "vendor": "Vendor", "part_number": "Part", "serial": "Serial"},
        size=(12, 8), sort="+Light, of its limit"),
    graph(f"topk(16, {per_device('port:ethernet_pre_fec_error_ratio:rate10m')})",
        "below 1e-8, and far below the line.", title="Bits that need correction", unit="sci",
        what="Share of the link's bits that error correction had to correct, worst ports. It can correct 2.4e-4.",
        limits=steps("EthernetFecErrors.corrected"), size=(8, 8)),
    graph(f"topk(16, {per_device('coldplate_transceiver_temperature_celsius')})",
        "below 70 °C, or the module's own limit.", title="Hottest modules", size=(8, 8)),
    graph(f"topk(16, {per_device('coldplate_transceiver_transmit_bias_highest_amperes')})",
        "steady for months: a laser that needs ever more current is ageing.", title="Current of lasers", size=(8, 8)),
    graph("topk(16, " + per_port("sum",
        f"rate(coldplate_infiniband_np_ecn_marked_roce_packets_received_total{RATE}) + "
        f"rate(coldplate_infiniband_np_cnp_packets_sent_total{RATE})") + ")",
        "near 0 on RoCE; always 0 on InfiniBand.", title="RoCE: congestion marks", size=(24, 8), legend="hidden"),
)  # fmt: skip
dashboard.row("NVLink domains (NVL72)", collapsed=True)
dashboard.add(
    table("Domains", [TableColumn("GPUs", "count by (cluster_uuid, clique) (coldplate_gpu_fabric_info)", unit="short"),
        TableColumn("Nodes",
        "count by (cluster_uuid, clique) (count by (instance, cluster_uuid, clique) (coldplate_gpu_fabric_info))",
        unit="short")],
          "72 GPUs on 18 nodes for a full NVL72; one clique in each domain. Zeros are standalone nodes.",
              what="GPUs that share an NVLink domain.", labels={"cluster_uuid": "Domain", "clique": "Clique"},
              rows="count by (cluster_uuid, clique) (coldplate_gpu_fabric_info)", sort="GPUs"),
    graph("sum by (state) (coldplate_gpu_fabric_state)", "all completed, or not supported.",
        title="Registration with the fabric", stack=True, legend="list", size=(12, 9)),
)  # fmt: skip
