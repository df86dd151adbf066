"""The functions of templates: Prometheus's, and Go's own.

Each declares its argument types, by Go's names, because Go checks them before it calls. `and` and `or`, which may leave
out arguments, and `call`, which always fails, are left to the renderer.
"""

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import quote_plus, urlsplit

from alerts.go_literals import from_octets, octets
from alerts.limits import LONGEST_TEXT
from alerts.regex import Expansion, Regex, RegexError, TextTooLongError
from alerts.template import number_format
from alerts.template.comparing import equal, less
from alerts.template.number_format import span_of
from alerts.template.printf import show, sprint, sprintf, sprintln
from alerts.template.values import (
    Arguments,
    Element,
    Html,
    Moment,
    RenderError,
    Root,
    Span,
    Typed,
    Value,
    joined,
    to_span,
    truth,
    type_name,
)

RunQuery = Callable[[str], Sequence[Element]]
"""Runs a query at the evaluation's time. Raises RenderError."""


class RenderContext(NamedTuple):
    """What functions may need of a rendering: `at` is its wall second, `spend` counts units of work and may raise."""

    run_query: RunQuery
    root: Root
    at: float
    spend: Callable[[int], None]


_COMPILED = 100
"""Units of work to compile a regular expression."""

TEXT, ANY, SAMPLE, RESULT = "string", "interface {}", "*template.sample", "template.queryResult"


class Function(NamedTuple):
    """A function, the types of its arguments, and that of any further arguments, if it takes them.

    With `in_context` it gets the context before its arguments. `since` is the first version of Prometheus that has it,
    if 3.5 does not.
    """

    call: Callable[..., Value]
    takes: tuple[str, ...]
    rest: str = ""
    in_context: bool = False
    since: str = ""


def pattern(text: str) -> Regex:
    """Compile a template's expression, where unlike in a matcher a dot matches no line break. Raises RenderError."""
    try:
        return Regex(text, dot_all=False, groups=True)
    except RegexError as error:
        raise RenderError(_in_go(str(error), text)) from None


_REASONS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "unexpected )",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""RE2's words for what is wrong with an expression, and Go's where they differ."""


def _in_go(reason: str, text: str) -> str:
    """Return Go's words for what is wrong with an expression, as far as RE2 reports the same."""
    words, _, part = reason.partition(": ")
    return f"error parsing regexp: {_REASONS.get(words, words)}: `{part or text}`"


def _match(context: RenderContext, regex: str, text: str) -> bool:
    context.spend(_COMPILED + len(text))
    try:
        return pattern(regex).found_in(text)
    except TextTooLongError as error:
        raise RenderError(str(error)) from None


def _replace_all(context: RenderContext, regex: str, replacement: str, text: str) -> str:
    context.spend(_COMPILED)
    try:
        compiled = pattern(regex)
    except RenderError as error:
        raise RenderError(f"regexp: Compile(`{regex}`): {error}") from None
    try:
        return compiled.replaced(text, Expansion(replacement, compiled.names), LONGEST_TEXT, context.spend)
    except (RegexError, TextTooLongError) as error:  # RegexError: the library is missing
        raise RenderError(str(error)) from None


_WITHIN_WORDS = frozenset("'.:\u2018\u2019\u2024\u00b7\u0387\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a")
"""Marks that do not end a word if another of its characters follows (Unicode's MidLetter and MidNumLet, UAX 29)."""


_OF_WORDS = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc", "Cf"))


def _title(text: str) -> str:
    """Return the first letter of each word as a capital, the others unchanged, as in Prometheus since 3.3."""
    letters, is_within_word = [], False
    for index, letter in enumerate(text):
        if letter.islower() or letter.isupper() or letter.istitle():
            letters.append(letter if is_within_word else letter.title())
            is_within_word = True
            continue
        letters.append(letter)
        within = (
            letter in _WITHIN_WORDS and _of_a_word(text[index - 1 : index]) and _of_a_word(text[index + 1 : index + 2])
        )
        is_within_word = is_within_word and (within or _of_a_word(letter))
    return "".join(letters)


def _of_a_word(letter: str) -> bool:
    """Return whether it is a letter, its mark, a digit, or what joins them."""
    return bool(letter) and unicodedata.category(letter) in _OF_WORDS


def _upper(text: str) -> str:
    """Return upper case letter by letter, as in Go: no letter becomes two."""
    if text.isascii():
        return text.upper()
    return "".join(map(_upper_letter, text))


def _upper_letter(letter: str) -> str:
    for capital in (letter.upper(), letter.title()):
        if len(capital) == 1:
            return capital
    return letter


def _lower(text: str) -> str:
    return text.lower() if text.isascii() else "".join("i" if c == "\u0130" else c.lower() for c in text)


def _split_host_port(text: str) -> tuple[str, str]:
    """Return host and port; the port is empty if the text is not of both."""
    match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)", text, re.DOTALL)
    return (match[1] if match[1] is not None else match[2], match[3]) if match else (text, "")


def _strip_domain(text: str) -> str:
    host, port = _split_host_port(text)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = host.split(".")[0]
        host = f"[{host}]" if port and ":" in host else host
        return f"{host}:{port}" if port else host
    return text


def _first(elements: Sequence[Element]) -> Value:
    if not elements:
        raise RenderError("first() called on vector with no elements")
    return elements[0]


def _required(sample: Element | None) -> Element:
    if sample is None:
        raise RenderError("runtime error: invalid memory address or nil pointer dereference")
    return sample


def _sort_by_label(context: RenderContext, key: str, elements: list[Element]) -> Value:
    """Sort in place, as in Prometheus: other references to the list see it sorted, too."""
    context.spend(len(elements))
    elements.sort(key=lambda element: element.labels.get(key, ""))
    return elements


def _arguments(*values: Value) -> Value:
    return Arguments({f"arg{position}": value for position, value in enumerate(values)})


def _place(index: Value, most: int) -> int:
    if index is None:
        raise RenderError("cannot index slice/array with nil")
    if not isinstance(index, int) or isinstance(index, bool):
        raise RenderError(f"cannot index slice/array with type {type_name(index)}")
    if not 0 <= index <= most:
        raise RenderError(f"index out of range: {index}")
    return index


def _index(item: Value, *keys: Value) -> Value:
    if item is None:
        raise RenderError("index of untyped nil")
    for key in keys:
        item = _indexed(item, key)
    return item


def _indexed(item: Value, key: Value) -> Value:
    if isinstance(item, (str, list)):
        raw = octets(item) if isinstance(item, str) else item
        place = _place(key, len(raw))
        if place == len(raw):
            kind = "string" if isinstance(item, str) else "slice"
            raise RenderError(f"reflect: {kind} index out of range")
        entry = raw[place]
        return Typed(entry, "uint8") if isinstance(entry, int) else entry
    if isinstance(item, Mapping):
        if key is None:
            raise RenderError("value is nil; should be of type string")
        if type(key) is not str:
            raise RenderError(f"value has type {type_name(key)}; should be string")
        return item.get(key, None if isinstance(item, Arguments) else "")
    if item is None:
        raise RenderError("index of nil pointer")
    raise RenderError(f"can't index item of type {type_name(item).lstrip('*')}")


def _slice(item: Value, *places: Value) -> Value:
    if item is None:
        raise RenderError("slice of untyped nil")
    if len(places) > 3:
        raise RenderError(f"too many slice indexes: {len(places)}")
    if not isinstance(item, (str, list)):
        raise RenderError(f"can't slice item of type {type_name(item)}")
    if isinstance(item, str) and len(places) == 3:
        raise RenderError("cannot 3-index slice a string")
    raw = octets(item) if isinstance(item, str) else item
    bounds = [0, len(raw), len(raw)]
    for position, place in enumerate(places):
        bounds[position] = _place(place, len(raw))
    for low, high in pairwise(bounds[: max(len(places), 2)]):
        if low > high:
            raise RenderError(f"invalid slice index: {low} > {high}")
    cut = raw[bounds[0] : bounds[1]]
    if isinstance(cut, bytes):
        return Html(from_octets(cut)) if isinstance(item, Html) else from_octets(cut)
    return cut


def _len(item: Value) -> int:
    if item is None:
        raise RenderError("reflect: call of reflect.Value.Type on zero Value")
    if isinstance(item, str):
        return len(octets(item))
    if isinstance(item, (Mapping, list)):
        return len(item)
    raise RenderError(f"len of type {type_name(item).lstrip('*')}")


_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}


def _js(*values: Value) -> str:
    text = _evaluated(values)
    return "".join(_JS.get(c) or (c if c.isprintable() else f"\\u{ord(c):04X}") for c in text)


def _html(*values: Value) -> str:
    from html import escape  # it brings a table of 2,231 entities, half a mebibyte

    escaped = escape(_evaluated(values), quote=False)
    return escaped.replace('"', "&#34;").replace("'", "&#39;").replace("\0", "\ufffd")


def _evaluated(values: Sequence[Value]) -> str:
    """Return the arguments as one text, as an action prints each."""
    texts = [value is None or isinstance(value, str) for value in values]
    spaces = [position and not (texts[position] or texts[position - 1]) for position in range(len(values))]
    return joined((" " if space else "") + show(value) for space, value in zip(spaces, values, strict=True))


def _link(tab: int) -> Callable[[str], str]:
    return lambda expression: f"/graph?g0.expr={quote_plus(octets(expression))}&g0.tab={tab}"


def _unreachable(*values: Value) -> Value:
    raise AssertionError(f"the renderer answers for this: {len(values)}")


FUNCTIONS: Mapping[str, Function] = {
    "and": Function(_unreachable, (ANY,), ANY),
    "args": Function(_arguments, (), ANY),
    "call": Function(_unreachable, (ANY,), ANY),
    "eq": Function(equal, (ANY,), ANY),
    "externalURL": Function(lambda context: context.root.external_url, (), in_context=True),
    "first": Function(_first, (RESULT,)),
    "ge": Function(lambda first, second: not less(first, second), (ANY, ANY)),
    "graphLink": Function(_link(0), (TEXT,)),
    "gt": Function(lambda first, second: not (less(first, second) or equal(first, second)), (ANY, ANY)),
    "html": Function(_html, (), ANY),
    "humanize": Function(number_format.humanize, (ANY,)),
    "humanize1024": Function(number_format.humanize1024, (ANY,)),
    "humanizeDuration": Function(number_format.humanize_duration, (ANY,)),
    "humanizePercentage": Function(number_format.humanize_percentage, (ANY,)),
    "humanizeTimestamp": Function(number_format.humanize_timestamp, (ANY,)),
    "index": Function(_index, (ANY,), ANY),
    "js": Function(_js, (), ANY),
    "label": Function(lambda name, sample: _required(sample).labels.get(name, ""), (TEXT, SAMPLE)),
    "le": Function(lambda first, second: less(first, second) or equal(first, second), (ANY, ANY)),
    "len": Function(_len, (ANY,)),
    "lt": Function(less, (ANY, ANY)),
    "match": Function(_match, (TEXT, TEXT), in_context=True),
    "ne": Function(lambda first, second: not equal(first, second), (ANY, ANY)),
    "not": Function(lambda value: not truth(value), (ANY,)),
    "now": Function(lambda context: context.at, (), in_context=True, since="3.6"),
    "or": Function(_unreachable, (ANY,), ANY),
    "parseDuration": Function(span_of, (TEXT,)),
    "pathPrefix": Function(lambda context: urlsplit(context.root.external_url).path, (), in_context=True),
    "print": Function(lambda *values: sprint(values), (), ANY),
    "printf": Function(lambda text, *values: sprintf(text, values), (TEXT,), ANY),
    "println": Function(lambda *values: sprintln(values), (), ANY),
    "query": Function(lambda context, text: list(context.run_query(text)), (TEXT,), in_context=True),
    "reReplaceAll": Function(_replace_all, (TEXT, TEXT, TEXT), in_context=True),
    "safeHtml": Function(Html, (TEXT,)),
    "slice": Function(_slice, (ANY,), ANY),
    "sortByLabel": Function(_sort_by_label, (TEXT, RESULT), in_context=True),
    "stripDomain": Function(_strip_domain, (TEXT,)),
    "stripPort": Function(lambda text: _split_host_port(text)[0], (TEXT,)),
    "strvalue": Function(lambda sample: _required(sample).labels.get("__value__", ""), (SAMPLE,)),
    "tableLink": Function(_link(1), (TEXT,)),
    "title": Function(_title, (TEXT,)),
    "toDuration": Function(lambda value: to_span(number_format.number(value)), (ANY,), since="3.6"),
    "toLower": Function(_lower, (TEXT,)),
    "toTime": Function(lambda value: number_format.moment(number_format.number(value)), (ANY,)),
    "toUpper": Function(_upper, (TEXT,)),
    "urlQueryEscape": Function(lambda text: quote_plus(octets(text)), (TEXT,), since="3.8"),
    "urlquery": Function(lambda *values: quote_plus(octets(_evaluated(values))), (), ANY),
    "value": Function(lambda sample: _required(sample).value, (SAMPLE,)),
}


SPAN, TIME = "time.Duration", "time.Time"


def _int64(value: int) -> Typed:
    return Typed(value, "int64")


METHODS: Mapping[type, Mapping[str, Function]] = {
    Moment: {
        "String": Function(str, ()),
        "Format": Function(lambda self, layout: self.formatted(layout), (TEXT,)),
        "Year": Function(lambda self: self.date.year, ()),
        "Month": Function(lambda self: Typed(self.date.month, "time.Month", self.month), ()),
        "Day": Function(lambda self: self.date.day, ()),
        "Hour": Function(lambda self: self.date.hour, ()),
        "Minute": Function(lambda self: self.date.minute, ()),
        "Second": Function(lambda self: self.date.second, ()),
        "Nanosecond": Function(lambda self: self.nanoseconds % 10**9, ()),
        "YearDay": Function(lambda self: self.date.timetuple().tm_yday, ()),
        "Weekday": Function(lambda self: Typed((self.date.weekday() + 1) % 7, "time.Weekday", self.weekday), ()),
        "Unix": Function(lambda self: _int64(self.nanoseconds // 10**9), ()),
        "UnixMilli": Function(lambda self: _int64(self.nanoseconds // 10**6), ()),
        "UnixMicro": Function(lambda self: _int64(self.nanoseconds // 10**3), ()),
        "UnixNano": Function(lambda self: _int64(self.nanoseconds), ()),
        "UTC": Function(lambda self: Moment(self.nanoseconds, False), ()),
        "IsZero": Function(lambda _self: False, ()),
        "Add": Function(lambda self, span: Moment(self.nanoseconds + span.nanoseconds, False), (SPAN,)),
        "Sub": Function(lambda self, other: Span(self.nanoseconds - other.nanoseconds, False), (TIME,)),
        "After": Function(lambda self, other: self.nanoseconds > other.nanoseconds, (TIME,)),
        "Before": Function(lambda self, other: self.nanoseconds < other.nanoseconds, (TIME,)),
        "Equal": Function(lambda self, other: self.nanoseconds == other.nanoseconds, (TIME,)),
    },
    Span: {
        "String": Function(str, ()),
        "Hours": Function(lambda self: self.nanoseconds / 3.6e12, ()),
        "Minutes": Function(lambda self: self.nanoseconds / 6e10, ()),
        "Seconds": Function(lambda self: self.nanoseconds / 1e9, ()),
        "Milliseconds": Function(lambda self: _int64(int(self.nanoseconds / 10**6)), ()),
        "Microseconds": Function(lambda self: _int64(int(self.nanoseconds / 10**3)), ()),
        "Nanoseconds": Function(lambda self: _int64(self.nanoseconds), ()),
        "Abs": Function(lambda self: Span(abs(self.nanoseconds), False), ()),
    },
}
"""Methods of values, by the value's type: those of Go's times that need no time zone."""
