"""promtool accepts the queries that we accept, whole ones and damaged ones.

Debian's promtool is of 2.42, which does not know all that 3.5 does; what only 3.5 has is compared where promtool is
as new as that.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from alerts.promql import PromqlError
from alerts.promql.syntax import parse
from alerts.promql.syntax.scanner import Scanner
from tests.promql.babble import Babbler
from tests.servers import need, version_of

COUNT = 3_000
# Regular expressions have tests of their own; texts that are not UTF-8 are refused here alone, since no label has one.
_ELSEWHERE = re.compile("regular expression|is not UTF-8")
_REFUSED = re.compile(r'group "g", rule \d+, "r(\d+)": could not parse expression: (.*)')
_LABEL_LISTS = ("by", "without", "on", "ignoring", "group_left", "group_right")


def refusals(promtool: str, queries: Sequence[str], folder: Path) -> dict[int, str]:
    """Which of the queries promtool refuses, and with which words."""
    path = folder / "rules.yml"
    rules = ", ".join(f'{{"record": "r{number}", "expr": {_quoted(query)}}}' for number, query in enumerate(queries))
    path.write_text(f'{{"groups": [{{"name": "g", "rules": [{rules}]}}]}}')
    command = [promtool, "check", "rules", "--lint=none", str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    found = {
        int(number): words for number, words in _REFUSED.findall((done.stdout + done.stderr).decode(errors="replace"))
    }
    assert (done.returncode != 0) == bool(found), done.stderr[:2000]
    return found


def _quoted(text: str) -> str:
    """The text as YAML has it, which takes no pairs of surrogates."""
    return "".join(
        each if ord(each) < 0x10000 else f"\\U{ord(each):08x}" for each in json.dumps(text, ensure_ascii=False)
    )


def is_only_of_3(text: str) -> bool:
    """Whether a text has something that 2.42 refuses, or reads in another way, and 3.5 does not."""
    tokens = Scanner(text)
    before = ["", "", ""]
    bracket = labels = False
    for kind, written in zip(tokens.kinds, tokens.texts, strict=True):
        if kind in ("[", "]"):
            bracket = kind == "["
        labels = (labels and kind != ")") or (kind == "(" and before[-1] in _LABEL_LISTS)
        moved = before[-1] == "offset" or before[-2:] == ["offset", "-"]
        signs = before[-2] == "offset" or (before[-1] == "offset" and kind == "+")
        if (
            (kind == "number" and ("_" in written or bracket or moved or re.match("0[xX].*[eE]", written)))
            or (kind == "duration" and (not (bracket or moved) or not written.strip("0mshdwy")))
            or (kind in ("+", "-") and (bracket or signs))
            or (kind in ("string", "metric identifier") and labels)
            or (kind == "string" and before[-1] in ("{", ",") and "{" in tokens.kinds)
            or (kind == ":" and written != ":")
            or written.lower().startswith(("histogram_", "limit"))
        ):
            return True
        before = [*before[-2:], kind]
    return False


@pytest.mark.parametrize("seed", range(4))
def test_promtool_accepts_what_we_accept(seed: int, tmp_path: Path) -> None:
    promtool = need("promtool", left_out="nothing compares our grammar with its own")
    newer = version_of(promtool) >= (3, 5)
    babbler = Babbler(seed, newer=newer)
    said = [babbler.damaged() if number % 2 else babbler.query() for number in range(COUNT)]
    queries = [each for each in said if each.strip() and (newer or not is_only_of_3(each))]
    theirs = refusals(promtool, queries, tmp_path)
    assert COUNT * 0.2 < len(theirs) < len(queries) - COUNT * 0.3, "both kinds are wanted"
    for number, query in enumerate(queries):
        try:
            parse(query)
            ours = None
        except PromqlError as error:
            ours = error.problem
        if "error parsing regexp" in theirs.get(number, "") or (ours is not None and _ELSEWHERE.search(ours)):
            continue
        assert (ours is None) == (number not in theirs), (query, ours, theirs.get(number))
