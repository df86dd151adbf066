"""Go's fmt.Sprintf for the values that templates have.

Verbs %s %q %v %d %f %F %e %E %g %G %t %x %X %o %b %c, flags `+ - # 0 space`, width and precision. A verb that does
not suit its value prints what Go prints, `%!d(float64=1.5)`, because rules in the wild do that. Widths taken
from arguments (`*`) and argument indexes (`[1]`) are refused.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence

from alerts.template.errors import TemplateError
from alerts.template.limits import WIDEST_VERB
from alerts.template.values import Value, joined, octets, shortest, show, special, type_name

VERB = re.compile(r"%([-+# 0]*)(\d*)(\.\d*)?(.?)", re.DOTALL)
_KNOWN = "sqvdfFeEgGtxXobcT%"


def check(text: str) -> None:
    """Raises TemplateError for a construct that is not supported."""
    for match in VERB.finditer(text):
        verb = match[4]
        if verb in ("*", "["):
            raise TemplateError(f"printf {text!r}: {match[0]!r} takes its width from an argument; write the number")
        if max(_digits(match[2]), _digits((match[3] or "")[1:])) > WIDEST_VERB:
            raise TemplateError(f"printf {text!r}: {match[0]!r} is wider than {WIDEST_VERB}")
        if verb and verb not in _KNOWN:
            raise TemplateError(f"printf {text!r}: {match[0]!r} is no verb; valid: %{' %'.join(_KNOWN)}")


def _digits(text: str) -> int:
    """A number, as far as it matters whether it is too large."""
    return int(text.lstrip("0")[:9] or 0)


def sprintf(text: str, arguments: Sequence[Value]) -> str:
    """The text with its verbs replaced."""
    check(text)
    left = list(arguments)

    def written(match: re.Match[str]) -> str:
        flags, width, precision, verb = match.groups()
        if verb == "%":
            return "%"
        if not verb:
            return "%!(NOVERB)"
        if not left:
            return f"%!{verb}(MISSING)"
        digits = None if precision is None else _digits(precision[1:])
        return _one(verb, flags, _digits(width), digits, left.pop(0))

    done = joined(_pieces(text, written))
    if left:
        extra = joined(f", {type_name(each)}={show(each)}" if each is not None else ", <nil>" for each in left)
        done += f"%!(EXTRA {extra[2:]})"
    return done


def _pieces(text: str, written: Callable[[re.Match[str]], str]) -> Iterator[str]:
    """The text between the verbs as it is, and what is written for each of them."""
    end = 0
    for match in VERB.finditer(text):
        yield text[end : match.start()]
        yield written(match)
        end = match.end()
    yield text[end:]


def _one(verb: str, flags: str, width: int, precision: int | None, value: Value) -> str:
    if verb == "T":
        return _pad(type_name(value), flags, width)
    if verb == "v" and not isinstance(value, float):
        if value is None:
            return _pad("<nil>", flags, width)
        verb = {str: "s", int: "d", bool: "t"}.get(type(value), "s")
    if isinstance(value, bool):
        if verb == "t":
            return _pad(show(value), flags, width)
    elif isinstance(value, float):
        if verb in "vfFeEgG":
            return _float(verb, flags, width, precision, value)
    elif isinstance(value, int):
        if verb in "dxXobcq":
            return _integer(verb, flags, width, value)
    elif isinstance(value, str):
        if verb in "sqxX":
            return _string(verb, flags, width, precision, value)
    elif value is not None and verb == "s":
        return _pad(show(value), flags, width)
    shown = "<nil>" if value is None else f"{type_name(value)}={show(value)}"
    return f"%!{verb}({shown})"


def _pad(text: str, flags: str, width: int) -> str:
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _signed(text: str, flags: str, width: int) -> str:
    """A number's text with its sign as the flags want it, padded with spaces or zeros."""
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("+", text)
    if sign == "+":
        sign = "+" if "+" in flags else " " if " " in flags else ""
    if "0" in flags and "-" not in flags and digits not in ("NaN", "Inf"):
        digits = digits.rjust(width - len(sign), "0")
    return _pad(sign + digits, flags, width)


def _float(verb: str, flags: str, width: int, precision: int | None, value: float) -> str:
    odd = special(value)
    if odd is not None:
        return _pad(f"+{odd}" if odd == "NaN" and "+" in flags else odd, flags, width)
    if verb in "vgG" and precision is None:
        text = shortest(value)
    else:
        kind = {"v": "g", "F": "f"}.get(verb, verb)
        digits = 6 if precision is None else precision
        text = f"{value:{'#' if '#' in flags else ''}.{digits}{kind}}"
    return _signed(text.upper() if verb == "G" else text, flags, width)


def _integer(verb: str, flags: str, width: int, value: int) -> str:
    if verb in "cq":
        is_character = 0 <= value <= sys.maxunicode and not 0xD800 <= value < 0xE000  # those are halves of one
        character = chr(value) if is_character else "\N{REPLACEMENT CHARACTER}"
        return _pad(character if verb == "c" else f"'{character}'", flags, width)
    prefix = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}.get(verb, "") if "#" in flags else ""
    sign = "-" if value < 0 else ""
    return _signed(f"{sign}{prefix}{abs(value):{verb}}", flags, width)


def _string(verb: str, flags: str, width: int, precision: int | None, value: str) -> str:
    if precision is not None:
        value = value[:precision]
    if verb == "q":
        value = json.dumps(value, ensure_ascii=False)
    elif verb in "xX":
        value = octets(value).hex()
        value = value.upper() if verb == "X" else value
    return _pad(value, flags, width)
