"""The rows of an InfiniBand or RoCE port, with node_exporter's suffixes, and of the way from GPUs to their HCAs.

`driver_counter` makes the row of a sysfs file that is in no table below. On mlx5 every read of such a file is a command
to the adapter's firmware, so the fast lane holds only traffic and the link's state.
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import count

from agent.catalogue.bindings import ANYTHING, PACKETS, Derived, PortFile, Source, counter, gauge, info, state
from agent.model import Gpu, IbPort, Kind, Lane, Metric, Shown, Unit

PREFIX = "coldplate_infiniband_"
WORD = 4.0
"""The IB specification counts port data in 32-bit words (PortXmitData, PortRcvData); we show bytes."""

DIRECTORIES = ("counters", "hw_counters", "counters_ext")
"""Where a port keeps its counters; `counters_ext` is the home of the 64-bit ones before Linux 4.5."""

ACTIVE = 4
"""The code of a working link in `state` (IB_PORT_ACTIVE)."""


def _count(suffix: str, help: str, *files: str, growth: float | None = None, shown: Shown = Shown.DEFAULT) -> Metric:
    return counter(f"{PREFIX}{suffix}_total", IbPort, help, Lane.SLOW, *map(PortFile, files),
                   span=(0, 2.0**63), growth=growth, shown=shown)  # fmt: skip


def _packets(suffix: str, help: str, *files: str, shown: Shown = Shown.DEFAULT) -> Metric:
    return _count(suffix, help, *files, growth=PACKETS, shown=shown)


_full_count, _full_packets = partial(_count, shown=Shown.FULL), partial(_packets, shown=Shown.FULL)


def _data(suffix: str, help: str, *files: PortFile, lane: Lane = Lane.SLOW, peak: bool = False) -> Metric:
    return counter(f"{PREFIX}{suffix}_bytes_total", IbPort, help, lane, *files, span=(0, 2.0**66), peak=peak)


STATE_ID = state(PREFIX + "state_id", IbPort,
                 "Logical state: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active with link temporarily down.",
                 Lane.FAST, PortFile("state"), span=(0, 15))  # fmt: skip
PHYSICAL_STATE_ID = state(PREFIX + "physical_state_id", IbPort,
                          "Physical state: 0 no change, 1 sleep, 2 polling, 3 disabled, 4 training, 5 up, "
                          "6 recovering, 7 test.",
                          Lane.SLOW, PortFile("phys_state"), span=(0, 15))  # fmt: skip
RATE = gauge(PREFIX + "rate_bytes_per_second", IbPort, "Signalling rate that the link negotiated, in one direction.",
             Lane.SLOW, PortFile("rate"), span=(0, 1e13))  # fmt: skip
LIFESPAN = gauge(PREFIX + "lifespan_seconds", IbPort,
                 "How long the kernel serves hw_counters from its cache before it reads the adapter again.",
                 Lane.SLOW, PortFile("hw_counters/lifespan", 1e-3), span=(0, 1e6), shown=Shown.FULL)  # fmt: skip

PORT_UP = state(PREFIX + "port_up", IbPort, "1 if the logical state of the port is active, else 0.",
                Lane.FAST, Derived("state is 4: ACTIVE"))  # fmt: skip
LINK_DOWN_EVENTS = counter(PREFIX + "link_down_events_total", IbPort,
                           "Times that the agent saw the port leave the active state; a drop between two samples is "
                           "missed.", Lane.FAST, Derived("changes of state from ACTIVE, since the agent started"),
                           span=(0, 2.0**53))  # fmt: skip
INFO = info(PREFIX + "info", IbPort,
            "Facts about the port and its adapter as labels; a label that the driver does not report is empty.",
            Lane.COLD, Source("board_id, fw_ver and hca_type of the device, ports/N/link_layer"),
            labels=("board_id", "firmware_version", "hca_type", "link_layer"))  # fmt: skip

# AWS EFA and soft RoCE have no standard counters; their own ones of the same meaning come second.
TRAFFIC = (
    _data("port_data_received", "Data that the port received.", PortFile("counters/port_rcv_data", WORD),
          PortFile("hw_counters/rx_bytes"), lane=Lane.FAST),
    _data("port_data_transmitted", "Data that the port sent.", PortFile("counters/port_xmit_data", WORD),
          PortFile("hw_counters/tx_bytes"), lane=Lane.FAST, peak=True),
    _packets("port_packets_received", "Packets received, including ones with errors.",
             "counters/port_rcv_packets", "hw_counters/rx_pkts"),
    _packets("port_packets_transmitted", "Packets sent, including ones with errors.",
             "counters/port_xmit_packets", "hw_counters/tx_pkts"),
    _full_packets("unicast_packets_received", "Unicast packets received, including ones with errors.",
                  "counters/unicast_rcv_packets"),
    _full_packets("unicast_packets_transmitted", "Unicast packets sent, including ones with errors.",
                  "counters/unicast_xmit_packets"),
    _full_packets("multicast_packets_received", "Multicast packets received, including ones with errors.",
                  "counters/multicast_rcv_packets"),
    _full_packets("multicast_packets_transmitted", "Multicast packets sent, including ones with errors.",
                  "counters/multicast_xmit_packets"),
)  # fmt: skip

TROUBLE = (
    _count("link_downed", "Times that the link failed to recover from an error and went down.",
           "counters/link_downed", "hw_counters/link_downed"),
    _count("link_error_recovery", "Times that the link recovered from an error by training again.",
           "counters/link_error_recovery"),
    _count("symbol_error", "Minor link errors on the physical lanes: a bad cable or transceiver.",
           "counters/symbol_error"),
    _count("port_transmit_wait", "Ticks in which the port had data to send and no credit: congestion.",
           "counters/port_xmit_wait", growth=PACKETS),
    _count("local_link_integrity_errors", "Times that local physical errors exceeded the port's threshold.",
           "counters/local_link_integrity_errors"),
    _count("excessive_buffer_overrun_errors", "Times that flow control errors lasted over consecutive updates.",
           "counters/excessive_buffer_overrun_errors"),
    _count("port_errors_received", "Packets received with an error.", "counters/port_rcv_errors"),
    _count("port_receive_remote_physical_errors", "Packets received that an earlier hop had marked as bad.",
           "counters/port_rcv_remote_physical_errors"),
    _full_count("port_receive_switch_relay_errors", "Packets received that could not be forwarded.",
                "counters/port_rcv_switch_relay_errors"),
    _full_count("port_constraint_errors_received", "Packets received that a partition or raw filter rejected.",
                "counters/port_rcv_constraint_errors"),
    _full_count("port_constraint_errors_transmitted",
                "Packets not sent because a partition or raw filter rejected them.",
                "counters/port_xmit_constraint_errors"),
    _packets("port_discards_received", "Packets received and dropped: the port was down or congested.",
             "counters/port_rcv_discards"),
    _packets("port_discards_transmitted", "Outgoing packets dropped: the port was down or congested.",
             "counters/port_xmit_discards"),
    _full_count("vl15_dropped", "Management packets (VL15) dropped due to a lack of buffers.", "counters/VL15_dropped"),
)  # fmt: skip

LEGACY = (
    _data("legacy_data_received", "Data that the port received, from a kernel before 4.5.",
          PortFile("counters_ext/port_rcv_data_64", WORD)),
    _data("legacy_data_transmitted", "Data that the port sent, from a kernel before 4.5.",
          PortFile("counters_ext/port_xmit_data_64", WORD)),
    _packets("legacy_packets_received", "Packets received, from a kernel before 4.5.",
             "counters_ext/port_rcv_packets_64"),
    _packets("legacy_packets_transmitted", "Packets sent, from a kernel before 4.5.",
             "counters_ext/port_xmit_packets_64"),
    _packets("legacy_unicast_packets_received", "Unicast packets received, from a kernel before 4.5.",
             "counters_ext/port_unicast_rcv_packets"),
    _packets("legacy_unicast_packets_transmitted", "Unicast packets sent, from a kernel before 4.5.",
             "counters_ext/port_unicast_xmit_packets"),
    _packets("legacy_multicast_packets_received", "Multicast packets received, from a kernel before 4.5.",
             "counters_ext/port_multicast_rcv_packets"),
    _packets("legacy_multicast_packets_transmitted", "Multicast packets sent, from a kernel before 4.5.",
             "counters_ext/port_multicast_xmit_packets"),
)  # fmt: skip

TRANSPORT = (
    _full_packets("duplicate_requests_packets", "Requests received a second time.", "hw_counters/duplicate_request"),
    _full_count("implied_nak_seq_errors", "Acknowledgements that skipped an expected read or atomic response.",
                "hw_counters/implied_nak_seq_err"),
    _count("local_ack_timeout_errors", "Times that the sender's timer for an acknowledgement ran out.",
           "hw_counters/local_ack_timeout_err"),
    _packets("out_of_buffer_drops", "Packets dropped because the queue pair had no receive buffer posted.",
             "hw_counters/out_of_buffer"),
    _packets("out_of_sequence_packets_received", "Packets received out of order: loss or reordering on the way.",
             "hw_counters/out_of_sequence"),
    _count("packet_sequence_errors", "Negative acknowledgements received for a wrong packet sequence.",
           "hw_counters/packet_seq_err"),
    _full_count("req_cqes_errors", "Requester completions that ended in an error.", "hw_counters/req_cqe_error"),
    _full_count("req_cqes_flush_errors", "Requester completions flushed in error.", "hw_counters/req_cqe_flush_error"),
    _full_count("req_remote_access_errors", "Remote access errors that the requester saw.",
                "hw_counters/req_remote_access_errors"),
    _full_count("req_remote_invalid_request_errors", "Remote invalid request errors that the requester saw.",
                "hw_counters/req_remote_invalid_request"),
    _full_count("resp_cqes_errors", "Responder completions that ended in an error.", "hw_counters/resp_cqe_error"),
    _full_count("resp_cqes_flush_errors", "Responder completions flushed in error.",
                "hw_counters/resp_cqe_flush_error"),
    _full_count("resp_local_length_errors", "Local length errors that the responder saw.",
                "hw_counters/resp_local_length_error"),
    _full_count("resp_remote_access_errors", "Remote access errors that the responder saw.",
                "hw_counters/resp_remote_access_errors"),
    _packets("rnr_nak_retry_packets_received", "Receiver-not-ready NAKs received without exceeding the retry limit.",
             "hw_counters/rnr_nak_retry_err"),
    _full_packets("rx_atomic_requests", "Atomic requests received.", "hw_counters/rx_atomic_requests"),
    _full_packets("rx_dct_connect_requests", "Connection requests received for dynamically connected transport.",
                  "hw_counters/rx_dct_connect"),
    _full_packets("rx_read_requests", "Read requests received.", "hw_counters/rx_read_requests"),
    _full_packets("rx_write_requests", "Write requests received.", "hw_counters/rx_write_requests"),
)  # fmt: skip

ROCE = (
    _packets("np_cnp_packets_sent", "Congestion notifications sent after packets with an ECN mark.",
             "hw_counters/np_cnp_sent"),
    _packets("np_ecn_marked_roce_packets_received", "RoCE packets received with an ECN mark: congestion on the way.",
             "hw_counters/np_ecn_marked_roce_packets"),
    _packets("rp_cnp_packets_handled", "Congestion notifications received that slowed the sender down.",
             "hw_counters/rp_cnp_handled"),
    _full_packets("rp_cnp_ignored_packets_received", "Congestion notifications received and ignored: ECN is off here.",
                  "hw_counters/rp_cnp_ignored"),
    _full_count("roce_adp_retransmits", "Adaptive retransmissions of RoCE traffic.", "hw_counters/roce_adp_retrans"),
    _full_count("roce_adp_retransmits_timeout", "Timeouts of RoCE traffic due to adaptive retransmission.",
                "hw_counters/roce_adp_retrans_to"),
    _full_count("roce_slow_restart_used", "Times that RoCE slow restart was used.", "hw_counters/roce_slow_restart"),
    _full_count("roce_slow_restart_cnps", "Congestion notifications that RoCE slow restart made.",
                "hw_counters/roce_slow_restart_cnps"),
    _full_count("roce_slow_restart", "Times that RoCE slow restart changed its state to slow restart.",
                "hw_counters/roce_slow_restart_trans"),
    _full_count("rx_icrc_encapsulated_errors", "RoCE packets received with a wrong invariant CRC.",
                "hw_counters/rx_icrc_encapsulated"),
)  # fmt: skip

NEAREST_HCA = info("coldplate_gpu_nearest_hca_info", Gpu,
                   "An HCA nearest to the GPU over PCIe; distance as in nvidia-smi topo: PIX, PXB, PHB, NODE or SYS.",
                   Lane.COLD, Source("/sys/bus/pci/devices, /sys/class/infiniband/DEVICE/device"),
                   labels=("device", "distance"))  # fmt: skip

FILES = (STATE_ID, PHYSICAL_STATE_ID, RATE, LIFESPAN, *TRAFFIC, *TROUBLE, *LEGACY, *TRANSPORT, *ROCE)
"""The rows that are read from one file of a port."""

PORTS = (PORT_UP, LINK_DOWN_EVENTS, INFO, STATE_ID, PHYSICAL_STATE_ID, RATE, LIFESPAN, NEAREST_HCA)
_LEVEL = re.compile(r"active_|watermark_|db_fifo_register$")
"""Files of bnxt_re's hw_counters that rise and fall (Linux, drivers/infiniband/hw/bnxt_re/hw_counters.c)."""
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_OTHER = re.compile(r"[^a-z0-9]+")

_drivers: dict[str, Metric] = {}
_names: set[str] = {row.name for row in (*PORTS, *FILES)}


DRIVER_ROWS = 8_192
"""Most rows made for drivers' files, whose names may be endless, as those of queues that come and go."""


def driver_counter(path: str) -> Metric | None:
    """Return the row of a driver's file that is in no table, `DIRECTORY/FILE`; always the same row for a path.

    None if there are too many rows already.
    """
    row = _drivers.get(path)
    if row is None and len(_drivers) < DRIVER_ROWS:
        row = _drivers[path] = _driver_row(path)
        _names.add(row.name)
    return row


def _driver_row(path: str) -> Metric:
    directory, _, file = path.partition("/")
    level = _LEVEL.match(file) is not None
    stem = _OTHER.sub("_", _HUMP.sub("_", file).lower()).strip("_").removesuffix("_total") or "unnamed"
    ending = "" if level else "_total"
    name = next(candidate for candidate in _candidates(directory, stem, ending) if candidate not in _names)
    return Metric(
        name, Kind.GAUGE if level else Kind.COUNTER, Unit.NONE, IbPort,
        f"The driver's {'value' if level else 'counter'} {ascii(path)[1:-1]}.",
        Lane.SLOW, (PortFile(path),), span=(0, 2.0**63), growth=ANYTHING, shown=Shown.FULL,
    )  # fmt: skip


def _candidates(directory: str, stem: str, ending: str) -> Iterator[str]:
    """Yield names for a file, best first: two files whose names differ only in punctuation need different names."""
    apart = f"{PREFIX}{directory}_{stem}"
    yield f"{PREFIX}{stem}{ending}"
    yield f"{apart}{ending}"
    yield from (f"{apart}_{number}{ending}" for number in count(2))
