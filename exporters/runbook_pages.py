"""The pages below `/runbooks/`: what each alert means and what to do, readable on the phone of the operator on call.

An alert's `runbook_url` links here. The pages are static text, so they work while a device hangs, and they load nothing
from elsewhere: the node may be all that is reachable. `make generate` makes their content of the Markdown in
`alerts/runbooks/`.
"""

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus

from exporters.http_messages import Response
from exporters.markup import PAGE_END, escape, page_head, page_headers

PREFIX = "/runbooks/"
_HTML = "text/html; charset=utf-8"


class RunbookPages:
    """Makes the pages of runbooks from their content in HTML, by the name of the alert."""

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
            return self._response(name, [self._texts[name]])
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
        pages[f"{name}/index.html"] = _document(name, '<a href="../">runbooks</a>', [text], SITE_GENERATOR)
    return pages


def _index(names: Iterable[str], prefix: str) -> Iterator[str]:
    yield "<h1>Runbooks</h1>\n<p>What each alert means, and what to do first.</p>\n<ul>\n"
    for name in sorted(names):
        yield f'<li><a href="{prefix}{escape(name)}">{escape(name)}</a></li>\n'
    yield "</ul>\n"


def _document(title: str, nav: str, blocks: Iterable[str], head: str = "") -> str:
    """Return a whole page; `nav`, `blocks` and `head` are markup."""
    return f"{page_head(escape(title), head, css='text')}<nav>{nav}</nav>\n{''.join(blocks)}{PAGE_END}"
