"""PyYAML's own parser with libyaml's behaviour, for builds of PyYAML without libyaml.

The two disagree in corner cases: tabs between tokens, question marks and colons in flow collections, tags, escapes. The
meaning of a file must not depend on how a library was built, and Prometheus behaves like libyaml. It is thirty times
slower.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn
from urllib.parse import unquote

from yaml.error import Mark
from yaml.events import Event
from yaml.parser import Parser, ParserError
from yaml.reader import Reader
from yaml.scanner import Scanner, ScannerError
from yaml.tokens import DirectiveToken, FlowEntryToken, FlowSequenceEndToken, ScalarToken, TagToken, ValueToken

_BREAKS = "\r\n\x85\u2028\u2029"
_BREAKS_OR_END = _BREAKS + "\0"
_BLANKS_OR_END = " \t" + _BREAKS_OR_END
_URI = r"(?:[0-9A-Za-z_;/?:@&=+$.!~*'()%s-]|%%[0-9A-Fa-f]{2})"
_TAG = re.compile(
    rf"!<(?P<whole>{_URI % ',[]'}+)>"
    rf"|(?P<handle>![0-9A-Za-z_-]*!)(?P<suffix>{_URI % ''}+)"
    rf"|!(?![0-9A-Za-z_-]*!)(?P<local>{_URI % ''}*)".replace("[]-", r"\[\]-")
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_VERSIONS = ((1, 1), (1, 2))


class Loader(Reader, Scanner, Parser):
    """Yields the events of a text as libyaml would."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)

    def scan_to_next_token(self) -> None:
        while True:
            while self.peek() == " " or (self.peek() == "\t" and (self.flow_level or not self.allow_simple_key)):
                self.forward()
            self._skip_comment()
            if not self._break():
                return
            if not self.flow_level:
                self.allow_simple_key = True

    def scan_directive(self) -> DirectiveToken:
        token = super().scan_directive()
        if token.name != "TAG" and not (token.name == "YAML" and token.value in _VERSIONS):
            self._refuse("while scanning a directive", token.start_mark, "found unknown directive name")
        return token

    def scan_tag(self) -> TagToken:
        start = self.get_mark()
        match = _TAG.match(self.buffer, self.pointer)
        if match is None:
            self._refuse("while parsing a tag", start, "did not find expected tag URI")
        self.forward(match.end() - match.start())
        if self.peek() not in _BLANKS_OR_END and not (self.flow_level and self.peek() == ","):
            self._refuse("while scanning a tag", start, "did not find expected whitespace or line break")
        handle = match["handle"] or ("!" if match["local"] else None)
        suffix = match["whole"] or match["suffix"] or match["local"] or "!"
        try:
            return TagToken((handle, unquote(suffix, errors="strict")), start, self.get_mark())
        except UnicodeDecodeError:
            self._refuse("while parsing a tag", start, "found an incorrect UTF-8 octet")

    def scan_block_scalar_indicators(self, start_mark: Mark) -> tuple[bool | None, int | None]:
        chomping, increment = None, None
        for _ in range(2):
            character = self.peek()
            if character in "+-" and chomping is None:
                chomping = character == "+"
            elif character in "0123456789" and increment is None:
                increment = int(character)
            else:
                break
            self.forward()
        if increment == 0:
            self._refuse("while scanning a block scalar", start_mark, "found an indentation indicator equal to 0")
        return chomping, increment

    def scan_block_scalar_ignored_line(self, start_mark: Mark) -> None:
        while self.peek() in " \t":
            self.forward()
        self._skip_comment()
        if self.peek() not in _BREAKS_OR_END:
            self._refuse("while scanning a block scalar", start_mark, "did not find expected comment or line break")
        self._break()

    def scan_block_scalar_indentation(self) -> Any:
        found = super().scan_block_scalar_indentation()
        self._refuse_tab(self.peek() == "\t")
        return found

    def scan_block_scalar_breaks(self, indent: int) -> Any:
        found = super().scan_block_scalar_breaks(indent)
        self._refuse_tab(self.column < indent and self.peek() == "\t")
        return found

    def scan_flow_scalar(self, style: str) -> ScalarToken:
        start = self.get_mark()
        try:
            token = super().scan_flow_scalar(style)
        except (ValueError, OverflowError):  # of chr()
            token = None
        if token is None or _SURROGATE.search(token.value):
            self._refuse("while parsing a quoted scalar", start, "found invalid Unicode character escape code")
        return token

    def scan_plain(self) -> ScalarToken:
        indent, start = self.indent + 1, self.get_mark()
        chunks: list[str] = []
        end, gap, broken = start, "", False
        while self.peek() != "#" and not self._is_indicator():
            length = self._plain_length(start)
            if length:
                chunks += [gap, self.prefix(length)]
                self.forward(length)
                end, gap, broken = self.get_mark(), "", False
            if self.peek() not in " \t" + _BREAKS:
                break
            gap, broken = self._plain_gap(indent, start)
            if not self.flow_level and self.column < indent:
                break
        self.allow_simple_key = self.allow_simple_key or broken
        return ScalarToken("".join(chunks), True, start, end)

    def parse_flow_sequence_entry_mapping_key(self) -> Event:
        token = self.get_token()  # type: ignore[no-untyped-call]  # the stubs leave it out
        if self.check_token(ValueToken, FlowEntryToken, FlowSequenceEndToken):
            problem = "did not find expected ',' or ']'"
            raise ParserError("while parsing a flow sequence", token.start_mark, problem, token.end_mark)
        self.states.append(self.parse_flow_sequence_entry_mapping_value)
        return self.parse_flow_node()  # type: ignore[no-untyped-call, no-any-return]  # the same

    def _plain_length(self, start: Mark) -> int:
        """Characters of a plain scalar up to the next blank, or to where it ends."""
        length = 0
        while (character := self.peek(length)) not in _BLANKS_OR_END:
            if character == ":":
                after = self.peek(length + 1)
                if self.flow_level and after in ",?[]{}":
                    self.forward(length)
                    self._refuse("while scanning a plain scalar", start, "found unexpected ':'")
                if after in _BLANKS_OR_END:
                    break
            elif self.flow_level and character in ",[]{}":
                break
            length += 1
        return length

    def _plain_gap(self, indent: int, start: Mark) -> tuple[str, bool]:
        """What blanks and breaks between two parts of a plain scalar become, and whether one of them is a break."""
        blanks: list[str] = []
        breaks: list[str] = []
        while self.peek() in " \t" + _BREAKS:
            if self.peek() in _BREAKS:
                breaks.append(self._break())
                continue
            if breaks and self.column < indent and self.peek() == "\t":
                self._refuse("while scanning a plain scalar", start, "found a tab character that violates indentation")
            blanks.append(self.peek())
            self.forward()
        if not breaks:
            return "".join(blanks), False
        if breaks[0] == "\n":
            return "".join(breaks[1:]) or " ", True
        return "".join(breaks), True

    def _is_indicator(self) -> bool:
        """Whether `---` or `...` is here, alone at the beginning of a line."""
        return self.column == 0 and self.prefix(3) in ("---", "...") and self.peek(3) in _BLANKS_OR_END

    def _break(self) -> str:
        """Step over a line break; returns what it stands for, or nothing if there is none."""
        return str(self.scan_line_break())  # type: ignore[no-untyped-call]  # the stubs leave it out

    def _skip_comment(self) -> None:
        if self.peek() == "#":
            while self.peek() not in _BREAKS_OR_END:
                self.forward()

    def _refuse_tab(self, found: bool) -> None:
        if found:
            problem = "found a tab character where an indentation space is expected"
            self._refuse("while scanning a block scalar", self.get_mark(), problem)

    def _refuse(self, context: str, start: Mark, problem: str) -> NoReturn:
        raise ScannerError(context, start, problem, self.get_mark())
