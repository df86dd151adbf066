"""What is gathered of recordings whose every figure is known."""

from pathlib import Path

import pytest

from agent.model import BackendReport, Gap, Outcome, Reason, Snapshot
from agent.recording.file_records import RecordingError
from agent.recording.recording_reader import Recording
from agent.recording.report import report_series as chosen
from agent.recording.report.run_facts import RecordedRun
from agent.recording.report.run_reader import read_run
from tests.recording.played import played, record
from tests.report.made import IbPort, gathered, gpu, recorded, row, snapshots

SECONDS = 100
HELD = (("scheduler", "slurm"), ("job_id", "7"), ("user", "ada"), ("name", "train"))


def both(*paths: Path) -> RecordedRun:
    recordings = [Recording(path) for path in paths]
    try:
        return read_run(recordings)
    finally:
        for recording in recordings:
            recording.close()


def test_a_gauge_has_its_figures_and_what_is_absent_for_a_while_is_in_none_of_them(tmp_path: Path) -> None:
    series = {
        row(chosen.POWER, gpu(0)): [100.0 + second for second in range(SECONDS)],
        row(chosen.UTILIZATION, gpu(0)): [None if 20 <= second < 60 else 0.5 for second in range(SECONDS)],
    }
    (facts,) = gathered(tmp_path / "run", series, SECONDS).gpus()
    assert facts.summary(chosen.POWER) == pytest.approx((149.5, 100.0, 199.0, 104.0, 149.0, 194.0, 100.0))
    summary = facts.summary(chosen.UTILIZATION)
    assert (summary.mean, summary.low, summary.seconds) == (0.5, 0.5, 60.0)
    assert facts.summary(chosen.TENSOR) is None


def test_a_metric_that_no_source_offers_says_why(tmp_path: Path) -> None:
    originals = snapshots({row(chosen.POWER, gpu(0)): 1.0}, 3)
    gap = Gap(row(chosen.TENSOR, gpu(0)).metric, gpu(0), Reason.UNSUPPORTED)
    reports = (BackendReport("nvml", Outcome.OK, 0.1, "", (gap,)),)
    reported = [Snapshot(original.sequence, original.at, original.frames, reports) for original in originals]
    run = both(recorded(tmp_path / "run", reported))
    assert run.nodes[0].absent == {(chosen.TENSOR, gpu(0)): Reason.UNSUPPORTED}


@pytest.mark.parametrize(
    ("seconds", "first"), [(1502, (450300.0, 1501.0, "counter")), (100, (25000.0, 100.0, "power"))]
)
def test_energy_is_that_of_the_counter_in_a_long_run_and_else_integrated_from_power(
    tmp_path: Path, seconds: int, first: tuple[float, float, str]
) -> None:
    series = {
        row(chosen.ENERGY, gpu(0)): [5000.0 + 300 * second for second in range(seconds)],
        row(chosen.POWER, gpu(0)): 250.0,
        row(chosen.POWER, gpu(1)): 250.0,
        row(chosen.ENERGY, gpu(2)): [5000.0 + 300 * second for second in range(seconds)],
    }
    run = gathered(tmp_path / "run", series, seconds)
    assert [gpu.energy() for gpu in run.gpus()] == [
        first,
        (250.0 * seconds, seconds, "power"),
        (300.0 * (seconds - 1), seconds - 1.0, "counter"),
    ]


def test_a_restarted_counter_loses_one_step_and_a_new_layout_loses_none(tmp_path: Path) -> None:
    series = {
        row(chosen.NVLINK_OUT, gpu(0)): [10.0 * second for second in range(50)] * 2,
        row(chosen.PCIE_OUT, gpu(0)): [10.0 * second for second in range(SECONDS)],
        row(chosen.POWER, gpu(0)): [1.0 if second % 3 else None for second in range(SECONDS)],  # within each block
    }
    (facts,) = gathered(tmp_path / "run", series, SECONDS).gpus()
    counter, whole = facts.growth(chosen.NVLINK_OUT), facts.growth(chosen.PCIE_OUT)
    assert (counter.growth, counter.seconds, counter.mean) == (980.0, 98.0, 10.0)
    assert (whole.growth, whole.seconds) == (990.0, 99.0)
    assert facts.peak(chosen.NVLINK_OUT) == facts.peak(chosen.PCIE_OUT) == 10.0


def test_a_peak_survives_in_the_envelope(tmp_path: Path) -> None:
    counts = [10.0 * second + (5000.0 if second > 41 else 0.0) for second in range(700)]
    power = [300.0 + (400.0 if second == 333 else 0.0) for second in range(700)]
    series = {row(chosen.PCIE_IN, gpu(0)): counts, row(chosen.POWER, gpu(0)): power}
    run = gathered(tmp_path / "run", series, 700)
    facts = run.nodes[0].facts_of(gpu(0))
    assert run.grid.count == 480
    assert (facts.peak(chosen.PCIE_IN), facts.peak(chosen.POWER)) == (5010.0, 700.0)


def test_an_xid_that_appears_has_happened_once_and_ports_are_gathered(tmp_path: Path) -> None:
    port = IbPort("mlx5_0", "1")
    series = {
        row(chosen.POWER, gpu(0)): 1.0,
        row(chosen.XIDS, gpu(0), (("xid", "79"),)): [None] * 30 + [1.0] * 70,
        row(chosen.PORT_OUT, port): [2e9 * one for one in range(SECONDS)],
        row(chosen.PORT_UP, port): [1.0] * 90 + [0.0] * 10,
    }
    run = gathered(tmp_path / "run", series, SECONDS)
    assert run.nodes[0].facts_of(port).growth(chosen.PORT_OUT).mean == 2e9
    [(_, state)] = run.nodes[0].facts_of(port).states(chosen.PORT_UP)
    assert (state.seconds, state.on) == (100.0, 90.0)
    [(labels, counter)] = run.nodes[0].facts_of(gpu(0)).growths(chosen.XIDS)
    assert (labels, counter.growth) == ({"xid": "79"}, 1.0)


@pytest.mark.parametrize(("seconds", "heated"), [(1502, (375.25, 1501.0, "driver")), (100, (100.0, 100.0, "samples"))])
def test_throttled_time_is_the_drivers_count_in_a_long_run_else_of_the_samples(
    tmp_path: Path, seconds: int, heated: tuple[float, float, str]
) -> None:
    heat, brake = (("reason", "hw_thermal_slowdown"),), (("reason", "hw_power_brake"),)
    series = {
        row(chosen.THROTTLED, gpu(0), heat): [0.25 * second for second in range(seconds)],
        row(chosen.THROTTLE_ACTIVE, gpu(0), heat): 1.0,
        row(chosen.THROTTLE_ACTIVE, gpu(0), brake): [1.0] * 10 + [0.0] * (seconds - 10),
    }
    run = gathered(tmp_path / "run", series, seconds)
    assert run.gpus()[0].throttled_seconds() == {
        "hw_thermal_slowdown": heated,
        "hw_power_brake": (10.0, float(seconds), "samples"),
    }


def test_gpus_belong_together_by_the_job_that_held_them_longest(tmp_path: Path) -> None:
    other = (("scheduler", "slurm"), ("job_id", "8"))
    series = {
        **{row(chosen.POWER, gpu(index)): 1.0 for index in range(3)},
        row(chosen.HOLDER, gpu(0), HELD): 1.0,
        row(chosen.HOLDER, gpu(1), HELD): [1.0] * 80 + [None] * 20,
        row(chosen.HOLDER, gpu(1), other): [None] * 80 + [1.0] * 20,
    }
    groups = gathered(tmp_path / "run", series, SECONDS).groups()
    assert [(job.job_id if job else None, [gpu.title for gpu in gpus]) for job, gpus in groups] == [
        ("7", ["0", "1"]),
        (None, ["2"]),
    ]


def test_the_files_of_two_nodes_are_one_run(tmp_path: Path) -> None:
    one = recorded(tmp_path / "one", snapshots({row(chosen.POWER, gpu(0)): 100.0}, 30))
    two = recorded(tmp_path / "two", snapshots({row(chosen.POWER, gpu(0)): 200.0}, 30, since=10.0), "node-2")
    run = both(two, one)
    assert [(gpu.title, gpu.mean(chosen.POWER)) for gpu in run.gpus()] == [("node-1/0", 100.0), ("node-2/0", 200.0)]
    assert (run.span, run.problems) == (40.0, [])


def test_a_pause_between_two_recordings_of_a_node_is_not_recorded_time(tmp_path: Path) -> None:
    energy = {row(chosen.ENERGY, gpu(0)): [100.0 * second for second in range(30)]}
    later = {row(chosen.ENERGY, gpu(0)): [90_000.0 + 100.0 * second for second in range(30)]}
    one = recorded(tmp_path / "one", snapshots(energy, 30))
    two = recorded(tmp_path / "two", snapshots(later, 30, since=900.0))
    run = both(one, two)
    assert (run.nodes[0].seconds, run.span) == (60.0, 930.0)
    assert run.gpus()[0].energy() == (5800.0, 58.0, "counter")


def test_overlapping_files_count_once_and_one_without_a_snapshot_is_reported(tmp_path: Path) -> None:
    snapshots_of_both = snapshots({row(chosen.POWER, gpu(0)): 100.0}, 40)
    one, two = recorded(tmp_path / "one", snapshots_of_both), recorded(tmp_path / "two", snapshots_of_both)
    run = both(one, two)
    assert run.nodes[0].snapshots == 40
    assert "40 snapshots of node-1" in run.problems[0]
    path = recorded(tmp_path / "run", snapshots({row(chosen.POWER, gpu(0)): 1.0}, 5))
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(RecordingError, match="snapshot"):
        both(path)


def test_the_windows_for_a_jobs_steps_are_taken_from_the_whole_recording(tmp_path: Path) -> None:
    some = snapshots({row(chosen.POWER, gpu(0)): [float(one % 20) for one in range(1800)]}, 1800, step=0.1)
    run = both(recorded(tmp_path / "run", some, interval=0.1))
    lengths = [len(samples) for _, samples in run.nodes[0].signals[chosen.POWER, gpu(0)].windows]
    assert len(lengths) == 3 and lengths[:2] == [600, 600]


def test_the_whole_of_a_played_scenario_agrees_with_its_snapshots(tmp_path: Path) -> None:
    """Figures by columns and blocks against the plainest sums over snapshots."""
    some = played("gpu-lost", 75, begins=45, judged=False)
    run = both(record(tmp_path / "run", some))
    for gpu_facts in run.gpus():
        for name in (chosen.UTILIZATION, chosen.POWER, chosen.TEMPERATURE, chosen.MEMORY):
            values = [
                value
                for each in some
                for series, value in each
                if series.metric.name == name and series.entity == gpu_facts.gpu
            ]
            summary = gpu_facts.summary(name)
            assert (summary.mean, summary.low, summary.high, summary.seconds) == pytest.approx(
                (sum(values) / len(values), min(values), max(values), float(len(values)))
            )
