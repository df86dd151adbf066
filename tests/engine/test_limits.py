"""What no rule can do, whatever it is: stand still, take the node's memory, or keep the others from being evaluated."""

import resource
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from agent.model import Phase, RuleHealth
from alerts import durations, limits
from alerts.group_evaluator import GroupEvaluator
from alerts.promql import Storage, compile_query, make_labels
from alerts.promql.budget import Budget, SampleLedger
from alerts.promql.labels import LimitError
from alerts.template import compile_template
from alerts.template.printf import sprintf
from alerts.template.template_functions import FUNCTIONS
from alerts.windows import Needs, Windows
from tests import warm
from tests.engine import nasty
from tests.engine.conftest import ruleset
from tests.engine.nasty import Looks

MEBIBYTE = 2**20

CLEAN = (
    "query timed out in expression evaluation",
    "error executing template ",
    "query processing would load too many samples into memory",
    "found duplicate series for the match group",
    "multiple matches for labels",
    "vector cannot contain metrics with the same labelset",
    "vector contains metrics with the same labelset",
    "sample at ",  # two evaluations, and a result that has a name of its own
    "a label value has",
    "the values of a label set have",
    "label_join(): the value would have",
    "label_replace(): the replacement is too long",
    "has ",
    "writes ",
)


def ended_cleanly(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert not each["error"] or each["error"].startswith(CLEAN), each


@pytest.mark.release  # a second of a processor for each rule
def test_nasty_rules_end_and_stay_within_their_memory() -> None:
    """Over windows that are full, one after the other; the process is held against what it had before the first."""
    found = warm.call(nasty.memory)
    ended_cleanly(found)
    assert found[-1]["bytes"] < 48 * MEBIBYTE, max(found, key=lambda each: each["bytes"])
    assert max(each["samples"] for each in found) <= limits.MAX_SAMPLES
    assert any("timed out" in each["error"] for each in found)
    assert sum(not each["error"] for each in found) > len(found) / 5


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.release)])
def test_nasty_rules_look_at_the_time_again_and_again(step: int) -> None:
    """Counted in lines that are executed: a loop that forgets to look would go through a hundred times as many.

    Writing the results of 4000 series down is 360,000 of them, without a look.
    """
    found = warm.call(nasty.looks, step)
    ended_cleanly(found)
    worst = max(found, key=lambda each: each["lines"])
    assert worst["lines"] < 500_000, worst


# -- one evaluation ---------------------------------------------------------------------------------------------------


def stored(count: int, length: int = 1, **more: str) -> Storage:
    storage = Storage()
    for number in range(count):
        for second in range(length):
            storage.append(make_labels({"gpu": str(number), **more}, "m"), 100.0 + second, 1.0)
    return storage


def evaluate(query: str, storage: Storage, at: float = 100.0, **options: Any) -> Any:
    return compile_query(query, default_step=1.0).evaluate(storage, at, Budget(Looks(0.01), **options))


@pytest.mark.parametrize(
    "query",
    [
        "max_over_time(rate(m[1m])[1d:1ms])",
        "count_over_time(vector(1)[1w:1ms])",
        "max_over_time(max_over_time(m[1h:1s])[1h:1s])",
        'sum(m{gpu=~".*[0-9]"}) + ' * 300 + "1",
    ],
)
def test_a_query_ends_at_its_deadline(query: str) -> None:
    with pytest.raises(LimitError, match="query timed out in expression evaluation"):
        evaluate(query, stored(3000), seconds=0.3)


ELEMENTS = 100 * limits.SAMPLES_PER_ELEMENT
"""What a hundred elements count, whose label sets are those of the series."""
NAMELESS = ELEMENTS + 100 * (limits.SAMPLES_PER_LABEL_SET + 2)
"""The same with label sets of their own, which are remembered."""


@pytest.mark.parametrize(
    ("query", "series", "samples", "enough", "little"),
    [
        *(
            (query, 100, 60, 200_000, 50)
            for query in ("m", "m + m", "count_over_time(m[1m])", "sum_over_time(m[10m:1s])", 'x or {gpu=~".+"}')
        ),
        ("m", 100, 1, ELEMENTS, ELEMENTS - limits.SAMPLES_PER_ELEMENT),
        ("-m", 100, 1, NAMELESS, NAMELESS - limits.SAMPLES_PER_ELEMENT),
        ("count_over_time(m[10m])", 1, 600, 620, 590),  # one window is not too long either
    ],
)
def test_the_samples_that_a_query_holds_are_limited(
    query: str, series: int, samples: int, enough: int, little: int
) -> None:
    storage, at = stored(series, samples), 99.0 + samples
    evaluate(query, storage, at, samples=enough)
    with pytest.raises(LimitError, match="would load too many samples into memory"):
        evaluate(query, storage, at, samples=little)


def test_what_is_released_no_longer_counts() -> None:
    """Windows are looked at one after the other, and an aggregation leaves nothing of what it read."""
    storage = stored(100, 60)
    evaluate("sum(count_over_time(m[1m]))", storage, 160.0, samples=3000)
    evaluate(" + ".join(["sum(m)"] * 30), storage, 160.0, samples=3000)
    evaluate("max_over_time(sum(m)[1m:1s])", storage, 160.0, samples=3000)
    evaluate(" + ".join(["max_over_time(m[1m:1s])"] * 10), storage, 160.0, samples=20_000, seconds=10.0)


def test_what_queries_remember_is_bounded_for_all_of_them_together() -> None:
    storage = stored(2000)
    ledger = SampleLedger()
    queries = [compile_query(f"sum by (gpu) (m + {number})") for number in range(30)]
    most = 0
    for query in queries * 2:
        assert len(query.evaluate(storage, 100.0, Budget(ledger=ledger))) == 2000
        assert ledger.remembered <= limits.MOST_REMEMBERED
        most = max(most, ledger.remembered)
    assert most > limits.MOST_REMEMBERED // 2


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ('label_join(m, "x", "", "x", "gpu", "x")', None),
        ('label_join(label_join(m, "x", "", "long", "long", "long"), "x", "", "x", "x", "x")', "the value would have"),
        ('label_replace(m, "x", "' + "$1" * 10 + '", "long", "(.*)")', "replacement is too long"),
        (
            "label_join(" * 40 + "m" + ', "a", "", "long")' + "".join(f', "a{n}", "", "long")' for n in range(39)),
            "values of a",
        ),
    ],
)
def test_labels_do_not_grow_without_end(query: str, words: str | None) -> None:
    storage = stored(1, long="x" * 1000)
    if words is None:
        evaluate(query, storage)
        return
    with pytest.raises(LimitError, match=words):
        evaluate(query, storage)


# -- rules and groups -------------------------------------------------------------------------------------------------


def group(rules: str, timer: Callable[[], float] = lambda: 0.0, ledger: SampleLedger | None = None) -> GroupEvaluator:
    (made,) = ruleset(rules).groups
    return GroupEvaluator(made, timer=timer, ledger=ledger)


SLOW = "{record: slow, expr: 'max_over_time(m[1d:1ms])'}"


def test_a_rule_that_meets_the_deadline_rests_and_is_tried_again() -> None:
    timer = Looks(0.01)
    rules = group(f"{SLOW}, {{alert: Fine, expr: m > 0}}", timer)
    storage = stored(1)
    spent, errors = [], set()
    for second in range(100, 140):
        before = timer.now
        outcome = rules.evaluate(storage, float(second))
        spent.append(timer.now - before)
        errors |= {failure.error for failure in outcome.failures}
        assert [failure.rule for failure in outcome.failures] == ["slow"]
    assert len(rules.firing()) == 1
    (error,) = errors  # one text all the while, so that it is told once
    assert error.startswith("query timed out in expression evaluation; a rule may take 1 s")
    tried = [100 + second for second, took in enumerate(spent) if took > 1]
    assert tried[:3] == [100, 110, 120]
    assert sum(took for took in spent if took > 1) < 40 / 8


def test_an_alert_whose_rule_takes_too_long_stays_as_it_is() -> None:
    timer = Looks(0.0)
    rules = group("{alert: A, expr: 'm > on() group_left max_over_time(vector(0)[1h:1s])'}", timer)
    storage = stored(1)
    rules.evaluate(storage, 100.0)
    assert [alert.phase for alert in rules.alerts()] == [Phase.FIRING]
    timer.step = 0.5
    assert rules.evaluate(storage, 101.0).failures
    known, unknown = rules.alerts_by_certainty()
    assert (known, [alert.phase for alert in unknown]) == ([], [Phase.FIRING])


def test_the_rest_of_a_rule_ends_with_a_reload_and_moves_along_when_the_clock_is_set() -> None:
    timer = Looks(0.01)
    rules = group(SLOW, timer)
    rules.evaluate(stored(1), 10_000.0)
    mended = group("{record: slow, expr: m}")
    mended.adopt(rules)
    assert mended.evaluate(stored(1), 10_001.0).failures == ()
    rules.shift(-5000.0, lambda record: record)
    before = timer.now
    rules.evaluate(stored(1), 5005.0)
    assert timer.now - before < 1
    rules.evaluate(stored(1), 5011.0)
    assert timer.now - before > 1


TURNS = "error executing template __alert_A: "
RUNAWAYS = {
    "{{ range query `m` }}{{ range query `m` }}{{ range query `m` }}{{ end }}{{ end }}{{ end }}": TURNS,
    "{{ range 10000 }}{{ end }}{{ range 1 }}{{ end }}": TURNS,
    "{{ query `max_over_time(m[1d:1ms])` }}": "query timed out",
    "{{ reReplaceAll `x?` `` (printf `%900s` ``) }}": "query timed out",
}


@pytest.mark.parametrize("template", RUNAWAYS)
@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_templates_count_towards_the_limits_of_their_rule(template: str, where: str) -> None:
    rules = group(f'{{alert: A, expr: m, {where}: {{a: "{template}"}}}}', Looks(0.01))
    (failure,) = rules.evaluate(stored(1000), 100.0).failures
    assert failure.error.startswith(RUNAWAYS[template])
    assert ("more than 10000 turns of range" in failure.error) == (RUNAWAYS[template] is TURNS)
    assert rules.report(1.0).rules[0].health is RuleHealth.FAILED


def test_a_range_of_too_many_turns_is_not_begun() -> None:
    timer = Looks(0.01)
    rules = group('{alert: A, expr: m, annotations: {a: "{{ range 1000000000 }}x{{ end }}"}}', timer)
    for second in range(3):
        assert rules.evaluate(stored(1), 100.0 + second).failures
    assert timer.now < 0.5
    fine = group('{alert: A, expr: m, annotations: {a: "{{ range 10000 }}x{{ end }}"}}')
    assert fine.evaluate(stored(1), 100.0).failures == ()
    assert len(fine.alerts()[0].annotations["a"]) == 10_000


def test_queries_of_templates_leave_nothing_in_memory() -> None:
    rules = group(
        "{alert: A, expr: 'm{gpu=\"0\"}', annotations: {a: '{{ range query `m` }}{{ query `m` | len }} {{ end }}'}}"
    )
    storage = stored(400)
    assert rules.evaluate(storage, 100.0).failures == ()
    assert rules.alerts()[0].annotations["a"] == "400 " * 400
    ledger = SampleLedger()
    rules = group("{alert: A, expr: m, annotations: {a: '{{ query `m * 2` | len }}'}}", ledger=ledger)
    rules.evaluate(stored(50), 100.0)
    alone = SampleLedger()
    group("{alert: A, expr: m}", ledger=alone).evaluate(stored(50), 100.0)
    assert ledger.remembered == alone.remembered


def test_an_error_is_reported_in_a_few_words() -> None:
    storage = stored(2, long="x" * 5000)
    rules = group("{record: a, expr: 'm + on() m'}")
    (failure,) = rules.evaluate(storage, 100.0).failures
    assert failure.error.startswith("found duplicate series") and len(failure.error) < 1100


def read_long_texts() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    names = ("humanize", "stripPort", "stripDomain", "title", "parseDuration", "humanizeTimestamp")
    readers: list[Callable[[str], object]] = [FUNCTIONS[name].call for name in names]
    readers += [durations.parse, compile_template, lambda text: sprintf(text, [])]
    for piece in ("1", "a", "[", ":", "a.", "%1", " ", "1e", "_", "{{ x", "{{- ", "{{ 1_", "{{/*", "`"):
        many = piece * (100_000 // len(piece))
        for reader, text in product(readers, (many, "{{ " + many + "! }}")):
            try:
                reader(text)
            except Exception as error:
                assert not isinstance(error, (MemoryError, RecursionError)), (piece, reader)


def test_long_texts_are_read_in_linear_time() -> None:
    """A pattern that tries every length of a run of digits takes minutes for 100,000 of them; all together take 2 s."""
    warm.call(read_long_texts)


def test_a_label_that_is_too_long_for_an_expression_affects_only_the_rule() -> None:
    """And not the whole round, in which the windows ask who reads the series."""
    rules = ruleset("{alert: Long, expr: 'm{x=~\".{900}y\"}'}, {alert: Fine, expr: 'm{x=~\"z+\"}'}")
    windows = Windows(Needs(rules.groups), (), 1.0)
    windows.append(make_labels({"x": "z" * 5000}, "m"), 100.0, 1.0)
    outcome = GroupEvaluator(rules.groups[0]).evaluate(windows, 100.0)
    assert [(failure.rule, "too long; the limit" in failure.error) for failure in outcome.failures] == [("Long", True)]
    assert [each.rule for each in outcome.transitions] == ["Fine"]


# -- what all rules keep ----------------------------------------------------------------------------------------------


FLOOD = "{alert: Flood, expr: m}"


def test_a_flood_of_alerts_is_refused_and_leaves_the_others_room() -> None:
    ledger = SampleLedger()
    flood, other = group(FLOOD, ledger=ledger), group("{alert: Other, expr: n}", ledger=ledger)
    storage = stored(6000)
    storage.append(make_labels({}, "n"), 100.0, 1.0)
    (failure,) = flood.evaluate(storage, 100.0).failures
    assert failure.error.startswith("has 6000 alerts")
    assert (flood.alerts(), ledger.kept) == ([], 0)
    assert other.evaluate(storage, 100.0).failures == ()
    assert len(other.firing()) == 1


def test_alerts_that_are_others_each_time_do_not_pile_up() -> None:
    """Each would be remembered for a quarter of an hour after its end."""
    rules = group("{alert: Flood, expr: 'm * 0 + time()', labels: {at: '{{ $value }}'}}")
    storage = stored(500)
    for second in range(100, 115):
        assert rules.evaluate(storage, float(second)).failures == ()
        assert len(rules.alerts()) < 4100
    assert len(rules.firing()) == 500


def test_a_rule_that_keeps_little_is_not_refused_for_those_that_keep_much() -> None:
    ledger = SampleLedger()
    ledger.kept = limits.MOST_KEPT
    few, many = group("{alert: Few, expr: m < 16}", ledger=ledger), group(FLOOD, ledger=ledger)
    assert few.evaluate(stored(8), 100.0).failures == ()
    assert many.evaluate(stored(100), 100.0).failures


def test_what_is_kept_is_counted_over_a_reload_and_given_back() -> None:
    rules = "{record: r, expr: m}, {alert: A, expr: m}"
    before = group(rules, ledger=SampleLedger())
    storage = stored(20)
    before.evaluate(storage, 100.0)
    ledger = SampleLedger()
    after = group(rules, ledger=ledger)
    after.adopt(before)
    assert ledger.kept == before._ledger.kept > 0
    after.evaluate(Storage(), 100.0 + 301)
    after.evaluate(Storage(), 100.0 + 301 + 1000)
    assert ledger.kept == 0


def test_what_no_rule_reads_leaves_little_behind() -> None:
    windows = Windows(Needs(()), (), 1.0)
    for number in range(30_000):
        windows.append(make_labels({"at": str(number)}, "r"), 100.0, 1.0)
    assert (len(windows), len(windows._unread)) < (1, 10_001)


def test_selections_are_remembered_within_bounds() -> None:
    storage = stored(2000)
    for number in range(140):
        query = f'count(m{{gpu!="x{number}"}})'
        assert evaluate(query, storage)[0].value == 2000
        assert storage._places <= 252_000
    assert sum(map(len, storage._selections.values())) == storage._places
