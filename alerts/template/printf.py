"""What Go's Sprint, Sprintln and Sprintf print of the values of templates.

Of the verbs and flags of Sprintf there are those that rule files use: %v %s %q %d %x %f %e %g %t %%, with a width, a
precision, and the flags - + 0 and space. A template with another one is refused when it is loaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from alerts.go_literals import octets, quoted
from alerts.limits import LONGEST_TEXT
from alerts.template.number_format import shortest
from alerts.template.values import (
    FIELDS,
    WIDEST_VERB,
    Arguments,
    Element,
    Moment,
    RenderError,
    Root,
    Span,
    Typed,
    Value,
    joined,
    type_name,
)

VERBS = "vsqdxfegt"
_OF_TEXTS = "vsxq"
_OF_FLOATS = "vfeg"
_OF_INTEGERS = {"v": "d", "d": "d", "x": "x"}
"""Python's letter for a verb."""
_ADDRESS = 0x1C0000000000
"""What is shown for an address, which is different in Prometheus each time."""
_STRUCT = ("Labels", "ExternalLabels", "ExternalURL", "Value")
_VERB = re.compile(r"%(?P<signs>[-+0 ]*)(?P<width>[0-9]*)(?P<point>\.(?P<precision>[0-9]*))?(?P<verb>.?)", re.DOTALL)
_LONGEST_NUMBER = len(str(WIDEST_VERB))


class Flags(NamedTuple):
    """The flags of a verb; `signs` are of `+- 0`."""

    signs: str = ""
    width: int = 0
    precision: int | None = None

    @property
    def sign(self) -> str:
        """The sign of a positive number."""
        return "+" if "+" in self.signs else " " if " " in self.signs else ""

    def without_zeros(self) -> Flags:
        return self._replace(signs=self.signs.replace("0", ""))


PLAIN = Flags()


def format_problem(text: str) -> str:
    """Return what printf cannot write of a format; empty if it can write all."""
    for match in _VERB.finditer(text):
        verb = match["verb"]
        if verb == "%":
            continue
        if not verb or verb not in VERBS or (verb == "v" and "+" in match["signs"]):
            verbs = " ".join(f"%{letter}" for letter in VERBS)
            return f"printf cannot write {match[0]!r}; it has {verbs} %%, with a width and a precision"
        for number in (match["width"], match["precision"]):
            if len((number or "").lstrip("0")) > _LONGEST_NUMBER or _whole(number) > WIDEST_VERB:
                return f"printf: {match[0][:20]!r} is wider than {WIDEST_VERB}"
    return ""


def sprint(values: Sequence[Value]) -> str:
    """Return the values, with a space between two neighbours if neither is a text."""
    pieces = []
    for position, value in enumerate(values):
        if position and not isinstance(value, str) and not isinstance(values[position - 1], str):
            pieces.append(" ")
        pieces.append(argument(value, "v", PLAIN))
    return joined(pieces)


def sprintln(values: Sequence[Value]) -> str:
    """Return the values, with a space between all, and a line break."""
    pieces = [piece for value in values for piece in (" ", argument(value, "v", PLAIN))]
    return joined((*pieces[1:], "\n"))


def show(value: Value) -> str:
    """Return a value as an action prints it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    return _composite(value, "v", PLAIN, 0) if isinstance(value, Element) else argument(value, "v", PLAIN)


def sprintf(text: str, values: Sequence[Value]) -> str:
    """Return the text with its verbs replaced. Raises RenderError for one that is not supported."""
    if problem := format_problem(text):
        raise RenderError(problem)
    return joined(_formatted(text, values))


def _formatted(text: str, values: Sequence[Value]) -> Iterator[str]:
    end, used = 0, 0
    for match in _VERB.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        verb = match["verb"]
        if verb == "%":
            yield "%"
        elif used >= len(values):
            yield f"%!{verb}(MISSING)"
        else:
            yield argument(values[used], verb, _flags(match))
            used += 1
    yield text[end:]
    if used < len(values):
        extra = (
            "<nil>" if value is None else f"{type_name(value)}={argument(value, 'v', PLAIN)}" for value in values[used:]
        )
        yield f"%!(EXTRA {', '.join(extra)})"


def _whole(digits: str | None) -> int:
    """Return a number that may have any count of leading zeros; 0 for no digits."""
    return int((digits or "").lstrip("0") or 0)


def _flags(match: re.Match[str]) -> Flags:
    precision = _whole(match["precision"]) if match["point"] else None
    flags = Flags(match["signs"], _whole(match["width"]), precision)
    return flags.without_zeros() if "-" in flags.signs else flags


def argument(value: Value, verb: str, flags: Flags) -> str:
    """Return one argument, written by a verb."""
    if value is None:
        return _padded("<nil>", flags) if verb == "v" else f"%!{verb}(<nil>)"
    return _value(value, verb, flags, 0)


def _value(value: Value, verb: str, flags: Flags, depth: int) -> str:
    if isinstance(value, str):
        return _string(value, verb, flags) if verb in _OF_TEXTS else _bad(value, verb, flags)
    if isinstance(value, bool):
        return _padded("true" if value else "false", flags) if verb in "tv" else _bad(value, verb, flags)
    if isinstance(value, Typed) and value.name and verb in _OF_TEXTS:
        return _string(value.name, verb, flags)
    if isinstance(value, int):
        return _integer(value, verb, flags)
    if isinstance(value, float):
        if verb == "x":
            raise RenderError("printf cannot write a float by %x; use %g")
        return _float(value, verb, flags) if verb in _OF_FLOATS else _bad(value, verb, flags)
    if isinstance(value, (Moment, Span)):
        if verb in _OF_TEXTS:
            return _string(str(value), verb, flags)
        return _integer(value.nanoseconds, verb, flags) if isinstance(value, Span) else _bad(value, verb, flags)
    if value is None:
        return "<nil>" if verb == "v" else f"%!{verb}(<nil>)"
    if isinstance(value, Element):
        if depth == 0:
            return f"&{_composite(value, verb, flags, 1)}"
        return _pointer(value, verb, flags)
    return _composite(value, verb, flags, depth + 1)


def _pointer(value: Element, verb: str, flags: Flags) -> str:
    if verb == "v":
        return _padded(f"{_ADDRESS:#x}", flags)
    return _integer(_ADDRESS, verb, flags) if verb in "dx" else _bad(value, verb, flags)


def _bad(value: Value, verb: str, flags: Flags) -> str:
    """Return the text for a value that does not suit the verb: with the flags, but without methods."""
    bare = int(value) if isinstance(value, Typed) else value
    return f"%!{verb}({type_name(value)}={argument(bare, 'v', flags)})"


def _composite(
    value: Element | Root | list[Element] | Mapping[str, str] | Arguments, verb: str, flags: Flags, depth: int
) -> str:
    """Return a struct, a list or a map with its parts, which are so deep within the argument."""
    begin, end = "{", "}"
    parts: Iterator[str]
    if isinstance(value, (Element, Root)):
        fields = [getattr(value, FIELDS[name]) for name in _STRUCT if FIELDS[name] in value._fields]
        parts = (_value(field, verb, flags, depth) for field in fields)
    elif isinstance(value, list):
        begin, end = "[", "]"
        parts = (_value(element, verb, flags, depth) for element in value)
    else:
        begin, end = "map[", "]"
        parts = (f"{_value(key, verb, flags, depth)}:{_value(value[key], verb, flags, depth)}" for key in sorted(value))
    return f"{begin}{joined(parts, ' ')}{end}"


def _padded(text: str, flags: Flags) -> str:
    if len(text) > LONGEST_TEXT:
        return text
    if "-" in flags.signs:
        return text.ljust(flags.width)
    return text.rjust(flags.width, "0" if "0" in flags.signs else " ")


def _string(value: str, verb: str, flags: Flags) -> str:
    if verb == "x":
        raw = octets(value)[: flags.precision]
        return _padded(raw.hex(" ") if " " in flags.signs else raw.hex(), flags)
    if flags.precision is not None:
        value = value[: flags.precision]
    if verb == "q":
        value = quoted(value, ascii_only="+" in flags.signs)
    return _padded(value, flags)


def _integer(value: int, verb: str, flags: Flags) -> str:
    if verb == "q":
        is_character = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000
        return _padded(quoted(chr(value if is_character else 0xFFFD), "'", ascii_only="+" in flags.signs), flags)
    if verb not in _OF_INTEGERS:
        return _bad(value, verb, flags)
    blank = flags.without_zeros()
    if flags.precision == 0 and value == 0:
        return _padded("", blank)
    sign = "-" if value < 0 else flags.sign
    least = flags.precision
    if least is None:
        least = flags.width - len(sign) if "0" in flags.signs else 0
    return _padded(sign + f"{abs(value):{_OF_INTEGERS[verb]}}".rjust(least, "0"), blank)


def _float(value: float, verb: str, flags: Flags) -> str:
    if not math.isfinite(value):
        sign = "-" if value < 0 else flags.sign or ("+" if math.isinf(value) else "")
        return _padded(f"{sign}{'NaN' if math.isnan(value) else 'Inf'}", flags.without_zeros())
    sign = "-" if math.copysign(1.0, value) < 0 else flags.sign
    digits = _digits(abs(value), "g" if verb == "v" else verb, flags.precision)
    if sign and "0" in flags.signs:
        return sign + digits.rjust(flags.width - 1, "0")
    return _padded(sign + digits, flags)


def _digits(value: float, letter: str, precision: int | None) -> str:
    """Return a float that is not negative, by one of the verbs e, f and g."""
    if letter == "g" and precision is None:
        return shortest(value)
    return f"%.{6 if precision is None else precision}{letter}" % value
