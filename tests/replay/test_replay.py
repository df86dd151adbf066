"""A replay shows what was recorded: the same readings and the same alerts, at the same seconds from its beginning."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from agent import cli
from agent.backends.replay import OWN, RecordingPlayer
from agent.catalogue import BY_NAME
from agent.config.schema import ConfigError
from agent.daemon.replayed_node import ReplayedNode
from agent.model import Frame, Gpu, Instant, Layout, Node, Outcome, Phase, Reading, Series, Snapshot
from agent.recording.recording_reader import Recording
from agent.sampler.health import LoopFacts
from agent.sampler.schedule import Settings
from agent.wiring.command_line import read_config, read_options
from agent.wiring.replaying import faster_clock, make_replayed_node, replayed_header
from alerts.engine import RuleEngine, Ruleset
from tests.asking import context, overview
from tests.lab.score.play import TARGET, load_pack
from tests.recording.played import played, record

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 100
BEGIN = Instant(90.0, 1.9e9)
POWER, ENERGY = BY_NAME["coldplate_gpu_power_watts"], BY_NAME["coldplate_gpu_energy_joules_total"]
GPU = Gpu("0", "GPU-0")
LAYOUT = Layout((Series(POWER, GPU), Series(ENERGY, GPU)))


def after(seconds: float) -> Instant:
    return Instant(BEGIN.mono + seconds, BEGIN.wall + seconds)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ReplayedNode]:
    with replayed(record(tmp_path / "r", played("driver-hang", SECONDS))) as node:
        yield node


def facts(snapshot: Snapshot) -> dict[Series, float]:
    return {series: value for series, value in snapshot.readings if series.metric.name not in OWN}


def alerts(snapshots: Sequence[Snapshot]) -> list[tuple[int, str, object, str]]:
    """Every transition of the shipped rules: the second, the alert, its labels and its new phase."""
    engine = RuleEngine(Ruleset(tuple(load_pack())), TARGET, snapshots[0].at)
    return [
        (second, alert.rule, alert.labels, alert.phase.value)
        for second, snapshot in enumerate(snapshots)
        for done in engine.round(snapshot, snapshot.at)
        for alert in done.outcome.transitions
    ]


def test_readings_and_alerts_are_those_of_the_original(node: ReplayedNode) -> None:
    originals = played("driver-hang", SECONDS)
    shown = [node.snapshot(after(second), LoopFacts()) for second in range(SECONDS)]
    shift = BEGIN.wall - originals[0].at.wall
    for original, replayed in zip(originals, shown, strict=True):
        moved = {
            series: value + shift if series.metric.name.endswith("_timestamp_seconds") else value
            for series, value in facts(original).items()
        }
        assert facts(replayed) == moved
        assert replayed.reports == original.reports
    wanted = alerts(originals)
    assert alerts(shown) == wanted
    assert any(phase == Phase.FIRING.value for _, _, _, phase in wanted)
    assert [each.gpu.index for each in node.identities] == [str(number) for number in range(8)]


def test_what_the_running_agent_tells_of_itself_is_its_own(node: ReplayedNode) -> None:
    """A series twice would spoil the page: what both tell is told by the one that runs."""
    build = Series(BY_NAME["coldplate_build_info"], Node(), (("version", "9"),))
    ticks = Series(BY_NAME["coldplate_ticks_total"], Node())
    told = Frame(Layout((build, ticks)), (1.0, 5.0))
    node.snapshot(after(0), LoopFacts())
    shown = [
        each for each in node.snapshot(after(1), LoopFacts(), (told,)) if each.metric in (build.metric, ticks.metric)
    ]
    assert shown == [Reading(build, 1.0), Reading(ticks, 5.0)]
    names = [each.metric.name for each in node.snapshot(after(2), LoopFacts())]
    assert names.count("coldplate_replay_info") == 1
    assert "coldplate_rule_evaluations_total" not in names


def recorded(path: Path, seconds: Sequence[float], node: str = "node-1.example", more: float = 0.0) -> Path:
    """Power is the second, and `more`; energy grows by 10 a second from 100 on."""
    frames = [(s, Frame(LAYOUT, (s + more, 100.0 + 10 * s))) for s in seconds]
    return record(path, [Snapshot(n, Instant(50.0 + s, 1e9 + s), (f,)) for n, (s, f) in enumerate(frames)], node)


@contextmanager
def replayed(path: Path, *, loop: bool = False) -> Iterator[ReplayedNode]:
    node = ReplayedNode(Settings(), RecordingPlayer(partial(Recording, path), loop=loop), "n", "then")
    yield node
    node.close()


def value(node: ReplayedNode, second: float, row: object = POWER) -> float | None:
    return next((value for series, value in node.snapshot(after(second), LoopFacts()) if series.metric is row), None)


def test_a_tick_shows_the_last_snapshot_before_it(tmp_path: Path) -> None:
    with replayed(recorded(tmp_path / "r", range(60))) as node:
        assert [value(node, second) for second in (0, 0.9, 1.0, 2.5, 30, 59.5)] == [0, 0, 1, 2, 30, 59]


def test_of_several_nodes_the_one_is_shown_that_was_named(tmp_path: Path) -> None:
    one, two = recorded(tmp_path / "1", range(5)), recorded(tmp_path / "2", range(5), "node-2.example", 500.0)
    both = tmp_path / "job.coldplate"
    both.write_bytes(one.read_bytes() + two.read_bytes() + one.read_bytes())

    def shown(backend: str) -> tuple[float | None, str]:
        parsed = cli.make_parser().parse_args(["once", "--backend", backend])
        config, options = read_config(parsed), read_options(parsed)
        node = make_replayed_node(config, options.folder, Settings())
        value(node, 0)  # the replay begins
        seen = value(node, 3), replayed_header(config, options.folder).node
        node.close()
        return seen

    assert shown(f"replay:{both}") == (3.0, "node-1.example")
    assert shown(f"replay:{both}#node-2.example") == (503.0, "node-2.example")
    with pytest.raises(ConfigError, match=r"no node 'node-3\.example'; did you mean 'node-"):
        shown(f"replay:{both}#node-3.example")
    with pytest.raises(ConfigError, match=r"no node 'n17'; it has node-1\.example, node-2\.example"):
        shown(f"replay:{both}#n17")
    odd = both.rename(tmp_path / "job#2")
    assert shown(f"replay:{odd}") == (3.0, "node-1.example")


def test_a_hole_and_the_end_show_nothing_and_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with replayed(recorded(tmp_path / "r", [*range(10), *range(40, 50)])) as node:
        assert [value(node, second) for second in (0, 9, 13, 15, 39.5, 40, 53)] == [0, 9, 9, None, None, 40, 49]
        assert [value(node, second) for second in (55, 56, 300)] == [None] * 3
        (report,) = node.snapshot(after(301), LoopFacts()).reports
        assert (report.outcome, report.detail) == (Outcome.FAILED, "the recording is over")
    assert [each.message for each in caplog.records] == ["replay ended: no more snapshots"]


def test_in_a_loop_counters_only_grow_and_gauges_begin_anew(tmp_path: Path) -> None:
    with replayed(recorded(tmp_path / "r", range(10)), loop=True) as node:
        seconds = [0, 9, 9.5, 10, 15, 19, 20]
        assert [value(node, second) for second in seconds] == [0, 9, 9, 0, 5, 9, 0]
    with replayed(recorded(tmp_path / "s", range(10)), loop=True) as node:
        energies = [value(node, second, ENERGY) for second in range(60)]
    assert energies == sorted(energies)  # type: ignore[type-var]  # none is missing
    assert energies[0] == 100
    assert (energies[-1] or 0) > 300


@pytest.mark.usefixtures("long_blocks")
def test_a_torn_recording_is_replayed_as_far_as_it_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = recorded(tmp_path / "r", range(30)).read_bytes()
    (tmp_path / "torn").write_bytes(content[:-3])
    with replayed(tmp_path / "torn") as node:
        assert [value(node, second) for second in (0, 19, 26)] == [0, 19, None]
        assert "ends in the middle of a record" in caplog.records[0].message


def test_a_faster_clock_goes_faster_from_when_it_was_made() -> None:
    now = [Instant(100.0, 1000.0)]
    clock = faster_clock(10.0, lambda: now[0])
    assert clock() == now[0]
    now[0] = Instant(103.0, 1003.0)
    assert clock() == Instant(130.0, 1030.0)


def test_the_overview_says_whose_past_it_shows(node: ReplayedNode) -> None:
    snapshot = node.snapshot(after(0), LoopFacts())
    page = overview(context(snapshot, clock=lambda: BEGIN.mono))
    assert "Replay of a recording of n, begun at then: nothing it shows is of this moment." in page


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent.cli", "once", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_the_page_of_a_recording(tmp_path: Path) -> None:
    done = run("--backend", f"replay:{recorded(tmp_path / 'r', range(30))}", "--replay.speed", "5")
    assert done.returncode == 0
    found = re.search(r'^coldplate_gpu_power_watts{gpu="0",uuid="GPU-0"} (.*)$', done.stdout, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > 1, "the second snapshot that `once` takes, a second later"
    assert 'coldplate_replay_info{node="node-1.example"' in done.stdout
    assert "coldplate_node_memory" not in done.stdout, "the host is the recorded one"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--backend", "replay"], "backends.replay.file: is not set; name a recording, or start with --backend"),
        (["--backend", "replay:/none"], "backends.replay.file: /none: cannot be read: No such file or directory"),
        (["--backend", f"replay:{__file__}"], f"backends.replay.file: {__file__}: is not a recording of coldplate's"),
        (["--backend", "trace:/none"], "backends.trace: /none: cannot be read: No such file or directory"),
        (["--backend", f"trace:{__file__}"], f"backends.trace: {__file__}:1: is not JSON: "),
        (["--backend", "trace"], "backends.trace: is not set; name a trace or a bundle, or start with --backend"),
        (["--backend", "replay:x", "--replay.speed", "fast"], "--replay.speed: fast is not a number from 0.1 to 1000"),
    ],
)
def test_what_cannot_be_replayed_is_told_in_a_line(words: list[str], told: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"coldplate once: {told}")
    assert done.stderr.count("\n") == 1
