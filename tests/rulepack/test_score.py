"""docs/dev/detection.md is current; scenarios and kinds of work fire what is expected; unit tests cover the pack."""

import re
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from agent import cli
from agent.backends.synthetic import load_scenario
from alerts import rulefile
from alerts.engine import Ruleset
from alerts.rulefile import RuleFile
from tests.lab.score import document
from tests.lab.score.__main__ import alerts_of
from tests.lab.score.expectations import EXPECTED
from tests.lab.score.measured_steps import SteppedWork
from tests.lab.score.play import Play, load_pack
from tests.lab.score.plays import digest, of_name, refuse_gaps
from tests.lab.score.scoring import judge
from tests.lab.score.work import COMPUTE, FAULTY, HEALTHY, INFORMED
from tests.lab.score.work_play import play_work, rules_for_jobs

STALE = "docs/dev/detection.md was not made of these rules, scenarios and expectations: run make score"


@pytest.fixture(scope="module")
def page() -> str:
    return document.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rules() -> tuple[RuleFile, ...]:
    return load_pack()


def _played(scenario: str, seconds: int, rules: tuple[RuleFile, ...]) -> Play:
    """A play of a scenario as shipped, which fails and does not hang where a read is made that hangs."""
    play = Play(load_scenario(scenario), rules)
    guard = threading.Timer(30.0, play.close)
    guard.start()
    play.until(seconds)
    guard.cancel()
    play.close()
    return play


def test_the_page_was_made_of_these_rules_and_says_what_was_meant_to_be_reached(
    page: str, rules: tuple[RuleFile, ...]
) -> None:
    assert page.startswith(document.head(page, digest(rules))), STALE
    assert "never" not in "".join(line for line in page.splitlines() if line.startswith("|"))
    assert "MISSED" not in page
    false_alarms = re.findall(r"^\| \w+ \|.* \| (?:the other|all) \d+ \| (\d+) \|$", page, re.MULTILINE)
    assert len(false_alarms) > 70 and set(false_alarms) == {"0"}
    silent = re.findall(r"^\| [\w-]+ \| ([\d.]+) \| none \|", page, re.MULTILINE)
    assert sum(map(float, silent)) >= 12
    healthy = re.search(r"Healthy ones: (\d+) node-hours,\s0 false alarms", page)
    assert healthy is not None
    assert int(healthy[1]) >= 60


@pytest.mark.parametrize(
    ("scenario", "seconds"), [pytest.param("ecc-remap", 345, marks=pytest.mark.release), ("driver-hang", 80)]
)
def test_a_play_as_shipped_gives_the_figures_of_the_page(
    scenario: str, seconds: int, page: str, rules: tuple[RuleFile, ...]
) -> None:
    play = _played(scenario, seconds, rules)
    hits, wrong = judge(EXPECTED[scenario], load_scenario(scenario), play.firings)
    assert (wrong, play.failures) == ([], [])
    if scenario == "driver-hang":
        assert [firing.label("gpu") for firing in play.firings if firing.alert == "GpuLost"] == ["2"]
    for (alert, about), each in document.grouped(hits).items():
        assert f"| {alert} | {about} | {document.shipped(each)} |" in page, STALE


def test_the_table_has_every_scenario_and_only_existing_alerts_and_subjects(rules: tuple[RuleFile, ...]) -> None:
    refuse_gaps(set(alerts_of(rules)))
    for name, expectation in EXPECTED.items():
        hits, _ = judge(expectation, of_name(name), [])
        assert len(hits) >= len(expectation.must), name
        assert all(value for hit in hits for _, value in hit.labels), name


@pytest.mark.parametrize(("scenario", "seconds"), [("healthy-training", 370), ("idle", 70)])
def test_a_healthy_node_is_silent(scenario: str, seconds: int, play: Any) -> None:
    """For as long as the comparisons of GPUs take to fire; hours of it are in `make score`."""
    assert play(scenario, seconds).fired == {}


FAULTS = [
    # scenario, seconds of it, when its fault begins and within how long it is told; what fires, and what the first says
    pytest.param("straggler", 900, 660, 240, [("GpuImbalance", "5")],
                 {"cause": "uneven", "owner": "slurm job 6001 of ada"}, marks=pytest.mark.release),
    ("checkpoint-stall", 190, 120, 60, [("GpuImbalance", "0")], {"cause": "awaited"}),
    ("power-brake", 90, 60, 15, [("GpuPowerBrake", "")], {}),
    ("gpu-lost", 90, 60, 10, [("GpuLost", "3"), ("GpuXid", "3"), *(("GpuXidInfo", str(gpu)) for gpu in range(3))],
     {"owner": "slurm job 6006 of ada"}),
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "seconds", "begins", "within", "alerts", "says"), FAULTS)
def test_a_fault_of_a_node_is_reported_in_time_and_nothing_else_is(
    scenario: str,
    seconds: int,
    begins: int,
    within: int,
    alerts: list[tuple[str, str]],
    says: dict[str, str],
    play: Any,
) -> None:
    node = play(scenario, seconds)
    assert set(node.fired) == set(alerts)
    assert node.fired[alerts[0]] - begins <= within
    alert = node.alert(alerts[0][0])
    assert {**dict(alert.labels), **alert.annotations}.items() >= says.items()


def test_a_gpu_that_was_lost_for_a_minute_is_one_page(rules: tuple[RuleFile, ...], tmp_path: Path) -> None:
    """Its XID goes on for half an hour, and began while it was lost."""
    file = tmp_path / "lost.yaml"
    file.write_text("description: d\ntopology: dgx-h100\nfaults: [{kind: lost, gpu: 3, at: 60s, duration: 60s}]\n")
    play = Play(load_scenario(str(file)), rules).until(300)
    play.close()
    assert [alert.rule for alert in play.firing()] == ["GpuXid"]
    assert [firing.alert for firing in play.sent.values()] == ["GpuLost"]


def test_an_nvswitch_whose_link_fails_is_reported_by_its_address(play: Any, tmp_path: Path) -> None:
    file = tmp_path / "switch.yaml"
    file.write_text("description: d\ntopology: dgx-h100\nfaults: [{kind: sxid, at: 60s, code: 20034, switch: 2}]\n")
    fired = play(str(file), 120).fired
    assert set(fired) == {("NvSwitchErrors", "0000:c3:00.0")}
    assert fired["NvSwitchErrors", "0000:c3:00.0"] - 60 <= 15


@pytest.fixture(scope="module")
def job_rules() -> tuple[RuleFile, ...]:
    return rules_for_jobs(load_pack())


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_work_is_no_alert(name: str, job_rules: tuple[RuleFile, ...]) -> None:
    found = play_work(HEALTHY[name], 1800.0, job_rules, tick=5.0)
    assert [each for each in found if name not in INFORMED or each.severity != "info"] == []


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_of_a_job_is_named_in_time_and_nothing_else_is(name: str, job_rules: tuple[RuleFile, ...]) -> None:
    fault = FAULTY[name]
    found = play_work(fault.work, fault.seconds, job_rules, tick=2.0)
    assert {(each.alert, each.gpu) for each in found} == {(fault.alert, fault.gpu)}
    assert found[0].at - fault.begins <= fault.within
    if fault.warns_within is not None:
        warned = [each.at - fault.begins for each in found if each.severity == "warning"]
        assert warned and warned[0] <= fault.warns_within


SITE = """groups:
- name: site
  rules:
  - {record: x, expr: "avg_over_time(coldplate_gpu_up[30d])"}
  - {record: y, expr: "avg_over_time(coldplate_gpu_power_watts[1y])"}
  - {record: z, expr: "avg_over_time(coldplate_gpu_power_watts[1h])"}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.yml"
    path.write_text(SITE)
    return path


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_lost_gpu_is_found_beside_rules_that_look_back_for_months(
    site: Path, pack: list[RuleFile], reloaded: bool
) -> None:
    both = [rulefile.load(site), *pack]
    play = Play(load_scenario("gpu-lost"), pack if reloaded else both).until(20)
    play.reload(Ruleset(tuple(both)))
    play.until(70)
    play.close()
    fired = {firing.alert: firing.at for firing in play.firings}
    assert 60 <= fired["GpuLost"] <= 68
    assert fired.pop("RulesFailing") < 60
    assert min(fired.values()) >= 60
    reports = {rule.name: rule for group in play.engine.reports() for rule in group.rules}
    assert {name: reports[name].health.value for name in "xyz"} == {"x": "err", "y": "err", "z": "ok"}
    assert "30d" in reports["x"].error and "MiB" in reports["x"].error
    assert play.engine.windows.dropped == 0
    assert play.engine.windows.bytes < 64 * 2**20


def test_rules_check_names_the_price_of_a_range(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "check", str(site)]) == 1
    failed = [line for line in capsys.readouterr().err.splitlines() if "MiB" in line]
    assert [line.strip().partition(":")[2].partition(":")[0] for line in failed] == ["4", "5"]


ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "alerts" / "tests").glob("*.yml"))
RULES = ROOT / "alerts" / "rules"

TARGET = {"cluster": "c1", "rack": "k1"}
OF_RACKS = re.compile("rack|breakers")
"""About racks: their series carry the rack that agents told themselves."""

SLOW = (
    "advice", "agent", "imbalance", "infiniband", "links", "presence", "rack", "rack-equipment", "rack-equipment-drift",
    "rack-state", "thermal", "xid",
)  # fmt: skip
"""Files that take promtool nine tenths of the time of all, before a release; coldplate tests all of them below."""


def names(paths: list[Path]) -> list[str]:
    return [path.name.partition(".")[0] for path in paths]


def copied(path: Path) -> dict[str, Any]:
    """A file that may lie elsewhere."""
    document: dict[str, Any] = yaml.load(path.read_text(), yaml.CSafeLoader)
    document["rule_files"] = [str((path.parent / name).resolve()) for name in document["rule_files"]]
    return document


def of_a_target(series: str) -> str:
    """The series as a server stores it: with the target's labels, but for those that it has itself."""
    name, _, labels = series.partition("{")
    own = {label: value for label, value in TARGET.items() if f'{label}="' not in labels}
    added = ",".join(f'{label}="{value}"' for label, value in own.items())
    return f"{name}{{{added},{labels or '}'}"


def on_a_server(document: dict[str, Any]) -> dict[str, Any]:
    for test in document["tests"]:
        test.pop("promql_expr_test", None)
        for each in test["input_series"]:
            each["series"] = of_a_target(each["series"])
        for check in test.get("alert_rule_test", ()):
            check["exp_alerts"] = [
                {**alert, "exp_labels": {**TARGET, **alert["exp_labels"]}} for alert in check.get("exp_alerts") or ()
            ]
    return document


def test_every_rule_file_has_its_cases() -> None:
    tested = {Path(name).name for path in CASES for name in copied(path)["rule_files"]}
    assert tested == {path.name for path in RULES.glob("*.yml")}


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.release)])
def test_promtool_says_that_all_is_well(slow: bool, promtool: Any) -> None:
    chosen = [path for path, name in zip(CASES, names(CASES), strict=True) if (name in SLOW) == slow]
    assert promtool("test", *chosen) == 0


@pytest.mark.parametrize("path", CASES, ids=names(CASES))
def test_alerts_of_nodes_keep_the_labels_of_their_target(path: Path, tmp_path: Path, coldplate: Any) -> None:
    copy = path
    if not OF_RACKS.match(path.name):
        copy = tmp_path / path.name
        copy.write_text(yaml.dump(on_a_server(copied(path)), Dumper=yaml.CSafeDumper))
    assert coldplate("test", copy) == 0


def test_a_measured_step_that_is_too_long_is_a_gpu_that_others_wait_for() -> None:
    """Steps of 2.5 s, but for one of 12.5: from second 5 on, where it has worked as long as the others, GPU 0 idles."""
    work, random = SteppedWork([2.5, 12.5, *[2.5] * 5]), Random(1)
    seconds = [work(float(second), random) for second in range(25)]
    assert [each.gpus[0].busy < 0.1 for each in seconds] == [5 <= second < 15 for second in range(25)]
    assert all(each.gpus[1].busy == 1.0 for each in seconds)
    assert [each.gpus[1].power < 0.5 * COMPUTE.power for each in seconds] == [5 <= n < 15 for n in range(25)]
