"""How bad throttle causes and XIDs are for a node that is to begin a job, and names of the metrics that checks read."""

from agent.catalogue.xid_triage import XidClass, class_of, codes_of
from agent.health.verdicts import Verdict

CAUSES = {"hw_thermal_slowdown": "heat", "hw_power_brake": "the power brake"}
"""Why the hardware itself slows a GPU down, which no healthy load causes, by the driver's reason."""

XID_VERDICTS = {XidClass.POWER: Verdict.WARNING, XidClass.RESET: Verdict.CRITICAL, XidClass.NODE: Verdict.CRITICAL}
"""How bad it is that an XID of a class was reported; the others ask for nothing on the node, as far as is known."""
HARMLESS_XIDS = codes_of(XidClass.NOTE, XidClass.APPLICATION, XidClass.CLEANUP)
"""XIDs after which the hardware is fine: a program's fault, the end of its process, a note by the driver."""

MARGIN_CELSIUS = 5.0
"""The least distance to the GPU's own slowdown threshold, as in the rule GpuHot and the shipped expectations."""

REMAP_FAILURE, REMAP_PENDING = "coldplate_gpu_row_remap_failure", "coldplate_gpu_row_remap_pending"
MARGIN = "coldplate_gpu_temperature_margin_celsius"
WIDTH = "coldplate_gpu_pcie_link_width"
LIMIT = "coldplate_gpu_power_limit_watts"
LIMIT_DEFAULT = "coldplate_gpu_power_limit_default_watts"


def cause_of(reason: str) -> str:
    """Return why the hardware itself slows a GPU down; empty for other reasons."""
    return CAUSES.get(reason, "")


def xid_verdict(xid: str) -> Verdict:
    """Return how bad it is that a code was reported; one whose log line decides may be bad."""
    code = int(xid) if xid.isdecimal() else 0
    return Verdict.SKIPPED if code in HARMLESS_XIDS else XID_VERDICTS.get(class_of(code), Verdict.WARNING)
