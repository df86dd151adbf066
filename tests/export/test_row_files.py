"""Recordings as CSV, JSON, Parquet and OpenMetrics, and what the command says when something is wrong."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlencode

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from agent.catalogue import BY_NAME
from agent.cli import main
from agent.commands import export as export_command
from agent.commands.export import export_formats
from agent.lib import commandline
from agent.lib.wording import size
from agent.model import Frame, Framer, Layout, Snapshot
from agent.recording.recording_reader import Recording
from alerts.engine import RuleEngine, Ruleset
from alerts.promql import Sample
from alerts.promql.budget import Budget, SampleLedger
from exporters.encoder import labels_of
from tests.backtest.simulated import heat, lived, recorded, temperatures
from tests.lab.score.play import TARGET, load_pack
from tests.recording.played import record
from tests.servers import fetch, need_recent, prometheus


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two nodes, one of which begins a second later."""
    paths = [
        record(tmp_path / "1", heat(temperatures((50.5, 3))), "n1"),
        record(tmp_path / "2", heat([60.0, 61.0], start=1.0), "n2"),
    ]
    both = tmp_path / "both.coldplate"
    both.write_bytes(b"".join(path.read_bytes() for path in paths))
    return both


def export(*arguments: object) -> int:
    return main(["export", *map(str, arguments)])


def test_a_row_for_each_value(recording: Path, tmp_path: Path) -> None:
    assert export(recording, "-o", tmp_path / "out.csv") == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["time"][-6:], row["node"], float(row["value"])) for row in rows] == [
        ("0.000Z", "n1", 50.5),
        ("1.000Z", "n1", 50.5),
        ("1.000Z", "n2", 60.0),
        ("2.000Z", "n1", 50.5),
        ("2.000Z", "n2", 61.0),
    ]
    assert rows[0]["time"] == "2023-11-14T22:13:20.000Z"
    assert rows[0]["metric"] == "coldplate_gpu_temperature_celsius"
    assert rows[0]["labels"] == 'gpu="0",uuid="GPU-0"'


def test_the_size_of_the_file_is_said(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it grows on a terminal, and at the end: a recording is a fraction of what it is exported to."""
    monkeypatch.setattr(export_command, "BUFFER", 64)
    monkeypatch.setattr(commandline, "FIRST_LINE_SECONDS", -1.0)
    monkeypatch.setattr(commandline, "EVERY_SECONDS", 0.0)
    out = tmp_path / "out.csv"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert export(recording, "-o", out) == 0
    *growing, last = capsys.readouterr().err.splitlines()
    written, read = (size(path.stat().st_size) for path in (out, recording))
    assert last == f"{out}: {written}, from {read} of recordings"
    assert any(" B written" in line for line in growing), "below a KiB it is in bytes"


def test_a_row_for_each_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A value that is absent is an empty cell."""
    first, second = heat([50.0], gpu="0"), heat([60.0], start=1.0, sequence=2, gpu="1")
    path = record(tmp_path / "r", [*first, *second], "n1")
    assert export(path, "--format", "csv-wide") == 0
    rows = list(csv.reader(capsys.readouterr().out.splitlines()))
    names = [f'coldplate_gpu_temperature_celsius{{gpu="{gpu}",uuid="GPU-{gpu}"}}' for gpu in (0, 1)]
    assert rows == [
        ["time", "node", *names],
        ["2023-11-14T22:13:20.000Z", "n1", "50.0", ""],
        ["2023-11-14T22:13:21.000Z", "n1", "", "60.0"],
    ]


SERIES = 'coldplate_gpu_temperature_celsius{{gpu="0",uuid="GPU-0",instance="n1:19400",job="coldplate"}}'


@pytest.mark.parametrize(
    ("style", "found"), [("csv-wide", "{time},n1,{value}\n"), ("openmetrics", f"{SERIES} {{value}} {{wall}}\n")]
)
def test_a_series_that_moves_to_another_place_stays_one(
    tmp_path: Path, style: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is in one frame, in another, and in the first again; and where two have it, the first one counts."""
    one, other = heat([50.0, 51.0, 52.0, 53.0]), heat([70.0, 71.0, 72.0, 73.0], gpu="1")
    both = [Framer(), Framer()]
    snapshots = []
    for number, (here, there) in enumerate(zip(one, other, strict=True)):
        second = both[number % 2].frame((*there.readings, *here.readings) if number % 2 else here.readings)
        odd = Frame(Layout(here.frames[0].layout.series), (99.0,))
        snapshots.append(Snapshot(here.sequence, here.at, (second, odd)))
    path = record(tmp_path / "r", snapshots, "n1")
    assert export(path, "--format", style, "--metrics", "*celsius") == 0
    lines = capsys.readouterr().out.splitlines(keepends=True)
    times = [(f"2023-11-14T22:13:2{second}.000Z", f"170000000{second}.000") for second in range(4)]
    rows = [line.replace(",71.0\n", "\n").replace(",73.0\n", "\n").replace(",\n", "\n") for line in lines]
    assert [row for row in rows if row.startswith(("2023", 'coldplate_gpu_temperature_celsius{gpu="0"'))] == [
        found.format(time=time, wall=wall, value=50.0 + second) for second, (time, wall) in enumerate(times)
    ]


def test_a_line_of_json_for_each_value(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(recording, "--format", "json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 5
    assert lines[4] == {
        "time": 1_700_000_002.0,
        "node": "n2",
        "metric": "coldplate_gpu_temperature_celsius",
        "labels": {"gpu": "0", "uuid": "GPU-0"},
        "value": 61.0,
    }


def test_what_is_there_is_not_overwritten(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    assert export(recording, "-o", out) == 1
    assert capsys.readouterr().err == f"coldplate export: {out}: exists already; remove it, or give another name\n"
    assert out.read_text() == "mine"
    assert export(recording, "-o", tmp_path / "missing" / "out.csv") == 1
    assert "cannot be created: No such file or directory; name a file" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_a_full_disk_is_told(
    recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_EXCL", 0)  # /dev/full stands in for a file on a full disk
    assert export(recording, "-o", "/dev/full") == 1
    told = capsys.readouterr().err
    assert told.startswith("coldplate export: /dev/full: No space left on device") and "not complete" in told


@pytest.mark.usefixtures("long_blocks")
def test_a_torn_recording_gives_what_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = record(tmp_path / "whole", heat(temperatures((50, 30))), "n1")
    torn = tmp_path / "torn"
    torn.write_bytes(whole.read_bytes()[:-5])
    assert export(torn, "--format", "json") == 1, "a part of the recording is missing"
    out, err = capsys.readouterr()
    assert out.count("\n") == 20
    assert err.count("ends in the middle of a record") == err.count("snapshots before are whole") == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--step", "often"], "--step: "),
        (["--start", "yesterday"], "--start: 'yesterday' is not a valid time; give one such as"),
        (["--end", "nan"], "--end: 'nan' is not a valid time"),
        (["--start", "2", "--end", "1"], "--end: is before --start"),
    ],
)
def test_mistakes_are_told(
    recording: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(recording, *options) == 2
    assert problem in capsys.readouterr().err


def test_no_recording_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(tmp_path / "missing") == 1
    assert "No such file" in capsys.readouterr().err


Value = dict[frozenset[tuple[str, str]], float]
SECONDS = 150


def exported(recording: Path, *options: str) -> Path:
    out = recording.with_suffix(".om")
    assert main(["export", str(recording), "-o", str(out), *options]) == 0
    return out


@pytest.mark.parametrize("samples", [export_formats.SAMPLES, 2000], ids=["one pass", "many passes"])
def test_a_strict_parser_reads_what_was_recorded(tmp_path: Path, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a GPU whose series come and go."""
    monkeypatch.setattr(export_formats, "SAMPLES", samples)
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
    told = capsys.readouterr()
    assert "nothing is selected" not in told.err
    lines = told.out.splitlines()
    labels = '{gpu="0",uuid="GPU-0",instance="n1:19400",job="coldplate"}'
    assert lines[-3:] == [
        f"coldplate_gpu_temperature_celsius{labels} 50.0 1700000009.000",
        f"coldplate_gpu_temperature_celsius{labels} 60.0 1700000010.000",
        "# EOF",
    ]
    assert main(["export", str(path), "--metrics", "node_*"]) == 1
    told = capsys.readouterr()
    assert told.out == "# EOF\n"
    assert "nothing is selected: " in told.err
    assert main(["export", str(path), "--metrics", "node_*", "*_celsius"]) == 0, "a node may lack what others have"
    told = capsys.readouterr()
    assert "coldplate_gpu_temperature_celsius" in told.out
    assert told.err.count("\n") == 1 and "'node_*' selects nothing" in told.err


@pytest.mark.parametrize("suffix", ["om", "csv", "json"])
def test_where_nothing_is_selected_no_file_is_left_and_a_line_says_why(
    suffix: str, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The retry with better patterns may have the same name."""
    out = tmp_path / f"out.{suffix}"
    cases = [
        (["--metrics", "node_*", "rack_*"], ["--metrics: 'node_*' selects nothing: ", "--metrics: 'rack_*' selects"]),
        (["--start", "2030-01-01T00:00:00Z"], ["no snapshot between --start and --end; no file is left"]),
        (["--metrics", "*_celsius", "--end", "1"], ["no snapshot between --start and --end; no file is left"]),
    ]
    for words, lines in cases:
        assert export(recording, "-o", out, *words) == 1
        error = capsys.readouterr().err
        assert [line for line in lines if line not in error] == []
        assert error.count("nothing is selected: ") == 1
        assert "of recordings" not in error
        assert not out.exists()
    assert export(recording, "-o", out, "--metrics", "*_celsius") == 0
    assert out.exists()


def test_a_recording_that_is_named_twice_is_exported_once(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(recording)
    assert export(recording, "--format", "json") == 0
    once = capsys.readouterr()
    assert export(recording, tmp_path / "link", "--format", "json") == 0
    twice = capsys.readouterr()
    assert (once.err, twice.out) == ("", once.out)
    assert twice.err == f"coldplate export: {tmp_path}/link: is the same file as {recording}; it is read once\n"
