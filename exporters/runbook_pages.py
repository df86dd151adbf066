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

_BLOCK = re.compile(
    r"^```.*\n(?P<code>(?:(?!```).*\n?)*)(?:```.*)?"
    r"|^(?P<heading>#{1,3} .+)"
    r"|(?P<table>(?:^\|.*\n?)+)"
    r"|(?P<list>(?:^(?:\d+\.|[-*]) .+\n?(?: {2}.*\S.*\n?)*)+)"
    r"|(?P<paragraph>(?:^(?!```|\||#{1,3} .|(?:\d+\.|[-*]) .).*\S.*\n?)+)",
    re.MULTILINE,
)
_ITEM = re.compile(r"^(?:\d+\.|[-*]) ", re.MULTILINE)
_RULE = re.compile(r"\|(?: ?:?-+:? ?\|)+")
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")


def to_html(text: str) -> Iterator[str]:
    """Yield the HTML of a text, block by block."""
    for match in _BLOCK.finditer(text):
        kind = str(match.lastgroup)
        yield _MAKERS[kind](match[kind].removesuffix("\n"))


def _heading(block: str) -> str:
    marks, _, words = block.partition(" ")
    return f"<h{len(marks)}>{inline(words)}</h{len(marks)}>\n"


def _table(block: str) -> str:
    rows = [line.strip().strip("|").split("|") for line in block.splitlines() if not _RULE.fullmatch(line)]
    cells = "".join(f"<tr>{_row(row, 'td' if number else 'th')}</tr>\n" for number, row in enumerate(rows))
    return f'<div class="scroll"><table>\n{cells}</table></div>\n'


def _row(cells: list[str], tag: str) -> str:
    return "".join(f"<{tag}>{inline(cell.strip())}</{tag}>" for cell in cells)


def _list(block: str) -> str:
    kind = "ol" if block[0].isdigit() else "ul"
    items = ("\n".join(map(str.strip, item.splitlines())) for item in _ITEM.split(block)[1:])
    return f"<{kind}>\n{''.join(f'<li>{inline(item)}</li>{chr(10)}' for item in items)}</{kind}>\n"


_MAKERS: dict[str, Callable[[str], str]] = {
    "code": lambda block: f"<pre><code>{escape(block)}</code></pre>\n",
    "heading": _heading,
    "table": _table,
    "list": _list,
    "paragraph": lambda block: f"<p>{inline(block)}</p>\n",
}


def inline(text: str) -> str:
    """Return one run of text: code, bold and italics."""
    pieces, end = [], 0
    for match in _INLINE.finditer(text):
        tag, inner = next(
            (tag, part) for tag, part in zip(("code", "strong", "em"), match.groups(), strict=True) if part is not None
        )
        pieces += [escape(text[end : match.start()]), f"<{tag}>{escape(inner)}</{tag}>"]
        end = match.end()
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
        return self._response("Runbooks", _index(self._texts, PREFIX))

    def _response(self, title: str, blocks: Iterable[str]) -> Response:
        nav = f'<a href="/">coldplate on {escape(self._node)}</a> · <a href="{PREFIX}">runbooks</a>'
        html = _document(title, nav, blocks)
        return Response(HTTPStatus.OK, html.encode("utf-8", "replace"), _HTML, page_headers("no-cache"))


SITE_GENERATOR = '<meta name="generator" content="coldplate render runbooks">\n'
"""In the head of each page that is a file: what may be replaced by a newer one."""


def site_files(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the same pages as files for any web server: below its address, `GpuLost` is the runbook of that alert."""
    pages = {"index.html": _document("Runbooks", "coldplate", _index(texts, ""), SITE_GENERATOR)}
    for name, text in texts.items():
        pages[f"{name}/index.html"] = _document(name, '<a href="../">runbooks</a>', to_html(text), SITE_GENERATOR)
    return pages


def _index(names: Iterable[str], prefix: str) -> Iterator[str]:
    yield "<h1>Runbooks</h1>\n<p>What each alert means, and what to do first.</p>\n<ul>\n"
    for name in sorted(names):
        yield f'<li><a href="{prefix}{escape(name)}">{escape(name)}</a></li>\n'
    yield "</ul>\n"


def _document(title: str, nav: str, blocks: Iterable[str], head: str = "") -> str:
    """Return a whole page; `nav`, `blocks` and `head` are markup."""
    return f"{page_head(escape(title), head, css='text')}<nav>{nav}</nav>\n{''.join(blocks)}{PAGE_END}"
