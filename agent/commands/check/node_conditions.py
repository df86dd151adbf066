"""The conditions of the node for `coldplate check`: those of its agent, else the configured rules over one sample."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.config.schema import Config
from agent.health.conditions import counts_now, order_of
from agent.health.evaluated_rules import NO_RULES
from agent.health.seen_node import SeenGpu, name_of
from agent.health.verdicts import HealthFinding, Verdict
from agent.lib.clock import clock
from agent.lib.http_answers import AnswerBounds, HttpError
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.lib.wording import UserError
from agent.model import Alert, Severity, Snapshot
from agent.wiring.agent_client import AlertsResponse, read_alerts
from agent.wiring.identity import OwnAgent

ALERTS = "/api/v1/alerts"
BOUNDS = AnswerBounds(body=16 * 2**20)
AGENT_SECONDS = 0.8
"""Seconds for the agent to answer: it does in a few milliseconds, unless it hangs."""
VERDICTS = {Severity.CRITICAL: Verdict.CRITICAL, Severity.WARNING: Verdict.WARNING}
"""Of alerts; information does not count."""
NO_ALERT = "no alert is firing"
_DEVICES = {"synthetic": "synthetic", "replay": "replayed", "trace": "replayed"}
"""What an agent says of its devices, by the devices of the configuration."""


class NodeConditions(Struct, frozen=True):
    """The alerts that fire and are of the node.

    `firing`: None where no rule was evaluated. `reason` says why not all rules were, and is empty where none is to be.
    `note` limits them. `looking_back` names the rules whose texts may speak of minutes, and that saw one sample.
    """

    firing: Sequence[Alert] | None = None
    reason: str = ""
    note: str = ""
    looking_back: frozenset[str] = frozenset()


class AgentAnswer(Struct, frozen=True):
    """The agent's conditions: None with the `reason` if they cannot be used. `answered`: it is up."""

    firing: Sequence[Alert] | None = None
    reason: str = ""
    answered: bool = False


def query_agent(agent: OwnAgent, devices: str, until: float) -> AgentAnswer:
    """Return what the agent is alarmed about, by a monotonic second. The first address that answers is believed.

    The alerts of an agent with other devices than `devices`, those of the configuration, say nothing about this node.
    """
    answer = AgentAnswer(reason="no address is configured to listen on")
    for url in agent.urls:
        answer = _query(url, agent.login, devices, until)
        if answer.answered:
            break
    return answer


def _query(url: str, login: Mapping[str, Any], devices: str, until: float) -> AgentAnswer:
    try:
        with contextlib.closing(HttpClient(HttpTarget(url, **login), BOUNDS, lambda: clock().mono)) as client:
            answer = client.exchange(HttpRequest("GET", ALERTS), min(until, clock().mono + AGENT_SECONDS))
        if answer.status != 200:
            return AgentAnswer(reason=f"{url}{ALERTS}: HTTP status {answer.status}")
        response = read_alerts(answer.body)
    except (HttpError, ValueError) as error:
        return AgentAnswer(reason=f"{url}: {error}")
    reason = _why_foreign(response, devices) or response.why_unjudged(clock().wall)
    return (
        AgentAnswer(reason=f"{url}: {reason}", answered=True)
        if reason
        else AgentAnswer(of_node(response.alerts), "", True)
    )


def _why_foreign(response: AlertsResponse, devices: str) -> str:
    """Return why an agent's alerts are about other devices than those of the configuration; empty if they are not."""
    if response.devices == _DEVICES.get(devices, ""):
        return ""
    return f"the agent has {response.devices or 'real'} devices, and its alerts are not about those that are checked"


def of_node(alerts: Iterable[Alert]) -> list[Alert]:
    """Return the alerts that count: they fire, are no effects of others, and are not of the rack as a whole."""
    return [alert for alert in alerts if counts_now(alert) and _is_of_node(alert)]


def _is_of_node(alert: Alert) -> bool:
    names = {name for name, _ in alert.labels}
    return "rack" not in names or "instance" in names


class OneSampleRules:
    """The configured rules for one sample. Loading them takes some tenths of a second, in any thread."""

    def __init__(self, config: Config, folder: Path) -> None:
        from agent.wiring.alerting import (
            load_rules,  # loads all of PromQL, which a check beside an agent can do without
        )
        from alerts.one_sample import for_one_sample, looking_back
        from alerts.rule_inputs import alerting_rules

        self._config = config
        self.problem = ""
        try:
            rules = load_rules(config, folder)
        except UserError as error:
            self.problem = f"the rules cannot be used: {error}"
            return
        self._rules = for_one_sample(rules)
        self._count, self._looking_back = sum(1 for _ in alerting_rules(self._rules)), looking_back(self._rules)

    def evaluate(self, snapshot: Snapshot) -> NodeConditions:
        """Return the conditions of a snapshot, each `for` counted as 0."""
        from agent.wiring.local_rules import LocalRules

        if self.problem:
            return NodeConditions(reason=self.problem)
        if not self._count:
            return NodeConditions()
        alerts = LocalRules(self._config, self._rules, snapshot.at).evaluate(snapshot, snapshot.at)
        count = len(self._looking_back)
        note = f"one sample: {count} of {self._count} alert rules look back further, and may miss a fault"
        names = frozenset(rule.name for rule in self._looking_back)
        return NodeConditions(of_node(alerts), note=note, looking_back=names)


def condition_findings(conditions: NodeConditions, gpus: Iterable[SeenGpu] = ()) -> list[HealthFinding]:
    """Return one finding for each rule that fires with a severity that counts, the worst first, by the rule's name.

    `gpus` says where those are that an alert names.
    """
    if conditions.firing is None and not conditions.reason:
        return [HealthFinding(Verdict.SKIPPED, NO_ALERT, NO_RULES, name="alerts")]
    by_rule: dict[tuple[str, Verdict], list[Alert]] = {}
    for alert in sorted(conditions.firing or (), key=order_of):
        if alert.severity in VERDICTS:
            by_rule.setdefault((alert.rule, VERDICTS[alert.severity]), []).append(alert)
    places = {gpu.gpu.uuid: f"{name_of(gpu.gpu)}: {' '.join(gpu.place)}" for gpu in gpus if gpu.place}
    findings = [
        HealthFinding(
            verdict, NO_ALERT, _summary_of(alerts, rule in conditions.looking_back), _remedy_of(alerts, places), rule
        )
        for (rule, verdict), alerts in by_rule.items()
    ]
    if conditions.reason:
        remedy = "coldplate rules check shows the rules; /-/ready of the agent shows what stands still"
        findings.append(HealthFinding(Verdict.UNKNOWN, NO_ALERT, conditions.reason, remedy, "alerts"))
    return findings or [HealthFinding(Verdict.OK, NO_ALERT, "none", name="alerts")]


def _remedy_of(alerts: Sequence[Alert], places: Mapping[str, str]) -> str:
    """Return the description of the first of these alerts of one rule, and where the GPUs are that they name."""
    annotations, rule = alerts[0].annotations, alerts[0].rule
    last_resort = f"do what the runbook of {rule} says" if "runbook_url" in annotations else f"see the rule {rule}"
    text = annotations.get("description", last_resort).rstrip(".")
    uuids = dict.fromkeys(dict(alert.labels).get("uuid", "") for alert in alerts)
    return "; ".join([text, *(places[uuid] for uuid in uuids if uuid in places)])


def _summary_of(alerts: Sequence[Alert], saw_less: bool) -> str:
    """Return the summary of the first of these alerts of one rule, and how many more there are.

    `saw_less`: the rule saw one sample, though its text may speak of minutes.
    """
    more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
    limit = "by one sample: " if saw_less else ""  # first: the first line of the output cuts long texts
    return f"{limit}{alerts[0].annotations.get('summary', 'firing')}{more}"
