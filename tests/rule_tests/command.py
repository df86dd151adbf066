"""Runs files of unit tests and prints what promtool test rules prints; 0 if all pass, else 1."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from alerts import rulefile
from alerts.rulefile import RuleFile, RuleFileError
from tests.rule_tests import runner, unit_test_file
from tests.rule_tests.unit_test_file import Document


def run_files(paths: Sequence[Path]) -> int:
    results = [_run_file(path) for path in paths]
    return 0 if all(results) else 1


def _run_file(path: Path) -> bool:
    print(f"Unit Testing:  {path}", flush=True)
    try:
        tests = unit_test_file.load(path, handed=True)
        rules = _rules_of(tests)
    except (unit_test_file.TestFileError, RuleFileError) as error:
        return _fail(f"  {problem}" for problem in error.problems)
    failures = runner.run(tests, rules)
    if failures:
        return _fail(str(failure) for failure in failures)
    print("  SUCCESS\n")
    return True


def _rules_of(tests: Document) -> list[RuleFile]:
    for pattern in tests.unmatched:
        print(f"  WARNING: no file match pattern {pattern}", file=sys.stderr)
    return [rulefile.load(path, default_step=tests.interval) for path in dict.fromkeys(tests.rule_files)]


def _fail(lines: Iterable[str]) -> bool:
    sys.stdout.flush()
    print("  FAILED:", *lines, sep="\n", file=sys.stderr, flush=True)
    print(flush=True)
    return False
