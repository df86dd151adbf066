"""A management controller over HTTP, as it should be and as it should not."""

import itertools
import time
from pathlib import Path

import pytest

from agent.backends.power.redfish_power import RedfishPower
from agent.lib.http_target import HttpTarget
from agent.model import Reason
from tests.power.conftest import fault


def at(url: str, chassis: str | None = None, **options) -> RedfishPower:
    return RedfishPower(HttpTarget(url, **options), chassis, time.monotonic)


@pytest.fixture
def source(controller):
    made: list[RedfishPower] = []

    def build(**options) -> RedfishPower:
        made.append(at(controller.url, **options))
        return made[-1]

    yield build
    for each in made:
        each.close()


def test_the_largest_consumer_of_the_older_power_resource_is_the_whole_and_read_over_one_connection(
    controller, source
) -> None:
    controller.serve({"1": {"ChassisType": "RackMount", **controller.power("1", 0)}})
    consumers = (("CPU Sub-system", 400), ("Server", 6123), ("Memory", None))
    told = [{"Name": name, "PowerConsumedWatts": watts} for name, watts in consumers]
    controller.documents["/redfish/v1/Chassis/1/Power"] = {"PowerControl": told}
    one = source()
    assert [one.watts(), one.watts()] == [6123.0, 6123.0]
    assert controller.asked[-1] == "/redfish/v1/Chassis/1/Power"
    assert len(controller.asked) == 5  # collection, chassis, power to find it; power twice to read it
    assert controller.connections == 1


def test_the_newer_environment_metrics_are_read_where_there_is_no_power_resource(controller, source) -> None:
    controller.serve({"DGX": {"ChassisType": "RackMount", **controller.environment("DGX", 9001.5)}})
    assert source().watts() == 9001.5


@pytest.mark.parametrize("order", [1, -1])
def test_the_whole_is_preferred_to_its_parts_and_the_gpu_baseboard_never_taken_for_it(
    controller, source, order: int
) -> None:
    chassis = {
        "HGX_Chassis_0": {"ChassisType": "RackMount", **controller.environment("HGX_Chassis_0", 99_000)},
        "GPU_1": {"ChassisType": "Module", **controller.environment("GPU_1", 98_000)},
        "Rack": {"ChassisType": "Rack", **controller.power("Rack", 97_000)},
        "FanTray": {**controller.power("FanTray", 300)},
        "Node": {"ChassisType": "RackMount", **controller.power("Node", 7000)},
    }
    controller.serve(dict(list(chassis.items())[::order]))
    assert source().watts() == 7000.0


def test_a_configured_chassis_is_the_only_one_asked(controller, source) -> None:
    controller.serve({"A": controller.power("A", 9000), "B": {"ChassisType": "Module", **controller.power("B", 100)}})
    assert source(chassis="B").watts() == 100.0
    assert not any("/A" in path for path in controller.asked)


def test_one_chassis_that_cannot_be_read_affects_only_itself(controller, source) -> None:
    controller.serve({"A": controller.power("A", 1), "B": controller.power("B", 2000), "C": {}})
    controller.documents["/redfish/v1/Chassis/A"] = b"{garbage"
    del controller.documents["/redfish/v1/Chassis/C"]
    assert source().watts() == 2000.0


def test_a_controller_that_reports_no_power_is_unsupported(controller, source) -> None:
    controller.serve({"A": {}, "B": controller.power("B", None)})
    error = fault(source())
    assert error.reason is Reason.UNSUPPORTED
    assert controller.url in error.detail


def test_a_resource_that_lost_its_reading_is_looked_for_again(controller, source) -> None:
    controller.serve({"A": controller.power("A", 1000)})
    one = source()
    one.watts()
    controller.serve({"B": controller.power("B", 2000)})
    del controller.documents["/redfish/v1/Chassis/A/Power"]
    assert fault(one).reason is Reason.UNSUPPORTED
    assert one.watts() == 2000.0


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, Reason.DENIED), (403, Reason.DENIED), (404, Reason.UNSUPPORTED), (503, Reason.TIMEOUT),
        (500, Reason.MALFORMED), (302, Reason.MALFORMED),
    ],
)  # fmt: skip
def test_a_refusal_has_its_reason_and_names_the_address(controller, source, status: int, reason: Reason) -> None:
    controller.status["/redfish/v1/Chassis"] = status
    error = fault(source())
    assert error.reason is reason
    assert f"{controller.url}/redfish/v1/Chassis" in error.detail
    assert str(status) in error.detail


@pytest.mark.parametrize(
    "link", ["http://elsewhere/redfish/v1/x", "//elsewhere/x", "/etc", "/redfish/v1/a b\r\nX: y", 7]
)
def test_a_link_that_leaves_the_service_is_not_followed(controller, source, link: object) -> None:
    controller.documents["/redfish/v1/Chassis"] = {"Members": [{"@odata.id": link}]}
    assert fault(source()).reason is Reason.UNSUPPORTED
    assert controller.asked == ["/redfish/v1/Chassis"]


def test_a_service_that_does_not_answer_is_a_timeout(controller, source) -> None:
    controller.hang.clear()
    assert fault(source(timeout=0.05)).reason is Reason.TIMEOUT


def test_an_answer_that_trickles_beyond_the_patience_of_the_source_is_a_timeout(controller) -> None:
    controller.serve({"A": controller.power("A", 1000)})
    later = itertools.count(0, step=RedfishPower.timeout)  # all the time is over at the second look
    one = RedfishPower(HttpTarget(controller.url), None, lambda: next(later))
    assert fault(one).reason is Reason.TIMEOUT
    one.close()


@pytest.mark.parametrize("broken", [b"HTTP/1.1 200 OK\r\nContent-Le", b"\x00garbage", b""])
def test_what_breaks_off_on_a_kept_connection_is_asked_once_more_on_a_new_one(
    controller, source, broken: bytes
) -> None:
    controller.serve({"A": controller.power("A", 1000)})
    one = source()
    assert one.watts() == 1000.0
    controller.break_off = broken
    assert one.watts() == 1000.0
    assert controller.connections == 2
    controller.broken_for_good = True
    assert fault(one).reason is Reason.LOST


def test_the_login_is_sent_and_a_new_password_is_used_after_a_refusal(controller, source, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("old\n")
    controller.serve({"A": controller.power("A", 1000)})
    controller.expect_login("monitor", "new")
    one = source(username="monitor", password_file=str(password))
    error = fault(one)
    assert error.reason is Reason.DENIED
    assert "old" not in error.detail
    password.write_text("new\n")
    assert one.watts() == 1000.0


def test_a_certificate_of_an_unknown_authority_is_refused_with_the_remedy(tls_controller) -> None:
    error = fault(at(tls_controller.url))
    assert error.reason is Reason.DENIED
    assert "ca_file" in error.detail
    assert not tls_controller.asked
