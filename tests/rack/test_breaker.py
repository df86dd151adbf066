"""Breakers open when a standard or a maker's table says, by what they have carried: the warmer, the sooner."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.config.reading import parse
from agent.config.schema import BREAKERS
from agent.lib.threads import Threads
from agent.model import Instant
from agent.rack.breakers import (
    CLASSES,
    KEPT_FOR_SECONDS,
    Breaker,
    Curve,
    Heats,
    electronic,
    trip_seconds,
    unknown_heat,
    warmed,
)
from agent.rack.rack_options import RackOptions
from agent.wiring.peering import load_rack, make_rack_monitor
from tests.rack.conftest import PEER, Rig, rows

MICROLOGIC = {1.35: (23.89, 38.24), 1.5: (17.32, 25.03), 2.0: (8.29, 10.93), 3.0: (3.36, 4.27), 5.0: (1.16, 1.45),
              6.0: (0.8, 1.0), 7.2: (0.55, 0.69)}  # fmt: skip
"""Seconds from cold, least and most, at multiples of the setting for a long delay of 1 s: Schneider Electric,
S1A1576900, Trip Curve Values for Micrologic Trip Units, table 1."""
TESTS = {
    "ul489": (1.0, ((1.35, 3600.0), (2.0, 120.0))),
    "iec60898-b": (1.13, ((1.45, 3600.0), (2.55, 60.0))),
    "iec60898-c": (1.13, ((1.45, 3600.0), (2.55, 60.0))),
    "iec60898-d": (1.13, ((1.45, 3600.0), (2.55, 60.0))),
    "iec60947-2": (1.05, ((1.30, 3600.0),)),
    "electronic": (1.05, ((1.30, 3600.0),)),
}
"""What each class must hold, and within how many seconds it must open at which load."""

curves = st.sampled_from(sorted(CLASSES)).map(CLASSES.__getitem__)
heats = st.floats(0, 1)


@pytest.mark.parametrize("delay", [0.5, 1, 2, 4, 8, 12, 24])
@pytest.mark.parametrize("load", MICROLOGIC)
def test_an_electronic_trip_unit_opens_when_its_makers_table_says(load: float, delay: float) -> None:
    least, most = MICROLOGIC[load]
    seconds = trip_seconds(electronic(delay), 0.0, load)
    assert seconds is not None
    assert seconds / delay == pytest.approx(least, rel=0.01)
    assert seconds / delay <= most


def test_every_breaker_class_holds_101_for_3_s_but_not_130_for_an_hour() -> None:
    assert set(BREAKERS) == set(CLASSES) == set(TESTS)
    for kind, curve in CLASSES.items():
        before = unknown_heat(curve, 0.8)
        assert warmed(curve, before, 1.01, 3.0) - before < 0.01, kind
        seconds = trip_seconds(curve, before, 1.30)
        assert seconds is not None
        assert seconds < 300, kind


@pytest.mark.parametrize("kind", TESTS)
def test_each_class_holds_what_it_must_and_opens_when_it_must(kind: str) -> None:
    hold, points = TESTS[kind]
    curve = CLASSES[kind]
    assert trip_seconds(curve, 0.0, hold) is None
    assert trip_seconds(curve, 0.0, hold * 1.001) is not None
    for load, seconds in points:
        opens = trip_seconds(curve, 0.0, load)
        assert opens is not None
        assert 1.0 < opens <= seconds + 1e-6


@pytest.mark.parametrize(("kind", "load"), [("iec60898-b", 3.0), ("iec60898-c", 5.0), ("iec60898-d", 10.0)])
def test_at_its_magnetic_release_a_breaker_opens_at_once(kind: str, load: float) -> None:
    assert trip_seconds(CLASSES[kind], 0.0, load) == 0.0
    assert trip_seconds(CLASSES[kind], 0.0, load * 0.99) != 0.0


@given(curves, heats, st.floats(0.1, 2.9), st.floats(0.01, 0.99))
def test_heat_reaches_opening_exactly_when_predicted(curve: Curve, heat: float, load: float, part: float) -> None:
    seconds = trip_seconds(curve, heat, load)
    assume(seconds is not None and seconds > 1e-3)
    assert seconds is not None
    half = warmed(curve, heat, load, part * seconds)
    assert warmed(curve, half, load, (1 - part) * seconds) == pytest.approx(1.0, abs=1e-6)
    assert half < 1.0
    left = trip_seconds(curve, half, load)
    assert left == pytest.approx((1 - part) * seconds, rel=1e-3, abs=1e-3)


@given(curves, heats, heats, st.floats(1.2, 2.9), st.floats(0.0, 2.0))
def test_the_warmer_and_the_more_loaded_the_sooner(
    curve: Curve, one: float, other: float, load: float, more: float
) -> None:
    cool, warm = sorted((one, other))
    first, second = trip_seconds(curve, cool, load), trip_seconds(curve, warm, load + more)
    assert first is not None
    assert second is not None
    assert second <= first


def heats_of(*breakers: Breaker) -> Heats:
    return Heats("r12", breakers)


FEED = Breaker("a", CLASSES["ul489"], 40_000.0, 0.5, "assumed")


def heats_kept(rack: str) -> bytes:
    """What the agent of a rack wrote down at 1000 s, of a breaker that is hotter than one that nobody watched."""
    heats = Heats(rack, (FEED,))
    heats.update(60_000.0, 0.0)
    heats.update(120_000.0, 60.0)
    return heats.saved(1000.0)


def test_a_breaker_that_was_not_watched_begins_warm_also_after_a_restart() -> None:
    heats = heats_of(FEED)
    assert heats.update(None, 0.0) == []  # nothing is known of it
    (state,) = heats.update(60_000.0, 1.0)
    assert (state.load, state.heat, state.opens_in) == (0.75, pytest.approx(0.5625), None)
    (state,) = heats.update(120_000.0, 2.0)
    assert state.load == 1.5
    (later,) = heats.update(120_000.0, 62.0)
    assert later.heat > state.heat
    assert state.opens_in is not None
    assert later.opens_in == pytest.approx(state.opens_in - 60)
    assert heats.update(None, 72.0) == []  # no power is known: nothing is told, and the last load goes on
    (last,) = heats.update(120_000.0, 82.0)
    assert later.opens_in is not None
    assert last.opens_in == pytest.approx(later.opens_in - 20)
    again = heats_of(FEED)
    assert last.opens_in is not None
    assert again.restore(heats.saved(1000.0), Instant(5.0, 1020.0))
    (after,) = again.update(120_000.0, 5.0)
    assert after.opens_in == pytest.approx(last.opens_in - 20), "with the heat of the time away"


@pytest.mark.parametrize(
    ("body", "wall"),
    [
        (b"", 1000.0), (b"{}", 1000.0), (heats_kept("r13"), 1001.0),
        (heats_kept("r12"), 1001.0 + KEPT_FOR_SECONDS),
        (heats_kept("r12"), 900.0), (b"\xff", 1000.0), (b"[" * 9999, 1000.0),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_of_another_rack_or_time_is_not_used(body: bytes, wall: float) -> None:
    heats = heats_of(FEED)
    assert not heats.restore(body, Instant(0.0, wall))
    (state,) = heats.update(60_000.0, 1.0)
    assert state.heat == pytest.approx(0.5625)


def test_what_is_kept_is_written_when_it_has_changed_and_before_it_is_too_old() -> None:
    heats = heats_of(FEED)
    wrote = []
    for second in range(0, 6900, 10):
        heats.update(60_000.0, float(second))
        if heats.worth_keeping(1000.0 + second) is not None:
            wrote.append(second)
    assert wrote == list(range(0, 6900, 600))
    heats.update(120_000.0, 6900.0)
    heats.update(120_000.0, 6930.0)
    assert heats.worth_keeping(7930.0) is not None


@pytest.mark.parametrize(
    "other",
    [replace(FEED, rating=20_000.0), replace(FEED, share=1.0), replace(FEED, curve=CLASSES["iec60947-2"])],
    ids=["rating", "share", "class"],
)
def test_the_heat_of_another_breaker_is_not_used(other: Breaker) -> None:
    same, changed = heats_of(FEED), heats_of(other)
    for heats in (same, changed):
        assert heats.restore(heats_kept("r12"), Instant(0.0, 1000.0))
    assert same.update(60_000.0, 0.0)[0].heat > 0.7
    (state,) = changed.update(60_000.0, 0.0)
    assert state.heat == heats_of(other).update(60_000.0, 0.0)[0].heat


# What a rack shows of its breakers, and keeps of their heat.

CONFIG = """
node: {name: n1}
rack:
  name: r1
  nodes_expected: 1
  feeds: {a: 800W, b: 800W}
  breakers:
    a: {class: ul489, rating: {amperes: 10, volts_dc: 100}}
    main: {class: electronic, rating: 2kW, long_delay: 8s}
    shelf: {class: iec60898-c, rating: 400W, share: 0.25}
  shelves: {count: 4, rating: 400W}
"""


def breaker_rig(path: Path, wall: float) -> tuple[Rig, list[bytes]]:
    """An agent of a rack of one, which finds its state at a path, and what it had written there."""
    config = parse(CONFIG, "c.yaml")
    rig = Rig(RackOptions())
    rig.now = Instant(50.0, wall)
    written: list[bytes] = []

    def put(to: Path, body: bytes) -> None:
        to.write_bytes(body)
        written.append(body)

    options = load_rack(config, Path())
    rig.watch = make_rack_monitor(config, options, lambda: rig.now, Threads(), path=path, put=put)
    return rig, written


def test_each_breaker_has_its_share_its_heat_and_its_time(tmp_path: Path) -> None:
    rig, _ = breaker_rig(tmp_path / "rack.state", 1_000.5)
    rig.draw(2_600.0)
    assert rows(rig, "breaker_load_ratio") == {"a": 1.3, "main": 1.3, "shelf": pytest.approx(1.625)}
    splits = [
        each.labels for each in rig.watch.frame(rig.now).readings if each.metric.name.endswith("breaker_load_ratio")
    ]
    assert [dict(labels)["split"] for labels in splits] == ["assumed", "whole", "configured"]
    assert rows(rig, "breaker_heat_ratio")["a"] == pytest.approx(0.81)
    assert set(rows(rig, "breaker_trip_seconds")) == {"a", "main", "shelf"}
    assert rig.values()["failover_limit_watts"] == 1_200.0
    rig.draw(1_600.0)
    rig.draw(1_600.0)
    assert rows(rig, "breaker_trip_seconds") == {}


def test_the_heat_of_breakers_outlives_the_agent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rack.state"
    rig, written = breaker_rig(path, 1_000.5)
    for _ in range(60):
        rig.draw(2_600.0)
        rig.values()
    before = rows(rig, "breaker_heat_ratio")
    assert 2 <= len(written) < 40
    rig.watch.stop()
    again, _ = breaker_rig(path, rig.now.wall + 2)
    again.draw(2_600.0)
    after = rows(again, "breaker_heat_ratio")
    assert all(before[name] <= after[name] <= before[name] + 0.05 for name in before)
    assert after["a"] > 0.85  # one that nobody has watched begins at 0.81
    path.write_bytes(b"coldplate-rack/1 00000000\n{}")
    damaged, _ = breaker_rig(path, rig.now.wall + 4)
    assert "is damaged: its checksum is wrong" in caplog.text
    damaged.draw(2_600.0)
    assert rows(damaged, "breaker_heat_ratio")["a"] == pytest.approx(0.81)


def test_a_missing_node_is_assumed_to_load_the_breaker_as_the_others_do(rig: Rig) -> None:
    breaker = Breaker("main", CLASSES["ul489"], 1_000.0)
    rig.watch.reconfigure(RackOptions("r1", entries=(PEER,), breakers=(breaker,)))
    rig.draw(500.0)
    rig.refuse()
    assert rows(rig, "breaker_load_ratio") == {"main": 1.0}
    rig.answer(300.0, limits={"nodes_expected": 40})
    assert rig.values()["nodes_expected"] == 40
    assert rows(rig, "breaker_load_ratio") == {"main": 0.8}
