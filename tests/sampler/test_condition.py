"""Garbage is left out and counted, counters only grow, and statistics and integrals stand beside the readings."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.catalogue import BY_NAME
from agent.catalogue.bindings import USUAL
from agent.model import Framer, Gap, Gpu, IbPort, Lane, Reading, Reason, Series, Unit
from agent.sampler.condition import Conditioner
from agent.sampler.counters import Counter, Counters
from agent.sampler.rolling import BUCKETS, RollingStatistics, RollingWindow


def feed(counter: Counter, *raws: float) -> list[float | None]:
    return [counter.feed(float(at), raw) for at, raw in enumerate(raws)]


@pytest.mark.parametrize(
    ("unit", "raws", "shown"),
    [
        pytest.param(Unit.NONE, (5, 5, 9, 12), (5, 5, 9, 12), id="one that behaves"),
        # The first reading after a restart is left out, and the second continues from what was shown.
        pytest.param(Unit.JOULES, (9000, 9100, 100, 200, 300), (9000, 9100, None, 9300, 9400), id="a restart"),
        pytest.param(Unit.JOULES, (9000, 9100, 3, 9300, 9400), (9000, 9100, None, 9300, 9400), id="one low value"),
        pytest.param(Unit.JOULES, (9000, 9100, 2**60, 9300), (9000, 9100, None, 9300), id="one high value"),
        pytest.param(Unit.NONE, (5, 5, 2**32 - 1, 6, 6), (5, 5, None, 6, 6), id="a sentinel in a count of errors"),
        # The driver sets itself right, and nothing is added.
        pytest.param(Unit.JOULES, (100, 200, 10**9, 10**9 + 100), (100, 200, None, 300), id="a leap that lasts"),
        pytest.param(Unit.NONE, (100, 99, 99, 101), (100, None, 100, 102), id="a small fall that lasts"),
    ],
)
def test_what_is_shown_of_a_counter(unit: Unit, raws: tuple[float, ...], shown: tuple[float | None, ...]) -> None:
    assert feed(Counter(USUAL[unit]), *raws) == list(shown)


def test_a_gap_in_time_allows_as_much_growth_as_it_was_long() -> None:
    counter = Counter(USUAL[Unit.JOULES])
    assert counter.feed(0.0, 1000) == 1000
    assert counter.feed(600.0, 400_000) == 400_000
    assert isinstance(Counter(USUAL[Unit.BYTES]).feed(0, 2**60 + 1), int)


@given(st.lists(st.floats(min_value=0, max_value=1e15), max_size=60))
def test_what_is_shown_never_falls(raws: list[float]) -> None:
    for unit in (Unit.NONE, Unit.JOULES):
        shown = [value for value in feed(Counter(USUAL[unit]), *raws) if value is not None]
        assert shown == sorted(shown)


@given(st.lists(st.lists(st.integers(0, 1000), min_size=2, max_size=8), min_size=1, max_size=5))
def test_growth_is_kept_across_restarts_from_zero(lives: list[list[int]]) -> None:
    """Each life of the driver counts from zero; all but what its first, suspect reading hides is shown."""
    counter = Counter(USUAL[Unit.NONE])
    total, at = 0, 0.0
    for life in lives:
        raw = 0
        for growth in life:
            raw += growth
            at += 1
            counter.feed(at, raw)
        total += raw
    assert counter.shown <= total


raw_values = st.none() | st.integers(0, 40) | st.just(2**60)


@given(st.lists(st.tuples(raw_values, raw_values, raw_values), max_size=60), st.integers(0, 100))
@settings(max_examples=40)
def test_counters_that_are_judged_together_are_judged_as_each_alone(
    rows: list[tuple[int | None, int | None, int | None]], changes: int
) -> None:
    fastest = USUAL[Unit.NONE]
    alone = [Counter(fastest) for _ in range(3)]
    kept = [Counter(fastest) for _ in range(3)]
    together = Counters(kept)
    for at, row in enumerate(rows):
        if at == changes:  # another layout of the same counters
            together.let_go()
            together = Counters(kept)
        shown = together.feed(float(at), row)
        assert list(shown) == [
            None if raw is None else c.feed(float(at), raw) for c, raw in zip(alone, row, strict=True)
        ]


columns = st.tuples(*[st.none() | st.floats(-1e6, 1e6)] * 3)


@given(st.lists(st.tuples(st.floats(0.05, 100), columns), min_size=1, max_size=200), st.integers(0, 100))
@settings(max_examples=40)
def test_each_column_is_of_its_own_values(samples: list[tuple[float, Sequence[float | None]]], joins: int) -> None:
    """One column has a value where another has none, and the last one joins later."""
    window = RollingWindow(60, 2)
    seen: list[list[tuple[int, float]]] = [[], [], []]
    at, width = 0.0, 2
    for number, (step, values) in enumerate(samples):
        at += step
        if number == joins:
            width = 3
            window.widen(width)
        for column, value in enumerate(values[:width]):
            if value is not None:
                seen[column].append((int(at), value))
        if window.add(at, values[:width]):
            for column in range(width):
                within = [each for bucket, each in seen[column] if bucket > int(at) - BUCKETS]
                if within:
                    assert window.lowest[column] == min(within)
                    assert window.highest[column] == max(within)
                    assert window.means[column] == pytest.approx(sum(within) / len(within), rel=1e-6, abs=1e-3)


GPU = Gpu("0", "GPU-a")
POWER = Series(BY_NAME["coldplate_gpu_power_watts"], GPU)
UTILIZATION = Series(BY_NAME["coldplate_gpu_utilization_ratio"], GPU)
SENT = Series(BY_NAME["coldplate_infiniband_port_data_transmitted_bytes_total"], IbPort("mlx5_0", "1"))
ENERGY = Series(BY_NAME["coldplate_gpu_energy_joules_total"], GPU)


class Conditioned:
    def __init__(self, lane: Lane = Lane.FAST, period: float = 1.0) -> None:
        self._key, self._period = ("k", "", lane), period
        self._framer = Framer()
        self._statistics = RollingStatistics(60)
        self._conditioner = Conditioner(self._statistics)

    @property
    def rejected(self) -> dict[str, int]:
        return {cause: count for (_, cause), count in self._conditioner.rejected.items()}

    def pass_on(self, at: float, readings: list[Reading]) -> tuple[list[Reading], list[Gap]]:
        frame, gaps = self._conditioner.pass_on(self._key, at, self._framer.frame(readings), self._period)
        self._statistics.add(at)
        return [*frame.readings, *self._statistics.frame([self._key]).readings], gaps


def named(readings: list[Reading]) -> dict[str, float]:
    return {reading.metric.name: reading.value for reading in readings}


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1.0, 4_294_967.295, 9.2e18])
def test_a_value_outside_the_physical_range_is_left_out_with_its_reason(garbage: float) -> None:
    conditioner = Conditioned()
    shown, gaps = conditioner.pass_on(0.0, [Reading(POWER, garbage)])
    assert shown == []
    assert [(gap.metric.name, gap.reason) for gap in gaps] == [("coldplate_gpu_power_watts", Reason.IMPLAUSIBLE)]
    assert conditioner.rejected == {"range": 1}
    for at, value in enumerate([1000.0, 1100.0, 5.0]):
        shown, gaps = conditioner.pass_on(1.0 + at, [Reading(ENERGY, value)])
    assert (shown, len(gaps), conditioner.rejected) == ([], 1, {"range": 1, "step": 1})


def test_rolling_statistics_are_beside_the_gauge_unless_it_is_sampled_seldom() -> None:
    conditioner = Conditioned()
    for at, value in enumerate([100.0, 700.0, 400.0]):
        shown, _ = conditioner.pass_on(float(at), [Reading(POWER, value)])
    assert named(shown) == {
        "coldplate_gpu_power_watts": 400.0,
        "coldplate_gpu_power_min_watts": 100.0,
        "coldplate_gpu_power_mean_watts": 400.0,
        "coldplate_gpu_power_max_watts": 700.0,
    }
    shown, _ = Conditioned(Lane.SLOW, 15.0).pass_on(0.0, [Reading(POWER, 100.0)])
    assert named(shown) == {"coldplate_gpu_power_watts": 100.0}


@pytest.mark.parametrize(
    ("samples", "peaks"),
    [
        pytest.param(
            [(0.0, 5e9), (1.0, 6e9), (2.0, 16e9), (4.0, 18e9), (63.0, 20e9), (64.0, 25e9)],
            [None, 1e9, 10e9, 10e9, 1e9, 5e9],
            id="the highest of a minute",
        ),
        pytest.param([(0.0, 0.0), (0.1, 1e8), (0.2, 1e8)], [None, 1e9, 1e9], id="within the same second"),
        pytest.param([(0.0, 50e9), (1.0, 51e9), (2.0, 0.0), (3.0, 1e9)], [None, 1e9, None, 1e9], id="one that falls"),
    ],
)
def test_the_highest_rate_is_beside_the_counter_from_two_samples_on(
    samples: list[tuple[float, float]], peaks: list[float | None]
) -> None:
    conditioner = Conditioned(period=samples[1][0])
    seen = []
    for at, value in samples:
        shown, _ = conditioner.pass_on(at, [Reading(SENT, value), Reading(POWER, 400.0)])
        seen.append(named(shown).get("coldplate_infiniband_port_data_transmitted_peak_bytes_per_second"))
    assert seen == pytest.approx(peaks)


def test_a_counter_that_was_away_has_the_rate_of_the_time_since() -> None:
    conditioner = Conditioned()
    both, one = [Reading(SENT, 0.0), Reading(POWER, 400.0)], [Reading(POWER, 400.0)]
    conditioner.pass_on(0.0, both)
    shown, _ = conditioner.pass_on(1.0, one)
    assert set(named(shown)) == {f"coldplate_gpu_power_{each}watts" for each in ("", "min_", "mean_", "max_")}
    shown, _ = conditioner.pass_on(4.0, [Reading(SENT, 8e9), Reading(POWER, 400.0)])
    assert named(shown)["coldplate_infiniband_port_data_transmitted_peak_bytes_per_second"] == 2e9


def test_history_continues_when_a_source_comes_back_with_equal_series() -> None:
    conditioner = Conditioned()
    conditioner.pass_on(0.0, [Reading(ENERGY, 500.0)])
    again = Series(BY_NAME["coldplate_gpu_energy_joules_total"], Gpu("0", "GPU-a"))
    conditioner.pass_on(1.0, [Reading(again, 10.0)])
    shown, _ = conditioner.pass_on(2.0, [Reading(again, 20.0)])
    assert shown[0].value == 520.0


def test_statistics_outlive_a_sample_without_the_reading() -> None:
    conditioner = Conditioned()
    both = [Reading(POWER, 900.0), Reading(UTILIZATION, 1.0)]
    conditioner.pass_on(0.0, both)
    shown, _ = conditioner.pass_on(1.0, both[1:])
    assert set(named(shown)) == {name for name in named(conditioner.pass_on(2.0, both)[0]) if "power" not in name}
    shown, _ = conditioner.pass_on(3.0, [Reading(POWER, 100.0), Reading(UTILIZATION, 1.0)])
    assert named(shown)["coldplate_gpu_power_max_watts"] == 900.0
    assert named(shown)["coldplate_gpu_power_mean_watts"] == pytest.approx((900 + 900 + 100) / 3)
    assert named(shown)["coldplate_gpu_busy_seconds_total"] == 3.0
    conditioner.pass_on(100.0, both)
    shown, _ = conditioner.pass_on(101.0, [Reading(UTILIZATION, 0.5)])
    assert named(shown)["coldplate_gpu_busy_seconds_total"] == 3.5


def test_statistics_end_with_the_last_of_their_values() -> None:
    conditioner = Conditioned()
    conditioner.pass_on(0.0, [Reading(POWER, 300.0), Reading(SENT, 1.0)])
    conditioner.pass_on(1.0, [Reading(POWER, 300.0), Reading(SENT, 2.0)])
    for at in range(2, 130):
        shown, _ = conditioner.pass_on(float(at), [])
        assert shown == []
    assert "coldplate_gpu_power_mean_watts" in named(conditioner.pass_on(130.0, [Reading(POWER, 100.0)])[0])


def test_a_lane_without_a_value_in_the_window_has_no_statistics() -> None:
    statistics = RollingStatistics(60)
    conditioner = Conditioner(statistics)
    keys = [("nvml", name, Lane.FAST) for name in ("GPU-a", "GPU-b")]
    framers = [Framer(), Framer()]
    for key, framer in zip(keys, framers, strict=True):
        power = Series(POWER.metric, Gpu("0", key[1]))
        conditioner.pass_on(key, 0.0, framer.frame([Reading(power, 300.0)]), 1.0)
    statistics.add(0.0)
    for at in range(1, 70):
        power = Series(POWER.metric, Gpu("0", "GPU-a"))
        conditioner.pass_on(keys[0], float(at), framers[0].frame([Reading(power, 200.0)]), 1.0)
        statistics.add(float(at))
    shown = statistics.frame(keys).readings
    assert {(reading.entity.labels[1], reading.value) for reading in shown} == {(("uuid", "GPU-a"), 200.0)}


def test_a_reading_that_is_left_out_takes_its_statistics_along_and_nothing_else() -> None:
    conditioner = Conditioned()
    readings = [Reading(POWER, 300.0), Reading(UTILIZATION, 0.5), Reading(ENERGY, 10.0)]
    whole, _ = conditioner.pass_on(0.0, readings)
    shown, gaps = conditioner.pass_on(1.0, [Reading(POWER, math.nan), *readings[1:]])
    assert [gap.metric.name for gap in gaps] == ["coldplate_gpu_power_watts"]
    assert set(named(whole)) - set(named(shown)) == {
        "coldplate_gpu_power_watts",
        "coldplate_gpu_power_min_watts",
        "coldplate_gpu_power_mean_watts",
        "coldplate_gpu_power_max_watts",
    }
    shown, _ = conditioner.pass_on(2.0, readings)
    assert named(shown)["coldplate_gpu_power_max_watts"] == 300.0


def test_the_layout_stays_the_same_object_while_nothing_is_left_out() -> None:
    conditioner, framer = Conditioner(RollingStatistics(60)), Framer()
    layouts = []
    for at, power in enumerate([100.0, 200.0, math.nan, 300.0]):
        frame = framer.frame([Reading(POWER, power), Reading(ENERGY, float(at))])
        layouts.append(conditioner.pass_on(("k", "", Lane.FAST), float(at), frame, 1.0)[0].layout)
    assert layouts[0] is layouts[1]
    assert layouts[2] is not layouts[0]
    assert layouts[3] is layouts[0]
