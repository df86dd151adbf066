"""Whether the rules of a node were evaluated: until then, the absence of conditions proves nothing.

After a start each group of rules is evaluated for the first time within its interval, which is a minute at most in the
rules of the pack.
"""

from collections.abc import Iterable

from agent.model import GroupReport

NO_RULES = "no rules are evaluated"
LATE_SECONDS = 60.0
"""Seconds after which rules that are due, and are not evaluated, are behind. Clocks of two nodes may differ by some."""


def next_evaluation(groups: Iterable[GroupReport]) -> float | None:
    """Return when the first group is due, in wall seconds; None while one has never been evaluated."""
    due = [None if group.evaluated_at is None else group.evaluated_at + group.interval for group in groups]
    moments = [moment for moment in due if moment is not None]
    return min(moments, default=None) if len(moments) == len(due) else None


def why_unjudged(has_rules: bool, due: float | None, now: float) -> str:
    """Return why the absence of conditions proves nothing at a wall second; empty if the rules are up to date.

    `due` is `next_evaluation` of the groups.
    """
    if not has_rules:
        return NO_RULES
    if due is None:
        return "not all rules have been evaluated yet"
    late = now - due
    return f"the rules are {late:.0f} s behind" if late > LATE_SECONDS else ""
