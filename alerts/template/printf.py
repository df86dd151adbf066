"""Go's fmt.Sprint, Sprintln and Sprintf for the values of templates, with any verbs, flags and mistakes.

A width or precision is at most 1,000; in Go, a million.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from alerts.go_literals import can_backquote, octets, quoted
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

_STRINGABLE = "vsxXq"
_FLOATS = "vfFeEgGbxX"
_ADDRESS = 0x1C0000000000
"""What is shown for an address, which is different in Prometheus each time."""
_INTEGERS = {
    "d": ("d", ""), "v": ("d", ""), "b": ("b", "0b"), "o": ("o", "0"), "O": ("o", ""), "x": ("x", "0x"),
    "X": ("X", "0X"),
}  # fmt: skip
"""Python's letter for a verb, and the prefix that `#` adds."""
_STRUCT = ("Labels", "ExternalLabels", "ExternalURL", "Value")
_HEXADECIMAL_PLACES = 13
"""Hexadecimal digits of a float after the first one."""
_LARGEST = 1_000_000
"""Go ignores a width beyond this."""
_INDEX = r"\[[^\]]{0,1000}\]|\["
_VERB = re.compile(
    rf"""%(?P<signs>[-+#\ 0]*)(?P<index>{_INDEX})?(?:(?P<star>\*)|0*[1-9][0-9]{{7}}.*|0*(?P<width>[0-9]+))?
    (?P<point>\.(?=.)(?P<of_precision>{_INDEX})?(?:(?P<precise_star>\*)|0*[1-9][0-9]{{7}}.*|0*(?P<precision>[0-9]*)))?
    (?:(?<!\])(?P<of_value>{_INDEX}))?(?P<verb>.?)""",
    re.VERBOSE | re.DOTALL,
)
"""A verb; after an absurdly long number Go reads on at the end of the text, and finds no verb."""


class Flags(NamedTuple):
    """The flags of a verb. `signs` are of `#+- 0`; `syntax` is `%#v`, `names` is `%+v`."""

    signs: str = ""
    width: int = 0
    precision: int | None = None
    syntax: bool = False
    names: bool = False

    @property
    def sign(self) -> str:
        """The sign of a positive number."""
        return "+" if "+" in self.signs else " " if " " in self.signs else ""

    def without(self, sign: str) -> Flags:
        return self._replace(signs=self.signs.replace(sign, ""))


PLAIN = Flags()


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
    """Return the text with its verbs replaced. Raises RenderError if one is too wide."""
    return joined(_Format(text, values).pieces())


class _Format:
    """The formatting of one text, from left to right."""

    def __init__(self, text: str, values: Sequence[Value]) -> None:
        self._text = text
        self._values = values
        self._next = 0
        self._is_reordered = False
        self._is_good = True
        """Whether the numbers of arguments of the current verb are valid."""

    def pieces(self) -> Iterator[str]:
        end = 0
        for match in _VERB.finditer(self._text):
            yield self._text[end : match.start()]
            yield from self._verb(match)
            end = match.end()
        yield self._text[end:]
        if not self._is_reordered and self._next < len(self._values):
            extra = (
                "<nil>" if value is None else f"{type_name(value)}={argument(value, 'v', PLAIN)}"
                for value in self._values[self._next :]
            )
            yield f"%!(EXTRA {', '.join(extra)})"

    def _verb(self, match: re.Match[str]) -> Iterator[str]:
        self._is_good = True
        flags = Flags(match["signs"], int(match["width"] or 0))
        has_index = self._index(match["index"])
        if match["star"]:
            width, has_index = self._star(), False
            if width is None:
                yield "%!(BADWIDTH)"
            elif width < 0:
                flags = flags._replace(signs=flags.signs + "-")
            flags = flags._replace(width=abs(width or 0))
        self._is_good &= not (has_index and (match["width"] or match["point"]))
        if match["point"]:
            has_index = self._index(match["of_precision"])
            precision: int | None = int(match["precision"] or 0)
            if match["precise_star"]:
                precision, has_index = self._star(), False
                if precision is None or precision < 0:
                    yield "%!(BADPREC)"
                    precision = None
            flags = flags._replace(precision=precision)
        self._is_good &= not (has_index and match["of_value"])
        self._index(match["of_value"])
        yield self._written(match["verb"], flags.without("0") if "-" in flags.signs else flags)

    def _written(self, verb: str, flags: Flags) -> str:
        if verb in ("", "%"):
            return verb or "%!(NOVERB)"
        if not self._is_good:
            return f"%!{verb}(BADINDEX)"
        if self._next >= len(self._values):
            return f"%!{verb}(MISSING)"
        if max(flags.width, flags.precision or 0) > WIDEST_VERB:
            raise RenderError(f"printf {self._text[:100]!r}: a verb is wider than {WIDEST_VERB}")
        if verb == "v":
            flags = flags._replace(syntax="#" in flags.signs, names="+" in flags.signs).without("#").without("+")
        self._next += 1
        return argument(self._values[self._next - 1], verb, flags)

    def _index(self, written: str | None) -> bool:
        """Go to the argument of a number such as `[3]`, if there is one; returns whether there was."""
        if not written:
            return False
        self._is_reordered = True
        digits = written[1:-1]
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(_LARGEST))
        if is_number and 0 < int(digits) <= len(self._values):
            self._next = int(digits) - 1
        else:
            self._is_good = False
        return is_number

    def _star(self) -> int | None:
        """Return a width given as an argument; None if it is invalid."""
        if self._next >= len(self._values):
            return None
        value = self._values[self._next]
        self._next += 1
        is_integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
        return value if is_integer and isinstance(value, int) else None


def argument(value: Value, verb: str, flags: Flags) -> str:
    """Return one argument, written by a verb."""
    if value is None:
        return _padded("<nil>", flags) if verb in "Tv" else f"%!{verb}(<nil>)"
    if verb == "T":
        return _string(type_name(value), "s", flags)
    if verb == "w":  # for errors, and no value is one
        return _bad(value, verb, flags)
    return _value(value, verb, flags, 0)


def _value(value: Value, verb: str, flags: Flags, depth: int) -> str:
    if isinstance(value, str):
        return _string(value, verb, flags) if verb in _STRINGABLE else _bad(value, verb, flags)
    if isinstance(value, bool):
        return _padded("true" if value else "false", flags) if verb in "tv" else _bad(value, verb, flags)
    if isinstance(value, Typed) and value.name and verb in _STRINGABLE and not flags.syntax:
        return _string(value.name, verb, flags)
    if isinstance(value, int):
        return _integer(value, verb, flags)
    if isinstance(value, float):
        return _float(value, verb, flags) if verb in _FLOATS else _bad(value, verb, flags)
    if isinstance(value, (Moment, Span)):
        if verb in _STRINGABLE and not (flags.syntax and isinstance(value, Span)):
            return _string(str(value), verb, flags)
        return _integer(value.nanoseconds, verb, flags) if isinstance(value, Span) else _bad(value, verb, flags)
    if value is None:
        return "<nil>" if verb == "v" else f"%!{verb}(<nil>)"
    if isinstance(value, Element):
        return f"&{_composite(value, verb, flags, 1)}" if depth == 0 else _pointer(value, verb, flags)
    return _composite(value, verb, flags, depth + 1)


def _pointer(value: Element, verb: str, flags: Flags) -> str:
    if verb == "v":
        address = f"{_ADDRESS:#x}"
        return f"({type_name(value)})({address})" if flags.syntax else _padded(address, flags)
    return _integer(_ADDRESS, verb, flags) if verb in "bodxX" else _bad(value, verb, flags)


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
        fields = {name: getattr(value, FIELDS[name]) for name in _STRUCT if FIELDS[name] in value._fields}
        named = flags.names or flags.syntax
        parts = ((f"{name}:" if named else "") + _value(field, verb, flags, depth) for name, field in fields.items())
    elif isinstance(value, list):
        begin, end = "[", "]"
        parts = (_value(element, verb, flags, depth) for element in value)
    else:
        begin, end = "map[", "]"
        parts = (f"{_value(key, verb, flags, depth)}:{_value(value[key], verb, flags, depth)}" for key in sorted(value))
    if flags.syntax:
        return f"{type_name(value).lstrip('*')}{{{joined(parts, ', ')}}}"
    return f"{begin}{joined(parts, ' ')}{end}"


def _padded(text: str, flags: Flags) -> str:
    if len(text) > LONGEST_TEXT:
        return text
    if "-" in flags.signs:
        return text.ljust(flags.width)
    return text.rjust(flags.width, "0" if "0" in flags.signs else " ")


def _string(value: str, verb: str, flags: Flags) -> str:
    if verb in "xX":
        return _octets(octets(value), verb, flags)
    if flags.precision is not None:
        value = value[: flags.precision]
    if verb == "q" or (verb == "v" and flags.syntax):
        is_raw = "#" in flags.signs and can_backquote(value)
        value = f"`{value}`" if is_raw else quoted(value, ascii_only="+" in flags.signs)
    return _padded(value, flags)


def _octets(raw: bytes, verb: str, flags: Flags) -> str:
    raw = raw[: flags.precision]
    prefix = f"0{verb}" if "#" in flags.signs else ""
    digits = raw.hex(" ") if " " in flags.signs else raw.hex()
    digits = digits.upper() if verb == "X" else digits
    return _padded(prefix + digits.replace(" ", f" {prefix}") if digits else "", flags)


def _integer(value: int, verb: str, flags: Flags) -> str:
    if verb in "cq":
        code = value if 0 <= value <= sys.maxunicode and not 0xD800 <= value < 0xE000 else 0xFFFD
        text = quoted(chr(code), "'", ascii_only="+" in flags.signs) if verb == "q" else chr(code)
        return _padded(text, flags)
    blank = flags.without("0")
    if verb == "U":
        return _padded(_code(value, flags), blank)
    if verb not in _INTEGERS:
        return _bad(value, verb, flags)
    letter, prefix = _INTEGERS[verb]
    is_sharp = "#" in flags.signs
    if verb == "v" and flags.syntax and isinstance(value, Typed) and value.kind.startswith("uint"):
        letter, prefix, is_sharp = "x", "0x", True
    if flags.precision == 0 and value == 0:
        return _padded("", blank)
    sign = "-" if value < 0 else flags.sign
    least = flags.precision if flags.precision is not None else flags.width - len(sign) if "0" in flags.signs else 0
    digits = f"{abs(value):{letter}}".rjust(least, "0")
    if is_sharp and not (letter == "o" and digits.startswith("0")):
        digits = prefix + digits
    return _padded(f"{sign}{'0o' if verb == 'O' else ''}{digits}", blank)


def _code(value: int, flags: Flags) -> str:
    unsigned = value % 2**64
    text = f"U+{unsigned:0{max(4, flags.precision or 0)}X}"
    if "#" in flags.signs and unsigned <= sys.maxunicode and chr(unsigned).isprintable():
        text += f" '{chr(unsigned)}'"
    return text


def _float(value: float, verb: str, flags: Flags) -> str:
    if not math.isfinite(value):
        sign = "-" if value < 0 else flags.sign or ("+" if math.isinf(value) else "")
        return _padded(f"{sign}{'NaN' if math.isnan(value) else 'Inf'}", flags.without("0"))
    letter = {"v": "g", "F": "f"}.get(verb, verb)
    sign = "-" if math.copysign(1.0, value) < 0 else flags.sign
    digits = _digits(abs(value), letter, flags)
    if sign and "0" in flags.signs:
        return sign + digits.rjust(flags.width - 1, "0")
    return _padded(sign + digits, flags)


def _digits(value: float, letter: str, flags: Flags) -> str:
    """Return a float that is not negative, by one of the verbs e, E, f, g, G, b, x and X."""
    precision, sharp = flags.precision, "#" if "#" in flags.signs else ""
    if letter in "feE" or (letter in "gG" and precision is not None):
        return f"%{sharp}.{6 if precision is None else precision}{letter}" % value
    if letter == "b":
        return _binary(value)
    text = shortest(value) if letter in "gG" else _hexadecimal(value, precision)
    if sharp:  # a point, and as many digits as the precision: of `0x1` Go counts the x, too
        number, mark, exponent = text.partition("p" if letter in "xX" else "e")
        least = 0 if letter == "X" else 6 if precision is None else precision
        missing = least - len(number.replace(".", "").lstrip("0")) - (number == "0")
        text = f"{number}{'' if '.' in number else '.'}{'0' * missing}{mark}{exponent}"
    return text.upper() if letter in "GX" else text


def _binary(value: float) -> str:
    """Return a whole mantissa and the power of 2."""
    exponent = max(math.frexp(value)[1] - 53, -1074) if value else -1074
    return f"{int(math.ldexp(value, -exponent))}p{exponent:+d}"


def _hexadecimal(value: float, precision: int | None) -> str:
    """Return a mantissa from 1 on, in hexadecimal digits, and the power of 2."""
    mantissa, exponent = math.frexp(value)
    places = _HEXADECIMAL_PLACES if precision is None else min(precision, _HEXADECIMAL_PLACES)
    digits = round(2 * mantissa * 16**places)  # halves to even, as the product is exact
    exponent -= value != 0
    if digits == 2 * 16**places:
        digits, exponent = digits // 2, exponent + 1
    text = f"{digits:0{places + 1}x}"
    fraction = text[1:].rstrip("0") if precision is None else text[1:].ljust(precision, "0")
    return f"0x{text[0]}{'.' if fraction else ''}{fraction}p{exponent:+03d}"
