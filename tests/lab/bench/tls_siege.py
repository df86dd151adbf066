"""Measure what TLS costs, and what a scraper sees while other clients abuse the server: `make siege`.

docs/dev/performance.md says who the others are. A second daemon, which nobody besieges, is scraped in turn with the
first one: what its scraper waits is the machine's doing. Exit status 1 if a target was missed.
"""

import os
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from statistics import median

import psutil
import trustme

from tests.lab.bench.client import PRIORITY, highest_hundredth
from tests.lab.bench.processes import cpu_seconds, prefer, started
from tests.lab.bench.report import Line, Section, Verdict, at_most, description, guarded, mebibytes, milliseconds, table
from tests.lab.bench.rig import ROOT

HOST = "127.0.0.1"
CROWD = {"silent": 100, "half": 300, "deaf": 20}
HOW = {"once": "all at once", "again": "each of whom comes again half a second after it was disconnected"}
LATENCY = {"once": 0.02, "again": 0.05}
"""Seconds that one scrape in a hundred may take."""
GROWTH, GONE = 10.0, 60.0
"""MiB of memory, and seconds."""
SETTLES = 5.0
WEB = (
    "tls_server_config: {cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem,"
    " client_auth_type: RequireAndVerifyClientCert}\n"
)


def write_certificates(folder: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("server", "client"):
        leaf = authority.issue_cert(HOST, "localhost")
        leaf.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        leaf.private_key_pem.write_to_path(folder / f"{name}.key")
    (folder / "web.yml").write_text(WEB)


def trust(folder: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    made.load_cert_chain(folder / "client.pem", folder / "client.key")
    return made


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[tuple[psutil.Process, int]]:
    command = [sys.executable, "-m", "agent.cli", "run", "--scenario", "healthy-training"]
    command += ["--web.listen-address", f"{HOST}:0", *arguments]
    with started(command, folder / f"{name}.log", os.environ, ROOT) as process:
        port = process.wait_for_port()
        prefer(process.pid)
        yield process, port


class KeptScraper:
    """Scrapes over a connection that is kept as long as the daemon keeps it; latencies in seconds.

    `anew` are those of the scrapes that needed a new connection.
    """

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        made = HTTPSConnection(HOST, port, timeout=10, context=context) if context else None
        self._connection = made or HTTPConnection(HOST, port, timeout=10)
        self.taken: list[float] = []
        self.anew: list[float] = []

    def scrape(self) -> None:
        began, new = time.monotonic(), self._connection.sock is None
        for _ in range(3):  # one that was disconnected while it was idle comes again, as Prometheus does
            try:
                self._connection.request("GET", "/metrics")
                assert len(self._connection.getresponse().read()) > 100_000
                break
            except (OSError, HTTPException):
                self._connection.close()  # and the next request connects again
                new = True
        self.taken.append(time.monotonic() - began)
        if new:
            self.anew.append(self.taken[-1])

    def close(self) -> None:
        self._connection.close()


def scrape(scrapers: Sequence[KeptScraper], seconds: float) -> None:
    due = time.monotonic()
    end = due + seconds
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        for each in scrapers:
            each.scrape()
        due = max(due + 0.1, time.monotonic())
    for each in scrapers:
        each.close()


def crowd(port: int, folder: Path, come_again: bool) -> None:
    """The others, in a process of their own, until whoever started it is gone."""
    os.nice(19)
    context = trust(folder)

    def connect() -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(20)
        sock.connect((HOST, port))
        return sock

    def silent() -> None:
        with connect() as sock:
            sock.recv(1)

    def half() -> None:
        with context.wrap_socket(connect(), server_hostname=HOST) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
            sock.recv(1)

    def deaf() -> None:
        with context.wrap_socket(connect(), server_hostname=HOST) as sock:
            sock.sendall(b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(20)

    def again(what: Callable[[], None]) -> None:
        while True:
            with suppress(OSError):
                what()
            if not come_again:
                return
            time.sleep(0.5)

    for what in (silent, half, deaf):
        for _ in range(CROWD[what.__name__]):
            threading.Thread(target=again, args=(what,), daemon=True).start()
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)


def latencies(what: str, taken: Sequence[float], limit: float | None = None) -> list[Line]:
    spread = f"{milliseconds(median(taken))}, {milliseconds(max(taken))}"
    p99 = highest_hundredth(taken)
    what = f"{what}: p99"
    first = Line(what, milliseconds(p99)) if limit is None else at_most(what, p99, limit, milliseconds)
    return [first, Line(f"  p50 and highest of {len(taken)}", spread)]


def held(process: psutil.Process) -> float:
    """MiB of memory."""
    return float(process.memory_info().rss) / 2**20


def besiege(process: psutil.Process, port: int, control: int, folder: Path, seconds: float, how: str) -> Section:
    """Measure from the crowd's start, and how long it takes until nobody of it is left, although none of it leaves."""
    before, used = held(process), cpu_seconds([process.pid])
    command = [sys.executable, "-m", "tests.lab.bench.tls_siege", "crowd", str(port), str(folder), how]
    with started(command, folder / "crowd.log", os.environ, ROOT) as crowded:
        began = time.monotonic()
        besieged, alone = KeptScraper(port, trust(folder)), KeptScraper(control, trust(folder))
        scrape([besieged, alone], seconds)
        used, grown = cpu_seconds([process.pid]) - used, held(process) - before
        if how == "again":
            crowded.terminate()
            began = time.monotonic()
        while any(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections("tcp")):
            time.sleep(0.5)
        left = time.monotonic() - began
    lines = latencies("the besieged daemon", besieged.taken, LATENCY[how])
    lines += latencies("  with a new connection", besieged.anew) if besieged.anew else []
    lines += latencies("a daemon that is not besieged", alone.taken)
    lines += [
        Line("processor time a scrape, all else of the siege included", milliseconds(used / len(besieged.taken))),
        at_most("memory beside them", grown, GROWTH, mebibytes),
        at_most("until nobody of them is left", left, GONE, lambda value: f"{value:.1f} s"),
    ]
    return Section(f"{sum(CROWD.values())} besiegers, {HOW[how]}", tuple(lines))


def settled(process: psutil.Process, port: int, context: ssl.SSLContext | None, seconds: float) -> list[Line]:
    used = cpu_seconds([process.pid])
    alone = KeptScraper(port, context)
    scrape([alone], seconds)
    used = cpu_seconds([process.pid]) - used
    share = Line("processor time a scrape, with its share of a tick", milliseconds(used / len(alone.taken)))
    return [*latencies("a kept connection", alone.taken), share, Line("memory", mebibytes(held(process)))]


def main(arguments: Sequence[str]) -> int:
    seconds = float(arguments[0]) if arguments else 20.0
    prefer(os.getpid(), PRIORITY)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write_certificates(folder)
        protected = ("--web.config.file", str(folder / "web.yml"))
        with daemon(folder, "plain") as (process, port):
            time.sleep(SETTLES)
            sections = [Section("plain HTTP, nobody else", tuple(settled(process, port, None, seconds)))]
        process, port = stack.enter_context(daemon(folder, "besieged", *protected))
        _, control = stack.enter_context(daemon(folder, "control", *protected))
        time.sleep(SETTLES)
        sections.append(Section("mutual TLS, nobody else", tuple(settled(process, port, trust(folder), seconds))))
        sections += [besiege(process, port, control, folder, seconds, how) for how in HOW]
    print(table(sections))
    print(f"\n{description()}")
    return int(any(line.verdict is Verdict.MISSED for section in sections for line in section.lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["crowd"]:
        crowd(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "again")
    else:
        sys.exit(guarded(main))
