"""What is Prometheus 3's alone, or cannot be asked over an API: edges, staleness, extrapolation, purity, the store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.promql import EvaluationError, Matcher, Storage, compile_query, make_labels
from alerts.promql.budget import Budget, SampleLedger
from alerts.promql.storage import OutOfOrderError


def stored(name: str, points: dict[float, float], **labels: str) -> Storage:
    storage = Storage()
    for at, value in points.items():
        storage.append(make_labels(labels, name), at, value)
    return storage


def value_of(query: str, storage: Storage, at: float) -> float | None:
    """The one element's value, or None for an empty vector."""
    elements = compile_query(query).evaluate(storage, at)
    assert isinstance(elements, list)
    assert len(elements) < 2
    return elements[0].value if elements else None


STEADY = {15.0 * step: 15.0 * step for step in range(100)}


TODAY = 1_763_640_000.123


def counted(first: float) -> dict[float, float]:
    """A counter that is seen from 600 s on, with this value, and grows by 1 a second."""
    return {600.0 + 15 * step: first + 15 * step for step in range(5)}


@pytest.mark.parametrize(
    ("points", "query", "at", "value"),
    [
        # a range leaves out the sample at its left edge, and a subquery the step
        (STEADY, "count_over_time(m[1m])", 300.0, 4.0),
        ({}, "count_over_time(vector(1)[5m:1m])", 60.0, 5.0),  # also before the epoch
        ({}, "sum_over_time(vector(time())[2m:1m])", 600.0, 1140.0),
        # the look-back leaves out the sample that is exactly five minutes old, to the millisecond of today's times
        ({TODAY: 1.0}, "m", TODAY + 299.999, 1.0),
        ({TODAY: 1.0}, "m", 1_763_640_300.123, None),
        ({TODAY: 1.0}, "m", 1_763_640_000.122, None),
        # zero is a value
        ({0.0: 0.0}, "m == 0", 1.0, 0.0),
        ({0.0: 0.0}, "m or vector(5)", 1.0, 0.0),
        # 15 s to 60 s are sampled; the gap of 15 s before them counts, and the sum is the whole minute
        (STEADY, "increase(m[1m])", 60.0, 60.0),
        (STEADY, "rate(m[1m])", 60.0, 45.0 * (60.0 / 45.0 / 60.0)),
        # It was zero 12 s before it is seen, and half a step is the most that is added; delta() seeks no zero
        (counted(12.0), "increase(m[10m])", 660.0, 60.0 * (60.0 + 7.5) / 60.0),
        (counted(3.0), "increase(m[10m])", 660.0, 60.0 * (60.0 + 3.0) / 60.0),
        (counted(3.0), "delta(m[10m])", 660.0, 60.0 * (60.0 + 7.5) / 60.0),
        # a counter that is born has no increase yet
        ({0.0: 1.0}, "increase(m[10m])", 1.0, None),
        ({0.0: 1.0}, "(m unless m offset 10m) > 0", 1.0, 1.0),
        # a mean survives a sum that would overflow
        ({0.0: 1.5e308, 1.0: 1.5e308, 2.0: 0.0}, "avg_over_time(m[1m])", 3.0, pytest.approx(1e308)),
    ],
)
def test_a_query_has_prometheus_3_s_value(
    points: dict[float, float], query: str, at: float, value: float | None
) -> None:
    assert value_of(query, stored("m", points), at) == value


def test_a_marker_ends_a_series_at_once_and_is_no_sample_of_a_range() -> None:
    storage = stored("m", {0.0: 1.0, 15.0: 2.0})
    labels = make_labels({}, "m")
    storage.mark_stale(labels, 30.0)
    assert value_of("m", storage, 29.0) == 2.0
    assert value_of("m", storage, 30.0) is None
    assert value_of("absent(m)", storage, 30.0) == 1.0
    assert value_of("count_over_time(m[1m])", storage, 31.0) == 2.0
    assert value_of("last_over_time(m[1m])", storage, 31.0) == 2.0
    storage.append(labels, 45.0, 3.0)
    assert value_of("m", storage, 45.0) == 3.0
    assert value_of("changes(m[1m])", storage, 46.0) == 2.0


def test_a_series_is_marked_once_and_only_if_it_is_there() -> None:
    storage = stored("m", {0.0: 1.0})
    storage.mark_stale(make_labels({}, "m"), 15.0)
    storage.mark_stale(make_labels({}, "m"), 30.0)
    storage.mark_stale(make_labels({}, "other"), 30.0)
    (window,) = storage.select((Matcher("__name__", "=", "m"),), -1.0, 99.0, Budget())
    assert list(window[1]) == [0.0, 15.0]
    assert len(storage) == 1


def test_sums_and_means_keep_what_plain_addition_loses() -> None:
    storage = Storage()
    for index, value in enumerate((1e100, 1.0, -1e100, 1.0)):
        storage.append(make_labels({"i": str(index)}, "m"), 0.0, value)
        storage.append(make_labels({}, "n"), float(index), value)
    assert value_of("sum(m)", storage, 1.0) == 2.0
    assert value_of("sum_over_time(n[1m])", storage, 4.0) == 2.0
    assert value_of("avg_over_time(n[1m])", storage, 4.0) == 0.5
    for value in (0.7, 0.1, 1 / 3, 1e-300):
        storage = stored("m", {float(at): value for at in range(20)})
        assert value_of("avg_over_time(m[1m])", storage, 20.0) == value


def test_an_error_of_matching_names_the_group_the_side_and_the_series() -> None:
    storage = Storage()
    for gpu in ("0", "1"):
        storage.append(make_labels({"gpu": gpu, "node": "n"}, "m"), 0.0, 1.0)
    storage.append(make_labels({"node": "n"}, "one"), 0.0, 1.0)
    with pytest.raises(EvaluationError) as caught:
        compile_query("one * on(node) m").evaluate(storage, 1.0)
    assert str(caught.value) == (
        'found duplicate series for the match group {node="n"} on the right hand-side of the operation: '
        '[{__name__="m", gpu="1", node="n"}, {__name__="m", gpu="0", node="n"}];many-to-many matching not allowed: '
        "matching labels must be unique on one side"
    )
    with pytest.raises(EvaluationError, match="many-to-one matching must be explicit"):
        compile_query("m * on(node) one").evaluate(storage, 1.0)
    with pytest.raises(EvaluationError, match="vector cannot contain metrics with the same labelset"):
        compile_query('label_replace(m, "gpu", "", "", "")').evaluate(storage, 1.0)


def test_series_that_come_and_go_do_not_fill_the_memory_of_a_query() -> None:
    query, ledger = compile_query("sum by (i) (m)"), SampleLedger()
    for turn in range(2_500):
        storage = Storage()
        storage.append(make_labels({"i": str(turn)}, "m"), float(turn), 1.0)
        (sample,) = query.evaluate(storage, float(turn), Budget(ledger=ledger))
        assert sample.labels == (("i", str(turn)),)
    assert 0 < ledger.remembered < 1000


def test_labels_that_depend_on_values_are_not_remembered() -> None:
    storage, ledger = stored("m", {float(at): float(at) for at in range(10)}), SampleLedger()
    query = compile_query('sum by (v) (count_values("v", m))')
    for at in range(10):
        (sample,) = query.evaluate(storage, float(at), Budget(ledger=ledger))
        assert sample.labels == (("v", str(at)),)
        assert ledger.remembered == 0


def test_a_series_and_an_element_with_its_labels_are_one_in_a_subquery() -> None:
    storage = stored("m", {float(at): 1.0 for at in range(20)})
    storage.append(make_labels({}, "n"), 9.0, 1.0)
    storage.mark_stale(make_labels({}, "n"), 10.0)
    query = compile_query('count_over_time((n or label_replace(m, "__name__", "n", "", ""))[10s:1s])')
    assert [sample.value for sample in query.evaluate(storage, 15.0)] == [10.0]


LABELS = st.fixed_dictionaries(
    {"gpu": st.sampled_from("012"), "node": st.sampled_from("ab"), "job": st.sampled_from("xy")}
)
VECTORS = st.lists(st.tuples(LABELS, st.floats(-1e6, 1e6)), max_size=12)


def instant(elements: list[tuple[dict[str, str], float]]) -> Storage:
    storage = Storage()
    for labels, value in {make_labels(labels, "m"): value for labels, value in elements}.items():
        storage.append(labels, 0.0, value)
    return storage


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=30), st.integers(1, 10**6))
def test_the_rate_of_a_counter_does_not_depend_on_when_it_is_read(steps: list[int], shift: int) -> None:
    def rate(start: float) -> float | None:
        total, points = 10_000.0, {}
        for index, step in enumerate(steps):
            total += step
            points[start + 15.0 * index] = total
        return value_of("rate(m[5m])", stored("m", points), start + 15.0 * len(steps))

    assert rate(0.0) == rate(float(shift))


@given(VECTORS, st.sampled_from(["m", "sum by (node) (m)", "m - on(gpu, node, job) m", "max_over_time(m[1m:1s])"]))
def test_evaluation_is_pure(elements: list[tuple[dict[str, str], float]], text: str) -> None:
    storage, query = instant(elements), compile_query(text)
    first = query.evaluate(storage, 1.0)
    query.evaluate(instant([({"gpu": "9", "node": "z", "job": "q"}, 1.0)]), 1.0)
    query.evaluate(storage, 1000.0)
    assert query.evaluate(storage, 1.0) == first
    assert compile_query(text).evaluate(storage, 1.0) == first


M = (Matcher("__name__", "=", "m"),)


def windows(storage: Storage) -> list[list[float]]:
    return [list(times) for _, times, _ in storage.select(M, -1e9, 1e12, Budget())]


def test_a_sample_must_be_newer_than_the_newest_but_may_repeat_it() -> None:
    storage = Storage()
    storage.append(make_labels({}, "m"), 5.0, 1.0)
    storage.append(make_labels({}, "m"), 5.0, 1.0)
    with pytest.raises(OutOfOrderError, match="not after the newest"):
        storage.append(make_labels({}, "m"), 5.0, 2.0)
    with pytest.raises(OutOfOrderError):
        storage.append(make_labels({}, "m"), 4.0, 1.0)
    assert windows(storage) == [[5.0]]


def test_a_series_that_comes_later_is_found_by_a_selection_that_was_asked_before() -> None:
    storage = Storage()
    storage.append(make_labels({"gpu": "0"}, "m"), 1.0, 1.0)
    assert len(windows(storage)) == 1
    storage.append(make_labels({"gpu": "1"}, "m"), 1.0, 1.0)
    assert len(windows(storage)) == 2


def test_a_matcher_knows_its_four_operators() -> None:
    assert [Matcher("a", op, "x|y").matches("x") for op in ("=", "!=", "=~", "!~")] == [False, True, True, False]
    with pytest.raises(ValueError, match="unknown matcher"):
        Matcher("a", "<", "x")
