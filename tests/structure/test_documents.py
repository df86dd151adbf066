"""What a reader meets: links that lead somewhere, and documents of a size that can be read."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINKED = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "alerts/runbooks/*.md", "packaging/**/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
MENTION = re.compile(r"(?<![\w/.-])((?:docs/|README|CONTRIBUTING|SECURITY|CHANGELOG)[\w/-]*\.md)(#[\w-]+)?")
"""A document named in code, configuration or help, from the root of the repository."""
ELSEWHERE = {"docs/web-configuration.md", "docs/x.md", "docs/Hot.md"}
"""Another project's document, and those that tests make up."""
MENTIONING = ("agent", "alerts", "dashboards", "exporters", "packaging", "tests", "Makefile", "pyproject.toml")

USER_DOCUMENTS = sorted(DOCS.glob("*.md"))
MOST_DOCUMENTS = 16
MOST_LINES = 400
GENERATED = "<!-- Generated "
"""What a document that is made as a whole has near its beginning: it is a reference, and may be longer."""
README_LINES = 110


def prose(text: str) -> str:
    """Return the text without its fenced blocks, which hold examples."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", text)


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#+ (.+)$", prose(path.read_text())):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = base = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        number = 0
        while anchor in found:
            number += 1
            anchor = f"{base}-{number}"
        found.add(anchor)
    return found


def dead(path: Path, target: str) -> bool:
    """Return True if a link of this document leads nowhere in the repository."""
    name, _, anchor = target.partition("#")
    place = (path.parent / name).resolve() if name else path
    if not place.exists() or not place.is_relative_to(ROOT):
        return True
    return bool(anchor) and place.suffix == ".md" and anchor not in anchors(place)


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_link_is_dead(path: Path) -> None:
    links = [link for link in LINK.findall(prose(path.read_text())) if not re.match(r"[a-z]+:", link)]
    assert [link for link in links if dead(path, link)] == []


def test_users_have_few_documents_and_each_can_be_read() -> None:
    assert len(USER_DOCUMENTS) <= MOST_DOCUMENTS
    lengths = {path.name: len(path.read_text().splitlines()) for path in USER_DOCUMENTS
               if GENERATED not in path.read_text()[:200]}  # fmt: skip
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
    assert len(USER_DOCUMENTS) - len(lengths) == 1, "only the reference of metrics is generated as a whole"
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("path", USER_DOCUMENTS, ids=lambda path: path.name)
def test_a_document_begins_with_an_example_and_is_listed_in_the_readme(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert any(line.startswith(("```", "| ")) for line in lines[:25])
    assert f"(docs/{path.name})" in (ROOT / "README.md").read_text()


def test_code_names_documents_that_exist() -> None:
    found = 0
    for top in MENTIONING:
        start = ROOT / top
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if not path.is_file() or "__pycache__" in path.parts or path.suffix in {".json", ".gz", ".bin", ".png"}:
                continue
            for name, anchor in MENTION.findall(path.read_text(errors="ignore")):
                found += 1
                where = path.relative_to(ROOT).as_posix()
                assert name in ELSEWHERE or not dead(ROOT / "x", name + anchor), (where, name + anchor)
    assert found > 50
