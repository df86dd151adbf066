"""Every command says by itself how it is used and how it ends, and the help of all of them costs next to nothing."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli import make_parser
from agent.lib.commandline import Parser
from tests.servers import unmeasured

ROOT = Path(__file__).resolve().parents[2]
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
def test_a_command_has_examples(prog: str) -> None:
    where = "EXAMPLES beside HELP" if prog.count(" ") == 1 else "examples=... to its add_parser()"
    assert PARSERS[prog].examples, (
        f'{prog} has no example: add {where} in {module_of(prog)}, such as (("{prog} ...", "what it is for"),)'
    )


@pytest.mark.parametrize("prog", PARSERS)
def test_a_command_has_its_exit_statuses(prog: str) -> None:
    where = "EXIT_STATUSES beside HELP" if prog.count(" ") == 1 else "exit_statuses=... to its add_parser()"
    statuses = PARSERS[prog].exit_statuses
    assert {0, 2} <= statuses.keys(), (
        f"{prog} does not say how it ends: add {where} in {module_of(prog)}, such as "
        '{0: "...", 1: "...", **INVALID} with INVALID from agent.lib.commandline'
    )
    assert all(statuses.values())
    assert "xit status:" not in (PARSERS[prog].description or ""), f"{prog}: it belongs into EXIT_STATUSES"


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


@pytest.mark.parametrize("prog", PARSERS)
def test_a_command_is_described(prog: str) -> None:
    parser = PARSERS[prog]
    assert (parser.description or "").endswith("."), f"{prog}: DESCRIPTION in {module_of(prog)} is to be sentences"
    silent = [action.dest for action in parser._actions if not action.help and action.metavar not in
              ("COMMAND", "ACTION", "WHAT")]  # fmt: skip
    assert silent == [], f"{prog}: options and arguments without help="


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


def test_the_help_imports_nothing_heavy() -> None:
    """It is what a person waits for at a terminal, and what every other command waits for before it begins."""
    loaded = loaded_by("make_parser().format_help()")
    assert "agent.commands.once" in loaded
    assert sorted(HEAVY & loaded) == [], (
        "`coldplate --help` imports these: see `python -X importtime -m agent.cli --help`, and move the imports of a "
        "command into the functions that use them (types below `if TYPE_CHECKING:`). For a mistake of the user's "
        "raise agent.lib.wording.UserError, which costs nothing to import"
    )


def test_a_command_imports_no_other_command() -> None:
    """The daemon holds what it imports for as long as it runs."""
    assert [each for each in loaded_by("make_parser('run')") if each.startswith("agent.commands.")] == [
        "agent.commands.run"
    ]
