"""A page's size in each profile, that it has whatever a rule or board reads, and how series are selected."""

import functools
import gc
import re
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from agent.catalogue import BY_NAME, PEAKS, ROLLING, ROWS, SECTIONS, with_statistics
from agent.catalogue.groups import DRIVERS_WORD, LEAN, WORDS, Profile, profile_of
from agent.catalogue.infiniband import driver_counter
from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.config.words import PROFILES
from agent.model import Gpu, Instant, Kind, Node, NvLink, Reading, Series, Shown
from agent.wiring.start_checks import check
from alerts import rulefile
from alerts.promql import Query
from alerts.promql.labels import only_metric_name
from alerts.rule_inputs import SUMS
from alerts.rulefile import RecordingRule, RuleFile
from exporters.selection import SeriesSelection
from tests import warm
from tests.frames import snapshot_of
from tests.largest import machine

ROOT = Path(__file__).resolve().parents[2]
MOST = 1_600
MOST_LEAN = 500
OF_A_DAEMON = 80
"""Series that one run does not have: of threads, rules, receivers and a rack of four."""
AFTER_TWO_READS = (
    "coldplate_gpu_nvlink_traffic_lowest_bytes_per_second",
    "coldplate_gpu_nvlink_traffic_highest_bytes_per_second",
)
"""Rows that one run does not have, either, where links are shown: rates from one slow sample to the next."""
LINK = "coldplate_nvlink_up"
READERS = {
    "rules": "alerts/rules/*.yml",
    "rules of the server": "alerts/server/*.rules.yml",
    "boards": "dashboards/generated/*.json",
    "runbooks": "alerts/runbooks/*.md",
    "landing page": "exporters/*.py",
    "rack peers": "agent/rack/*.py",
}
BORN_LATE = re.compile(r"(?:rate|increase|delta)\(coldplate_(?:nvlink_errors|gpu_xid_errors)_total")


@functools.cache
def lines_of(topology: str, *lines: str) -> list[str]:
    """The page of a whole synthetic node on the largest host, without its comments."""
    with tempfile.TemporaryDirectory() as folder:
        return _lines_in(Path(folder), topology, *lines)


def _lines_in(tmp_path: Path, topology: str, *lines: str) -> list[str]:
    machine.write_host(tmp_path / "proc", tmp_path / "sys", 1000.0, 0)
    (tmp_path / "s.yaml").write_text(f"{{description: d, topology: {topology}}}\n")
    config = tmp_path / "c.yaml"
    config.write_text("\n".join([f"state_dir: {tmp_path}/state", *lines, ""]))
    paths = {
        "--scenario": tmp_path / "s.yaml",
        "--config.file": config,
        "--path.procfs": tmp_path / "proc",
        "--path.sysfs": tmp_path / "sys",
    }
    options = [f"{name}={path}" for name, path in paths.items()]
    done = warm.command(["once", "--backend", "synthetic", *options])
    assert done.status == 0, done.error.decode()
    return [line for line in done.output.decode().splitlines() if not line.startswith("#")]


def page(topology: str, *lines: str) -> dict[str, int]:
    """How many series of each name the page of a daemon has."""
    found = Counter(re.split(r"[{ ]", line, maxsplit=1)[0] for line in lines_of(topology, *lines))
    return found + Counter(dict.fromkeys(AFTER_TWO_READS, found["coldplate_gpu_up"] if LINK in found else 0))


@pytest.mark.parametrize(
    "topology", ["dgx-h100", *(pytest.param(each, marks=pytest.mark.release) for each in ("dgx-a100", "dgx-b200"))]
)
def test_a_node_of_eight_gpus_and_eight_ports_has_at_most_1600_series_as_documented(topology: str) -> None:
    found = page(topology)
    assert found["coldplate_gpu_up"] == found["coldplate_infiniband_port_up"] == 8
    assert found["coldplate_node_disk_read_bytes_total"] == machine.DISKS
    lean, in_full = (sum(page(topology, f"metrics: {{profile: {word}}}").values()) for word in ("lean", "full"))
    by_default = sum(found.values())
    assert lean + OF_A_DAEMON <= MOST_LEAN
    assert by_default <= MOST
    numbers = r" \| ([\d,]+)" * 3
    row = re.search(rf"(?m)^\| {topology}{numbers} \|$", (ROOT / "docs/configuration.md").read_text())
    assert row is not None
    for told, true in zip(row.groups(), (lean, by_default, in_full), strict=True):
        assert 0.95 <= int(told.replace(",", "")) / true <= 1.05, f"about {true} series, and the document says {told}"


def test_each_group_costs_what_the_document_says() -> None:
    pages = [page("dgx-h100", f"metrics: {{profile: {word}}}") for word in ("lean", "default", "full")]
    rows = re.findall(
        r"(?m)^\| `([a-z-]+)` \| (\d+) \| (\d+) \| (\d+) \|$", (ROOT / "docs/configuration.md").read_text()
    )
    told = {word: [int(number) for number in numbers] for word, *numbers in rows}
    true = {
        word: [sum(found[row.name] for row in with_statistics(rows)) for found in pages] for word, _, rows in SECTIONS
    }
    assert told == {word: counts for word, counts in true.items() if any(counts) and not word.startswith("agent-")}


def test_the_whole_of_it_is_one_word_away() -> None:
    found = page("dgx-h100", "metrics: {profile: full}")
    assert found["coldplate_nvlink_errors_total"] == 8 * 18 * 3
    assert sum(found.values()) > 2_300


WORDS_OF_OTHERS = {
    "coldplate_alert": "the alert's own",
    "coldplate_alert_text_info": "the same",
    "coldplate_metric_missing": "those of the device",
}


def test_the_reference_names_every_label_of_what_the_page_shows() -> None:
    for line in lines_of("dgx-h100", "metrics: {profile: full}"):
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        if name not in WORDS_OF_OTHERS:
            assert re.findall(r'[{,](\w+)="', line) == list(BY_NAME[name].label_names), name


def names(pattern: str) -> set[str]:
    files = sorted(ROOT.glob(pattern))
    assert files
    return {name for path in files for name in re.findall(r"coldplate_\w+", path.read_text())}


@pytest.mark.parametrize("reader", READERS)
def test_nothing_that_is_read_is_left_out_by_default(reader: str) -> None:
    detail = {row.name for row in ROWS if profile_of(row) is Profile.FULL}
    assert detail
    assert not detail & names(READERS[reader])


def recorded() -> dict[str, set[str]]:
    """What each recorded series of the shipped rules is made of."""
    made: dict[str, set[str]] = {}
    for rule in (rule for file in rule_files() for group in file.groups for rule in group.rules):
        if isinstance(rule, RecordingRule):
            made.setdefault(rule.name, set()).update(names_in(rule.query))
    return made


def rule_files() -> list[RuleFile]:
    paths = [*ROOT.glob("alerts/rules/*.yml"), *ROOT.glob("alerts/server/*.rules.yml")]
    return [rulefile.load(path) for path in sorted(paths)]


def names_in(query: Query) -> set[str]:
    return {only_metric_name(selector.matchers) or "" for selector in query.selectors}


def needed(read: Iterable[str], recipes: Mapping[str, set[str]]) -> Profile:
    """The smallest profile with all of these, and with all that recorded ones are made of."""
    left, seen = list(read), set[str]()
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left.extend(recipes.get(name, ()))
    return max((profile_of(BY_NAME[name]) for name in seen if name in BY_NAME), default=Profile.NONE)


def test_each_rule_file_names_the_smallest_profile_that_a_server_needs_for_it() -> None:
    recipes = recorded()
    for file in rule_files():
        read = {name for group in file.groups for rule in group.rules for name in names_in(rule.query)}
        word = max(needed(read, recipes), Profile.LEAN).word
        assert f"\n# On a server: for pages of metrics.profile {word}, or more.\n" in Path(file.path).read_text(), (
            file.path
        )


@pytest.mark.parametrize("path", sorted((ROOT / "dashboards/generated").glob("*.json")), ids=lambda path: path.stem)
def test_each_board_names_the_smallest_profile_that_it_needs(path: Path) -> None:
    text = path.read_text()
    word = needed(re.findall(r"coldplate_\w+|[a-z_]+(?::[a-z0-9_]+)+", text), recorded()).word
    assert f"Needs metrics.profile {word}, or more, on every node." in text


@pytest.mark.parametrize("reader", ["rules", "rules of the server", "boards"])
def test_growth_is_not_asked_of_series_that_are_born_with_their_first_error(reader: str) -> None:
    for path in sorted(ROOT.glob(READERS[reader])):
        assert not BORN_LATE.search(path.read_text()), path.name


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
    left = {row.name for row in ROWS if not selection.exposure_of(row)}
    assert left == {row.name for rows in (*ROLLING.values(), PEAKS.values()) for row in rows}


def test_counters_that_only_a_driver_knows_are_a_group_too() -> None:
    row = driver_counter("hw_counters/of_a_driver")
    assert row is not None
    assert SeriesSelection("full").exposure_of(row)
    assert not SeriesSelection("full", disable=[DRIVERS_WORD]).exposure_of(row)
    assert not SeriesSelection("default").exposure_of(row)


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
)
def test_a_pattern_that_matches_nothing_is_refused_with_what_is_near(line: str, told: str) -> None:
    config = parse(f"metrics: {{{line}}}", "c.yaml")
    with pytest.raises(ConfigError, match=f"metrics.{told}"):
        check(config)


def test_the_words_of_the_configuration_are_the_profiles() -> None:
    assert tuple(each.word for each in Profile) == PROFILES


def test_every_row_is_in_one_group() -> None:
    assert sorted(row.name for _, _, rows in SECTIONS for row in with_statistics(rows)) == sorted(BY_NAME)
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
