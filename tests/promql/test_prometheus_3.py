"""Answers that Prometheus 3.5.3 gave over the samples of `tests.lab.parity`, held where there is no such Prometheus.

They are of the corners in which one goes wrong. Where there is a recent one, it is asked
again; `make parity` asks more at random.
"""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.promql import EvaluationError, Labels, Storage, compile_query, make_labels
from tests.lab.parity.dataset import END, samples
from tests.lab.parity.oracles import Recent
from tests.promql import oracle
from tests.promql.answers import Refusal, ours, same, theirs
from tests.servers import need_recent

FAILS = Refusal("", at_load=False)


def one(value: float, **labels: str) -> list[tuple[dict[str, str], float]]:
    return [(labels, value)]


ANSWERS: list[tuple[str, Any]] = [
    # Matching: what a comparison filters out is no duplicate, and what it leaves is.
    ("up > on() vector(1)", []),
    ("up >= on() vector(1)", FAILS),
    ("up > bool on() vector(1)", FAILS),
    ("vector(1) < on() up", FAILS),
    ("up == bool on(job) group_left(__name__) alone", one(0.0, job="a")),
    ("up + on(job) group_left(__name__) alone", one(4.0, job="a", __name__="alone")),
    # Aggregations.
    ('count_values without (job) ("job", up)', one(2.0)),
    ('count_values by (job) ("job", up)', one(2.0, job="1")),
    ('count_values without (none) ("job", up)', one(2.0, job="1")),
    ('count_values("", up)', FAILS),
    ("topk(0, up + on() alone)", FAILS),
    ("topk(-1e30, up)", []),
    ("topk(NaN, up)", FAILS),
    ("topk(NaN, nothing)", []),
    ("bottomk(1e30, nothing)", []),
    ("bottomk(1e30, up)", FAILS),
    # Histograms.
    ('histogram_quantile(0.5, h_bucket{shape="negative"} * NaN)', one(1.0, shape="negative")),
    ('histogram_quantile(0.5, h_bucket{shape="infinite"})', one(math.nan, shape="infinite")),
    ('histogram_quantile(0.5, h_bucket{shape="unread"})', one(1.75, shape="unread")),
    ('histogram_fraction(-1.5, 0.5, h_bucket{shape="negative"})', one(0.375, shape="negative")),
    ('histogram_fraction(-Inf, Inf, h_bucket{shape="twice"})', one(1.0, shape="twice")),
    ('histogram_fraction(1, 0, h_bucket{shape="twice"})', one(0.0, shape="twice")),
    ('histogram_fraction(0, 1, h_bucket{shape="open"})', one(math.nan, shape="open")),
    # What is absent.
    ('absent(x{job=~"[a-c]", job="a"})', one(1.0, job="a")),
    ('absent(x{job="a", job=~"[a-c]"})', one(1.0)),
    ('absent(x{job!="a", job="b"})', one(1.0)),
    ('absent(x{job="a", job="b", gpu="1"})', one(1.0, gpu="1")),
    ('absent_over_time(x{job=~"[a-c]", job="a"}[5m])', one(1.0, job="a")),
    ('absent_over_time(x{job="\\xff", gpu="\\x31"}[5m])', one(1.0, job="\ufffd", gpu="1")),
    # What makes two series alike.
    ('timestamp({job="a"})', FAILS),
    ('timestamp({job="a"} and ignoring(job) alone)', FAILS),
    ('count_over_time(rate({__name__=~"early|late"}[1m])[20m:])', FAILS),
    ('count_over_time((-{__name__=~"early|late"})[20m:])', FAILS),
    ('count_over_time(label_replace({__name__=~"early|late"}, "__name__", "x", "", "")[20m:])', FAILS),
    ('count_over_time(({__name__=~"early|late"} + 1)[20m:])', one(15.0, job="a")),
    ('label_join(up, "job", "")', FAILS),
    # Names, types and units.
    ('typed{job="a"} * 2', one(160.0, job="a")),
    ('rate(typed{job="a"}[5m])', one(1 / 15, job="a")),
    ('last_over_time(typed{job="a"}[5m])', one(80.0, __name__="typed", __type__="counter", __unit__="bytes", job="a")),
    ('sum without (job) (typed{job="a"})', one(80.0, __type__="counter", __unit__="bytes")),
    ('typed{job="a"} / on(job) group_left() up', one(80.0, job="a")),
    ('-typed{job="a"}', one(-80.0, job="a")),
    # Texts are bytes.
    ('count({"\\xc3\\xa9"})', one(1.0)),
    ('up{job="\\xff"}', []),
    ('count(up{job!="\\xff"})', one(2.0)),
    ('count(up{job!~"a|\\xff"})', one(1.0)),
    ('up{job=~"\\xff.*"}', FAILS),
    ('label_replace(alone, "job", "\\xff", "", "")', one(3.0, __name__="alone", job="\ufffd")),
    ('label_join(alone, "x", "\\xc3\\xa9", "job", "job")', one(3.0, __name__="alone", job="a", x="aéa")),
    # Dates far away.
    ("year(vector(1e15))", one(31690708.0)),
    ("year(vector(-1e15))", one(-31686769.0)),
    ("year(vector(NaN))", one(292277026596.0)),
    ("month(vector(1e300))", one(12.0)),
    ("day_of_year(vector(-1e18))", one(69.0)),
    ("day_of_week(vector(9.2e18))", one(5.0)),
    ("hour(vector(NaN))", one(15.0)),
    ("days_in_month(vector(-62162208000))", one(29.0)),
    # Trigonometry.
    ("acos(vector(2))", one(math.nan)),
    ("cosh(vector(-1000))", one(math.inf)),
    ("sinh(vector(-1000))", one(-math.inf)),
    ("atanh(vector(-1))", one(-math.inf)),
    ("sin(vector(Inf))", one(math.nan)),
    ("deg(vector(pi()))", one(180.0)),
    ("rad(vector(180)) - pi()", one(0.0)),
    # Times that are written down.
    ("alone @ 1700000600", one(3.0, __name__="alone", job="a")),
    ("late @ 1700000600", []),
    ("count_over_time(alone[1m] @ 1700000600)", one(4.0, job="a")),
    ("count_over_time(alone[1m:15s] @ 1700000600 offset -15s)", one(4.0, job="a")),
    ("sum_over_time((alone @ 1700000600)[1m:30s] @ 0)", one(6.0, job="a")),
    ("timestamp(alone @ 1700000607)", one(1700000600.0, job="a")),
    ("alone @ -1", []),
    ("alone @ 9e15", []),
    ("alone offset NaN", []),
    # What there is only behind a feature flag, or not yet.
    ("count_over_time(up[5m * 2])", FAILS),
    ("up offset (5m)", FAILS),
    ("first_over_time(up[5m])", FAILS),
    ("mad_over_time(up[5m])", FAILS),
    # What is loaded, and fails.
    ("up[5m]", FAILS),
    ("count_over_time(up[5m:0.0001])", FAILS),
    ('label_replace(up, "a", "", "", "(")', FAILS),
    # Names that later versions made words.
    ("anchored + smoothed", []),
    ("1_000", 1000.0),
    ("count(up{job=~`a|\\w`})", one(2.0)),
]


@pytest.fixture(scope="module")
def held() -> Storage:
    return oracle.filled(samples())


def recent() -> Recent:
    return need_recent("nothing compares our answers with a recent Prometheus, but those that it once gave")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oracle.Oracle]:
    with oracle.running(recent().prometheus, tmp_path_factory.mktemp("recent")) as running:
        running.write(samples())
        yield running


@pytest.mark.parametrize(("query", "expected"), ANSWERS, ids=[each[0] for each in ANSWERS])
def test_a_query_has_the_answer_that_prometheus_gave(held: Storage, query: str, expected: Any) -> None:
    answer = ours(held, query, END)
    assert same(answer, expected), answer


@pytest.mark.release
@pytest.mark.parametrize(("query", "expected"), ANSWERS, ids=[each[0] for each in ANSWERS])
def test_a_recent_prometheus_still_gives_it(server: oracle.Oracle, query: str, expected: Any) -> None:
    answer = theirs(server.ask(query, END))
    assert same(answer, expected), answer


class Forgetful(Storage):
    """As the windows of a daemon are."""

    forgetful = True


@pytest.mark.parametrize(
    "query",
    ["m @ 5", "timestamp(m @ 5)", "rate(m[5m] @ 5)", "sum_over_time(m[5m:1m] @ 5)", "sum_over_time((m @ 5)[5m:])"],
)
def test_a_store_that_forgets_old_samples_refuses_a_fixed_time(query: str) -> None:
    compiled = compile_query(query)
    with pytest.raises(EvaluationError, match="'@' with a fixed time: samples are kept only as long as rules look"):
        compiled.evaluate(Forgetful(), 1e9)
    compiled.evaluate(Storage(), 1e9)


@pytest.mark.parametrize(
    "query", ["m @ end()", "sum_over_time((m @ end())[5m:] @ 5)", "sum_over_time(time()[5m:] @ 5)"]
)
def test_it_answers_where_no_sample_of_that_time_is_read(query: str) -> None:
    compile_query(query.replace("time()", "vector(time())")).evaluate(Forgetful(), 1e9)


# -- to the last bit --------------------------------------------------------------------------------------------------

UNEVEN = 1_700_000_000.0
INSTANTS = (UNEVEN + 303, UNEVEN + 777.123, UNEVEN + 900.5)
RANGES = ("2m", "77s", "5m", "10m")
TO_THE_BIT = [
    f"{function}({name}[{length}])"
    for name, functions in (
        ("counter", ("rate", "increase", "irate", "stddev_over_time")),
        (
            "gauge",
            ("delta", "idelta", "deriv", "avg_over_time", "sum_over_time", "stddev_over_time", "stdvar_over_time"),
        ),
    )
    for function in functions
    for length in RANGES
] + [f"{reduction} by (part) (gauge)" for reduction in ("sum", "avg", "stddev", "stdvar")]
"""What does not use the elementary functions of Go, which round differently on each processor."""
LAST_BITS: dict[str, list[float]] = {
    "rate(counter[77s])": [2.075611994798734, 3.668977796054121, 2.0192402749942366],
    "increase(counter[5m])": [1135.4111428076812, 897.7822828234026, 1242.2737070224655],
    "increase(counter[10m])": [2133.8191222687174, 2025.1729740127203, 2363.2043589150076],
    "delta(gauge[2m])": [2.768365586020106, -9.330405714467936, -96.55513349024235],
    "delta(gauge[10m])": [17.133205387527138, -14.423011480107073, -12.78914908627638],
    "stdvar_over_time(gauge[5m])": [787.9281884033425, 968.7672915814832, 930.2154826974947],
    "stddev(gauge)": [17.86650142210961],
    "stdvar(counter)": [53075.4824074836],
}
"""Values of the first series at the second instant, in their order."""


def uneven(count: int = 60) -> dict[Labels, list[tuple[float, float]]]:
    """Counters and gauges with samples at odd times: the sums of their extrapolation need every bit."""
    dice = random.Random(5)
    made: dict[Labels, list[tuple[float, float]]] = {}
    for number in range(count):
        name, total, at = ("gauge", "counter")[number % 2], dice.random() * 10 ** dice.randrange(9), UNEVEN
        points = made[make_labels({"n": str(number), "part": str(number % 5)}, name)] = []
        for _ in range(100):
            at = round(at + (15 if number % 3 == 0 else dice.choice([1, 5.123, 14.999, 15.001, 30])), 3)
            total = dice.random() if dice.random() < 0.02 else total + dice.random() * 100
            points.append((at, total if name == "counter" else dice.gauss(50, 30)))
    return made


@pytest.mark.parametrize("query", LAST_BITS)
def test_the_last_bit_is_that_of_prometheus(query: str) -> None:
    answer = ours(oracle.filled(uneven(6)), query, INSTANTS[1])
    assert [value for _, value in answer] == LAST_BITS[query]


@pytest.mark.release
def test_a_recent_prometheus_gives_the_same_bits_over_many_series(tmp_path: Path) -> None:
    storage, compared = oracle.filled(uneven()), 0
    with oracle.running(recent().prometheus, tmp_path) as running:
        running.write(uneven())
        for query in TO_THE_BIT:
            for at in INSTANTS:
                answer, expected = ours(storage, query, at), theirs(running.ask(query, at))
                assert same(answer, expected, relative=0.0, absolute=0.0), f"{query} at {at}"
                compared += len(answer)
    assert compared > 3000


# Past the start, off the grid of samples (15 s) and off the steps of the subqueries.
TIMES = (1_700_000_001.0 + 787.3, 1_700_000_001.0 + 1153.4)
_RANGE_FUNCTIONS = (
    "rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets", "avg_over_time", "min_over_time",
    "max_over_time", "sum_over_time", "count_over_time", "stddev_over_time", "stdvar_over_time", "last_over_time",
    "present_over_time", "absent_over_time",
)  # fmt: skip
_VALUE_FUNCTIONS = ("abs", "ceil", "floor", "sgn", "sqrt", "exp", "ln", "log2", "log10", "round", "sort", "sort_desc",
                    "timestamp", "absent")  # fmt: skip
_DATE_FUNCTIONS = ("minute", "hour", "day_of_month", "day_of_week", "day_of_year", "days_in_month", "month", "year")
_AGGREGATIONS = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar")
_VECTORS = ("util", 'odd{kind!="mixed"}', "sum by (node) (util)", 'ends{how=~"m.*|r.*"}')
_RANGES = ("energy_total[5m]", "odd[2m]", "ends[4m]", "energy_total[90s] offset 2m", "sum by (node) (util)[3m:20s]")
_NUMBERS = ("0", "-0", "1", "-7", "5.5", "8", "Inf", "NaN")
_PARTS = ("-1", "0", "0.25", "0.9", "1", "2.9", "1e30", "NaN")
QUERIES = [
    *(f"({left}) {operator} ({right})" for left in _NUMBERS for right in _NUMBERS
      for operator in ("/", "%", "^", "== bool", "< bool", "atan2")),
    *(f"{left} {operator} {right}" for left, right in (("odd", "odd"), ("odd", "0"), ("odd", "-2"), ("2", "odd"))
      for operator in ("==", "!=", ">", ">=", "<", "<=", "> bool", "!= bool", "*", "/", "%", "^")),
    *(f"{name}({part}, {each})" for name in ("topk", "bottomk", "quantile", "histogram_quantile") for part in _PARTS
      for each in ("util", "latency_bucket")),
    *(f"{name}({each}, {part})" for name in ("clamp_min", "clamp_max", "round") for part in _PARTS
      for each in ("odd", "util")),
    *Path(__file__).with_name("queries.txt").read_text().splitlines(),
    *(f"{name}({each})" for name in _RANGE_FUNCTIONS for each in _RANGES),
    *(f"{name}({each})" for name in _VALUE_FUNCTIONS for each in _VECTORS),
    # Of NaN and the infinities, the date is whatever the processor makes of them.
    *(f"{name}({each} * 1e8)" for name in _DATE_FUNCTIONS for each in _VECTORS[2:]),
    *(f"{name}{clause} ({each})" for name in _AGGREGATIONS for clause in ("", " by (node)") for each in _VECTORS),
]  # fmt: skip
"""Every function, operator and modifier, and their errors."""
ORDERED = ("sort(", "sort_desc(", "topk(", "bottomk(")


def agree(storage: Storage, prometheus: Any, query: str, at: float) -> None:
    answer, expected = ours(storage, query, at), theirs(prometheus.ask(query, at))
    if isinstance(expected, Refusal) and isinstance(answer, Refusal):
        # Where two elements clash, which is named first depends on the order in which a storage gives them.
        start = answer.text.split("[")[0].split("{")[0]
        assert start in expected.text, f"{query} at {at}: {answer!r}, not {expected!r}"
        return
    ordered = query.startswith(ORDERED) and "by" not in query
    assert same(answer, expected, ordered=ordered), f"{query} at {at}:\n ours   {answer}\n theirs {expected}"


@pytest.mark.parametrize("at", TIMES)
def test_every_query_has_prometheus_answer(storage: Storage, prometheus: Any, at: float) -> None:
    assert len(QUERIES) > 500
    differing = []
    for query in QUERIES:
        try:
            agree(storage, prometheus, query, at)
        except AssertionError as error:
            differing.append(str(error))
    assert not differing, "\n".join(differing)
