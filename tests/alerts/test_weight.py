"""What rules take of memory is known before it is taken, near enough to refuse what is too much."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from math import inf

import pytest

from agent.model import Instant
from alerts import packs, rulefile
from alerts.engine import RuleEngine, Ruleset
from alerts.promql import Scalar, compile_query
from alerts.promql.storage import Storage
from alerts.promql.syntax.bounds import LONGEST_TEXT
from alerts.rulefile import AlertingRule, RuleFile, RuleFileError
from alerts.sharing import Sharing
from alerts.weight import MOST, Room, most_of, weigh

QUERIES = [
    "up",
    "1",
    "-" * 99 + "a",
    "+".join(["a"] * 50),
    "a{" + ",".join(f'l{number}="x"' for number in range(50)) + "}",
    "avg by (gpu, uuid) (avg_over_time(coldplate_gpu_temperature_celsius[5m])) > 5 and on (gpu) coldplate_gpu_up == 1",
    'label_replace(a, "x", "$1", "y", "(.*)") or histogram_quantile(0.9, sum by (le) (rate(b[5m])))',
    "max_over_time(rate(a[5m])[1h:1m] offset 5m)",
    "topk(3, a) unless count_values('x', b)",
]
LARGE = [
    "+".join(["a"] * 5000),
    "-a" * 4999,
    "+".join(["(a)"] * 2400),
    'a{b=~"' + "x|" * 32_000 + '"}',
]


@pytest.mark.parametrize("query", QUERIES)
def test_the_weight_of_a_query_is_what_it_takes(query: str) -> None:
    compile_query(query)
    gc.collect()
    tracemalloc.start()
    compiled = [compile_query(query) for _ in range(50)]
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] / 50
    tracemalloc.stop()
    assert 0.9 * taken <= weigh(compiled[0]) <= 2 * taken


@pytest.mark.parametrize("query", [*QUERIES, *LARGE], ids=lambda query: query[:30])
def test_no_query_comes_to_more_than_is_kept_free_for_it(query: str) -> None:
    compile_query("up")
    tracemalloc.start()
    compiled = compile_query(query)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert weigh(compiled) <= most_of(query)
    assert peak <= most_of(query) + 100_000


def test_the_longest_query_has_room_beside_others() -> None:
    assert most_of(" " * LONGEST_TEXT) < MOST * 3 / 4


def test_the_pack_weighs_little() -> None:
    """Whatever rules share, such as a cache that a query leads to, would be counted with each of them."""
    files = packs.load_all(["builtin"], None, 1.0)
    total = sum(weigh(rule) for file in files for group in file.groups for rule in group.rules)
    assert 2**19 < total < 5 * 2**19


def test_what_is_held_for_a_while_is_given_back() -> None:
    room = Room(4000)
    room.hold(3500)
    assert not room.admits("u")
    room.hold(-3500)
    assert room.take("x" * 100)
    assert not room.take("x" * 1000)


def test_a_query_for_which_there_may_be_no_room_is_not_even_compiled() -> None:
    text = f"groups: [{{name: g, rules: [{{record: a, expr: b}}, {{record: c, expr: '{'d ' * 100}'}}]}}]"
    with pytest.raises(RuleFileError, match=r"f:1: group 'g', rule 2.*exceed their memory limit of 0 MiB"):
        rulefile.parse(text, "f", room=Room(150_000))
    with pytest.raises(RuleFileError, match="expr: "):
        rulefile.parse(text, "f", room=Room(800_000))


def test_a_query_that_is_too_long_is_refused_by_its_place() -> None:
    text = f"groups: [{{name: g, rules: [{{record: a, expr: '{'1+' * 6000}1'}}]}}]"
    with pytest.raises(RuleFileError, match=r"group 'g', rule 1.*expr: .*has more than 10000 words"):
        rulefile.parse(text, "f")
    asked = "{{ query `" + "1+" * 6000 + "1` }}"
    file = rulefile.parse(f"groups: [{{name: g, rules: [{{alert: a, expr: b, annotations: {{x: '{asked}'}}}}]}}]", "f")
    (warning,) = map(str, file.warnings)
    assert "annotation 'x': template: query: " in warning
    assert "has more than 10000 words" in warning


def test_what_aliases_share_counts_as_often_as_it_is_compiled() -> None:
    text = "groups:\n- name: g\n  rules:\n  - &r {record: a, expr: b}\n" + "  - *r\n" * 1000
    assert rulefile.parse(text, "f").rule_count == 1001
    with pytest.raises(RuleFileError, match="exceed their memory limit of 1 MiB"):
        rulefile.parse(text, "f", room=Room(2**20))


def _alike(number: int) -> str:
    """Rules that differ in their names alone."""
    return (
        f"{{alert: Hot{number}, expr: 'avg_over_time(t{{gpu=~\"1|2\"}}[5m]) > 80 and on (gpu) up == 1', for: 1m, "
        "labels: {severity: warning}, annotations: {summary: 'GPU {{ $labels.gpu }} is at {{ $value }} degrees'}}"
    )


def _apart(number: int) -> str:
    """Rules that have nothing in common, and many texts."""
    texts = ", ".join(f"text{each}: 'Number {number} of {each} is {{{{ $value }}}}, see {each}'" for each in range(5))
    rate = f'rate(m{number}{{b="{number}"}}[{number + 1}m])'
    query = f"sum by (a{number}) ({rate}) > {number} unless on (c{number}) d{number}"
    return f"{{alert: Apart{number}, expr: '{query}', labels: {{team: t{number}}}, annotations: {{{texts}}}}}"


def _recording(number: int) -> str:
    query = f'histogram_quantile(0.99, sum by (le, job) (rate(seconds_bucket{{shard="{number}"}}[5m])))'
    return f"{{record: 'job:seconds{number}:p99', expr: '{query}', labels: {{shard: '{number}'}}}}"


def _loaded(rule: Callable[[int], str], count: int) -> tuple[RuleFile, RuleEngine]:
    """Rules that have been evaluated a few times."""
    file = rulefile.parse("groups:\n- name: g\n  rules:\n" + "".join(f"  - {rule(n)}\n" for n in range(count)), "f")
    engine = RuleEngine(Ruleset((file,)), (), Instant(0.0, 1e9))
    for second in range(1, 4):
        engine.round(None, Instant(float(second), 1e9 + second))
    return file, engine


@pytest.mark.parametrize("rule", [_alike, _apart, _recording])
def test_rules_at_work_count_at_least_what_they_take(rule: Callable[[int], str]) -> None:
    _loaded(rule, 2)
    gc.collect()
    tracemalloc.start()
    file, engine = _loaded(rule, 300)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(engine.reports()[0].rules) == 300
    room = Room()
    assert all(room.take(each) for each in file.groups[0].rules)
    counted = room.most - room.left
    assert 0.95 * taken <= counted <= 2 * taken


def test_what_rules_have_in_common_is_there_once_and_counts_once() -> None:
    file, _ = _loaded(_alike, 2)
    first, second = file.groups[0].rules
    assert isinstance(first, AlertingRule) and isinstance(second, AlertingRule)
    assert first.labels is second.labels
    assert all(mine is other for mine, other in zip(first.query.selectors, second.query.selectors, strict=True))
    room = Room()
    room.take(first)
    before = room.left
    room.take(second)
    assert before - room.left < 0.6 * (room.most - before)


def test_the_two_zeros_are_not_shared() -> None:
    """Two zeros equal each other."""
    sharing = Sharing()
    results = [compile_query(text, sharing=sharing).evaluate(Storage(), 0.0) for text in ("1 / 0", "1 / -0")]
    assert results == [Scalar(inf), Scalar(-inf)]
