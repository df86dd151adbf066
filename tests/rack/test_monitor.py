"""What the daemon sees of the rack: its series, what peers are told, and what a reload changes."""

from pathlib import Path

import pytest

from agent.model import Reading
from agent.rack.finder import HostEntry
from agent.rack.monitor import SETTLED_SECONDS
from agent.rack.peer_messages import PeerFault
from agent.rack.rack_options import RackOptions
from tests.frames import snapshot_of
from tests.rack.conftest import NAME, PEER, SERIES, Rig, rows


def test_peers_get_our_limits_and_the_known_power_of_the_last_seconds() -> None:
    options = RackOptions("r1", nodes_expected=4, nameplate=10_200.0, budget=40_800.0, feeds=(("a", 20_000.0),))
    made = Rig(options)
    made.draw(500.0)
    made.draw(700.0)
    report = made.told()
    assert report.seconds() == [(1001, 500.0), (1002, 700.0)]
    assert (report.rack, report.cluster, report.run, report.instance) == ("r1", "c1", "own-run-0", "n1:19400")
    assert (report.source, report.now) == ("ipmi", 1_002.5)
    assert report.limits == {
        "power_budget": 40_800.0,
        "nodes_expected": 4,
        "node_nameplate": 10_200.0,
        "feeds.a": 20_000.0,
    }
    made.sample(None)
    made.later(2.0)
    assert made.told().seconds() == report.seconds()
    assert made.told().source is None


def test_an_estimate_is_reported_as_one_and_a_measurement_is_preferred() -> None:
    made = Rig(RackOptions("r1"))
    made.sample(500.0, "estimate")
    assert made.told().source == "estimate"
    both = tuple(Reading(SERIES[source], watts) for source, watts in (("estimate", 1.0), ("ipmi", 2.0)))
    other = Rig(RackOptions("r1"))
    for place in (0, 1):  # where it was in the last snapshot, and elsewhere
        other.watch.observe(snapshot_of(1, other.now, both[::-1] if place else both))
        assert other.told().source == "ipmi"


def test_configured_limits_are_shown_from_the_first_moment() -> None:
    feeds = (("a", 20_000.0), ("b", 21_000.0))
    shown = [
        ("feed_limit_watts", 20_000.0),
        ("feed_limit_watts", 21_000.0),
        ("nodes_expected", 4),
        ("power_budget_watts", 40_800.0),
    ]
    for entries in ((), (PEER,)):
        made = Rig(RackOptions("r1", nodes_expected=4, budget=40_800.0, feeds=feeds, entries=entries))
        readings = made.watch.frame(made.now).readings
        assert sorted((each.metric.name.removeprefix("coldplate_rack_"), each.value) for each in readings) == shown
        assert {each.entity.labels for each in readings} == {(("rack", "r1"),)}
        assert [dict(each.labels) for each in readings if each.labels] == [{"feed": "a"}, {"feed": "b"}]


def test_a_reload_may_give_the_rack_another_name_other_peers_and_another_budget(rig: Rig) -> None:
    rig.draw(500.0)
    rig.answer(300.0)
    rig.watch.reconfigure(RackOptions("r2", nodes_expected=1))
    assert (rig.told().rack, rig.values()["power_watts"]) == ("r2", 500.0)
    assert {reading.entity.labels for reading in rig.watch.frame(rig.now).readings} == {(("rack", "r2"),)}
    rig.watch.reconfigure(RackOptions())
    rig.draw(500.0)
    assert (rig.watch.report(), rig.values()) == (None, {})
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), budget=40_800.0))
    assert rig.values()["power_budget_watts"] == 40_800.0
    rig.watch.reconfigure(RackOptions("r2", entries=(PEER,)))
    assert "power_budget_watts" not in rig.values()


def test_a_rack_of_many_is_not_added_up_without_peers_and_a_rack_of_one_is() -> None:
    for expected, values in ((None, {}), (4, {}), (1, {"power_watts": 500.0, "nodes_reporting": 1})):
        made = Rig(RackOptions("r1", nodes_expected=expected))
        made.draw(500.0)
        assert {**made.values(), **values} == made.values()
        assert ("power_watts" in made.values()) == bool(values)


def test_the_sum_is_of_one_second_and_says_which_and_what_it_is_made_of(rig: Rig) -> None:
    rig.draw(500.0)
    rig.answer(300.0)
    assert rig.values() == {
        "peer_up": 1,
        "power_watts": 800.0,
        "power_timestamp_seconds": 1001,
        "power_conservative_watts": 800.0,
        "nodes_reporting": 2,
        "nodes_expected": 2,
        "nodes_by_power_source": 2,
        "clock_offset_seconds": 0.0,
        "config_mismatch": 0,
    }
    assert rows(rig, "nodes_by_power_source") == {"ipmi": 2}
    rig.later(1.0)
    rig.sample(400.0, "estimate")
    rig.answer(300.0)
    assert rows(rig, "nodes_by_power_source") == {"ipmi": 1, "estimate": 1}


def test_nothing_is_added_up_before_the_peers_were_asked_or_had_long_to_be_found(rig: Rig) -> None:
    rig.draw(500.0)
    assert rig.values() == {}
    rig.later(SETTLED_SECONDS + 0.5)
    rig.draw(600.0)
    assert rig.values()["power_watts"] == 600.0


def test_a_silent_node_is_missing_in_the_sum_and_has_its_nameplate_beside_it(rig: Rig) -> None:
    rig.sample(500.0)
    rig.answer(300.0)
    rig.later(1.0)
    rig.refuse()
    values = rig.values()
    assert values["power_watts"] == 500.0
    assert values["power_conservative_watts"] == 10_500.0
    assert (values["nodes_reporting"], values["nodes_expected"]) == (1, 2)
    assert (values["peer_up"], values["peer_failures_total"]) == (0, 1)


def test_a_rack_of_unknown_power_has_none_and_one_that_draws_none_has_zero(rig: Rig) -> None:
    rig.draw(0.0)
    rig.answer(0.0)
    assert (rig.values()["power_watts"], rig.values()["nodes_reporting"]) == (0.0, 2)
    rig.later(10.0)
    rig.draw(None)
    rig.answer(None, source=None)
    assert rig.values() == {
        "peer_up": 1,
        "nodes_reporting": 0,
        "nodes_expected": 2,
        "power_conservative_watts": 20_000.0,
        "clock_offset_seconds": 0.0,
        "config_mismatch": 0,
    }


def test_a_reload_keeps_what_is_known_whether_or_not_it_adds_a_peer(rig: Rig) -> None:
    rig.draw(500.0)
    rig.answer(300.0)
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), nodes_expected=3, nameplate=1_000.0))
    assert rig.values()["power_watts"] == 800.0
    assert rig.values()["power_conservative_watts"] == 1_800.0
    shown = rig.watch.frame(rig.now).readings
    assert [each.value for each in shown if each.metric.name.endswith("nodes_expected")] == [3]
    rig.refuse()
    rig.answer(300.0)
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER, HostEntry("10.0.0.9", 1)), nameplate=1_000.0))
    assert rig.values() == {"peer_up": 1, "peer_failures_total": 1}  # the new one was not asked yet
    rig.watch._finder.refresh()
    rig.watch.failed(rig.watch._finder.targets[1], PeerFault.TIMEOUT, "late")
    rig.watch._settled_by = rig.now.mono
    assert (rig.values()["power_watts"], rig.values()["nodes_expected"]) == (800.0, 3)


def test_each_of_several_reloads_within_a_second_shows_at_once(rig) -> None:
    rig.draw(500.0)
    rig.refuse()
    for nameplate, conservative in ((1000.0, 1500.0), (2000.0, 2500.0), (None, None)):
        rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), nameplate=nameplate))
        assert rig.values().get("power_conservative_watts") == conservative


# -- what goes wrong without anybody being silent ----------------------------------------------------------------------
def test_peers_that_are_configured_otherwise_are_shown_by_what_differs(rig: Rig) -> None:
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), budget=40_800.0, feeds=(("a", 20_000.0),)))
    own = {"power_budget": 40_800.0, "feeds.a": 20_000.0, "nodes_expected": 2}
    for limits, differ in (
        (own, set()),
        ({**own, "power_budget": 34_500.0, "nodes_expected": 3}, {"power_budget", "nodes_expected"}),
        ({"power_budget": 40_800.0, "feeds.b": 20_000.0}, {"feeds"}),
        ({}, {"power_budget", "feeds"}),
        (None, set()),  # an agent that reports no limits is not assumed to have others
    ):
        rig.answer(300.0, limits=limits)
        assert {name for name, value in rows(rig, "config_mismatch").items() if value} == differ
        if limits and limits.get("nodes_expected") == 3:
            assert rig.values()["nodes_expected"] == 3  # who knows of most is right


def test_peer_series_reach_the_rules_as_a_scrape_would_bring_them(rig: Rig) -> None:
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
    rig.later(3.0)
    assert len(rig.watch.foreign(rig.now)) == len(found)
    rig.later(1.0)
    left = {each.metric.name for each in rig.watch.foreign(rig.now)}
    assert left == {"coldplate_rack_power_budget_watts", "coldplate_rack_feed_limit_watts"}


def test_peers_that_are_not_found_make_no_rack_of_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = tmp_path / "peers.json"
    found.write_text("[]")
    made = Rig(RackOptions("r1", entries=(found,)))
    made.watch._finder.refresh()
    made.watch._settled_by = made.now.mono
    for _ in range(3):
        made.draw(500.0)
        assert made.values() == {}
    assert [record.message.partition(";")[0] for record in caplog.records] == ["rack power not summed: no peer known"]
    made.watch.reconfigure(RackOptions("r1", nodes_expected=18, entries=(found,)))
    values = made.values()
    assert (values["power_watts"], values["nodes_reporting"]) == (500.0, 1)
    for _ in range(30):
        made.draw(500.0)
        made.values()
    assert made.values()["nodes_missing"] == 17


@pytest.mark.parametrize(
    ("nameplate", "believed", "most"), [(10_000.0, 15_000.0, 15_000.0), (None, 45_000.0, 81_600.0)]
)
def test_a_peer_counts_for_what_its_nameplate_allows(
    rig: Rig, nameplate: float | None, believed: float, most: float
) -> None:
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), nameplate=nameplate, budget=40_800.0))
    for told, counted, excess in ((believed, believed, {}), (1e6, most, {NAME: 1})):
        rig.draw(500.0)
        rig.answer(told)
        assert (rig.values()["power_watts"], rig.values()["peer_up"]) == (500.0 + counted, 1)
        assert rows(rig, "peer_failures_total") == excess
        assert next(each.value for each in rig.watch.foreign(rig.now)) == counted


def test_what_is_not_counted_of_this_node_is_counted_as_excess_and_logged_once(rig: Rig, caplog) -> None:
    for second in range(1, 4):
        rig.draw(16_000.0)
        rig.answer(300.0)
        assert rig.values()["power_watts"] == 15_300.0
        rig.answer(300.0)  # which makes another sum of the same second
        rig.values()
        assert rows(rig, "peer_failures_total") == {"n1:19400": second}
    assert [each.message.partition(":")[0] for each in caplog.records if each.levelname == "WARNING"] == [
        "this node draws more than the limit per node"
    ]


def test_nodes_are_silent_when_the_same_ones_have_been_missing_for_long(rig: Rig) -> None:
    def play(seconds: int, *, heard: bool) -> list[float | None]:
        seen = []
        for _ in range(seconds):
            rig.draw(500.0)
            if heard:
                rig.answer(300.0)
            else:
                rig.refuse()
            seen.append(rig.values().get("nodes_missing"))
        return seen

    assert play(31, heard=True) == [None] * 30 + [0]
    assert play(20, heard=False) == [0] * 20
    assert play(5, heard=True) == [0] * 5
    assert play(32, heard=False) == [0] * 30 + [1] * 2
    assert play(1, heard=True) == [0]
