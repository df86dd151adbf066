"""The rule pack against the catalogue, its runbooks, its texts, and the conventions that readers of alerts rely on."""

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent.catalogue import BY_NAME
from agent.catalogue.xid_triage import TRIAGE, XidClass, codes_of
from alerts.inhibition import InhibitRule, find_causes, shipped
from alerts.rulefile import AlertingRule, RecordingRule, RuleFile
from tests import warm
from tests.lab.generate import alert_tables
from tests.lab.generate.xid_texts import ALERTS, with_codes, with_section
from tests.rulepack.conftest import OF_A_FLEET, rules_of
from tests.rulepack.expected import told, told_by_servers

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "alerts" / "rules").glob("*.yml"))
RUNBOOKS = ROOT / "alerts" / "runbooks"
OF_PROMETHEUS = {"up", "ALERTS", "ALERTS_FOR_STATE"}
STATIC = {
    "action", "cause", "grade", "kind", "level", "part", "problem", "reason", "sensor", "sign", "state", "type", "what",
    "why",
}  # fmt: skip
"""Labels that rules of one name may differ by, beside the severity."""
DEVICES = {
    "chassis", "connector", "detector", "equipment", "feed", "gpu", "instance", "job_id", "pci", "rack", "unit",
}  # fmt: skip
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


def test_every_metric_of_a_rule_or_annotation_is_in_the_catalogue_or_recorded(pack: list[RuleFile]) -> None:
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
    asked = {name for path in RULES for name in QUERY_IN_TEMPLATE.findall(path.read_text())}
    assert "coldplate_gpu_job_info" in asked
    assert asked <= {rule.name for rule in rules_of(pack, RecordingRule)} | BY_NAME.keys()


def test_every_recording_rule_is_named_by_level_metric_and_operation(pack: list[RuleFile]) -> None:
    shape = r"(gpu|job|node|port|nvswitch|rack|feed):[a-z][a-z0-9_]*:[a-z0-9_]+"
    wrong = [rule.name for rule in rules_of(pack, RecordingRule) if not re.fullmatch(shape, rule.name)]
    assert wrong == []


def test_every_alert_has_one_of_three_severities_and_says_what_to_do(pack: list[RuleFile]) -> None:
    for rule in rules_of(pack, AlertingRule):
        assert re.fullmatch(r"([A-Z][a-z0-9]*)+", rule.name)
        labels = {name: template.render for name, template in rule.labels}
        assert set(labels) - STATIC == {"severity"}, rule.name
        assert not [name for name, template in rule.labels if "{{" in template.source], rule.name
        assert {name for name, _ in rule.annotations} - {"owner"} == {
            "summary", "description", "command", "runbook_url",
        }, rule.name  # fmt: skip
    assert {each.labels["severity"] for each in told()} == {"info", "warning", "critical"}


def test_the_higher_severity_of_an_alert_holds_the_lower_one_back_on_the_same_device(
    pack: list[RuleFile], servers_only: list[RuleFile]
) -> None:
    levels: dict[str, set[str]] = {}
    for rule in rules_of([*pack, *servers_only], AlertingRule):
        levels.setdefault(rule.name, set()).add(dict(rule.labels)["severity"].source)
    examples = {(each.name, each.labels["severity"]): dict(each.labels) for each in (*told(), *told_by_servers())}
    pairs = [
        (name, high, low)
        for name, severities in levels.items()
        for high, low in pairwise(each for each in ("critical", "warning", "info") if each in severities)
    ]
    assert len(pairs) > 15
    for name, high, low in pairs:
        source, target = examples[name, high], examples[name, low]
        same = {**target, **{label: source[label] for label in source.keys() & (DEVICES | {"part"})}}
        assert any(rule.inhibits(source, same) for rule in of(source)), f"{name}: {high} does not inhibit {low}"
        for label in DEVICES & source.keys() & target.keys():
            other = {**same, label: "another"}
            assert not any(rule.inhibits(source, other) for rule in of(source)), f"{name}: whatever its {label}"


@pytest.mark.parametrize(
    ("name", "expectation"),
    [
        ("GpuLost", "gpu-count"), ("GpuCountWrong", "gpu-count"), ("NvLinkDown", "nvlinks"),
        ("GpuPcieDegraded", "pcie-width"), ("InfinibandPortDown", "infiniband-ports"),
        ("InfinibandRateDegraded", "infiniband-rate"), ("GpuFabricDegraded", "fabric"),
        ("RackNvlink", "fabric"), ("RackPowerUnknown", "rack-nodes"),
    ],
)  # fmt: skip
def test_an_expectation_is_held_back_only_by_the_alert_that_names_the_fault(name: str, expectation: str) -> None:
    source = next(dict(each.labels) for each in told() if each.name == name and each.labels["severity"] != "info")
    node = {"alertname": "NodeExpectationNotMet", "severity": "warning", "instance": source.get("instance", "n1")}
    outside = {"cluster": "c", "rack": source.get("rack", "r1")}
    firing = [tuple(sorted(each.items())) for each in (
        source, {**node, "expectation": expectation}, {**node, "expectation": "ecc"},
        {**node, "expectation": expectation, "instance": "n9", "rack": "r9"},
    )]  # fmt: skip
    assert find_causes(firing, shipped(), tuple(outside.items())) == {firing[1]: firing[0]}


def of(source: dict[str, str]) -> list[InhibitRule]:
    """The inhibitions by an alert with these labels."""
    return [rule for rule in shipped() if all(each.matches(source.get(each.name, "")) for each in rule.source)]


BRANCHES = 7
"""Texts with a branch. It only falls: what differs in what to do first is a rule of its own."""


def test_few_texts_have_branches(pack: list[RuleFile], servers_only: list[RuleFile]) -> None:
    """The owner of an alert is put together in one way for all."""
    rules = [*rules_of([*pack, *servers_only], AlertingRule)]
    texts = [
        (rule.name, name) for rule in rules for name, text in (*rule.labels, *rule.annotations)
        if name != "owner" and re.search(r"\{\{-?\s*(else\s+)?if\b", text.source)
    ]  # fmt: skip
    assert len(texts) <= BRANCHES, f"{texts}: give each case a rule of its own"
    assert len(texts) == BRANCHES, "set BRANCHES to the lower number"


LOOKS = {
    "chronyc", "coldplate", "curl", "df", "ethtool", "for", "grep", "ibstat", "iostat", "ipmitool", "journalctl",
    "kubectl", "lspci", "mlxlink", "nvidia-smi", "openssl", "perfquery", "promtool", "py-spy", "python3", "scontrol",
    "sensors", "sort", "systemctl",
}  # fmt: skip
"""Programs that a command may run: with the arguments there they only show."""
CHANGES = re.compile(r"-pl\b|-r\b|--gpu-reset|\b(start|stop|restart|reload|set|clear|makestep|cycle)\b|-C\b")


def commands(pack: list[RuleFile]) -> dict[str, str]:
    return {rule.name: dict(rule.annotations)["command"].source for rule in rules_of(pack, AlertingRule)}


def test_no_text_shows_a_share_with_digits_that_no_sensor_knows() -> None:
    """humanizePercentage alone has four: 45.65% of the time, 0.9236% of what others send."""
    texts = [path.read_text(encoding="utf-8") for path in (*RULES, *sorted(OF_A_FLEET.glob("*.yml")))]
    shares = [share for text in texts for share in re.findall(r"\{\{[^}]*humanizePercentage[^}]*\}\}", text)]
    assert len(shares) > 20
    assert [share for share in shares if 'printf "%.2f"' not in share] == []


def test_every_command_is_one_read_only_line_for_a_shell_and_begins_its_runbook(
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
        shown = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), command)
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert re.search(rf"^## Do first\n\nOn [a-z ]+: `{re.escape(shown)}`\n\n", text, re.MULTILINE), name


def test_every_alert_has_a_runbook_with_every_section_and_every_runbook_an_alert(
    pack: list[RuleFile], servers_only: list[RuleFile]
) -> None:
    names = [rule.name for rule in rules_of([*pack, *servers_only], AlertingRule)]
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == set(names)
    for rule in rules_of([*pack, *servers_only], AlertingRule):
        text = (RUNBOOKS / f"{rule.name}.md").read_text()
        assert text.startswith(f"# {rule.name}\n")
        assert [section for section in SECTIONS if section not in text] == [], rule.name
        own = re.sub(r"rules\.override\.\w+|rules\.disable: \[\w+\]", "", text.removeprefix(f"# {rule.name}"))
        assert not re.search(rf"\b{rule.name}\b", own), f"{rule.name}: sends its reader to itself"


def test_every_alert_has_a_case_that_is_silent(pack: list[RuleFile]) -> None:
    """That each has one that fires is held with the texts that it is to have then."""
    tests = "".join(path.read_text() for path in (ROOT / "alerts" / "tests").glob("*.yml"))
    silent = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests))
    assert silent >= {rule.name for rule in rules_of(pack, AlertingRule)}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_a_document_names_alerts_that_exist(page: Path, pack: list[RuleFile], servers_only: list[RuleFile]) -> None:
    named = set(re.findall(r"\b(?:Gpu|Rack|Infiniband|NvLink|Node|Agent)[A-Z][A-Za-z]+\b", page.read_text()))
    assert named <= {rule.name for rule in rules_of([*pack, *servers_only], AlertingRule)}


TEXTS = [
    *(ROOT / "alerts" / "rules").glob("*.yml"),
    *(ROOT / "alerts" / "runbooks").glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "agent" / "health").glob("*.py"),
    *(ROOT / "agent" / "commands").rglob("*.py"),
    ROOT / "README.md",
]


def test_a_gpu_is_reset_while_the_agent_is_paused_and_not_stopped() -> None:
    found = 0
    for path in TEXTS:
        text = " ".join(path.read_text().split())
        for reset in re.finditer("--gpu-reset", text):
            before = text[max(reset.start() - 300, 0) : reset.start()]
            assert "coldplate pause --for" in before, (path.name, text[reset.start() - 100 : reset.end()])
            assert "stop coldplate" not in before, path.name
            found += 1
    assert found > 10


def test_check_names_the_gpu_whose_row_remap_failed(tmp_path: Path) -> None:
    scenario = tmp_path / "remap.yaml"
    scenario.write_text(
        "description: A row remap of one GPU fails.\ntopology: dgx-h100\nseed: 1\n"
        "faults: [{kind: row-remap, gpu: 3, at: 1s, failure: true}]\n"
    )
    ended = warm.command(["check", "--agent", "none", "--timeout", "20s", "--json", "--scenario", str(scenario)])
    findings = {each["name"]: each for each in json.loads(ended.output)["findings"]}
    assert re.search(r"replaced; GPU 3 \(\S+\): slot \S+ serial \S+", findings["GpuRowRemap"]["remedy"])


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "alerts.md"
HINT = "not what the table of XIDs says; write it anew with: make generate"


def test_the_committed_rules_have_the_table_s_codes_and_read_every_class() -> None:
    for path in RULES:
        text = path.read_text()
        assert with_codes(text) == text, HINT
    named = re.findall(r"# codes: ([a-z, ]+)\n.*?=~", "".join(path.read_text() for path in RULES))
    read = {word for words in named for word in words.split(", ")}
    assert read == {each.value for each in XidClass} - {XidClass.LOOK.value}, "those to look at are all others"
    with pytest.raises(ValueError, match="rest"):
        with_codes('# codes: rest\nup{xid=~""}')


@pytest.mark.parametrize("alert", sorted(set(ALERTS.values())))
def test_a_committed_runbook_has_the_table_s_part_about_its_alert(alert: str) -> None:
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert with_section(text, alert) == text, HINT
    codes = [int(code) for code in re.findall(r"(?m)^\| (\d+) \|", text)]
    assert codes == list(codes_of(*(each for each in XidClass if ALERTS[each] == alert)))


def test_the_committed_reference_has_a_line_for_every_code() -> None:
    assert alert_tables.splice(DOCUMENT.read_text()) == DOCUMENT.read_text(), HINT
    assert [int(code) for code in re.findall(r"(?m)^\| (\d+) \|", DOCUMENT.read_text())] == list(TRIAGE)


LONGEST_SUMMARY = 120
"""Characters with a node's name of two: what a pager and a phone's lock screen show."""
LONGEST_DESCRIPTION = 520
NAMES = {
    "InfinibandPortDown": ("device", "port"), "BackendFailing": ("backend",),
    "GpuXidUnknown": ("xid",), "RackFeedOverload": ("feed",),
}  # fmt: skip
"""Labels beside node, rack, GPU and job without which the text of an alert says too little."""
NOBODY = "no job known"


def about(*labels: str) -> set[str]:
    """The alerts that have one of these labels."""
    return {each.name for each in told() if any(label in each.labels for label in labels)}


def test_every_alert_of_the_pack_names_its_place_and_leads_to_its_runbook(pack: list[RuleFile]) -> None:
    """What varies is in annotations: a job that begins or ends leaves the alert the one that it was.

    An agent that is down shows no runbook, so that another's is linked.
    """
    assert {each.name for each in told()} == {rule.name for rule in rules_of(pack, AlertingRule)}
    for each in told():
        assert each.labels.keys() & {"instance", "rack"}, each
        assert [name for name in ("instance", "rack") if name in each.labels and not each.says(name)] == [], each
        wanted = {"gpu", "uuid", "job_id"} & each.labels.keys()
        assert [name for name in sorted(wanted) if not each.says(name)] == [], each
        assert [name for name in NAMES.get(each.name, ()) if not each.says(name)] == [], each
        assert not each.labels.keys() & {"owner", "user", "namespace", "pod", "name"}, each
        host = "n2:19400" if each.name == "AgentDown" else each.labels.get("instance", "n1")
        assert each.notes["runbook_url"] == f"http://{host}/runbooks/{each.name}"
    without = {each.name for each in told() if "gpu" in each.labels and "uuid" not in each.labels}
    assert without == {"GpuLost"}, "one that has not said who it is"


def test_every_alert_about_a_gpu_or_a_job_says_whose_it_is() -> None:
    """Each has a case in which a job is known, with its user or the namespace of its pod; no other alert has one."""
    owned = {each.name for each in told() if "owner" in each.notes}
    assert owned == about("gpu", "job_id")
    known = {each.name: each.notes["owner"] for each in told() if each.notes.get("owner", NOBODY) != NOBODY}
    assert known.keys() == owned
    assert {each.notes.get("owner") for each in told()} >= {
        "slurm job 4711 of alice", "kubernetes job 9f2c pod ml/trainer-0", "several jobs", NOBODY,
        "slurm job 4711 of alice; slurm job 4712 of bob",
    }  # fmt: skip
    for each in told():
        if (owner := each.notes.get("owner", NOBODY)) not in (NOBODY, "several jobs"):
            assert re.fullmatch(r"\w+ job \w+( pod [\w-]+/[\w-]+| of \w+)(; \w+ job \w+ of \w+)*", owner), each
        if "job_id" in each.labels:
            assert f"{each.labels['scheduler']} job {each.labels['job_id']} of " in owner


def test_owners_are_found_in_one_way_by_gpu_and_in_one_by_job(pack: list[RuleFile]) -> None:
    sources: dict[str, set[str]] = {}
    for file in pack:
        for rule in rules_of([file], AlertingRule):
            owner = dict(rule.annotations).get("owner")
            if owner is not None:
                sources.setdefault(owner.source, set()).add(Path(file.path).name)
    by_job = [source for source, files in sources.items() if files <= {"imbalance.yml", "advice.yml"}]
    assert (len(sources), len(by_job)) == (2, 1)
    one, other = (re.sub(r"\{instance=.*?\}|\$labels\.\w+", "", source).split() for source in sources)
    assert one == other


def test_a_pager_can_show_every_text() -> None:
    for each in told():
        assert 0 < len(each.notes["summary"]) <= LONGEST_SUMMARY, each.notes["summary"]
        assert 0 < len(each.notes["description"]) <= LONGEST_DESCRIPTION, each.name
        for text in (each.notes["summary"], each.notes["description"]):
            assert not re.search(r"\n|  |<no value>|<error|\{\{|%!| of (is|in|has|,)", text), each
        assert each.notes["summary"][-1] not in " .", each
