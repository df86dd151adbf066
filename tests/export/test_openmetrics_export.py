"""Recordings as OpenMetrics: what a strict parser reads is what was recorded, and Prometheus answers as our engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlencode

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from agent.catalogue import BY_NAME
from agent.cli import main
from agent.commands.export import export_formats
from agent.model import Snapshot
from agent.recording.recording_reader import Recording
from alerts.engine import RuleEngine, Ruleset
from alerts.promql import Sample
from alerts.promql.budget import Budget, SampleLedger
from exporters.encoder import labels_of
from tests.backtest.simulated import heat, lived, recorded, temperatures
from tests.lab.score.play import TARGET, load_pack
from tests.recording.played import record
from tests.servers import fetch, need_recent, prometheus

Value = dict[frozenset[tuple[str, str]], float]
SECONDS = 150


def exported(recording: Path, *options: str) -> Path:
    out = recording.with_suffix(".om")
    assert main(["export", str(recording), "-o", str(out), *options]) == 0
    return out


@pytest.mark.parametrize("samples", [export_formats.SAMPLES, 2000], ids=["one pass", "many passes"])
def test_a_strict_parser_reads_what_was_recorded(tmp_path: Path, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a GPU whose series come and go."""
    monkeypatch.setattr(export_formats.write_openmetrics, "__defaults__", (samples,))
    path = recorded(tmp_path, "driver-hang", 100)
    out = exported(path, "--step", "25s")
    found = {
        (each.name, frozenset(each.labels.items()), float(each.timestamp)): each.value
        for family in text_string_to_metric_families(out.read_text())
        for each in family.samples
    }
    with Recording(path) as recording:
        expected = {
            (each.metric.name, frozenset((*labels_of(each.series), *TARGET)), snapshot.at.wall): each.value
            for snapshot in recording.snapshots()
            if (snapshot.at.wall - 1_700_000_000) % 25 == 0
            for each in snapshot
        }
    assert found == expected
    assert len(found) > 5_000


@contextmanager
def server(openmetrics: Path, folder: Path) -> Iterator[str]:
    """A Prometheus that was given a file with timestamps."""
    recent = need_recent("NOTHING shows here that a real Prometheus loads an export")
    loading = [recent.promtool, "tsdb", "create-blocks-from", "openmetrics", str(openmetrics), str(folder / "tsdb")]
    subprocess.run(loading, check=True, capture_output=True)
    with prometheus("{}\n", folder, recent.prometheus, "--storage.tsdb.retention.time=100y") as url:
        yield url


def asked(url: str, expression: str, at: float) -> Value:
    document = json.loads(fetch(f"{url}/api/v1/query?{urlencode({'query': expression, 'time': at})}"))
    assert document["status"] == "success"
    return {frozenset(each["metric"].items()): float(each["value"][1]) for each in document["data"]["result"]}


@pytest.mark.release
def test_prometheus_answers_the_rules_queries_as_the_engine_does(tmp_path: Path) -> None:
    """Of all rules that read what devices tell, and not what other rules or the agent wrote at that moment."""
    snapshots, _ = lived("ecc-remap", SECONDS)
    engine = RuleEngine(Ruleset(load_pack()), TARGET, snapshots[0].at)
    for snapshot in snapshots:
        engine.round(snapshot, snapshot.at)
    at = snapshots[-1].at.wall
    names = ("coldplate_gpu_*", "coldplate_infiniband_*", "coldplate_nvlink_*")
    out = exported(recorded(tmp_path, "ecc-remap", SECONDS), "--metrics", *names)
    answered = 0
    with server(out, tmp_path) as url:
        for rule in (rule for file in load_pack() for group in file.groups for rule in group.rules):
            if ":" in rule.expression or not any(each[:-1] in rule.expression for each in names):
                continue
            found = rule.query.evaluate(engine.windows, at, Budget(lambda: 0.0, SampleLedger()))
            assert isinstance(found, list)
            ours = {frozenset(each.labels): each.value for each in found if isinstance(each, Sample)}
            theirs = asked(url, rule.expression, at)
            assert ours == pytest.approx(theirs), rule.name
            answered += bool(ours)
        back = tmp_path / "back.coldplate"
        times = ["--start", str(at - 10), "--end", str(at), "--interval", "1s"]
        assert main(["import", "--prometheus", url, "-o", str(back), *times]) == 0
    assert answered > 7
    with Recording(back) as recording:
        came_back = list(recording.snapshots())
        assert recording.header.node == "node"
    assert [each.at.wall for each in came_back] == [each.at.wall for each in snapshots[-11:]]
    for original, imported in zip(snapshots[-11:], came_back, strict=True):
        assert known(original, names) == known(imported, names)


def known(snapshot: Snapshot, names: Sequence[str]) -> Value:
    """The values of these metrics, but for those of drivers' own names; an empty label is none to Prometheus."""
    return {
        frozenset([("", each.metric.name), *(pair for pair in each.series.all_labels if pair[1])]): each.value
        for each in snapshot
        if each.metric.name in BY_NAME and any(fnmatchcase(each.metric.name, name) for name in names)
    }


def test_metrics_and_times_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "r", heat(temperatures((50, 10), (60, 10))), "n1")
    assert (
        main(["export", str(path), "--start", "2023-11-14T22:13:29Z", "--end", "1700000010", "--metrics", "*_cel*"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    labels = '{gpu="0",uuid="GPU-0",instance="n1:19400",job="coldplate"}'
    assert lines[-3:] == [
        f"coldplate_gpu_temperature_celsius{labels} 50.0 1700000009.000",
        f"coldplate_gpu_temperature_celsius{labels} 60.0 1700000010.000",
        "# EOF",
    ]
    assert main(["export", str(path), "--metrics", "node_*"]) == 0
    assert capsys.readouterr().out == "# EOF\n"
