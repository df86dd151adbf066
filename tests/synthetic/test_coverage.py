"""A synthetic node shows every row that such a machine would, and says what it does not offer."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.backends.protocol import BackendSample
from agent.backends.synthetic import SyntheticSource, load_scenario, shipped_names
from agent.backends.synthetic.machines import TOPOLOGIES
from agent.backends.synthetic.supported_series import port_offered
from agent.catalogue import BY_NAME, ROWS, links
from agent.catalogue.bindings import is_measured
from agent.catalogue.gpu import MIG
from agent.catalogue.jobs import FACTS
from agent.model import Gpu, IbPort, Instant, Kind, Lane, NvLink, Reason
from agent.worker.decode import rows_of

NOT_ON_A_DGX_H100 = {
    "coldplate_gpu_module_power_watts": "Grace-based boards only",
    "coldplate_nvlink_receive_errors_total": "from Blackwell on",
    "coldplate_nvlink_symbol_errors_total": "from Blackwell on",
    "coldplate_nvlink_effective_errors_total": "from Blackwell on",
    **{row.name: "from Blackwell on" for row in links.QUALITY},
    **{row.name: "MIG is off on synthetic GPUs" for row in MIG if is_measured(row)},
}


def seen_on(node) -> dict[str, set[Lane]]:
    seen: dict[str, set[Lane]] = {}
    for channel in node.channels:
        for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
            sample: BackendSample = channel.read(lane, node.instant(30.0))
            for reading in sample.readings:
                seen.setdefault(reading.metric.name, set()).add(lane)
    return seen


def test_a_dgx_h100_shows_every_row_that_it_offers_in_its_own_lane(play):
    seen = seen_on(play("healthy-training"))
    wanted = {row.name for row in ROWS if row.entity in (Gpu, NvLink) and is_measured(row)}
    wanted |= {row.name for row in ROWS if row.entity is IbPort and port_offered(row)}
    assert wanted - set(seen) == set(NOT_ON_A_DGX_H100)
    jobs = {row.name for row in FACTS if row.labels != ("problem",)}
    assert set(seen) - wanted == {"coldplate_node_power_watts", "coldplate_gpu_job_memory_used_bytes"} | jobs
    for name, lanes in seen.items():
        clock = name == "coldplate_gpu_clock_hertz"  # the catalogue reads three of its domains in other lanes
        assert lanes == ({Lane.FAST, Lane.SLOW, Lane.COLD} if clock else {BY_NAME[name].lane})


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_what_a_machine_lacks_is_a_gap_and_the_worker_may_report_the_rest(play, write, topology) -> None:
    node = play(write(f"{{description: d, topology: {topology}, faults: [{{kind: sxid, code: 12028}}]}}"))
    machine = TOPOLOGIES[topology]
    readings, gaps = set(), {}
    for found, missing in node.all_samples(10.0):
        readings |= {reading.metric.name for reading in found}
        gaps.update({gap.metric.name: gap for gap in missing})
    assert not readings & set(gaps)
    assert all(gap.reason is Reason.UNSUPPORTED and gap.detail for gap in gaps.values())
    assert ("coldplate_gpu_tensor_active_ratio" in readings) == machine.gpm
    assert ("coldplate_nvlink_up" in readings) == (machine.nvlinks > 0)
    assert ("coldplate_gpu_module_power_watts" in readings) == (machine.module_power > 0)
    assert len(node.channels) == machine.gpus + 1
    # What it may not report is taken for garbage, and costs the lane of all that the channel shows.
    assert set(seen_on(node)) <= set(rows_of("synthetic"))


def test_a_blackwell_link_has_the_error_counters_of_its_own_kind(play, write):
    node = play(write("{description: d, topology: gb200-tray}"))
    values = node.values(0, 10.0, Lane.SLOW)
    assert {"nvlink_errors_total/0/recovery_failed", "nvlink_errors_total/recovery_failed"} <= set(values)
    assert {"nvlink_symbol_errors_total/0", "nvlink_receive_errors_total/0"} <= set(values)
    assert not {"nvlink_errors_total/0/crc", "nvlink_errors_total/crc_flit"} & set(values)
    cold = node.values(0, 10.0, Lane.COLD)
    assert {
        "nvlink_symbol_error_highest_ratio",
        "nvlink_symbol_error_ratio/0",
        "nvlink_fec_bin_blocks_total/15",
    } <= set(cold)
    assert "fabric_info/9a6f1c52-3d0b-4e8e-9a41-5f27c0d1be64/0" in node.values(0, 10.0, Lane.COLD)


def test_series_are_made_once(play):
    node = play("healthy-training")
    for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
        for channel in node.channels:
            first, second = channel.read(lane, node.instant(40.0)), channel.read(lane, node.instant(41.0))
            assert all(a.series is b.series for a, b in zip(first.readings, second.readings, strict=True))


# The same scenario and seed give the same readings at the same moments, whoever asks and how often.
LANES = (Lane.FAST, Lane.SLOW, Lane.COLD)
CALM = [name for name in shipped_names() if name not in ("driver-hang", "gpu-lost", "sensor-gaps")]


def everything(channels, t):
    now = Instant(t, 1e9 + t)
    return [
        [(repr(reading.series), reading.value) for reading in channel.read(lane, now).readings]
        for channel in channels
        for lane in LANES
    ]


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
        for name in ("inference-mix", "ib-flap", "power-swing"):  # what comes again and again
            everything(SyntheticSource(load_scenario(name), 0.0).open(Instant(seconds, 0.0)), seconds)
        return time.process_time() - began

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


@settings(max_examples=12, deadline=None)
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
        # The closed form of a sum may differ in its last bit; the sampler shows no such fall.
        fallen = [repr(series) for series, value in after.items() if value < before[series] * (1 - 1e-12)]
        assert not fallen
        before = after
