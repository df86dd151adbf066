"""What the snapshot says of the backends of the main process: their readings, their silence, their failures."""

import gc
import logging

import pytest

from agent.backends.protocol import BackendSample
from agent.catalogue import BY_NAME
from agent.model import Gap, IbPort, Lane, Metric, Node, Outcome, Reading, Reason, Series
from agent.sampler.backend_runner import Flight
from agent.sampler.health import LoopFacts, MissingMetrics
from agent.sampler.schedule import Settings
from tests.frames import read_of
from tests.sampler.rig import SamplerRig

PORT = IbPort("mlx5_0", "1")
STATE = BY_NAME["coldplate_infiniband_state_id"]
ROWS: dict[Lane, Metric] = {
    Lane.FAST: STATE,
    Lane.SLOW: BY_NAME["coldplate_infiniband_rate_bytes_per_second"],
    Lane.COLD: BY_NAME["coldplate_infiniband_lifespan_seconds"],
}
"""A row for each lane. The last is of another lane in truth, which is nothing to the sampler."""
LOAD = Series(BY_NAME["coldplate_node_load1"], Node())
PATIENCE = 3.0
"""Of the fast lane, with the settings as they come."""


class Rig(SamplerRig):
    """A sampler whose clock the test turns, and a backend that the test plays."""

    def __init__(self, settings: Settings | None = None, pace: float = 0.0) -> None:
        super().__init__(settings)
        self.sampler.paces = {"infiniband": pace, "host": 1.0}
        self.series = {lane: Series(row, PORT) for lane, row in ROWS.items()}

    def read(self, at: float, *lanes: Lane, took: float = 0.01, value: float = 4.0, calls: int = 7) -> None:
        for lane in lanes:
            sample = BackendSample([Reading(self.series[lane], value)], calls=calls)
            self.sampler.take_read(read_of("infiniband", lane, at, took, Outcome.OK, sample))

    def end(self, at: float, outcome: Outcome, detail: str = "why", reason: Reason = Reason.MALFORMED) -> None:
        self.sampler.take_read(read_of("infiniband", Lane.FAST, at, 0.01, outcome, BackendSample(), detail, reason))

    def host(self, at: float) -> None:
        self.sampler.take_read(read_of("host", Lane.SLOW, at, 0.01, Outcome.OK, BackendSample([Reading(LOAD, 1.0)])))

    def fly(self, since: float | None, lane: Lane = Lane.FAST) -> None:
        self.facts = LoopFacts(flights={} if since is None else {"infiniband": Flight(lane, since)})

    def own(self, at: float) -> dict[str, float]:
        """The backend's own series; with their outcome, where they have one."""
        found = {}
        for each in self.see(at).readings:
            labels = dict(each.series.all_labels)
            if labels.get("backend") == "infiniband":
                name = each.metric.name.removeprefix("coldplate_")
                found[" ".join(filter(None, (name, labels.get("outcome"), labels.get("metric"))))] = each.value
        return found

    def shown(self, at: float) -> set[str]:
        """The rows of the port that are shown, without their prefix."""
        names = {each.metric.name for each in self.see(at).readings if each.entity == PORT}
        return {name.removeprefix("coldplate_infiniband_") for name in names} - {"coldplate_metric_missing"}

    def reasons(self, at: float) -> dict[str, str]:
        """Reasons by the row that is missing, as the page tells them."""
        return {metric.removeprefix("coldplate_"): reason for (_, metric), reason in self.missing(at).items()}

    def gaps(self, at: float) -> list[Gap]:
        return [gap for report in self.see(at).reports if report.backend == "infiniband" for gap in report.gaps]


SHOWN = {Lane.FAST: "state_id", Lane.SLOW: "rate_bytes_per_second", Lane.COLD: "lifespan_seconds"}


@pytest.mark.parametrize(
    ("lane", "patience"), [(Lane.FAST, PATIENCE), (Lane.SLOW, 2 * 15.0 + 2.0), (Lane.COLD, 2 * 60.0 + 2.0)]
)
def test_what_is_older_than_the_patience_of_its_lane_is_withdrawn_with_the_reason(lane, patience: float) -> None:
    rig = Rig()
    rig.read(0.0, lane)
    assert rig.shown(patience) == {SHOWN[lane]}
    assert rig.reasons(patience) == {}
    assert rig.shown(patience + 0.1) == set()
    assert rig.reasons(patience + 0.1) == {f"infiniband_{SHOWN[lane]}": "timeout"}
    (gap,) = rig.gaps(patience + 0.1)
    assert gap.detail == f"infiniband did not finish a {lane.value} read for {patience + 0.1:.1f} s"


def test_one_stale_lane_withdraws_no_other() -> None:
    rig = Rig()
    rig.read(0.0, *ROWS)
    assert rig.shown(10.0) == {SHOWN[Lane.SLOW], SHOWN[Lane.COLD]}
    assert rig.shown(100.0) == {SHOWN[Lane.COLD]}
    rig.read(100.0, Lane.FAST)
    assert rig.shown(100.0) == {SHOWN[Lane.FAST], SHOWN[Lane.COLD]}
    rig = Rig(Settings(fast=0.1), pace=5.0)
    rig.read(0.0, Lane.FAST)
    assert rig.shown(15.0) == {"state_id"}
    assert rig.shown(15.1) == set()


@pytest.mark.parametrize("lane", list(ROWS))
def test_a_read_in_flight_for_too_long_hides_the_whole_backend_and_says_so(lane: Lane) -> None:
    """The thread that hangs in one lane cannot read the others."""
    rig = Rig()
    rig.read(0.0, *ROWS)
    rig.host(0.0)
    rig.read(9.5, Lane.FAST)
    rig.fly(10.0, lane)
    rig.sampler.take_read(
        read_of("infiniband", Lane.FAST, 12.0, 0.01, Outcome.OK, BackendSample([Reading(rig.series[Lane.FAST], 4.0)]))
    )
    assert rig.shown(10.0 + PATIENCE) == set(SHOWN.values())
    assert rig.own(10.0 + PATIENCE)["backend_up"] == 1
    late = 10.0 + PATIENCE + 0.1
    assert rig.shown(late) == set()
    assert rig.reasons(late) == {f"infiniband_{name}": "timeout" for name in SHOWN.values()}
    assert {gap.detail for gap in rig.gaps(late)} == {"no answer for 3.1 s"}
    own = rig.own(late)
    assert (own["backend_up"], own["backend_info failed"]) == (0, 1)
    report = rig.report(late, "infiniband")
    assert (report.outcome, report.detail) == (Outcome.FAILED, "no answer for 3.1 s")
    assert "coldplate_node_load1" in {each.metric.name for each in rig.see(late).readings}


@pytest.mark.parametrize("fast", [1.0, 5.0])
def test_a_backend_that_never_answered_is_missing_by_its_age(fast: float) -> None:
    patience = 3 * fast
    rig = Rig(Settings(fast=fast))
    rig.fly(0.0)
    assert rig.own(patience) == {}
    own = rig.own(patience + 0.5)
    assert (own["backend_up"], own["backend_info failed"]) == (0, 1)
    assert own["metric_missing coldplate_backend_age_seconds"] == 1
    assert "backend_age_seconds" not in own
    assert rig.reasons(patience + 0.5) == {"backend_age_seconds": "timeout"}
    (gap,) = rig.gaps(patience + 0.5)
    assert gap.detail.startswith("no answer for ")
    rig.fly(None)
    rig.end(20.0, Outcome.FAILED, "denied to you", Reason.DENIED)
    assert rig.reasons(20.0) == {"backend_age_seconds": "denied"}
    rig.read(21.0, Lane.FAST)
    assert rig.reasons(21.0) == {}


def test_it_is_up_again_with_the_first_read_that_ends_and_shows_only_what_is_new() -> None:
    rig = Rig()
    rig.read(0.0, Lane.FAST, value=1.0)
    rig.fly(1.0)
    assert rig.own(90.0)["backend_up"] == 0
    rig.fly(None)
    rig.read(1.0, Lane.FAST, took=93.0, value=2.0)
    assert rig.own(94.0)["backend_up"] == 1
    assert rig.shown(94.0) == set(), "what was asked 93 s ago says nothing about now"
    rig.read(94.5, Lane.FAST, value=3.0)
    assert rig.shown(94.5) == {"state_id"}
    assert rig.reasons(94.5) == {}
    assert rig.own(94.5)["backend_age_seconds"] == 0
    rig.fly(100.0)
    assert [rig.own(at)["backend_up"] for at in (103.0, 104.0)] == [1, 0], "another hang is a new one"


def test_a_hang_and_its_end_are_reported_once_each(caplog) -> None:
    rig = Rig()
    with caplog.at_level(logging.INFO, "coldplate.backend"):
        rig.fly(0.0, Lane.COLD)
        for second in range(60):
            rig.see(float(second))
        rig.fly(None)
        rig.read(60.0, Lane.FAST)
        for second in range(60, 70):
            rig.see(float(second))
    assert [(record.message, record.facts) for record in caplog.records] == [
        ("backend does not answer", {"backend": "infiniband", "lane": "cold", "seconds": 4.0}),
        ("backend answers again", {"backend": "infiniband", "seconds": 60.0}),
    ]


def test_reads_are_counted_by_how_they_ended_and_calls_added_up() -> None:
    rig = Rig()
    rig.read(0.0, Lane.FAST, calls=10)
    rig.read(1.0, Lane.FAST, Lane.SLOW, calls=20)
    rig.end(2.0, Outcome.FAILED)
    rig.fly(3.0)
    rig.see(30.0)
    own = rig.own(31.0)
    assert (own["backend_reads_total ok"], own["backend_reads_total failed"]) == (3, 1)
    assert own["backend_calls_total"] == 50
    rig.end(32.0, Outcome.ABSENT)
    assert rig.own(32.0)["backend_reads_total absent"] == 1


def test_duration_is_of_the_last_read_and_age_of_the_last_good_one() -> None:
    rig = Rig()
    rig.read(10.0, Lane.FAST, took=0.25)
    assert rig.shown(9.0) == {"state_id"}
    for at, age in ((9.0, 0.0), (11.0, 1.0)):
        own = rig.own(at)
        assert (own["backend_duration_seconds"], own["backend_age_seconds"]) == (0.25, age)
    rig.sampler.take_read(read_of("infiniband", Lane.FAST, 12.0, 0.75, Outcome.FAILED, BackendSample(), "no"))
    own = rig.own(12.5)
    assert (own["backend_duration_seconds"], own["backend_age_seconds"]) == (0.75, 2.5)


def test_a_backend_that_recovers_loses_its_gaps_and_its_detail() -> None:
    rig = Rig()
    rig.read(0.0, Lane.FAST)
    rig.end(1.0, Outcome.FAILED, "broken", Reason.LOST)
    assert rig.reasons(1.0) == {"infiniband_state_id": "lost"}
    assert rig.own(1.0)["backend_up"] == 0
    rig.end(2.0, Outcome.FAILED, "still", Reason.LOST)
    assert [gap.detail for gap in rig.gaps(2.0)] == ["still"]
    rig.read(3.0, Lane.FAST)
    assert rig.shown(3.0) == {"state_id"}
    assert rig.reasons(3.0) == {}
    report = rig.report(3.0, "infiniband")
    assert (report.outcome, report.detail, report.gaps) == (Outcome.OK, "", ())


def test_absent_hardware_has_no_gap_and_withdraws_its_readings() -> None:
    rig = Rig()
    rig.read(0.0, Lane.FAST)
    rig.end(1.0, Outcome.ABSENT, "no such directory")
    assert rig.shown(1.0) == set()
    assert rig.reasons(1.0) == {}
    reads = {"backend_reads_total ok": 1, "backend_reads_total absent": 1, "backend_read_seconds_total": 0.02}
    assert rig.own(1.0) == {"backend_info absent": 1, **reads}


def test_the_same_absence_reported_by_two_is_one_series() -> None:
    """Power that nothing measures is told by the backend and by the estimate."""
    rig = Rig()
    power = BY_NAME["coldplate_node_power_watts"]
    for backend in ("infiniband", "host"):
        gaps = [Gap(power, Node(), Reason.LOST, backend)]
        rig.sampler.take_read(read_of(backend, Lane.FAST, 0.0, 0.01, Outcome.OK, BackendSample(gaps=gaps)))
    series = [each.series for each in rig.see(0.0).readings]
    assert len(series) == len(set(series))
    assert rig.reasons(0.0) == {"node_power_watts": "lost"}


def test_gaps_of_devices_that_come_and_go_do_not_pile_up() -> None:
    missing = MissingMetrics()
    for hundred in range(50):
        ports = [IbPort(f"rxe{hundred}_{number}", "1") for number in range(100)]
        _, frame = missing.gather([("infiniband", [Gap(STATE, port, Reason.LOST) for port in ports])])
        assert [dict(row.series.all_labels)["device"] for row in frame.readings] == [port.device for port in ports]
    # Of this test's ports: others of the process may hold snapshots with gaps.
    kept = [each for each in gc.get_objects() if type(each) is Series and "rxe" in getattr(each.entity, "device", "")]
    assert len(kept) < 1000
