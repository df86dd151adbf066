"""Which series a page has: by profile, by group and by name."""

from __future__ import annotations

import gc
import weakref

import pytest

from agent.catalogue import BY_NAME, PEAKS, ROLLING, ROWS
from agent.catalogue.groups import DRIVERS_WORD, GROUPS, LEAN, WORDS, Profile
from agent.catalogue.infiniband import driver_counter
from agent.commands.rules.rule_lint import SUMS
from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.config.words import PROFILES
from agent.model import Gpu, Instant, Kind, Node, NvLink, Reading, Series, Shown
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
    ("profile", "include", "exclude", "disable", "shown"),
    [
        ("default", [], [], [], {POWER, NOISY, GAP}),
        ("lean", [], [], [], {POWER, GAP}),
        ("full", [], [], [], set(range(6))),
        ("none", ["coldplate_gpu_*"], [], [], {POWER}),
        ("default", [LINK_ERRORS.name], [], [], {POWER, QUIET, NOISY, GAP}),
        ("lean", [SYMBOLS.name], [], [], {POWER, SYMBOL, GAP, GAP_OF_DETAIL}),
        ("default", ["coldplate_nvlink_*"], [LINK_ERRORS.name], [], {POWER, SYMBOL, GAP, GAP_OF_DETAIL}),
        ("full", [], ["coldplate_gpu_*"], [], {QUIET, NOISY, SYMBOL, GAP_OF_DETAIL}),
        ("full", [], [], ["nvlink"], {POWER, GAP}),
        ("full", [], [], ["gpu-*"], {QUIET, NOISY, SYMBOL, GAP_OF_DETAIL}),
        ("full", [LINK_ERRORS.name], [], ["nvlink", "gpu-p*"], {QUIET, NOISY, GAP}),
    ],
)
def test_what_is_shown(
    profile: str, include: list[str], exclude: list[str], disable: list[str], shown: set[int]
) -> None:
    readings = SeriesSelection(profile, include, exclude, disable).apply(SNAPSHOT).readings
    assert {READINGS.index(each) for each in readings} == shown


def test_one_word_switches_off_what_rolls_over_a_minute_in_every_group() -> None:
    selection = SeriesSelection("full", disable=["rolling"])
    left = {row.name for row in ROWS if not selection.of(row)}
    assert left == {row.name for rows in (*ROLLING.values(), PEAKS.values()) for row in rows}


def test_counters_that_only_a_driver_knows_are_a_group_too() -> None:
    row = driver_counter("hw_counters/of_a_driver")
    assert row is not None
    assert SeriesSelection("full").of(row)
    assert not SeriesSelection("full", disable=[DRIVERS_WORD]).of(row)
    assert not SeriesSelection("default").of(row)


def test_a_snapshot_is_selected_from_once() -> None:
    selection = SeriesSelection()
    assert selection.apply(SNAPSHOT) is selection.apply(SNAPSHOT)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("include: [coldplate_gpu_power_wats]", "include: '.*' matches no metric; did you mean '.*_power_watts'?"),
        ("exclude: [default]", "exclude: 'default' matches no metric"),
        ("disable: [infiniband-trafic]", "disable: '.*' matches no group; did you mean 'infiniband-traffic'?"),
    ],
)  # fmt: skip
def test_a_pattern_that_matches_nothing_is_refused_with_what_is_near(line: str, told: str) -> None:
    config = parse(f"metrics: {{{line}}}", "c.yaml")
    with pytest.raises(ConfigError, match=f"metrics.{told}"):
        check(config)


def test_the_words_of_the_configuration_are_the_profiles() -> None:
    assert tuple(each.word for each in Profile) == PROFILES


def test_every_row_is_in_one_group() -> None:
    assert sorted(row.name for group in GROUPS for row in group.rows) == sorted(BY_NAME)
    assert len(set(WORDS)) == len(WORDS)


def test_what_is_lean_is_shown_by_default_from_the_start() -> None:
    assert set(BY_NAME) >= LEAN
    assert {BY_NAME[name].shown for name in LEAN} == {Shown.DEFAULT}


def test_what_is_shown_from_its_first_error_on_has_a_sum_that_is_always_there() -> None:
    counted = [row for row in ROWS if row.shown is Shown.COUNTED]
    assert {row.name for row in counted if row.kind is Kind.COUNTER} == set(SUMS)
    assert {row.kind for row in counted} == {Kind.COUNTER, Kind.STATE}
    assert all(BY_NAME[name].shown is Shown.DEFAULT for name in SUMS.values())


def test_a_selection_that_a_reload_replaced_goes_at_once_and_its_snapshot_with_it() -> None:
    """What a reload froze is not looked at by the garbage collector."""
    selection = SeriesSelection()
    selection.apply(
        snapshot_of(1, Instant(1.0, 1.0), (Reading(Series(BY_NAME["coldplate_gpu_up"], Gpu("0", "u")), 1.0),))
    )
    trace = weakref.ref(selection)
    gc.disable()
    try:
        del selection
        assert trace() is None
    finally:
        gc.enable()
