"""The pages below `/runbooks/`: what each alert means and what to do, readable on the phone of the operator on call.

An alert's `runbook_url` links here. The pages are static text, so they work while a device hangs, and they load nothing
from elsewhere: the node may be all that is reachable. Of Markdown they understand what runbooks are written in:
headings, paragraphs, lists with indented continuations, fenced code, tables, `code`, **bold** and *italics*. Anything
else is text, and everything is escaped, so a runbook cannot contain markup.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus

from exporters.http_messages import Response
from exporters.markup import PAGE_END, escape, page_head, page_headers

_FENCE = "```"
_HEADING = re.compile(r"(#{1,3}) (.+)")
_ITEM = re.compile(r"(?:(\d+)\.|-) (.+)")
_RULE = re.compile(r"\|(?: ?:?-+:? ?\|)+")
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")


def to_html(text: str) -> Iterator[str]:
    """Yield the HTML of a text, block by block."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        end, html = _block(line)(lines, at)
        yield html
        at = end


_Made = tuple[int, str]
_Maker = Callable[[list[str], int], _Made]


def _block(line: str) -> _Maker:
    if line.startswith(_FENCE):
        return _code
    if line.startswith("|"):
        return _table
    if _HEADING.fullmatch(line):
        return _heading
    return _list if _ITEM.fullmatch(line) else _paragraph


def _heading(lines: list[str], at: int) -> _Made:
    found = _HEADING.fullmatch(lines[at])
    assert found is not None
    level = len(found[1])
    return at + 1, f"<h{level}>{inline(found[2])}</h{level}>\n"


def _code(lines: list[str], at: int) -> _Made:
    end = at + 1
    while end < len(lines) and not lines[end].startswith(_FENCE):
        end += 1
    return end + 1, f"<pre><code>{escape(chr(10).join(lines[at + 1 : end]))}</code></pre>\n"


def _table(lines: list[str], at: int) -> _Made:
    end = _until(lines, at, lambda line: not line.startswith("|"))
    rows = [line.strip().strip("|").split("|") for line in lines[at:end] if not _RULE.fullmatch(line)]
    cells = "".join(f"<tr>{_row(row, 'td' if number else 'th')}</tr>\n" for number, row in enumerate(rows))
    return end, f'<div class="scroll"><table>\n{cells}</table></div>\n'


def _row(cells: list[str], tag: str) -> str:
    return "".join(f"<{tag}>{inline(cell.strip())}</{tag}>" for cell in cells)


def _list(lines: list[str], at: int) -> _Made:
    items: list[str] = []
    kind = "ol" if lines[at][0].isdigit() else "ul"
    while at < len(lines):
        found = _ITEM.fullmatch(lines[at])
        if found is not None:
            items.append(found[2])
        elif lines[at].startswith("   ") and lines[at].strip():
            items[-1] = f"{items[-1]}\n{lines[at].strip()}"
        else:
            break
        at += 1
    return at, f"<{kind}>\n{''.join(f'<li>{inline(item)}</li>{chr(10)}' for item in items)}</{kind}>\n"


def _paragraph(lines: list[str], at: int) -> _Made:
    end = _until(lines, at, lambda line: not line.strip() or _block(line) is not _paragraph)
    return end, f"<p>{inline(chr(10).join(lines[at:end]))}</p>\n"


def _until(lines: list[str], at: int, ends: Callable[[str], bool]) -> int:
    """Return the first line after `at` that ends a block."""
    return next((position for position in range(at + 1, len(lines)) if ends(lines[position])), len(lines))


def inline(text: str) -> str:
    """Return one run of text: code, bold and italics."""
    pieces, end = [], 0
    for found in _INLINE.finditer(text):
        tag, inner = next(
            (tag, part) for tag, part in zip(("code", "strong", "em"), found.groups(), strict=True) if part is not None
        )
        pieces += [escape(text[end : found.start()]), f"<{tag}>{escape(inner)}</{tag}>"]
        end = found.end()
    return "".join(pieces) + escape(text[end:])


PREFIX = "/runbooks/"
_HTML = "text/html; charset=utf-8"


class RunbookPages:
    """Makes the pages of runbooks from their texts in Markdown, by the name of the alert."""

    def __init__(self, texts: Mapping[str, str], node: str) -> None:
        self._texts = texts
        self._node = node

    @property
    def paths(self) -> Iterator[str]:
        """Every path that has a page."""
        yield PREFIX.rstrip("/")
        yield PREFIX
        yield from (PREFIX + name for name in self._texts)

    def page(self, path: str) -> Response:
        """Return the page at one of the paths."""
        name = path.removeprefix(PREFIX)
        if name in self._texts:
            return self._response(name, to_html(self._texts[name]))
        return self._response("Runbooks", self._index())

    def _index(self) -> Iterator[str]:
        yield "<h1>Runbooks</h1>\n<p>What each alert means, and what to do first.</p>\n<ul>\n"
        for name in sorted(self._texts):
            yield f'<li><a href="{PREFIX}{escape(name)}">{escape(name)}</a></li>\n'
        yield "</ul>\n"

    def _response(self, title: str, blocks: Iterable[str]) -> Response:
        nav = f'<nav><a href="/">coldplate on {escape(self._node)}</a> · <a href="{PREFIX}">runbooks</a></nav>\n'
        html = f"{page_head(escape(title), css='text')}{nav}{''.join(blocks)}{PAGE_END}"
        return Response(HTTPStatus.OK, html.encode("utf-8", "replace"), _HTML, page_headers("no-cache"))
