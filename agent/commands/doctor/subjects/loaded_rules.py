"""The rule files, loaded as the agent loads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.config.schema import ConfigError

RANK = 140
RULES = Diagnoses("rules")


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """All files at once, as they are loaded, and what the running agent says of them."""
    yield RULES.check("rules.files", _load, node)
    yield RULES.check(node.target.shown, _running, node)


def _load(node: ExaminedNode) -> Iterator[Diagnosis]:
    from agent.wiring.alerting import load_files

    try:
        files = load_files(node.config, node.folder)
    except ConfigError as error:
        first, *problems = str(error).splitlines()
        for problem in problems or [first]:
            yield RULES.fail(problem.strip(), "correct it; coldplate rules check FILE shows every error")
        return
    for warning in (warning for file in files for warning in file.warnings):
        yield RULES.warn(str(warning), "coldplate rules check FILE shows more")
    count = sum(file.rule_count for file in files)
    yield RULES.ok(f"{count} rules in {len(files)} files" if files else "none: rules.files is []")


def _running(node: ExaminedNode) -> Iterator[Diagnosis]:
    if node.agent is None:
        return
    failing = sum(node.agent.values("coldplate_rule_evaluation_failures_total"))
    if failing:
        remedy = f"curl -s {node.target.shown}/api/v1/rules | grep lastError"
        yield RULES.warn(f"{failing:.0f} evaluations failed since the agent was started", remedy)
