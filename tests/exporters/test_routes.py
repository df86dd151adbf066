"""What is found at which path."""

import dataclasses
import gc
import gzip
import json
import re
import weakref
from collections import UserDict
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from agent.model import (
    Alert,
    BackendReport,
    Gpu,
    GroupReport,
    Instant,
    Outcome,
    Phase,
    Reading,
    RuleReport,
    Series,
    Snapshot,
)
from exporters.deferred import Deferred
from exporters.endpoint import Endpoint, RouteContext
from exporters.endpoints import ENDPOINTS
from exporters.http_messages import Request, Response
from exporters.routes import Routes
from tests.asking import ask, context
from tests.conftest import FakeClock
from tests.frames import frame_of, snapshot_of


@pytest.fixture
def view(full_snapshot: Snapshot) -> RouteContext:
    ready = (True, "the last sample is fresh")
    return context(full_snapshot, readiness=lambda: ready, clock=lambda: 100.25, node="node-17", version="1.2.3")


def showing(view: RouteContext, latest: Callable[[], Snapshot | None]) -> RouteContext:
    return replace(view, scraped=latest, all_series=latest)


def get(site: Routes, path: str, **headers: str) -> Response:
    return ask(site, Request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()}))


def header(response: Response, name: str) -> str | None:
    return dict(response.headers).get(name)


def test_metrics_are_text_unless_openmetrics_is_requested_at_a_path_of_choice(view: RouteContext) -> None:
    site = Routes(replace(view, telemetry_path="/gpu"))
    plain = get(site, "/gpu")
    assert plain.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert header(plain, "Vary") == "Accept, Accept-Encoding"
    assert b"coldplate_sample_age_seconds 0.25\n" in plain.body
    fancy = get(site, "/gpu", accept="application/openmetrics-text;version=1.0.0")
    assert fancy.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert list(parse_openmetrics(fancy.body.decode()))
    answer = get(site, "/metrics")
    assert answer.status == 404
    assert b"/gpu" in answer.body
    assert b'href="/gpu"' in get(site, "/").body
    assert b"# TYPE" in get(Routes(replace(view, telemetry_path="/")), "/").body


PAGES = ("/", "/metrics", "/api/v1/snapshot", "/api/v1/alerts", "/api/v1/rules")
RULES = (GroupReport("thermal", "/etc/a.yml", 15.0, rules=(RuleReport("GpuHot", True, "t > 90"),)),)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_the_same_bytes_for_all_and_compressed_for_those_who_accept_it(view: RouteContext, path: str) -> None:
    site = Routes(replace(view, rules=lambda: (*RULES,)))
    packed, plain = get(site, path, accept_encoding="gzip"), get(site, path)
    assert header(packed, "Content-Encoding") == "gzip"
    assert header(plain, "Content-Encoding") is None
    assert "Accept-Encoding" in str(header(plain, "Vary"))
    assert header(plain, "Vary") == header(packed, "Vary")
    assert gzip.decompress(packed.body) == plain.body
    assert packed.content_type == plain.content_type
    assert get(site, path, accept_encoding="gzip").body is packed.body
    assert get(site, path, accept_encoding="identity").body is plain.body


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/snapshot"])
def test_a_new_snapshot_is_shown_at_once_even_if_it_has_the_same_number(
    view: RouteContext, full_snapshot: Snapshot, path: str
) -> None:
    held = [full_snapshot]
    site = Routes(showing(view, lambda: held[0]))
    before = get(site, path).body
    held[0] = dataclasses.replace(full_snapshot, frames=(frame_of(full_snapshot.readings[:-1]),))
    assert get(site, path).body != before


def test_the_age_grows_while_the_sampler_is_stuck(view: RouteContext, clock: FakeClock) -> None:
    site = Routes(replace(view, clock=clock))
    ages, told = [], []
    for clock.now in (100.25, 101.0, 101.5, 107.0):
        page = get(site, "/metrics").body
        assert gzip.decompress(get(site, "/metrics", accept_encoding="gzip").body) == page
        (line,) = [line for line in page.splitlines() if line.startswith(b"coldplate_sample_age_seconds ")]
        ages.append(float(line.split()[1]))
        told.append(json.loads(get(site, "/api/v1/snapshot").body)["data"]["age"])
    assert ages == told == [0.25, 0.25, 1.5, 7.0]  # at 101.0 the page is still within its second


def test_rules_are_sent_again_when_one_was_evaluated(view: RouteContext) -> None:
    def rule(name: str) -> RuleReport:
        alert = Alert(name, (), Phase.FIRING, 1.0, 0.0, annotations={"of": name})
        return RuleReport(name, True, "x", alerts=(alert,))

    groups = [GroupReport("g", "f", 1.0, rules=(rule("a"),)), GroupReport("h", "f", 1.0, rules=(rule("c"),))]
    site = Routes(replace(view, rules=lambda: tuple(groups)))
    for path in ("/api/v1/rules", "/api/v1/alerts"):
        assert b'"of":"c"' in get(site, path).body
    groups[1] = GroupReport("h", "f", 1.0, rules=(rule("d"),))
    assert b'"name":"d"' in get(site, "/api/v1/rules").body
    assert b'"of":"d"' in get(site, "/api/v1/alerts").body
    assert b'"of":"c"' not in get(site, "/api/v1/alerts").body


def test_what_is_no_longer_requested_is_not_kept(view: RouteContext, clock: FakeClock) -> None:
    """Neither pages nor what they were made of: on the largest node they are megabytes."""

    class Watched(UserDict[str, str]):
        """Annotations that can be seen to go."""

    def evaluated() -> GroupReport:
        alert = Alert("a", (), Phase.FIRING, 1.0, 0.0, annotations=Watched())
        watched.append(weakref.ref(cast("Watched", alert.annotations)))
        return GroupReport("g", "f", 1.0, rules=(RuleReport("a", True, "x", alerts=(alert,)),))

    watched: list[weakref.ref[Watched]] = []
    groups = [evaluated()]
    site = Routes(replace(view, clock=clock, rules=lambda: tuple(groups)))
    for _ in range(5):
        get(site, "/api/v1/rules")
        groups[0] = evaluated()
    gc.collect()
    assert [each() is None for each in watched] == [True] * 4 + [False] * 2  # one is on the page, and one is the newest
    groups.clear()
    clock.now += 30.0
    get(site, "/")
    gc.collect()
    assert [each() is None for each in watched] == [True] * 6


def test_before_the_first_sample_metrics_and_snapshot_say_so(view: RouteContext) -> None:
    site = Routes(showing(view, lambda: None))
    answer = get(site, "/metrics")
    assert (answer.status, answer.content_type) == (503, "text/plain; charset=utf-8")
    assert b"no sample yet" in answer.body
    answer = get(site, "/api/v1/snapshot")
    assert answer.status == 503
    assert json.loads(answer.body)["status"] == "error"
    assert get(site, "/").status == 200


@pytest.mark.parametrize(
    "path",
    ["metrics", "", "/-/healthy", "/api/v1/snapshot", "/api/v1/alerts", "/api/v1/rules", "/runbooks", "/runbooks/",
     "/runbooks/GpuLost", "/runbooks/metrics"],
)  # fmt: skip
def test_an_impossible_telemetry_path_is_refused(view: RouteContext, path: str) -> None:
    with pytest.raises(ValueError, match="telemetry path"):
        Routes(replace(view, telemetry_path=path))


def test_healthy_means_alive_and_ready_means_fresh(view: RouteContext) -> None:
    stale = Routes(replace(view, readiness=lambda: (False, "the last sample is 12 s old")))
    assert get(stale, "/-/healthy").status == 200
    answer = get(stale, "/-/ready")
    assert (answer.status, answer.body) == (503, b"the last sample is 12 s old\n")
    assert get(Routes(view), "/-/ready").status == 200


RELOAD = Request("POST", "/-/reload")


def told(answer: Response | Deferred) -> tuple[int, bytes] | None:
    """The answer to a request for a reload, once there is one."""
    response = answer.response if isinstance(answer, Deferred) else answer
    return None if response is None else (int(response.status), response.body)


def test_who_asks_for_a_reload_is_told_how_that_one_went(view: RouteContext) -> None:
    begun: list[Callable[[bool, str], None]] = []
    site = Routes(replace(view, reload=begun.append))
    answers = [site(Request(method, "/-/reload")) for method in ("POST", "PUT", "POST")]
    begun[0](True, "one")
    begun[2](False, "no such file")
    assert [told(each) for each in answers] == [(200, b"one\n"), None, (500, b"no such file\n")]
    status, text = told(Routes(view)(RELOAD))
    assert (status, b"SIGHUP" in text) == (403, True), "where it is not enabled"


def test_only_so_many_wait_for_a_reload_and_those_who_hung_up_do_not_count(view: RouteContext) -> None:
    begun: list[Callable[[bool, str], None]] = []
    site = Routes(replace(view, reload=begun.append))
    waiting = [site(RELOAD) for _ in range(40)]
    assert [each.status for each in waiting if isinstance(each, Response)] == [503] * 24
    for _ in range(1000):  # while one hangs
        for each in waiting:
            if isinstance(each, Deferred):
                each.abandoned = True
        waiting = [site(RELOAD)]
    assert len(begun) == 256
    for tell in begun:
        tell(True, "at last")
    assert told(site(RELOAD)) is None


@pytest.mark.parametrize("header", ["origin", "sec-fetch-site"])
def test_what_a_page_in_a_browser_sends_changes_nothing(view: RouteContext, header: str) -> None:
    assert [each.path for each in ENDPOINTS if set(each.methods) - {"GET", "HEAD"}] == ["/-/reload"]
    begun: list[object] = []
    site = Routes(replace(view, reload=begun.append))
    for method in ("POST", "PUT"):
        for value in ("null", "http://node-1:19400", "same-origin"):
            refused = ask(site, Request(method, "/-/reload", headers={header: value, "host": "node-1:19400"}))
            assert (refused.status, begun) == (403, [])
    assert get(site, "/metrics", **{header: "http://elsewhere.example"}).status == 200


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("OPTIONS", "/-/healthy", "GET, HEAD"),
        ("POST", "/runbooks/GpuLost", "GET, HEAD"),
        ("GET", "/-/reload", "POST, PUT"),
        ("HEAD", "/-/reload", "POST, PUT"),
    ],
)
def test_a_wrong_method_is_answered_with_the_right_ones(view: RouteContext, method: str, path: str, allow: str) -> None:
    answer = ask(Routes(replace(view, runbooks={"GpuLost": "# It"})), Request(method, path))
    assert (answer.status, header(answer, "Allow")) == (HTTPStatus.METHOD_NOT_ALLOWED, allow)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: each.path)
def test_every_endpoint_answers_and_is_documented(view: RouteContext, endpoint: Endpoint) -> None:
    site = Routes(replace(view, rack=lambda: b"{}", history=lambda: ()))
    assert ask(site, Request(endpoint.methods[0], endpoint.path)).status not in (404, 405)
    table = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
    methods = ", ".join(each for each in endpoint.methods if each != "HEAD")
    assert re.search(rf"(?m)^\| `{re.escape(endpoint.path)}`(, `.*`)? \| {methods} \|", table)


@pytest.mark.parametrize(
    "path", ["/favicon.ico", "/%6detrics", "/-/../metrics", "//metrics", "/metrics/", "/metrics%00", "*", "/METRICS"]
)
def test_an_unknown_path_is_answered_with_where_things_are_and_none_is_decoded(view: RouteContext, path: str) -> None:
    answer = get(Routes(view), path)
    assert answer.status == 404
    assert b"/metrics" in answer.body


def test_the_snapshot_as_json_holds_everything(view: RouteContext, full_snapshot: Snapshot) -> None:
    answer = get(Routes(view), "/api/v1/snapshot")
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


def test_the_landing_page_says_what_the_node_is_and_lists_the_described_pages(view: RouteContext) -> None:
    answer = get(Routes(view), "/")
    page = answer.body.decode()
    assert answer.content_type == "text/html; charset=utf-8"
    for piece in ("coldplate", "1.2.3", "node-17", "nvml", "infiniband", "absent", "0.2 s", "of 1 answer"):
        assert piece in page
    assert 'role="alert">Synthetic devices, scenario some scenario' in page, "as the sample says, of a replay, too"
    listed = re.findall(r'<li><a href="(.*?)">', page.partition('<ul class="pages">')[2])
    assert listed == ["/metrics", *(each.path for each in ENDPOINTS if each.description)]
    drill = get(Routes(replace(view, synthetic="lost-gpu")), "/").body.decode()
    assert 'role="alert">Synthetic devices, scenario lost-gpu' in drill
    assert "Synthetic devices" not in get(Routes(replace(view, all_series=lambda: None)), "/").body.decode()


def test_the_landing_page_shows_zero_as_zero_and_absent_as_absent(view: RouteContext, full_snapshot: Snapshot) -> None:
    series = {each.metric.name: each.series for each in full_snapshot.readings}
    readings = (Reading(series["coldplate_gpu_up"], 0), Reading(series["coldplate_gpu_power_watts"], 0.0))
    page = get(Routes(showing(view, lambda: snapshot_of(1, Instant(100.0, 0.0), readings))), "/").body.decode()
    assert "0 of 1 answer" in page
    assert "? no answer" in page
    assert '<td data-h="Power" class="n">0 W</td>' in page
    assert page.count('class="n">–</td>') == 5


def test_nothing_from_a_device_a_configuration_or_a_rule_becomes_markup(
    view: RouteContext, full_snapshot: Snapshot
) -> None:
    nasty = "<script>alert('x')</script>"
    reports = (BackendReport(nasty, Outcome.FAILED, 0.1, detail=nasty),)
    info = next(each for each in full_snapshot.readings if each.metric.name == "coldplate_gpu_info").metric
    readings = (Reading(Series(info, Gpu(nasty, nasty), (("model", nasty),)), 1),)
    snapshot = snapshot_of(1, Instant(100.0, 0.0), readings, reports)
    labels = tuple((name, nasty) for name in ("alertname", "gpu", "severity", nasty))
    alert = Alert(nasty, labels, Phase.FIRING, 1.0, 0.0, annotations={"summary": nasty})
    groups = (GroupReport("g", "f", 1.0, rules=(RuleReport(nasty, True, "x", alerts=(alert,)),)),)
    site = Routes(replace(
        showing(view, lambda: snapshot), readiness=lambda: (False, nasty), node=nasty, version=nasty, synthetic=nasty,
        telemetry_path=f"/{nasty}", rules=lambda: groups,
    ))  # fmt: skip
    page = get(site, "/").body.decode()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 15
