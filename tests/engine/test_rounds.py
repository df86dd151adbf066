"""Rounds of slow rules: no group keeps the others waiting, and the shipped ones go first."""

from typing import Any

from agent.model import RuleHealth
from alerts import limits, rulefile
from alerts.engine import RuleEngine, Ruleset, shipped
from alerts.promql.labels import LimitError
from alerts.rulefile import RuleFile
from tests.engine.conftest import START, Node, later, ruleset

TARGET = (("instance", "n:19400"),)


class Rounds:
    """An engine whose timer goes on by so much when a rule reads a series: `n900` costs 0.9 s."""

    def __init__(self, text: str, *more: RuleFile) -> None:
        self.spent = 0.0
        self.halted = False
        self.node = Node()
        rules = Ruleset((*ruleset(text).files, *more))
        self.engine = RuleEngine(rules, TARGET, START, lambda: self.spent, halted=lambda: self.halted)
        reads = self.engine.windows.newest

        def newest(matchers: Any, *arguments: Any) -> Any:
            cost = int(matchers[0].value[1:]) / 1000
            self.spent += cost
            if cost > limits.DEADLINE_SECONDS:
                raise LimitError("query timed out in expression evaluation")
            return reads(matchers, *arguments)

        self.engine.windows.newest = newest  # type: ignore[method-assign, assignment]
        self.now = 0.0
        self.longest = 0.0

    def rounds(self, count: int) -> dict[str, list[tuple[int, tuple[str, ...], int]]]:
        """So many rounds, a second apart or as long as they take: by group, when which rules ran and what it missed."""
        seen: dict[str, list[tuple[int, tuple[str, ...], int]]] = {}
        for _ in range(count):
            began = self.spent
            snapshot = self.node.snapshot({(f"n{cost}", "0"): 1.0 for cost in (1, 300, 900, 1100)}, later(self.now))
            for done in self.engine.round(snapshot, later(self.now)):
                seen.setdefault(done.group.name, []).append((round(self.now), done.outcome.rules, done.missed))
            self.longest = max(self.longest, self.spent - began)
            self.now += max(1.0, self.spent - began)
        return seen


def rule(name: str, cost: int) -> str:
    return f"{{alert: {name}, expr: n{cost} > 0}}"


def rule_group(name: str, cost: int, count: int = 1, interval: str = "1s") -> str:
    rules = ", ".join(rule(f"{name}{number}", cost) for number in range(count))
    return f"{{name: {name}, interval: {interval}, rules: [{rules}]}}"


def test_a_group_of_slow_rules_ends_after_a_while_and_the_rest_of_it_says_why() -> None:
    run = Rounds(f"groups: [{rule_group('slow', 900, 100)}, {rule_group('quick', 1, 3)}]")
    seen = run.rounds(20)
    assert run.longest < limits.GROUP_SECONDS + 1
    assert len(seen["quick"]) >= 9
    slow = run.engine.reports()[0].rules
    assert [rule.health for rule in slow[:6]] == [RuleHealth.OK] * 6
    assert {rule.error for rule in slow[6:]} == {
        "not evaluated: the rules before it in its group took 5 s; make them cheaper or split it"
    }
    assert len(run.engine.groups()[0][1].firing()) == 6


def test_rules_behind_those_that_time_out_are_evaluated_while_these_pause() -> None:
    run = Rounds(
        f"groups: [{{name: g, rules: [{', '.join(rule(f'slow{number}', 1100) for number in range(5))}, "
        f"{rule('fine', 1)}]}}]"
    )
    run.rounds(1)
    assert run.engine.reports()[0].rules[5].health is RuleHealth.FAILED
    run.rounds(1)
    assert run.engine.reports()[0].rules[5].health is RuleHealth.OK


def test_rules_of_a_site_that_time_out_do_not_delay_the_pack() -> None:
    """The first of them end a round after a second each, and again whenever they are retried after a pause."""
    pack = rulefile.parse(f"groups: [{rule_group('pack', 1, 3)}]", min(shipped()))
    run = Rounds(f"groups: [{', '.join(rule_group(f's{number}', 1100) for number in range(3))}]", pack)
    seen = run.rounds(60)
    assert len(seen["pack"]) == 60
    assert [rule.health for report in run.engine.reports()[:3] for rule in report.rules] == [RuleHealth.FAILED] * 3


def test_many_slow_groups_of_a_site_take_turns_and_the_shipped_ones_go_first() -> None:
    pack = rulefile.parse(f"groups: [{rule_group('pack', 1)}]", min(shipped()))
    run = Rounds(f"groups: [{', '.join(rule_group(f's{number}', 900) for number in range(20))}]", pack)
    seen = run.rounds(100)
    assert run.longest < 2
    served = [len(seen[f"s{number}"]) for number in range(20)]
    assert min(served) >= 9 and max(served) - min(served) <= 1
    assert len(seen["pack"]) == 100


def test_a_round_ends_after_the_rule_at_hand_when_the_daemon_stops() -> None:
    run = Rounds(f"groups: [{rule_group('a', 300, 3)}, {rule_group('b', 300)}]")
    run.halted = True
    assert run.rounds(1) == {}
    run.halted = False
    assert run.rounds(3)
    run.halted = True
    assert run.rounds(1) == {}  # also now that the groups are known to be slow
    run.halted = False
    reads = run.engine.windows.newest

    def halting(*arguments: Any) -> Any:
        run.halted = True
        return reads(*arguments)

    run.engine.windows.newest = halting  # type: ignore[method-assign, assignment]
    assert [rules for ((_, rules, _),) in run.rounds(1).values()] in ([("a0",)], [("a1",)], [("a2",)], [("b0",)])


def test_a_group_that_takes_longer_than_its_interval_misses_evaluations() -> None:
    seen = Rounds(f"groups: [{rule_group('slow', 900, 5)}]").rounds(30)["slow"]
    assert all(missed > 0 for _, _, missed in seen[1:])
    assert sum(missed for _, _, missed in seen) == seen[-1][0] - (len(seen) - 1)


def test_no_group_is_late_before_the_first_snapshot() -> None:
    run = Rounds(f"groups: [{rule_group('g', 1)}]")
    run.now = 20.0
    assert run.rounds(2)["g"] == [(20, ("g0",), 0), (21, ("g0",), 0)]
