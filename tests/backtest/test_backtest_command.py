"""`coldplate rules backtest` as a person or a script calls it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main
from agent.lib.progress import Progress
from tests.backtest.simulated import heat, lived, recorded, rules, temperatures
from tests.recording.played import record

HOT = "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 5s\nlabels: {severity: warning}\nannotations: {summary: warm}"


@pytest.fixture
def hot(tmp_path: Path) -> Path:
    """A recording of a GPU that is hot for twenty seconds, and then for three."""
    return record(tmp_path / "hot.coldplate", heat(temperatures((50, 10), (95, 20), (50, 10), (95, 3), (50, 5))), "n1")


def backtest(*arguments: object) -> int:
    return main(["rules", "backtest", *map(str, arguments)])


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_timeline(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest(hot, "--rules", rules(tmp_path, HOT)) == 0
    out, err = capsys.readouterr()
    assert out == (
        "n1: 48 snapshots, 2023-11-14 22:13:20 to 22:14:07 UTC, 1 rule\n"
        "\n"
        "PENDING   FIRING    UNTIL           FOR  ALERT\n"
        '22:13:29  22:13:34  22:13:49        15s  Hot{gpu="0",severity="warning",uuid="GPU-0"} = 95\n'
        "\n"
        "1 pending that never fired; list with --pending\n"
    )
    assert err == ""
    assert backtest(hot, "--rules", rules(tmp_path, HOT), "--pending") == 0
    assert "\n22:13:59  -         22:14:02         3s  Hot{" in capsys.readouterr().out
    assert backtest(hot, "--rules", rules(tmp_path, HOT.replace("90", "200"))) == 0
    assert capsys.readouterr().out.endswith("\n\nno alert fires\n")


def test_as_json(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest(hot, "--rules", rules(tmp_path, HOT), "--json") == 0
    found = document(capsys)
    begin = 1_700_000_000.0
    fired, pending = found["alerts"]
    assert fired == {
        "node": "n1", "alert": "Hot",
        "labels": {"alertname": "Hot", "gpu": "0", "instance": "n1:19400", "job": "coldplate", "severity": "warning",
                   "uuid": "GPU-0"},
        "active_at": begin + 9.5, "fired_at": begin + 14.5, "ended_at": begin + 29.5,
        "value": 95.0, "annotations": {"summary": "warm"},
    }  # fmt: skip
    assert (pending["fired_at"], pending["ended_at"]) == (None, begin + 42.5)
    assert (found["problems"], found["failures"]) == ([], [])


def test_without_rules_it_plays_the_configured_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And tells how they differ from the pack as it is shipped."""
    recording = recorded(tmp_path, "driver-hang", 200)
    configuration = tmp_path / "coldplate.yaml"
    configuration.write_text("rules: {override: {GpuLost: {for: 1m}}}\n")
    assert backtest(recording, "--config.file", configuration, "--against", "builtin", "--json") == 0
    found = document(capsys)
    fired = {each["alert"] for each in found["alerts"] if each["fired_at"]}
    assert fired == {dict(each.labels)["alertname"] for each in lived("driver-hang", 200)[1]}
    (lost,) = found["against"]["differences"]
    assert lost["with_these_rules"]["alert"] == "GpuLost"
    assert lost["fires_later_seconds"] > 0


def test_two_versions(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = rules(tmp_path, HOT, name="old.yml")
    new = rules(tmp_path, HOT.replace("5s", "8s"), "Warm: coldplate_gpu_temperature_celsius > 93", name="new.yml")
    assert backtest(hot, "--rules", new, "--against", old) == 0
    out = capsys.readouterr().out
    assert "against the other version: 0 alerts fire in the same way, 3 do not" in out
    assert '22:13:34  Hot{gpu="0",severity="warning",uuid="GPU-0"}: fires 3s later\n' in out
    assert 'Warm{gpu="0",uuid="GPU-0"}: only with these rules, for 20s' in out
    assert "does not" not in out


def test_each_node_is_played_by_itself(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = record(tmp_path / "other", heat(temperatures((50, 40))), "n2")
    count = rules(tmp_path, "Alone: count(coldplate_gpu_temperature_celsius) == 1", name="count.yml")
    assert backtest(hot, other, "--rules", count, "--json") == 0
    found = document(capsys)
    alerts = [(each["node"], each["labels"]) for each in found["alerts"]]
    assert alerts == [("n1", {"alertname": "Alone"}), ("n2", {"alertname": "Alone"})]
    assert [(each["node"], each["snapshots"]) for each in found["nodes"]] == [("n1", 48), ("n2", 40)]


def test_a_torn_recording_gives_what_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = record(tmp_path / "whole", heat(temperatures((95, 60))), "n1")
    torn = tmp_path / "torn"
    torn.write_bytes(whole.read_bytes()[:-30])
    assert backtest(torn, "--rules", rules(tmp_path, HOT)) == 0
    out, err = capsys.readouterr()
    assert "FIRING" in out and "Hot{" in out
    assert str(torn) in err and "snapshots before are whole" in err


@pytest.mark.parametrize("content", [None, b"", b"timestamp, name\n", b"\x89coldplate\r\n\x1a\n"])
def test_what_is_no_recording_is_told_and_the_others_are_played(
    tmp_path: Path, hot: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "odd"
    if content is not None:
        odd.write_bytes(content)
    assert backtest(odd, hot, "--rules", rules(tmp_path, HOT)) == 1
    out, err = capsys.readouterr()
    assert "Hot{" in out
    assert err.startswith(f"coldplate rules backtest: {odd}: ") and err.count("\n") == 1


@pytest.mark.parametrize(("name", "content"), [("rules.yml", "groups: [{name: a, rules: [{alert: A, expr: 'up >'}]}]"),
                                               ("missing.yml", None)])  # fmt: skip
def test_rules_that_cannot_be_read_are_told(
    tmp_path: Path, hot: Path, name: str, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    for option in ("--rules", "--against"):
        assert backtest(hot, option, tmp_path / name) == 1
        out, err = capsys.readouterr()
        assert (out, name in err) == ("", True)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_told_on_a_terminal_and_gone_at_the_end() -> None:
    seconds = iter(range(10_000))
    for stream, told in ((_Terminal(), True), (io.StringIO(), False)):
        with Progress("playing", 640, lambda: next(seconds), stream) as progress:
            for _ in range(320):
                progress.step(lambda: "12:00")
        lines = stream.getvalue().split("\r")
        assert (len(lines) > 2) is told
        if told:
            assert lines[-3:-2] == ["playing: 50 % 12:00"]
            assert lines[-2:] == [" " * len("playing: 50 % 12:00"), ""]


def test_what_counts_its_steps_itself_tells_the_share() -> None:
    stream = _Terminal()
    seconds = iter((0.0, 0.9, 1.1, 1.2, 1.4))
    with Progress("reading", 0, lambda: next(seconds), stream) as progress:
        for share in (0.1, 0.25, 0.3, 0.5):  # the first is told too early, the third too soon after the second
            progress.reached(share)
    assert stream.getvalue() == "\rreading: 25%\rreading: 50%\r            \r"


def test_nothing_is_told_of_what_is_done_within_a_second() -> None:
    stream = _Terminal()
    with Progress("playing", 640, lambda: 0.5, stream) as progress:
        for _ in range(640):
            progress.step()
    assert stream.getvalue() == ""
