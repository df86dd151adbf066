"""Go's fmt.Sprint, Sprintln and Sprintf for the values of templates, with any verbs, flags and mistakes.

A width or precision is at most 1,000; in Go, a million.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from alerts.go_literals import can_backquote, octets, quoted
from alerts.limits import LONGEST_TEXT
from alerts.template.number_format import exact, special, spelled
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
_ADDRESS = 0x1C0000000000
"""What is shown for an address, which is different in Prometheus each time."""
_INTEGERS = {
    "d": (10, ""), "v": (10, ""), "b": (2, "0b"), "o": (8, "0"), "O": (8, ""), "x": (16, "0x"), "X": (16, "0X"),
}  # fmt: skip
_STRUCT = ("Labels", "ExternalLabels", "ExternalURL", "Value")
_LARGEST = 1_000_000
"""Go ignores a width beyond this."""


class Flags(NamedTuple):
    """The flags of a verb. `syntax` is `%#v`, `names` is `%+v`."""

    width: int | None = None
    precision: int | None = None
    plus: bool = False
    minus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    syntax: bool = False
    names: bool = False


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
    return _struct(value, "v", PLAIN) if isinstance(value, Element) else argument(value, "v", PLAIN)


def sprintf(text: str, values: Sequence[Value]) -> str:
    """Return the text with its verbs replaced. Raises RenderError if one is too wide."""
    return joined(_Format(text, values).pieces())


class _Format:
    """The formatting of one text, from left to right."""

    def __init__(self, text: str, values: Sequence[Value]) -> None:
        self._text = text
        self._values = values
        self._at = 0
        self._next = 0
        self._is_reordered = False
        self._is_good = True

    def pieces(self) -> Iterator[str]:
        text = self._text
        while self._at < len(text):
            percent = text.find("%", self._at)
            if percent != self._at:
                yield text[self._at : percent if percent >= 0 else len(text)]
            if percent < 0:
                break
            self._at = percent + 1
            yield from self._verb()
        if not self._is_reordered and self._next < len(self._values):
            extra = (
                "<nil>" if each is None else f"{type_name(each)}={argument(each, 'v', PLAIN)}"
                for each in self._values[self._next :]
            )  # fmt: skip
            yield f"%!(EXTRA {', '.join(extra)})"

    def _verb(self) -> Iterator[str]:
        self._is_good = True
        flags = self._flags()
        after_index = self._index()
        width = self._star()
        if width is not _NONE:
            if width is None:
                yield "%!(BADWIDTH)"
            elif width < 0:
                flags = flags._replace(minus=True, zero=False)
            flags = flags._replace(width=None if width is None else abs(width))
            after_index = False
        else:
            number = self._number()
            flags = flags._replace(width=number)
            self._is_good = self._is_good and not (after_index and number is not None)
        if self._at + 1 < len(self._text) and self._text[self._at] == ".":
            self._at += 1
            self._is_good = self._is_good and not after_index
            after_index = self._index()
            precision = self._star()
            if precision is not _NONE:
                if precision is None or precision < 0:
                    precision = None
                    yield "%!(BADPREC)"
                after_index = False
            else:
                precision = self._number() or 0
            flags = flags._replace(precision=precision)
        if not after_index:
            self._index()
        if self._at >= len(self._text):
            yield "%!(NOVERB)"
            return
        verb = self._text[self._at]
        self._at += 1
        yield self._written(verb, flags)

    def _written(self, verb: str, flags: Flags) -> str:
        if verb == "%":
            return "%"
        if not self._is_good:
            return f"%!{verb}(BADINDEX)"
        if self._next >= len(self._values):
            return f"%!{verb}(MISSING)"
        if max(flags.width or 0, flags.precision or 0) > WIDEST_VERB:
            raise RenderError(f"printf {self._text[:100]!r}: a verb is wider than {WIDEST_VERB}")
        if verb == "v":
            flags = flags._replace(syntax=flags.sharp, sharp=False, names=flags.plus, plus=False)
        self._next += 1
        return argument(self._values[self._next - 1], verb, flags)

    def _flags(self) -> Flags:
        found = PLAIN
        while self._at < len(self._text):
            name = _SIGNS.get(self._text[self._at])
            if name is None:
                break
            found = found._replace(**{name: True})
            self._at += 1
        return found._replace(zero=False) if found.minus else found

    def _number(self) -> int | None:
        begin = self._at
        while self._text[self._at : self._at + 1] in _DIGITS:
            self._at += 1
        digits = self._text[begin : self._at].lstrip("0") or self._text[begin : self._at][:1]
        if not digits:
            return None
        if len(digits) > len(str(_LARGEST)) + 1 or int(digits) > 10 * _LARGEST:
            self._at = len(self._text)  # as Go does with an absurdly long number
            return None
        return int(digits)

    def _index(self) -> bool:
        """Read the number of an argument, `[3]`, if there is one; returns whether there was."""
        if self._text[self._at : self._at + 1] != "[":
            return False
        self._is_reordered = True
        close = self._text.find("]", self._at)
        if close < 0:
            self._at += 1
            self._is_good = False
            return False
        digits = self._text[self._at + 1 : close]
        self._at = close + 1
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(_LARGEST))
        if is_number and 0 <= int(digits) - 1 < len(self._values):
            self._next = int(digits) - 1
            return True
        self._is_good = False
        return is_number

    def _star(self) -> int | None:
        """Return a width given as an argument: None if that is invalid, _NONE if there is no star."""
        if self._text[self._at : self._at + 1] != "*":
            return _NONE
        self._at += 1
        if self._next >= len(self._values):
            return None
        value = self._values[self._next]
        self._next += 1
        is_integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
        return value if is_integer and isinstance(value, int) else None


_SIGNS = {"#": "sharp", "0": "zero", "+": "plus", "-": "minus", " ": "space"}
_NONE = sys.maxsize
_DIGITS = tuple("0123456789")


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
    if isinstance(value, complex):
        return _complex(value, verb, flags)
    if isinstance(value, (Moment, Span)):
        if verb in _STRINGABLE and not (flags.syntax and isinstance(value, Span)):
            return _string(str(value), verb, flags)
        return _integer(value.nanoseconds, verb, flags) if isinstance(value, Span) else _bad(value, verb, flags)
    if isinstance(value, Element):
        return f"&{_struct(value, verb, flags)}" if depth == 0 else _pointer(value, verb, flags)
    if isinstance(value, Root):
        return _struct(value, verb, flags)
    if isinstance(value, list):
        return _list(value, verb, flags)
    if value is None:
        return "<nil>" if verb == "v" else f"%!{verb}(<nil>)"
    return _map(value, verb, flags, depth)


def _pointer(value: Element, verb: str, flags: Flags) -> str:
    if verb == "v":
        shown = f"{_ADDRESS:#x}"
        return f"({type_name(value)})({shown})" if flags.syntax else _padded(shown, flags)
    return _integer(_ADDRESS, verb, flags) if verb in "bodxX" else _bad(value, verb, flags)


def _bad(value: Value, verb: str, flags: Flags) -> str:
    """Return the text for a value that does not suit the verb: with the flags, but without methods."""
    bare = int(value) if isinstance(value, Typed) else value
    return f"%!{verb}({type_name(value)}={argument(bare, 'v', flags)})"


def _struct(value: Element | Root, verb: str, flags: Flags) -> str:
    names = [name for name in _STRUCT if FIELDS[name] in value._fields]
    shown = [
        (f"{name}:" if flags.names or flags.syntax else "") + _value(getattr(value, FIELDS[name]), verb, flags, 1)
        for name in names
    ]
    if flags.syntax:
        return f"{type_name(value).lstrip('*')}{{{joined(shown, ', ')}}}"
    return f"{{{joined(shown, ' ')}}}"


def _map(value: Mapping[str, str] | Arguments, verb: str, flags: Flags, depth: int) -> str:
    pairs = (
        f"{_value(key, verb, flags, depth + 1)}:{_value(value[key], verb, flags, depth + 1)}" for key in sorted(value)
    )
    if flags.syntax:
        return f"{type_name(value)}{{{joined(pairs, ', ')}}}"
    return f"map[{joined(pairs, ' ')}]"


def _list(value: list[Element], verb: str, flags: Flags) -> str:
    each = (_value(element, verb, flags, 1) for element in value)
    if flags.syntax:
        return f"{type_name(value)}{{{joined(each, ', ')}}}"
    return f"[{joined(each, ' ')}]"


def _padded(text: str, flags: Flags, fill: str = "") -> str:
    if not flags.width or len(text) > LONGEST_TEXT:
        return text
    if flags.minus:
        return text.ljust(flags.width)
    return text.rjust(flags.width, fill or ("0" if flags.zero else " "))


def _string(value: str, verb: str, flags: Flags) -> str:
    if verb in "xX":
        return _octets(octets(value), verb, flags)
    if flags.precision is not None:
        value = value[: flags.precision]
    if verb == "q" or (verb == "v" and flags.syntax):
        is_raw = flags.sharp and can_backquote(value)
        value = f"`{value}`" if is_raw else quoted(value, ascii_only=flags.plus)
    return _padded(value, flags)


def _octets(raw: bytes, verb: str, flags: Flags) -> str:
    raw = raw if flags.precision is None else raw[: flags.precision]
    prefix = f"0{verb}" if flags.sharp else ""
    digits = [f"{each:02x}" if verb == "x" else f"{each:02X}" for each in raw]
    separated = [prefix + each for each in digits] if flags.space else [prefix if digits else "", *digits]
    text = (" " if flags.space else "").join(separated)
    return _padded(text, flags)


def _integer(value: int, verb: str, flags: Flags) -> str:
    if verb in "cq":
        code = value if 0 <= value <= sys.maxunicode and not 0xD800 <= value < 0xE000 else 0xFFFD
        return _padded(quoted(chr(code), "'", ascii_only=flags.plus) if verb == "q" else chr(code), flags)
    if verb == "U":
        return _code(value, flags)
    if verb not in _INTEGERS:
        return _bad(value, verb, flags)
    base, prefix = _INTEGERS[verb]
    if verb == "v" and flags.syntax and isinstance(value, Typed) and value.kind.startswith("uint"):
        base, prefix, flags = 16, "0x", flags._replace(sharp=True)
    if flags.precision == 0 and value == 0:
        return _padded("", flags, " ")
    digits = f"{abs(value):{ {2: 'b', 8: 'o', 10: 'd', 16: 'X' if verb == 'X' else 'x'}[base] }}"
    signed = value < 0 or flags.plus or flags.space
    if flags.precision is not None:
        digits = digits.rjust(flags.precision, "0")
    elif flags.zero and flags.width:
        digits = digits.rjust(flags.width - signed, "0")
    if flags.sharp and not (base == 8 and digits.startswith("0")):
        digits = prefix + digits
    digits = f"0o{digits}" if verb == "O" else digits
    sign = "-" if value < 0 else "+" if flags.plus else " " if flags.space else ""
    return _padded(sign + digits, flags, " ")


def _code(value: int, flags: Flags) -> str:
    unsigned = value % 2**64
    text = f"U+{unsigned:0{max(4, flags.precision or 0)}X}"
    if flags.sharp and unsigned <= sys.maxunicode and chr(unsigned).isprintable():
        text += f" '{chr(unsigned)}'"
    return _padded(text, flags, " ")


_FLOATS = "vfFeEgGbxX"


def _float(value: float, verb: str, flags: Flags) -> str:
    odd = special(value)
    if odd is not None:
        sign, text = ("-", "Inf") if odd == "-Inf" else ("+", odd.lstrip("+"))
        if sign == "+":
            sign = "+" if flags.plus else " " if flags.space else "+" if text == "Inf" else ""
        return _padded(sign + text, flags, " ")
    letter = {"v": "g", "F": "f"}.get(verb, verb)
    precision = flags.precision if flags.precision is not None else 6 if letter in "feE" else None
    text = spelled(value, letter, precision)
    sign, digits = (
        ("-", text[1:]) if text.startswith("-") else ("+" if flags.plus else " " if flags.space else "", text)
    )
    if flags.sharp and letter != "b":
        digits = exact(digits, letter, precision)
    if sign and flags.zero and flags.width:
        return sign + digits.rjust(flags.width - 1, "0")
    return _padded(sign + digits, flags)


def _complex(value: complex, verb: str, flags: Flags) -> str:
    if verb not in _FLOATS:
        return _bad(value, verb, flags)
    return f"({_float(value.real, verb, flags)}{_float(value.imag, verb, flags._replace(plus=True))}i)"
