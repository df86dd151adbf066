"""The pages say what the snapshot holds, judged by prometheus_client: its parsers, and its own pages."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Metric as ClientMetric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from agent import catalogue
from agent.model import (
    Backend,
    Gpu,
    IbPort,
    Instant,
    Kind,
    Lane,
    Metric,
    Node,
    NvLink,
    Rack,
    Reading,
    Series,
    Snapshot,
    Unit,
)
from exporters.collector import SnapshotCollector, write_textfile
from exporters.encoder import Encoder, Format, openmetrics_kinds
from tests.frames import snapshot_of

PARSERS = {Format.TEXT: parse_text, Format.OPENMETRICS: parse_openmetrics}
AGE = "coldplate_sample_age_seconds"
GPU = Gpu("0", "GPU-0")

Sample = tuple[str, frozenset[tuple[str, str]]]


def holding(*readings: Reading) -> Snapshot:
    return snapshot_of(1, Instant(0.0, 0.0), readings)


def made(name: str, kind: Kind = Kind.GAUGE, entity: type = Gpu, help: str = "Help.") -> Metric:
    return Metric(name, kind, Unit.NONE, entity, help, Lane.FAST, ())


def render(snapshot: Snapshot, fmt: Format, age: float = 0.25) -> str:
    return Encoder().render(snapshot, fmt, age).decode()


def families(page: str, fmt: Format) -> list[ClientMetric]:
    return list(PARSERS[fmt](page))


def samples(page: str, fmt: Format) -> dict[Sample, float]:
    found: dict[Sample, float] = {}
    for family in families(page, fmt):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} appears twice"
            found[key] = sample.value
    return found


def held(snapshot: Snapshot) -> dict[Sample, float]:
    expected: dict[Sample, float] = {(AGE, frozenset()): 0.25}
    for series, value in snapshot.readings:
        expected.setdefault((series.metric.name, frozenset(series.all_labels)), value)
    return expected


label_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['"', "\\", "\n", "\\n", '\\"', "}", "{", ",", "=", " ", "%s", "%", "100 %", "é", "#", " # ", "\r", '",a="']
)
gpus = st.builds(Gpu, st.integers(0, 15).map(str), label_values)
ENTITIES: dict[type, st.SearchStrategy[Any]] = {
    Node: st.just(Node()),
    Gpu: gpus,
    NvLink: st.builds(NvLink, gpus, st.integers(0, 17)),
    IbPort: st.builds(IbPort, label_values, label_values),
    Rack: st.builds(Rack, label_values),
    Backend: st.builds(Backend, label_values),
}
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64)


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    row = draw(st.sampled_from([row for row in catalogue.ROWS if row.name != AGE]))
    labels = tuple((name, draw(label_values)) for name in row.labels)
    value = draw(numbers)
    if row.kind is Kind.INFO:
        value = 1
    elif row.kind is Kind.COUNTER:
        value = abs(value)
    return Reading(Series(row, draw(ENTITIES[row.entity]), labels), value)


snapshots = st.builds(lambda held: snapshot_of(1, Instant(0.0, 0.0), tuple(held)), st.lists(readings(), max_size=8))


@pytest.mark.parametrize("fmt", Format)
@settings(max_examples=50)
@given(snapshot=snapshots)
def test_a_page_parses_to_what_the_snapshot_holds(fmt: Format, snapshot: Snapshot) -> None:
    assert samples(render(snapshot, fmt), fmt) == held(snapshot)


@pytest.mark.parametrize("fmt", Format)
@settings(max_examples=40)
@given(several=st.lists(snapshots, min_size=2, max_size=4))
def test_an_encoder_that_has_rendered_others_renders_the_same_page(fmt: Format, several: list[Snapshot]) -> None:
    encoder = Encoder()
    for snapshot in several:
        page, afresh = encoder.render(snapshot, fmt, 0.25).decode(), render(snapshot, fmt)
        # A value that was 0 and is 0.0 now is the same value: the family keeps its bytes.
        assert [line.rpartition(" ")[0] for line in page.splitlines()] == [
            line.rpartition(" ")[0] for line in afresh.splitlines()
        ]
        assert samples(page, fmt) == samples(afresh, fmt)


@settings(max_examples=40)
@given(snapshots, st.data())
def test_the_page_does_not_depend_on_the_order_of_the_readings(snapshot: Snapshot, data: st.DataObject) -> None:
    distinct = list({reading.series: reading for reading in snapshot.readings}.values())
    shuffled = data.draw(st.permutations(distinct))
    assert render(holding(*distinct), Format.TEXT) == render(holding(*shuffled), Format.TEXT)


@pytest.mark.parametrize("fmt", Format)
def test_every_row_of_the_catalogue_comes_out_in_catalogue_order(full_snapshot: Snapshot, fmt: Format) -> None:
    page = render(full_snapshot, fmt)
    shown = [line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    assert shown == [row.name for row in catalogue.ROWS]
    assert samples(page, fmt) == held(full_snapshot)


def test_promtool_has_nothing_to_say(full_snapshot: Snapshot, lint: Callable[[bytes], None]) -> None:
    lint(render(full_snapshot, Format.TEXT).encode())


def test_an_openmetrics_family_name_that_is_taken_falls_back_to_the_whole_name() -> None:
    rows = [
        made("a_total", Kind.COUNTER), made("a"), made("b_total", Kind.COUNTER), made("b_info", Kind.INFO),
        made("DCGM_FI_DEV_X", Kind.COUNTER),
    ]  # fmt: skip
    kinds = openmetrics_kinds(rows)
    assert kinds == [
        ("a_total", "unknown"), ("a", "gauge"), ("b", "counter"), ("b_info", "unknown"),
        ("DCGM_FI_DEV_X", "unknown"),
    ]  # fmt: skip
    snapshot = holding(*(Reading(Series(row, GPU), 1) for row in rows))
    assert samples(render(snapshot, Format.OPENMETRICS), Format.OPENMETRICS) == held(snapshot)
    assert "unknown" not in {kind for _, kind in openmetrics_kinds(catalogue.ROWS)}, "two rows share a family"


def test_rows_made_at_run_time_follow_the_known_rows_of_their_entity() -> None:
    first, second = made("coldplate_twin", help="First."), made("coldplate_twin", help="Second.")
    snapshot = holding(
        Reading(Series(made("coldplate_zz", entity=Gpu), GPU), 1),
        Reading(Series(catalogue.BY_NAME["coldplate_build_info"], Node()), 1),
        Reading(Series(first, GPU), 1),
        Reading(Series(second, Gpu("1", "GPU-1")), 2),
        Reading(Series(catalogue.BY_NAME["coldplate_gpu_up"], GPU), 1),
    )
    page = render(snapshot, Format.TEXT)
    order = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert order == ["coldplate_gpu_up", "coldplate_twin", "coldplate_zz", AGE, "coldplate_build_info"]
    assert page.count("# HELP coldplate_twin First.") == 1
    assert samples(page, Format.TEXT) == held(snapshot)


def test_a_series_that_appears_twice_is_shown_with_its_first_value_but_for_the_age() -> None:
    row = catalogue.BY_NAME["coldplate_gpu_up"]
    again = Series(row, Node(), GPU.labels)  # the same labels by another way
    age = Reading(Series(catalogue.BY_NAME[AGE], Node()), 9.0)
    page = render(
        holding(Reading(Series(row, GPU), 1), Reading(Series(row, GPU), 0), Reading(again, 0), age), Format.TEXT, 0.5
    )
    assert samples(page, Format.TEXT) == {(AGE, frozenset()): 0.5, ("coldplate_gpu_up", frozenset(GPU.labels)): 1}
    label = Series(row, GPU, (("gpu", "other"), ("slot", "1")))
    assert 'coldplate_gpu_up{gpu="0",uuid="GPU-0",slot="1"} 1\n' in render(holding(Reading(label, 1)), Format.TEXT)


def test_gpu_10_comes_after_gpu_9_and_what_is_not_unicode_does_not_break_the_page() -> None:
    row = catalogue.BY_NAME["coldplate_gpu_up"]
    gpus = (Gpu("10", "GPU-\udcff"), Gpu("9", "GPU-9"), Gpu("2", "GPU-2"))
    page = render(holding(*(Reading(Series(row, gpu), 1) for gpu in gpus)), Format.TEXT)
    lines = [line for line in page.splitlines() if line.startswith("coldplate_gpu_up")]
    assert [line.split('"')[1] for line in lines] == ["2", "9", "10"]
    assert 'uuid="GPU-?"' in lines[-1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.0, "0.0"), (-0.5, "-0.5"), (45.0, "45.0"), (412.337, "412.337"), (1e16, "1e+16"), (True, "1.0"),
     (18446744073709551615, "18446744073709551615"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")],
)  # fmt: skip
@pytest.mark.parametrize("fmt", Format)
def test_values_are_spelled_as_the_formats_want_them(fmt: Format, value: float, shown: str) -> None:
    row = catalogue.BY_NAME["coldplate_gpu_power_watts"]
    other = Reading(Series(row, Gpu("1", "GPU-1")), 7)
    page = render(holding(Reading(Series(row, GPU), value), other), fmt)
    assert f'coldplate_gpu_power_watts{{gpu="0",uuid="GPU-0"}} {shown}\n' in page
    assert 'coldplate_gpu_power_watts{gpu="1",uuid="GPU-1"} 7' in page
    assert len(samples(page, fmt)) == 3


@pytest.mark.parametrize("fmt", Format)
def test_help_is_escaped(fmt: Format) -> None:
    text = 'Back\\slash, "quotes", 100 % and\nnew lines.'
    page = render(holding(Reading(Series(made("coldplate_odd", help=text), GPU), 1)), fmt)
    assert {family.name: family.documentation for family in families(page, fmt)}["coldplate_odd"] == text


def test_the_encoder_remembers_no_series_that_is_gone() -> None:
    encoder = Encoder()
    row = catalogue.BY_NAME["coldplate_gpu_up"]
    first, second = (Series(row, Gpu("0", f"GPU-{number}")) for number in range(2))
    unused = sys.getrefcount(first)
    encoder.render(holding(Reading(first, 1)), Format.TEXT, 0.0)
    assert sys.getrefcount(first) > unused
    encoder.render(holding(Reading(second, 1)), Format.TEXT, 0.0)
    assert sys.getrefcount(first) == unused


def test_a_family_has_another_head_when_a_neighbour_takes_its_name() -> None:
    """And its own again when the neighbour is gone: what is kept of the family must not be shown then."""
    total = Reading(Series(made("a_total", Kind.COUNTER), GPU), 1)
    neighbour = Reading(Series(made("a"), GPU), 1)
    encoder = Encoder()
    for readings in ((total,), (total, neighbour), (total,)):
        snapshot = holding(*readings)
        page = encoder.render(snapshot, Format.OPENMETRICS, 0.25).decode()
        assert page == render(snapshot, Format.OPENMETRICS)
        assert ("# TYPE a_total unknown" in page) is (neighbour in readings)


GENERATE: dict[Format, Callable[[CollectorRegistry], bytes]] = {
    Format.TEXT: generate_latest,
    Format.OPENMETRICS: generate_openmetrics,
}


@pytest.mark.parametrize("fmt", Format)
def test_both_ways_give_the_same_families(full_snapshot: Snapshot, fmt: Format) -> None:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(full_snapshot))
    ours = families(Encoder().render(full_snapshot, fmt, 0.25).decode(), fmt)
    ageless = [each for each in ours if each.name != "coldplate_sample_age_seconds"]
    assert ageless == families(GENERATE[fmt](registry).decode(), fmt)


def test_a_textfile_holds_the_snapshot_without_its_age(full_snapshot: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "coldplate.prom"
    path.write_text("older")
    write_textfile(full_snapshot, path)
    page = Encoder().render(full_snapshot, Format.TEXT, 0.0)
    expected = [each for each in families(page.decode(), Format.TEXT) if each.name != "coldplate_sample_age_seconds"]
    assert families(path.read_bytes().decode(), Format.TEXT) == expected
    assert list(tmp_path.iterdir()) == [path]


def test_serving_does_not_import_the_client_library() -> None:
    script = "import sys, exporters.routes, exporters.server; print('prometheus_client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == "False\n"
