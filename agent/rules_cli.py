"""`coldplate rules check` and `coldplate rules test`: promtool's commands of those names, without a Prometheus.

Verdicts and exit statuses are promtool's: 0 when all is well, 1 when a file or a test fails. What is right
goes to standard output, what is wrong to standard error. `coldplate render rules` is the way back: the rules that the
agent evaluates, as files for a Prometheus server.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent.commandline import Parser
from agent.config import ConfigError
from agent.durable import replace_file

if TYPE_CHECKING:
    from alerts.rulefile import RuleFile
    from alerts.unittests.document import Document

EXIT_FAILED = 1
MARK = "# Written by coldplate render rules; change the configuration instead."
"""The first line of every file that `render` writes, by which it knows what it may write again."""


def add_parser(commands: argparse._SubParsersAction[Parser]) -> None:
    """Adds the `rules` command to those of coldplate."""
    rules = commands.add_parser(
        "rules",
        help="check and test Prometheus rule files",
        description="Check and test Prometheus rule files, as the daemon evaluates them.",
    )
    actions = rules.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="say whether rule files can be loaded",
        description="Say whether rule files can be loaded, and what is wrong with those that cannot. "
        "Exit status: 0 all can, 1 one cannot.",
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="rule file")
    test = actions.add_parser(
        "test",
        help="run unit tests of rules",
        description="Run unit tests of rules, in the format of promtool test rules. "
        "Exit status: 0 all pass, 1 one fails.",
    )
    test.add_argument("files", nargs="+", type=Path, metavar="FILE", help="unit-test file")


def run(arguments: argparse.Namespace) -> int:
    """Runs a `rules` command; its exit status."""
    one = _check if arguments.action == "check" else _test
    verdicts = [one(path) for path in arguments.files]
    return 0 if all(verdicts) else EXIT_FAILED


def _check(path: Path) -> bool:
    from alerts import rulefile

    print(f"Checking {path}", flush=True)
    try:
        rules = rulefile.load(path, handed=True)
    except rulefile.RuleFileError as error:
        return _fail(f"  {problem}" for problem in error.problems)
    from agent.rule_advice import advise

    for warning in (*rules.warnings, *advise(rules)):
        print(f"  WARNING: {warning}")
    print(f"  SUCCESS: {rules.rule_count} rules found\n")
    return True


def _test(path: Path) -> bool:
    from alerts.rulefile import RuleFileError
    from alerts.unittests import document, runner

    print(f"Unit Testing:  {path}", flush=True)
    try:
        tests = document.load(path, handed=True)
        rules = _rules_of(tests)
    except (document.TestFileError, RuleFileError) as error:
        return _fail(f"  {problem}" for problem in error.problems)
    failed = runner.run(tests, rules)
    if failed:
        return _fail(str(each) for each in failed)
    print("  SUCCESS\n")
    return True


def _rules_of(tests: Document) -> list[RuleFile]:
    from alerts import rulefile

    for pattern in tests.unmatched:
        print(f"  WARNING: no file match pattern {pattern}", file=sys.stderr)
    return [rulefile.load(path, default_step=tests.interval) for path in dict.fromkeys(tests.rule_files)]


def _fail(lines: Iterable[str]) -> bool:
    sys.stdout.flush()
    print("  FAILED:", *lines, sep="\n", file=sys.stderr, flush=True)
    print(flush=True)
    return False


def render(files: Sequence[RuleFile], out: Path) -> int:
    """Writes rule files into a directory, one for each source, and says which; the exit status.

    Raises ConfigError, before anything is written, where a file stands in the way that this command did not write.
    """
    from alerts.rulewriter import write

    targets = dict(zip(_names(files), files, strict=True))
    try:
        _refuse_foreign(out, targets)
        for name, file in targets.items():
            text = f"{MARK}\n# From {file.path}\n{write(file)}"
            replace_file(out / name, text.encode())
            print(f"{out / name}: {file.rule_count} rules from {file.path}")
        left = [path for path in sorted(out.iterdir()) if path.name not in targets and _is_ours(path)]
    except OSError as error:
        raise ConfigError(f"--out: {error.filename or out}: {error.strerror}") from error
    for path in left:
        print(f"{path}: left from an earlier time; remove it lest a server loads it, too", file=sys.stderr)
    return 0


def _names(files: Sequence[RuleFile]) -> list[str]:
    """A name for each file: its own, with a number where another has it already."""
    names: list[str] = []
    for file in files:
        path = Path(file.path)
        name, number = path.name, 1
        while name in names:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        names.append(name)
    return names


def _refuse_foreign(out: Path, names: Iterable[str]) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out: {out} is no directory; name one, it is made if it is not there")
    for name in names:
        path = out / name
        if path.exists() and not _is_ours(path):
            raise ConfigError(f"--out: {path} was not written by this command; move it, or name another directory")


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(len(MARK) + 2).rstrip("\r\n") == MARK
