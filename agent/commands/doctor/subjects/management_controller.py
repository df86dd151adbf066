"""The node's management controller: as the configuration has it over Redfish, and as the kernel shows it over IPMI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.backends.power import bmc_of
from agent.backends.redfish_service import CHASSIS, exchange
from agent.broker.ipmi_opening import DEVICES
from agent.commands.doctor.diagnosis_line import Diagnoses, Diagnosis, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.config.schema import ConfigError
from agent.lib.http_answers import AnswerBounds, HttpError, HttpFault
from agent.lib.http_client import HttpClient
from agent.lib.http_target import HttpTarget

RANK = 70
BMC = Diagnoses("BMC")
DEADLINE_SECONDS = 3.0
"""Seconds for a controller whose TLS handshake alone may take one."""
REMEDIES = {
    HttpFault.UNTRUSTED: "set backends.redfish.ca_file to the controller's own, or verify: false",
    HttpFault.UNREADABLE: "give the agent's user that file: chown coldplate, chmod 0400",
    HttpFault.UNREACHABLE: "correct backends.redfish.url, or the route to the management network",
    HttpFault.TIMEOUT: "curl -kv the URL; a controller that hangs may need a cold reset: ipmitool mc reset cold",
    HttpFault.GARBAGE: "correct backends.redfish.url: what answers there is no Redfish service",
}


def checks(node: ExaminedNode) -> Iterable[Examination]:
    """Redfish where it is configured, IPMI where it is asked for."""
    wanted = node.config.backends.power
    try:
        target = bmc_of(node.config.backends)
    except ConfigError:
        target = None  # the subject of the configuration says so
    if target is not None:
        yield BMC.check(target.shown, _redfish, node, target)
    if "ipmi" in wanted:
        yield BMC.check("/dev/ipmi0", _ipmi, node)


def _redfish(node: ExaminedNode, target: HttpTarget) -> Iterator[Diagnosis]:
    """One question with the login: more wrong ones would have the controller lock the account."""
    client = HttpClient(target, AnswerBounds(body=1 << 20), node.mono)
    try:
        answer = exchange(client, target, CHASSIS, node.mono() + DEADLINE_SECONDS)
    except HttpError as error:
        yield BMC.fail(f"Redfish at {target.shown}: {error}", REMEDIES[error.fault])
        return
    finally:
        client.close()
    if answer.status == 200:
        yield BMC.ok(f"Redfish at {target.shown} answers, and takes the login")
    elif answer.status in (401, 403):
        remedy = "correct backends.redfish.username and password_file; the account needs the role ReadOnly"
        yield BMC.fail(f"Redfish at {target.shown} refuses the login (HTTP status {answer.status})", remedy)
    else:
        yield BMC.fail(f"Redfish at {target.shown}: HTTP status {answer.status}", REMEDIES[HttpFault.GARBAGE])


def _ipmi(node: ExaminedNode) -> Iterator[Diagnosis]:
    device = next((path for path in DEVICES if (node.root / path.lstrip("/")).exists()), None)
    broker = node.unit_file("coldplate-broker.socket")
    if device is None:
        yield BMC.ok("no IPMI device: a node without a controller, or without the module ipmi_devintf")
    elif broker is None and not node.user.overrides:
        remedy = "make install; systemctl enable --now coldplate-broker.socket"
        yield BMC.warn(f"{device} is there, and no broker that the agent could ask for the node's power", remedy)
    else:
        yield BMC.ok(f"{device} is there, for the broker to ask")
