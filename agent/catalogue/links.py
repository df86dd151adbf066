"""The rows of what joins GPUs to each other and to the host: NVLink and its physical layer, the NVLink fabric, PCIe.

NVLink's physical layer has rows from NVLink 5 on (Blackwell). The driver does not say over which time it computes error
ratios. NVIDIA calls errors of packets effective errors. A link corrects codewords by forward error correction (FEC),
and requests blocks again that it could not correct (PLR, physical layer retransmission).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.catalogue import nvml_constants as nvml
from agent.catalogue.bindings import ALL_LINKS, PACKETS, Call, Derived, Field, Gpm, counter, gauge, info, state
from agent.model import Gpu, Lane, Metric, NvLink, Shown

MEBI = 2.0**20
KIBI = 1024.0
"""NVML's "throughput" fields 138 and 139 are cumulative KiB, despite their name (nvidia-ml-py)."""


def _blackwell() -> tuple[Field, ...]:
    """Return the counters of one link from NVLink 5 on: packets lost or refused, and recoveries of the link.

    208 counts received packets with errors of any kind, including 206, 207, 209 and 210; 219 and 221 count the errors
    of the physical layer that cause the others, and 215 is 213 plus 214: none of them may be used beside these.
    """
    types = {
        nvml.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS: "malformed_packet",
        nvml.FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS: "buffer_overrun",
        nvml.FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS: "receive_remote",
        nvml.FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS: "receive_general",
        nvml.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS: "local_integrity",
        nvml.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS: "transmit_discard",
        nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS: "recovery_successful",
        nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS: "recovery_failed",
    }  # fmt: skip
    return tuple(Field(number, labels=(kind,), per_link=True) for number, kind in types.items())


def _gpu_payload(direction: str, verb: str, kibibytes: int, octets: int, *, peak: bool = False) -> Metric:
    return counter(f"coldplate_gpu_nvlink_{direction}_bytes_total", Gpu, f"Payload {verb} over all NVLinks of the GPU.",
                   Lane.FAST, Field(kibibytes, KIBI, scope=ALL_LINKS), Field(octets, scope=ALL_LINKS),
                   Field(octets, per_link=True), span=(0, 2.0**74), peak=peak)  # fmt: skip


def _link_payload(direction: str, verb: str, kibibytes: int, octets: int) -> Metric:
    return counter(f"coldplate_nvlink_{direction}_bytes_total", NvLink, f"Payload {verb} over one NVLink.",
                   Lane.SLOW, Field(kibibytes, KIBI, per_link=True), Field(octets, per_link=True),
                   span=(0, 2.0**74), shown=Shown.FULL)  # fmt: skip


def _traffic(end: str, degree: str) -> Metric:
    """Return the rate at one end of the GPU's links, of which a slow one carries less than the others."""
    origin = Derived("growth of coldplate_nvlink_transmit_bytes_total and coldplate_nvlink_receive_bytes_total")
    return gauge(f"coldplate_gpu_nvlink_traffic_{end}_bytes_per_second", Gpu,
                 f"Payload a second on the {degree} loaded of the GPU's NVLinks, sent and received, since the slow "
                 "sample before.", Lane.SLOW, origin, span=(0, 1e13))  # fmt: skip


def _errors(name: str, entity: type, field: int, help: str) -> Metric:
    origin = (Field(field, per_link=entity is NvLink),)
    return counter(name, entity, help, Lane.SLOW, *origin, span=(0, 2.0**63), shown=Shown.FULL)  # fmt: skip


NVLINK = (
    _gpu_payload("transmit", "sent", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES,
                 peak=True),
    _gpu_payload("receive", "received", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES),
    _traffic("lowest", "least"),
    _traffic("highest", "most"),
    _link_payload("transmit", "sent", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES),
    _link_payload("receive", "received", nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES),
    state("coldplate_nvlink_up", NvLink,
          "1 if the link is active and open to traffic, 0 if it is inactive, asleep or closed.",
          Lane.SLOW, Field(nvml.FI_DEV_NVLINK_GET_STATE, per_link=True)),
    gauge("coldplate_gpu_nvlink_speed_bytes_per_second", Gpu,
          "Total speed of the GPU's NVLinks, in one direction; lower than on its peers means a slow link.",
          Lane.COLD, Field(nvml.FI_DEV_NVLINK_GET_SPEED, 1e6, per_link=True), span=(0, 1e13)),
    counter("coldplate_nvlink_errors_total", NvLink,
            "Errors of the link by type: replay, recovery and crc up to Hopper; other counters from Blackwell on.",
            Lane.SLOW, Field(nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, labels=("replay",), per_link=True),
            Field(nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, labels=("recovery",), per_link=True),
            Field(nvml.FI_DEV_NVLINK_ERROR_DL_CRC, labels=("crc",), per_link=True), *_blackwell(), labels=("type",),
            span=(0, 2.0**63), shown=Shown.COUNTED),
    counter("coldplate_gpu_nvlink_errors_total", Gpu,
            "Errors of all NVLinks of the GPU by type: its own sums up to Hopper, those of its links from "
            "Blackwell on.", Lane.SLOW, Field(nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, labels=("crc_flit",)),
            Field(nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, labels=("crc_data",)),
            Field(nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, labels=("replay",)),
            Field(nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, labels=("recovery",)),
            Field(nvml.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL, labels=("ecc_data",)), *_blackwell(), labels=("type",),
            span=(0, 2.0**63)),
    _errors("coldplate_nvlink_receive_errors_total", NvLink, nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS,
            "Packets with any error that the link received, including those of the single types (Blackwell)."),
    _errors("coldplate_nvlink_symbol_errors_total", NvLink, nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
            "Symbols that the link received with errors, nearly all of which it corrects itself (Blackwell)."),
    _errors("coldplate_nvlink_effective_errors_total", NvLink, nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
            "Packet errors on the link that forward error correction could not correct (Blackwell)."),
)  # fmt: skip

FABRIC = (
    info("coldplate_gpu_fabric_info", Gpu,
         "The NVLink domain of the GPU: its cluster (none on a standalone node) and its clique.",
         Lane.COLD, Call("nvmlDeviceGetGpuFabricInfoV"), labels=("cluster_uuid", "clique")),
    state("coldplate_gpu_fabric_state", Gpu,
          "1 for the state of the GPU's registration with the NVLink fabric, 0 for the others.",
          Lane.COLD, Call("nvmlDeviceGetGpuFabricInfoV"), labels=("state",)),
    state("coldplate_gpu_fabric_problem", Gpu,
          "1 while the fabric has this problem with the GPU, 0 if the driver says that it has not.",
          Lane.COLD, Call("nvmlDeviceGetGpuFabricInfoV"), labels=("problem",), shown=Shown.COUNTED),
)  # fmt: skip

FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed", "failed")
"""Names of NVML's GPU fabric states 0 to 3, and of a registration that completed with an error status."""


@dataclass(frozen=True, slots=True)
class FabricAspect:
    """Some bits of the fabric's health mask: a code of `width` bits at `shift`.

    0 means unknown to the driver, `good` no problem, and each code of `bad` is a problem with its name.
    """

    shift: int
    width: int
    good: int
    bad: Mapping[int, str]


FABRIC_HEALTH = (
    FabricAspect(0, 2, 2, {1: "degraded_bandwidth"}),
    FabricAspect(2, 2, 2, {1: "route_recovery"}),
    FabricAspect(4, 2, 2, {1: "route_unhealthy"}),
    FabricAspect(6, 2, 2, {1: "access_timeout_recovery"}),
    FabricAspect(8, 4, 1, {
        2: "wrong_system_guid",
        3: "wrong_chassis_serial",
        4: "no_partition",
        5: "insufficient_nvlinks",
        6: "incompatible_firmware",
        7: "invalid_location",
        8: "invalid_gpu_state",
    }),
    FabricAspect(12, 2, 1, {2: "partition_unassigned"}),
    FabricAspect(14, 2, 1, {2: "manager_disconnected"}),
)  # fmt: skip
"""NVML_GPU_FABRIC_HEALTH_MASK_* (nvidia-ml-py): 8 is one of the wrong configurations, 14 the global fabric manager."""
FABRIC_PROBLEMS = tuple(name for aspect in FABRIC_HEALTH for name in aspect.bad.values())

# The fields are counters of 32 bits: at full speed a link of generation 5 wraps them seven times a second (seen on an
# H200). So the rates of GPM come first, which are added up.
PCIE = (
    counter("coldplate_gpu_pcie_transmit_bytes_total", Gpu, "Bytes that the GPU sent over PCIe.",
            Lane.FAST, Gpm(nvml.GPM_METRIC_PCIE_TX_PER_SEC, MEBI, total=True),
            Field(nvml.FI_DEV_PCIE_COUNT_TX_BYTES), span=(0, 2.0**74)),
    counter("coldplate_gpu_pcie_receive_bytes_total", Gpu, "Bytes that the GPU received over PCIe.",
            Lane.FAST, Gpm(nvml.GPM_METRIC_PCIE_RX_PER_SEC, MEBI, total=True),
            Field(nvml.FI_DEV_PCIE_COUNT_RX_BYTES), span=(0, 2.0**74)),
    counter("coldplate_gpu_pcie_replays_total", Gpu, "PCIe packets retransmitted.",
            Lane.SLOW, Field(nvml.FI_DEV_PCIE_REPLAY_COUNTER), span=(0, 2.0**63)),
    # Advanced Error Reporting puts each error into one of these classes; what follows are their causes and effects.
    counter("coldplate_gpu_pcie_errors_total", Gpu, "PCIe errors by class.",
            Lane.SLOW, Field(nvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, labels=("correctable",)),
            Field(nvml.FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, labels=("non_fatal",)),
            Field(nvml.FI_DEV_PCIE_COUNT_FATAL_ERROR, labels=("fatal",)), labels=("type",), span=(0, 2.0**63)),
    counter("coldplate_gpu_pcie_error_causes_total", Gpu,
            "PCIe errors by cause; each also counts in a class of coldplate_gpu_pcie_errors_total.",
            Lane.SLOW, Field(nvml.FI_DEV_PCIE_COUNT_RECEIVER_ERROR, labels=("receiver",)),
            Field(nvml.FI_DEV_PCIE_COUNT_BAD_TLP, labels=("bad_tlp",)),
            Field(nvml.FI_DEV_PCIE_COUNT_BAD_DLLP, labels=("bad_dllp",)),
            Field(nvml.FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ, labels=("unsupported_request",)), labels=("cause",),
            span=(0, 2.0**63), shown=Shown.FULL),
    _errors("coldplate_gpu_pcie_lcrc_errors_total", Gpu, nvml.FI_DEV_PCIE_COUNT_LCRC_ERROR,
            "PCIe packets received with a wrong link CRC; each also counts as bad_tlp."),
    _errors("coldplate_gpu_pcie_lane_errors_total", Gpu, nvml.FI_DEV_PCIE_COUNT_LANE_ERROR,
            "PCIe errors detected on single lanes; may include receiver errors."),
    _errors("coldplate_gpu_pcie_naks_received_total", Gpu, nvml.FI_DEV_PCIE_COUNT_NAKS_RECEIVED,
            "PCIe packets that the other side rejected and the GPU retransmitted."),
    _errors("coldplate_gpu_pcie_naks_sent_total", Gpu, nvml.FI_DEV_PCIE_COUNT_NAKS_SENT,
            "PCIe packets that the GPU rejected."),
    _errors("coldplate_gpu_pcie_recoveries_total", Gpu, nvml.FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER,
            "Times that the PCIe link went from L0 to recovery, that is, retrained."),
    gauge("coldplate_gpu_pcie_link_generation", Gpu, "Current PCIe generation of the link; drops at idle by design.",
          Lane.SLOW, Call("nvmlDeviceGetCurrPcieLinkGeneration"), span=(1, 16)),
    gauge("coldplate_gpu_pcie_link_generation_max", Gpu, "Highest PCIe generation that both GPU and slot support.",
          Lane.COLD, Call("nvmlDeviceGetMaxPcieLinkGeneration"), span=(1, 16)),
    gauge("coldplate_gpu_pcie_link_width", Gpu, "PCIe lanes in use.",
          Lane.SLOW, Call("nvmlDeviceGetCurrPcieLinkWidth"), span=(1, 32)),
    gauge("coldplate_gpu_pcie_link_width_max", Gpu, "Most PCIe lanes that both GPU and slot support.",
          Lane.COLD, Call("nvmlDeviceGetMaxPcieLinkWidth"), span=(1, 32)),
)  # fmt: skip

_BINS = range(nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_15 + 1 - nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0)


def _ratios(stem: str, field: int, help: str, shown: Shown = Shown.FULL) -> tuple[Metric, Metric]:
    """Return the GPU's worst link, and each link."""
    origin = (Field(field, per_link=True, packed=True),)
    return (
        gauge(f"coldplate_gpu_nvlink_{stem}_error_highest_ratio", Gpu,
              f"{help}, on the worst of the GPU's NVLinks (Blackwell).", Lane.COLD, *origin, span=(0, 1), shown=shown),
        gauge(f"coldplate_nvlink_{stem}_error_ratio", NvLink, f"{help} (Blackwell).", Lane.COLD, *origin,
              span=(0, 1), shown=Shown.FULL),
    )  # fmt: skip


def _count(stem: str, help: str, *origin: Field, labels: tuple[str, ...] = (), growth: float | None = None) -> Metric:
    return counter(f"coldplate_gpu_nvlink_{stem}_total", Gpu, help, Lane.COLD, *origin, labels=labels,
                   span=(0, 2.0**63), growth=growth, shown=Shown.FULL)  # fmt: skip


QUALITY = (
    *_ratios("raw", nvml.FI_DEV_NVLINK_COUNT_RAW_BER_V2, "Bit error ratio before any correction"),
    *_ratios("effective", nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, "Bit error ratio by errors in packets"),
    *_ratios("symbol", nvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, "Bit error ratio by errors in symbols received",
             Shown.DEFAULT),
    _count("raw_errors", "Errors before any correction on all NVLinks of the GPU, by lane of the link (Blackwell).",
           Field(nvml.FI_DEV_NVLINK_COUNT_RAW_ERRORS_LANE0, labels=("0",), per_link=True),
           Field(nvml.FI_DEV_NVLINK_COUNT_RAW_ERRORS_LANE1, labels=("1",), per_link=True), labels=("lane",)),
    _count("fec_bin_blocks",
           "Codewords with this many wrong symbols on all NVLinks of the GPU (Blackwell).",
           *(Field(nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 + wrong, labels=(str(wrong),), per_link=True)
             for wrong in _BINS),
           labels=("symbols",), growth=PACKETS),
    _count("plr_blocks", "Blocks sent over all NVLinks of the GPU, with those sent again (Blackwell).",
           Field(nvml.FI_DEV_NVLINK_PLR_XMIT_BLOCKS, per_link=True), growth=PACKETS),
    _count("plr_retried_blocks", "Blocks sent again over all NVLinks of the GPU, as they arrived wrong (Blackwell).",
           Field(nvml.FI_DEV_NVLINK_PLR_XMIT_RETRY_BLOCKS, per_link=True), growth=PACKETS),
)  # fmt: skip
