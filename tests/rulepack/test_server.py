"""The node says of each shipped alert what it would say with every sample at hand: labels, annotations and times.

The samples are those of the pack's unit tests, which promtool judges in test_score. The node evaluates the rules as the
daemon does, over windows that keep what some rule is seen to read.
"""

from pathlib import Path

import pytest

from alerts.group_evaluator import GroupEvaluator
from alerts.promql import Storage
from alerts.rule_evaluator import TemplateContext
from alerts.rulefile import RuleFile
from alerts.windows import Needs, Windows
from tests.rule_tests import unit_test_file
from tests.rule_tests.runner import Given

pytestmark = pytest.mark.release
"""It needs much time."""

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "alerts" / "tests").glob("*.yml"))
CONTEXT = TemplateContext({"cluster": "east"}, "http://node7:19400")


@pytest.mark.parametrize("path", CASES, ids=[path.name.partition(".")[0] for path in CASES])
def test_the_windows_lose_nothing_that_an_alert_says(path: Path, pack: list[RuleFile]) -> None:
    given = unit_test_file.load(path)
    sources = {source.name for source in given.rule_files}
    groups = [group for file in pack if Path(file.path).name in sources for group in file.groups]
    fired = False
    for test in given.tests:
        windows, everything = Windows(Needs(groups), (), given.interval), Storage()
        sides = [
            (store, Given(test, store), [GroupEvaluator(each, CONTEXT) for each in groups])
            for store in (windows, everything)
        ]
        for step in range(round(test.end / given.interval) + 1):
            at = step * given.interval
            for _, samples, _ in sides:
                samples.append_until(at)
            windows.ingest_round((), at)
            told = []
            for store, _, evaluators in sides:
                for each in evaluators:
                    assert not each.evaluate(store, at).failures
                told.append([each.alerts() for each in evaluators])
            assert told[0] == told[1], at
            fired = fired or any(each.firing() for each in sides[0][2])
    assert fired
