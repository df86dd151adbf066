"""Rates and growth: only what two samples show, and nothing over a counter that fell or an agent that began anew."""

from __future__ import annotations

from agent.commands.top.screen.node_samples import NVLINK, Traffic, TrafficMeter
from agent.model import Gpu, IbPort, Instant, Snapshot
from tests.exporters.conftest import reading
from tests.frames import snapshot_of

GPU = Gpu("0", "GPU-a")
PORT = IbPort("mlx5_0", "1")
ERRORS = "coldplate_infiniband_symbol_error_total"


def sample(mono: float, sent: float | None = None, errors: float | None = None) -> Snapshot:
    readings = [] if sent is None else [reading(NVLINK[0], sent, GPU)]
    readings += [] if errors is None else [reading(ERRORS, errors, PORT)]
    return snapshot_of(1, Instant(mono, 1e9 + mono), readings)


def rate(traffic: Traffic) -> float | None:
    return traffic.rates.get((NVLINK[0], GPU))


def grown(traffic: Traffic) -> float | None:
    return traffic.growth.get((ERRORS, PORT, ()))


def test_a_rate_needs_two_samples_and_is_per_second() -> None:
    meter = TrafficMeter()
    assert rate(meter.take(sample(10.0, 1000.0))) is None
    assert rate(meter.take(sample(12.0, 1500.0))) == 250.0
    assert rate(meter.take(sample(13.0, 1500.0))) == 0.0


def test_the_same_snapshot_again_changes_nothing() -> None:
    meter = TrafficMeter()
    meter.take(sample(10.0, 1000.0))
    again = sample(11.0, 1500.0)
    assert rate(meter.take(again)) == rate(meter.take(again)) == 500.0


def test_a_counter_that_fell_or_was_missing_has_no_rate_until_the_sample_after() -> None:
    meter = TrafficMeter()
    for mono, sent in ((10.0, 1000.0), (11.0, 500.0)):
        fell = meter.take(sample(mono, sent))
    assert rate(fell) is None
    assert rate(meter.take(sample(12.0, 700.0))) == 200.0
    assert rate(meter.take(sample(13.0))) is None
    assert rate(meter.take(sample(14.0, 900.0))) is None


def test_a_node_whose_clock_begins_anew_is_not_compared_with_before() -> None:
    meter = TrafficMeter()
    meter.take(sample(1000.0, 1000.0, 5.0))
    fresh = meter.take(sample(3.0, 2000.0, 9.0))
    assert rate(fresh) is None
    assert grown(fresh) is None


def test_growth_is_that_of_the_last_minute() -> None:
    meter = TrafficMeter()
    counts = {float(second): 5.0 if second < 30 else 8.0 for second in range(0, 120, 10)}
    told = [grown(meter.take(sample(second, errors=count))) for second, count in counts.items()]
    assert told[0] is None
    assert told[1] == 0.0
    assert told[3] == told[8] == 3.0
    assert told[-1] == 0.0
