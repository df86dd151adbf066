"""The real node_exporter reads the same trees: every sample that it shows, we show with the same value."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from agent.catalogue.bindings import PortFile
from agent.catalogue.infiniband import FILES
from agent.model import Instant
from exporters.compatibility import PROFILES
from exporters.compatibility.translation import Translation
from tests.frames import snapshot_of
from tests.servers import fetch, free_port, need, program

PROGRAM = "prometheus-node-exporter"
PROFILE = "node_infiniband"


def scrape(sysfs: Path) -> list[Sample]:
    """What node_exporter shows of a sysfs."""
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
    names = {each.terms[0].row: each.name for each in PROFILES[PROFILE].names}
    ours = {}
    for row in FILES:
        suffix = names[row.name].removeprefix(f"{PROFILE}_")
        assert row.name == f"coldplate_infiniband_{suffix}"
        binding = row.origin[0]
        assert isinstance(binding, PortFile)
        ours[suffix] = binding.path
    assert ours == theirs
