"""One test for many values, where each takes less time than pytest takes for a test: rows, texts, queries."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like pytest's parametrization, but in a single test, which ends at the first value that fails and prints it."""
    given = tuple(values)
    assert given, f"there is no {name}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def of_all(**fixtures: Any) -> None:
            for value in given:
                try:
                    test(**fixtures, **{name: value})
                except BaseException:
                    print(f"{name} = {value!r}")
                    raise

        signature = inspect.signature(test)
        kept = [each for each in signature.parameters.values() if each.name != name]
        of_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return of_all

    return decorate
