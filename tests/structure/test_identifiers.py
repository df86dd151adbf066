"""Identifiers say what they are: the number of those that do not may only fall."""

from collections import Counter

from tests.structure.identifiers import ALLOWED, counts, problems


def test_names_of_nothing_only_become_rarer() -> None:
    counted = counts()
    assert problems(counted) == []
    fewer = {kind: counted[kind] for kind, most in ALLOWED.items() if counted[kind] < most - 100}
    assert fewer == {}, "lower ALLOWED in tests/structure/identifiers.py to this"


def test_more_than_is_allowed_is_a_problem() -> None:
    assert problems(Counter(ALLOWED)) == []
    assert len(problems(Counter({kind: most + 1 for kind, most in ALLOWED.items()}))) == len(ALLOWED)
