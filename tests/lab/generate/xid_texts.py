"""What the pack says of XIDs, made from the table of agent/catalogue/xid_triage.py.

In alerts/rules/xid.yml and advice.yml the codes after each comment such as `# codes: reset`, and in the runbooks of
these alerts the section "Codes". The rest of both is written by hand.
"""

import re
from pathlib import Path

from agent.catalogue.xid_triage import TRIAGE, XidClass, codes_of
from tests.lab.bench.report import markdown

ALERTS: dict[XidClass, str] = {
    XidClass.NOTE: "GpuXidInfo",
    XidClass.APPLICATION: "GpuXidInfo",
    XidClass.CLEANUP: "GpuXidInfo",
    XidClass.WORDS: "GpuXidUnknown",
    XidClass.LOOK: "GpuXidUnknown",
    XidClass.POWER: "GpuXid",
    XidClass.RESET: "GpuXid",
    XidClass.NODE: "GpuXid",
}
"""The alert of each class. A code of WORDS has that of another class once the agent has read its log line."""

_ALERTS = Path(__file__).resolve().parents[3] / "alerts"
RULES = tuple(_ALERTS / "rules" / name for name in ("advice.yml", "xid.yml"))
RUNBOOKS = _ALERTS / "runbooks"

_ALL_BUT = "all but "
_CODES = re.compile(r'(# codes: ([a-z, ]+)\n.*?xid!?[=~]+")[\d|]*(")')
_SECTION = re.compile(r"^## Codes\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def with_codes(rules: str) -> str:
    """A rule file with the codes of its classes after each comment. Raises ValueError if one names no class."""
    return _CODES.sub(lambda found: f"{found[1]}{'|'.join(map(str, _codes(found[2])))}{found[3]}", rules)


def _codes(words: str) -> tuple[int, ...]:
    named = [XidClass(word) for word in words.removeprefix(_ALL_BUT).split(", ")]
    if not words.startswith(_ALL_BUT):
        return codes_of(*named)
    return codes_of(*(each for each in XidClass if each not in named))


def with_section(runbook: str, alert: str) -> str:
    """A runbook whose section "Codes" is the table's part about this alert."""
    section = _section(alert)
    return _SECTION.sub(lambda _: section, runbook)


def _section(alert: str) -> str:
    rows = ((str(row.code), row.name, row.action) for row in TRIAGE.values() if ALERTS[row.triage] == alert)
    return f"## Codes\n\n{markdown(('XID', 'Name', 'Action'), rows)}\n"


def write() -> None:
    for path in RULES:
        path.write_text(with_codes(path.read_text(encoding="utf-8")), encoding="utf-8")
    for alert in sorted(set(ALERTS.values())):
        path = RUNBOOKS / f"{alert}.md"
        path.write_text(with_section(path.read_text(encoding="utf-8"), alert), encoding="utf-8")
