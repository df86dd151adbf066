"""A management controller over HTTP, as it should be and as it should not."""

import gzip
import itertools
import json
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


def test_the_largest_consumer_is_the_whole_and_is_read_over_one_connection(controller, source) -> None:
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
def test_the_whole_is_preferred_to_its_parts_and_is_never_the_gpu_baseboard(controller, source, order: int) -> None:
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
        (401, Reason.DENIED),
        (403, Reason.DENIED),
        (404, Reason.UNSUPPORTED),
        (503, Reason.TIMEOUT),
        (500, Reason.MALFORMED),
        (302, Reason.MALFORMED),
    ],
)
def test_a_refusal_has_its_reason_and_names_the_address(controller, source, status: int, reason: Reason) -> None:
    controller.status["/redfish/v1/Chassis"] = status
    error = fault(source())
    assert error.reason is reason
    assert f"{controller.url}/redfish/v1/Chassis" in error.detail
    assert str(status) in error.detail


def test_a_service_on_another_port_is_named_where_it_redirects(controller, source) -> None:
    controller.status[CHASSIS] = 301
    controller.headers["Location"] = "https://10.0.0.1:8080/redfish/v1/Chassis"
    assert "redirects to https://10.0.0.1:8080" in fault(source()).detail


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


CHASSIS = "/redfish/v1/Chassis"


@pytest.mark.parametrize("odd", [b"\xff", b"\xe9", b"\r", b"\0", b"\x1b[0m", b"\xed\xa0\x80"])
def test_an_odd_byte_in_a_serial_number_costs_nothing_else(controller, source, odd: bytes) -> None:
    controller.serve({"A": controller.power("A", 1000)})
    for path in (CHASSIS, f"{CHASSIS}/A", f"{CHASSIS}/A/Power"):
        document = json.dumps({"SerialNumber": "@", **controller.documents[path]}).encode()
        controller.documents[path] = document.replace(b"@", odd, 1)
    assert source().watts() == 1000.0


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_service_that_has_only_gzip_is_read(controller, source, mark: bytes) -> None:
    controller.serve({"A": controller.power("A", 1000)})
    controller.documents[f"{CHASSIS}/A"] = mark + json.dumps(controller.documents[f"{CHASSIS}/A"]).encode()
    controller.is_gzip_only = True
    assert source().watts() == 1000.0


def test_gzip_that_no_header_names_is_read(controller, source) -> None:
    controller.serve({"A": controller.power("A", 1000)})
    for path, document in controller.documents.items():
        controller.documents[path] = gzip.compress(json.dumps(document).encode())
    assert source().watts() == 1000.0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (gzip.compress(b" " * (1 << 24), mtime=0), "exceeds 1048576 bytes"),
        (gzip.compress(b"{}", mtime=0)[:-9], "gzip"),
        (b"\x1f\x8b" + b"x" * 100, "gzip"),
    ],
)
def test_a_bad_gzip_body_costs_its_document_and_is_named(controller, source, body: bytes, words: str) -> None:
    controller.serve({"A": controller.power("A", 1), "B": controller.power("B", 2000)})
    controller.documents[f"{CHASSIS}/A"] = body
    assert source().watts() == 2000.0
    controller.documents[f"{CHASSIS}/B"] = body
    error = fault(source())
    assert error.reason is Reason.MALFORMED
    assert error.detail.startswith(f"{controller.url}{CHASSIS}/A: ")
    assert words in error.detail


@pytest.mark.parametrize(
    "control",
    [
        {"PowerConsumedWatts": 152},
        [{"PowerConsumedWatts": "152"}],
        [{"PowerConsumedWatts": " 152.0 "}],
        {"PowerConsumedWatts": "152"},
        ["none", None, {"PowerConsumedWatts": "N/A"}, {"PowerConsumedWatts": 152.0}],
    ],
)
def test_a_number_as_a_text_and_an_object_for_a_list_are_understood(controller, source, control: object) -> None:
    controller.serve({"A": controller.power("A", 0)})
    controller.documents[f"{CHASSIS}/A/Power"] = {"PowerControl": control}
    assert source().watts() == 152.0


@pytest.mark.parametrize(
    "watts", ["N/A", "", "nan", "inf", "1_0", "0x98", "152 W", "\u0661", "9" * 40, True, [152], None]
)
def test_what_is_no_number_is_no_power_and_its_document_is_named(controller, source, watts: object) -> None:
    controller.serve({"A": controller.power("A", watts)})
    error = fault(source())
    assert error.reason is Reason.UNSUPPORTED
    assert error.detail.startswith(f"{controller.url}{CHASSIS}/A/Power: ")


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/A", 500, Reason.MALFORMED),
        ("/A", 406, Reason.MALFORMED),
        ("/A/Power", 406, Reason.MALFORMED),
        ("/A/Power", 404, Reason.UNSUPPORTED),
        ("/A", 404, Reason.UNSUPPORTED),
    ],
)
def test_the_first_problem_of_a_search_that_finds_nothing_is_reported_with_its_path(
    controller, source, path: str, status: int, reason: Reason
) -> None:
    controller.serve({"Fan": {"ChassisType": "Module"}, "A": controller.power("A", 1000)})
    controller.status[f"{CHASSIS}{path}"] = status
    error = fault(source())
    assert error.reason is reason
    assert error.detail.startswith(f"{controller.url}{CHASSIS}{path}: ")
    assert str(status) in error.detail


def test_what_could_not_be_read_is_reported_before_what_is_not_offered(controller, source) -> None:
    controller.serve({"A": controller.power("A", 0), "B": controller.power("B", 1000)})
    controller.documents[f"{CHASSIS}/B/Power"] = b"{"
    assert fault(source()).detail.startswith(f"{controller.url}{CHASSIS}/B/Power: invalid JSON")


def test_an_error_in_the_place_of_the_collection_is_reported(controller, source) -> None:
    controller.documents[CHASSIS] = {"error": {"code": "Base.1.0", "message": "starting"}}
    assert fault(source()).detail == f"{controller.url}{CHASSIS}: an error: starting"


def test_a_search_that_could_not_read_all_is_repeated_later(controller) -> None:
    now = [0.0]
    controller.serve({"Fan": controller.power("Fan", 300), "Node": controller.power("Node", 7000)})
    controller.status[f"{CHASSIS}/Node"] = 500
    one = RedfishPower(HttpTarget(controller.url), None, lambda: now[0])
    assert one.watts() == 300.0
    del controller.status[f"{CHASSIS}/Node"]
    now[0] = 599.0
    assert one.watts() == 300.0
    now[0] = 600.0
    assert one.watts() == 7000.0
    controller.asked.clear()
    now[0] = 2000.0
    assert one.watts() == 7000.0
    assert controller.asked == [f"{CHASSIS}/Node/Power"]
    one.close()


def page(controller, path: str, names: list[str], following: object = None) -> None:
    """Serve one page of the collection of chassis."""
    controller.documents[path] = {"Members": [{"@odata.id": f"{CHASSIS}/{name}"} for name in names]}
    if following is not None:
        controller.documents[path]["Members@odata.nextLink"] = following


def test_a_node_on_the_last_page_of_a_collection_is_found(controller, source) -> None:
    controller.serve({"Node": controller.power("Node", 7000)})
    page(controller, CHASSIS, ["A"], f"{CHASSIS}?$skip=1")
    page(controller, f"{CHASSIS}?$skip=1", ["B"], f"{CHASSIS}?$skip=2")
    page(controller, f"{CHASSIS}?$skip=2", ["Node"])
    assert source().watts() == 7000.0


@pytest.mark.parametrize("following", [CHASSIS, f"{CHASSIS}?again", "http://elsewhere/redfish/v1/x", 7, {}])
def test_a_page_that_leads_nowhere_costs_only_itself(controller, source, following: object) -> None:
    controller.serve({"Node": controller.power("Node", 7000)})
    page(controller, CHASSIS, ["Node"], following)
    page(controller, f"{CHASSIS}?again", ["Node"], f"{CHASSIS}?again")
    assert source().watts() == 7000.0
    assert len(controller.asked) <= 5


def test_endless_pages_are_read_up_to_a_bound(controller, source) -> None:
    for number in range(100):
        page(controller, f"{CHASSIS}?{number}", [], f"{CHASSIS}?{number + 1}")
    page(controller, CHASSIS, [], f"{CHASSIS}?0")
    fault(source())
    assert len(controller.asked) == 16


def test_the_gpu_baseboards_chassis_are_skipped_before_the_limit_counts(controller, source) -> None:
    baseboard = {f"HGX_GPU_{number}": {"ChassisType": "Module"} for number in range(100)}
    controller.serve({**baseboard, "Node": controller.power("Node", 7000)})
    assert source().watts() == 7000.0
    assert not any("HGX_" in path for path in controller.asked)


def contained_by(name: str, kind: str, **links: object) -> dict[str, object]:
    return {"ChassisType": kind, "Links": {"ContainedBy": {"@odata.id": f"{CHASSIS}/{name}"}, **links}}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("holder", "kind", "links", "watts"),
    [
        ("Enclosure", "Blade", {}, 246.0),
        ("Enclosure", "Sled", {}, 246.0),
        ("Other", "Blade", {}, 246.0),
        ("Enclosure", "RackMount", {}, 246.0),
        ("Enclosure", "Other", {"ComputerSystems": [{"@odata.id": "/redfish/v1/Systems/1"}]}, 246.0),
        # Parts of a node, as OpenBMC and others list them.
        ("RackMount", "RackMount", {}, 1104.0),
        ("RackMount", "Other", {"ComputerSystems": [{"@odata.id": "/redfish/v1/Systems/1"}]}, 1104.0),
        ("Enclosure", "Other", {"ComputerSystems": []}, 1104.0),
        ("Enclosure", "Module", {}, 1104.0),
    ],
)
def test_a_blade_is_not_its_enclosure(
    controller, source, holder: str, kind: str, links: dict[str, object], watts: float, order: int
) -> None:
    chassis = {
        "1": {**contained_by("frame/", kind, **links), **controller.power("1", 246)},
        "frame": {"ChassisType": holder, **controller.power("frame", 1104)},
    }
    controller.serve(dict(list(chassis.items())[::order]))
    assert source().watts() == watts


def test_a_blade_without_power_is_not_shown_with_that_of_its_enclosure(controller, source) -> None:
    controller.serve(
        {
            "1": {**contained_by("frame", "Blade"), **controller.power("1", None)},
            "frame": {"ChassisType": "Enclosure", **controller.power("frame", 1104)},
        }
    )
    assert fault(source()).detail.startswith(f"{controller.url}{CHASSIS}/1/Power: ")


@pytest.mark.parametrize("odd", [[], {}, 7, {"ContainedBy": 7}, {"ContainedBy": [{}]}, {"ComputerSystems": {}}])
def test_odd_links_and_types_of_a_chassis_cost_nothing(controller, source, odd: object) -> None:
    controller.serve({"A": {"ChassisType": ["Blade"], "Links": odd, **controller.power("A", 1000)}})
    assert source().watts() == 1000.0


def test_one_refused_login_after_a_success_is_tried_once_more(controller, source) -> None:
    controller.serve({"A": controller.power("A", 1000)})
    one = source()
    one.watts()
    controller.refusals = 1
    assert one.watts() == 1000.0
    controller.refusals = 1
    assert one.watts() == 1000.0, "each success allows one"


def test_a_login_that_is_refused_for_good_is_tried_twice_and_then_once(controller, source) -> None:
    controller.serve({"A": controller.power("A", 1000)})
    one = source()
    one.watts()
    controller.refusals = 100
    for tries in (2, 1, 1):
        controller.asked.clear()
        assert fault(one).reason is Reason.DENIED
        assert len(controller.asked) == tries
