"""Values with named fields, for the modules that the device worker loads too. The others use `msgspec.Struct`.

`dataclasses` would do the same, but its import takes 1 MiB, which is an eighth of the worker, and each of its classes
13 KiB more; msgspec takes 1.4 MiB.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options: object) -> Callable[[type], type]:
        """Return the decorator by which type checkers see the constructors of records."""
        return lambda decorated: decorated


@dataclass_transform(frozen_default=True)
class _RecordType(type):
    """Makes a slot of each annotated name of a class, and a default of its value."""

    _fields: tuple[str, ...] = ()
    _defaults: dict[str, Any] = {}  # noqa: RUF012 - of each class its own
    _values: Callable[[Any], Any]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _RecordType:
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        made = super().__new__(cls, name, bases, {"__slots__": fields, "__match_args__": fields, **body})
        made._fields, made._defaults = fields, defaults
        made._values = attrgetter(*fields) if fields else lambda _: ()
        return made


class Record(metaclass=_RecordType):
    """A value that is not changed, and equals others of its class with equal fields."""

    def __init__(self, *values: Any, **named: Any) -> None:
        kind = type(self)
        fields, defaults = kind._fields, kind._defaults
        for field, value in zip(fields, values, strict=False):
            setattr(self, field, value)
        for field in fields[len(values) :]:
            if field in named:
                setattr(self, field, named.pop(field))
            elif field in defaults:
                setattr(self, field, defaults[field])
            else:
                raise TypeError(f"{kind.__name__}: {field} is missing")
        if named or len(values) > len(fields):
            raise TypeError(f"{kind.__name__}: has the fields {fields}, got {len(values)} values and {sorted(named)}")

    def __eq__(self, other: object) -> bool:
        kind = type(self)
        return type(other) is kind and bool(kind._values(self) == kind._values(other))

    def __hash__(self) -> int:
        return hash(type(self)._values(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{field}={getattr(self, field)!r}" for field in type(self)._fields)
        return f"{type(self).__name__}({shown})"


R = TypeVar("R", bound=Record)


def replace(record: R, **changes: Any) -> R:
    """Return a copy of a record with some fields changed."""
    kind = type(record)
    return kind(**{field: getattr(record, field) for field in kind._fields} | changes)
