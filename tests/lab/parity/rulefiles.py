"""Generated rule files, read here and by promtool."""

import argparse
import json
import random
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from alerts import rulefile
from alerts.rulefile import RuleFileError
from tests.grammar import Grammar
from tests.lab.parity.oracles import ALIKE, DIFFERS, Judged, Recent
from tests.lab.parity.templates import Maker

COUNT = 1000
_RULES = {
    "name": ("a", "node:up:sum", "GpuHot", '"gpu-hot"', '"gpü"', '"温度"', '"1st"', '"a b"', '"a.b/c"', '"x{y}"',
             '"true"', '"5"', '"~"', "job", '"up{}"', '"it\'s"', '"\\U0001f525"'),
    "expression": (
        "up", "up == 0", "sum by (job) (rate(x[5m]))", "1", "time()", "vector(1) > 0", "absent(up)",
        "'up{job=~\"a.*\"}'", "a and on (b) c", "'max_over_time(x[1h:1m])'", "topk(3, up) > bool 1", "up @ end()",
        "histogram_quantile(0.9, x)", "-1 ^ 2", "x offset 5m",
    ),
    "duration": ("0", "0s", "5m", "1h30m", "1d", "1w", "1y", "90s", '"5m"'),
    "number": ("0", "5", "-1", '"5"'),
    "text": ("page", "critical", "'{{ $value }}'", "'{{ $labels.job }} is hot'", '""', '"5"', "'<template>'"),
    "labels": (" {}\n", "\n        <name>: <text>\n", "\n        <name>: <text>\n        job: <text>\n"),
    "hold": ("", "      for: <duration>\n", "      keep_firing_for: <duration>\n",
             "      for: <duration>\n      keep_firing_for: <duration>\n"),
    "rule": (
        "    - record: <name>\n      expr: <expression>\n",
        "    - record: <name>\n      expr: <expression>\n      labels:<labels>",
        "    - alert: <name>\n      expr: <expression>\n<hold>",
        "    - alert: <name>\n      expr: <expression>\n<hold>      labels:<labels>      annotations:<labels>",
        "    -\n      annotations:<labels><hold>      expr: <expression>\n      alert: <name>\n",
    ),
    "rules": (" []\n", "\n<rule>", "\n<rule><rule>", "\n<rule><rule><rule>"),
    "setting": ("", "", "", "    interval: <duration>\n", "    query_offset: <duration>\n", "    limit: <number>\n",
                "    labels:<labels>"),
    "group": ("  - name: <name>\n<setting><setting>    rules:<rules>",),
    "groups": (" []\n", "\n<group>", "\n<group><group>", "\n<group><group><group>"),
    "ending": ("", "", "\n", "---\n"),
    "file": ("groups:<groups><ending>",),
}  # fmt: skip
_NOTHING = ("null", '""', "x", "5", "[]", "{}", "[x]", "{a: b}", "true")
_ODD = {
    "name": ('""', '" "', "__name__", "null", "true", "5", "~", "__a", "A" * 300, '"a\\tb"', '"a\\nb"', "[]", "{}"),
    "expression": ("up ==", "sum(", "rate(up)", "up[5m]", "'\"text\"'", '""', '" "', "foo bar", "\"{a='b'}\"", "'{}'",
                   "nope(up)", "5", '"# c\\nup"', "x[5m] offset", "null", "[]", "{}", "'label_replace(up, a)'",
                   "'label_replace(up, \"a\", \"b\", \"\", \"\")'"),
    "duration": ("5", "1.5m", "-5m", "soon", '""', "5M", "300y", "1m1h", "1ms", "null", '" 5m"', '"5m "', "0x5m",
                 "1_0s", "[]", "{}", "true"),
    "number": ("5.0", "5.5", "many", "0x10", "1_000", "010", "9" * 19, "true", "null", "[]"),
    "text": ("null", "5", "true", "'{{ end }}'", "'{{'", "'}}'", "'{{ nope }}'", "'{{ $x }}'", "'a: b'", "'# no'",
             "'{{ printf `%d` $value | humanize }}'", "'{{ template `x` }}'", "[1]", "{b: c}"),
    "labels": tuple(f" {each}\n" for each in (*_NOTHING, "{a: null}", "{5: '5'}")),
    "hold": ("      fro: 5m\n", "      record: b\n", "      alert: b\n", "      name: b\n",
             "      for: 5m\n      for: 5m\n"),
    "rule": ("    - null\n", "    - x\n", "    - []\n", "    - {}\n", "    - expr: <expression>\n",
             "    - alert: <name>\n",
             "    - record: <name>\n      expr: <expression>\n<hold>      annotations:<labels>"),
    "rules": tuple(f" {each}\n" for each in _NOTHING),
    "setting": ("    intervall: 5m\n", "    groups: []\n", "    rules: []\n", "    name: b\n"),
    "group": ("  - null\n", "  - x\n", "  - []\n", "  - {}\n", "  - rules:<rules>", "  - name: <name>\n"),
    "groups": tuple(f" {each}\n" for each in _NOTHING),
    "ending": ("---\ngroups: []\n", "...\n", "---\nx: [\n", "# end\n", "group: x\n"),
    "file": ("", "group:<groups>", "<groups>", "groups:<groups>groups:<groups>"),
}  # fmt: skip


class FileMaker:
    """Makes rule files, most of them right but for a detail or two."""

    def __init__(self, dice: random.Random) -> None:
        self._dice, self._grammar = dice, Grammar(_RULES, dice, _ODD)
        self._templates = Maker(dice)

    def file(self) -> str:
        self._grammar.oddness = self._dice.choice((0.0, 0.01, 0.02, 0.1))
        parts = self._grammar.say("file", 1).split("'<template>'")
        return "".join(each + json.dumps(self._templates.template()) for each in parts[:-1]) + parts[-1]


def taken_there(recent: Recent, files: Sequence[str], folder: Path) -> list[bool]:
    """Whether promtool takes each file."""
    paths = [folder / f"{number}.yml" for number in range(len(files))]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text, encoding="utf-8")
    command = [recent.promtool, "check", "rules", "--lint=none", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    taken = set(re.findall(r"Checking (\S+)\n\s+SUCCESS:", done.stdout))
    assert done.stdout.count("Checking ") == len(files), done.stderr[-2000:]
    return [str(path) in taken for path in paths]


def problem_here(text: str) -> str:
    try:
        rulefile.parse(text, "rules.yml")
    except RuleFileError as error:
        return str(error)
    return ""


def judged(recent: Recent, options: argparse.Namespace) -> Judged:
    """Whether both accept the same files."""
    maker = FileMaker(random.Random(options.seed))
    files = [maker.file() for _ in range(COUNT)]
    with tempfile.TemporaryDirectory() as folder:
        verdicts = taken_there(recent, files, Path(folder))
    for text, taken in zip(files, verdicts, strict=True):
        problem = problem_here(text)
        words = f"{text}\n  Prometheus {'loads' if taken else 'refuses'} it; here: {problem or 'it is loaded'}"
        yield DIFFERS if bool(problem) == taken else ALIKE, words
