"""Words that have no good use in code, documents and rules: their number may only fall, and a word at 0 is banned."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("agent", "alerts", "exporters", "dashboards")
DOCUMENTS = ("*.md", "docs/**/*.md", "alerts/runbooks/*.md", "packaging/helm/*/*.md")
RULES = ("alerts/rules/*.yml", "packaging/fleet/rules/*.yml")
EXEMPT = frozenset({"CHANGELOG.md"})  # it quotes what earlier versions wrote
KINDS = ("code", "documents", "rules")

WORDS = {
    # pattern, without regard to case: allowed in code, documents, rules
    r"told": (2, 0, 0),
    r"tell(s|ing|er|ers)?": (0, 0, 0),
    r"who(m)?ever": (0, 0, 0),
    r"some(body|one)": (0, 0, 0),
    r"(nobody|no one)": (0, 2, 0),
    r"(any|every)body": (0, 0, 0),
    r"mend(s|ed|ing)?": (0, 0, 0),
    r"(is|are|was|be) none": (3, 0, 0),
    r"of (ours|theirs|yours)": (0, 0, 0),
    r"let(s|ting)? (it |them )?go": (0, 0, 0),
    r"anew": (2, 0, 0),
    r"once more": (0, 0, 0),
    r"so many": (0, 0, 0),
    r"likewise": (0, 0, 0),
    r"for good": (0, 1, 0),
    r"in words": (0, 0, 0),
    r"grave(r|st)?": (2, 1, 0),
    r"(came|comes?) to(?! (an end|rest)\b)": (0, 0, 0),
}


ANY = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
SYNTAX = re.compile(r"""\b[frb]*["']|["'#]|\\n""")
"""What may stand between two words of one text in source code, besides white space."""


def code_texts(source: str) -> Iterator[str]:
    """Yield each string constant, docstrings among them, and all comments as one text; only texts that may have a word.

    Parsing and tokenizing all code takes seven seconds, so regular expressions select what needs it.
    """
    if not ANY.search(collapse(SYNTAX.sub(" ", source))):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ANY.search(text := collapse(node.value)):
            yield text
    if ANY.search(collapse(" ".join(line.partition("#")[2] for line in source.splitlines()).replace("#", " "))):
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        yield collapse(" ".join(each.string.lstrip("#") for each in tokens if each.type == tokenize.COMMENT))


def collapse(text: str) -> str:
    """Return the text in one line, so that words which belong together are found across lines."""
    return " ".join(text.split())


@cache
def texts() -> dict[str, list[tuple[str, str]]]:
    """Return file and text of all that is read, by kind."""
    found: dict[str, list[tuple[str, str]]] = {kind: [] for kind in KINDS}
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        found["code"] += [(path.relative_to(ROOT).as_posix(), text) for text in code_texts(path.read_text())]
    for kind, patterns, mark in (("documents", DOCUMENTS, ""), ("rules", RULES, "#")):
        for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.name not in EXEMPT):
            text = path.read_text().replace(mark, "") if mark else path.read_text()
            found[kind].append((path.relative_to(ROOT).as_posix(), collapse(text)))
    return found


def count(word: str, kind: str) -> Counter[str]:
    """Return how often the pattern matches in each file that has it."""
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    return Counter(file for file, text in texts()[kind] for _ in pattern.findall(text))


def test_a_word_without_a_good_use_only_becomes_rarer() -> None:
    wrong = []
    for word, numbers in WORDS.items():
        for kind, allowed in zip(KINDS, numbers, strict=True):
            places = count(word, kind)
            number = sum(places.values())
            if number > allowed:
                wrong.append(
                    f"{kind}: {word}: {number}, allowed {allowed}; write plainly what is new in {', '.join(places)}"
                )
            elif number < allowed:
                wrong.append(f"{kind}: {word}: {number} left; set its number from {allowed} to {number}")
    assert not wrong, "\n".join(wrong)


def test_comments_and_strings_are_read_and_names_are_not() -> None:
    source = '"""So\\nmany."""\ntold = f"{told} is " \\\n    "none"  # first\n# once\n\n# more\n'
    assert list(code_texts(source)) == ["So many.", "is none", "first once more"]
