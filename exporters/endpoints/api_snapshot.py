"""`/api/v1/snapshot`: the last sample as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from exporters import snapshot_json
from exporters.deferred import Answer
from exporters.endpoint import JSON, NO_SAMPLE_YET, VARY_BY_ENCODING, Endpoint, EndpointContext, failure
from exporters.http_messages import Request
from exporters.pages import Rendering, age_of


def _snapshot(context: EndpointContext, request: Request) -> Answer:
    snapshot = context.view.all_series()
    if snapshot is None:
        return failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", NO_SAMPLE_YET)

    def pieces(now: float) -> Iterator[bytes]:
        return snapshot_json.success(snapshot, age_of(snapshot, now))

    return context.page(request, Rendering("snapshot", None, (snapshot,), pieces), JSON, VARY_BY_ENCODING)


ENDPOINT = Endpoint(
    "/api/v1/snapshot", _snapshot, description="the last sample as JSON, with the reason for each missing metric"
)
