"""HTML helpers of all pages for browsers, their style sheet, and the headers whose policy allows only that one.

Wide screens show tables. On narrow ones each row of a table of cards is a card whose values carry their headings.
"""

from collections.abc import Container, Sequence
from enum import IntEnum

from agent.model import Severity


class Tone(IntEnum):
    """How bad something is, the worst first. Each tone has its own sign, so that nothing depends on colour alone."""

    BAD = 0
    WARN = 1
    PENDING = 2
    UNKNOWN = 3
    CALM = 4
    """A note: information, an effect of another alert, or what is switched off on purpose."""
    GOOD = 5

    @property
    def css(self) -> str:
        """The CSS class; empty for a tone without a colour."""
        return {Tone.BAD: "bad", Tone.WARN: "warn", Tone.GOOD: "good"}.get(self, "")

    @property
    def sign(self) -> str:
        return "✖▲○?·✔"[self]


SEVERITY_TONES = {Severity.CRITICAL: Tone.BAD, Severity.WARNING: Tone.WARN, Severity.INFO: Tone.CALM}
ABSENT = "–"
"""Shown in place of a missing value; 0 would be a value."""

MAX_TEXT_LENGTH = 400
"""Characters of a text from elsewhere, such as a label or an annotation."""


def escape(text: str) -> str:
    """Escape a text as html.escape does, without that module, which loads a table of two thousand entities."""
    for raw, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(raw, safe)
    return text


def snake(text: str) -> str:
    """Return names, truncated and escaped, which break after an underscore where their line is too short."""
    return cut(text).replace("_", "_<wbr>")


def cut(text: str) -> str:
    """Return a text from elsewhere, truncated and escaped; ABSENT if it is empty."""
    if len(text) > MAX_TEXT_LENGTH:
        text = text[: MAX_TEXT_LENGTH - 1] + "…"
    return escape(text) or ABSENT


def span(tone: Tone, text: str) -> str:
    """Return markup in the tone's colour; it must be clear without the colour."""
    return f'<span class="{tone.css}">{text}</span>' if tone.css else text


def badge(tone: Tone, word: str) -> str:
    """Return a plain word after the tone's sign."""
    return f'<b class="badge {tone.css}">{tone.sign} {escape(word)}</b>'


def cell(head: str, content: str, css: str = "") -> str:
    """Return a cell of markup with its heading, which narrow screens show above it."""
    attribute = f' class="{css}"' if css else ""
    return f'<td data-h="{escape(head)}"{attribute}>{content}</td>'


def table_head(title: str, heads: Sequence[str], css: str, numeric: Container[str] = ()) -> str:
    """Return a section's heading and the beginning of its table; `title` is markup, `css` the table's classes."""
    names = "".join(f"<th{' class=n' if head in numeric else ''}>{head}</th>" for head in heads)
    return f'<h2>{title}</h2>\n<div class="scroll"><table class="{css}">\n<thead><tr>{names}</tr></thead>\n'


TABLE_END = "</table></div>\n"


def row(tone: Tone, *rows: str) -> str:
    """Return a group of rows, which narrow screens show as one card."""
    return f'<tbody class="{tone.css}">{"".join(f"<tr>{cells}</tr>" for cells in rows)}</tbody>\n'


def quantity(value: float | None, factor: float, unit: str, maximum: float | None = None, digits: int = 0) -> str:
    """Return a value times `factor`, and its maximum if known, in the unit: 690/700 W."""
    if value is None:
        return ABSENT
    of_maximum = "" if maximum is None else f"<small>/{maximum * factor:.{digits}f}</small>"
    return f"{value * factor:.{digits}f}{of_maximum} {unit}"


STYLE = """
:root{color-scheme:light dark;--ink:#16202a;--soft:#55626f;--line:#dce2e8;--paper:#fff;--wash:#f4f6f8;
--good:#176f42;--warn:#8a4b00;--bad:#b3261e;--link:#0b5cad;--good-wash:#e9f6ee;--warn-wash:#fff3df;--bad-wash:#fdeceb}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9aa8b5;--line:#2b3743;--paper:#12181e;--wash:#1a222b;
--good:#4cc38a;--warn:#f0b04a;--bad:#ff8a7c;--link:#7bbcff;--good-wash:#14281f;--warn-wash:#2e2412;--bad-wash:#3a1a18}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:78rem;margin:0 auto;padding:1.25rem}
header{display:flex;flex-wrap:wrap;gap:.25rem 1rem;align-items:baseline;justify-content:space-between}
h1{font-size:1.4rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1rem;margin:1.75rem 0 .4rem}
small{font-weight:400;font-size:.85em;color:var(--soft)}
a{color:var(--link)}
nav{color:var(--soft);font-size:.85rem}
nav b{color:var(--ink)}
.banner{background:#8a4b00;color:#fff;font-weight:600;padding:.5rem .9rem;border-radius:.4rem;margin:.75rem 0}
.state{border:1px solid var(--line);border-left:.5rem solid var(--soft);border-radius:.4rem;padding:.7rem 1rem;
margin:.75rem 0;background:var(--wash)}
.state h2{font-size:1.5rem;margin:0}
.state ul{margin:.25rem 0 0;padding:0;list-style:none}
.state.good{border-left-color:var(--good);background:var(--good-wash)}
.state.warn{border-left-color:var(--warn);background:var(--warn-wash)}
.state.bad{border-left-color:var(--bad);background:var(--bad-wash)}
.good h2,.good.badge,span.good{color:var(--good)}
.warn h2,.warn.badge,span.warn{color:var(--warn)}
.bad h2,.bad.badge,span.bad{color:var(--bad)}
span.bad,span.warn{font-weight:600}
.badge{white-space:nowrap}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.5rem;margin:.75rem 0}
dl div{background:var(--wash);border:1px solid var(--line);border-radius:.4rem;padding:.45rem .7rem}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.05rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.line{width:60px;height:16px;margin-right:.4rem;vertical-align:-3px}
.line polyline{fill:none;stroke:var(--soft);stroke-width:1.5}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .7rem .3rem 0;vertical-align:baseline}
th{color:var(--soft);font-weight:500;font-size:.8rem;white-space:nowrap}
tbody{border-top:1px solid var(--line)}
tbody.bad{background:var(--bad-wash)}
tbody.warn{background:var(--warn-wash)}
td.n,th.n{text-align:right;white-space:nowrap}
td.first,th:first-child{padding-left:.6rem}
td.n+td:not(.n),th.n+th:not(.n){padding-left:.8rem}
td.since,.alerts td.first,.alerts td:last-child{white-space:nowrap}
td.why{padding:0 .6rem .45rem 2.2rem}
td.why ul{margin:0;padding:0 0 0 1rem}
.pages{padding-left:1.2rem;overflow-wrap:anywhere}
@media(max-width:860px){
main{padding:.75rem}
.cards thead{display:none}
.cards,.cards tbody,.cards tr{display:block}
.cards tbody{border:1px solid var(--line);border-radius:.4rem;margin:0 0 .5rem;padding:.35rem .6rem}
.cards tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(6.8rem,1fr));gap:.15rem .6rem}
.cards td,.cards td.n+td:not(.n){display:block;padding:0;text-align:left;white-space:normal;
overflow-wrap:anywhere;min-width:0}
.cards td::before{content:attr(data-h);display:block;color:var(--soft);font-size:.72rem;line-height:1.2}
.cards td.why{grid-column:1/-1;padding:.3rem 0 0}
.cards td.wide{grid-column:1/-1}
.cards.alerts td.first,.cards.alerts td:nth-child(2),.cards.alerts td.where{grid-column:span 2}
}
.text{font-size:16px;line-height:1.5}
.text main{max-width:46rem;padding:1rem 1rem 3rem}
.text h1{font-size:1.5rem;margin:.5rem 0}
.text h2{font-size:1.05rem;margin:1.5rem 0 .4rem}
.text li{margin:.35rem 0}
.text code{font:.9em/1.4 ui-monospace,monospace;background:var(--wash);padding:.1em .25em;border-radius:.25rem;
overflow-wrap:anywhere}
.text pre{overflow-x:auto;background:var(--wash);border:1px solid var(--line);border-radius:.4rem;padding:.6rem .8rem}
.text pre code{padding:0;overflow-wrap:normal}
.text table{width:auto}
.text tbody{border:0}
.text th,.text td{padding:.3rem .75rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:inherit}
.text th{color:inherit;font-size:1em;font-weight:bold;white-space:normal}
.text td code,.text th code{white-space:nowrap}
"""

STYLE_HASH = "sha256-jgmfej4iZaRY5WaQPuFtWXcQtrZIOTjnqUfCoki/c40="
"""The hash of STYLE, the only style sheet that the policy allows. A test compares them."""


def page_headers(caching: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of every page; `caching` is its Cache-Control."""
    policy = (
        f"default-src 'none'; style-src '{STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
    return (("Content-Security-Policy", policy), ("Referrer-Policy", "no-referrer"), ("Cache-Control", caching))


def page_head(title: str, head: str = "", css: str = "") -> str:
    """Return the beginning of a page, up to what is in `main`; `title` and `head` are markup, `css` is the body's."""
    body = f'<body class="{css}">' if css else "<body>"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n{head}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}</style>\n</head>\n{body}\n<main>\n"
    )


PAGE_END = "</main>\n</body>\n</html>\n"
