"""Metrics of an NVLink's physical layer from NVLink 5 on (Blackwell): bit errors, their correction, retransmission.

Error ratios are computed by the driver, which does not say over which time. NVIDIA calls errors of packets effective
errors, and errors of received symbols symbol errors. A link corrects codewords by forward error correction (FEC), and
requests blocks again that it could not correct (PLR, physical layer retransmission).
"""

from __future__ import annotations

from agent.catalogue import nvml_constants as nvml
from agent.catalogue.bindings import PACKETS, Field
from agent.model import Gpu, Kind, Lane, Metric, NvLink, Shown, Unit

_BINS = range(nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_15 + 1 - nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0)


def _ratios(what: str, field: int, help: str, shown: Shown = Shown.FULL) -> tuple[Metric, Metric]:
    """Return the GPU's worst link, and each link."""
    origin = (Field(field, per_link=True, packed=True),)
    return (
        Metric(f"coldplate_gpu_nvlink_{what}_error_highest_ratio", Kind.GAUGE, Unit.RATIO, Gpu,
               f"{help}, on the worst of the GPU's NVLinks (Blackwell).",
               Lane.COLD, origin, span=(0, 1), simulated=(0, 1e-15), shown=shown),
        Metric(f"coldplate_nvlink_{what}_error_ratio", Kind.GAUGE, Unit.RATIO, NvLink,
               f"{help} (Blackwell).",
               Lane.COLD, origin, span=(0, 1), simulated=(0, 1e-15), shown=Shown.FULL),
    )  # fmt: skip


def _count(what: str, help: str, *origin: Field, labels: tuple[str, ...] = (), growth: float | None = None) -> Metric:
    return Metric(f"coldplate_gpu_nvlink_{what}_total", Kind.COUNTER, Unit.NONE, Gpu, help, Lane.COLD, origin,
                  labels=labels, span=(0, 2.0**63), simulated=(0, 1e9), growth=growth, shown=Shown.FULL)  # fmt: skip


ROWS = (
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
