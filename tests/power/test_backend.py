"""Which source is shown, how often each is asked, and what is said when none answers."""

import time
from collections.abc import Callable

import pytest

from agent.backends.power.redfish_power import RedfishPower
from agent.config.schema import POWER_SOURCES
from agent.lib.http_target import HttpTarget
from agent.model import Reason
from tests.power.conftest import Dcmi, response

REDFISH = 'power_watts{source="redfish"}'
IPMI = 'power_watts{source="ipmi"}'
HWMON = 'power_watts{source="hwmon"}'


@pytest.fixture
def redfish(controller):
    controller.serve({"A": controller.power("A", 8000)})
    return RedfishPower(HttpTarget(controller.url, timeout=1.0), None, time.monotonic)


def test_the_first_source_that_answers_is_shown_alone_and_all_are_asked_once(tree, read, redfish) -> None:
    tree.meter(0, 6_000_000_000)
    reader = read(["redfish", "ipmi", "hwmon"], redfish=redfish, ipmi=Dcmi(7000))
    assert reader.values(0.0) == {REDFISH: 8000.0}
    reader.backend.close()
    assert read(["hwmon", "ipmi"], ipmi=Dcmi(7000)).values(0.0) == {HWMON: 6000.0}
    assert read(["redfish", "hwmon"]).values(0.0) == {HWMON: 6000.0}, "no controller is configured"
    dcmi = Dcmi(7000)
    assert read([*POWER_SOURCES, "ipmi"], ipmi=dcmi).values(0.0) == {IPMI: 7000.0}
    assert dcmi.asked == 1


def test_a_source_that_fails_gives_way_to_the_next_and_comes_back(tree, read) -> None:
    tree.meter(0, 6_000_000_000)
    dcmi = Dcmi(7000)
    reader = read(["ipmi", "hwmon"], ipmi=dcmi)
    assert reader.values(0.0) == {IPMI: 7000.0}
    dcmi.answer = OSError(5, "Input/output error")
    assert reader.values(5.0) == {HWMON: 6000.0}
    dcmi.answer = response(7100)
    assert reader.values(6.0) == {HWMON: 6000.0}
    assert reader.values(10.0) == {IPMI: 7100.0}


def test_a_controller_is_asked_every_five_seconds_and_its_value_shown_in_between(read) -> None:
    dcmi = Dcmi(7000)
    reader = read(["ipmi"], ipmi=dcmi)
    for tick in range(100):
        assert reader.values(tick / 10) == {IPMI: 7000.0}
    assert dcmi.asked == 2


def test_a_controller_that_keeps_failing_is_asked_ever_less_often(read) -> None:
    dcmi = Dcmi(OSError(5, "Input/output error"))
    reader = read(["ipmi"], ipmi=dcmi)
    for second in range(600):
        reader.sample(float(second))
    assert dcmi.asked == 3 + (600 - 30) // 15  # after 0, 5, 15 s, and then every 15 s


def test_a_refused_login_is_not_tried_again_soon_so_that_no_account_is_locked(read, redfish, controller) -> None:
    controller.expect_login("someone", "else")
    reader = read(["redfish"], redfish=redfish)
    for second in range(299):
        reader.sample(float(second))
    assert len(controller.asked) == 1
    reader.sample(300.0)
    assert len(controller.asked) == 2
    reader.backend.close()


def test_a_controller_that_answers_zero_is_implausible_and_gives_way(tree, read) -> None:
    assert [gap.reason for gap in read(["ipmi"], ipmi=Dcmi(0)).gaps(0.0)] == [Reason.IMPLAUSIBLE]
    tree.meter(0, 6_000_000_000)
    assert read(["ipmi", "hwmon"], ipmi=Dcmi(0)).values(0.0) == {HWMON: 6000.0}


def test_when_no_source_answers_the_reason_of_each_is_reported(read, redfish, controller) -> None:
    controller.status["/redfish/v1/Chassis"] = 503
    reader = read(
        ["redfish", "ipmi"], redfish=redfish, ipmi=Dcmi(PermissionError(13, "Permission denied", "/dev/ipmi0"))
    )
    gaps = reader.gaps(0.0)
    assert [(gap.reason, gap.detail.split(":")[0]) for gap in gaps] == [
        (Reason.TIMEOUT, "redfish"),
        (Reason.DENIED, "ipmi"),
    ]
    assert "/dev/ipmi0" in gaps[1].detail
    reader.backend.close()


def test_a_denied_device_is_no_gap_beside_another_source_but_a_broken_redfish_is(
    tree, read, redfish, controller
) -> None:
    tree.meter(0, 6_000_000_000)
    denied = Dcmi(PermissionError(13, "Permission denied", "/dev/ipmi0"))
    assert not read(["ipmi", "hwmon"], ipmi=denied).gaps(0.0)
    controller.status["/redfish/v1/Chassis"] = 503
    reader = read(["redfish", "hwmon"], redfish=redfish)
    sample = reader.sample(0.0)
    assert [gap.detail.split(":")[0] for gap in sample.gaps] == ["redfish"]
    assert [reading.value for reading in sample.readings] == [6000.0]
    reader.backend.close()


def test_a_slow_controller_delays_no_read_and_is_asked_by_one_thread_at_most(tree, read, redfish) -> None:
    tree.rapl("0", "package-0", 5_000_000)
    jobs: list[Callable[[], None]] = []
    reader = read(["redfish", "rapl"], redfish=redfish, spawn=jobs.append)
    for tick in range(20):
        assert list(reader.values(tick * 0.4)) == ['rapl_energy_joules_total{domain="package-0"}']
    assert len(jobs) == 1
    jobs.pop()()
    assert reader.values(8.0)[REDFISH] == 8000.0
    assert reader.values(12.9)[REDFISH] == 8000.0
    assert not jobs
    assert reader.values(13.0)[REDFISH] == 8000.0
    assert len(jobs) == 1
    reader.backend.close()  # while it is being read: its connection is closed when that ends
    jobs.pop()()


PATIENCE = RedfishPower.timeout


def test_a_controller_that_stops_answering_loses_its_value_after_a_while(read, redfish) -> None:
    jobs: list[Callable[[], None]] = []
    reader = read(["redfish"], redfish=redfish, spawn=jobs.append)
    reader.sample(0.0)
    jobs.pop()()
    reader.sample(0.1)
    assert reader.values(6.0 + PATIENCE - 1) == {REDFISH: 8000.0}
    (gap,) = reader.gaps(6.0 + 2 * PATIENCE)
    assert gap.reason is Reason.TIMEOUT
    assert "no answer for" in gap.detail
    jobs.pop()()
    assert reader.values(6.0 + 2 * PATIENCE + 1) == {REDFISH: 8000.0}
    reader.backend.close()


def test_an_unforeseen_error_affects_only_its_source_and_is_reported_once(tree, read, caplog) -> None:
    class Broken(Dcmi):
        def power_reading(self) -> bytes:
            raise ZeroDivisionError("a bug")

    tree.rapl("0", "package-0", 5_000_000)
    reader = read(["ipmi", "rapl"], ipmi=Broken(0))
    for second in range(60):
        sample = reader.sample(float(second))
        assert [reading.value for reading in sample.readings] == [5.0]
        assert [(gap.reason, gap.detail) for gap in sample.gaps] == [
            (Reason.MALFORMED, "ipmi: ZeroDivisionError: a bug")
        ]
    assert len([record for record in caplog.records if record.exc_info]) == 1
