"""What a reader meets: links that lead somewhere, documents of a size that can be read, and the help of commands."""

from __future__ import annotations

import argparse
import fnmatch
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from agent.catalogue import BY_NAME
from agent.cli import make_parser
from agent.lib.commandline import Parser
from tests.servers import unmeasured

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


NAME = re.compile(r"(?<![\w/.:-])(coldplate_[a-z0-9_]+)(?:\{([a-z0-9_,]+)\}(_[a-z0-9_]+)?)?(\*?)")
"""A metric, with the names of its labels or with parts of its name in braces, or a pattern of metrics."""
OLD_NAMES = re.compile(r"(?ms)^### Names that changed.*")
FIRST_CELL = re.compile(r"(?m)^\|[^|]*\|")


def named_metrics(text: str) -> Iterator[str]:
    """Yield what a text names as a metric or a pattern of metrics."""
    for stem, inner, end, star in NAME.findall(text):
        yield from (stem + part + end for part in inner.split(",")) if end else (stem + star,)


def other_names() -> set[str]:
    """Return the names of rule groups and of the Ansible role's variables, which look alike."""
    groups = {
        name
        for folder in ("alerts", "packaging")
        for path in (ROOT / folder).rglob("*.yml")
        for name in re.findall(r"(?m)^ *- name: (coldplate_\w+)$", path.read_text())
    }
    role = ROOT / "packaging/ansible"
    return groups | {name for path in role.rglob("*.yml") for name in re.findall(r"coldplate_\w+", path.read_text())}


def test_documents_name_metrics_that_exist() -> None:
    """The old names in the changelog's table of renamed metrics are those that do not."""
    others, count = other_names(), 0
    for path in LINKED:
        text = path.read_text()
        if path.name == "CHANGELOG.md":
            text = OLD_NAMES.sub(lambda match: FIRST_CELL.sub("|", match[0]), text)
        for name in named_metrics(text):
            count += 1
            assert fnmatch.filter(BY_NAME, name) or name in others, f"{path.relative_to(ROOT)}: {name}"
    assert count > 1000


def test_how_long_the_tests_take_is_in_one_document() -> None:
    duration = re.compile(r"make test.*(minute|hour)|^test(-release)?:.*(minute|hour)")
    lines = [
        line for name in ("README.md", "CONTRIBUTING.md", "Makefile") for line in (ROOT / name).read_text().splitlines()
    ]
    assert [line for line in lines if duration.search(line)] == []
    rows = [line for line in (DOCS / "dev/testing.md").read_text().splitlines() if duration.search(line)]
    assert [row.split("|")[1].strip() for row in rows if row.startswith("| `make test")] == [
        "`make test`", "`make test-release`",
    ]  # fmt: skip


SHELL = frozenset({"|", ">", "<", "&&", ";", "&"})
"""Where an example goes on with something that is the shell's."""

HEAVY = frozenset(
    ("msgspec", "yaml", "psutil", "pynvml", "prometheus_client", "re2", "grpc", "grafanalib", "rich", "textual",
     "numpy", "torch", "cupy", "zstandard", "ssl", "http", "email", "asyncio", "subprocess", "socket",
     "logging", "json", "difflib", "unittest", "multiprocessing", "concurrent", "xml", "sqlite3", "ctypes",
     "agent.model", "agent.catalogue", "agent.config.schema", "agent.config.reading", "agent.backends", "agent.sampler",
     "agent.daemon", "agent.worker", "agent.rack", "alerts", "exporters", "dashboards")
)  # fmt: skip
"""Modules that take milliseconds each, and what of ours imports them."""


def parsers(parser: Parser | None = None) -> Iterator[Parser]:
    """The whole command line, each command, and each of its actions."""
    parser = parser or make_parser()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


PARSERS = {each.prog: each for each in parsers()}


def module_of(prog: str) -> str:
    words = prog.split()
    return f"agent/commands/{words[1].replace('-', '_')}" if len(words) > 1 else "agent/cli.py"


@pytest.mark.parametrize("prog", PARSERS)
def test_a_command_is_described_with_examples_and_exit_statuses(prog: str) -> None:
    """A command has EXAMPLES and EXIT_STATUSES beside HELP, an action gives them to its add_parser()."""
    parser = PARSERS[prog]
    assert (parser.description or "").endswith("."), f"{prog}: DESCRIPTION in {module_of(prog)} is to be sentences"
    silent = [action.dest for action in parser._actions if not action.help and action.metavar not in
              ("COMMAND", "ACTION", "WHAT")]  # fmt: skip
    assert silent == [], f"{prog}: options and arguments without help="
    assert parser.examples, f'{prog} has no examples in {module_of(prog)}, such as (("{prog} ...", "what it is for"),)'
    statuses = parser.exit_statuses
    assert {0, 2} <= statuses.keys() and all(statuses.values()), (
        f'{prog} does not say how it ends in {module_of(prog)}, such as {{0: "...", 1: "...", **INVALID}}'
    )
    assert "xit status:" not in (parser.description or ""), f"{prog}: it belongs into EXIT_STATUSES"


@pytest.mark.parametrize("prog", PARSERS)
def test_an_example_is_a_command_line_that_is_taken(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line, what in PARSERS[prog].examples:
        if "COMMAND" in line:
            continue
        words = shlex.split(line)
        words = words[next(n for n, word in enumerate(words) if "=" not in word) :]  # variables may go before
        shell = next((n for n, word in enumerate(words) if word in SHELL), len(words))
        assert words[0] == "coldplate" and f"{' '.join(words)} ".startswith(f"{prog} "), f"{prog}: {line}"
        try:
            make_parser().parse_args(words[1:shell])
        except SystemExit:
            pytest.fail(f"{prog}: its example {line!r} is refused: {capsys.readouterr().err}")
        assert what and not what.endswith("."), f"{prog}: say what {line!r} is for, without a full stop"


def test_the_help_ends_with_examples_and_exit_statuses() -> None:
    text = PARSERS["coldplate once"].format_help()
    assert "\nexamples:\n  coldplate once\n      everything" in text
    assert "\nexit status:\n  0   a sample was taken\n" in text
    assert text.splitlines()[-1].startswith("  2   the command line or the configuration is invalid")


def loaded_by(call: str) -> set[str]:
    """The modules that a process holds after this call."""
    program = f"import sys; from agent.cli import make_parser; {call}; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=unmeasured(), capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_help_imports_nothing_heavy_and_a_command_no_other_command() -> None:
    """It is what a person waits for at a terminal, and what every other command waits for before it begins."""
    loaded = loaded_by("make_parser().format_help()")
    assert "agent.commands.once" in loaded
    assert sorted(HEAVY & loaded) == [], (
        "`coldplate --help` imports these: see `python -X importtime -m agent.cli --help`, and move the imports of a "
        "command into the functions that use them (types below `if TYPE_CHECKING:`). For a mistake of the user's "
        "raise agent.lib.wording.UserError, which costs nothing to import"
    )
    # The daemon holds what it imports for as long as it runs.
    assert [each for each in loaded_by("make_parser('run')") if each.startswith("agent.commands.")] == [
        "agent.commands.run"
    ]
