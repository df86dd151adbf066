"""Check the agent's port, the Prometheus servers that scrape it, its rules, and the receivers of alerts.

A server that scrapes keeps its connection open, so it is found among the sockets of the node.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial

import psutil

from agent.commands.doctor.doctor_finding import DoctorFinding, fail, ok, warn
from agent.commands.doctor.doctor_node import DoctorNode, PathAndCheck
from agent.config.schema import ConfigError
from agent.lib.http_answers import AnswerBounds, HttpError, HttpFault
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.lib.wording import counted
from agent.wiring.identity import login_of


def check_port(port: int, node: DoctorNode) -> Iterator[DoctorFinding]:
    pids = {
        connection.pid
        for connection in node.connections
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
    }
    is_own = node.agent is not None and node.target.port == port
    if not pids:
        yield ok(f"{port} is free")
    elif is_own:
        yield ok(f"{port} is the running agent's")
    else:
        holder = next(
            (process for process in node.processes if process.pid in pids), None
        )  # None if only root may see it
        if holder is not None and "coldplate" in f"{holder.name} {holder.cgroup}":
            yield ok(f"{port} is held by {holder.name}, process {holder.pid}")
            return
        who = f"{holder.name}, process {holder.pid}" if holder else "another process; as root, doctor names it"
        remedy = f'stop it, or choose another port: web: {{listen: [":{port + 1}"]}}'
        yield fail(f"{port} is taken by {who}, and no agent answers there", remedy)


LOOPBACK = ("127.", "::1", "localhost", "[::1]")
MAX_SHOWN_PEERS = 4


def check_scrapes(node: DoctorNode) -> Iterator[DoctorFinding]:
    hosts = [host for host, _ in node.listen]
    if hosts and all(host.startswith(LOOPBACK) for host in hosts):
        remedy = 'web: {listen: [":19400"]}, unless a proxy on this node is scraped instead'
        yield warn(f"the agent listens on {', '.join(hosts)} alone: no other node can scrape it", remedy)
        return
    if node.agent is None:
        return
    connected = (connection for connection in node.connections if connection.status == psutil.CONN_ESTABLISHED)
    peers = {
        connection.raddr[0].removeprefix("::ffff:")
        for connection in connected
        if connection.laddr[1:] == (node.target.port,)
    }
    remote_peers = sorted(peer for peer in peers if not peer.startswith(LOOPBACK))
    if remote_peers:
        more = f" and {len(remote_peers) - MAX_SHOWN_PEERS} more" if len(remote_peers) > MAX_SHOWN_PEERS else ""
        yield ok(f"connected from {', '.join(remote_peers[:MAX_SHOWN_PEERS])}{more}")
        return
    yield warn(
        "no other host is connected at this moment; a server that scrapes at long intervals may not be seen here",
        f'ask the server for up{{job="coldplate"}}; from it, curl http://HOST:{node.target.port}/-/ready shows whether '
        "a firewall is between; add the node to its scrape_configs",
    )


RECEIVER_DEADLINE_SECONDS = 2.0
READY = "/-/ready"
"""The path that an Alertmanager answers with 200 (its documentation, management API)."""
RECEIVER_REMEDIES = {
    HttpFault.UNTRUSTED: "set its ca_file to the CA that signed the server's certificate",
    HttpFault.UNREADABLE: "let the agent read that file: chown coldplate FILE; chmod 0400 FILE",
    HttpFault.UNREACHABLE: "correct the URL, start the server, or open the firewall to it",
    HttpFault.TIMEOUT: "open the firewall to it (packets are dropped), or find out why the server hangs",
    HttpFault.GARBAGE: "correct the URL: the server there does not speak HTTP",
}


def receiver_checks(node: DoctorNode) -> Iterable[PathAndCheck]:
    """Yield a check of each receiver, and one of the running agent's deliveries."""
    notify = node.config.notify
    is_configured = False
    for kind in ("alertmanager", "webhook"):
        receiver = getattr(notify, kind)
        for url in receiver.urls:
            try:
                target = HttpTarget(url, timeout=receiver.timeout, **login_of(receiver))
            except ValueError as error:
                yield kind, partial(_malformed, f"notify.{kind}: {error}")
                continue
            is_configured = True
            yield target.shown, partial(_check_receiver, kind, target)
    if not is_configured:
        yield "notify", _check_no_receiver
    yield node.target.shown, _check_deliveries


def _check_no_receiver(node: DoctorNode) -> Iterator[DoctorFinding]:
    if not node.config.rules.files:
        yield ok("none needed: rules.files is []")
        return
    where = "go to the log alone" if node.config.notify.log else "are sent nowhere"
    remedy = 'notify: {alertmanager: {urls: ["http://alertmanager:9093"]}}; a server may evaluate the rules as well'
    yield warn(f"none configured: alerts of this node {where}", remedy)


def _malformed(problem: str, _: DoctorNode) -> Iterator[DoctorFinding]:
    yield fail(problem, "correct that URL")


def _check_receiver(kind: str, target: HttpTarget, node: DoctorNode) -> Iterator[DoctorFinding]:
    """Send a GET, which changes nothing. An Alertmanager must be ready; a webhook may answer all but a refusal."""
    is_alertmanager = kind == "alertmanager"
    request = HttpRequest("GET", f"{target.path}{READY}" if is_alertmanager else target.path or "/")
    try:
        with closing(HttpClient(target, AnswerBounds(body=1 << 20), node.mono)) as client:
            status = client.exchange(request, node.mono() + RECEIVER_DEADLINE_SECONDS).status
    except HttpError as error:
        yield fail(f"{kind} {target.shown}: {error}", RECEIVER_REMEDIES[error.fault])
        return
    if status in (401, 403):
        remedy = f"correct notify.{kind}: username and password_file, or bearer_token_file"
        yield fail(f"{kind} {target.shown} refuses the login (HTTP status {status})", remedy)
    elif is_alertmanager and status != 200:
        remedy = "add the path that its --web.route-prefix has to the URL, or find out why it is not ready"
        yield fail(f"{kind} {target.shown}: {READY} is answered with HTTP status {status}", remedy)
    else:
        yield ok(f"{kind} {target.shown} answers")


def _check_deliveries(node: DoctorNode) -> Iterator[DoctorFinding]:
    if node.agent is None:
        return
    queued = sum(node.agent.values("coldplate_notifications_queue_length"))
    dropped = sum(node.agent.values("coldplate_notifications_dropped_total"))
    if queued:
        yield warn(f"{counted(queued, 'alert')} to be delivered", "journalctl -u coldplate | grep notify")
    if dropped:
        remedy = "journalctl -u coldplate | grep notify shows what the receiver rejected"
        yield warn(f"{counted(dropped, 'alert')} dropped since the agent was started", remedy)


def check_rule_files(node: DoctorNode) -> Iterator[DoctorFinding]:
    from agent.wiring.alerting import load_files

    try:
        files = load_files(node.config, node.folder)
    except ConfigError as error:
        first, *problems = str(error).splitlines()
        for problem in problems or [first]:
            yield fail(problem.strip(), "correct it; coldplate rules check FILE shows every error")
        return
    for warning in (warning for file in files for warning in file.warnings):
        yield warn(str(warning), "coldplate rules check FILE shows more")
    count = sum(file.rule_count for file in files)
    yield ok(f"{counted(count, 'rule')} in {counted(len(files), 'file')}" if files else "none: rules.files is []")


def check_evaluations(node: DoctorNode) -> Iterator[DoctorFinding]:
    if node.agent is None:
        return
    failing = sum(node.agent.values("coldplate_rule_evaluation_failures_total"))
    if failing:
        remedy = f"curl -s {node.target.shown}/api/v1/rules | grep lastError"
        yield warn(f"{failing:.0f} evaluations failed since the agent was started", remedy)
