"""A running agent's JSON: read back as what it was made of, and refused where it is anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agent.daemon.hub import RecentReadings
from agent.model import Alert, GroupReport, PastMoment, Phase, RuleReport, Series, Snapshot
from agent.wiring.agent_client import AgentResponseError, SnapshotReader, read_alerts, read_history
from exporters import snapshot_json
from exporters.rules_json import RulePrinter
from tests.screen.scenes import played

LABELS = (("alertname", "GpuHot"), ("gpu", "3"), ("severity", "warning"), ("uuid", "GPU-x"))


def body() -> bytes:
    return b"".join(snapshot_json.success(played("gpu-lost", 75)[0][-1], 0.25))


def told(snapshot: Snapshot) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    return {(each.metric.name, frozenset(each.series.all_labels), each.value) for each in snapshot}


def test_a_snapshot_is_read_back_as_it_was() -> None:
    sent = played("gpu-lost", 75)[0][-1]
    reader = SnapshotReader()
    for _ in range(2):  # the second time with the series of the first
        got, age = reader.read(body())
        assert (got.sequence, got.at, age) == (sent.sequence, sent.at, 0.25)
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
    assert read_alerts(b"".join(RulePrinter().alerts([group]))) == list(alerts)


def test_a_history_is_read_back_with_its_holes() -> None:
    kept = RecentReadings()
    for snapshot in played("gpu-lost", 75)[0]:
        kept.observe(snapshot)
    moments = kept.moments()
    got = read_history(b"".join(snapshot_json.past(moments)))
    assert [each.wall for each in got] == [each.wall for each in moments]
    assert [columns(each) for each in got] == [columns(each) for each in moments]
    assert len(columns(got[0])) == 16
    assert len(columns(got[-1])) == 14, "those of the lost GPU"


def columns(moment: PastMoment) -> dict[Series, float]:
    return {each: value for layout, values in moment.parts for each, value in zip(layout.series, values, strict=True)}


HISTORY = {"metric": "coldplate_gpu_power_watts", "labels": {"gpu": "0", "uuid": "GPU-0"}, "values": [1.0, None]}


def test_what_is_unknown_or_of_another_length_in_a_history_costs_itself() -> None:
    told = [HISTORY, {**HISTORY, "values": [1.0]}, {**HISTORY, "metric": "coldplate_from_tomorrow"}]
    body = json.dumps({"status": "success", "data": {"timestamps": [1.0, 2.0], "series": told}}).encode()
    assert [len(moment.parts) for moment in read_history(body)] == [1, 0]


@pytest.mark.parametrize("series", [None, [1], [{}], [{**HISTORY, "values": ["1", 2]}], [{**HISTORY, "labels": 3}]])
def test_what_is_no_history_is_refused(series: Any) -> None:
    body = json.dumps({"status": "success", "data": {"timestamps": [1.0, 2.0], "series": series}}).encode()
    with pytest.raises(AgentResponseError, match="not an agent's"):
        read_history(body)


def changed(**data: Any) -> bytes:
    answer = json.loads(body())
    answer["data"].update(data)
    return json.dumps(answer).encode()


FOREIGN: dict[str, Callable[[], bytes]] = {
    "no JSON": lambda: b"<html>",
    "deep": lambda: b"[" * 100_000,
    "a list": lambda: b"[]",
    "another API": lambda: b'{"status":"success","data":{"resultType":"vector","result":[]}}',
    "no data": lambda: b'{"status":"success","data":null}',
    "times in words": lambda: changed(monotonic="soon"),
    "an infinite time": lambda: changed(timestamp=1e999),
    "readings of another shape": lambda: changed(readings=[1]),
    "a reading without labels": lambda: changed(readings=[{"metric": "coldplate_gpu_up", "labels": [], "value": 1}]),
    "a value in words": lambda: changed(readings=[{"metric": "coldplate_gpus_expected", "labels": {}, "value": "8"}]),
    "reports of another shape": lambda: changed(reports={"a": 1}),
}


@pytest.mark.parametrize("answer", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_agents_answer_is_refused(answer: Callable[[], bytes]) -> None:
    body = answer()
    with pytest.raises(AgentResponseError):
        SnapshotReader().read(body)


def test_an_agents_refusal_is_told_in_its_words() -> None:
    with pytest.raises(AgentResponseError, match="no sample yet"):
        SnapshotReader().read(b'{"status":"error","errorType":"unavailable","error":"no sample yet"}')


@pytest.mark.parametrize(
    "answer", [{}, {"alerts": [1]}, {"alerts": [{"state": "firing"}]},
               {"alerts": [{"state": "firing", "labels": {"alertname": "x"}, "annotations": {}, "value": "1",
                            "activeAt": "yesterday"}]}],
)  # fmt: skip
def test_alerts_of_another_shape_are_refused(answer: object) -> None:
    with pytest.raises(AgentResponseError):
        read_alerts(json.dumps({"status": "success", "data": answer}).encode())
