"""What is asked beside the devices, each in a thread of its own, because none of it may keep the answer waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from agent.backends.kmsg import KmsgReader, read_xids
from agent.lib.clock import clock
from agent.lib.http_answers import AnswerBounds
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_outcomes import HttpError
from agent.lib.http_target import HttpTarget
from agent.model import Xid
from agent.wiring.own_agent import OwnAgent

KERNEL_LOG = "/dev/kmsg"
ALERTS = "/api/v1/alerts"
BOUNDS = AnswerBounds(body=16 * 2**20)
AGENT_SECONDS = 0.8
"""Seconds for the agent to answer: it does in a few milliseconds, unless it hangs."""

_Result = TypeVar("_Result")


class Aside(Generic[_Result]):
    """A question whose answer is taken if it comes in time, and left alone if it does not."""

    def __init__(self, ask: Callable[[], _Result]) -> None:
        self._ask = ask
        self._answers: list[_Result] = []
        self._thread = threading.Thread(target=self._run, name="aside", daemon=True)
        self._thread.start()

    def result(self, until: float, late: _Result) -> _Result:
        """The answer, or `late` if there is none by a monotonic second."""
        self._thread.join(max(until - clock().mono, 0.0))
        return self._answers[0] if self._answers else late

    def _run(self) -> None:
        self._answers.append(self._ask())


class AgentAlerts(NamedTuple):
    """The alerts that fire, each by name and severity; None with the reason where no agent told."""

    firing: Sequence[tuple[str, str]] | None
    why: str = ""


def ask_agent(agent: OwnAgent, until: float) -> AgentAlerts:
    """What the agent is alarmed about, by a monotonic second. The first address that answers is believed.

    Alerts of the rack as a whole are left out: they say nothing about this node.
    """
    told = AgentAlerts(None, "no address is configured to listen on")
    for url in agent.urls:
        told = _ask(url, until, agent.login)
        if told.firing is not None:
            break
    return told


def _ask(url: str, until: float, login: Mapping[str, Any]) -> AgentAlerts:
    import msgspec

    try:
        client = HttpClient(HttpTarget(url, **login), BOUNDS, lambda: clock().mono)
        answer = client.exchange(HttpRequest("GET", ALERTS), min(until, clock().mono + AGENT_SECONDS))
        client.close()
        page = msgspec.json.decode(answer.body, type=_AlertsPage)
    except (HttpError, ValueError, RecursionError) as error:
        return AgentAlerts(None, f"{url}: {error}")
    if answer.status != 200:
        return AgentAlerts(None, f"{url}{ALERTS}: HTTP status {answer.status}")
    firing = (alert["labels"] for alert in page["data"]["alerts"] if alert["state"] == "firing")
    of_node = (labels for labels in firing if "rack" not in labels or "instance" in labels)
    return AgentAlerts([(labels.get("alertname", "?"), labels.get("severity", "")) for labels in of_node])


class _AgentAlert(TypedDict):
    labels: dict[str, str]
    state: str


class _AlertsData(TypedDict):
    alerts: list[_AgentAlert]


class _AlertsPage(TypedDict):
    data: _AlertsData


def read_kernel_log() -> tuple[Sequence[Xid] | None, str]:
    """The XIDs since boot, or None and why the kernel log cannot be read."""
    try:
        reader = KmsgReader(KERNEL_LOG, whole=True)
    except OSError as error:
        return None, f"{KERNEL_LOG}: {error.strerror}"
    try:
        return read_xids(reader, clock()), ""
    except OSError as error:
        return None, f"{KERNEL_LOG}: {error.strerror}"
    finally:
        reader.close()
