"""The bridge to prometheus_client says what coldplate's own pages say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from agent.model import Snapshot
from exporters.collector import SnapshotCollector, write_textfile
from exporters.encoder import Encoder, Format

GENERATE: dict[Format, Callable[[CollectorRegistry], bytes]] = {
    Format.TEXT: generate_latest,
    Format.OPENMETRICS: generate_openmetrics,
}
PARSE = {Format.TEXT: parse_text, Format.OPENMETRICS: parse_openmetrics}


def parsed(page: bytes, fmt: Format) -> list[Metric]:
    return list(PARSE[fmt](page.decode()))


@pytest.mark.parametrize("fmt", Format)
def test_both_ways_give_the_same_families(full_snapshot: Snapshot, fmt: Format) -> None:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: full_snapshot, clock=lambda: 100.25))
    ours = Encoder().render(full_snapshot, fmt, 0.25)
    assert parsed(ours, fmt) == parsed(GENERATE[fmt](registry), fmt)


def test_before_the_first_sample_there_are_no_families() -> None:
    assert list(SnapshotCollector(lambda: None).collect()) == []


def test_a_textfile_holds_the_snapshot_without_its_age(full_snapshot: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "coldplate.prom"
    path.write_text("older")
    write_textfile(full_snapshot, path)
    page = Encoder().render(full_snapshot, Format.TEXT, 0.0)
    expected = [each for each in parsed(page, Format.TEXT) if each.name != "coldplate_sample_age_seconds"]
    assert parsed(path.read_bytes(), Format.TEXT) == expected
    assert list(tmp_path.iterdir()) == [path]


def test_serving_does_not_import_the_client_library() -> None:
    script = "import sys, exporters.routes, exporters.server; print('prometheus_client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "False\n"
