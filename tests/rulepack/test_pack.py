"""The rule pack against the catalogue, its runbooks, and the conventions that readers of alerts rely on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.catalogue import BY_NAME
from alerts.rulefile import AlertingRule, RecordingRule, RuleFile
from tests.rulepack.conftest import rules_of
from tests.rulepack.expected import told

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "alerts" / "rules").glob("*.yml"))
RUNBOOKS = ROOT / "alerts" / "runbooks"
OF_PROMETHEUS = {"up", "ALERTS", "ALERTS_FOR_STATE"}
LADDERS = {"GpuImbalance", "GpuStraggler", "GpuJobSyncStall", "JobHung"}
"""Alerts of several rules, told apart by a label or by their severity."""
OF_BOTH = {"AgentDown"}
"""The pack has it for a single server, and a fleet's shards for themselves."""
SECTIONS = ("## What it means, and why it matters", "## Do first", "## Confirm", "## Look-alikes", "## Escalate")
QUERY_IN_TEMPLATE = re.compile(r'printf "(?:[^"]*\()?([a-z_:0-9]+)\{')


def names_read(rule: AlertingRule | RecordingRule) -> set[str]:
    return {
        matcher.value
        for selector in rule.query.selectors
        for matcher in selector.matchers
        if matcher.name == "__name__"
    }


@pytest.mark.parametrize("path", RULES, ids=[path.stem for path in RULES])
def test_promtool_and_coldplate_load_every_file(path: Path, promtool: Any, coldplate: Any) -> None:
    assert (promtool("check", path), coldplate("check", path)) == (0, 0)


def test_every_metric_that_a_rule_reads_is_in_the_catalogue_or_recorded_in_the_same_group(pack: list[RuleFile]) -> None:
    unknown = []
    for file in pack:
        for group in file.groups:
            recorded: set[str] = set()
            for rule in group.rules:
                itself = {rule.name} if isinstance(rule, RecordingRule) else set()  # a rule that remembers reads itself
                known = BY_NAME.keys() | OF_PROMETHEUS | recorded | itself
                unknown += [f"{rule.name}: {name}" for name in sorted(names_read(rule) - known)]
                if isinstance(rule, RecordingRule):
                    recorded.add(rule.name)
    assert unknown == []


def test_every_metric_that_an_annotation_asks_for_is_there(pack: list[RuleFile]) -> None:
    asked = {name for path in RULES for name in QUERY_IN_TEMPLATE.findall(path.read_text())}
    assert "coldplate_gpu_job_info" in asked
    assert asked <= {rule.name for rule in rules_of(pack, RecordingRule)} | BY_NAME.keys()


def test_every_recording_rule_is_named_by_level_metric_and_operation(pack: list[RuleFile]) -> None:
    shape = r"(gpu|job|node|port|nvswitch|rack|feed):[a-z][a-z0-9_]*:[a-z0-9_]+"
    wrong = [rule.name for rule in rules_of(pack, RecordingRule) if not re.fullmatch(shape, rule.name)]
    assert wrong == []


def test_every_alert_has_a_severity_and_says_what_to_do(pack: list[RuleFile]) -> None:
    for rule in rules_of(pack, AlertingRule):
        assert re.fullmatch(r"([A-Z][a-z0-9]*)+", rule.name)
        labels = {name: template.render for name, template in rule.labels}
        assert set(labels) - {"cause", "sign"} == {"severity"}, rule.name
        assert {name for name, _ in rule.annotations} - {"owner"} == {
            "summary", "description", "command", "runbook_url",
        }, rule.name  # fmt: skip


LOOKS = {
    "chronyc", "coldplate", "curl", "df", "ethtool", "for", "grep", "ibstat", "iostat", "ipmitool", "journalctl",
    "kubectl", "lspci", "mlxlink", "nvidia-smi", "openssl", "perfquery", "promtool", "py-spy", "python3", "scontrol",
    "sensors", "sort", "systemctl",
}  # fmt: skip
"""Programs that a command may run: with the arguments there they only show."""
CHANGES = re.compile(r"-pl\b|-r\b|--gpu-reset|\b(start|stop|restart|reload|set|clear|makestep|cycle)\b|-C\b")


def commands(pack: list[RuleFile]) -> dict[str, str]:
    return {rule.name: dict(rule.annotations)["command"].source for rule in rules_of(pack, AlertingRule)}


def test_every_command_is_one_line_for_a_shell_and_only_looks(
    pack: list[RuleFile], servers_only: list[RuleFile]
) -> None:
    for name, command in commands([*pack, *servers_only]).items():
        shown = re.sub(r"\{\{ \$labels\.\w+ \}\}", "x", command)
        assert "{{" not in shown and "\n" not in shown, name
        assert subprocess.run(["bash", "-n", "-c", shown], check=False, capture_output=True).stderr == b"", name
        outside = re.sub(r"'[^']*'", "''", shown)
        programs = re.findall(r"(?:^|[|;(] ?|\bdo )([a-z][\w-]*)", outside)
        assert set(programs) - {"do", "done"} <= LOOKS, (name, programs)
        assert not CHANGES.search(re.sub(r"perfquery -x -C x|'[^']*'", "", shown)), name


def test_a_runbook_begins_with_the_alerts_command(pack: list[RuleFile], servers_only: list[RuleFile]) -> None:
    for name, command in commands([*pack, *servers_only]).items():
        shown = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), command)
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert re.search(rf"^## Do first\n\nOn [a-z ]+: `{re.escape(shown)}`\n\n", text, re.MULTILINE), name


def test_every_severity_is_one_of_three() -> None:
    assert {each.labels["severity"] for each in told()} == {"info", "warning", "critical"}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert(
    pack: list[RuleFile], servers_only: list[RuleFile]
) -> None:
    names = [rule.name for rule in rules_of([*pack, *servers_only], AlertingRule)]
    assert {name for name in names if names.count(name) > 1} == OF_BOTH | LADDERS
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == set(names)


def test_every_runbook_has_every_section(pack: list[RuleFile], servers_only: list[RuleFile]) -> None:
    for rule in rules_of([*pack, *servers_only], AlertingRule):
        text = (RUNBOOKS / f"{rule.name}.md").read_text()
        assert text.startswith(f"# {rule.name}\n")
        assert [section for section in SECTIONS if section not in text] == [], rule.name


def test_every_alert_has_a_case_that_is_silent(pack: list[RuleFile]) -> None:
    """That each has one that fires is held with the texts that it is to have then."""
    tests = "".join(path.read_text() for path in (ROOT / "alerts" / "tests").glob("*.yml"))
    silent = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests))
    assert silent >= {rule.name for rule in rules_of(pack, AlertingRule)}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_a_document_names_alerts_that_exist(page: Path, pack: list[RuleFile], servers_only: list[RuleFile]) -> None:
    named = set(re.findall(r"\b(?:Gpu|Rack|Infiniband|NvLink|Node|Agent)[A-Z][A-Za-z]+\b", page.read_text()))
    assert named <= {rule.name for rule in rules_of([*pack, *servers_only], AlertingRule)}
