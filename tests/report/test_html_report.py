"""The page of a report as a browser gets it: whole, of itself, and with every peak."""

import dataclasses
import json
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent.model import Instant
from agent.recording.recording_reader import Recording
from agent.recording.report import report_series as chosen
from agent.recording.report.comparison import comparison
from agent.recording.report.html_report import html_report
from agent.recording.report.observation import Judgement, Observation, UnjudgedRule
from agent.recording.report.report_card import TextStyle, report_card
from agent.recording.report.report_document import report_document
from agent.recording.report.run_facts import RecordedRun
from agent.recording.report.run_reader import read_run
from tests.report.made import gathered, gpu, recorded, row, run_report, snapshots

VOID = {"meta", "br", "link"}


class Page(HTMLParser):
    """What is in a page; raises where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.paths: list[tuple[str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        attributes = {name: value or "" for name, value in attrs}
        self.attributes += attributes.items()
        if tag == "path":
            self.paths.append((attributes.get("class", ""), attributes["d"]))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page(run: RecordedRun, *alerts: Observation) -> tuple[Page, str]:
    text = html_report(run, Judgement(alerts, ("Any",)), ())
    return Page(text), text


def observation(run: RecordedRun, severity: str = "warning", **changes: Any) -> Observation:
    """An alert about GPU 0 that fired for 100 s."""
    labels = {"alertname": "GpuHot", "severity": severity, "gpu": "0", "sensor": "core"}
    default = Observation(
        "GpuHot", "node-1", labels, {"summary": "It is hot."}, run.first + 100, run.first + 200, 100.0
    )
    return replace(default, **changes)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    seconds = 1200
    series = {
        row(chosen.UTILIZATION, gpu(0)): [1.0 if second != 777 else 0.0 for second in range(seconds)],
        row(chosen.UTILIZATION, gpu(1)): [1.0] * 400 + [None] * 400 + [1.0] * 400,
        row(chosen.POWER, gpu(0)): [300.0 + 390.0 * (second == 777) for second in range(seconds)],
    }
    return gathered(tmp_path / "run", series, seconds)


def test_the_page_needs_nothing_but_itself_and_gaps_break_its_lines(run: RecordedRun) -> None:
    parsed, text = page(run)
    assert not {"script", "link", "img", "iframe", "object", "base", "form", "a"} & set(parsed.tags)
    assert not {name for name, _ in parsed.attributes} & {"src", "href", "srcset", "xlink:href", "data", "action"}
    assert not any(name.startswith("on") for name, _ in parsed.attributes)
    assert not re.search(r"url\(|@import|https?:", text)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in parsed.attributes
    utilization = [path for style, path in parsed.paths if style.startswith("line") and "L" in path][:2]
    assert sorted(path.count("M") for path in utilization) == [1, 2]
    assert parsed.words.count("n/a: not recorded") == 8
    assert "n/a" in parsed.words
    imbalance = "Imbalance of GPUs 0-1: utilization of its GPUs, where it is known, differs"
    assert any(word.startswith(imbalance) for word in parsed.words)
    assert any(word.startswith("Utilization of GPU 1 is not known for 33% of the time") for word in parsed.words)


def test_a_plot_has_no_more_points_than_parts_of_time_and_keeps_a_peak_of_one_second(run: RecordedRun) -> None:
    parsed, _ = page(run)
    lines = [path for style, path in parsed.paths if style.startswith("line") and path.startswith("M") and "L" in path]
    bands = [path for style, path in parsed.paths if style == "band"]
    assert max(len(points(path)) for path in lines) <= run.grid.count == 480
    power = next(
        path for path in bands if len({y for _, y in points(path)}) == 2 and max(y for _, y in points(path)) < 150
    )
    lowest, highest = max(y for _, y in points(power)), min(y for _, y in points(power))
    # The axis goes to 800 W over 160 pixels.
    assert pytest.approx(lowest, abs=0.1) == 12 + 160 * (1 - 300 / 800)
    assert pytest.approx(highest, abs=0.1) == 12 + 160 * (1 - 690 / 800)


@pytest.mark.parametrize(("seconds", "apart"), [(20, 5), (200, 30), (1200, 300)])
def test_the_axis_of_time_has_marks_however_short_the_run_is(tmp_path: Path, seconds: int, apart: int) -> None:
    parsed, _ = page(gathered(tmp_path / "run", {row(chosen.POWER, gpu(0)): [300.0] * seconds}, seconds))
    clocks = [word for word in parsed.words if re.fullmatch(r"\d\d:\d\d(:\d\d)?", word)]
    marks = [sum(60**place * int(part) for place, part in enumerate(reversed(word.split(":")))) for word in clocks]
    unit = 1 if clocks[0].count(":") == 2 else 60
    assert {(later - earlier) * unit for earlier, later in pairwise(marks)} == {apart}


def test_an_alert_is_marked_on_every_plot(run: RecordedRun) -> None:
    parsed, _ = page(run, observation(run), observation(run, "info", alert="Advice"))
    assert parsed.tags["rect"] == 2
    assert parsed.words.count("GpuHot") == 2
    assert parsed.words.count("Advice") == 0


def test_an_alert_has_its_severity_its_texts_its_device_and_its_times(run: RecordedRun) -> None:
    texts = {"summary": "It <melts>.", "description": "Cool it."}
    effect = observation(run, "info", times=2, fires_at_end=True, inhibited_by="Cause")
    text = html_report(run, Judgement((observation(run, "critical", annotations=texts), effect), ("Any",) * 3), ())
    about, label = "GpuHot on GPU 0 from 2023-11-14T22:15:00Z for 1 min 40 s", "sensor=core"
    more = ", 2 times, until the end, an effect of Cause"
    assert [row for row in text.splitlines() if row.startswith("<li")] == [
        f'<li class="critical"><b>Critical.</b> It &lt;melts&gt;.<br><small>{about}: {label}<br>Cool it.</small></li>',
        f'<li class="info"><b>Info.</b> It is hot.<br><small>{about}{more}: {label}</small></li>',
    ]
    assert "3 alert rules were evaluated over what was recorded." in text
    assert "No alert fired" not in text


def test_a_page_without_alerts_says_what_was_judged_and_what_was_not(run: RecordedRun) -> None:
    rules = ("A", "B", "C", "D")
    words = Page(
        html_report(
            run,
            Judgement((), rules, (UnjudgedRule("A"),), (UnjudgedRule("C"), UnjudgedRule("B")), ("Rule D failed.",)),
            (),
        )
    ).words
    assert "No alert fired. 4 alert rules were evaluated over what was recorded." in words
    assert any(word.startswith("1 of them needs a longer history than this recording") for word in words)
    assert any(word.startswith("2 of them found none") and word.endswith(": B, C.") for word in words)
    assert "Rule D failed." in words
    assert "No alert rule was evaluated: nothing was judged." in Page(html_report(run, Judgement(), ())).words


def test_alerts_of_the_agents_own_rules_are_apart(run: RecordedRun) -> None:
    parsed = Page(html_report(run, Judgement(), (observation(run),)))
    place = parsed.words.index("What only the rules of its own agent said while it was recorded")
    assert "Warning." in parsed.words[place:]
    assert parsed.tags["rect"] == 0


def test_a_page_is_titled_by_its_files_up_to_four_and_tells_what_was_damaged(run: RecordedRun) -> None:
    files = [f"/data/{number}.coldplate" for number in range(5)]
    for some, more in ((files[:4], ""), (files, " and others")):
        text = html_report(replace(run, files=some, problems=["block 7 < 8"]), Judgement(), ())
        names = ", ".join(f"{number}.coldplate" for number in range(4))
        assert f"<title>Report on {names}{more}</title>" in text
        assert f"<h1>Report on {names}{more}</h1>" in text
        assert '<p class="fault"><b>Damaged or doubled:</b> block 7 &lt; 8</p>' in text


def test_names_of_a_hostile_recording_are_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'&\u202e\ud800"
    held = (("scheduler", "slurm"), ("job_id", evil), ("user", evil), ("name", evil))
    series = {row(chosen.HOLDER, gpu(0), held): 1.0, row(chosen.UTILIZATION, gpu(0)): 0.5}
    run = gathered(tmp_path / "run", series, 20)
    run.files = [evil]
    run.nodes[0].name = evil
    parsed, text = page(run, Observation(evil, evil, {evil: evil}, {"summary": evil}, run.first, run.last, 1.0))
    assert "script" not in parsed.tags
    assert "\u202e" not in text
    text.encode()


@pytest.mark.parametrize("wall", [-1e17, 0.0, 1e12, 1e17])
@pytest.mark.parametrize("value", [-1e308, -5.0, 1e-308, 1e20, 1e308])
def test_absurd_times_and_values_break_nothing(tmp_path: Path, wall: float, value: float) -> None:
    numbers = [value if second % 2 else 1.0 for second in range(70)]
    names = (chosen.UTILIZATION, chosen.POWER, chosen.MEMORY, chosen.ENERGY, chosen.NVLINK_OUT, chosen.POWER_LIMIT)
    original = snapshots({row(name, gpu(index)): numbers for name in names for index in range(2)}, 70)
    odd = [
        dataclasses.replace(snapshot, at=Instant(snapshot.at.mono * 1e9, wall + snapshot.at.wall))
        for snapshot in original
    ]
    with Recording(recorded(tmp_path / "run", odd, interval=1e-300)) as recording:
        run = read_run([recording])
    parsed, _ = page(run)
    assert parsed.words
    assert report_card(run, Judgement(), (), TextStyle(80))
    json.dumps(report_document(run, Judgement(), ()), allow_nan=False)
    assert comparison(run, run)


@pytest.mark.parametrize("wall", [-1e17, 1e17])
def test_absurd_times_and_values_are_played(tmp_path: Path, wall: float) -> None:
    series = {row(name, gpu(0)): [1e308, -1e308] * 20 for name in (chosen.UTILIZATION, chosen.POWER, chosen.ENERGY)}
    samples = snapshots(series, 40)
    odd = [dataclasses.replace(s, at=Instant(s.at.mono * 1e9, wall + s.at.wall)) for s in samples]
    recorded(tmp_path / "run", odd, interval=1e-300)
    assert run_report(tmp_path / "run", "--html", tmp_path / "page") == 0


def test_few_gpus_that_are_meant_are_the_only_ones_in_colour(tmp_path: Path) -> None:
    run = gathered(tmp_path / "run", {row(chosen.UTILIZATION, gpu(index)): index / 4 for index in range(4)}, 300)
    alerts = [observation(run, labels={"gpu": "3"}), observation(run, labels={"gpu": "1", "severity": "info"})]
    parsed, _ = page(run, *alerts)
    assert [style for style, path in parsed.paths if style.startswith("line") and "L" in path] == [
        "line quiet",
        "line quiet",
        "line quiet",
        "line l0",
    ]
    assert "other GPUs" in parsed.words


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "run.coldplate", snapshots({row(chosen.UTILIZATION, gpu(0)): 0.5}, 20))
    assert run_report(path, "--html", tmp_path / "page.html") == 0
    assert "Report on run.coldplate" in Page((tmp_path / "page.html").read_text()).words
    assert "What the rules say" in capsys.readouterr().out
    assert run_report(path, "--html", tmp_path / "no" / "page.html") == 1
    assert "--html" in capsys.readouterr().err
