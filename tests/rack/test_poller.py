"""Peers on real sockets: good ones and those that hang, trickle, flood, lie or are not there."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.rack.agreement import Turns, chosen
from agent.rack.finder import Finder, PeerTarget, parse_entry
from agent.rack.monitor import RackMonitor
from agent.rack.peer_messages import Access
from agent.rack.peers import Member
from agent.rack.poller import TIMEOUT_SECONDS, Poller
from agent.rack.rack_options import RackOptions
from tests.rack.conftest import answer, clock, tell
from tests.servers import free_ports
from tests.waiting import wait_until

RUN = "own-run-0"


@pytest.fixture
def watch() -> Iterator[Callable[..., RackMonitor]]:
    with ExitStack() as stack:

        def begin(*peers: str, access: Access | None = None) -> RackMonitor:
            entries = tuple(parse_entry(each, Path()) for each in peers)
            member = Member("r1", "", RUN, "n1:19400", "coldplate")
            made = RackMonitor(
                member, RackOptions("r1", entries=entries, access=access or Access()), clock, lambda: 0.0
            )
            made.start()
            stack.callback(made.stop)
            return made

        yield begin


def failures(made: RackMonitor) -> dict[str, dict[str, float]]:
    """Failures by peer and reason; peers that are up have none."""
    found: dict[str, dict[str, float]] = {}
    for reading in made.frame(clock()).readings:
        labels = dict(reading.labels)
        if reading.metric.name == "coldplate_rack_peer_failures_total":
            found.setdefault(labels["peer"], {})[labels["reason"]] = reading.value
        elif reading.metric.name == "coldplate_rack_peer_up" and reading.value:
            found.setdefault(labels["peer"], {})
    return found


def value(made: RackMonitor, name: str) -> float | None:
    return next(
        (each.value for each in made.frame(clock()).readings if each.metric.name == f"coldplate_rack_{name}"), None
    )


def test_only_what_good_peers_report_counts_and_none_delays_the_others(peer: Any, watch: Any) -> None:
    old = int(clock().wall) - 300
    good, own = peer(tell()), peer(tell(run=RUN))
    rude = peer(tell(run="run-of-another", instance="n3:1", watts=[250.0] * 8))
    rude.hang_up = True  # after each answer
    trickle = peer(tell())
    trickle.trickle = 0.05
    closed = f"127.0.0.1:{free_ports(1)[0]}"
    bad = {
        peer(lambda: None).name: "timeout",
        trickle.name: "timeout",
        peer(tell(rack="r2")).name: "other_rack",
        peer(tell(now=old + 0.5, last=old)).name: "clock",
        peer(lambda: answer(b"<html>")).name: "invalid",
        peer(lambda: b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100_000).name: "invalid",
        peer(lambda: b"x" * 100_000).name: "invalid",
        peer(lambda: answer(b"no", "404 Not Found")).name: "http",
        closed: "connect",
    }
    made = watch(good.name, own.name, rude.name, *bad)
    wait_until(lambda: value(made, "power_watts") is not None)
    began, seen = time.monotonic(), set()
    while time.monotonic() - began < 2.5:
        seen.add((value(made, "power_watts"), value(made, "nodes_reporting")))
        time.sleep(0.05)
    assert seen == {(1250.0, 2.0)}
    found = failures(made)
    assert {name: set(reasons) for name, reasons in found.items() if reasons} == {n: {r} for n, r in bad.items()}
    assert {name for name, reasons in found.items() if not reasons} == {good.name, rude.name}
    assert value(made, "nodes_expected") == 1 + 2 + len(bad)  # one of the targets is this node
    assert good.connections == 1
    assert rude.connections >= 2
    later = good.times[1:]
    assert len(later) >= 2
    assert all(0.09 < when % 1 < 0.6 for when in later), later
    assert [int(when) - int(later[0]) for when in later] == list(range(len(later)))


def test_it_stops_at_once_although_a_peer_hangs(peer: Any, watch: Any) -> None:
    silent = peer(lambda: None)
    made = watch(silent.name)
    wait_until(lambda: bool(silent.questions))
    began = time.monotonic()
    made.stop()
    assert time.monotonic() - began < TIMEOUT_SECONDS / 2
    assert not [thread for thread in threading.enumerate() if thread.name == "rack"]


def test_a_round_that_fails_is_reported_once_each_time_that_it_begins_and_continued(
    peer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent.rack.poller.PERIOD_SECONDS", 0.05)
    trouble: list[Exception] = []
    outcomes: list[bool] = []

    def targets() -> list[PeerTarget]:
        outcomes.append(not trouble)
        if trouble:
            raise trouble[0]
        return [PeerTarget(good.name, "127.0.0.1", good.port, ("127.0.0.1",))]

    good = peer(tell())
    poller = Poller(targets, Access(), lambda *_: 0, lambda *_: 0, clock, phase=0.0)
    poller.start()
    for spell in (1, 2):
        outcomes.clear()
        asked = len(good.questions)
        wait_until(lambda asked=asked: len(good.questions) > asked + 1)
        outcomes.clear()
        trouble.append(ZeroDivisionError("odd"))
        wait_until(lambda: outcomes.count(False) > 2)
        assert len(caplog.records) == spell
        trouble.clear()
    poller.stop()
    assert good.connections == 2, "a connection was kept over a round of which nobody knows how far it came"


def test_a_reload_asks_the_new_peers_and_hangs_up_on_the_old(peer: Any, watch: Any) -> None:
    old, new = peer(tell()), peer(tell(run="run-of-another", watts=[250.0] * 8))
    made = watch(old.name)
    wait_until(lambda: value(made, "power_watts") == 1000.0)
    made.reconfigure(RackOptions("r1", entries=(parse_entry(new.name, Path()),)))
    asked = len(old.questions)
    wait_until(lambda: value(made, "power_watts") == 250.0, 1.5)
    assert len(old.questions) == asked
    assert set(failures(made)) == {new.name}


def test_a_name_server_that_hangs_blocks_nothing_else(peer: Any) -> None:
    released = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        released.wait(10)
        return []

    good = peer(tell())
    entries = [parse_entry("slow.example:1", Path()), parse_entry(good.name, Path())]
    finder = Finder(entries, time.monotonic, resolve)
    finder.start()
    wait_until(lambda: [each.name for each in finder.targets] == [good.name])
    assert not finder.looked
    released.set()
    wait_until(lambda: finder.looked and len(finder.targets) == 2)
    finder.stop()


# Whose turn it is to ask what serves a rack: one agent's, and another's soon after that one is gone.
AGENTS = [f"node{number:02}:19400" for number in range(18)]
MOST_SECONDS = 15.0
"""Seconds within which another agent has taken over."""


class RackOfTurns:
    """Agents that hear each other once a second, as far as `hears` says. They begin at their first second."""

    def __init__(self, hears: Callable[[str, str, float], bool]) -> None:
        self._hears = hears
        self._turns: dict[str, Turns] = {}

    def asking(self, alive: set[str], now: float) -> set[str]:
        """Those whose turn it is, of the agents that run now."""
        self._turns = {name: self._turns.get(name) or Turns(name) for name in alive}
        found = set()
        for name, turns in self._turns.items():
            others = [each for each in alive if self._hears(name, each, now)]
            if turns.is_mine("cdu", others, now):
                found.add(name)
        return found


def test_the_next_agent_takes_over_within_fifteen_seconds() -> None:
    alive, rack = set(AGENTS), RackOfTurns(lambda *_: True)
    now = 0.0
    while len(alive) > 1:
        for _ in range(30):
            now += 1.0
            asking = rack.asking(alive, now)
        assert len(asking) == 1
        alive -= asking
        died = now
        while not rack.asking(alive, now):
            now += 1.0
            assert now - died <= MOST_SECONDS / 2, "half of it is left for the service to be found and read"
    rack = RackOfTurns(lambda *_: False)
    assert rack.asking(set(AGENTS), 1.0) == set(AGENTS)


def test_a_peer_that_misses_a_few_polls_keeps_its_turn() -> None:
    best = chosen("cdu", AGENTS)
    rack = RackOfTurns(lambda _, whom, now: whom != best or not 30 <= now < 34)
    for second in range(60):
        found = rack.asking(set(AGENTS), float(second))
        assert best in found
        assert second < 10 or found == {best}
    rack, rest = RackOfTurns(lambda *_: True), set(AGENTS) - {best}
    for second in range(30):
        before = rack.asking(rest, float(second))
    seen = [rack.asking(set(AGENTS), 30.0 + second) for second in range(12)]
    assert seen[0] == seen[6] == before | {best}
    assert seen[-1] == {best}


def test_services_are_spread_over_agents_and_one_that_leaves_passes_on_its_own() -> None:
    services = [f"shelf-{number}" for number in range(200)]
    before = {each: chosen(each, AGENTS) for each in services}
    assert max(Counter(before.values()).values()) < 30
    gone = before[services[0]]
    after = {each: chosen(each, [name for name in AGENTS if name != gone]) for each in services}
    assert all(after[each] == name for each, name in before.items() if name != gone)


@given(
    st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True), st.randoms(use_true_random=False)
)
def test_the_order_in_which_agents_are_heard_does_not_matter(agents: list[str], random: object) -> None:
    mixed = sorted(agents, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert chosen("cdu", mixed) == chosen("cdu", agents)
