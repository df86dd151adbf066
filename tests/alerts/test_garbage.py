"""While a reload makes its million objects nobody looks through them, and afterwards everything is as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from alerts.garbage import collect_what_is_fresh, collect_what_stayed, no_passes_over_garbage


@pytest.fixture
def passes() -> Iterator[list[str]]:
    """The passes of the collector, as they begin."""
    seen: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(str(info["generation"]))

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.unfreeze()


def test_lasting_objects_are_never_scanned(passes: list[str]) -> None:
    """Rules are taken up while others are read: who ends first does not have the others scanned."""
    before = gc.get_freeze_count()
    with no_passes_over_garbage():
        with no_passes_over_garbage():
            pass
        made = [[number] for number in range(200_000)]
        assert passes == []
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(made)


def test_the_collector_is_enabled_again_after_a_failure(passes: list[str]) -> None:
    with pytest.raises(ValueError, match="bad file"), no_passes_over_garbage():
        raise ValueError("bad file")
    assert gc.isenabled()


class Ring:
    """Nothing but the collector frees it."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Ring.alive += 1

    def __del__(self) -> None:
        Ring.alive -= 1


def test_what_is_garbage_before_rules_are_read_is_not_kept_with_them() -> None:
    Ring()
    collect_what_is_fresh()
    with no_passes_over_garbage():
        pass
    assert Ring.alive == 0
    gc.unfreeze()


def test_what_others_dropped_meanwhile_is_freed_by_the_next_full_collection() -> None:
    with no_passes_over_garbage():
        Ring()
    gc.collect()
    assert Ring.alive == 1
    collect_what_stayed()
    assert Ring.alive == 0
    gc.unfreeze()


def test_what_was_made_is_freed_when_it_is_no_longer_needed(passes: list[str]) -> None:
    class Rules:
        alive = 0

        def __init__(self) -> None:
            Rules.alive += 1

        def __del__(self) -> None:
            Rules.alive -= 1

    with no_passes_over_garbage():
        made = [Rules() for _ in range(100)]
    assert Rules.alive == len(made)
    made.clear()
    assert Rules.alive == 0
