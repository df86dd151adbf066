"""docs/xids.md: what each XID asks for, and which alert tells of it."""

from __future__ import annotations

from agent.catalogue.xid_triage import CATALOG, TRIAGE, TriagedXid, XidClass
from tests.lab.generate.xid_texts import ALERTS

_INTRODUCTION = """\
# XIDs

<!-- Generated from agent/catalogue/xid_triage.py by `make generate`. Do not edit. -->

What each XID asks for, and which alert tells of it. From this table come the codes in `alerts/rules/xid.yml` and
`advice.yml` (GpuXidInfo is off by default), the runbooks of these alerts, the words of `coldplate check`, of the
report, of the page at `/` and of the agent's log.

* **Bucket** is the immediate action in NVIDIA's
  [Xid catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), the source of codes and names.
  Where there is none, the catalog names no action, and the class is our judgement of its description.
* A code that is not here (newer than the table, or unused according to the catalog) is told of by GpuXidUnknown.
* **45** alone means that a process was terminated: there is no alert. With another XID on the node in the same two
  minutes it is that one's consequence, and GpuXidInfo tells of it. (After a 45 alone the catalog would restart the
  fabric manager, though it says as well that Ctrl-C and SIGKILL cause it. GpuFabricDegraded tells of a fabric manager
  at fault.)
* **144 to 150** (NVLink 5) are as grave as their line in the kernel log says, by its word and by the error status of
  the unit (the catalog's sheet "XID 144-150 Decode"): what is fatal asks for a reset (GpuXid), the rest is the
  application's (GpuXidInfo). `coldplate_gpu_xid_graded_errors_total` counts both. If the agent cannot read the line,
  GpuXidUnknown tells of it.
* **154** repeats in words what `coldplate_gpu_recovery_action` shows; GpuRecoveryActionNeeded tells of it.

| XID | Name | Class | Action | Alert | Bucket |
|---|---|---|---|---|---|
"""


def render() -> str:
    """Return the document."""
    return _INTRODUCTION + "".join(_line(row) for row in TRIAGE.values())


def _line(row: TriagedXid) -> str:
    alert = "by its log line" if row.triage is XidClass.WORDS else ALERTS[row.triage]
    bucket = f"`{row.bucket}`" if row.source == CATALOG else "none"
    return f"| {row.code} | {row.name} | {row.triage.value} | {row.action} | {alert} | {bucket} |\n"
