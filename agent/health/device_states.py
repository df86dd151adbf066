"""How bad an XID of a recording is for a node that is to begin a job."""

from agent.catalogue.xid_triage import XidClass, class_of, codes_of
from agent.health.verdicts import Verdict
from agent.health.xid_findings import XID_VERDICTS

HARMLESS_XIDS = codes_of(XidClass.NOTE, XidClass.APPLICATION, XidClass.CLEANUP)
"""XIDs after which the hardware is fine: a program's fault, the end of its process, a note by the driver."""


def xid_verdict(xid: str) -> Verdict:
    """Return how bad it is that a code was reported; one whose log line decides may be bad."""
    code = int(xid) if xid.isdecimal() else 0
    return Verdict.SKIPPED if code in HARMLESS_XIDS else XID_VERDICTS.get(class_of(code), Verdict.WARNING)
