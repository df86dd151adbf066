"""Which series a page has: the default, in full, and by name."""

from __future__ import annotations

import pytest

from agent.catalogue import BY_NAME, ROWS
from agent.commands.rules.advice import SUMS
from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.model import Gpu, Instant, Node, NvLink, Reading, Series, Shown
from agent.wiring.start_checks import check
from exporters.selection import SeriesSelection
from tests.frames import snapshot_of

GPU = Gpu("0", "GPU-0")
LINK_ERRORS = BY_NAME["coldplate_nvlink_errors_total"]
SYMBOLS = BY_NAME["coldplate_nvlink_symbol_errors_total"]


def missing(name: str) -> Reading:
    return Reading(Series(BY_NAME["coldplate_metric_missing"], Node(), (("metric", name), ("reason", "denied"))), 1.0)


READINGS = (
    Reading(Series(BY_NAME["coldplate_gpu_power_watts"], GPU), 0.0),
    Reading(Series(LINK_ERRORS, NvLink(GPU, 0), (("type", "replay"),)), 0.0),
    Reading(Series(LINK_ERRORS, NvLink(GPU, 1), (("type", "replay"),)), 7.0),
    Reading(Series(SYMBOLS, NvLink(GPU, 0)), 9.0),
    missing("coldplate_gpu_utilization_ratio"),
    missing(SYMBOLS.name),
)
POWER, QUIET, NOISY, SYMBOL, GAP, GAP_OF_DETAIL = range(len(READINGS))
SNAPSHOT = snapshot_of(1, Instant(0.0, 0.0), READINGS)


@pytest.mark.parametrize(
    ("include", "exclude", "shown"),
    [
        (["default"], [], {POWER, NOISY, GAP}),
        (["detail"], [], {QUIET, SYMBOL}),
        (["default", "detail"], [], set(range(6))),
        (["all"], [], set(range(6))),
        (["default", LINK_ERRORS.name], [], {POWER, QUIET, NOISY, GAP}),
        (["default", "coldplate_nvlink_*"], [LINK_ERRORS.name], {POWER, SYMBOL, GAP, GAP_OF_DETAIL}),
        (["all"], ["detail"], {POWER, NOISY, GAP}),
        (["coldplate_gpu_*"], [], {POWER}),
    ],
)
def test_what_is_shown(include: list[str], exclude: list[str], shown: set[int]) -> None:
    readings = SeriesSelection(include, exclude).apply(SNAPSHOT).readings
    assert {READINGS.index(each) for each in readings} == shown


def test_a_snapshot_is_selected_from_once() -> None:
    selection = SeriesSelection(["default"], [])
    assert selection.apply(SNAPSHOT) is selection.apply(SNAPSHOT)


@pytest.mark.parametrize(("pattern", "hint"), [("defualt", "default"), ("coldplate_gpu_power_wats", "power_watts")])
def test_a_pattern_that_matches_nothing_is_refused_with_what_is_near(pattern: str, hint: str) -> None:
    config = parse(f"metrics: {{include: ['{pattern}']}}", "c.yaml")
    with pytest.raises(ConfigError, match=f"metrics.include: '{pattern}' matches no metric; did you mean .*{hint}"):
        check(config)


def test_what_is_shown_from_its_first_error_on_has_a_sum_that_is_always_there() -> None:
    assert {row.name for row in ROWS if row.shown is Shown.COUNTED} == set(SUMS)
    assert all(BY_NAME[name].shown is Shown.DEFAULT for name in SUMS.values())
