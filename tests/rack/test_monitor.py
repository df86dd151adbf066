"""What the daemon sees of the rack: its series, what peers are told, and what a reload changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.catalogue.node import NODE_POWER
from agent.config.reading import parse
from agent.lib.threads import Threads
from agent.model import Instant, Node, Reading, Series
from agent.rack.breakers import CLASSES, Breaker
from agent.rack.finder import HostEntry
from agent.rack.monitor import SETTLED_SECONDS, RackMonitor
from agent.rack.peer_messages import PeerFault, Report, decode
from agent.rack.peers import Member
from agent.rack.rack_options import RackOptions
from agent.wiring.peering import load_rack, make_rack_monitor
from tests.frames import snapshot_of
from tests.rack.conftest import report_at

OWN = Member("", "c1", "own-run-0", "n1:19400", "coldplate")
PEER = HostEntry("127.0.0.1", 1)
NAME = "127.0.0.1:1"
SERIES = {source: Series(NODE_POWER, Node(), (("source", source),)) for source in ("ipmi", "estimate")}


class Rig:
    """An agent whose time the test chooses, and which asks nobody: answers are handed to it."""

    def __init__(self, options: RackOptions) -> None:
        self.now = Instant(50.0, 1_000.5)
        self.watch = RackMonitor(OWN, options, lambda: self.now, lambda: 0.0)

    def sample(self, watts: float | None, source: str = "ipmi") -> None:
        readings = () if watts is None else (Reading(SERIES[source], watts),)
        self.watch.observe(snapshot_of(1, self.now, readings))

    def later(self, seconds: float) -> None:
        self.now = Instant(self.now.mono + seconds, self.now.wall + seconds)

    def values(self) -> dict[str, float]:
        return {
            reading.metric.name.removeprefix("coldplate_rack_"): reading.value
            for reading in self.watch.frame(self.now).readings
        }

    def answer(self, watts: float | None, **changes: Any) -> None:
        usual = {"cluster": "c1", "instance": "n2:1", "watts": [watts] * 4, "limits": {"node_nameplate": 10_000.0}}
        report = report_at(self.now.wall, **{**usual, **changes})
        (target,) = self.watch._finder.targets
        self.watch.answered(target, json.dumps(report).encode(), self.now, self.now)

    def told(self) -> Report:
        body = self.watch.report()
        assert body is not None
        return decode(body)


def values_of(readings: Iterable[Reading]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for reading in readings:
        found.setdefault(reading.metric.name.removeprefix("coldplate_rack_"), []).append(reading.value)
    return found


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A rack of two, whose other node never answers by itself."""
    made = Rig(RackOptions("r1", entries=(PEER,), nameplate=10_000.0))
    made.watch._finder.refresh()
    made.watch._settled_by = made.now.mono + SETTLED_SECONDS
    yield made
    made.watch.stop()


def test_peers_are_told_the_power_of_the_last_seconds() -> None:
    made = Rig(RackOptions("r1"))
    made.sample(500.0)
    made.later(1.0)
    made.sample(700.0)
    made.later(1.0)
    report = made.told()
    assert report.seconds() == [(1001, 500.0), (1002, 700.0)]
    assert (report.rack, report.cluster, report.run, report.instance) == ("r1", "c1", "own-run-0", "n1:19400")
    assert (report.source, report.now) == ("ipmi", 1_002.5)


def test_an_estimate_is_reported_as_one_and_a_measurement_is_preferred() -> None:
    made = Rig(RackOptions("r1"))
    made.sample(500.0, "estimate")
    assert made.told().source == "estimate"
    both = tuple(Reading(SERIES[source], watts) for source, watts in (("estimate", 1.0), ("ipmi", 2.0)))
    other = Rig(RackOptions("r1"))
    for place in (0, 1):  # where it was in the last snapshot, and elsewhere
        other.watch.observe(snapshot_of(1, other.now, both[::-1] if place else both))
        assert other.told().source == "ipmi"


def test_a_node_that_does_not_know_its_power_says_so() -> None:
    made = Rig(RackOptions("r1"))
    made.sample(500.0)
    made.later(1.0)
    made.sample(None)
    made.later(2.0)
    assert made.told().seconds() == [(1001, 500.0)]
    assert made.told().source is None


def test_without_a_rack_there_is_nothing_to_tell() -> None:
    made = Rig(RackOptions())
    made.sample(500.0)
    assert made.watch.report() is None
    assert made.values() == {}


def test_what_is_configured_is_shown_from_the_first_moment_whether_or_not_the_rack_is_added_up() -> None:
    feeds = (("a", 20_000.0), ("b", 21_000.0))
    shown = {"power_budget_watts": [40_800.0], "nodes_expected": [4], "feed_limit_watts": [20_000.0, 21_000.0]}
    for entries in ((), (PEER,)):
        made = Rig(RackOptions("r1", nodes_expected=4, budget=40_800.0, feeds=feeds, entries=entries))
        readings = made.watch.frame(made.now).readings
        assert values_of(readings) == shown
        assert {each.entity.labels for each in readings} == {(("rack", "r1"),)}
        assert [dict(each.labels) for each in readings if each.labels] == [{"feed": "a"}, {"feed": "b"}]


def test_a_reload_changes_what_is_shown_of_the_configuration(rig: Rig) -> None:
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), budget=40_800.0))
    assert rig.values()["power_budget_watts"] == 40_800.0
    rig.watch.reconfigure(RackOptions("r2", budget=30_000.0))
    assert values_of(rig.watch.frame(rig.now).readings) == {"power_budget_watts": [30_000.0]}
    rig.watch.reconfigure(RackOptions("r2", entries=(PEER,)))
    assert "power_budget_watts" not in rig.values()


def test_no_series_of_a_rack_appears_twice(rig: Rig) -> None:
    for expected in (None, 2):
        rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), budget=40_800.0, nodes_expected=expected))
        rig.sample(500.0)
        rig.later(1.0)
        rig.answer(300.0)
        series = [reading.series for reading in rig.watch.frame(rig.now).readings]
        assert "coldplate_rack_nodes_expected" in {each.metric.name for each in series}
        assert len(series) == len(set(series))


def test_a_rack_of_many_is_not_added_up_without_peers_and_a_rack_of_one_is() -> None:
    for expected, values in ((None, {}), (4, {}), (1, {"power_watts": 500.0, "nodes_reporting": 1})):
        made = Rig(RackOptions("r1", nodes_expected=expected))
        made.sample(500.0)
        made.later(1.0)
        assert {**made.values(), **values} == made.values()
        assert ("power_watts" in made.values()) == bool(values)


def test_the_sum_is_of_one_second_and_says_which(rig: Rig) -> None:
    rig.sample(500.0)
    rig.later(1.0)
    rig.answer(300.0)
    assert rig.values() == {
        "peer_up": 1, "power_watts": 800.0, "power_timestamp_seconds": 1001, "power_conservative_watts": 800.0,
        "nodes_reporting": 2, "nodes_expected": 2, "source_nodes": 2, "clock_lead_seconds": 0.0, "setting_differs": 0,
    }  # fmt: skip


def test_nothing_is_added_up_before_the_peers_were_asked(rig: Rig) -> None:
    rig.sample(500.0)
    rig.later(1.0)
    assert rig.values() == {}
    rig.watch.failed(rig.watch._finder.targets[0], PeerFault.CONNECT, "refused")
    assert rig.values()["power_watts"] == 500.0


def test_a_peer_that_is_never_looked_up_is_not_waited_for_forever(rig: Rig) -> None:
    rig.later(SETTLED_SECONDS + 0.5)
    rig.sample(500.0)
    rig.later(1.0)
    assert rig.values()["power_watts"] == 500.0


def test_a_silent_node_is_missing_in_the_sum_and_has_its_nameplate_beside_it(rig: Rig) -> None:
    rig.sample(500.0)
    rig.answer(300.0)
    rig.later(1.0)
    rig.watch.failed(rig.watch._finder.targets[0], PeerFault.CONNECT, "refused")
    values = rig.values()
    assert values["power_watts"] == 500.0
    assert values["power_conservative_watts"] == 10_500.0
    assert (values["nodes_reporting"], values["nodes_expected"]) == (1, 2)
    assert (values["peer_up"], values["peer_failures_total"]) == (0, 1)


def test_without_a_nameplate_a_silent_node_leaves_no_conservative_figure(rig: Rig) -> None:
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,)))
    rig.sample(500.0)
    rig.later(1.0)
    rig.watch.failed(rig.watch._finder.targets[0], PeerFault.CONNECT, "refused")
    assert "power_conservative_watts" not in rig.values()


def test_a_rack_of_which_no_power_is_known_has_none_and_not_zero(rig: Rig) -> None:
    rig.sample(None)
    rig.later(1.0)
    rig.answer(None, source=None)
    assert rig.values() == {
        "peer_up": 1, "nodes_reporting": 0, "nodes_expected": 2, "power_conservative_watts": 20_000.0,
        "clock_lead_seconds": 0.0, "setting_differs": 0,
    }  # fmt: skip


def test_a_node_that_draws_nothing_is_no_silent_node(rig: Rig) -> None:
    rig.sample(0.0)
    rig.later(1.0)
    rig.answer(0.0)
    assert (rig.values()["power_watts"], rig.values()["nodes_reporting"]) == (0.0, 2)


def test_the_power_of_peers_is_handed_to_the_rules_until_it_is_too_old(rig: Rig) -> None:
    rig.answer(300.0)
    ((series, watts),) = rig.watch.foreign(rig.now)
    assert watts == 300.0
    assert dict(series.all_labels) == {"source": "ipmi", "instance": "n2:1", "job": "coldplate"}
    rig.later(3.0)
    assert len(rig.watch.foreign(rig.now)) == 1
    rig.later(1.0)
    assert rig.watch.foreign(rig.now) == ()


def test_a_reload_may_give_the_rack_another_name_and_other_peers(rig: Rig) -> None:
    rig.sample(500.0)
    rig.later(1.0)
    rig.answer(300.0)
    rig.watch.reconfigure(RackOptions("r2", nodes_expected=1))
    assert rig.told().rack == "r2"
    assert rig.values()["power_watts"] == 500.0
    assert {reading.entity.labels for reading in rig.watch.frame(rig.now).readings} == {(("rack", "r2"),)}
    rig.watch.reconfigure(RackOptions())
    assert rig.watch.report() is None


def test_a_reload_that_changes_no_peer_keeps_what_is_known(rig: Rig) -> None:
    rig.sample(500.0)
    rig.later(1.0)
    rig.answer(300.0)
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), nodes_expected=3, nameplate=1_000.0))
    assert rig.values()["power_watts"] == 800.0
    assert rig.values()["power_conservative_watts"] == 1_800.0
    shown = rig.watch.frame(rig.now).readings
    assert [each.value for each in shown if each.metric.name.endswith("nodes_expected")] == [3]


def test_each_of_several_reloads_within_a_second_shows_at_once(rig: Rig) -> None:
    rig.sample(500.0)
    rig.later(1.0)
    rig.watch.failed(rig.watch._finder.targets[0], PeerFault.CONNECT, "refused")
    for nameplate in (1000.0, 2000.0, 3000.0):
        rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), nameplate=nameplate))
        assert rig.values()["power_conservative_watts"] == 500.0 + nameplate


def test_a_reload_that_adds_a_peer_forgets_nothing_of_the_others(rig: Rig) -> None:
    rig.sample(500.0)
    rig.later(1.0)
    rig.watch.failed(rig.watch._finder.targets[0], PeerFault.CONNECT, "refused")
    rig.answer(300.0)
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER, HostEntry("10.0.0.9", 1)), nameplate=1_000.0))
    assert rig.values() == {"peer_up": 1, "peer_failures_total": 1}  # the new one was not asked yet
    rig.watch._finder.refresh()
    rig.watch.failed(rig.watch._finder.targets[1], PeerFault.TIMEOUT, "late")
    rig.watch._settled_by = rig.now.mono
    assert (rig.values()["power_watts"], rig.values()["nodes_expected"]) == (800.0, 3)


# -- what goes wrong without anybody being silent ----------------------------------------------------------------------
def rows(rig: Rig, name: str) -> dict[str, float]:
    found = [each for each in rig.watch.frame(rig.now).readings if each.metric.name == f"coldplate_rack_{name}"]
    return {each.labels[0][1]: each.value for each in found}


def test_the_sum_says_what_it_is_made_of(rig: Rig) -> None:
    rig.sample(500.0)
    rig.later(1.0)
    rig.answer(300.0)
    assert rows(rig, "source_nodes") == {"ipmi": 2}
    rig.later(1.0)
    rig.sample(400.0, "estimate")
    rig.answer(300.0)
    assert rows(rig, "source_nodes") == {"ipmi": 1, "estimate": 1}


def test_peers_that_are_configured_otherwise_are_shown_by_what_differs(rig: Rig) -> None:
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), budget=40_800.0, feeds=(("a", 20_000.0),)))
    rig.answer(300.0, limits={"power_budget": 40_800.0, "feeds.a": 20_000.0, "nodes_expected": 2})
    alike = {"power_budget": 0, "nodes_expected": 0, "node_nameplate": 0, "feeds": 0}
    assert rows(rig, "setting_differs") == alike
    rig.answer(300.0, limits={"power_budget": 34_500.0, "feeds.a": 20_000.0, "nodes_expected": 3})
    assert rows(rig, "setting_differs") == {**alike, "power_budget": 1, "nodes_expected": 1}
    assert rig.values()["nodes_expected"] == 3  # who knows of most is right
    rig.answer(300.0, limits={"power_budget": 40_800.0, "feeds.b": 20_000.0})
    assert rows(rig, "setting_differs") == {**alike, "feeds": 1}


def test_the_limits_of_the_others_reach_the_rules_as_a_scrape_would_bring_them(rig: Rig) -> None:
    rig.answer(300.0, limits={"power_budget": 34_500.0, "feeds.a": 20_000.0, "nodes_expected": 2})
    found = {
        (each.metric.name, *(value for _, value in each.series.all_labels)): each.value
        for each in rig.watch.foreign(rig.now)
    }
    assert found == {
        ("coldplate_node_power_watts", "ipmi", "n2:1", "coldplate"): 300.0,
        ("coldplate_rack_power_budget_watts", "r1", "n2:1", "coldplate"): 34_500.0,
        ("coldplate_rack_feed_limit_watts", "r1", "a", "n2:1", "coldplate"): 20_000.0,
    }


def test_peers_are_told_our_limits() -> None:
    options = RackOptions("r1", nodes_expected=4, nameplate=10_200.0, budget=40_800.0, feeds=(("a", 20_000.0),))
    assert Rig(options).told().limits == {
        "power_budget": 40_800.0, "nodes_expected": 4, "node_nameplate": 10_200.0, "feeds.a": 20_000.0
    }  # fmt: skip


def test_peers_that_are_not_found_make_no_rack_of_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = tmp_path / "peers.json"
    found.write_text("[]")
    made = Rig(RackOptions("r1", entries=(found,)))
    made.watch._finder.refresh()
    made.watch._settled_by = made.now.mono
    for _ in range(3):
        made.sample(500.0)
        made.later(1.0)
        assert made.values() == {}
    assert [record.message.partition(";")[0] for record in caplog.records] == ["rack power not summed: no peer known"]
    made.watch.reconfigure(RackOptions("r1", nodes_expected=18, entries=(found,)))
    values = made.values()
    assert (values["power_watts"], values["nodes_reporting"]) == (500.0, 1)
    for _ in range(30):
        made.sample(500.0)
        made.later(1.0)
        made.values()
    assert made.values()["nodes_silent"] == 17


@pytest.mark.parametrize(
    ("nameplate", "believed", "most"), [(10_000.0, 15_000.0, 15_000.0), (None, 45_000.0, 81_600.0)]
)
def test_a_peer_counts_for_what_its_nameplate_allows_or_without_one_for_an_overrun_of_the_rack(
    rig: Rig, nameplate: float | None, believed: float, most: float
) -> None:
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), nameplate=nameplate, budget=40_800.0))
    for told, counted, excess in ((believed, believed, {}), (1e6, most, {NAME: 1})):
        rig.sample(500.0)
        rig.later(1.0)
        rig.answer(told)
        assert (rig.values()["power_watts"], rig.values()["peer_up"]) == (500.0 + counted, 1)
        assert rows(rig, "peer_failures_total") == excess
        assert next(each.value for each in rig.watch.foreign(rig.now)) == counted


def test_what_is_not_counted_of_this_node_is_counted_as_excess_and_logged_once(rig: Rig, caplog) -> None:
    for second in range(1, 4):
        rig.sample(16_000.0)
        rig.later(1.0)
        rig.answer(300.0)
        assert rig.values()["power_watts"] == 15_300.0
        rig.answer(300.0)  # which makes another sum of the same second
        rig.values()
        assert rows(rig, "peer_failures_total") == {"n1:19400": second}
    assert [each.message.partition(":")[0] for each in caplog.records if each.levelname == "WARNING"] == [
        "this node draws more than the limit per node"
    ]


def test_an_agent_that_reports_no_limits_is_not_assumed_to_have_others(rig: Rig) -> None:
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), budget=40_800.0))
    rig.answer(300.0, limits=None)
    assert not any(rows(rig, "setting_differs").values())
    rig.answer(300.0, limits={})
    assert rows(rig, "setting_differs")["power_budget"] == 1


def test_nodes_are_silent_when_the_same_ones_have_been_missing_for_long(rig: Rig) -> None:
    def play(seconds: int, *, heard: bool) -> list[float | None]:
        seen = []
        for _ in range(seconds):
            rig.sample(500.0)
            rig.later(1.0)
            if heard:
                rig.answer(300.0)
            else:
                rig.watch.failed(rig.watch._finder.targets[0], PeerFault.CONNECT, "refused")
            seen.append(rig.values().get("nodes_silent"))
        return seen

    assert play(31, heard=True) == [None] * 30 + [0]
    assert play(20, heard=False) == [0] * 20
    assert play(5, heard=True) == [0] * 5
    assert play(32, heard=False) == [0] * 30 + [1] * 2
    assert play(1, heard=True) == [0]


# -- breakers ---------------------------------------------------------------------------------------------------------

BREAKERS = """
node: {name: n1}
rack:
  name: r1
  nodes_expected: 1
  feeds: {a: 800W, b: 800W}
  breakers:
    a: {class: ul489, rating: {amperes: 10, volts_dc: 100}}
    main: {class: electronic, rating: 2kW, long_delay: 8s}
    shelf: {class: iec60898-c, rating: 400W, share: 0.25}
  shelves: {number: 4, rating: 400W}
"""


def breaker_rig(path: Path, wall: float) -> tuple[Rig, list[bytes]]:
    """An agent of a rack of one, which finds its state at a path, and what it had written there."""
    config = parse(BREAKERS, "c.yaml")
    rig = Rig(RackOptions())
    rig.now = Instant(50.0, wall)
    written: list[bytes] = []

    def put(to: Path, body: bytes) -> None:
        to.write_bytes(body)
        written.append(body)

    options = load_rack(config, Path(), 3.0)
    rig.watch = make_rack_monitor(config, options, lambda: rig.now, Threads(), path=path, put=put)
    return rig, written


def test_each_breaker_has_its_share_its_heat_and_its_time(tmp_path: Path) -> None:
    rig, _ = breaker_rig(tmp_path / "rack.state", 1_000.5)
    rig.sample(2_600.0)
    rig.later(1.0)
    assert rows(rig, "breaker_load_ratio") == {"a": 1.3, "main": 1.3, "shelf": pytest.approx(1.625)}
    splits = [
        each.labels for each in rig.watch.frame(rig.now).readings if each.metric.name.endswith("breaker_load_ratio")
    ]
    assert [dict(labels)["split"] for labels in splits] == ["assumed", "whole", "configured"]
    assert rows(rig, "breaker_heat_ratio")["a"] == pytest.approx(0.81)
    assert set(rows(rig, "breaker_trip_seconds")) == {"a", "main", "shelf"}
    assert rig.values()["failover_limit_watts"] == 1_200.0
    rig.sample(1_600.0)
    rig.later(1.0)
    rig.sample(1_600.0)
    rig.later(1.0)
    assert rows(rig, "breaker_trip_seconds") == {}


def test_the_heat_of_breakers_outlives_the_agent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rack.state"
    rig, written = breaker_rig(path, 1_000.5)
    for _ in range(60):
        rig.sample(2_600.0)
        rig.later(1.0)
        rig.values()
    before = rows(rig, "breaker_heat_ratio")
    assert 2 <= len(written) < 40
    rig.watch.stop()
    again, _ = breaker_rig(path, rig.now.wall + 2)
    again.sample(2_600.0)
    again.later(1.0)
    after = rows(again, "breaker_heat_ratio")
    assert all(before[name] <= after[name] <= before[name] + 0.05 for name in before)
    assert after["a"] > 0.85  # one that nobody has watched begins at 0.81
    path.write_bytes(b"coldplate-rack/1 00000000\n{}")
    damaged, _ = breaker_rig(path, rig.now.wall + 4)
    assert "cannot be used: its checksum is wrong" in caplog.text
    damaged.sample(2_600.0)
    damaged.later(1.0)
    assert rows(damaged, "breaker_heat_ratio")["a"] == pytest.approx(0.81)


def test_a_node_that_is_missing_is_assumed_to_load_the_breaker_as_the_others_do(rig: Rig) -> None:
    breaker = Breaker("main", CLASSES["ul489"], 1_000.0)
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), breakers=(breaker,)))
    rig.sample(500.0)
    rig.later(1.0)
    rig.watch.failed(rig.watch._finder.targets[0], PeerFault.CONNECT, "refused")
    assert rows(rig, "breaker_load_ratio") == {"main": 1.0}


def test_a_number_of_nodes_that_only_a_peer_reports_loads_no_breaker(rig: Rig) -> None:
    breaker = Breaker("main", CLASSES["ul489"], 1_000.0)
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), breakers=(breaker,)))
    rig.sample(500.0)
    rig.later(1.0)
    rig.answer(300.0, limits={"nodes_expected": 40})
    assert rig.values()["nodes_expected"] == 40
    assert rows(rig, "breaker_load_ratio") == {"main": 0.8}
