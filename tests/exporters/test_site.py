"""What is found at which path."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from agent.model import BackendReport, Gpu, Instant, Outcome, Reading, Series, Snapshot
from exporters import landing
from exporters.site import Site, View
from exporters.wire import Request, Response


@pytest.fixture
def view(full_snapshot: Snapshot) -> View:
    return View(
        latest=lambda: full_snapshot,
        readiness=lambda: (True, "the last sample is fresh"),
        clock=lambda: 100.25,
        node="node-17",
        version="1.2.3",
    )


def get(site: Site, path: str, **headers: str) -> Response:
    return site(Request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()}))


def header(response: Response, name: str) -> str | None:
    return dict(response.headers).get(name)


def test_metrics_are_text_unless_openmetrics_is_asked_for(view: View) -> None:
    site = Site(view)
    plain = get(site, "/metrics")
    assert plain.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert header(plain, "Vary") == "Accept, Accept-Encoding"
    assert b"coldplate_sample_age_seconds 0.25\n" in plain.body
    fancy = get(site, "/metrics", accept="application/openmetrics-text;version=1.0.0")
    assert fancy.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert list(parse_openmetrics(fancy.body.decode()))


def test_metrics_are_compressed_for_those_who_accept_it(view: View) -> None:
    site = Site(view)
    packed = get(site, "/metrics", accept_encoding="gzip")
    assert header(packed, "Content-Encoding") == "gzip"
    plain = get(site, "/metrics", accept_encoding="gzip;q=0")
    assert header(plain, "Content-Encoding") is None
    assert gzip.decompress(packed.body) == plain.body


def test_all_clients_share_one_page(view: View) -> None:
    site = Site(view)
    assert get(site, "/metrics").body is get(site, "/metrics").body


def test_before_the_first_sample_metrics_and_snapshot_say_so(view: View) -> None:
    site = Site(replace(view, latest=lambda: None))
    answer = get(site, "/metrics")
    assert (answer.status, answer.content_type) == (503, "text/plain; charset=utf-8")
    assert b"no sample yet" in answer.body
    answer = get(site, "/api/v1/snapshot")
    assert answer.status == 503
    assert json.loads(answer.body)["status"] == "error"
    assert get(site, "/").status == 200


def test_the_telemetry_path_can_be_chosen(view: View) -> None:
    site = Site(replace(view, telemetry_path="/gpu"))
    assert get(site, "/gpu").status == 200
    answer = get(site, "/metrics")
    assert answer.status == 404
    assert b"/gpu" in answer.body
    assert b'href="/gpu"' in get(site, "/").body


def test_the_telemetry_path_may_be_the_root(view: View) -> None:
    assert b"# TYPE" in get(Site(replace(view, telemetry_path="/")), "/").body


@pytest.mark.parametrize("path", ["metrics", "", "/-/healthy", "/api/v1/snapshot", "/api/v1/alerts", "/api/v1/rules"])
def test_an_impossible_telemetry_path_is_refused(view: View, path: str) -> None:
    with pytest.raises(ValueError, match="telemetry path"):
        Site(replace(view, telemetry_path=path))


def test_healthy_means_alive_and_ready_means_fresh(view: View) -> None:
    stale = Site(replace(view, readiness=lambda: (False, "the last sample is 12 s old")))
    assert get(stale, "/-/healthy").status == 200
    answer = get(stale, "/-/ready")
    assert (answer.status, answer.body) == (503, b"the last sample is 12 s old\n")
    assert get(Site(view), "/-/ready").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize(
    ("reload", "status", "text"),
    [
        (None, 403, b"SIGHUP"),
        (lambda: (True, "reloaded"), 200, b"reloaded"),
        (lambda: (False, "line 3: unknown key"), 500, b"line 3: unknown key"),
    ],
)
def test_reload(
    view: View, method: str, reload: Callable[[], tuple[bool, str]] | None, status: int, text: bytes
) -> None:
    answer = Site(replace(view, reload=reload))(Request(method, "/-/reload"))
    assert answer.status == status
    assert text in answer.body


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("OPTIONS", "/-/healthy", "GET, HEAD"),
        ("GET", "/-/reload", "POST, PUT"),
        ("HEAD", "/-/reload", "POST, PUT"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(view: View, method: str, path: str, allow: str) -> None:
    answer = Site(view)(Request(method, path))
    assert (answer.status, header(answer, "Allow")) == (HTTPStatus.METHOD_NOT_ALLOWED, allow)


def test_an_unknown_path_is_told_where_things_are(view: View) -> None:
    answer = get(Site(view), "/favicon.ico")
    assert answer.status == 404
    assert b"/metrics" in answer.body


def test_the_snapshot_as_json_holds_everything(view: View, full_snapshot: Snapshot) -> None:
    answer = get(Site(view), "/api/v1/snapshot")
    assert answer.content_type == "application/json"
    content = json.loads(answer.body)
    assert content["status"] == "success"
    data = content["data"]
    assert (data["sequence"], data["timestamp"], data["monotonic"], data["age"]) == (7, 1_700_000_000.0, 100.0, 0.25)
    assert len(data["readings"]) == len(full_snapshot.readings)
    power = next(each for each in data["readings"] if each["metric"] == "coldplate_gpu_power_watts")
    assert (power["unit"], power["value"], power["labels"]["gpu"]) == ("watts", 0.0, "0")
    assert [each["outcome"] for each in data["reports"]] == ["ok", "absent"]
    (gap,) = data["gaps"]
    assert gap["metric"] == "coldplate_gpu_sm_active_ratio"
    assert (gap["backend"], gap["reason"], gap["detail"]) == ("nvml", "unsupported", "GPM: not supported")


def test_the_landing_page_says_what_the_node_is_and_samples(view: View) -> None:
    answer = get(Site(view), "/")
    page = answer.body.decode()
    assert answer.content_type == "text/html; charset=utf-8"
    for piece in ("coldplate", "1.2.3", "node-17", "nvml", "infiniband", "absent", "0.2 s", 'href="/metrics"'):
        assert piece in page
    assert "of 1 answer" in page
    assert 'role="alert"' not in page


def test_the_landing_page_shouts_when_the_devices_are_synthetic(view: View) -> None:
    page = get(Site(replace(view, synthetic="lost-gpu")), "/").body.decode()
    assert 'role="alert">Synthetic devices, scenario lost-gpu' in page


def test_the_landing_page_shows_zero_as_zero_and_absent_as_absent(view: View, full_snapshot: Snapshot) -> None:
    series = {each.metric.name: each.series for each in full_snapshot.readings}
    readings = (
        Reading(series["coldplate_gpu_up"], 0),
        Reading(series["coldplate_gpu_power_watts"], 0.0),
    )
    page = get(Site(replace(view, latest=lambda: Snapshot(1, Instant(100.0, 0.0), readings))), "/").body.decode()
    assert "0 of 1 answer" in page
    assert '<span class="bad">no</span>' in page
    assert '<td class="n">0 W</td>' in page
    assert page.count('<td class="n">–</td>') == 3


def test_nothing_from_a_device_or_a_configuration_becomes_markup(view: View, full_snapshot: Snapshot) -> None:
    nasty = "<script>alert('x')</script>"
    reports = (BackendReport(nasty, Outcome.FAILED, 0.1, detail=nasty),)
    info = next(each for each in full_snapshot.readings if each.metric.name == "coldplate_gpu_info").metric
    readings = (Reading(Series(info, Gpu(nasty, nasty), (("model", nasty),)), 1),)
    snapshot = Snapshot(1, Instant(100.0, 0.0), readings, reports)
    site = Site(
        replace(
            view,
            latest=lambda: snapshot,
            readiness=lambda: (False, nasty),
            node=nasty,
            version=nasty,
            synthetic=nasty,
            telemetry_path=f"/{nasty}",
        )
    )
    page = get(site, "/").body.decode()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 8


def test_the_policy_lets_the_page_have_its_own_style_and_nothing_else(view: View) -> None:
    answer = get(Site(view), "/")
    digest = base64.b64encode(hashlib.sha256(landing.STYLE.encode()).digest()).decode()
    policy = header(answer, "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"style-src 'sha256-{digest}'" in policy, f"set STYLE_HASH to sha256-{digest}"
    assert answer.body.decode().count("<style>") == 1
    assert 'style="' not in answer.body.decode()
