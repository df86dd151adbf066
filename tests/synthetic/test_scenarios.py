"""Each shipped scenario shows, in numbers, what it says that it shows. All of it is injected, none measured."""

import math
import threading
from pathlib import Path

import pytest

from agent.backends.protocol import DeviceError, SourceError
from agent.backends.synthetic import shipped_names
from agent.catalogue.xid_triage import Grade, grade_of
from agent.model import Gpu, Lane, Reason
from tests.lab.generate.scenario_document import splice
from tests.synthetic.conftest import TRAINING, scenario

GPUS = range(8)


def test_two_jobs_differ_between_them_and_not_within(play):
    node = play("two-jobs")
    busy = [node.mean(gpu, "utilization_ratio", 100, 400, 2.0) for gpu in GPUS]
    assert max(busy[:4]) < 0.15
    assert min(busy[4:]) > 0.9
    assert max(busy[:4]) - min(busy[:4]) < 0.15
    jobs = {name for name in node.node(100.0, Lane.SLOW) if name.startswith("job_info/") and "/false/" in name}
    assert len(jobs) == 2  # the short names carry no GPU
    assert any("/5001/bob/" in name for name in jobs)


def test_a_lost_gpu_raises_and_reports_xid_79_once_while_its_peers_spin(play):
    node = play("gpu-lost")
    node.sample(3, 59.0)
    for t in (61.0, 62.0, 63.0):
        with pytest.raises(DeviceError) as caught:
            node.sample(3, t)
        assert caught.value.reason is Reason.LOST
    events = list(node.source.events(0.1))
    lost = [event for event in events if event.code == 79]
    assert [event.device for event in lost] == [node.channels[3].key]
    assert lost[0].wall == pytest.approx(node.instant(60.0).wall)
    assert [event.code for event in events] == [79, 45, 45, 45]
    assert node.values(0, 70.0)["power_watts"] < 165
    assert node.node(70.0)["node_power_watts/synthetic"] < 3500


def test_a_hanging_read_blocks_its_own_gpu_only_and_until_close(play):
    node = play("driver-hang")
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(DeviceError):
            node.sample(2, 61.0)
        ended.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert node.source.events(5.0)[0].code == 119
    for gpu in set(GPUS) - {2}:
        assert node.value(gpu, 62.0, "utilization_ratio") > 0
    assert node.node(62.0)
    assert not ended.wait(0.1)
    node.source.close()
    node.source.close()
    assert ended.wait(5.0)
    thread.join()


def test_a_gpu_that_never_said_who_it_is_is_named_by_nobody(play):
    """Whoever reads it would have to refuse all that is told of a GPU that nobody has introduced."""
    node = play("driver-hang", opened_at=61.0)
    jobs = [each for each in node.fabric.read(Lane.SLOW, node.instant(61.0)).readings if "job_info" in each.metric.name]
    named = {each.entity.index for each in jobs if isinstance(each.entity, Gpu)}
    assert named == {str(gpu) for gpu in GPUS} - {"2"}


def test_a_limited_hang_ends_and_every_read_fails_while_the_driver_is_unloaded(play, write) -> None:
    node = play(write(scenario("l40s-pcie", "{kind: hang, gpu: 0, at: 10s, duration: 45s}")))
    with pytest.raises(DeviceError, match="Timeout") as caught:
        node.sample(0, 54.95)
    assert caught.value.reason is Reason.TIMEOUT
    assert node.value(0, 55.0, "power_watts") > 0
    node = play(write(scenario("l40s-pcie", "{kind: driver-unloaded, at: 10s, duration: 10s}")))
    for channel in node.channels:
        with pytest.raises(SourceError, match="Driver Not Loaded"):
            channel.read(Lane.FAST, node.instant(15.0))
    with pytest.raises(SourceError):
        node.source.open(node.instant(15.0))
    assert node.source.open(node.instant(20.0))


@pytest.mark.parametrize(("kind", "reason"), [("hang", Reason.TIMEOUT), ("lost", Reason.LOST)])
def test_a_gpu_that_is_sick_when_the_devices_are_opened_joins_when_it_is_well(play, write, kind, reason):
    path = write(scenario("dgx-h100", f"{{kind: {kind}, gpu: 3, at: 10s, duration: 20s}}"))
    node = play(path, opened_at=15.0)
    assert [channel.identity.gpu.index for channel in node.channels[:-1]] == list("0124567")
    roster = node.source.roster(node.instant(29.0))
    assert roster.channels == tuple(node.channels)
    assert [(each.index, each.reason) for each in roster.unidentified] == [("3", reason)]
    roster = node.source.roster(node.instant(30.0))
    assert roster.channels[:-1] == tuple(node.channels)
    assert roster.unidentified == ()
    late = roster.channels[-1]
    assert late.identity.gpu.index == "3"
    assert late.read(Lane.FAST, node.instant(31.0)).readings
    whole = play(path)
    assert late.identity == whole.channels[3].identity


def test_an_xid_storm_reports_causes_in_order_and_none_from_before_a_restart(play) -> None:
    node = play("xid-storm")
    node.sample(0, 30.0)
    assert node.source.events(0.0) == []
    node.sample(0, 80.0)
    codes = [event.code for event in node.source.events(0.0)]
    assert codes == [48, 95, *[45] * 8, *[94] * 3]
    node.sample(0, 1300.0)
    later = node.source.events(0.0)
    assert [event.code for event in later].count(95) == 2
    assert {event.text for event in later} == {""}, "the driver's event of a code that says all has no words"
    assert node.value(1, 1300.0, "ecc_errors_total/uncorrected", Lane.SLOW) == 1
    node = play("xid-storm", opened_at=100.0)
    node.sample(0, 200.0)
    assert node.source.events(0.0) == []


def test_an_nvlink_error_has_the_log_line_that_the_scenario_wants(play, write):
    faults = (
        f"{{kind: xid, gpu: 0, at: {at}s, code: 149{words}}}"
        for at, words in ((1, ""), (2, ", words: fatal"), (3, ", words: nonfatal"))
    )
    node = play(write(scenario("dgx-b200", *faults)))
    node.sample(0, 5.0)
    told = [grade_of(event.code, event.text) for event in node.source.events(0.0)]
    assert told == [None, Grade.FATAL, Grade.NONFATAL]


def test_an_nvswitch_counts_what_it_would_have_logged_from_the_first_error_on(play, write):
    seldom = "{kind: sxid, at: 10s, repeat: 10s, code: 11012, switch: 3, words: nonfatal, times: 4}"
    node = play(write(scenario("dgx-h100", seldom, "{kind: sxid, at: 20s, code: 20034}")))
    sxids = "node_nvswitch_sxid_errors_total"
    found = [{k.removeprefix(sxids): v for k, v in node.node(t).items() if k.startswith(sxids)} for t in (9.0, 25.0)]
    assert found == [{}, {"/0000:c4:00.0/11012/nonfatal": 8, "/0000:c1:00.0/20034/fatal": 1}]


def test_a_flapping_port_counts_its_drops_and_carries_nothing_while_down(play):
    node = play("ib-flap")
    port = "infiniband_{}/mlx5_3/1"
    down, later, up = node.node(65.0), node.node(85.0), node.node(100.0)
    assert (down[port.format("state_id")], up[port.format("state_id")]) == (1, 4)
    assert (down[port.format("port_up")], up[port.format("port_up")]) == (0, 1)
    data = port.format("port_data_transmitted_bytes_total")
    assert down[data] == later[data] < up[data]
    assert node.node(59.0, Lane.SLOW)[port.format("link_downed_total")] == 0
    assert node.node(320.0, Lane.SLOW)[port.format("link_downed_total")] == 3
    assert node.node(65.0, Lane.SLOW)[port.format("physical_state_id")] == 2


def test_a_port_that_traffic_avoids_carries_its_share_and_catches_up_with_nothing(play, write):
    fault = "{kind: ib-share, port: mlx5_4, at: 100s, duration: 100s, share: 25%}"
    node = play(write(scenario("dgx-h100", fault, job=TRAINING)))

    def sent(port, start, end):
        name = f"infiniband_port_data_transmitted_bytes_total/{port}/1"
        return node.node(end)[name] - node.node(start)[name]

    assert sent("mlx5_4", 20.0, 100.0) == pytest.approx(sent("mlx5_3", 20.0, 100.0), rel=0.05)
    assert sent("mlx5_4", 100.0, 200.0) == pytest.approx(0.25 * sent("mlx5_3", 100.0, 200.0), rel=0.05)
    assert sent("mlx5_4", 200.0, 300.0) == pytest.approx(sent("mlx5_3", 200.0, 300.0), rel=0.05)


def test_a_reading_is_set_in_the_series_with_the_label_and_in_no_other(play, write):
    metric = "metric: coldplate_gpu_fabric_state, label: in_progress, value: 1"
    fault = f"{{kind: reading, gpu: 3, at: 100s, duration: 60s, {metric}}}"
    node = play(write(scenario("dgx-h100", fault)))

    def state(gpu, t):
        return {name for name, value in node.values(gpu, t, Lane.COLD).items() if "fabric_state" in name and value}

    assert state(3, 90.0) == state(2, 110.0) == state(3, 170.0) == {"fabric_state/completed"}
    assert state(3, 110.0) == {"fabric_state/completed", "fabric_state/in_progress"}


def test_a_power_meter_that_does_not_answer_leaves_the_rest_of_the_node(play, write):
    node = play(write(scenario("dgx-h100", "{kind: meter-lost, at: 100s, duration: 60s}")))
    power = "node_power_watts/synthetic"
    assert power in node.node(90.0)
    assert power not in node.node(110.0)
    assert node.node(110.0).keys() == node.node(90.0).keys() - {power}
    assert power in node.node(160.0)


def test_sensor_gaps_spoils_single_values_and_leaves_the_rest(play):
    node = play("sensor-gaps")
    sample = node.sample(0, 31.0)
    assert "memory_temperature_celsius" not in node.values(0, 31.0)
    assert [gap.reason for gap in sample.gaps if gap.metric.name.endswith("memory_temperature_celsius")] == [
        Reason.UNSUPPORTED
    ]
    assert node.value(2, 30.5, "power_instant_watts") == 1e19
    assert math.isnan(node.value(3, 30.5, "utilization_ratio"))
    assert node.value(4, 30.5, "memory_used_bytes") == -1
    energy = [node.joules(5, t) for t in (29.0, 30.5, 32.0)]
    assert energy[1] < energy[0] < energy[2]
    received = "infiniband_port_data_received_bytes_total/mlx5_1/1"
    assert node.node(30.5)[received] != pytest.approx(node.node(31.5)[received], rel=1e-12)
    assert node.value(2, 31.5, "power_instant_watts") < 1000


HONEST = [name for name in shipped_names() if name not in ("sensor-gaps", "driver-hang", "gpu-lost")]


@pytest.mark.parametrize("name", HONEST)
def test_every_reading_is_physically_possible(play, name):
    node = play(name)
    for t in (0.0, 0.05, 61.0, 125.0, 450.0, 3700.0):
        for readings, _ in node.all_samples(t):
            assert len({reading.series for reading in readings}) == len(readings)
            for reading in readings:
                low, high = reading.metric.span
                assert low <= reading.value <= high, f"{reading.series!r} = {reading.value} at {t}"


def test_the_documentation_of_the_scenarios_is_current():
    path = Path(__file__).parents[2] / "docs" / "synthetic.md"
    text = path.read_text(encoding="utf-8")
    assert text == splice(text), "run `make generate`"
    for name in shipped_names():
        assert f"| `{name}` |" in text
