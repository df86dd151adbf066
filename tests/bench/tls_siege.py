"""What TLS costs, and what a scraper sees while others abuse it: `python -m tests.bench.tls_siege [SECONDS]`.

A daemon with eight synthetic GPUs is scraped ten times a second over one kept connection, in plain and with mutual TLS;
then beside a hundred clients that connect and say nothing, three hundred that complete the handshake and send half a
request, and twenty that ask for the snapshot and never read: first all at once, then with everyone who is disconnected
coming again half a second later, which is a storm of handshakes.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import trustme

from tests.bench.abuse import PRIORITY, prefer
from tests.bench.client import highest_hundredth, middle
from tests.bench.patience import prefer_this_process
from tests.bench.rig import ROOT

HOST = "127.0.0.1"
CROWD = {"silent": 100, "half": 300, "deaf": 20}
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
def daemon(folder: Path, *arguments: str) -> Iterator[tuple[psutil.Process, int]]:
    """A daemon from this checkout, and its port."""
    log = folder / "log"
    command = [sys.executable, "-m", "agent.cli", "run", "--scenario", "healthy-training"]
    command += ["--web.listen-address", f"{HOST}:0", *arguments]
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file)
    try:
        while (found := re.search(rf"https?://{HOST}:(\d+)/", log.read_text())) is None:
            time.sleep(0.1)
        prefer(process.pid, PRIORITY)
        yield psutil.Process(process.pid), int(found[1])
    finally:
        process.terminate()
        process.wait(10)


def scrape(port: int, context: ssl.SSLContext | None, seconds: float) -> tuple[list[float], list[float]]:
    """Latencies of scrapes, ten a second over a connection that is kept as long as the daemon keeps it, in seconds;
    and of these the ones that needed a new connection."""
    taken, anew = [], []
    connection: http.client.HTTPConnection | None = None
    end = due = time.monotonic()
    end += seconds
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        began, new = time.monotonic(), connection is None
        for _ in range(3):  # one that was disconnected while it was idle comes again, as Prometheus does
            if connection is None:
                connection = (
                    http.client.HTTPConnection(HOST, port, timeout=10)
                    if context is None
                    else http.client.HTTPSConnection(HOST, port, timeout=10, context=context)
                )
            try:
                connection.request("GET", "/metrics")
                assert len(connection.getresponse().read()) > 100_000
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                connection, new = None, True
        taken.append(time.monotonic() - began)
        if new:
            anew.append(taken[-1])
        due = max(due + 0.1, time.monotonic())
    if connection is not None:
        connection.close()
    return taken, anew


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


def tell(what: str, taken: list[float]) -> None:
    p50, p99 = middle(taken) * 1000, highest_hundredth(taken) * 1000
    print(f"{what}: {len(taken)} scrapes, p50 {p50:.2f} ms, p99 {p99:.2f} ms, highest {max(taken) * 1000:.1f} ms")


def mebibytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


def besiege(process: psutil.Process, port: int, folder: Path, seconds: float, how: str) -> None:
    """Measure from the crowd's start, and how long it takes until nobody of it is left, although none of it leaves."""
    before = mebibytes(process)
    command = [sys.executable, "-m", "tests.bench.tls_siege", "crowd", str(port), str(folder), how]
    rude = subprocess.Popen(command, cwd=ROOT)
    began = time.monotonic()
    taken, anew = scrape(port, trust(folder), seconds)
    tell(f"mutual TLS, besieged {how}", taken)
    if anew:
        tell("  of these with a new connection", anew)
    print(f"  memory before {before:.1f} MiB, beside them {mebibytes(process):.1f} MiB")
    if how == "again":
        rude.terminate()
        began = time.monotonic()
    while any(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections("tcp")):
        time.sleep(0.5)
    print(f"  nobody left after {time.monotonic() - began:.1f} s; memory {mebibytes(process):.1f} MiB")
    rude.terminate()
    rude.wait()


def main(seconds: float) -> None:
    prefer_this_process()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_certificates(folder)
        settled = {}
        for title, arguments, context in (
            ("plain HTTP", (), None),
            ("mutual TLS", ("--web.config.file", str(folder / "web.yml")), trust(folder)),
        ):
            with daemon(folder, *arguments) as (process, port):
                time.sleep(5.0)
                used = sum(process.cpu_times()[:2])
                taken, _ = scrape(port, context, seconds)
                used = sum(process.cpu_times()[:2]) - used
                settled[title] = mebibytes(process)
                tell(title, taken)
                share = f"{used / len(taken) * 1000:.2f} ms of processor time a scrape, with its share of a tick"
                print(f"  memory {settled[title]:.1f} MiB, {share}")
                if context is not None:
                    for how in ("once", "again"):
                        besiege(process, port, folder, seconds, how)


if __name__ == "__main__":
    if sys.argv[1:2] == ["crowd"]:
        crowd(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "again")
    else:
        main(float(sys.argv[1]) if sys.argv[1:] else 20.0)
