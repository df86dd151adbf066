"""What a healthy node shows."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from agent.backends.infiniband import sysfs_attribute
from agent.backends.protocol import AbsentError
from agent.catalogue import BY_NAME
from agent.catalogue.bindings import PortFile
from agent.catalogue.infiniband import DIRECTORIES, FILES, LINK_DOWN_EVENTS, PORT_UP, driver_counter
from agent.model import LANES, Instant, Kind, Lane
from exporters.compatibility.translation import Translation
from tests.frames import snapshot_of
from tests.servers import fetch, free_port, need, program

FIXTURES = ("dgx-h100", "odd-drivers")


@pytest.mark.parametrize("lane", [Lane.FAST, Lane.SLOW, Lane.COLD])
def test_a_node_without_infiniband_is_absent_and_the_text_names_the_path(tmp_path, opened, now, lane) -> None:
    with pytest.raises(AbsentError, match=f"{tmp_path}/class/infiniband does not exist"):
        opened(tmp_path).read(lane, now)
    (tmp_path / "class" / "infiniband").mkdir(parents=True)  # a loaded core without a device
    with pytest.raises(AbsentError, match="has no ports"):
        opened(tmp_path).read(lane, now)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_every_file_below_the_counter_directories_of_every_port_is_exported(tree, opened, page, fixture) -> None:
    sysfs = tree(fixture)
    shown = page(opened(sysfs))
    files = {
        (device.name, port.name, f"{directory}/{file}")
        for device in (sysfs / "class" / "infiniband").iterdir()
        for port in (device / "ports").iterdir()
        for directory in DIRECTORIES
        if (port / directory).is_dir()
        for file in os.listdir(port / directory)
    }
    read = {
        (each.entity.device, each.entity.port, file.path)
        for each in [*shown.readings, *shown.gaps]
        for file in each.metric.origin
        if hasattr(file, "path") and (each.entity.device, each.entity.port, file.path) in files
    }
    assert read == files
    assert len(files) > 100


def test_values_are_in_base_units_and_counters_are_exact_integers(unpack, opened, page) -> None:
    sysfs, widest = unpack("dgx-h100"), 2**64 - 1
    (sysfs / "class/infiniband/mlx5_3/ports/1/counters/port_xmit_data").write_text(f"{widest}\n")
    shown = page(opened(sysfs))
    port = {"device": "mlx5_0", "port": "1"}
    assert shown.value("port_data_received_bytes_total", **port) == 4 * 732645709237039
    assert shown.value("port_packets_received_total", **port) == 715474325429
    assert shown.value("rate_bytes_per_second", **port) == 50_000_000_000
    assert shown.value("state_id", **port) == 4
    assert shown.value("physical_state_id", **port) == 5
    assert shown.value("port_up", **port) == 1
    assert shown.value("lifespan_seconds", **port) == 0.01
    assert shown.value("link_downed_total", **port) == 2
    assert shown.value("symbol_error_total", device="mlx5_3") == 0, "zero is a value"
    sent = shown.value("port_data_transmitted_bytes_total", device="mlx5_3")
    assert (sent, type(sent)) == (4 * widest, int)
    assert shown.gaps == []


def test_the_facts_of_a_port_are_labels(tree, opened, page) -> None:
    shown = page(opened(tree("dgx-h100")))
    assert shown.values("info") == [1] * 9
    assert shown.value(
        "info", device="mlx5_1", port="1", board_id="MT_0000000834", firmware_version="28.39.2048",
        hca_type="MT4129", link_layer="Ethernet",
    ) == 1  # fmt: skip
    odd = page(opened(tree("odd-drivers")))
    assert odd.value("info", device="irdma0", firmware_version="1.52", hca_type="") == 1, "the driver gives no type"


def test_a_series_is_made_once_and_calls_count_the_files_that_were_read(tree, opened, now) -> None:
    backend = opened(tree("dgx-h100"))
    for lane in LANES:
        first, second = backend.read(lane, now).readings, backend.read(lane, now).readings
        assert first
        assert all(one.series is other.series for one, other in zip(first, second, strict=True))
    sample = backend.read(Lane.FAST, now)
    derived = [each for each in sample.readings if each.metric in (PORT_UP, LINK_DOWN_EVENTS)]
    assert len(derived) == 2 * 9
    assert sample.calls == len(sample.readings) - len(derived) == 3 * 9


ODD = [
    # two ports of one adapter are two
    ("mlx4_0", "1", "port_up", 1),
    ("mlx4_0", "2", "port_up", 0),
    ("mlx4_0", "2", "legacy_data_received_bytes_total", 4 * 2460436784),
    # a driver's own counters come under their file names, and a level is a gauge
    ("hfi1_0", "1", "rx_tidfull_er_32_total", 5),
    ("hfi1_0", "1", "misc_csr_parity_err_total", 0),
    ("irdma0", "1", "ip4in_octets_total", 1234567890123),
    ("bnxt_re0", "1", "active_qps", 40),
    # an adapter without standard counters feeds the standard rows, from bytes already and not from words
    ("rdmap0s29", "1", "port_data_received_bytes_total", 123456789),
    ("rdmap0s29", "1", "port_packets_transmitted_total", 40002),
    ("rxe0", "1", "link_downed_total", 2),
    # one that has both feeds the standard row once, and shows the other too
    ("bnxt_re0", "1", "port_data_received_bytes_total", 4000),
    ("bnxt_re0", "1", "rx_bytes_total", 4321),
]


@pytest.mark.parametrize(("device", "port", "row", "value"), ODD)
def test_what_an_odd_driver_offers_is_shown(tree, opened, page, device, port, row, value) -> None:
    assert page(opened(tree("odd-drivers"))).value(row, device=device, port=port) == value


def test_a_standard_file_that_says_not_available_gives_way_to_the_drivers_own(unpack, opened, page) -> None:
    sysfs = unpack("odd-drivers", "rdmap0s29")
    counters = sysfs / "class/infiniband/rdmap0s29/ports/1/counters"
    counters.mkdir()
    (counters / "port_rcv_data").write_text("N/A (no PMA)\n")
    shown = page(opened(sysfs))
    assert shown.value("port_data_received_bytes_total", device="rdmap0s29") == 123456789
    assert shown.gap("port_rcv_data_total", "rdmap0s29").detail.endswith("contains 'N/A (no PMA)'")


def test_each_path_has_one_row_and_names_never_collide() -> None:
    files = ("tx-drops", "tx_drops", "Tx.Drops", "link_downed", "info", ",", "", "x_total", "x")
    paths = [f"{directory}/{file}" for directory in DIRECTORIES for file in files]
    rows = [driver_counter(path) for path in paths]
    assert rows == [driver_counter(path) for path in paths]
    names = {row.name for row in rows}
    assert len(names) == len(paths)
    assert names.isdisjoint(BY_NAME)
    assert all(row.name.endswith("_total") == (row.kind is Kind.COUNTER) for row in rows)


@given(st.sampled_from([25, 50, 100, 200, 250, 400, 560, 800, 1000, 1600, 2000, 4000, 8000, 16000]))
def test_every_rate_that_a_kernel_can_print_is_exact(tenths: int) -> None:
    text = f"{tenths // 10}{'.5' if tenths % 10 else ''} Gb/sec (4X XDR)\n"
    assert sysfs_attribute.parse_rate(text.encode()) * 8 * 10 == tenths * 10**9


@given(st.sampled_from(DIRECTORIES), st.text(min_size=1, max_size=60))
def test_every_file_name_makes_a_valid_metric_name_of_its_own(directory: str, file: str) -> None:
    row = driver_counter(f"{directory}/{file}")
    assert row.name.startswith("coldplate_infiniband_")
    assert set(row.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert driver_counter(f"{directory}/{file}") is row


# The real node_exporter reads the same trees: every sample that it shows, we show with the same value.
PROGRAM = "prometheus-node-exporter"
PROFILE = "node_infiniband"


def scrape(sysfs: Path) -> list[Sample]:
    address = f"127.0.0.1:{free_port()}"
    command = [
        need(PROGRAM, left_out="the comparison with node_exporter is left out"), f"--web.listen-address={address}",
        f"--path.sysfs={sysfs}", "--collector.disable-defaults", "--collector.infiniband",
    ]  # fmt: skip
    url = f"http://{address}/metrics"
    with program(command, url, sysfs.parent / "node_exporter.log"):
        page = fetch(url)
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


UNREADABLE = ("irdma0", "rdmap0s29", "rxe0")
"""Devices without board_id or counters, for any of which node_exporter 1.5 shows nothing at all."""


@pytest.mark.parametrize(("fixture", "least"), [("dgx-h100", 9 * 24), ("odd-drivers", 100)])
def test_every_sample_of_node_exporter_equals_one_of_coldplate(unpack, opened, page, fixture, least) -> None:
    sysfs = unpack(fixture)
    for device in UNREADABLE:
        (sysfs / "class/infiniband" / device).unlink(missing_ok=True)
    ours: dict[str, list[tuple[dict[str, str], float]]] = {}
    snapshot = snapshot_of(1, Instant(1.0, 1.0), page(opened(sysfs)).readings)
    for frame in Translation([PROFILE], "node-1").frames(snapshot):
        for each in frame.readings:
            ours.setdefault(each.metric.name, []).append((dict(each.labels), each.value))
    theirs = [sample for sample in scrape(sysfs) if sample.name.startswith(PROFILE)]
    differences = []
    for sample in theirs:
        values = {value for labels, value in ours.get(sample.name, ()) if sample.labels == labels}
        if sample.name == "node_infiniband_lifespan_seconds":
            values = {float(int(value)) for value in values}  # it divides integers, and shows 0 for 0.01 s
        if {float(value) for value in values} != {sample.value}:
            differences.append((sample.name, sample.labels, sample.value, values))
    assert differences == []
    assert len(theirs) >= least


def test_rows_have_node_exporters_names_for_the_same_files() -> None:
    """The program in reach may be too old to show hw_counters, so the names are compared with a list too."""
    lines = (Path(__file__).parent / "fixtures" / "node-exporter-names.txt").read_text().splitlines()
    theirs = dict(line.split() for line in lines if not line.startswith("#"))
    files = ((row, file) for row in FILES for file in row.origin[:1] if isinstance(file, PortFile))
    assert {row.name.removeprefix("coldplate_infiniband_"): file.path for row, file in files} == theirs
