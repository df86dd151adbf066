"""The endpoints in JSON: rules and alerts as in Prometheus's own API, the last sample, the last minutes, the rack."""

from http import HTTPStatus

from agent.health.device_facts import devices_not_of_node
from agent.health.ledger_states import main_states
from exporters import rules_json, snapshot_json
from exporters.deferred import Answer
from exporters.endpoint import JSON, NO_SAMPLE_YET, Endpoint, EndpointContext, failure
from exporters.http_messages import Request, Response
from exporters.pages import AGELESS_SECONDS, PageSource, age_of


def _alerts(context: EndpointContext, request: Request) -> Answer:
    groups, snapshot = context.view.rules(), context.view.all_series()
    devices = "" if snapshot is None else devices_not_of_node(snapshot)
    source = PageSource(
        "alerts", devices, groups, lambda _: rules_json.alerts(groups, devices), JSON, lifetime=AGELESS_SECONDS
    )
    return context.pages.get(source, request)


def _rules(context: EndpointContext, request: Request) -> Answer:
    try:
        selection = rules_json.selection_of(request.query)
    except rules_json.ParameterError as error:
        return failure(HTTPStatus.BAD_REQUEST, "bad_data", str(error))
    groups = context.view.rules()
    source = PageSource(
        "rules", selection, groups, lambda _: rules_json.rules(groups, selection), JSON, lifetime=AGELESS_SECONDS
    )
    return context.pages.get(source, request)


def _snapshot(context: EndpointContext, request: Request) -> Answer:
    snapshot = context.view.all_series()
    if snapshot is None:
        return failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", NO_SAMPLE_YET)

    def render(now: float) -> bytes:
        view = context.view
        return snapshot_json.success(snapshot, age_of(snapshot, now), view.node_name, main_states(view.ledger()))

    return context.pages.get(PageSource("snapshot", None, (snapshot,), render, JSON), request)


def _history(context: EndpointContext, request: Request) -> Answer:
    view = context.view
    snapshot = view.all_series()
    if snapshot is None:
        return failure(HTTPStatus.NOT_FOUND, "not_found", "nothing is remembered here")
    source = PageSource(
        "history", None, (snapshot,), lambda _: snapshot_json.past(view.history()), JSON, lifetime=AGELESS_SECONDS
    )
    return context.pages.get(source, request)


def _rack(context: EndpointContext, _request: Request) -> Answer:
    answer = context.view.rack()
    if answer is None:
        return failure(HTTPStatus.NOT_FOUND, "not_found", "no rack is configured here: set rack.name")
    return Response(HTTPStatus.OK, answer, JSON)


ALERTS = Endpoint("/api/v1/alerts", _alerts, description="pending and firing alerts, in Prometheus's JSON")
RULES = Endpoint(
    "/api/v1/rules", _rules, description="rules and the result of their last evaluation, in Prometheus's JSON"
)
SNAPSHOT = Endpoint(
    "/api/v1/snapshot", _snapshot, description="the last sample as JSON, with the reason for each missing metric"
)
HISTORY = Endpoint("/api/v1/history", _history)
"""The last minutes of the metrics that a viewer draws."""
RACK = Endpoint("/api/v1/rack", _rack)
"""For the agents of the rack's other nodes."""
