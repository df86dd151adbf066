"""Go's comparisons, which distinguish types: a float compares only with a float."""

from collections.abc import Mapping

from alerts.template.printf import PLAIN, argument
from alerts.template.values import Element, RenderError, Root, Typed, Value, type_name


def _kind(value: Value) -> str:
    """Return the family of a basic type, empty of any other."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "uint" if isinstance(value, Typed) and value.kind.startswith("uint") else "int"
    if isinstance(value, str):
        return "string"
    return "float" if isinstance(value, float) else ""


def equal(first: Value, *candidates: Value) -> bool:
    """Return whether a value equals one of the others. Raises RenderError with Go's words."""
    if not candidates:
        raise RenderError("missing argument for comparison")
    return any(_is_equal(first, candidate) for candidate in candidates)


def _is_equal(first: Value, second: Value) -> bool:
    kinds = _kind(first), _kind(second)
    if kinds[0] != kinds[1] and set(kinds) != {"int", "uint"}:
        if first is not None and second is not None:
            raise _incompatible(first, second)
        return False
    return first == second if kinds[0] else _is_same(first, second)


def _is_same(first: Value, second: Value) -> bool:
    """Return whether two values without a basic type are the same."""
    if first is None or second is None:
        return first is second
    if _family(first) != _family(second):
        raise RenderError(
            f"non-comparable types {argument(first, 's', PLAIN)}: {type_name(first)}, "
            f"{type_name(second)}: {argument(second, 'v', PLAIN)}"
        )
    if isinstance(second, (Mapping, list, Root)):
        raise RenderError(f"non-comparable type {argument(second, 's', PLAIN)}: {type_name(second)}")
    return first is second if isinstance(first, Element) else first == second


def _family(value: Value) -> str:
    name = type_name(value)
    if name.startswith("*"):
        return "pointer"
    return "map" if name.startswith("map") else name


def less(first: Value, second: Value) -> bool:
    """Return whether a value is less than another. Raises RenderError with Go's words."""
    kinds = _kind(first), _kind(second)
    if not all(kinds):
        raise RenderError("invalid type for comparison")
    if kinds[0] != kinds[1] and set(kinds) != {"int", "uint"}:
        raise _incompatible(first, second)
    if kinds[0] == "bool":
        raise RenderError("invalid type for comparison")
    return first < second  # type: ignore[operator] # both are numbers, or both texts


def _incompatible(first: Value, second: Value) -> RenderError:
    return RenderError(f"incompatible types for comparison: {type_name(first)} and {type_name(second)}")
