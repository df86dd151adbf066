"""Generated rule files, read here and by promtool."""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from alerts import rulefile
from alerts.rulefile import RuleFileError
from tests.lab.parity.oracles import Recent, told
from tests.lab.parity.templates import Maker

NAMES = ("a", "node:up:sum", "GpuHot", "gpu-hot", "gpü", "温度", "1st", "a b", "a.b/c", "x{y}", "", " ", "__name__",
         "null", "true", "5", "~", "job", "__a", "A" * 300, "a\tb", "\U0001f525", "a\nb", "up{}", "it's")  # fmt: skip
EXPRESSIONS = ("up", "up == 0", "sum by (job) (rate(x[5m]))", "1", "time()", "vector(1) > 0", "absent(up)",
               'up{job=~"a.*"}', "a and on (b) c", "up ==", "sum(", "rate(up)", "up[5m]", '"text"', "", " ", "foo bar",
               "x offset 5m", "max_over_time(x[1h:1m])", "{a='b'}", "{}", "-1 ^ 2", "nope(up)", "5", "# c\nup",
               "topk(3, up) > bool 1", "up @ end()", "x[5m] offset", "histogram_quantile(0.9, x)",
               'label_replace(up, "a", "b", "", "")')  # fmt: skip
DURATIONS = ("0", "0s", "5m", "1h30m", "1d", "1w", "1y", "90s", "5", "1.5m", "-5m", "soon", "", "5M", "300y", "1m1h",
             "1ms", "null", " 5m", "5m ", "0x5m", "1_0s")  # fmt: skip
NUMBERS = ("0", "5", "-1", "5.0", "5.5", "many", "0x10", "1_000", "010", "9" * 19, "true", "null", '"5"', "")
TEXTS = ("page", "critical", "{{ $value }}", "{{ $labels.job }} is hot", "", "null", "5", "true", "{{ end }}", "{{",
         "}}", "{{ nope }}", "{{ $x }}", "{{ printf `%d` $value | humanize }}", "a: b", "# no",
         "{{ template `x` }}")  # fmt: skip


class FileMaker:
    """Makes rule files, most of them right but for a detail or two."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._templates = Maker(dice)
        self.oddness = 0.1
        """How often something is odd."""

    def _of(self, choices: Sequence[str], usual: int = 3) -> Any:
        """One of the choices, mostly of the first ones. It is written as it is, unless it is quoted."""
        dice = self._dice
        return dice.choice(choices if dice.random() < self.oddness else choices[:usual])

    def _odd(self) -> bool:
        return self._dice.random() < self.oddness

    def rule(self) -> dict[str, Any]:
        is_alert = self._dice.random() < 0.6
        rule: dict[str, Any] = {"alert" if is_alert else "record": self._of(NAMES), "expr": self._of(EXPRESSIONS, 8)}
        if is_alert or self._odd():
            for key, choices in (("for", DURATIONS), ("keep_firing_for", DURATIONS)):
                if self._dice.random() < 0.4:
                    rule[key] = self._of(choices, 9)
            if self._dice.random() < 0.5:
                rule["annotations"] = self._texts()
        if self._dice.random() < 0.5:
            rule["labels"] = self._texts()
        if self._odd():
            self._spoil(rule, ("record", "alert", "expr", "for", "fro", "name", "labels", "annotations"))
        return rule

    def _texts(self) -> Any:
        if self._odd():
            return self._dice.choice([None, {}, [], "x", 5, {"a": None}, {"a": [1]}, {"a": {"b": "c"}}, {"5": 5}])
        return {self._of(NAMES): self._text() for _ in range(self._dice.randrange(3))}

    def _text(self) -> str:
        return self._templates.template() if self._dice.random() < 0.3 else str(self._of(TEXTS, 6))

    def _spoil(self, of: dict[str, Any], keys: Sequence[str]) -> None:
        key = self._dice.choice(keys)
        if key in of and self._dice.random() < 0.5:
            del of[key]
        else:
            of[key] = self._dice.choice([None, "", "x", 5, [], {}, ["x"], {"a": "b"}, "5m", 0, True])

    def group(self) -> dict[str, Any]:
        group: dict[str, Any] = {"name": self._of(NAMES, 20)}
        for key, choices in (("interval", DURATIONS), ("query_offset", DURATIONS), ("limit", NUMBERS)):
            if self._dice.random() < 0.2:
                group[key] = Raw(self._of(choices, 4))
        if self._dice.random() < 0.2:
            group["labels"] = self._texts()
        group["rules"] = [self.rule() for _ in range(self._dice.randrange(5))]
        if self._odd():
            self._spoil(group, ("name", "interval", "rules", "limit", "labels", "groups", "intervall"))
        if self._odd() and isinstance(group.get("rules"), list):
            group["rules"].append(self._dice.choice([None, "x", [], {}, 5]))
        return group

    def file(self) -> str:
        self.oddness = self._dice.choice((0.0, 0.02, 0.05, 0.2))
        document: Any = {"groups": [self.group() for _ in range(self._dice.randrange(4))]}
        if self._odd():
            self._spoil(document, ("groups", "group"))
        if self._odd() and isinstance(document.get("groups"), list):
            document["groups"].append(self._dice.choice([None, "x", [], {}]))
        text = "".join(self._written(document, 0))
        return text + self._of(("", "", "\n", "---\n", "---\ngroups: []\n", "...\n", "---\nx: [\n", "# end\n"), 3)

    def _written(self, value: Any, indent: int) -> Iterator[str]:
        pad = "  " * indent
        if isinstance(value, dict) and value:
            for key, each in value.items():
                yield f"{pad}{self._scalar(key)}:"
                yield from self._below(each, indent + 1)
        elif isinstance(value, list) and value:
            for each in value:
                yield f"{pad}-"
                yield from self._below(each, indent + 1)
        else:
            yield f"{pad}{self._scalar(value)}\n"

    def _below(self, value: Any, indent: int) -> Iterator[str]:
        if isinstance(value, (dict, list)) and value:
            yield "\n"
            yield from self._written(value, indent)
        else:
            yield f" {self._scalar(value)}\n"

    def _scalar(self, value: Any) -> str:
        """A scalar in one of YAML's ways to write it; bare where it says the same then, or seldom anyhow."""
        if not isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, Raw):
            return value
        if re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*|[0-9a-z]+", value) and self._dice.random() < 0.7:
            return value
        return json.dumps(value, ensure_ascii=self._dice.random() < 0.5)


class Raw(str):
    """A text that is written without quotes."""

    __slots__ = ()


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


def differences(recent: Recent, dice: random.Random, count: int) -> Iterator[str]:
    maker = FileMaker(dice)
    files = [maker.file() for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        verdicts = taken_there(recent, files, Path(folder))
    for text, taken in zip(files, verdicts, strict=True):
        problem = problem_here(text)
        if bool(problem) == taken:
            yield f"{text}\n  Prometheus {'loads' if taken else 'refuses'} it; here: {problem or 'it is loaded'}"


def compare(recent: Recent, options: argparse.Namespace) -> bool:
    """Whether both accept the same of `options.files` files."""
    found = differences(recent, random.Random(options.seed), options.files)
    return told(f"rules: {options.files} files", found, options.show)
