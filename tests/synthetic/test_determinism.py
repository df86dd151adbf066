"""The same scenario and seed give the same readings at the same moments, whoever asks and how often."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.backends.synthetic import SyntheticSource, load_scenario, shipped_scenarios
from agent.model import Instant, Kind, Lane

LANES = (Lane.FAST, Lane.SLOW, Lane.COLD)
CALM = [name for name, _ in shipped_scenarios() if name not in ("driver-hang", "gpu-lost", "sensor-gaps")]


def everything(channels, t):
    """All readings of a node at a moment, in the order given."""
    now = Instant(t, 1e9 + t)
    return [
        [(repr(reading.series), reading.value) for reading in channel.read(lane, now).readings]
        for channel in channels
        for lane in LANES
    ]


@pytest.mark.parametrize("name", ["healthy-training", "thermal-throttle", "ib-flap", "inference-mix"])
def test_readings_do_not_depend_on_the_sampling_interval(name):
    scenario = load_scenario(name)
    seldom = SyntheticSource(scenario, 0.0).open(Instant(0.0, 0.0))
    often = SyntheticSource(scenario, 0.0).open(Instant(0.0, 0.0))
    for tenth in range(0, 1500, 7):
        for channel in often:
            channel.read(Lane.FAST, Instant(tenth / 10, 0.0))
    assert everything(often, 150.0) == everything(seldom, 150.0)


@pytest.mark.parametrize("name", CALM)
def test_a_restarted_worker_continues_where_the_old_one_stopped(name):
    scenario = load_scenario(name)
    old = SyntheticSource(scenario, 0.0).open(Instant(0.0, 0.0))
    for second in range(0, 700, 233):
        everything(old, float(second))
    new = SyntheticSource(scenario, 0.0).open(Instant(700.0, 0.0))
    assert everything(new, 700.0) == everything(old, 700.0)


def test_another_seed_gives_other_readings_and_other_devices():
    scenario = load_scenario("healthy-training")
    first = SyntheticSource(scenario, 0.0).open(Instant(0.0, 0.0))
    second = SyntheticSource(replace(scenario, seed=99), 0.0).open(Instant(0.0, 0.0))
    assert first[0].key != second[0].key
    assert everything(first[:1], 50.0) != everything(second[:1], 50.0)


def test_a_scenario_that_is_a_day_old_opens_about_as_fast_as_a_young_one():
    def took(seconds):
        began = time.process_time()
        for name in CALM:
            everything(SyntheticSource(load_scenario(name), 0.0).open(Instant(seconds, 0.0)), seconds)
        return time.process_time() - began

    took(1.0)
    assert took(86_400.0) < 20 * took(1.0)


def counters(channels, t):
    now = Instant(t, 0.0)
    return {
        reading.series: reading.value
        for channel in channels
        for lane in LANES
        for reading in channel.read(lane, now).readings
        if reading.metric.kind is Kind.COUNTER
    }


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(CALM),
    seed=st.integers(0, 2**32),
    start=st.floats(0, 2000),
    steps=st.lists(st.floats(0.01, 90), min_size=1, max_size=4),
)
def test_counters_never_fall(name, seed, start, steps):
    scenario = replace(load_scenario(name), seed=seed)
    channels = SyntheticSource(scenario, 0.0).open(Instant(start, 0.0))
    t, before = start, counters(channels, start)
    for step in steps:
        t += step
        after = counters(channels, t)
        fallen = [repr(series) for series, value in after.items() if value < before[series]]
        assert not fallen
        before = after
