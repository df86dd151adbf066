"""A node's worth of readings, a running server, and clients of every degree of politeness."""

import http.client
import logging
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http import HTTPStatus
from typing import Any

import pytest

from agent import catalogue
from agent.model import (
    Backend,
    BackendReport,
    Entity,
    Gap,
    Gpu,
    IbPort,
    Instant,
    Kind,
    Metric,
    Node,
    NvLink,
    Outcome,
    Rack,
    Reading,
    Reason,
    Series,
    Snapshot,
)
from exporters import connection
from exporters.deferred import Answer
from exporters.http_messages import Request, Response
from exporters.server import HttpServer
from tests.frames import snapshot_of
from tests.servers import need

GPU = Gpu("0", "GPU-5b7e1c1a-0000-4000-8000-000000000000")
_ENTITIES: tuple[Entity, ...] = (Node(), GPU, NvLink(GPU, 3), IbPort("mlx5_0", "1"), Rack("r12"), Backend("nvml"))
ENTITY_OF = {type(entity): entity for entity in _ENTITIES}


def reading(name: str, value: float, entity: Entity = GPU, /, **labels: str) -> Reading:
    return Reading(Series(catalogue.BY_NAME[name], entity, tuple(labels.items())), value)


def one_of_each_row() -> tuple[Reading, ...]:
    """A reading for every row of the catalogue but the one that only a page has."""
    rows = [row for row in catalogue.ROWS if row.name != "coldplate_sample_age_seconds"]
    return tuple(Reading(_series(row), 1.0 if row.kind is Kind.INFO else row.span[0]) for row in rows)


def _series(row: Metric) -> Series:
    return Series(row, ENTITY_OF[row.entity], tuple((name, f"some {name}") for name in row.labels))


@pytest.fixture(scope="session")
def full_snapshot() -> Snapshot:
    gap = Gap(catalogue.BY_NAME["coldplate_gpu_sm_active_ratio"], GPU, Reason.UNSUPPORTED, "GPM: not supported")
    reports = (
        BackendReport("nvml", Outcome.OK, 0.0021, gaps=(gap,), calls=40),
        BackendReport("infiniband", Outcome.ABSENT, 0.0001, detail="no /sys/class/infiniband"),
    )
    return snapshot_of(7, Instant(100.0, 1_700_000_000.0), one_of_each_row(), reports)


@pytest.fixture(scope="session")
def lint() -> Callable[[bytes], None]:
    """Asserts that promtool has nothing to say about a page."""
    program = need("promtool", left_out="pages are not linted (Debian package prometheus)")

    def check(page: bytes) -> None:
        done = subprocess.run([program, "check", "metrics"], input=page, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    return check


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that happens in the test is worth a line in the log."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == []


class Client:
    def __init__(self, address: tuple[str, int], receive_buffer: int | None = None) -> None:
        self.sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(5.0)
        try:
            self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def flood(self, data: bytes) -> bool:
        """Send this again and again, at most 32 MiB; whether the server stopped reading, as it should."""
        self.sock.setblocking(False)
        sent = 0
        try:
            while sent < 32 * 1024 * 1024:
                sent += self.sock.send(data)
        except BlockingIOError:
            return True
        finally:
            self.sock.settimeout(5.0)
        return False

    def rest(self) -> bytes:
        """Everything until the server hangs up."""
        chunks = []
        try:
            while chunk := self.sock.recv(65536):
                chunks.append(chunk)
        except ConnectionError:
            pass
        return b"".join(chunks)

    def response(self) -> tuple[int, http.client.HTTPMessage, bytes]:
        """The next response, leaving the connection open. For one request at a time: it may read ahead."""
        answer = http.client.HTTPResponse(self.sock)
        answer.begin()
        return answer.status, answer.headers, answer.read()

    def is_cut_off(self) -> bool:
        """Whether the server has hung up, as far as is known now."""
        self.sock.setblocking(False)
        try:
            while self.sock.recv(65536):
                pass
            return True
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def close(self) -> None:
        self.sock.close()


class Running:
    def __init__(self, server: HttpServer, stack: ExitStack) -> None:
        self.server = server
        self.address = ("127.0.0.1", server.addresses[0][1]) if server.addresses else ("", 0)
        self._stack = stack

    def client(self, receive_buffer: int | None = None) -> Client:
        return self._stack.enter_context(closing(Client(self.address, receive_buffer)))

    def exchange(self, raw: bytes) -> bytes:
        with closing(Client(self.address)) as client:
            client.send(raw)
            return client.rest()

    def get(self, path: str = "/") -> tuple[int, http.client.HTTPMessage, bytes]:
        with closing(http.client.HTTPConnection(*self.address, timeout=5.0)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.headers, response.read()


def hello(request: Request) -> Response:
    return Response(HTTPStatus.OK, f"{request.method} {request.path}".encode() + request.body)


Serve = Callable[..., Running]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts servers; `idle_timeout`, `request_timeout` and `write_timeout` are those of all connections."""
    with ExitStack() as stack:

        def start(handler: Callable[[Request], Answer] = hello, **options: Any) -> Running:
            for name in ("idle_timeout", "request_timeout", "write_timeout"):
                if name in options:
                    monkeypatch.setattr(connection, f"{name.upper()}_SECONDS", options.pop(name))
            options = {"clock": time.monotonic, **options}
            server = HttpServer([("127.0.0.1", 0)], handler, **options)
            server.start()
            stack.callback(server.stop)
            return Running(server, stack)

        yield start
