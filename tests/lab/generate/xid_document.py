"""The table of docs/alerts.md on XIDs: what each asks for, and the alert about it."""

from __future__ import annotations

from agent.catalogue.xid_triage import CATALOG, TRIAGE, TriagedXid, XidClass
from tests.lab.generate.xid_texts import ALERTS

_HEAD = "| XID | Name | Class | Action | Alert | Bucket |\n|---|---|---|---|---|---|\n"


def render() -> str:
    """Return the table."""
    return _HEAD + "".join(_line(row) for row in TRIAGE.values())


def _line(row: TriagedXid) -> str:
    alert = "by its log line" if row.triage is XidClass.WORDS else ALERTS[row.triage]
    bucket = f"`{row.bucket}`" if row.source == CATALOG else "none"
    return f"| {row.code} | {row.name} | {row.triage.value} | {row.action} | {alert} | {bucket} |\n"
