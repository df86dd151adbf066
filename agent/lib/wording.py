"""Texts in messages: foreign ones in one line, addresses, numbers, lists of devices, times, and the user's error."""

import math
import re
import time
from collections.abc import Iterable

MOST = 400


def one_line(text: str, most: int = MOST) -> str:
    """Return a text in which anything that would break a line or a terminal is escaped, cut after `most` characters."""
    cut = text[: most + 1]
    if not cut.isprintable():
        cut = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in cut
        )
    return cut if len(cut) <= most else f"{cut[: most - 3]}..."


_LOGIN = re.compile(r"(:/{1,2})[^\s/].*@")
_QUERY = re.compile(r"(:/{1,2}[^\s?]*\?)[^\s'\"]+")


def without_login(text: str) -> str:
    """Return a text in which no URL has a user, a password or a query: messages end in logs and tickets.

    A URL in the place of a file's name has one slash.
    """
    if ":/" not in text:
        return text
    return _QUERY.sub(r"\1***", _LOGIN.sub(r"\1***@", text))


def shown(value: object, most: int = 80) -> str:
    """Return a value as quoted in a message, a URL without its login."""
    if isinstance(value, str):
        value = without_login(value)
        return repr(value[: most + 1]) if len(value) <= most else f"{value[:most]!r}..."
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return one_line(repr(value), most)


def shown_path(path: object) -> str:
    """Return a file's name as in a message: all of it, in one line."""
    return one_line(str(path), 4096)


def no_answer_for(seconds: float) -> str:
    """Return for how long something has been silent, in whole seconds from ten on."""
    return f"no answer for {seconds:.{int(seconds < 10)}f} s"


def show_address(host: str, port: int | None = None) -> str:
    """Return a host, with its port if there is one, as URLs have them: an IPv6 address in brackets."""
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if port is None else f"{bracketed}:{port}"


NEAR = 0.6
"""How much of two words is the same, 0 to 1, where one may have been meant by the other."""
_MOST_CHOICES = 40


def nearest(word: str, words: Iterable[str]) -> str:
    """Return what may have been meant, to go behind a message; empty if nothing is near."""
    import difflib  # for who made a mistake only

    near = difflib.get_close_matches(word[:100], list(words), 1, NEAR)
    return f"; did you mean {near[0]!r}?" if near else ""


def meant(word: str, words: Iterable[str]) -> str:
    """Return what may have been meant, to go behind a message, or else all that is known, if that is not too much."""
    words = list(words)
    choices = f"use one of {', '.join(words)}"
    if len(words) > _MOST_CHOICES:
        choices = f"none of the {len(words)} known names is similar"
    return nearest(word, words) or f"; {choices}"


def index_runs(indexes: Iterable[str], dash: str = "-", shortest: int = 3) -> str:
    """Join indexes in their order, `shortest` or more in a row as first and last: `0-2, 5`. Others stay as they are."""
    runs: list[list[str]] = []
    for index in sorted(set(indexes), key=lambda text: (len(text), text)):
        if runs and index.isdecimal() and runs[-1][-1].isdecimal() and int(index) == int(runs[-1][-1]) + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}{dash}{run[-1]}" if len(run) >= shortest else ", ".join(run) for run in runs)


def short_numbers(numbers: Iterable[int]) -> str:
    """Return whole numbers in short form, with runs joined by a dash."""
    return index_runs(map(str, numbers), "–", 2)


def format_value(value: float) -> str:
    """Write a number in the shortest way that reads back the same, never with an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value).removesuffix(".0")
    if "e" not in text:
        return text
    from decimal import Decimal  # the help shows no numbers

    return f"{Decimal(text):f}"


def with_exponent(value: float) -> str:
    """Write a number in the shortest way that reads back the same, as Go's verb %e does: `1.5e+03`."""
    if not math.isfinite(value):
        return format_value(value)
    from decimal import Decimal

    # `.15e` of the float itself may have other digits: of 2^-24 they do not read back the same.
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


class UserError(Exception):
    """A mistake on the command line, in a file or in an address; the text names the place and the remedy.

    A command that raises it ends with this text in one line, and with status 2.
    """


def utc(wall: float) -> str:
    """Return seconds since the epoch as a UTC time to the second; the bare number for one that no calendar has."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))
    except (ValueError, OverflowError, OSError):
        return f"{wall:.0f} s"


def age(seconds: float) -> str:
    """Return a time span in its two largest units; never below zero, even if the wall clock was set back."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days > 0:
        return f"{days} d {hours} h"
    if hours > 0:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes > 0 else f"{rest} s"


def counted(number: float, noun: str) -> str:
    """Return a number of things: 1 rule, 2 rules."""
    return f"{number:.0f} {noun}{'' if number == 1 else 's'}"


def size(count: int) -> str:
    """Return a number of bytes for people: 224 B, 76 KiB, 1.2 MiB."""
    if count < 2**10:
        return f"{count} B"
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"
