"""Runbooks, whose queries and commands do what they need to, and the example for Alertmanager."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.catalogue import BY_NAME
from agent.commands.rules.rule_lint import lint_query
from alerts.promql import compile_query
from alerts.rulefile import RecordingRule, RuleFile
from tests.each import for_each
from tests.rulepack.conftest import rules_of
from tests.rulepack.expected import told, told_by_servers
from tests.servers import need

TEXTS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).resolve().parents[2] / "alerts" / "runbooks").glob("*.md"))
}
OF_SERVERS = {
    "up",
    "prometheus_rule_group_last_duration_seconds",
    "prometheus_rule_group_iterations_missed_total",
    "prometheus_remote_storage_highest_timestamp_in_seconds",
    "vmalert_iteration_missed_total",
    "prometheus_remote_storage_queue_highest_sent_timestamp_seconds",
    "vmagent_remotewrite_pending_data_bytes",
}
EVERYWHERE = {"instance", "job", "cluster"}
MISSING_OF = {"gpu", "uuid", "link", "device", "port", "rack", "backend"}
"""What coldplate_metric_missing says of the metric that is missing."""

each_runbook = for_each("name", sorted(TEXTS))


def queries(text: str) -> Iterator[str]:
    for block in re.findall(r"```promql\n(.*?)```", text, re.DOTALL):
        yield from (line for line in block.splitlines() if line)


def steps(text: str) -> list[str]:
    """The items of lists and the paragraphs, each in one line."""
    blocks = re.split(r"\n\n|\n(?=\d+\. |[-*] )", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [" ".join(block.split()) for block in blocks]


@each_runbook
def test_every_query_names_what_exists_and_distinguishes_an_action_from_none(
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
                known = {*row.entity.label_names, *row.labels, *EVERYWHERE}
                known |= MISSING_OF if metric == "coldplate_metric_missing" else set()
                assert {each.name for each in selector.matchers} - {"__name__"} <= known, query
        # An `increase` of what begins with its first error, say, is empty in the very night of that error.
        assert [text for text in lint_query(compile_query(query)) if "is not exposed by default" not in text] == []
        # `== 1` of a state is true of the healthy one as well.
        for metric, matchers in re.findall(r"(coldplate_\w+)(?:\{(.*?)\})? == 1", query):
            assert "action" not in BY_NAME[metric].labels or 'action!="none"' in matchers, query


def test_prometheus_takes_every_query(tmp_path: Path, promtool: Any) -> None:
    lines = [
        f"  - record: a{number}\n    expr: '{query.replace(chr(39), chr(39) * 2)}'\n"
        for number, query in enumerate(query for text in TEXTS.values() for query in queries(text))
    ]
    assert len(lines) > 100
    file = tmp_path / "queries.yml"
    file.write_text("groups:\n- name: runbooks\n  rules:\n" + "".join(lines))
    assert promtool("check", file) == 0


@each_runbook
def test_whoever_resets_a_gpu_has_the_agent_let_go_first_and_take_it_up_again(name: str) -> None:
    """The agent's worker holds the devices, and the driver resets none that is in use."""
    commands = re.findall(r"`(?:coldplate pause )?(--for|nvidia-smi --gpu-reset|--end)[^`]*`", TEXTS[name])
    kinds = [command.partition(" ")[0] for command in commands]
    resets = "nvidia-smi" in kinds
    assert resets == bool(re.search(r"\breset (?:it|the GPU|all GPUs)|gpu-reset", TEXTS[name]))
    assert kinds == ["--for", "nvidia-smi", "--end"] or not resets


@each_runbook
def test_a_step_for_one_scheduler_has_the_command_of_the_other_too(name: str) -> None:
    slurm, kubernetes = re.compile(r"`(?:scontrol|scancel|squeue) "), re.compile(r"(?:`|\|\| )kubectl ")
    for step in steps(TEXTS[name]):
        assert bool(slurm.search(step)) == bool(kubernetes.search(step)) or "scontrol hold" in step, step
        for pair in (("state=drain", "kubectl cordon"), ("state=resume", "kubectl uncordon")):
            assert (pair[0] in step) == (pair[1] in step), step
        assert "scancel" not in step or "kubectl -n NAMESPACE delete pod" in step, step
    prose = re.sub(r"`[^`]*`|```.*?```", "", TEXTS[name], flags=re.DOTALL)
    assert not re.search(r"\b[Dd]rain\b(?! and )", prose), name
    assert "Take the node out" not in TEXTS[name] or "kubectl cordon NODE" in TEXTS[name]


EXAMPLE = Path(__file__).resolve().parents[2] / "alerts" / "server" / "alertmanager.yml"
LEFT_OUT = "NOTHING shows here that an Alertmanager can load the example"
OF_THE_NODE = {"cluster", "rack"}
"""Labels that agents add on the way out."""
RECEIVERS = {
    "pager": "AgentDown ClusterAgentsDown RackAgentsDown ShardDown "
    "GpuEccErrors:critical GpuFabricDegraded:critical GpuLost GpuCountWrong "
    "FabricManagerDown "
    "GpuPowerBrake GpuThrottled:critical GpuRecoveryActionNeeded GpuRowRemap:critical GpuXid:critical "
    "InfinibandPortDown NvLinkDown NvSwitchErrors:critical RackNvlink",
    "tickets": "PortHot EthernetFecErrors PortFlapping GpuEccErrors:warning "
    "GpuFabricDegraded:warning GpuHot GpuTemperatureDrift GpuLemon GpuPcieDegraded "
    "GpuRowRemap:warning GpuThrottled:warning GpuXid:warning GpuXidUnknown "
    "InfinibandRateDegraded InfinibandErrors InfinibandRailLagging "
    "JobGpuSlow JobRailSlow NodeExpectationNotMet NodeMemoryErrors NodeMountDown NodeProcessesStuck "
    " NodePowerEstimated NodePowerOverShare "
    "NvLinkErrors NvSwitchErrors:warning RackAgentsDisagree TransceiverDegrading",
    "job-owners": "GpuAllocatedIdle GpuDataStarvation GpuImbalance GpuJobSaving GpuJobSyncStall GpuStraggler JobHung",
    "monitoring": "AgentDiskFailing AgentStalled AlertsUndelivered BackendFailing ConfigReloadFailed MetricsMissing "
    "RulesFailing ShardRulesLate ShardTargetsLost ShardWriteBehind WebCertificateExpiring",
    "pager,facility-pager": "LeakDetected:critical RackLeak:critical",
    "facility-pager": "CoolantFlowLow CoolantSupplyHot:critical",
    "facility-tickets": "CoolantSupplyHot:warning LeakDetected:warning LeakDetectorBlind",
    "archive": "GpuClockLow GpuPowerLimitLow PartReplaced GpuXidInfo InfinibandCongestion",
}
"""The receiver of each alert, of some by severity; alerts of a rack go to the facility, by severity."""


def amtool(*arguments: str) -> str:
    command = [need("amtool", left_out=LEFT_OUT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def example() -> dict[str, Any]:
    return yaml.safe_load(EXAMPLE.read_text())


def routes(route: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield route
    for each in route.get("routes", ()):
        yield from routes(each)


def matching(matchers: list[str]) -> list[dict[str, str]]:
    """The labels of the pack's alerts that all matchers take, each kind of alert once and with those of its node."""
    found = {}
    for each in (*told(), *told_by_servers()):
        labels = {"cluster": "c", "rack": "r", **each.labels}
        if all(takes(matcher, labels) for matcher in matchers):
            found[each.name, labels["severity"]] = labels
    return list(found.values())


def takes(matcher: str, labels: dict[str, str]) -> bool:
    parsed = re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', matcher)
    assert parsed is not None, matcher
    value = labels.get(parsed[1], "")
    same = re.fullmatch(parsed[3], value) is not None if "~" in parsed[2] else value == parsed[3]
    return same != parsed[2].startswith("!")


def test_an_alertmanager_loads_it_with_its_texts() -> None:
    shown = amtool("check-config", str(EXAMPLE))
    assert f"{len(example()['inhibit_rules'])} inhibit rules" in shown
    assert "1 templates" in shown


def told_by_amtool(labels: dict[str, str]) -> str:
    pairs = [f"{name}={value}" for name, value in labels.items() if value]
    return amtool("config", "routes", "test", f"--config.file={EXAMPLE}", *pairs).strip()


def routed(labels: dict[str, str], route: dict[str, Any]) -> str:
    """Return the receivers below a route: of the first route in it that matches, and of the next after a `continue`."""
    found = []
    for each in route.get("routes", ()):
        if all(takes(matcher, labels) for matcher in each["matchers"]):
            found.append(routed(labels, each))
            if not each.get("continue"):
                break
    return ",".join(found) or route["receiver"]


def test_every_alert_of_the_pack_goes_to_the_right_receivers() -> None:
    """With a rack; of each receiver one without, and these as amtool routes them, which has to be started for each."""
    top = example()["route"]
    wanted = {name: receiver for receiver, names in RECEIVERS.items() for name in names.split()}
    seen, used = set(), set()
    for labels in matching([]):
        name = labels["alertname"]
        key = next((each for each in (f"{name}:{labels['severity']}", name) if each in wanted), None)
        if key is None:
            assert "instance" not in labels, f"{name} is of no rack: name its receiver"
            receiver = "facility-pager" if labels["severity"] == "critical" else "facility-tickets"
        else:
            receiver = wanted[key]
            used.add(key)
        assert routed(labels, top) == receiver, labels
        if "instance" in labels and receiver not in seen:
            seen.add(receiver)
            assert told_by_amtool(labels) == told_by_amtool({**labels, "rack": ""}) == receiver, labels
    assert used == wanted.keys()


def test_what_is_grouped_by_is_a_label_of_what_is_routed_there() -> None:
    for route in routes(example()["route"]):
        alerts = matching(route.get("matchers", []))
        assert alerts, route
        for labels in alerts if "matchers" in route else ():
            assert set(route.get("group_by", ())) <= labels.keys(), (labels["alertname"], route)


@pytest.mark.parametrize("rule", example()["inhibit_rules"], ids=lambda rule: rule["source_matchers"][0])
def test_an_inhibition_is_between_alerts_that_are_there_with_labels_that_they_have(rule: dict[str, Any]) -> None:
    """What both alerts lack would count as equal; what one lacks, as different: either way the rule would be wrong."""
    for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
        for name in re.findall(r"\w+", matcher.partition('"')[2]) if matcher.startswith("alertname") else ():
            assert name in {each.name for each in (*told(), *told_by_servers())} or ".+" in matcher, matcher
    sources, targets = matching(rule["source_matchers"]), matching(rule["target_matchers"])
    assert sources
    assert all(set(rule["equal"]) <= labels.keys() for labels in sources)
    having = [labels for labels in targets if set(rule["equal"]) - OF_THE_NODE <= labels.keys()]
    assert having
    assert not [labels for labels in sources if labels in targets]
    ranks = {"info": 0, "warning": 1, "critical": 2}
    strongest = max(ranks[labels["severity"]] for labels in sources)
    if sources[0]["alertname"] != "GpuLost":
        assert all(ranks[labels["severity"]] <= strongest for labels in having), "what is worse is never left out"


def test_a_text_has_owner_changes_command_and_runbook_and_a_title_says_how_many(tmp_path: Path) -> None:
    alert = next(each for each in told() if each.name == "GpuLost" and "uuid" in each.labels)
    changes = {"changes": "22:01:40Z GPU 0: XID 79 (from 22:00:00Z to 22:02:00Z)"}
    one = {"status": "firing", "labels": dict(alert.labels), "annotations": {**alert.notes, **changes}}
    title, text = (
        rendered(tmp_path, [one], {"cluster": "c1", "rack": "r12"}, name)
        for name in ("coldplate.title", "coldplate.text")
    )
    assert title == "[FIRING 1] c1 rack r12: GPU 0 of n1 does not answer"
    assert text.startswith("firing critical: GPU 0 of n1 does not answer\nGPU-0 is missing")
    assert text.rstrip().endswith(
        "Owner: slurm job 4711 of alice\n"
        "Changes: 22:01:40Z GPU 0: XID 79 (from 22:00:00Z to 22:02:00Z)\n"
        "Look: journalctl -k --grep 'NVRM|Xid' -n 50\n"
        "Runbook: http://n1/runbooks/GpuLost"
    )
    many = rendered(tmp_path, [one] * 3, {"alertname": "GpuLost"}, "coldplate.title")
    assert many == "[FIRING 3]: 3 alerts, all GpuLost"
    left = rendered(tmp_path, [{**one, "status": "resolved"}, one], {}, "coldplate.title")
    assert left == "[FIRING 1]: GPU 0 of n1 does not answer"


def rendered(folder: Path, alerts: list[dict[str, Any]], common: dict[str, str], name: str) -> str:
    data = folder / "data.json"
    data.write_text(json.dumps({"status": "firing", "alerts": alerts, "commonLabels": common}))
    return amtool(
        "template",
        "render",
        f"--template.glob={EXAMPLE.parent / '*.tmpl'}",
        f"--template.data={data}",
        f'--template.text={{{{ template "{name}" . }}}}',
    ).removesuffix("\n")
