import copy
from typing import Any

import pytest

from agent.lib.record import Record, replace


class Place(Record):
    name: str
    slot: int = 7


class Other(Record):
    name: str
    slot: int = 7


def test_a_record_equals_others_of_its_class_with_equal_fields_and_a_copy_differs_in_the_given_ones() -> None:
    assert Place("a") == Place(slot=7, name="a")
    assert hash(Place("a")) == hash(Place("a", 7))
    assert Place("a") not in (Place("b"), Place("a", 8), Other("a"), ("a", 7))
    assert copy.deepcopy(Place("a")) == Place("a")
    assert repr(Place("a")) == "Place(name='a', slot=7)"
    place = Place("a")
    assert replace(place, slot=8) == Place("a", 8)
    assert place == Place("a")


@pytest.mark.parametrize(
    ("values", "named", "problem"),
    [
        ((), {}, "name is missing"),
        (("a", 1, 2), {}, "3 values"),
        (("a",), {"name": "b"}, "name"),
        (("a",), {"x": 1}, "x"),
    ],
)
def test_fields_that_are_missing_or_too_many_are_refused(
    values: tuple[Any, ...], named: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TypeError, match=rf"^Place: .*{problem}"):
        Place(*values, **named)
