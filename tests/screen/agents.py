"""An agent as `coldplate top` meets it: a server of canned answers on a free port of the loopback interface."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agent.model import Alert, GroupReport, Phase, RuleReport
from exporters import snapshot_json
from exporters.rules_json import RulePrinter
from tests.screen.scenes import played

ALERT = Alert(
    "GpuImbalance", (("alertname", "GpuImbalance"), ("severity", "warning")), Phase.FIRING, 0.05, 1_700_000_180.0
)
Answer = tuple[int, bytes]
Answers = Callable[[str], Answer]


def canned(scenario: str, second: int) -> Answers:
    """One of a node that plays this scenario: each question for the snapshot gets the next one; one alert fires."""
    seen, _ = played(scenario, second)
    left = itertools.chain(seen[-40:], itertools.repeat(seen[-1]))
    rule = RuleReport(ALERT.rule, True, "x", alerts=(ALERT,))

    def answer(path: str) -> Answer:
        if path == "/api/v1/snapshot":
            return 200, b"".join(snapshot_json.success(next(left), 0.1))
        return 200, b"".join(RulePrinter().alerts([GroupReport("group", "file", 1.0, rules=(rule,))]))

    return answer


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """Its host and port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = answers(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
