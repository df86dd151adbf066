"""Print a check: one line for a scheduler or a pager and more for a person, or JSON for a program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from agent.health.verdicts import HealthFinding, Verdict, by_rank, worst
from agent.lib.wording import one_line

if TYPE_CHECKING:
    from agent.commands.check.node_check import CheckResult

STATUSES = {Verdict.OK: 0, Verdict.WARNING: 1, Verdict.CRITICAL: 2, Verdict.UNKNOWN: 3}
"""Exit statuses of the Monitoring Plugins' development guidelines."""
LONGEST = 80
"""Characters of one finding in the first line."""
FINDINGS_IN_SUMMARY = 3
"""Findings in the first line; the lines after it have all of them."""


def status_of(judgement: CheckResult) -> int:
    return STATUSES[worst(judgement.findings)]


def as_text(judgement: CheckResult, verbose: bool) -> str:
    """Return the summary line, and a line for each finding that is not ok, or for every one."""
    lines = [_summary(judgement)]
    if judgement.note:
        lines.append(f"({one_line(judgement.note)})")
    findings = by_rank(judgement.findings)
    lines += [_line(finding) for finding in findings if verbose or finding.verdict not in (Verdict.OK, Verdict.SKIPPED)]
    return "\n".join(lines) + "\n"


def as_json(judgement: CheckResult) -> str:
    """Return the same as an object: verdict, exit status, expectations, and every finding."""
    document: dict[str, object] = {
        "verdict": worst(judgement.findings).value,
        "exit_status": status_of(judgement),
        "summary": _summary(judgement).partition(" | ")[0],
        "expectations": {"name": judgement.expected.name, "description": judgement.expected.node.description},
        "note": judgement.note,
        "findings": [
            {"name": finding.name, **asdict(finding), "verdict": finding.verdict.value}
            for finding in by_rank(judgement.findings)
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _summary(judgement: CheckResult) -> str:
    """Return the line that a scheduler shows. What follows its bar are the counts, as performance data."""
    findings = by_rank(judgement.findings)
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
    judged = len(findings) - counts[Verdict.SKIPPED]
    bad = [finding for finding in findings if finding.verdict not in (Verdict.OK, Verdict.SKIPPED)]
    parts = [f"{finding.name}: {_shorten(finding.found)}" for finding in bad[:FINDINGS_IN_SUMMARY]]
    if len(bad) > FINDINGS_IN_SUMMARY:
        parts.append(f"{len(bad) - FINDINGS_IN_SUMMARY} more")
    parts.append(f"{counts[Verdict.OK]} of {judged} checks ok ({judgement.expected.name})")
    data = " ".join(f"{verdict.value}={counts[verdict]}" for verdict in STATUSES)
    return f"COLDPLATE {worst(findings).name} - {_plain('; '.join(parts))} | {data}"


def _line(finding: HealthFinding) -> str:
    text = f"{finding.verdict.name} {finding.name}: {finding.found} (expected: {finding.expected})"
    return _plain(f"{text}; {finding.remedy}" if finding.remedy and finding.is_met is not True else text)


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rstrip()}..."


def _plain(text: str) -> str:
    """Return one line without a bar, after which a monitoring system would read performance data."""
    return one_line(text, 4000).replace("|", "/")
