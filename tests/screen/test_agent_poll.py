"""Asking agents over HTTP: what they know, or why nothing came; the history and the traffic made of it."""

import contextlib
import socket
import threading
from collections.abc import Sequence

import pytest

from agent.commands.top.node_sources import AgentPoller
from agent.commands.top.screen.node_samples import NVLINK, NodeSample, SampleBoard, Traffic
from agent.commands.top.screen.view_builder import ViewKeeper
from agent.daemon.hub import RecentReadings
from agent.lib.clock import clock
from agent.lib.http_target import HttpTarget
from agent.lib.threads import Threads
from agent.model import Gpu, IbPort, Instant, PastMoment, Snapshot
from agent.wiring.agent_client import AgentClient, AgentResponse, name_of_target, target_of
from tests.exporters.conftest import reading
from tests.frames import snapshot_of
from tests.screen.agents import ALERT, Answers, canned, serving
from tests.screen.scenes import played


def ask(place: str, timeout: float = 30.0) -> AgentResponse:
    poll = AgentClient("n", HttpTarget(f"http://{place}", timeout=timeout), clock)
    with contextlib.closing(poll):
        return poll.fetch()


def test_an_agent_sends_snapshot_and_alerts_and_without_rules_no_alerts() -> None:
    with serving(canned("straggler", 200)) as place:
        response = ask(place)
    assert response.problem == ""
    assert response.snapshot is not None
    assert response.age == 0.1
    assert response.alerts == [ALERT]
    whole = canned("straggler", 200)
    with serving(lambda path: whole(path) if path == "/api/v1/snapshot" else (404, b"")) as place:
        assert ask(place).alerts is None


ODD: list[tuple[Answers, str]] = [
    (lambda _: (503, b'{"status":"error"}'), "answers /api/v1/snapshot with status 503"),
    (lambda _: (401, b""), "answers /api/v1/snapshot with status 401; give its login with --http.config.file"),
    (lambda _: (404, b""), "status 404; is this the port of an agent? coldplate simulate serves metrics alone"),
    (lambda _: (200, b"<html>\x1b[2J"), "the answer is not JSON"),
]


@pytest.mark.parametrize(("answers", "problem"), ODD)
def test_whoever_is_no_agent_is_a_problem_in_one_line(answers: Answers, problem: str) -> None:
    with serving(answers) as place:
        response = ask(place)
    assert response.snapshot is None
    assert problem in response.problem
    assert response.problem.isprintable()


def test_nobody_there_and_one_that_is_silent_are_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        assert ask(place, timeout=0.05).problem == "no answer: no response within 0.05 s"
    assert ask(place).problem == "no answer: Connection refused"


def test_each_agent_is_asked_again_and_again_and_a_silent_one_delays_no_other() -> None:
    changed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent, serving(canned("straggler", 200)) as place:
        board = SampleBoard(changed.set)
        polling = AgentPoller(board, 0.01, Threads())
        hung = f"http://127.0.0.1:{silent.getsockname()[1]}"
        polling.start_polling(AgentClient("silent", HttpTarget(hung, timeout=60.0), clock))
        polling.start_polling(AgentClient("well", HttpTarget(f"http://{place}", timeout=60.0), clock))
        polling.start_polling(
            AgentClient("well", HttpTarget("http://127.0.0.1:1", timeout=60.0), clock)
        )  # known already
        monos: set[float] = set()
        while len(monos) < 3:
            assert changed.wait(60)
            changed.clear()
            monos |= {sample.snapshot.at.mono for sample in board.latest()[0] if sample.snapshot is not None}
        assert [sample.name for sample in board.latest()[0]] == ["well"]
        polling.stop()


def test_the_same_snapshot_again_is_not_another_sample() -> None:
    board = SampleBoard()
    first = NodeSample("n", "x", played("straggler", 200)[0][-1])
    board.store_sample(first)
    board.store_sample(first)
    waited = threading.Thread(target=board.wait, args=({"n": 1}, 60.0))
    waited.start()
    board.store_sample(first)
    waited.join(0.2)
    assert waited.is_alive()
    board.store_sample(NodeSample("n", "x", problem="gone"))
    waited.join(60)
    assert not waited.is_alive()


@pytest.mark.parametrize(
    ("text", "url", "name"),
    [
        ("node7", "http://node7:19400", "node7"),
        ("https://node7", "https://node7", "node7:443"),
        ("http://node7:19400/", "http://node7:19400/", "node7"),
        ("[::1]", "http://[::1]:19400", "[::1]"),
        ("[::1]:80", "http://[::1]:80", "[::1]:80"),
    ],
)
def test_a_node_is_named_as_people_do(text: str, url: str, name: str) -> None:
    target = target_of(text)
    assert (target.url, name_of_target(target)) == (url, name)


@pytest.mark.parametrize("text", ["http://user:secret@node7", "node7/metrics", "ftp://node7", "node 7", "node7:x"])
def test_what_cannot_be_asked_is_refused_without_showing_a_secret(text: str) -> None:
    with pytest.raises(ValueError, match="url") as refused:
        target_of(text)
    assert "secret" not in str(refused.value)


SAMPLES = 4


def watched(interval: int, past: Sequence[PastMoment], late: int = 0) -> list[float | None]:
    """The history of GPU 0's power after SEEN moments; the past came with the so-manieth of them."""
    keeper, snapshots = ViewKeeper(float(interval)), played("straggler", 200)[0]
    for place in reversed(range(SAMPLES)):
        past_moments = past if SAMPLES - 1 - place >= late else ()
        sample = NodeSample("n", "o", snapshots[-1 - place * interval], past=past_moments)
        scene = keeper.scene([sample], 0.0)
    return list(scene.nodes[0].gpus[0].power_history)


def powers(snapshots: Sequence[Snapshot]) -> list[float]:
    gpus = [each.readings for each in snapshots]
    name = "coldplate_gpu_power_watts"
    return [
        next(each.value for each in readings if each.metric.name == name and ("gpu", "0") in each.series.all_labels)
        for readings in gpus
    ]


def remembered() -> Sequence[PastMoment]:
    kept = RecentReadings()
    for snapshot in played("straggler", 200)[0]:
        kept.observe(snapshot)
    return kept.moments()


def test_what_was_before_is_put_in_front_of_what_was_seen_as_far_apart_as_that() -> None:
    every = powers(played("straggler", 200)[0])
    assert watched(1, remembered(), 0) == watched(1, remembered(), 2) == every
    assert watched(5, remembered()) == every[4::5]
    assert watched(1, ()) == every[-SAMPLES:]


GPU = Gpu("0", "GPU-a")
PORT = IbPort("mlx5_0", "1")
ERRORS = "coldplate_infiniband_symbol_error_total"


def sample(mono: float, sent: float | None = None, errors: float | None = None) -> Snapshot:
    readings = [] if sent is None else [reading(NVLINK[0], sent, GPU)]
    readings += [] if errors is None else [reading(ERRORS, errors, PORT)]
    return snapshot_of(1, Instant(mono, 1e9 + mono), readings)


def rate(traffic: Traffic, snapshot: Snapshot) -> float | None:
    traffic.add_snapshot(snapshot)
    return traffic.rates.get((NVLINK[0], GPU))


def grown(traffic: Traffic, snapshot: Snapshot) -> float | None:
    traffic.add_snapshot(snapshot)
    return traffic.growth.get((ERRORS, PORT, ()))


@pytest.mark.parametrize(
    ("seen", "rates"),
    [
        ([(10.0, 1000.0), (12.0, 1500.0), (13.0, 1500.0)], [None, 250.0, 0.0]),
        ([(10.0, 1000.0), (11.0, 1500.0), (11.0, 1500.0)], [None, 500.0, 500.0]),  # the same snapshot again
        ([(10.0, 1000.0), (11.0, 500.0), (12.0, 700.0)], [None, None, 200.0]),  # a counter that fell
        ([(12.0, 700.0), (13.0, None), (14.0, 900.0)], [None, None, None]),  # one that was missing
    ],
)
def test_a_rate_needs_two_samples_one_after_the_other_and_is_per_second(
    seen: list[tuple[float, float | None]], rates: list[float | None]
) -> None:
    traffic = Traffic()
    assert [rate(traffic, sample(mono, sent)) for mono, sent in seen] == rates


def test_growth_is_that_of_the_last_minute_and_a_restarted_clock_begins_again() -> None:
    traffic = Traffic()
    traffic.add_snapshot(sample(1000.0, 1000.0, 5.0))
    assert rate(traffic, sample(3.0, 2000.0, 9.0)) is None
    assert grown(traffic, sample(3.0, 2000.0, 9.0)) is None
    traffic = Traffic()
    counts = {float(second): 5.0 if second < 30 else 8.0 for second in range(0, 120, 10)}
    growths = [grown(traffic, sample(second, errors=count)) for second, count in counts.items()]
    assert growths[0] is None
    assert growths[1] == 0.0
    assert growths[3] == growths[8] == 3.0
    assert growths[-1] == 0.0
