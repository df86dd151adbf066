"""docs/alerts.md: the alerts of the pack by subject, and what each XID asks for."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from agent.catalogue.xid_triage import TRIAGE, TriagedXid, XidClass
from tests.lab.bench.report import markdown, put_generated
from tests.lab.generate.xid_texts import ALERTS
from tests.lab.score.expectations import EXPECTED

RULES = Path(__file__).resolve().parents[3] / "alerts" / "rules"
OFF = "advice"
SEVERITIES = ("critical", "warning", "info")


def splice(document: str) -> str:
    return put_generated(put_generated(document, "alerts", "\n".join(_lines())), "xids", _xids())


def _lines() -> Iterator[str]:
    yield "| alert | severity | after | scenario that shows it |\n|---|---|---|---|"
    for path in sorted(RULES.glob("*.yml"), key=lambda path: (path.stem == OFF, path.stem)):
        yield f"| **{path.stem}**{' (off by default)' if path.stem == OFF else ''} | | | |"
        rules = [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
        for name in dict.fromkeys(rule["alert"] for rule in rules if "alert" in rule):
            yield _line(name, [rule for rule in rules if rule.get("alert") == name])


def _line(name: str, rules: list[dict[str, dict[str, str]]]) -> str:
    written = {rule["labels"]["severity"] for rule in rules}
    severity = ", ".join(word for word in SEVERITIES if word in written)
    holds = ", ".join(dict.fromkeys(str(rule.get("for", "at once")) for rule in rules))
    shown = [each for each, wanted in EXPECTED.items() if any(must.alert == name for must in wanted.must)]
    scenario = next((f"`{each}`" for each in shown if not EXPECTED[each].base), "")
    return f"| [{name}](../alerts/runbooks/{name}.md) | {severity} | {holds} | {scenario} |"


def _xids() -> str:
    """What each XID asks for, and the alert about it."""
    return markdown(("XID", "Name", "Class", "Action", "Alert", "Bucket"), map(_xid, TRIAGE.values()))


def _xid(row: TriagedXid) -> tuple[str, ...]:
    alert = "by its log line" if row.triage is XidClass.WORDS else ALERTS[row.triage]
    bucket = f"`{row.bucket}`" if row.bucket else "none"
    return str(row.code), row.name, row.triage.value, row.action, alert, bucket
