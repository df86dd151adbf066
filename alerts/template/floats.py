"""Floats as Go's strconv writes them."""

from __future__ import annotations

import math

_MANTISSA = 53
_EXPONENT = 1074


def special(value: float) -> str | None:
    """The text of a float that has no digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return None


def spelled(value: float, letter: str, precision: int | None) -> str:
    """A finite float in one of the forms f, e, E, g, G, b, x and X; no more digits than it needs."""
    if letter in "gG" and precision is None:
        text = shortest(value)
        return text.upper() if letter == "G" else text
    if letter == "b":
        return _binary(value)
    if letter in "xX":
        text = _hexadecimal(value, precision)
        return text.upper() if letter == "X" else text
    if letter in "gG":
        return f"{value:.{max(precision or 0, 1)}{letter}}"
    return f"{value:.{6 if precision is None else precision}{letter}}"


def shortest(value: float) -> str:
    """Go's %v and %g of a float: the fewest digits that identify it, with an exponent from 1e+06 on or below 1e-04."""
    odd = special(value)
    if odd is not None:
        return odd
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    power = len(whole) + int(exponent or 0)
    power -= len(whole + fraction) - len((whole + fraction).lstrip("0")) if digits else 0
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0"
    scale = power - 1
    if scale < -4 or scale >= 6:
        return f"{sign}{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e{'-' if scale < 0 else '+'}{abs(scale):02d}"
    if power <= 0:
        return f"{sign}0.{'0' * -power}{digits}"
    if power >= len(digits):
        return f"{sign}{digits}{'0' * (power - len(digits))}"
    return f"{sign}{digits[:power]}.{digits[power:]}"


def _binary(value: float) -> str:
    """A whole mantissa and the power of 2."""
    exponent = math.frexp(value)[1] - _MANTISSA
    if value == 0 or exponent < -_EXPONENT:
        exponent = -_EXPONENT
    return f"{int(math.ldexp(value, -exponent) if value else 0)}p{exponent:+d}"


def _hexadecimal(value: float, precision: int | None) -> str:
    """A mantissa from 1 on, in hexadecimal digits, and the power of 2."""
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        digits, exponent = 0, 0
    else:
        mantissa, exponent = math.frexp(abs(value))
        digits, exponent = int(mantissa * 2**_MANTISSA), exponent - 1
    bits = _MANTISSA - 1
    if precision is not None and precision * 4 < bits:
        drop = bits - precision * 4
        rest, half = digits & ((1 << drop) - 1), 1 << (drop - 1)
        digits >>= drop
        digits += rest > half or (rest == half and digits & 1 == 1)
        if digits >> (precision * 4 + 1):
            digits >>= 1
            exponent += 1
        fraction = f"{digits & ((1 << precision * 4) - 1):0{precision}x}" if precision else ""
        whole = digits >> (precision * 4)
    else:
        whole, fraction = digits >> bits, f"{digits & ((1 << bits) - 1):0{bits // 4}x}"
        fraction = fraction.rstrip("0") if precision is None else fraction.ljust(precision, "0")
    return f"{sign}0x{whole}{'.' + fraction if fraction else ''}p{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def exact(digits: str, letter: str, precision: int | None) -> str:
    """A float without its sign, as written with `#`: with a point, and with trailing zeros."""
    is_hexadecimal = letter in "xX"
    marks = "pP" if is_hexadecimal else "eE"
    cut = next((at for at, mark in enumerate(digits) if mark in marks), len(digits))
    number, tail = digits[:cut], digits[cut:]
    missing = 0
    if letter in "gGx":
        missing = 6 if precision is None else precision
        missing -= len(number.replace(".", "").lstrip("0"))  # of `0x1` two: Go counts the x, too
    if "." not in number:
        missing -= number == "0"
        number += "."
    return number + "0" * missing + tail
