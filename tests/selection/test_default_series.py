"""A page's size in each profile, counted through the real command, and that it has whatever a rule or a board reads."""

from __future__ import annotations

import functools
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from agent.catalogue import BY_NAME, ROWS
from agent.catalogue.groups import GROUPS, Profile, profile_of
from alerts import rulefile
from alerts.promql import Query
from alerts.promql.labels import wanted_name
from alerts.rulefile import RecordingRule, RuleFile
from exporters.metrics_document import labels_of
from tests import warm
from tests.largest import machine

ROOT = Path(__file__).resolve().parents[2]
MOST = 1_600
MOST_LEAN = 500
OF_A_DAEMON = 80
"""Series that one run does not have: of threads, rules, receivers and a rack of four."""
AFTER_TWO_READS = ("coldplate_gpu_nvlink_traffic_lowest_bytes_per_second",
                   "coldplate_gpu_nvlink_traffic_highest_bytes_per_second")  # fmt: skip
"""Rows that one run does not have, either, where links are shown: rates from one slow sample to the next."""
LINK = "coldplate_nvlink_up"
READERS = {
    "rules": "alerts/rules/*.yml",
    "rules of the server": "packaging/prometheus/*.yml",
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
    paths = {"--scenario": tmp_path / "s.yaml", "--config.file": config, "--path.procfs": tmp_path / "proc",
             "--path.sysfs": tmp_path / "sys"}  # fmt: skip
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
    true = {group.word: [sum(found[row.name] for row in group.rows) for found in pages] for group in GROUPS}
    assert told == {word: counts for word, counts in true.items() if any(counts) and not word.startswith("agent-")}


def test_the_whole_of_it_is_one_word_away() -> None:
    found = page("dgx-h100", "metrics: {profile: full}")
    assert found["coldplate_nvlink_errors_total"] == 8 * 18 * 3
    assert found["coldplate_gpu_xid_errors_total"] == 8 * 20
    assert sum(found.values()) > 2_300


WORDS_OF_OTHERS = {"coldplate_alert": "the alert's own", "coldplate_metric_missing": "those of the device"}


def test_the_reference_names_every_label_of_what_the_page_shows() -> None:
    for line in lines_of("dgx-h100", "metrics: {profile: full}"):
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        if name not in WORDS_OF_OTHERS:
            assert re.findall(r'[{,](\w+)="', line) == list(labels_of(BY_NAME[name])), name


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
    paths = [*ROOT.glob("alerts/rules/*.yml"), *ROOT.glob("packaging/prometheus/*.rules.yml")]
    return [rulefile.load(path) for path in sorted(paths)]


def names_in(query: Query) -> set[str]:
    return {wanted_name(selector.matchers) or "" for selector in query.selectors}


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
