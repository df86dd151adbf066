"""The pages below `/runbooks/`: what each alert means and what to do, for someone on call with a phone.

An alert's `runbook_url` links here. The pages are static text, so they work while a device hangs, and
they load nothing from elsewhere: the node may be all that is reachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus

from exporters import markdown
from exporters.http_messages import Response
from exporters.markup import escape
from exporters.policy import page_headers

PREFIX = "/runbooks/"
STYLE = """
:root{color-scheme:light dark;--ink:#16202a;--soft:#5b6875;--line:#dce2e8;--paper:#fff;--wash:#f4f6f8;--link:#0b63b5}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#93a1af;--line:#2b3743;--paper:#12181e;--wash:#1a222b;
--link:#6cb4ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:46rem;margin:0 auto;padding:1rem 1rem 3rem}
nav,footer{color:var(--soft);font-size:.85rem}
h1{font-size:1.5rem;margin:.5rem 0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:1.5rem 0 .4rem}
a{color:var(--link)}
li{margin:.35rem 0}
code{font:.9em/1.4 ui-monospace,monospace;background:var(--wash);padding:.1em .25em;border-radius:.25rem;
overflow-wrap:anywhere}
pre,.scroll{overflow-x:auto}
pre{background:var(--wash);border:1px solid var(--line);border-radius:.4rem;padding:.6rem .8rem}
pre code{padding:0;overflow-wrap:normal}
table{border-collapse:collapse}
th,td{text-align:left;padding:.3rem .75rem .3rem 0;border-bottom:1px solid var(--line)}
td code,th code{white-space:nowrap}
"""
STYLE_HASH = "sha256-ZsRUriKPC6w9n3V+ffSoxPrRjqZ+IomiEMH9xeczu5Y="
"""The hash of STYLE, the one style sheet that the policy lets a browser apply. A test proves that it is right."""
HEADERS = page_headers(STYLE_HASH, "no-cache")
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
        """The page at one of the paths."""
        name = path.removeprefix(PREFIX)
        if name in self._texts:
            return self._response(name, markdown.to_html(self._texts[name]))
        return self._response("Runbooks", self._index())

    def _index(self) -> Iterator[str]:
        yield "<h1>Runbooks</h1>\n<p>What each alert means, and what to do first.</p>\n<ul>\n"
        for name in sorted(self._texts):
            yield f'<li><a href="{PREFIX}{escape(name)}">{escape(name)}</a></li>\n'
        yield "</ul>\n"

    def _response(self, title: str, blocks: Iterable[str]) -> Response:
        html = (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
            f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
            f'<nav><a href="/">coldplate on {escape(self._node)}</a> · <a href="{PREFIX}">runbooks</a></nav>\n'
            f"{''.join(blocks)}</main>\n</body>\n</html>\n"
        )
        return Response(HTTPStatus.OK, html.encode("utf-8", "replace"), _HTML, HEADERS)
