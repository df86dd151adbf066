"""Each profile's table against the catalogue, neighbours' names by value, unit and label, and the page with them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from agent.catalogue import BY_NAME
from agent.config.reading import parse
from agent.config.schema import DCGM_LABELS, HOSTNAME_LABELS, NEIGHBOURS
from agent.daemon.hub import Hub
from agent.model import Instant, Node, Reading, Snapshot
from agent.wiring.start_checks import check
from agent.wiring.web_serving import Exposed, neighbours_of
from exporters.compatibility import PROFILES
from exporters.compatibility.dcgm import FURTHER_LABELS
from exporters.compatibility.translation import HOST_LABELS, Translation
from exporters.encoder import Encoder, Format
from exporters.http_messages import Request
from exporters.routes import Routes
from tests.asking import ask, context
from tests.exporters.conftest import GPU, lint, one_of_each_row, reading
from tests.frames import snapshot_of

from .conftest import ParsedPage

MIB = 2**20
NVIDIA_SMI = {
    # nvidia_gpu_exporter's name: (our metric, its own labels)
    "nvidia_smi_utilization_gpu_ratio": ("coldplate_gpu_utilization_ratio", {}),
    "nvidia_smi_memory_used_bytes": ("coldplate_gpu_memory_used_bytes", {}),
    "nvidia_smi_memory_total_bytes": ("coldplate_gpu_memory_total_bytes", {}),
    "nvidia_smi_temperature_gpu": ("coldplate_gpu_temperature_celsius", {}),
    "nvidia_smi_power_draw_watts": ("coldplate_gpu_power_watts", {}),
    "nvidia_smi_clocks_current_sm_clock_hz": ("coldplate_gpu_clock_hertz", {"domain": "sm"}),
    "nvidia_smi_clocks_event_reasons_hw_thermal_slowdown": (
        "coldplate_gpu_throttle_active",
        {"reason": "hw_thermal_slowdown"},
    ),
    "nvidia_smi_ecc_errors_uncorrected_volatile_total": ("coldplate_gpu_ecc_errors_total", {"type": "uncorrected"}),
    "nvidia_smi_pcie_link_width_current": ("coldplate_gpu_pcie_link_width", {}),
    "nvidia_smi_energy_joules_total": ("coldplate_gpu_energy_joules_total", {}),
}
NVITOP = {
    # nvitop-exporter's name: (our metric, its own labels, how many of theirs one of ours is)
    "gpu_utilization_Percentage": ("coldplate_gpu_utilization_ratio", {}, 100.0),
    "gpu_memory_used_MiB": ("coldplate_gpu_memory_used_bytes", {}, 1 / MIB),
    "gpu_clock_memory_MHz": ("coldplate_gpu_clock_hertz", {"domain": "memory"}, 1e-6),
    "gpu_power_usage_W": ("coldplate_gpu_power_watts", {}, 1.0),
    "gpu_temperature_C": ("coldplate_gpu_temperature_celsius", {}, 1.0),
}


def values(word: str, *readings: Reading) -> dict[str, float]:
    """What a profile makes of readings, by name."""
    frames = Translation([word], "h").frames(snapshot_of(1, Instant(1.0, 1.0), readings))
    return {each.metric.name: each.value for frame in frames for each in frame.readings}


def test_the_configuration_offers_every_profile_and_spelling() -> None:
    assert tuple(PROFILES) == NEIGHBOURS
    assert set(HOSTNAME_LABELS) == HOST_LABELS.keys()
    assert set(DCGM_LABELS) == FURTHER_LABELS.keys()


@pytest.mark.parametrize("word", PROFILES)
def test_a_name_is_made_of_rows_that_there_are_and_is_served_or_not(word: str) -> None:
    profile = PROFILES[word]
    for each in profile.names:
        for term in (*each.terms, *each.divisor):
            row = BY_NAME[term.row]
            assert not term.labels or len(term.labels) == len(row.labels), each.name
            assert not term.rate or row.kind.value == "counter", each.name
    names = [(each.name, each.terms) for each in profile.names]
    assert len(set(names)) == len(names)
    assert {each.name for each in profile.names} & {each.name for each in profile.not_served} == set()
    for name in (*(each.name for each in profile.names), *(each.name for each in profile.not_served)):
        assert name.startswith(profile.prefixes), name


@pytest.mark.parametrize("word", PROFILES)
def test_a_synthetic_node_serves_every_name_with_no_label_but_the_profiles(page: ParsedPage, word: str) -> None:
    """A rate needs two samples, and the page is of one; nobody has older kernels' counters, or had an XID."""
    profile = PROFILES[word]
    absent = {each.name for each in profile.names} - page.samples.keys()
    rates = {each.name for each in profile.names if any(term.rate for term in each.terms)}
    assert {each for each in absent - rates if "legacy" not in each} <= {
        "nvidia_smi_xid_errors_total",
        "nvidia_smi_xid_last_timestamp_seconds",
    }
    for each in profile.names:
        for labels in page.samples.get(each.name, ()):
            assert {name for name, _ in labels} <= set(profile.labels), each.name
        assert page.types.get(each.name, each.kind.value) == each.kind.value


@pytest.mark.parametrize("name", NVIDIA_SMI)
def test_a_value_of_nvidia_smi_is_ours(page: ParsedPage, name: str) -> None:
    ours, labels = NVIDIA_SMI[name]
    expected = {uuid.removeprefix("GPU-"): value for uuid, value in page.by("uuid", ours, **labels).items()}
    assert len(expected) == 8
    assert page.by("uuid", name) == expected


def test_facts_of_nvidia_smi_are_written_in_its_way(page: ParsedPage) -> None:
    ours = next(dict(each) for each in page.samples["coldplate_gpu_info"] if dict(each)["gpu"] == "0")
    theirs = next(dict(each) for each in page.samples["nvidia_smi_gpu_info"] if dict(each)["index"] == "0")
    assert theirs == {
        "index": "0",
        "uuid": ours["uuid"].removeprefix("GPU-"),
        "name": ours["model"],
        "serial": ours["serial"],
        "compute_cap": ours["compute_capability"],
        "driver_version": ours["driver_version"],
        "pci_bus_id": f"0000{ours['slot']}".upper(),
        "vbios_version": ours["vbios"],
    }


def test_states_of_which_one_is_1_become_their_code(page: ParsedPage) -> None:
    states = {
        name: dict(pairs)
        for pairs, value in page.samples["coldplate_gpu_fabric_state"].items()
        for name in [dict(pairs)["state"]]
        if value
    }
    codes = {"not_supported": 0, "not_started": 1, "in_progress": 2, "completed": 3}
    assert set(page.by("uuid", "nvidia_smi_fabric_state").values()) == {codes[each] for each in states}
    active = {"gpu_idle": 1.0, "hw_power_brake": 1.0}
    reasons = [
        reading("coldplate_gpu_throttle_active", active.get(reason, 0.0), GPU, reason=reason)
        for reason in (
            "gpu_idle",
            "application_clocks",
            "sw_power_cap",
            "sync_boost",
            "sw_thermal_slowdown",
            "hw_thermal_slowdown",
            "hw_power_brake",
            "display_clocks",
        )
    ]
    slowed = reading("coldplate_gpu_hw_slowdown_active", 1.0)
    found = values("nvidia_smi", *reasons, slowed)
    assert found["nvidia_smi_clocks_event_reasons_active"] == 0x1 | 0x80 | 0x8
    assert found["nvidia_smi_clocks_event_reasons_hw_power_brake_slowdown"] == 1


@pytest.mark.parametrize("name", NVITOP)
def test_a_value_of_nvitop_is_in_the_unit_of_its_name(page: ParsedPage, name: str) -> None:
    ours, labels, factor = NVITOP[name]
    expected = {uuid: value * factor for uuid, value in page.by("uuid", ours, **labels).items()}
    assert len(expected) == 8
    assert page.by("uuid", name) == pytest.approx(expected)
    assert page.types[name] == "gauge"
    assert all(dict(each)["hostname"] == "node-1" for each in page.samples[name])


def test_a_share_is_a_quotient_and_absent_without_the_whole() -> None:
    used = reading("coldplate_gpu_memory_used_bytes", 1.0, GPU)
    total = reading("coldplate_gpu_memory_total_bytes", 4.0, GPU)
    nothing = reading("coldplate_gpu_memory_total_bytes", 0.0, GPU)
    load = reading("coldplate_node_load1", 3.0, Node())
    found = values("nvitop", used, total, load)
    assert found["gpu_memory_percent_Percentage"] == 25.0
    assert found["host_load_average_1m_Percentage"] == 3.0
    assert "gpu_memory_percent_Percentage" not in values("nvitop", used)
    assert "gpu_memory_percent_Percentage" not in values("nvitop", used, nothing)


def test_opentelemetrys_names_have_our_values_and_the_conventions_attributes(page: ParsedPage) -> None:
    task = {"hw_gpu_task": "general"}
    assert sorted(page.by("hw_name", "hw_gpu_utilization_ratio", **task)) == [f"GPU {gpu}" for gpu in range(8)]
    for theirs, ours in (("hw_power_watts", "power_watts"), ("hw_gpu_memory_usage_bytes", "memory_used_bytes")):
        assert page.by("hw_id", theirs) == page.by("uuid", f"coldplate_gpu_{ours}")
    shares = page.by("hw_id", "hw_gpu_memory_utilization_ratio")
    assert shares
    assert all(0 < share < 1 for share in shares.values())
    errors = page.samples["hw_errors_total"]
    assert {dict(labels)["error_type"] for labels in errors} == {"corrected", "uncorrected"}
    places = {dict(labels)["hw_sensor_location"] for labels in page.samples["hw_temperature_celsius"]}
    assert places == {"core", "memory"}


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


def test_excluded_series_are_served_by_foreign_names_and_a_new_translation_at_once() -> None:
    view = exposed(LEAN)
    assert names(view.latest()) == {"coldplate_gpu_up"}
    assert {"coldplate_gpu_up", "DCGM_FI_DEV_GPU_TEMP", "nvidia_smi_temperature_gpu"} <= names(view.scraped())
    assert view.scraped() is view.scraped()
    view.neighbours = exposed(LEAN.replace("dcgm, ", "")).neighbours
    assert "DCGM_FI_DEV_GPU_TEMP" not in names(view.scraped())
    assert "nvidia_smi_temperature_gpu" in names(view.scraped())


def test_without_a_profile_the_page_is_the_selection_and_foreign_names_can_be_alone() -> None:
    view = exposed("{}")
    assert view.neighbours is None
    assert view.scraped() is view.latest()
    view.observe(SNAPSHOT)
    view = exposed("{metrics: {profile: none, compatibility: [dcgm]}}")
    assert {each.split("_")[0] for each in names(view.scraped())} == {"DCGM"}
    assert exposed(LEAN, None).scraped() is None


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
