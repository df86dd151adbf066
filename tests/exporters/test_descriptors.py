"""Out of file descriptors: idle clients make room, and a scraper is served whoever holds the rest."""

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 48

CHILD = f"""
import logging, os, resource, sys, time
from http import HTTPStatus
from exporters.deferred import Deferred
from exporters.server import HttpServer
from exporters.http_messages import Response

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))

def handler(request):
    return Deferred(60.0) if request.path == "/never" else Response(HTTPStatus.OK, b"page")

server = HttpServer([("127.0.0.1", 0)], handler, clock=time.monotonic)
server.start()
print(server.addresses[0][1], flush=True)
held = []
for line in sys.stdin:
    if line == "take\\n":
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            print(len(held), flush=True)
    elif line == "give\\n":
        while held:
            os.close(held.pop())
        print("given", flush=True)
    elif line == "cpu\\n":
        print(time.process_time(), flush=True)
server.stop()
"""


class Child:
    """A server in a process of its own that may have few descriptors."""

    def __init__(self, log: Path, stack: ExitStack) -> None:
        self.log = log
        self._stack = stack
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                cwd=ROOT,
            )
        stack.callback(self._process.communicate, timeout=10)
        self.port = int(self._process.stdout.readline())

    def tell(self, command: str) -> str:
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def client(self) -> http.client.HTTPConnection:
        return self._stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30.0)))

    def scrape(self) -> bytes:
        with closing(self.client()) as connection:
            return get(connection)

    def warnings(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith(("WARNING", "ERROR"))]


def get(connection: http.client.HTTPConnection, path: str = "/") -> bytes:
    connection.request("GET", path)
    return connection.getresponse().read()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    with ExitStack() as stack:
        yield Child(tmp_path / "log", stack)


def test_idle_keep_alive_clients_never_keep_a_scraper_out(child: Child) -> None:
    idle = [child.client() for _ in range(LIMIT + 20)]
    assert [get(client) for client in idle] == [b"page"] * len(idle)
    for _ in range(5):
        assert child.scrape() == b"page"
    (warning,) = child.warnings()
    assert "Too many open files" in warning
    assert "LimitNOFILE" in warning


def test_a_scraper_is_served_when_others_in_the_process_hold_everything(child: Child) -> None:
    assert child.scrape() == b"page"  # the server's thread has begun, which needs descriptors of its own
    child.tell("take")
    for _ in range(10):
        assert child.scrape() == b"page"
        child.tell("take")  # whatever became free
    keeping = child.client()
    assert get(keeping) == b"page"
    assert child.scrape() == b"page"
    assert len(child.warnings()) == 1
    child.tell("give")
    several = [child.client() for _ in range(5)]
    assert [get(client) for client in several for _ in range(2)] == [b"page"] * 10


def test_without_any_descriptor_clients_wait_their_turn_and_the_server_does_not_spin(child: Child) -> None:
    child.tell("take")
    first = socket.create_connection(("127.0.0.1", child.port))
    first.sendall(b"GET /never HTTP/1.1\r\nHost: n\r\n\r\n")
    before = float(child.tell("cpu"))
    assert child.scrape() == b"page"  # once the first has waited so long that it may lose its place
    assert float(child.tell("cpu")) - before < 0.3
    assert first.recv(1000) == b""
    first.close()
