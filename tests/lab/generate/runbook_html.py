"""The content of the runbooks' pages, from their Markdown: `make generate` writes it to `alerts/runbooks/html`."""

from pathlib import Path

from markdown_it import MarkdownIt

FOLDER = Path(__file__).resolve().parents[3] / "alerts" / "runbooks"


def html_of(markdown: str) -> str:
    """Return the HTML of a text; markup in it is text, and wide tables scroll."""
    html: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    return html.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")


def contents() -> dict[Path, str]:
    """Return the text of every file."""
    return {
        FOLDER / "html" / f"{path.stem}.html": html_of(path.read_text(encoding="utf-8"))
        for path in sorted(FOLDER.glob("*.md"))
    }


def write() -> None:
    made = contents()
    (FOLDER / "html").mkdir(exist_ok=True)
    for stale in set((FOLDER / "html").iterdir()) - made.keys():
        stale.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
