"""An agent as `coldplate top` meets it: a server of canned answers on a free port of the loopback interface."""

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.lib.clock import clock
from agent.model import Alert, GroupReport, Phase, RuleReport
from exporters import rules_json, snapshot_json
from tests.http_client.conftest import Server
from tests.screen.scenes import played

ALERT = Alert(
    "GpuImbalance", (("alertname", "GpuImbalance"), ("severity", "warning")), Phase.FIRING, 0.05, 1_700_000_180.0
)
Answer = tuple[int, bytes]
Answers = Callable[[str], Answer]


def canned(scenario: str, second: int, *, is_evaluated: bool = True, node: str = "") -> Answers:
    """One of a node that plays this scenario: each question for the snapshot gets the next one; one alert fires."""
    snapshots, _ = played(scenario, second)
    remaining = itertools.chain(snapshots[-40:], itertools.repeat(snapshots[-1]))
    rule = RuleReport(ALERT.rule, True, "x", alerts=(ALERT,))

    def answer(path: str) -> Answer:
        if path == "/api/v1/snapshot":
            return 200, snapshot_json.success(next(remaining), 0.1, node, {})
        group = GroupReport("group", "file", 1.0, evaluated_at=clock().wall if is_evaluated else None, rules=(rule,))
        return 200, rules_json.alerts([group])

    return answer


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """Its host and port."""

    def answer(held: socket.socket, number: int) -> None:
        status, body = answers(server.questions[number - 1].split()[1].decode())
        held.sendall(b"HTTP/1.1 %d Status\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    server = Server(answer)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.stop()
