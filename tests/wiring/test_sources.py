"""Which sources a configuration brings, what the sampler is told of it, and how often the rules need each lane."""

import json
import logging
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from agent.config.reading import parse
from agent.config.schema import Config
from agent.daemon.hub import Hub, RecentReadings
from agent.daemon.sampling import SamplingLoop
from agent.model import Alert, Gpu, GroupReport, PastMoment, Phase, RuleReport, Series, Snapshot
from agent.sampler.node_sums import Coefficients
from agent.sampler.schedule import SAMPLES, Ranges, slowest
from agent.wiring import identity
from agent.wiring.agent_client import AgentResponseError, SnapshotReader, read_alerts, read_history
from agent.wiring.alerting import load_rules, ranges_of
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.sources import load_settings, make_sampling_loop
from exporters import rules_json, snapshot_json
from tests.screen.scenes import played

TRACE = Path(__file__).resolve().parents[1] / "nvml/traces/h100x1-580.jsonl"
Make = Callable[[str], SamplingLoop]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(identity, "STATE_DIRECTORY", tmp_path / "not-there")
    made: list[SamplingLoop] = []
    options = CommandLineOptions(sysfs=tmp_path, procfs=tmp_path)

    def make(text: str) -> SamplingLoop:
        made.append(make_sampling_loop(parse(text, "c.yaml"), options, Hub(), {}))
        return made[-1]

    yield make
    for each in made:
        each.close(lambda _: None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("backends: {devices: nvml}", {"host", "infiniband", "kmsg", "optics", "topology", "power", "jobs"}),
        ("backends: {devices: none}", {"host", "infiniband", "optics", "power"}),
        ("backends: {devices: synthetic}", {"host"}),
        (f"backends: {{devices: trace, trace: {TRACE}}}", {"host"}),
        ("backends: {devices: none, host: false, infiniband: false, optics: false, power: [estimate]}", set()),
        (
            "{backends: {devices: nvml, power: [rapl]}, jobs: {sources: []}}",
            {"host", "infiniband", "kmsg", "optics", "topology", "power"},
        ),
    ],
)
def test_sources_are_those_of_the_configuration_that_the_devices_allow(make: Make, text: str, names: set[str]) -> None:
    loop = make(text)
    assert set(loop.sampler.paces) == names
    assert loop.supervisor.held == ("devices: none" in text)


def test_only_an_agent_with_real_gpus_remembers_them_or_says_that_it_cannot(make: Make, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    for text in ("backends: {devices: none}", "backends: {devices: synthetic}"):
        make(text)
    make(f"{{backends: {{devices: nvml}}, state_dir: {tmp_path}}}")
    assert not caplog.records
    make("backends: {devices: nvml}")
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == ["no state directory"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "sampling: {fast: 2s, slow: 20s, cold: 80s, deadline: 4s, window: 30s}",
            {"fast": 2.0, "slow": 20.0, "cold": 80.0, "deadline": 4.0, "window": 30.0},
        ),
        ("backends: {expected_gpus: 8}", {"expected_gpus": 8}),
        ("backends: {power: [estimate], estimate: {factor: 1.5, per_gpu: 20W}}", {"estimate": Coefficients(1.5, 20.0)}),
        ("backends: {power: [rapl]}", {"estimate": None}),
    ],
)
def test_the_sampler_gets_its_part_of_the_configuration(text: str, expected: dict[str, Any]) -> None:
    settings = load_settings(parse(text, "c.yaml"))
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("expr", "ranges"),
    [
        ("rate(coldplate_gpu_pcie_receive_bytes_total[30s])", (30.0, inf, inf)),
        ("avg_over_time(coldplate_node_load1[40s]) > rate(coldplate_ticks_total[90s])", (90.0, 40.0, inf)),
        ("coldplate_node_load1 > 5", (inf, inf, inf)),
        ("rate(somebody_elses_total[1s])", (inf, inf, inf)),
        ('max_over_time({__name__=~"coldplate_node_load.*"}[20s])', (inf, 20.0, inf)),
        ('count_over_time({instance="x"}[10s])', (10.0, 10.0, 10.0)),
    ],
)
def test_ranges_are_those_of_the_metrics_that_are_read(tmp_path: Path, expr: str, ranges: tuple[float, ...]) -> None:
    (tmp_path / "r.yml").write_text(f"groups: [{{name: g, rules: [{{record: 'a:b', expr: '{expr}'}}]}}]")
    loaded = load_rules(parse("rules: {files: [r.yml]}", "c.yaml"), tmp_path)
    assert ranges_of(loaded.groups) == Ranges(*ranges)


def test_with_the_shipped_rules_there_is_room_and_every_range_holds_enough_reads(tmp_path: Path) -> None:
    config = Config()
    ranges = ranges_of(load_rules(config, tmp_path).groups)
    settings = load_settings(config, ranges)
    last = slowest(settings)
    assert (last.fast, last.slow > settings.slow, last.cold > settings.cold) == (1.0, True, True)
    assert all(
        period <= max(shortest / SAMPLES, configured)
        for period, shortest, configured in (
            (last.slow, ranges.slow, settings.slow),
            (last.cold, ranges.cold, settings.cold),
        )
    )


# A running agent's JSON: read back as what it was made of, and refused where it is anything else.
LABELS = (("alertname", "GpuHot"), ("gpu", "3"), ("severity", "warning"), ("uuid", "GPU-x"))


STATES = {Gpu("0", "GPU-x"): "computing", Gpu("1", ""): "held"}


def body() -> bytes:
    return snapshot_json.success(played("gpu-lost", 75)[0][-1], 0.25, "node7", STATES)


def told(snapshot: Snapshot) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    return {(each.metric.name, frozenset(each.series.all_labels), each.value) for each in snapshot}


def test_a_snapshot_is_read_back_as_it_was() -> None:
    sent = played("gpu-lost", 75)[0][-1]
    reader = SnapshotReader()
    for _ in range(2):  # the second time with the series of the first
        got, *others = reader.read(body())
        assert (got.sequence, got.at, others) == (sent.sequence, sent.at, [0.25, "node7", STATES])
        assert told(got) == told(sent)
        gaps = {(gap.metric, gap.entity, gap.reason) for report in sent.reports for gap in report.gaps}
        assert gaps
        assert {(gap.metric, gap.entity, gap.reason) for report in got.reports for gap in report.gaps} == gaps
        assert [report.outcome for report in got.reports] == [report.outcome for report in sent.reports]


def test_a_metric_of_a_newer_agent_is_left_out() -> None:
    answer = json.loads(body())
    count = len(answer["data"]["readings"])
    answer["data"]["readings"].append({"metric": "coldplate_from_tomorrow", "labels": {}, "value": 1, "unit": ""})
    answer["data"]["readings"].append({**answer["data"]["readings"][0], "value": None})
    assert len(SnapshotReader().read(json.dumps(answer).encode())[0]) == count


def test_alerts_are_read_back() -> None:
    alerts = (
        Alert("GpuHot", LABELS, Phase.FIRING, 91.5, 1_700_000_000.25, annotations={"summary": "hot"}),
        Alert("GpuHot", LABELS, Phase.PENDING, 90.0, 1_700_000_000.0),
    )
    group = GroupReport("gpu", "gpu.yml", 1.0, rules=(RuleReport("GpuHot", True, "x", alerts=alerts),))
    assert read_alerts(rules_json.alerts([group])).alerts == list(alerts)


def test_a_history_is_read_back_with_its_holes() -> None:
    kept = RecentReadings()
    for snapshot in played("gpu-lost", 75)[0]:
        kept.observe(snapshot)
    moments = kept.moments()
    got = read_history(snapshot_json.past(moments))
    assert [each.wall for each in got] == [each.wall for each in moments]
    assert [columns(each) for each in got] == [columns(each) for each in moments]
    assert len(columns(got[0])) == 16
    assert len(columns(got[-1])) == 14, "those of the lost GPU"


def columns(moment: PastMoment) -> dict[Series, float]:
    return {each: value for layout, values in moment.parts for each, value in zip(layout.series, values, strict=True)}


HISTORY = {"metric": "coldplate_gpu_power_watts", "labels": {"gpu": "0", "uuid": "GPU-0"}, "values": [1.0, None]}


def test_what_is_unknown_or_of_another_length_in_a_history_costs_itself() -> None:
    told = [HISTORY, {**HISTORY, "values": [1.0]}, {**HISTORY, "metric": "coldplate_from_tomorrow"}]
    assert [len(moment.parts) for moment in read_history(history(told))] == [1, 0]


def history(series: Any) -> bytes:
    return success({"timestamps": [1.0, 2.0], "series": series})


def success(data: Any) -> bytes:
    return json.dumps({"status": "success", "data": data}).encode()


def read_snapshot(answer: bytes) -> object:
    return SnapshotReader().read(answer)


def changed(**data: Any) -> bytes:
    answer = json.loads(body())
    answer["data"].update(data)
    return json.dumps(answer).encode()


ALERT = {"state": "firing", "labels": {"alertname": "x"}, "annotations": {}, "value": "1", "activeAt": "yesterday"}
FOREIGN: tuple[tuple[Callable[[bytes], object], Callable[[], bytes]], ...] = (
    (read_snapshot, lambda: b"<html>"),
    (read_snapshot, lambda: b"[" * 100_000),
    (read_snapshot, lambda: b"[]"),
    (read_snapshot, lambda: success({"resultType": "vector", "result": []})),
    (read_snapshot, lambda: success(None)),
    (read_snapshot, lambda: changed(monotonic="soon")),
    (read_snapshot, lambda: changed(timestamp=1e999)),
    (read_snapshot, lambda: changed(readings=[1])),
    (read_snapshot, lambda: changed(readings=[{"metric": "coldplate_gpu_up", "labels": [], "value": 1}])),
    (read_snapshot, lambda: changed(readings=[{"metric": "coldplate_gpus_expected", "labels": {}, "value": "8"}])),
    (read_snapshot, lambda: changed(reports={"a": 1})),
    (read_history, lambda: history(None)),
    (read_history, lambda: history([1])),
    (read_history, lambda: history([{}])),
    (read_history, lambda: history([{**HISTORY, "values": ["1", 2]}])),
    (read_history, lambda: history([{**HISTORY, "labels": 3}])),
    (read_alerts, lambda: success({})),
    (read_alerts, lambda: success({"alerts": [1]})),
    (read_alerts, lambda: success({"alerts": [{"state": "firing"}]})),
    (read_alerts, lambda: success({"alerts": [ALERT]})),
    (read_alerts, lambda: success({"alerts": [], "nextEvaluation": "soon"})),
)
"""What an answer is read as, and an answer that it is not."""


@pytest.mark.parametrize(("read", "make_answer"), FOREIGN)
def test_what_is_no_agents_answer_is_refused(read: Callable[[bytes], object], make_answer: Callable[[], bytes]) -> None:
    answer = make_answer()
    with pytest.raises(AgentResponseError):
        read(answer)


def test_an_agents_refusal_is_told_in_its_words() -> None:
    with pytest.raises(AgentResponseError, match="no sample yet"):
        SnapshotReader().read(b'{"status":"error","errorType":"unavailable","error":"no sample yet"}')
