"""HTTP on both sides, and what servers, peers and kubelets answer."""

import json
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from unittest import mock

from msgspec.structs import replace

from agent.backends.equipment.equipment_backend import NodeCoolingReader
from agent.backends.equipment.rack_equipment_backend import RackEquipmentReader
from agent.backends.jobs.pods import ProtobufError, pod_devices
from agent.backends.power.redfish_power import RedfishPower
from agent.backends.protocol import AbsentError, DeviceError
from agent.backends.redfish_service import ROOT, RedfishService
from agent.backends.synthetic.loader import load_scenario
from agent.backends.synthetic.rack_service import (
    Collection,
    Document,
    Linked,
    cooling_root,
    documents_below,
    excerpt,
    power_root,
    status,
)
from agent.catalogue.equipment import LEAK_STATES
from agent.commands.check.node_conditions import query_agent
from agent.commands.doctor.doctor_node import parse_snapshot
from agent.commands.import_.imported_sample import ImportProblems, LogFormatError
from agent.commands.import_.prometheus_history import HistoryQuery, node_ticks
from agent.lib.certificates import first_expiry
from agent.lib.http_answers import AnswerBounds, AnswerReader, HttpAnswer, HttpError
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.model import Instant
from agent.rack.breakers import Heats
from agent.rack.peer_messages import GarbageError, decode, encode
from agent.wiring.agent_client import AgentResponseError, SnapshotReader, read_alerts, read_history
from agent.wiring.identity import OwnAgent
from alerts.notify.receiver import ServerClock
from exporters.http_messages import RefusedError, RequestReader
from exporters.landing import refresh_of
from exporters.negotiation import accepts_gzip, choose_format
from exporters.protection.passwords import login_of
from exporters.rules_json import ParameterError, selection_of
from tests.lab.fuzz.target import Target, fault_of_refusal, joined, parts_of


def use_requests(data: bytes, folder: Path) -> None:
    """Whole, and byte by byte: where the cuts are must not matter."""
    assert _requests(iter([data])) == _requests(
        iter([data[at : at + 1] for at in range(min(len(data), 1500))] + [data[1500:]])
    )


def _requests(pieces: Iterator[bytes]) -> list[object]:
    reader, found = RequestReader(), list[object]()
    try:
        for piece in pieces:
            reader.feed(piece)
            while (request := reader.next()) is not None:
                found.append((request.method, request.path, request.query, request.body))
                choose_format(request.headers.get("accept", ""))
                accepts_gzip(request.headers.get("accept-encoding", ""))
                refresh_of(request.query)
                try:
                    selection_of(request.query)
                except ParameterError as error:
                    assert str(error).isprintable(), error
    except RefusedError as error:
        found.append(error.response.status)
    return found


def use_logins(data: bytes, folder: Path) -> None:
    """The header as the server has it: bytes as Latin-1."""
    login = login_of(data.decode("latin-1"))
    assert login is None or isinstance(login[1], bytes)


def use_certificates(data: bytes, folder: Path) -> None:
    """Whatever the file holds, there is a time that a page can show, or none."""
    expires = first_expiry(data)
    assert expires is None or math.isfinite(expires)


def use_answers(data: bytes, folder: Path) -> None:
    """Whole and byte by byte."""
    whole = _answers(iter([data]))
    if whole and isinstance(whole[0], HttpAnswer):
        assert len(whole[0].body) <= 4096
    _answers(data[at : at + 1] for at in range(min(len(data), 3000)))


def _answers(pieces: Iterator[bytes]) -> list[object]:
    reader, found = AnswerReader(AnswerBounds(body=4096)), list[object]()
    clock = ServerClock()
    try:
        for piece in pieces:
            answer = reader.feed(piece)
            if answer is not None:
                found.append(answer)
                clock.apply_date(answer.headers.get("date", ""), Instant(1.0, 1.7e9), Instant(1.1, 1.7e9))
                return found
        if (last := reader.hang_up()) is not None:
            found.append(last)
    except HttpError as error:
        assert str(error).isprintable(), error
        found.append(error.fault)
    return found


def use_peer(data: bytes, folder: Path) -> None:
    report = decode(data)
    assert decode(encode(report)) == report
    report.seconds()


def use_pods(data: bytes, folder: Path) -> None:
    for each in pod_devices(data):
        assert all(isinstance(part, str) for part in (each.namespace, each.pod, each.container, each.device))


def serving(data: bytes) -> AbstractContextManager[object]:
    """A service has the documents of the input, each behind a line `=== PATH`, and no others."""
    documents = dict(parts_of(data))

    def exchange(self: HttpClient, request: HttpRequest, deadline: float) -> HttpAnswer:
        document = documents.get(request.path)
        return HttpAnswer(404 if document is None else 200, {}, document or b"", False, False)

    return mock.patch.object(HttpClient, "exchange", exchange)


def use_redfish(data: bytes, folder: Path) -> None:
    """As a node's controller says power and cooling, and as equipment of every kind that serves a rack."""
    target = HttpTarget("http://bmc:80", timeout=5.0)
    service = RedfishService(target, 10.0, lambda: 0.0)
    with serving(data):
        with refusals(DeviceError):
            assert -1e9 < RedfishPower(target, None, lambda: 0.0).watts() < 1e9
        with refusals(DeviceError, AbsentError):
            cooling = NodeCoolingReader(target, None, lambda: 0.0).read_parts()
            assert set(cooling.states.values()) <= {*LEAK_STATES, None}
            assert all(-1e13 < value < 1e13 for value in cooling.values.values())
        with refusals(DeviceError):
            rack = RackEquipmentReader("cdu", service, lambda: 0.0).read_parts()
            assert set(rack.states.values()) <= set(LEAK_STATES)
            assert all(-1e13 < value < 1e13 for value in rack.values.values())
            assert all(word.isprintable() for _, names in rack.states for word in names)
            assert all(problem.isprintable() for _, problem in rack.problems), rack.problems


@contextmanager
def refusals(*kinds: type[Exception]) -> Iterator[None]:
    """What the block may end with, in words that a terminal can show."""
    try:
        yield
    except kinds as error:
        assert not fault_of_refusal(str(error)), error


def answering(data: bytes) -> AbstractContextManager[object]:
    """Each part of the input, up to a line `---`, answers one request; the last one all that follow."""
    parts = data.split(b"\n---\n")

    def exchange(self: HttpClient, request: object, deadline: float) -> HttpAnswer:
        return HttpAnswer(200, {}, parts.pop(0) if len(parts) > 1 else parts[0], False, False)

    return mock.patch.object(HttpClient, "exchange", exchange)


def use_history(data: bytes, folder: Path) -> None:
    url = "http://prometheus:9090"
    problems, asked = ImportProblems(url), HistoryQuery("{}", 1.7e9, 1.7e9 + 60, 15.0)
    with answering(data):
        found = list(node_ticks(HttpTarget(url), asked, lambda: 0.0, problems))
    for each in found:
        assert math.isfinite(each.wall), each
        for reading in each.readings:
            assert math.isfinite(reading.value), reading
            assert all(isinstance(value, str) for _, value in reading.series.all_labels), reading
    list(problems.all())


def use_agent(data: bytes, folder: Path) -> None:
    """As the live view, `doctor` and `check` read it."""
    for read in (SnapshotReader().read, read_alerts, read_history):
        with suppress(AgentResponseError):
            read(data)
    view, why = parse_snapshot(data, "http://n1")
    assert (view is None) == bool(why)
    if view is not None:
        view.label_values("coldplate_gpu_up", "gpu", 1.0)
    with answering(data):
        told = query_agent(OwnAgent(("http://127.0.0.1:19400",), {}), "auto", 0.0)
    assert (told.firing is None) == bool(told.reason)


REQUESTS = (
    b"GET /metrics?refresh=5 HTTP/1.1\r\nHost: n1\r\nAccept: application/openmetrics-text;version=1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: n1\r\nAccept: text/plain;q=0.5\r\nAccept-Encoding: gzip;q=0.8, *;q=0\r\n\r\n",
    b"POST /-/reload HTTP/1.1\r\nHost: n1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"GET http://n1/ HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    b"GET /api/v1/rules?type=alert&rule_name[]=A&file[]=%2Fa%zz&exclude_alerts=true HTTP/1.1\nHost: [::1]\n\n",
    b"\r\n\r\nOPTIONS * HTTP/1.1\r\nHost:\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # of TLS
    b"GET / HTTP/2.0\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nhost: a\r\nHost: b\r\n folded: c\r\n\r\n",
)
ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: Sat, 21 Nov 2026 08:00:00 GMT\r\n\r\nhello",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n",
    b"HTTP/1.0 503 x\r\nRetry-After: 5\r\n\r\nuntil the end",
    b"HTTP/1.1 204 \r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 2\n folded\n\nok",
)


ODD = ("{}", "[]", '{"Members": [null, {"@odata.id": 5}]}', '{"error": {"message": "x\\n"}}')


def redfish_service(*, rack: bool) -> bytes:
    """The service of a node's chassis, or one that has a coolant distribution unit and a power shelf beside it."""
    thermal = Linked(
        LeakDetection=Linked(LeakDetectorGroups=[{"GroupName": "g", "Detectors": [{"DetectorState": "Warning"}]}]),
        CoolantConnectors=Collection({"1": {"FlowLitersPerMinute": excerpt(90)}}),
        Fans=Collection({"1": status(SpeedPercent={"Reading": 50, "SpeedRPM": 9000})}),
        ThermalMetrics=Linked(TemperatureSummaryCelsius={"Intake": excerpt(25)}),
    )
    power = Linked(PowerControl=[{"PowerConsumedWatts": 5000.5}])
    node = {"Id": "Self", "ChassisType": "RackMount", "Power": power, "ThermalSubsystem": thermal}
    root: Document = {"Chassis": Collection({"HGX_1": {"Id": "HGX_1", "ChassisType": "Module"}, "Self": node})}
    if rack:
        scenario = load_scenario("pump-failure")
        assert scenario.topology.rack is not None
        plant = replace(scenario.topology.rack, shelves=1, supplies=1)
        root |= cooling_root(scenario, plant, 1e5, 900.0) | power_root(scenario, plant, 1e5, 900.0)
    return joined({path: json.dumps(document) for path, document in documents_below(ROOT, root).items()})


TARGETS = (
    Target("certificates", ("agent/lib/certificates.py",), use_certificates),
    Target("logins", ("exporters/protection/passwords.py",), use_logins),
    Target("http-requests", ("exporters/http_messages.py", "exporters/negotiation.py", "exporters/rules_json.py"),
           use_requests, REQUESTS,
           words=(b"&" * 40, b";" * 30, b"\n", b"%00", b"Transfer-Encoding: gzip\r\n", b"q=1e999")),
    Target("http-answers", ("agent/lib/http_answers.py", "alerts/notify/receiver.py"), use_answers, ANSWERS, words=(
           b"Transfer-Encoding: identity\r\n", b"0\r\n\r\n", b"HTTP/1.1 101 x\r\n\r\n", b"Content-Encoding: gzip\r\n",
           b"Date: Sat, 31 Feb 2026 25:61:61 GMT\r\n", b"Date: Sat, 21 Nov 99999 08:00:00 +9999\r\n")),
    Target("peer-answers", ("agent/rack/peer_messages.py",), use_peer, (), (GarbageError,)),
    Target("breaker-heats", ("agent/rack/breakers.py",),
           lambda data, folder: Heats("r1").restore(data, Instant(1.0, 1.7e9))),
    Target("pod-resources", ("agent/backends/jobs/pods.py",), use_pods, (), (ProtobufError,),
           words=(b"nvidia.com/gpu", b"gpu.nvidia.com", b'*\x10"', b"\xff\xff\xff\xff\x0f")),
    Target("redfish", ("agent/backends/power/redfish_power.py", "agent/backends/redfish_service.py",
           "agent/backends/equipment/equipment_resources.py", "agent/backends/equipment/equipment_backend.py",
           "agent/backends/equipment/rack_resources.py", "agent/backends/equipment/rack_equipment_backend.py"),
           use_redfish, (redfish_service(rack=False), redfish_service(rack=True),
           *(joined({f"{ROOT}Chassis": odd}) for odd in ODD))),
    Target("prometheus-history", ("agent/commands/import_/prometheus_history.py",), use_history, (),
           (LogFormatError,)),
    Target("agent-answers", ("agent/wiring/agent_client.py", "agent/commands/doctor/doctor_node.py",
           "agent/commands/check/node_conditions.py"), use_agent, words=(b', "x": ' + b"[" * 3000,)),
)  # fmt: skip
