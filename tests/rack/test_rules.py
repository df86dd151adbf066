"""Rules see the other nodes' series beside this one's, as a server would, and the endpoint tells peers of this one."""

import json
from http import HTTPStatus

from agent.catalogue.node import NODE_POWER
from agent.model import Instant, Node, Reading, Series
from alerts import rulefile
from alerts.engine import RuleEngine, Ruleset
from exporters.http_messages import Request, Response
from exporters.routes import Routes, is_reserved
from tests.asking import context
from tests.frames import snapshot_of

TARGET = (("instance", "n1:19400"), ("job", "coldplate"))
OWN = Series(NODE_POWER, Node(), (("source", "ipmi"),))
PEER = Series(NODE_POWER, Node(), (("source", "ipmi"), ("instance", "n2:19400"), ("job", "coldplate")))
NAMESAKE = Series(NODE_POWER, Node(), (("source", "ipmi"), *TARGET))
RULES = """
groups:
- name: g
  rules:
  - {alert: Sum, expr: sum(coldplate_node_power_watts) > 0}
  - {alert: Each, expr: coldplate_node_power_watts > 0}
  - {alert: Second, expr: 'max_over_time(coldplate_node_power_watts{instance="n2:19400"}[5s]) > 0'}
"""


def firing(engine: RuleEngine) -> dict[tuple[str, str], float]:
    alerts = [alert for _, group in engine.groups() for alert in group.firing()]
    return {(alert.rule, dict(alert.labels).get("instance", "")): alert.value for alert in alerts}


def test_rules_see_peers_under_their_own_instance_until_they_fall_silent() -> None:
    engine = RuleEngine(Ruleset((rulefile.parse(RULES, "r.yml"),)), TARGET, Instant(0.0, 1000.0))

    def play(second: float, *foreign: Reading) -> dict[tuple[str, str], float]:
        now = Instant(second, 1000.0 + second)
        engine.round(snapshot_of(1, now, (Reading(OWN, 500.0),)), now, foreign)
        return firing(engine)

    both = {("Sum", ""): 800.0, ("Each", "n1:19400"): 500.0, ("Each", "n2:19400"): 300.0, ("Second", "n2:19400"): 300.0}
    assert play(1.0, Reading(PEER, 300.0)) == both
    assert play(2.0, Reading(PEER, 300.0)) == both
    gone = play(3.0)
    assert gone == {("Sum", ""): 500.0, ("Each", "n1:19400"): 500.0, ("Second", "n2:19400"): 300.0}
    assert ("Second", "n2:19400") not in play(8.0)
    assert play(9.0, Reading(PEER, 300.0)) == both
    engine = RuleEngine(Ruleset((rulefile.parse(RULES, "r.yml"),)), TARGET, Instant(0.0, 1000.0))
    assert play(1.0, Reading(NAMESAKE, 9.0))["Sum", ""] == 500.0


def ask(told: bytes | None) -> Response:
    answer = Routes(context(rack=lambda: told))(Request("GET", "/api/v1/rack"))
    assert isinstance(answer, Response)
    return answer


def test_the_endpoint_says_what_to_configure_without_a_rack() -> None:
    assert is_reserved("/api/v1/rack")
    answer = ask(b'{"version":1}\n')
    assert (answer.status, answer.body, answer.content_type) == (HTTPStatus.OK, b'{"version":1}\n', "application/json")
    answer = ask(None)
    assert answer.status is HTTPStatus.NOT_FOUND
    assert "set rack.name" in json.loads(answer.body)["error"]
