"""Reads YAML into a small tree with line numbers, within bounds that apply to any input.

A few bytes of YAML can expand to gigabytes, to a node inside itself, or to a depth that overflows any stack. So the
tree is built here, to a limited depth, from the events of libyaml: an alias shares its node and counts as often as it
occurs. PyYAML is imported on first use, because it costs memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Union

from msgspec import Struct

from agent.lib.wording import UserError, one_line, shown

if TYPE_CHECKING:
    import yaml

PLAIN = ""
"""The tag of a node without one, and that of a scalar without one that is not in quotes either."""
TEXT = "!!str"
_CORE = "tag:yaml.org,2002:"
_TAG = re.compile(r"!{1,2}[A-Za-z0-9_./:-]+")
_MERGE = "<<"

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_CONTENT = re.compile(r"^[ \t]*([^#\s])", re.MULTILINE)
_MARK = re.compile(r"(?:---|\.\.\.)(?=\s|$)")
_VERSION = re.compile(r"%YAML[ \t]+1\.1(?:[ \t]+#.*)?[ \t]*\r?")
_PIECE = 1 << 16
_DIRECTIVES = 16
_DOCUMENTS = 100
WITHOUT_LIBYAML = (
    "PyYAML was built without libyaml, which coldplate needs to read YAML; install a wheel of it (pip install "
    "--force-reinstall --only-binary pyyaml pyyaml) or the package of the distribution"
)
_SHARED = 64
"""Characters up to which a repeated text is kept only once."""


class YamlError(ValueError):
    """A text is not YAML, or exceeds the bounds. `problem` says what is wrong, and the remedy; `line` counts from 1."""

    def __init__(self, problem: str, line: int) -> None:
        self.problem = one_line(problem)
        self.line = line
        super().__init__(f"line {line}: {self.problem}")


class Bounds(Struct, frozen=True):
    """How large a tree may be with every alias and merge written out: levels, nodes, and characters of its scalars.

    `scalar` is the most characters of a single one.
    """

    depth: int = 32
    nodes: int = 20_000
    characters: int = 2**20
    scalar: int = 2**16


class YamlScalar(Struct, eq=False):
    """A text as it is written. The tag shows whether it may be something else: a number, or null."""

    text: str
    tag: str
    line: int


class YamlList(Struct, eq=False):
    """A list of nodes."""

    items: list[Node]
    tag: str
    line: int


class YamlMapping(Struct, eq=False):
    """Pairs of nodes in the order of the text; a merge is a pair like the others."""

    pairs: list[tuple[Node, Node]]
    tag: str
    line: int


Node = Union[YamlScalar, YamlList, YamlMapping]
Refuse = Callable[[str, int], object]
"""Called with a problem and its line; may raise. If it does not, the faulty part is left out."""


class YamlTree(NamedTuple):
    """A text's tree, without a root if it is empty.

    `rest` is the line of anything after the document, 0 if there is nothing.
    """

    root: Node | None
    rest: int = 0


def load(text: str, bounds: Bounds) -> Any:
    """Return what a text means to Python, see `plain`. Raises YamlError."""
    return plain(compose(text, bounds).root)


def compose(text: str, bounds: Bounds, *, lone: bool = True) -> YamlTree:
    """Return the tree of the one document of a text. Raises YamlError, and UserError if PyYAML lacks libyaml.

    Empty documents may follow, since a `---` at the end makes one. Others may follow only if the first need not be
    `lone`: then they are not read.
    """
    _check_characters(text)
    _check_directives(text)
    return _Composer(text, bounds, lone).tree()


def is_null(node: Node) -> bool:
    """Return whether there is nothing, or null."""
    return isinstance(node, YamlScalar) and (node.tag == "!!null" or (node.tag == PLAIN and node.text in NULLS))


def pairs_of(node: YamlMapping, refuse: Refuse) -> Iterator[tuple[YamlScalar, Node]]:
    """Yield the pairs of a mapping: its own, and then those that it merges and does not have itself.

    Of two that it merges the first counts. What is merged may merge others in its turn.
    """
    keys: set[str] = set()
    waiting = [iter([node])]
    while waiting:
        current = next(waiting[-1], None)
        if current is None:
            waiting.pop()
            continue
        own: set[str] = set()
        sources: list[YamlMapping] = []
        for key, value in current.pairs:
            if not isinstance(key, YamlScalar):
                refuse("a key must be a plain name, not a list or a mapping", key.line)
            elif key.text in own:
                refuse(f"{one_line(key.text, 80)}: duplicate key; remove one", key.line)
            else:
                own.add(key.text)
                if (key.tag == PLAIN and key.text == _MERGE) or key.tag == "!!merge":
                    sources = _sources(value, refuse)
                elif key.text not in keys:
                    yield key, value
        keys |= own
        waiting.append(iter(sources))


def _sources(value: Node, refuse: Refuse) -> list[YamlMapping]:
    nodes = value.items if isinstance(value, YamlList) else [value]
    mappings = [node for node in nodes if isinstance(node, YamlMapping)]
    if len(mappings) < len(nodes):
        refuse(f"{_MERGE}: merges only mappings; give one, an alias of one, or a list of them", value.line)
    return mappings


def plain(node: Node | None, path: str = "") -> Any:
    """Return the tree as dictionaries, lists, texts, numbers, truths and None, with merges carried out. Raises
    YamlError.

    A date stays a text, and so does a number in base 60. `path` is the tree's place, for error messages.
    """
    if node is None:
        return None
    if isinstance(node, YamlScalar):
        return _value(node, path)
    _refuse_tag(node, path)
    if isinstance(node, YamlList):
        return [plain(item, f"{path}[{number}]") for number, item in enumerate(node.items)]
    mapping: dict[Any, Any] = {}
    for key, value in pairs_of(node, lambda problem, line: _fail(path, problem, line)):
        inner = f"{path}.{one_line(key.text, 80)}".lstrip(".")
        name = _value(key, inner)
        if name in mapping:
            _fail(path, f"{one_line(key.text, 80)}: duplicate key; remove one", key.line)
        mapping[name] = plain(value, inner)
    return mapping


def _refuse_tag(node: Node, path: str) -> None:
    """Refuse a tag that is not YAML's own: what it asks for, such as decrypting a text, is not done here."""
    if node.tag.startswith("!") and not node.tag.startswith("!!"):
        _fail(path, f"the tag {shown(node.tag)} is not supported; remove it", node.line)


def _value(node: YamlScalar, path: str) -> Any:
    _refuse_tag(node, path)
    try:
        return node.text if node.tag == TEXT else resolve(node.text, node.tag)
    except ValueError as error:
        _fail(path, str(error), node.line)


def _fail(path: str, problem: str, line: int) -> NoReturn:
    raise YamlError(f"{path}: {problem}" if path else problem, line)


def _line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _check_characters(text: str) -> None:
    """Check in pieces: a search lets no other thread run, and a file of 4 MiB would take it 10 ms."""
    for start in range(0, len(text), _PIECE):
        match = _UNPRINTABLE.search(text, start, start + _PIECE)
        if match is None:
            continue
        number = ord(match[0])
        character = "a byte order mark inside the text" if number == 0xFEFF else f"the character U+{number:04X}"
        raise YamlError(f"is not valid YAML: contains {character}; remove it", _line_of(text, match.start()))


def _check_directives(text: str) -> None:
    """Allow `%YAML 1.1` at the beginning and nothing else: no file of coldplate needs other directives."""
    if "%" not in text:
        return
    first = _CONTENT.search(text)
    if first is not None and first[0] == "%":
        end = text.find("\n", first.start())
        directive = text[first.start() : end if end >= 0 else len(text)]
        if not _VERSION.fullmatch(directive):
            problem = "is not valid YAML: directives other than %YAML 1.1 are not supported; remove the line"
            raise YamlError(problem, _line_of(text, first.start()))
    if text.count("\n%") > _DIRECTIVES:
        raise YamlError(f"has more than {_DIRECTIVES} lines that start with %; indent them", 1)


def _events(text: str) -> Iterator[yaml.Event]:
    import yaml

    if not yaml.__with_libyaml__:
        raise UserError(WITHOUT_LIBYAML)
    try:
        yield from yaml.parse(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise _yaml_error(error, text) from None


def _yaml_error(error: yaml.YAMLError, text: str) -> YamlError:
    """Return the parser's complaint in one line, with its place."""
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context", None)
    problem = getattr(error, "problem", None) or str(error)
    line = min(mark.line + 1, text.rstrip("\n").count("\n") + 1) if mark else 1
    if context:
        start = getattr(error, "context_mark", None)
        since = f" that starts on line {start.line + 1}" if start is not None and start.line + 1 < line else ""
        problem += f" ({context}{since})"
    if mark is not None and text[mark.index : mark.index + 1] == "\t":
        problem += "; indent with spaces, not with tabs"
    return YamlError(f"is not valid YAML: {problem}", line)


class _Anchor(Struct, eq=False):
    """A node with a name, None while its end has not come yet, and its size when it is written out."""

    node: Node | None = None
    nodes: int = 0
    characters: int = 0


class _Composer:
    """Builds the tree of one text."""

    def __init__(self, text: str, bounds: Bounds, lone: bool) -> None:
        from yaml import events

        self._kinds = events
        self._events = _events(text)
        self._text = text
        self._lone = lone
        self._bounds = bounds
        self._has_slashes = "\\/" in text
        self._anchors: dict[str, _Anchor] = {}
        self._texts: dict[str, str] = {}
        self._nodes = self._characters = 0
        """The size of what has come so far, when it is written out."""
        self._is_shared = False

    def tree(self) -> YamlTree:
        root: Node | None = None
        documents = rest = 0
        for event in self._events:
            documents += isinstance(event, self._kinds.DocumentStartEvent)
            if documents > _DOCUMENTS:
                raise YamlError(f"has more than {_DOCUMENTS} documents, but only one is read", _line(event))
            if isinstance(event, self._kinds.DocumentEndEvent) and not self._lone:
                rest = self._rest(event)
                break
            if isinstance(event, self._kinds.NodeEvent):
                if documents > 1:
                    self._refuse_later(event)
                else:
                    root = self._node(event, 0, False)
        is_empty = isinstance(root, YamlScalar) and root.tag == PLAIN and not root.text
        return YamlTree(None if is_empty else root, rest)

    def _rest(self, event: Any) -> int:
        """Return the line of what is behind a document but for marks, comments and spaces; 0 if there is nothing."""
        line = int(event.start_mark.line)
        for number, text in enumerate(self._text.split("\n")[line:], line + 1):
            bare = _MARK.sub("", text).strip()
            if bare and not bare.startswith("#"):
                return number
        return 0

    def _refuse_later(self, event: Any) -> None:
        """Accept only empty documents: a Prometheus server would silently ignore the content of any other."""
        is_scalar = isinstance(event, self._kinds.ScalarEvent)
        if not is_scalar or event.value or not event.implicit[0] or event.tag:
            raise YamlError("a second document starts here, but only one is read; merge them into one", _line(event))

    def _node(self, event: Any, depth: int, in_flow: bool) -> Node:
        """Return the node that begins with an event, after its last one."""
        if isinstance(event, self._kinds.AliasEvent):
            return self._alias(event)
        nodes, characters = self._nodes, self._characters
        anchor = _Anchor()
        if event.anchor is not None:
            self._anchors[event.anchor] = anchor  # the same one may occur again, for another node
        if isinstance(event, self._kinds.ScalarEvent):
            anchor.node = self._scalar(event, in_flow)
        else:
            anchor.node = self._collection(event, depth)
        anchor.nodes, anchor.characters = self._nodes - nodes, self._characters - characters
        return anchor.node

    def _alias(self, event: Any) -> Node:
        name, line = one_line(event.anchor, 80), _line(event)
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            raise YamlError(f"undefined alias *{name}; define &{name} before it", line)
        if anchor.node is None:
            column = event.start_mark.column + 1
            raise YamlError(f"column {column}: *{name} is inside &{name} itself; write the value out", line)
        self._is_shared = True
        self._count(anchor.nodes, anchor.characters, line)
        return anchor.node

    def _scalar(self, event: Any, in_flow: bool) -> YamlScalar:
        text, line = event.value, _line(event)
        if len(text) > self._bounds.scalar:
            raise YamlError(f"a string of more than {self._bounds.scalar} characters starts here; shorten it", line)
        self._refuse_newer(event, line, in_flow)
        if len(text) <= _SHARED:
            text = self._texts.setdefault(text, text)
        tag = _tag(event, line) or (PLAIN if event.implicit[0] and event.tag is None else TEXT)
        if not fits(text, tag):
            raise YamlError(f"{shown(text)} has the tag {shown(tag)}, which is not supported; remove the tag", line)
        self._count(1, len(text), line)
        return YamlScalar(text, tag, line)

    def _refuse_newer(self, event: Any, line: int, in_flow: bool) -> None:
        """Refuse what later versions of YAML allow, and Prometheus does not."""
        if in_flow and "?" in event.value and not event.style:
            raise YamlError("is not valid YAML: a ? inside brackets or braces must be in quotes", line)
        if self._has_slashes and event.style == '"':
            written = self._text[event.start_mark.index : event.end_mark.index]
            if "\\/" in written.replace("\\\\", ""):
                raise YamlError("is not valid YAML: \\/ is not an escape; write /", line)

    def _collection(self, event: Any, depth: int) -> YamlList | YamlMapping:
        line = _line(event)
        if depth >= self._bounds.depth:
            raise YamlError(f"is nested more than {self._bounds.depth} levels deep; is it the right file?", line)
        is_list = isinstance(event, self._kinds.SequenceStartEvent)
        tag = _tag(event, line)
        if tag.startswith("!!") and tag != ("!!seq" if is_list else "!!map"):
            kind = "list" if is_list else "mapping"
            raise YamlError(f"a {kind} with the tag {tag} is not supported; remove the tag", line)
        self._count(1, 0, line)
        parts: list[Node] = []
        while not isinstance(inner := next(self._events), self._kinds.CollectionEndEvent):
            parts.append(self._node(inner, depth + 1, bool(event.flow_style)))
        if is_list:
            return YamlList(parts, tag, line)
        return YamlMapping(list(zip(parts[::2], parts[1::2], strict=True)), tag, line)

    def _count(self, nodes: int, characters: int, line: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes <= self._bounds.nodes and self._characters <= self._bounds.characters:
            return
        is_long = self._nodes <= self._bounds.nodes
        most = f"{self._bounds.characters} characters" if is_long else f"{self._bounds.nodes} values"
        how = " when its aliases are expanded; use fewer, or" if self._is_shared else ";"
        raise YamlError(f"has more than {most}{how} split the file", line)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _tag(event: Any, line: int) -> str:
    """Return the tag in its short form; empty without a tag, or for `!` alone."""
    tag = event.tag
    if tag is None or tag == "!":
        return ""
    tag = tag.replace(_CORE, "!!", 1) if tag.startswith(_CORE) else tag
    if not _TAG.fullmatch(tag):
        raise YamlError(f"the tag {shown(tag)} is not supported; remove it", line)
    return str(tag)


NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_INTEGER = re.compile(
    r"([-+]?)(?:0b(?P<b>[01][01_]*)|0x(?P<x>[0-9a-fA-F][0-9a-fA-F_]*)|0(?P<o>[0-7][0-7_]*)|(?P<d>0|[1-9][0-9_]*))"
)
_BASES = {"b": 2, "x": 16, "o": 8, "d": 10}
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_LONGEST_NUMBER = 400
"""Most characters of a text that is examined as a number."""
_LARGEST = 2**63
_NUMERIC = frozenset("0123456789.+-")


def resolve(text: str, tag: str = "") -> str | int | float | bool | None:
    """Return what a plain scalar stands for: the common part of YAML 1.1.

    Surprising forms are left out: dates and base-60 numbers (`12:30`) stay strings. So does `1e9`, as in YAML 1.1.
    Raises ValueError for a whole number of more than 64 bits.
    """
    if text in NULLS:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if text[0] not in _NUMERIC or len(text) > _LONGEST_NUMBER:
        return text
    number = _integer(text)
    if number is None:
        if not _FLOAT.fullmatch(text):
            return text
        return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    return float(number) if tag == "!!float" else number


def fits(text: str, tag: str) -> bool:
    """Return whether a text can have this tag; any text may have no tag, or one that is not YAML's own."""
    if not tag.startswith("!!") or tag == "!!str":
        return True
    if tag == "!!null":
        return text in NULLS
    if tag == "!!bool":
        return text.lower() in ("true", "false") and text in _TRUTHS
    if tag == "!!merge":
        return text == "<<"
    if tag == "!!int":
        return _INTEGER.fullmatch(text) is not None
    return tag == "!!float" and (_FLOAT.fullmatch(text) or _INTEGER.fullmatch(text)) is not None


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    base = match.lastgroup or "d"
    number = int(match[1] + match[base].replace("_", ""), _BASES[base])
    if not -_LARGEST <= number < _LARGEST:
        raise ValueError(f"{shown(text, 40)} is too large for a number; put it in quotes if it is a string")
    return number
