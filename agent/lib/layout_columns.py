"""Work on whole columns: items of a sequence by position, and results that are kept for each layout of a round."""

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Generic, TypeVar

T = TypeVar("T")


def picker(places: Sequence[int]) -> Callable[[Sequence[T]], tuple[T, ...]]:
    """Return a function that picks the items at these positions from a sequence, in that order and in one step of C."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: tuple(items[place] for place in places)


K = TypeVar("K", bound=Hashable)


class RoundMemo(Generic[K, T]):
    """Remembers what `make` gave for each object of the last round, and forgets all other objects."""

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._objects: tuple[K, ...] = ()
        self._known: dict[K, T] = {}
        self._made: list[T] = []

    def of(self, objects: Sequence[K]) -> list[T]:
        """Return what was made of each object, in their order; the same list again for the same objects."""
        objects = tuple(objects)
        if objects != self._objects:
            memo = self._known
            self._known = {o: memo[o] if o in memo else self._make(o) for o in objects}
            self._made = [self._known[o] for o in objects]
            self._objects = objects
        return self._made
