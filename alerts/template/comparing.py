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


def equal(left: Value, *others: Value) -> bool:
    """Return whether a value equals one of the others. Raises RenderError with Go's words."""
    if not others:
        raise RenderError("missing argument for comparison")
    return any(_is_equal(left, right) for right in others)


def _is_equal(left: Value, right: Value) -> bool:
    kinds = _kind(left), _kind(right)
    if kinds[0] != kinds[1] and set(kinds) != {"int", "uint"}:
        if left is not None and right is not None:
            raise _incompatible(left, right)
        return False
    return left == right if kinds[0] else _is_same(left, right)


def _is_same(left: Value, right: Value) -> bool:
    """Return whether two values without a basic type are the same."""
    if left is None or right is None:
        return left is right
    if _family(left) != _family(right):
        raise RenderError(f"non-comparable types {argument(left, 's', PLAIN)}: {type_name(left)}, "
                          f"{type_name(right)}: {argument(right, 'v', PLAIN)}")  # fmt: skip
    if isinstance(right, (Mapping, list, Root)):
        raise RenderError(f"non-comparable type {argument(right, 's', PLAIN)}: {type_name(right)}")
    return left is right if isinstance(left, Element) else left == right


def _family(value: Value) -> str:
    name = type_name(value)
    return "pointer" if name.startswith("*") else "map" if name.startswith("map") else name


def less(left: Value, right: Value) -> bool:
    """Return whether a value is less than another. Raises RenderError with Go's words."""
    kinds = _kind(left), _kind(right)
    if not all(kinds):
        raise RenderError("invalid type for comparison")
    if kinds[0] != kinds[1] and set(kinds) != {"int", "uint"}:
        raise _incompatible(left, right)
    if kinds[0] == "bool":
        raise RenderError("invalid type for comparison")
    return left < right  # type: ignore[operator] # both are numbers, or both texts


def _incompatible(left: Value, right: Value) -> RenderError:
    return RenderError(f"incompatible types for comparison: {type_name(left)} and {type_name(right)}")
