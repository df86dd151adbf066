"""Whose turn it is to ask what serves a rack: one agent's, and another's soon after that one is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from agent.rack.turns import Turns, chosen

AGENTS = [f"node{number:02}:19400" for number in range(18)]
MOST_SECONDS = 15.0
"""Seconds within which another agent has taken over."""


class RackOfTurns:
    """Agents that hear each other once a second, as far as `hears` says. They begin at their first second."""

    def __init__(self, hears: Callable[[str, str, float], bool]) -> None:
        self._hears = hears
        self._turns: dict[str, Turns] = {}

    def asking(self, alive: set[str], now: float) -> set[str]:
        """Those whose turn it is, of the agents that run now."""
        self._turns = {name: self._turns.get(name) or Turns(name) for name in alive}
        found = set()
        for name, turns in self._turns.items():
            others = [each for each in alive if self._hears(name, each, now)]
            if turns.is_mine("cdu", others, now):
                found.add(name)
        return found


def test_the_next_one_takes_over_within_fifteen_seconds_whoever_dies() -> None:
    alive, rack = set(AGENTS), RackOfTurns(lambda *_: True)
    now = 0.0
    while len(alive) > 1:
        for _ in range(30):
            now += 1.0
            asking = rack.asking(alive, now)
        assert len(asking) == 1
        alive -= asking
        died = now
        while not rack.asking(alive, now):
            now += 1.0
            assert now - died <= MOST_SECONDS / 2, "half of it is left for the service to be found and read"


def test_a_peer_that_misses_a_few_polls_keeps_its_turn() -> None:
    best = chosen("cdu", AGENTS)
    rack = RackOfTurns(lambda _, whom, now: whom != best or not 30 <= now < 34)
    for second in range(60):
        found = rack.asking(set(AGENTS), float(second))
        assert best in found
        assert second < 10 or found == {best}


def test_the_one_that_asked_goes_on_until_a_better_one_has_begun() -> None:
    best = chosen("cdu", AGENTS)
    rack, rest = RackOfTurns(lambda *_: True), set(AGENTS) - {best}
    for second in range(30):
        before = rack.asking(rest, float(second))
    seen = [rack.asking(set(AGENTS), 30.0 + second) for second in range(12)]
    assert seen[0] == seen[6] == before | {best}
    assert seen[-1] == {best}


def test_agents_that_do_not_hear_each_other_all_ask() -> None:
    rack = RackOfTurns(lambda *_: False)
    assert rack.asking(set(AGENTS), 1.0) == set(AGENTS)


def test_services_are_spread_over_the_agents_and_one_that_leaves_passes_on_only_its_own() -> None:
    services = [f"shelf-{number}" for number in range(200)]
    before = {each: chosen(each, AGENTS) for each in services}
    assert max(Counter(before.values()).values()) < 30
    gone = before[services[0]]
    after = {each: chosen(each, [name for name in AGENTS if name != gone]) for each in services}
    assert all(after[each] == name for each, name in before.items() if name != gone)


@given(
    st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True), st.randoms(use_true_random=False)
)
def test_the_order_in_which_agents_are_heard_does_not_matter(agents: list[str], random: object) -> None:
    mixed = sorted(agents, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert chosen("cdu", mixed) == chosen("cdu", agents)
