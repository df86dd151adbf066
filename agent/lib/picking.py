"""Several items of a sequence at once, by their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TypeVar

T = TypeVar("T")


def picker(places: Sequence[int]) -> Callable[[Sequence[T]], tuple[T, ...]]:
    """A function that takes the items at these places out of a sequence, in that order and in one step of C."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: tuple(items[place] for place in places)
