"""Runbooks are followed at night, as they stand: their queries are queries, and their commands do what they need to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.catalogue import BY_NAME
from agent.commands.rules.rule_lint import lint_query
from agent.model import Backend, Gpu, IbPort, Node, NvLink, Rack
from alerts import packs
from alerts.promql import compile_query
from alerts.rulefile import RecordingRule, RuleFile
from tests.each import for_each
from tests.rulepack.conftest import rules_of

TEXTS = packs.runbooks()
ENTITIES = (Node(), Gpu("", ""), NvLink(Gpu("", ""), 0), IbPort("", ""), Rack(""), Backend(""))
LABELS = {type(each): {name for name, _ in each.labels} for each in ENTITIES}
OF_SERVERS = {
    "up", "prometheus_rule_group_last_duration_seconds", "prometheus_rule_group_iterations_missed_total",
    "prometheus_remote_storage_highest_timestamp_in_seconds", "vmalert_iteration_missed_total",
    "prometheus_remote_storage_queue_highest_sent_timestamp_seconds", "vmagent_remotewrite_pending_data_bytes",
}  # fmt: skip
EVERYWHERE = {"instance", "job", "cluster"}
MISSING_OF = {"gpu", "uuid", "link", "device", "port", "rack", "backend"}
"""What coldplate_metric_missing says of the metric that is missing."""

each_runbook = for_each("name", sorted(TEXTS))


def queries(text: str) -> Iterator[str]:
    for block in re.findall(r"```promql\n(.*?)```", text, re.DOTALL):
        yield from (line for line in block.splitlines() if line)


def steps(text: str) -> list[str]:
    """The items of lists and the paragraphs, each in one line."""
    blocks = re.split(r"\n\n|\n(?=\d+\. |- )", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [" ".join(block.split()) for block in blocks]


@each_runbook
def test_every_query_names_metrics_and_labels_that_are_there(
    name: str, pack: list[RuleFile], servers_only: list[RuleFile]
) -> None:
    recorded = {rule.name for rule in rules_of([*pack, *servers_only], RecordingRule)}
    found = list(queries(TEXTS[name]))
    assert found
    for query in found:
        for selector in compile_query(query).selectors:
            (metric,) = (each.value for each in selector.matchers if each.name == "__name__")
            assert metric in BY_NAME.keys() | OF_SERVERS | recorded, query
            if metric in BY_NAME:
                row = BY_NAME[metric]
                known = LABELS[row.entity] | set(row.labels) | EVERYWHERE
                known |= MISSING_OF if metric == "coldplate_metric_missing" else set()
                assert {each.name for each in selector.matchers} - {"__name__"} <= known, query


@each_runbook
def test_there_is_nothing_to_advise_on_a_query_but_to_ask_for_what_the_page_leaves_out(name: str) -> None:
    """An `increase` of what begins with its first error, say, is empty in the very night of that error."""
    for query in queries(TEXTS[name]):
        assert [text for text in lint_query(compile_query(query)) if "is not exposed by default" not in text] == []


def test_prometheus_takes_every_query(tmp_path: Path, promtool: Any) -> None:
    lines = [f"  - record: a{number}\n    expr: '{query.replace(chr(39), chr(39) * 2)}'\n"
             for number, query in enumerate(query for text in TEXTS.values() for query in queries(text))]  # fmt: skip
    assert len(lines) > 100
    file = tmp_path / "queries.yml"
    file.write_text("groups:\n- name: runbooks\n  rules:\n" + "".join(lines))
    assert promtool("check", file) == 0


@each_runbook
def test_what_asks_for_an_action_is_distinguished_from_what_asks_for_none(name: str) -> None:
    """`== 1` of a state is true of the healthy one as well."""
    for query in queries(TEXTS[name]):
        for metric, matchers in re.findall(r"(coldplate_\w+)(?:\{(.*?)\})? == 1", query):
            assert "action" not in BY_NAME[metric].labels or 'action!="none"' in matchers, query


@each_runbook
def test_whoever_resets_a_gpu_has_the_agent_let_go_first_and_take_it_up_again(name: str) -> None:
    """The agent's worker holds the devices, and the driver resets none that is in use."""
    commands = re.findall(r"`(?:coldplate pause )?(--for|nvidia-smi --gpu-reset|--end)[^`]*`", TEXTS[name])
    kinds = [command.partition(" ")[0] for command in commands]
    resets = "nvidia-smi" in kinds
    assert resets == bool(re.search(r"\breset (?:it|the GPU|all GPUs)|gpu-reset", TEXTS[name]))
    assert kinds == ["--for", "nvidia-smi", "--end"] or not resets


@each_runbook
def test_a_step_for_one_scheduler_has_the_command_of_the_other(name: str) -> None:
    slurm, kubernetes = re.compile(r"`(?:scontrol|scancel|squeue) "), re.compile(r"(?:`|\|\| )kubectl ")
    for step in steps(TEXTS[name]):
        assert bool(slurm.search(step)) == bool(kubernetes.search(step)) or "scontrol hold" in step, step
        for pair in (("state=drain", "kubectl cordon"), ("state=resume", "kubectl uncordon")):
            assert (pair[0] in step) == (pair[1] in step), step
        assert "scancel" not in step or "kubectl -n NAMESPACE delete pod" in step, step


@each_runbook
def test_a_node_is_drained_by_commands_and_not_by_a_word(name: str) -> None:
    prose = re.sub(r"`[^`]*`|```.*?```", "", TEXTS[name], flags=re.DOTALL)
    assert not re.search(r"\b[Dd]rain\b(?! and )", prose), name
    assert "Take the node out" not in TEXTS[name] or "kubectl cordon NODE" in TEXTS[name]
