"""The windows: what rules read is there for as long as they read it, and nothing else is."""

import json
import math
import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.lib.state_files import DamagedError, seal
from agent.model import Frame, Reading
from alerts.alert_state import WINDOWS_FORMAT as FORM
from alerts.alert_state import ArchivedSeries
from alerts.alert_state import decode_windows as decode
from alerts.alert_state import encode_windows as encode
from alerts.group_evaluator import GroupEvaluator
from alerts.promql import Sample, Storage, is_stale, make_labels
from alerts.promql.budget import Budget
from alerts.promql.storage import OutOfOrderError
from alerts.rulefile import RuleFileError
from alerts.windows import Needs, Windows
from alerts.windows.store import SERIES_BYTES
from tests.engine.conftest import START, Node, ruleset
from tests.frames import frame_of

TARGET = (("instance", "n:19400"), ("job", "coldplate"))
QUERIES = (
    "a", "a > 3", 'a{gpu="1"}', "a offset 20s", "sum by (gpu) (a) + on (gpu) b", "rate(a[30s])", "increase(b[50s])",
    "max_over_time(a[15s] offset 40s)", "avg_over_time((a * 2)[40s:10s])", "changes(a[1m])", "absent(b)",
    "absent_over_time(b[20s])", "count({__name__=~'a|b'})", "last_over_time(b[45s])", "deriv(a[25s])", "a @ end()",
    "max_over_time(rate(a[20s])[40s:5s])", 'b{gpu!="0"} unless a',
)  # fmt: skip


def windows(queries: str, shipped: bool = False, **options: int) -> Windows:
    groups = ruleset(queries).groups
    return Windows(Needs(groups, {group.file for group in groups if shipped}), TARGET, 1.0, **options)


def rules_of(*queries: str) -> str:
    return ", ".join(f'{{record: "r{number}", expr: {json.dumps(query)}}}' for number, query in enumerate(queries))


def names(found: Windows) -> set[str]:
    every = found.select((), -math.inf, math.inf, Budget())
    return {f"{dict(labels)['__name__']}/{dict(labels).get('gpu')}" for labels, _, _ in every}


def gpus(node: Node, *values: float) -> Frame:
    """The values of `a` of each GPU."""
    return frame_of([node.reading("a", str(gpu), value) for gpu, value in enumerate(values)])


def times_of(found: Windows) -> dict[str, list[float]]:
    return {dict(labels)["__name__"]: list(times) for labels, times, _ in found.select((), 0.0, math.inf, Budget())}


def comparable(result: object) -> object:
    if not isinstance(result, list):
        return result
    return sorted((sample.labels, repr(sample.value)) for sample in result if isinstance(sample, Sample))


@pytest.mark.parametrize("seed", range(4))
def test_a_query_sees_in_the_windows_what_it_sees_in_a_store_of_everything(seed: int, node: Node) -> None:
    dice = random.Random(seed)
    rules = ruleset(rules_of(*QUERIES))
    queries = [rule.query for group in rules.groups for rule in group.rules]
    kept, everything = Windows(Needs(rules.groups), TARGET, 1.0), Storage()
    live: set[tuple[tuple[str, str], ...]] = set()
    at = START.wall
    for _ in range(150):
        at += dice.choice([1.0, 1.0, 1.0, 1.013, 2.0, 7.0])
        there = [(name, gpu) for name in "ab" for gpu in "012" if dice.random() < 0.93]
        readings = [node.reading(name, gpu, float(dice.randrange(9))) for name, gpu in there]
        kept.ingest_round([frame_of(readings)], at)
        now = set()
        for reading in readings:
            labels = make_labels({**dict(reading.series.all_labels), **dict(TARGET)}, reading.metric.name)
            everything.append(labels, at, reading.value)
            now.add(labels)
        for labels in live - now:
            everything.mark_stale(labels, at)
        live = now
        for query in queries:
            assert comparable(query.evaluate(kept, at)) == comparable(query.evaluate(everything, at)), query.text


def test_a_window_has_every_sample_that_a_rule_may_read(node: Node) -> None:
    kept = windows(rules_of("rate(a[5m])", "b"))
    for second in range(50):
        kept.ingest_round(
            [frame_of([node.reading("a", "0", float(second)), node.reading("b", "0", float(second))])],
            START.wall + second,
        )
    assert times_of(kept) == {"a": [START.wall + second for second in range(50)], "b": [START.wall + 49]}
    for second in range(50, 900):
        kept.ingest_round([frame_of([node.reading("a", "0", 1.0), node.reading("b", "0", 1.0)])], START.wall + second)
    assert 300 <= len(times_of(kept)["a"]) < 500


def test_only_what_a_rule_reads_is_kept_of_devices_and_of_what_rules_write(node: Node) -> None:
    kept = windows(rules_of("a{gpu='1'}", "rate(b[1m])"))
    kept.ingest_round([frame_of([node.reading(name, gpu, 1.0) for name in "abc" for gpu in "01"])], START.wall)
    assert names(kept) == {"a/1", "b/0", "b/1"}
    kept = windows(rules_of("r1", "ALERTS{alertstate='firing'}"))
    kept.append(make_labels({}, "r1"), START.wall, 1.0)
    kept.append(make_labels({}, "r0"), START.wall, 1.0)
    kept.append(make_labels({"alertstate": "pending"}, "ALERTS"), START.wall, 1.0)
    assert names(kept) == {"r1/None"}
    with pytest.raises(OutOfOrderError):
        kept.append(make_labels({}, "r1"), START.wall - 1, 1.0)
    kept.mark_stale(make_labels({}, "r1"), START.wall + 1)
    assert is_stale(kept.newest((), 0.0, math.inf, Budget())[0][2])


def test_a_series_ends_the_moment_that_it_leaves_the_snapshot_and_may_come_back(node: Node) -> None:
    kept = windows(rules_of("a"))
    kept.ingest_round([gpus(node, 1.0, 1.0)], START.wall)
    kept.ingest_round([frame_of([node.reading("a", "1", 2.0)])], START.wall + 1)
    values = {dict(labels)["gpu"]: value for labels, _, value in kept.newest((), 0.0, math.inf, Budget())}
    assert is_stale(values["0"]) and values["1"] == 2.0
    kept.ingest_round([gpus(node, 3.0, 3.0)], START.wall + 2)
    assert {value for _, _, value in kept.newest((), 0.0, math.inf, Budget())} == {3.0}


def test_series_that_ended_are_forgotten_when_no_rule_can_look_back_at_them(node: Node) -> None:
    kept = windows(rules_of("rate(a[1m])"))
    kept.ingest_round([gpus(node, 1.0, 1.0)], START.wall)
    for second in range(1, 400):
        kept.ingest_round([frame_of([node.reading("a", "1", 1.0)])], START.wall + second)
        if second < 360:
            assert len(kept) == 2
    assert names(kept) == {"a/1"}


def test_what_does_not_fit_is_left_out_and_counted_until_room_becomes_free(node: Node) -> None:
    kept = windows(rules_of("a"), shipped=True, capacity=3 * (SERIES_BYTES + 18))
    readings = [node.reading("a", str(gpu), 1.0) for gpu in range(5)]
    kept.ingest_round([frame_of(readings)], START.wall)
    kept.ingest_round([frame_of(readings)], START.wall + 1)
    assert (len(kept), kept.dropped) == (3, 4)
    kept = windows(rules_of("a"), shipped=True, capacity=SERIES_BYTES + 18)
    kept.ingest_round([gpus(node, 1.0, 1.0)], START.wall)
    for second in range(1, 340):
        kept.ingest_round([frame_of([node.reading("a", "1", 1.0)])], START.wall + second)
    assert names(kept) == {"a/1"}
    assert kept.dropped < 340


def test_a_reload_keeps_the_history_that_is_still_read_and_drops_the_rest(node: Node) -> None:
    kept = windows(rules_of("rate(a[1m])", "b"))
    for second in range(60):
        kept.ingest_round(
            [frame_of([node.reading("a", "0", second), node.reading("b", "0", 1.0)])], START.wall + second
        )
    kept.rewire(Needs(ruleset(rules_of("increase(a[50s])", "c")).groups), 1.0)
    assert names(kept) == {"a/0"}
    (window,) = kept.select((), 0.0, math.inf, Budget())
    assert len(window[1]) == 60
    kept.ingest_round([frame_of([node.reading("a", "0", 60), node.reading("c", "0", 1.0)])], START.wall + 60)
    assert names(kept) == {"a/0", "c/0"}


def test_a_reading_given_twice_counts_once(node: Node) -> None:
    kept = windows(rules_of("rate(a[1m])"))
    twice: list[Reading] = [node.reading("a", "0", 1.0), node.reading("a", "0", 2.0)]
    kept.ingest_round([frame_of(twice)], START.wall)
    assert [list(values) for _, _, values in kept.select((), 0.0, math.inf, Budget())] == [[1.0]]


MADE = (
    """{{ with printf "a{gpu=%q}" $labels.gpu | query }}{{ . | first | value }}{{ end }}""",
    """{{ range query "a" }}{{ printf "b{gpu='%v'} > %f" .Labels.gpu .Value | query | len }}{{ end }}""",
    """{{ query (printf "max_over_time(a{gpu=~%q}[40s])" (print $labels.gpu "|2")) | first | value }}""",
    """{{ query "sum(b)" | first | value }} {{ query "{__name__=~'a|b'}" | len }}""",
    """{{ $labels.gpu | printf "a{gpu=%q} or b > %v" $labels.gpu | query | len }}""",
)


@pytest.mark.parametrize("template", MADE)
def test_a_query_of_a_template_sees_what_it_sees_in_a_store_of_everything(template: str, node: Node) -> None:
    """The rule's own query reads neither of the series that its template asks for."""
    rules = ruleset("{alert: A, expr: 'c == 1', annotations: {t: " + json.dumps(template) + "}}")
    kept, everything = Windows(Needs(rules.groups), (), 1.0), Storage()
    found = []
    for second in range(60):
        readings = [node.reading(name, gpu, float(second)) for name in "ab" for gpu in "012"]
        kept.ingest_round([frame_of([*readings, node.reading("c", "1", 1.0)])], START.wall + second)
        for reading in (*readings, node.reading("c", "1", 1.0)):
            labels = make_labels(dict(reading.series.all_labels), reading.series.metric.name)
            everything.append(labels, START.wall + second, reading.value)
    for store in (kept, everything):
        group = GroupEvaluator(rules.groups[0])
        outcome = group.evaluate(store, START.wall + 59)
        assert not outcome.failures
        (alert,) = group.alerts()
        found.append(alert.annotations["t"])
    assert found[0] == found[1]
    assert "error" not in found[0]


@pytest.mark.parametrize(
    ("asks", "problem"),
    [
        ('query (printf "a[%s]" $labels.w)', "query 'a[...]': what it reads is known only when the alert fires"),
        ('query (printf "%s > 1" $labels.w)', "query '... > 1': the metric name is known only when the alert fires"),
    ],
)
@pytest.mark.parametrize("of_group", [False, True])
def test_a_query_that_reads_what_only_an_evaluation_knows_is_refused(asks: str, problem: str, of_group: bool) -> None:
    labels = f"labels: {{t: '{{{{ {asks} }}}}'}}"
    group = f"{labels}, rules: [{{alert: A, expr: up}}]" if of_group else f"rules: [{{alert: A, expr: up, {labels}}}]"
    with pytest.raises(RuleFileError) as caught:
        ruleset(f"groups: [{{name: g, {group}}}]")
    assert "label 't': template: " in str(caught.value) and problem in str(caught.value)


def test_a_query_reads_any_series_whose_name_and_labels_it_may_select() -> None:
    store = windows("""{alert: A, expr: up, labels: {t: '{{ query (printf "a_%s{b=%q}" $labels.n $labels.b) }}'}}""")
    for name in ("a_x", "b_x"):
        store.append(make_labels({"b": "1"}, name), 100.0, 1.0)
    assert [dict(labels)["__name__"] for labels, _, _ in store.select((), 0.0, math.inf, Budget())] == ["a_x"]


def test_every_time_is_kept_as_a_whole_millisecond_however_it_comes(node: Node) -> None:
    """As a server keeps them: a sample a fraction later would be another one, and a range would lose it at its edge."""
    kept = windows(rules_of("rate(a[1h])", "rate(w[1h])", "rate(x[1h])", "rate(y[1h])"))
    written, expired, young = (make_labels({}, name) for name in "wxy")

    def times(name: str) -> list[float]:
        return times_of(kept)[name]

    kept.ingest_round([frame_of([node.reading("a", "0", 1.0)])], 1000.0004)
    kept.ingest_round([frame_of([])], 1001.0006)
    assert times("a") == [1000.0, 1001.001]
    kept.append(written, 2000.0004, 1.0)
    kept.mark_stale(written, 2001.0006)
    assert times("w") == [2000.0, 2001.001]
    for labels in (expired, young):
        kept.append(labels, 3000.0, 1.0)
    kept.expire(expired, since=2999.9996, at=3005.0004)
    kept.expire(young, since=2999.9994, at=3005.0004)
    assert (times("x"), times("y")) == ([3000.0, 3005.0], [3000.0])
    kept.shift(-0.1236)
    assert (times("a"), times("y")) == ([999.876, 1000.877], [2999.876])
    fresh = windows(rules_of("rate(a[1h])", "w"))
    fresh.restore(kept.kept(), step=60.0004)
    assert times_of(fresh) == {"a": [1059.876, 1060.877], "w": [2060.877]}


SAMPLES = st.lists(st.tuples(st.floats(0, 4e9), st.floats(allow_nan=False)), min_size=1, max_size=5)
LABELS = st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=3).map(tuple)


def kept(labels: tuple[tuple[str, str], ...], live: bool, samples: list[tuple[float, float]]) -> ArchivedSeries:
    unique = sorted(dict(samples).items())
    return ArchivedSeries(
        labels, live, array("d", [at for at, _ in unique]), array("d", [value for _, value in unique])
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.builds(kept, LABELS, st.booleans(), SAMPLES), max_size=4))
def test_what_is_written_is_read_again(series: list[ArchivedSeries]) -> None:
    found = decode(encode(7.5, "devices", series))
    assert (found.at, found.source, list(found.series)) == (7.5, "devices", series)


GOOD = encode(7.5, "devices", [kept((("a", "b"),), True, [(1.0, 2.0), (2.0, 3.0)])])
BODY = GOOD.partition(b"\n")[2]


@pytest.mark.parametrize(
    "content",
    [
        seal(FORM, BODY[:-8]), seal(FORM, BODY.replace(b"true, 2", b"true, 0")),
        seal(FORM, BODY.replace(b"little", b"middle")),
        encode(1.0, "devices", [ArchivedSeries((), True, array("d", [2.0, 1.0]), array("d", [0.0, 0.0]))]),
    ],
)  # fmt: skip
def test_damage_is_reported(content: bytes) -> None:
    with pytest.raises(DamagedError):
        decode(content)
