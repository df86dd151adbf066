"""Strings, numbers and durations as Go reads and writes them: in queries, in templates, and in errors.

A Go string is bytes. Those that are not UTF-8 are kept as Python keeps them in file names: as surrogate escapes.
Whatever is invalid is a ValueError with the words of Go or Prometheus.
"""

import re
import unicodedata

from alerts import durations

_SHORT = {"\a": "a", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v", "\\": "\\"}
_ESCAPES = {letter: character for character, letter in _SHORT.items()}
_NO_CHARACTERS = range(0xD800, 0xE000)
_LAST = 0x10FFFF
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))")
_UNESCAPED = {quote: re.compile(rf"[^{quote}\\\n]*") for quote in "\"'"} | {"`": re.compile("[^`]*")}
_HALVES = re.compile("[\ud800-\udfff]")
_SPECIAL = re.compile(r"[^ !#-&(-\[\]-~]")
"""Characters that may have to be escaped in either kind of quotes."""
BYTES = range(0xDC80, 0xDD00)
"""What stands for the bytes 128 to 255 where they are not UTF-8."""


def octets(text: str) -> bytes:
    """Return a text's bytes, which Go counts."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def from_octets(raw: bytes) -> str:
    """Return the text of bytes."""
    return raw.decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    """Return a text without bytes that are not UTF-8, as JSON shows it."""
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def quoted(text: str, quote: str = '"', *, ascii_only: bool = False) -> str:
    """Return what Go's strconv.Quote returns, or with single quotes its QuoteRune."""
    return f"{quote}{_SPECIAL.sub(lambda match: _written(match[0], quote, ascii_only), text)}{quote}"


def _written(letter: str, quote: str, ascii_only: bool) -> str:
    code = ord(letter)
    if code in BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if letter in _SHORT:
        return f"\\{_SHORT[letter]}"
    if letter == quote:
        return f"\\{letter}"
    if (code < 128 or not ascii_only) and letter.isprintable():
        return letter
    if code < 32 or code == 127:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_of_name(letter: str) -> bool:
    """Return whether a character can be in a name: a letter, a digit or an underscore."""
    if letter.isascii():
        return letter.isalnum() or letter == "_"
    category = unicodedata.category(letter)
    return category.startswith("L") or category == "Nd"


def unquoted(source: str) -> str:
    """Return the value of a text in quotes or backquotes. Raises ValueError."""
    if source[0] == "`":
        return source[1:-1].replace("\r", "")
    pieces, _ = read_quoted(source)  # among them bytes that may be parts of one character
    return from_octets(b"".join(bytes((piece,)) if isinstance(piece, int) else octets(piece) for piece in pieces))


def character(source: str) -> int:
    """Return the code of a character in single quotes. Raises ValueError."""
    pieces, _ = read_quoted(source)
    if len(pieces) == 1 and isinstance(pieces[0], int):
        return pieces[0]
    text = "".join(map(str, pieces))
    if len(text) != 1:
        raise ValueError(f"malformed character constant: {source}")
    return ord(text)


def read_quoted(text: str, start: int = 0) -> tuple[list[str | int], int]:
    """Return the parts of a text whose opening quote is at `start`, and where it ends; a byte given by its number stays
    a number.

    Raises ValueError with the words of Prometheus's lexer.
    """
    quote, at = text[start], start + 1
    pieces: list[str | int] = []
    while True:
        plain = _UNESCAPED[quote].match(text, at)
        assert plain is not None, "the pattern matches the empty text"
        if plain[0]:
            pieces.append(plain[0])
        at = plain.end()
        if text.startswith(quote, at):
            return pieces, at + 1
        if not text.startswith("\\", at):
            raise ValueError("unterminated raw string" if quote == "`" else "unterminated quoted string")
        match = _ESCAPE.match(text, at)
        if match is None or (match[1] in ("'", '"') and match[1] != quote):
            raise _wrong_escape(text, at + 1)
        pieces.append(_escaped(match))
        at = match.end()


def _wrong_escape(text: str, at: int) -> ValueError:
    """Return what is wrong with the escape whose kind is at a place."""
    kind = text[at : at + 1]
    if kind and kind not in "xuU01234567":
        return ValueError(f"unknown escape sequence {_rune(kind)}")
    digits = "01234567" if kind.isdigit() else "0123456789abcdefABCDEF"
    wrong = next((c for c in text[at + (kind in "xuU") :] if c not in digits), "")
    return ValueError(
        f"illegal character {_rune(wrong)} in escape sequence" if wrong else "escape sequence not terminated"
    )


def _rune(letter: str) -> str:
    return f"U+{ord(letter):04X} {letter!r}" if letter.isprintable() else f"U+{ord(letter):04X}"


def _escaped(match: re.Match[str]) -> str | int:
    if match[1]:
        return _ESCAPES.get(match[1], match[1])
    code = int(match[5], 8) if match[5] else int(match[2] or match[3] or match[4], 16)
    if code > (255 if match[5] else _LAST) or code in _NO_CHARACTERS:
        raise ValueError("escape sequence is an invalid Unicode code point")
    return code if match[2] or match[5] else chr(code)


_DECIMAL = re.compile(
    r"[+-]?(?:(?:[0-9](?:_?[0-9])*)(?:\.(?:[0-9](?:_?[0-9])*)?)?|\.[0-9](?:_?[0-9])*)"
    r"(?:[eE][+-]?[0-9](?:_?[0-9])*)?"
)
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX]_?((?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?(?:\.(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?)?)[pP]([+-]?[0-9]+)"
)
_ODD = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_WHOLE = re.compile(
    r"([+-]?)(?:0[xX]((?:_?[0-9a-fA-F])+)|0[bB]((?:_?[01])+)|0[oO]?((?:_?[0-7])+)|(0|[1-9](?:_?[0-9])*))"
)
_BASES = (16, 2, 8, 10)
_MOST_DIGITS = 1000
"""Most digits of a whole number that are read."""


def parse_float(text: str) -> float:
    """Parse as Go's strconv.ParseFloat. Raises ValueError."""
    plain = text.replace("_", "")
    if _ODD.fullmatch(text):
        return float(text)
    if _DECIMAL.fullmatch(text):
        value = float(plain)
    elif match := _HEXADECIMAL.fullmatch(text):
        if not any(letter not in "._" for letter in match[2]):
            raise _wrong(text, "invalid syntax")
        try:
            value = float.fromhex(f"{match[1]}0x{match[2].replace('_', '')}p{match[3]}")
        except OverflowError:
            value = float("inf")
    else:
        raise _wrong(text, "invalid syntax")
    if abs(value) == float("inf"):
        raise _wrong(text, "value out of range")
    return value


def _wrong(text: str, reason: str) -> ValueError:
    return ValueError(f"strconv.ParseFloat: parsing {quoted(text)}: {reason}")


def whole(text: str) -> int | None:
    """Return a whole number, perhaps with the prefix of a base (0 is that of octal ones); None of another text."""
    match = _WHOLE.fullmatch(text)
    if match is None or len(text) > _MOST_DIGITS:
        return None
    digits, base = next((digits, base) for digits, base in zip(match.groups()[1:], _BASES, strict=True) if digits)
    value = int(digits.replace("_", ""), base)
    return -value if match[1] == "-" else value


_UNIT = re.compile(rf"(?:[0-9]+(?:{'|'.join(durations.UNITS)})(?=[0-9]))*[0-9]+([^0-9]+)")
"""Finds the first unknown unit of a duration, or the last unit."""


def milliseconds(text: str) -> int:
    """Return the milliseconds of a duration such as `1h30m`. Raises ValueError with Prometheus's words."""
    total = durations.milliseconds(text)
    if total is None:
        match = _UNIT.match(text)
        if match is not None and match[1] not in durations.UNITS:
            raise ValueError(f"unknown unit {quoted(match[1])} in duration {quoted(text)}")
        raise ValueError(f"not a valid duration string: {quoted(text)}")
    if total > durations.LONGEST:
        raise ValueError("duration out of range")
    return total
