"""No code that shows a node or a recording compares a reading with a number: the rules judge (alerts/rules)."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOWS = (
    "exporters/headlines.py", "exporters/landing.py", "exporters/landing_parts.py", "exporters/landing_alerts.py",
    "agent/commands/top/screen/view_builder.py", "agent/commands/top/screen/node_view.py",
    "agent/commands/top/screen/gpu_table.py", "agent/commands/top/screen/machine_output.py",
    "agent/commands/check/node_check.py", "agent/commands/check/node_conditions.py", "agent/health/xid_findings.py",
    "agent/health/conditions.py", "agent/health/device_facts.py", "agent/health/ledger_states.py",
    "agent/commands/report.py", "agent/wiring/recorded_alerts.py", "agent/recording/report/observation.py",
    "agent/recording/report/report_card.py", "agent/recording/report/report_document.py",
    "agent/recording/report/html_report.py", "agent/recording/report/comparison.py",
    "agent/recording/report/report_tables.py", "agent/recording/report/report_wording.py",
    "agent/recording/report/run_facts.py",
)  # fmt: skip
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
COUNTED = {"len", "MAX_ROWS", "_MOST_LINES", "MAX_TEXT_LENGTH"}
"""Comparisons with how much fits on a screen or a page, or how many there are."""


def comparisons(path: Path) -> Iterator[str]:
    """Yield each comparison by order in a file, but for those of lengths and of what fits."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and any(isinstance(op, ORDERS) for op in node.ops):
            text = ast.unparse(node)
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            if not names & COUNTED:
                yield f"{path.name}: {text}"


LAYOUT = {
    "comparison.py: size >= 100",
    "comparison.py: value < 0",
    "html_report.py: alert.first <= spans[-1][1]",
    "html_report.py: left_out > 0",
    "html_report.py: run.grid.width > run.interval",
    "report_card.py: observation.times > 1",
    "report_card.py: recorded >= whole - 1.5 * run.interval",
    "report_tables.py: count > MOST_ROWS",
    "report_tables.py: seconds >= 0.5",
    "report_wording.py: 0 < share <= 0.005",
    "report_wording.py: 0.995 <= share < 1",
    "report_wording.py: seconds < 10",
    "report_wording.py: whole >= size",
    "run_facts.py: abs(step.seconds - middle.seconds) <= 0.05 * middle.seconds",
    "run_facts.py: counter.seconds >= COUNTED_SECONDS",
    "run_facts.py: seconds < SHORTEST_WINDOW_SECONDS",
    "gpu_table.py: columns[place].width + 1 > room",
    "landing.py: 0 <= point < LINE_POINTS",
    "landing.py: counts[point] > 0",
    "headlines.py: count > 1",
    "landing.py: alerts.counts.firing > 0",
    "landing_alerts.py: more > 0",
    "landing_alerts.py: overview.failed > 0",
    "node_check.py: 0.0 <= age <= LONGEST_START_SECONDS",
    "node_check.py: evidence.waited - evidence.starved >= timeout",
    "node_check.py: response.age > MAX_AGE_SECONDS",
    "node_check.py: now < request.until <= now + LONGEST_SECONDS",
    "node_view.py: grown > 0",
    "node_view.py: wall - moment.wall >= self._interval * _EARLY",
    "view_builder.py: more > 0",
    "view_builder.py: node.age > limit",
}
"""Comparisons of columns, of what is counted, of how old what is shown is, of how long something took, of how a number
is written, and of whether there is enough of it for a figure."""


def test_what_shows_a_node_has_no_threshold() -> None:
    found = {each for name in SHOWS for each in comparisons(ROOT / name)}
    assert found <= LAYOUT, f"let a rule judge it: {sorted(found - LAYOUT)}"
    assert found >= LAYOUT, f"no longer there: {sorted(LAYOUT - found)}"
