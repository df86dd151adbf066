"""The neighbours' names on the daemon's page: after ours, in both formats, of all that is sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from agent.config.reading import parse
from agent.daemon.hub import Hub
from agent.model import Instant, Snapshot
from agent.wiring.start_checks import check
from agent.wiring.web_serving import Exposed, neighbours_of
from exporters.encoder import Encoder, Format
from exporters.http_messages import Request
from exporters.routes import Routes
from tests.asking import ask, context
from tests.exporters.conftest import lint, one_of_each_row
from tests.frames import snapshot_of

__all__ = ["lint"]  # a fixture

SNAPSHOT = snapshot_of(1, Instant(100.0, 1.7e9), one_of_each_row())
LEAN = (
    "{node: {name: node-1}, metrics: {profile: none, include: [coldplate_gpu_up], compatibility: [dcgm, nvidia_smi]}}"
)


def exposed(text: str, snapshot: Snapshot | None = SNAPSHOT) -> Exposed:
    config, hub = parse(text, "c.yaml"), Hub()
    hub.latest = snapshot
    return Exposed(hub, check(config), neighbours_of(config))


def names(snapshot: Snapshot | None) -> set[str]:
    assert snapshot is not None
    return {each.metric.name for each in snapshot}


def test_what_a_page_leaves_out_of_ours_is_there_under_their_names() -> None:
    view = exposed(LEAN)
    assert names(view.latest()) == {"coldplate_gpu_up"}
    assert {"coldplate_gpu_up", "DCGM_FI_DEV_GPU_TEMP", "nvidia_smi_temperature_gpu"} <= names(view.scraped())
    assert view.scraped() is view.scraped()


def test_without_a_profile_the_page_is_the_selection_itself() -> None:
    view = exposed("{}")
    assert view.neighbours is None
    assert view.scraped() is view.latest()
    view.observe(SNAPSHOT)


def test_the_neighbours_alone_can_be_served() -> None:
    view = exposed("{metrics: {profile: none, compatibility: [dcgm]}}")
    assert {each.split("_")[0] for each in names(view.scraped())} == {"DCGM"}


def test_before_the_first_sample_there_is_no_page() -> None:
    assert exposed(LEAN, None).scraped() is None


def test_another_translation_is_in_force_at_once() -> None:
    view = exposed(LEAN)
    assert "DCGM_FI_DEV_GPU_TEMP" in names(view.scraped())
    view.neighbours = exposed(LEAN.replace("dcgm, ", "")).neighbours
    assert "DCGM_FI_DEV_GPU_TEMP" not in names(view.scraped())
    assert "nvidia_smi_temperature_gpu" in names(view.scraped())


def test_the_site_serves_them_to_scrapers_and_not_as_json() -> None:
    view = exposed(LEAN)
    site = Routes(context(view.latest(), scraped=view.scraped))
    page = ask(site, Request("GET", "/metrics")).body.decode()
    assert page.index("coldplate_gpu_up{") < page.index("# TYPE DCGM_FI_DEV_GPU_TEMP gauge")
    assert page.rindex("coldplate_") < page.index("DCGM_")
    assert b"DCGM" not in ask(site, Request("GET", "/api/v1/snapshot")).body


def test_openmetrics_accepts_every_name() -> None:
    view = exposed(LEAN.replace("dcgm,", "dcgm, node_infiniband, nvitop,"))
    scraped = view.scraped()
    assert scraped is not None
    page = Encoder().render(scraped, Format.OPENMETRICS, 0.0).decode()
    types = {family.name: family.type for family in openmetrics_families(page)}
    assert types["DCGM_FI_DEV_GPU_TEMP"] == "gauge"
    assert types["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"] == "unknown"  # only names with _total are counters there
    assert types["node_infiniband_link_downed"] == "counter"


def test_ours_are_as_promtool_wants_them_with_neighbours_on_the_page(lint: Callable[[bytes], None]) -> None:
    """promtool dislikes the neighbours' names, as it does on their own pages: only ours are linted."""
    scraped = exposed(LEAN.replace("none", "full")).scraped()
    assert scraped is not None
    ours = tuple(each for each in scraped.frames if each.layout.series[0].metric.name.startswith("coldplate_"))
    assert len(ours) < len(scraped.frames)
    lint(Encoder().render(replace(scraped, frames=ours), Format.TEXT, 0.0))
