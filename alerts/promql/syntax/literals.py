"""The values of numbers, durations and quoted strings, as Go and Prometheus parse them.

Invalid ones are a ValueError with Prometheus's text.
"""

import json
import math
import re

from alerts import go_literals

_SIGNED_LIMIT = 2**63
_BYTES = re.compile("[\ud800-\udfff]")


def quoted(text: str) -> str:
    """Return a text in double quotes, for errors."""
    return json.dumps(readable(text), ensure_ascii=False)


def readable(text: str) -> str:
    """Return a text of a query in printable form: U+FFFD stands for bytes that are not UTF-8."""
    return text if is_text(text) else text.encode(errors="surrogateescape").decode(errors="replace")


def is_text(text: str) -> bool:
    """Return whether a text is UTF-8, and so can be a label's name or value: its escapes may make any bytes."""
    return text.isascii() or not _BYTES.search(text)


def number_value(written: str) -> float:
    """Return the value of a number without a sign: `1_000`, `0x1F`, `017` (octal), `.5`, `1e3`, `Inf`, `NaN`."""
    number = go_literals.whole(written)
    if number is not None and number < _SIGNED_LIMIT:
        return float(number)
    try:
        return go_literals.parse_float(written)
    except ValueError as error:
        raise ValueError(f"error parsing number: {error}") from None


def duration_value(written: str) -> float:
    """Return the seconds of a duration such as `1h30m`."""
    seconds, rest = divmod(go_literals.milliseconds(written), 1000)
    return seconds + rest / 1000


def nanoseconds(seconds: float) -> int:
    """Return a number of seconds as a duration in nanoseconds: 64 bits hold about 292 years."""
    if seconds != seconds:
        return -_SIGNED_LIMIT  # the result on x86-64; only an offset can be NaN
    scaled = seconds * 1e9
    if not abs(scaled) < _SIGNED_LIMIT:
        raise ValueError("duration out of range")
    return int(math.copysign(math.floor(abs(scaled) + 0.5), scaled))


def unquoted(written: str) -> str:
    """Return the text between quotes with its escapes resolved, as in Go: `\\x` and octal ones are single bytes.

    Bytes that are not UTF-8 are kept as Python keeps those of file names, as halves of surrogate pairs.
    """
    body = written[1:-1]
    return body if written[0] == "`" or "\\" not in body else go_literals.unquoted(written)
