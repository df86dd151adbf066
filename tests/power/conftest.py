"""Sysfs trees with meters and RAPL domains, a management controller in a thread, and one behind a fake IPMI device."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from agent.backends.power import PowerBackend
from agent.backends.protocol import BackendSample
from agent.model import Gap, Instant, Lane
from tests.broker.conftest import Bmc


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, value: object) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
        return path

    def meter(self, number: int, microwatts: object, oem_info: str | None = None) -> Path:
        """An ACPI power meter; the kernel keeps its files with the ACPI device."""
        self.write(f"class/hwmon/hwmon{number}/name", "power_meter")
        if oem_info is not None:
            self.write(f"class/hwmon/hwmon{number}/device/power1_oem_info", oem_info)
        return self.write(f"class/hwmon/hwmon{number}/device/power1_average", microwatts)

    def rapl(self, zone: str, name: str, microjoules: object, wrap: object = 262_143_328_850) -> Path:
        """A RAPL domain, `0` or `0:1`."""
        at = f"class/powercap/intel-rapl:{zone}"
        self.write(f"{at}/name", name)
        self.write(f"{at}/max_energy_range_uj", wrap)
        return self.write(f"{at}/energy_uj", microjoules)


class Reader:
    def __init__(self, backend: PowerBackend) -> None:
        self.backend = backend

    def sample(self, mono: float) -> BackendSample:
        return self.backend.read(Lane.FAST, Instant(mono, 1.7e9 + mono))

    def values(self, mono: float) -> dict[str, float]:
        """What a page would show, without the common prefix."""
        return {
            repr(reading.series).removeprefix("coldplate_node_"): reading.value
            for reading in self.sample(mono).readings
        }

    def gaps(self, mono: float) -> list[Gap]:
        return list(self.sample(mono).gaps)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "sys")


@pytest.fixture
def read(tree: Tree) -> Iterator[Callable[..., Reader]]:
    """A backend on the tree: `read(["hwmon"], redfish=...)`. What is slow is asked at once."""

    def no_ipmi() -> Any:
        raise FileNotFoundError(2, "No such file or directory", "/dev/ipmi0")

    made: list[PowerBackend] = []

    def build(order: list[str], **options: Any) -> Reader:
        wanted = {"ipmi": no_ipmi, "spawn": lambda job: job(), **options}
        made.append(PowerBackend(order, str(tree.root), **wanted))
        return Reader(made[-1])

    yield build
    for each in made:
        each.close()


def response(current: int, minimum: int = 0, maximum: int = 0, average: int = 0, state: int = 0x40) -> bytes:
    """As the DCMI specification 1.5 lays it out in table 6-16."""
    words = b"".join(value.to_bytes(2, "little") for value in (current, minimum, maximum, average))
    return b"\x00\xdc" + words + (1_700_000_000).to_bytes(4, "little") + (5000).to_bytes(4, "little") + bytes((state,))


class Dcmi(Bmc):
    """A controller behind its IPMI device, which is opened by a call. It does not answer while `gate` is closed."""

    def __init__(self, answer: int | bytes | OSError) -> None:
        super().__init__(response(answer) if isinstance(answer, int) else answer)
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> Any:
        return self.open("")

    def power_reading(self) -> bytes:
        self.asked += 1
        self.gate.wait(60)
        return super().power_reading()


class Controller:
    """A Redfish service: documents by path, and what it was asked."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.status: dict[str, int] = {}
        self.headers: dict[str, str] = {}
        self.login: str | None = None
        self.asked: list[str] = []
        self.connections = 0
        self.break_off: bytes | None = None
        """Said instead of the next answer, before it hangs up; of each one where it is `broken_for_good`."""
        self.broken_for_good = False
        self.hang = threading.Event()
        self.hang.set()
        self.url = ""

    def collection(self, path: str, members: dict[str, Any]) -> dict[str, str]:
        """Serve a collection with these documents; the link to it."""
        self.documents[path] = {"Members": [{"@odata.id": f"{path}/{name}"} for name in members]}
        self.documents.update({f"{path}/{name}": document for name, document in members.items()})
        return {"@odata.id": path}

    def serve(self, chassis: dict[str, dict[str, Any]]) -> None:
        """The collection of these chassis."""
        self.collection("/redfish/v1/Chassis", {name: {"Id": name, **each} for name, each in chassis.items()})

    def power(self, name: str, watts: Any) -> dict[str, Any]:
        """Give the chassis a Power resource; the link to it."""
        path = f"/redfish/v1/Chassis/{name}/Power"
        self.documents[path] = {"PowerControl": [{"PowerConsumedWatts": watts}]}
        return {"Power": {"@odata.id": path}}

    def environment(self, name: str, watts: Any) -> dict[str, Any]:
        """Give the chassis an EnvironmentMetrics resource; the link to it."""
        path = f"/redfish/v1/Chassis/{name}/EnvironmentMetrics"
        self.documents[path] = {"PowerWatts": {"Reading": watts}}
        return {"EnvironmentMetrics": {"@odata.id": path}}

    def expect_login(self, user: str, password: str) -> None:
        self.login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # its head and body are two packets, and the second would wait 40 ms
    server: Service

    def setup(self) -> None:
        super().setup()
        self.server.controller.connections += 1

    def do_GET(self) -> None:
        controller = self.server.controller
        controller.asked.append(self.path)
        controller.hang.wait(5)
        if controller.break_off is not None or controller.broken_for_good:
            said, controller.break_off = controller.break_off, None  # before the client asks again
            self.close_connection = True
            self.wfile.write(said or b"")
            return
        status = controller.status.get(self.path, 200 if self.path in controller.documents else 404)
        if controller.login is not None and self.headers.get("Authorization") != controller.login:
            status = 401
        document = controller.documents.get(self.path)
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in controller.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Service(ThreadingHTTPServer):
    daemon_threads = True
    controller: Controller

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that refuses our certificate is what a test wants."""


def _serve(context: ssl.SSLContext | None = None) -> Iterator[Controller]:
    service = Service(("127.0.0.1", 0), Handler)
    if context is not None:
        service.socket = context.wrap_socket(service.socket, server_side=True)
    service.controller = Controller()
    service.controller.url = f"{'https' if context else 'http'}://127.0.0.1:{service.server_address[1]}"
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service.controller
    finally:
        service.controller.hang.set()
        service.shutdown()
        thread.join()
        service.server_close()


@pytest.fixture
def controller() -> Iterator[Controller]:
    yield from _serve()


@pytest.fixture
def tls_controller() -> Iterator[Controller]:
    """The same over TLS, with a certificate of an authority that nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    yield from _serve(context)
