"""Sysfs trees with meters and RAPL domains, a management controller in a thread, and one behind a fake IPMI device."""

import base64
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from agent.backends.power import PowerBackend
from agent.backends.protocol import BackendSample, DeviceError
from agent.model import Gap, Instant, Lane
from tests.broker.conftest import Bmc
from tests.http_client.conftest import Server


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


def fault(source: Any) -> DeviceError:
    """What is wrong with a source that gives no reading."""
    with pytest.raises(DeviceError) as told:
        source.watts()
    return told.value


def response(current: int, minimum: int = 0, maximum: int = 0, average: int = 0, state: int = 0x40) -> bytes:
    """As the DCMI specification 1.5 lays it out in table 6-16."""
    words = b"".join(value.to_bytes(2, "little") for value in (current, minimum, maximum, average))
    return b"\x00\xdc" + words + (1_700_000_000).to_bytes(4, "little") + (5000).to_bytes(4, "little") + bytes((state,))


class Dcmi(Bmc):
    """A controller behind its IPMI device, which is opened by a call."""

    def __init__(self, answer: int | bytes | OSError) -> None:
        super().__init__(response(answer) if isinstance(answer, int) else answer)
        self.asked = 0

    def __call__(self) -> Any:
        return self.open("")

    def power_reading(self) -> bytes:
        self.asked += 1
        return super().power_reading()


class Controller(Server):
    """A Redfish service: documents by path, and what it was asked."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.documents: dict[str, Any] = {}
        self.status: dict[str, int] = {}
        self.headers: dict[str, str] = {}
        self.login: str | None = None
        self.refusals = 0
        """Requests that are answered with 401 next, whatever their login."""
        self.is_gzip_only = False
        self.asked: list[str] = []
        self.break_off: bytes | None = None
        """Said instead of the next answer, before it hangs up; of each one where it is `broken_for_good`."""
        self.broken_for_good = False
        self.hang = threading.Event()
        self.hang.set()
        wrap = None if context is None else partial(context.wrap_socket, server_side=True)
        super().__init__(lambda held, number: None, wrap=wrap)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"

    def take(self, held: socket.socket, question: bytes, body: bytes) -> None:
        line, *fields = question.decode("latin-1").split("\r\n")
        path = line.split()[1]
        self.asked.append(path)
        self.hang.wait(5)
        if self.break_off is not None or self.broken_for_good:
            said, self.break_off = self.break_off, None  # before the client asks again
            held.sendall(said or b"")
            held.shutdown(socket.SHUT_RDWR)
            return
        status = self.status.get(path, 200 if path in self.documents else 404)
        if self.login is not None and f"Authorization: {self.login}" not in fields:
            status = 401
        if self.refusals:
            self.refusals -= 1
            status = 401
        document = self.documents.get(path)
        answer = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = dict(self.headers)
        if self.is_gzip_only and not any("gzip" in field for field in fields if field.startswith("Accept-Encoding:")):
            status = 406
        elif self.is_gzip_only:
            answer = gzip.compress(answer)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(answer))
        head = (f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items()), "", "")
        held.sendall("\r\n".join(head).encode() + answer)

    def stop(self) -> None:
        self.hang.set()
        super().stop()

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


def _serve(context: ssl.SSLContext | None = None) -> Iterator[Controller]:
    controller = Controller(context)
    yield controller
    controller.stop()


@pytest.fixture
def controller() -> Iterator[Controller]:
    yield from _serve()


@pytest.fixture
def tls_controller() -> Iterator[Controller]:
    """The same over TLS, with a certificate of an authority that nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    yield from _serve(context)
