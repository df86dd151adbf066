"""Whether Alertmanager and webhooks can be reached, with the login that the configuration gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.lib.http_answers import AnswerBounds, HttpError, HttpFault
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.wiring.logins import login_of

RANK = 150
RECEIVERS = Diagnoses("receivers")
DEADLINE_SECONDS = 2.0
READY = "/-/ready"
"""What an Alertmanager answers with 200 (its documentation, management API)."""
REMEDIES = {
    HttpFault.UNTRUSTED: "set its ca_file to what signed the server's certificate",
    HttpFault.UNREADABLE: "chown coldplate that file; chmod 0400",
    HttpFault.UNREACHABLE: "correct the URL, start the server, or open the firewall to it",
    HttpFault.TIMEOUT: "open the firewall to it (packets are dropped), or look why the server hangs",
    HttpFault.GARBAGE: "correct the URL: what answers there does not speak HTTP",
}


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """Each receiver on its own, and what the running agent's deliveries came to."""
    notify = node.config.notify
    told = False
    for kind in ("alertmanager", "webhook"):
        receiver = getattr(notify, kind)
        for url in receiver.urls:
            try:
                target = HttpTarget(url, timeout=receiver.timeout, **login_of(receiver))
            except ValueError as error:
                yield RECEIVERS.said(kind, RECEIVERS.fail(f"notify.{kind}: {error}", "correct that URL"))
                continue
            told = True
            yield RECEIVERS.check(target.shown, _reach, node, kind, target)
    if not told:
        where = "the log" if notify.log else "no receiver at all"
        yield RECEIVERS.said("notify", RECEIVERS.ok(f"none configured: alerts go to {where}"))
    yield RECEIVERS.check(node.target.shown, _delivered, node)


def _reach(node: ExaminedNode, kind: str, target: HttpTarget) -> Iterator[Diagnosis]:
    """A GET changes nothing: an Alertmanager is asked whether it is ready, of a webhook any answer will do."""
    is_alertmanager = kind == "alertmanager"
    client = HttpClient(target, AnswerBounds(body=1 << 20), node.mono)
    request = HttpRequest("GET", f"{target.path}{READY}" if is_alertmanager else target.path or "/")
    try:
        status = client.exchange(request, node.mono() + DEADLINE_SECONDS).status
    except HttpError as error:
        yield RECEIVERS.fail(f"{kind} {target.shown}: {error}", REMEDIES[error.fault])
        return
    finally:
        client.close()
    if status in (401, 403):
        remedy = f"correct notify.{kind}: username and password_file, or bearer_token_file"
        yield RECEIVERS.fail(f"{kind} {target.shown} refuses the login (HTTP status {status})", remedy)
    elif is_alertmanager and status != 200:
        remedy = "add the path that its --web.route-prefix has to the URL, or look why it is not ready"
        yield RECEIVERS.fail(f"{kind} {target.shown}: {READY} is answered with HTTP status {status}", remedy)
    else:
        yield RECEIVERS.ok(f"{kind} {target.shown} answers")


def _delivered(node: ExaminedNode) -> Iterator[Diagnosis]:
    if node.agent is None:
        return
    queued = sum(node.agent.values("coldplate_notifications_queued"))
    dropped = sum(node.agent.values("coldplate_notifications_dropped_total"))
    if queued:
        yield RECEIVERS.warn(f"{queued:.0f} alerts wait to be delivered", "journalctl -u coldplate | grep notify")
    if dropped:
        remedy = "journalctl -u coldplate | grep notify tells what the receiver refused"
        yield RECEIVERS.warn(f"{dropped:.0f} alerts were dropped since the agent was started", remedy)
