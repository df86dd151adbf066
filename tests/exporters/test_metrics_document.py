"""The metrics reference and the names of other exporters after it are complete, and the committed ones current."""

from __future__ import annotations

import re
from pathlib import Path

from agent import catalogue
from exporters import metrics_document
from exporters.compatibility import PROFILES
from tests.lab.generate import migration_document

REFERENCE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_committed_reference_is_current() -> None:
    written = REFERENCE.read_text() if REFERENCE.exists() else ""
    assert written.startswith(metrics_document.render()), (
        "docs/metrics.md is not what the catalogue says: make generate"
    )


def test_every_row_is_described_exactly_once() -> None:
    described = re.findall(r"(?m)^\| `(coldplate_\w+)` ", metrics_document.render())
    assert sorted(described) == sorted(catalogue.BY_NAME)


def test_a_line_says_everything_about_its_row() -> None:
    (line,) = [
        line for line in metrics_document.render().splitlines() if line.startswith("| `coldplate_gpu_power_watts` ")
    ]
    for piece in (
        "gauge",
        "watts",
        "`gpu`, `uuid`",
        "Board power",
        "NVML field 185",
        "fast",
        "`DCGM_FI_DEV_POWER_USAGE`",
    ):
        assert piece in line


def test_a_factor_is_in_words_and_says_which_way_it_goes() -> None:
    text = metrics_document.render()
    assert "`DCGM_FI_DEV_GPU_UTIL` (dcgm): percent; divide it by 100 |" in text.replace("<br>", " |")
    assert "`DCGM_FI_DEV_FB_USED` (dcgm): MiB; multiply it by 1,048,576" in text
    assert "e-0" not in text


def test_every_line_of_a_table_has_the_same_number_of_cells() -> None:
    lines = [line.replace(r"\|", "") for line in metrics_document.render().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {10}


def test_the_committed_names_of_others_are_current() -> None:
    assert REFERENCE.read_text(encoding="utf-8").endswith(migration_document.render()), (
        "docs/metrics.md is not what the tables say: make generate"
    )


def test_every_name_of_another_exporter_is_there_once() -> None:
    lines = migration_document.render().splitlines()
    for profile in PROFILES.values():
        for name in {each.name for each in profile.names} | {each.name for each in profile.not_served}:
            assert sum(line.startswith(f"| `{name}` |") for line in lines) == 1, name
