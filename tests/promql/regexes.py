"""Regular expressions and replacement texts from a seed, of every construct that RE2 or Go reads in a way of its own.

`python -m tests.promql.regexes PROMETHEUS COUNT [SEED]` holds so many of them against a real Prometheus.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from alerts.promql import EvaluationError, Matcher, PromqlError, Storage, make_labels
from alerts.promql.budget import Budget
from alerts.promql.instant_functions import label_replace, replace_regex
from alerts.promql.plan import Elements, EvaluationContext, LabelSpace, VectorPlan
from alerts.regex import RegexError

AT = 1_700_000_000.0
Found = dict[int, str] | None
"""The texts that match, by their numbers, with what was made of them; None where the expression is refused."""


def _words(text: str) -> list[str]:
    return text.split()


CHARACTERS = "aabbcAB019 _-.,:/\\{}[]()|^$*+?\"'#&~\u00e9\u00c9\u017f\u212a\u03b1\u4e2d\U0001f600\ufffd\t\x0b\x01\x7f"
"""What texts are made of; a few letters often, so that something matches."""

_ESCAPES = _words(
    r"\d \D \s \S \w \W \b \B \A \z \n \t \f \v \r \a \. \- \_ \/ \\ \] \" \x61 \x{61} \x{e9} \x{1F600} \101 \141 "
    r"\07 \0 \pL \PL \p{L} \p{Lu} \P{Lu} \p{^Lu} \pN \p{Greek} \P{Greek} \p{Han} \p{Latin} \p{Nd} \pZ \pS \p{Any} "
)
_ODD_ESCAPES = _words(
    r"\Z \G \C \X \R \K \h \u0061 \U0061 \1 \8 \p{Nope} \pQ \p \x \x6 \x{} \x{110000} \E \q \N \i \cA \e \y \m "
)
_SET_ITEMS = _words(
    r"a b A 0-9 a-z A-Z a-c [:alpha:] [:digit:] [:^digit:] [:space:] [:word:] [:^word:] [:punct:] [:upper:] "
    r"[:lower:] [:xdigit:] [:ascii:] [:^ascii:] [:alnum:] [:blank:] [:cntrl:] [:graph:] [:print:] \d \D \w \W \s "
    r"\S \pL \PL \p{Greek} \p{^Lu} \n \t \] \\ \- \x61 \x{e9} \141 . * + ? ( ) | { } ^ $ , _ é É ſ α 中 \u212a é-ÿ "
    r"\x{100}-\x{10FFFF} && "
)
_ODD_SET_ITEMS = _words(r"[:nope:] [=a=] [.a.] z-a a-\d \b \B \A \Q \E \C \z \1 \8 \u0061 [ -- a--z ")
_REPEATS = _words(r"* + ? *? +? ?? {2} {0,1} {1,} {,2} {,} {} {0} {2}? {1,3}? {0,2} {01} {x} ")
_ODD_REPEATS = _words(r"** *+ ++ +* ?* *** {2}{3} {2,1} {1001} {1,1001} {1000}{2} {9999999999} {0}{0} {2}* *{2} ")
_FLAGS = _words(r"(?i) (?s) (?m) (?U) (?-s) (?is) (?i-s) (?ms-i) (?-i) ")
_ODD_FLAGS = _words(r"(?x) (?a) (?u) (?L) (?n) (?J) (?) (?-) (?i-) (?^) (?ii) (?i (? (?#a) (?P=n) (?P>n) (?R) (?1) ")
_OPENINGS = _words(r"( ( (?: (?: (?i: (?s: (?-s: (?U: (?m: (?i-s: ")
_ODD_OPENINGS = _words(r"(?= (?! (?<= (?<! (?> (?| (?P<> (?P<é> (?'n' (?P (?<1-> (?x: (?a: ")
_SHAPES = _words(r"{} {} {}.* .*{} .*{}.* {}.+ .+{} .+{}.+ (?:{}) (?i){} {}- ^{}$ ^(?:{})$ ({}).* ")
_REFERENCES = _words(r"$1 $2 ${1} ${n1} $n1 $0 $$ $ ${ $1x ${1}x $9 $01 ${01} $é a - é ")


_OPEN_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*\\Q(?:(?!\\E).)*\Z")


class Patterns:
    """Makes expressions; with `named` also the groups `(?<n>...)`, which Prometheus 2 does not know."""

    def __init__(self, seed: int, *, named: bool = True) -> None:
        self._dice = random.Random(seed)
        self._named = named
        self._names = 0

    def one(self) -> str:
        r"""One expression; one in seven has something that may be refused.

        None ends inside of \Q: Prometheus refuses that or not depending on its version, and on the brackets around it.
        """
        while _OPEN_QUOTE.search(made := self._one()):
            pass
        return made

    def _one(self) -> str:
        self._names = 0
        self._odd = 0.15 if self._dice.random() < 0.15 else 0.0
        if self._dice.random() < 0.1:
            return self._usual()
        made = self._alternatives(3)
        if self._odd and self._dice.random() < 0.3:  # a bracket too many, or one too few
            place = self._dice.randrange(len(made) + 1)
            made = made[:place] + self._dice.choice(["(", ")", "[", "]", "\\", "*", "{", ""]) + made[place + 1 :]
        return made

    def replacement(self) -> str:
        """A text with references to groups."""
        return "".join(self._dice.choices(_REFERENCES, k=self._dice.randrange(6)))

    def _is_odd(self) -> bool:
        return self._dice.random() < self._odd

    def _pick(self, usual: list[str], odd: list[str]) -> str:
        return self._dice.choice(odd if self._is_odd() else usual)

    def _usual(self) -> str:
        """What is usual in rules: words, beginnings and ends."""
        dice = self._dice
        words = ["".join(dice.choices("abAB0-_", k=dice.randrange(3))) for _ in range(dice.randrange(1, 5))]
        return dice.choice(_SHAPES).format("|".join(words))

    def _alternatives(self, depth: int) -> str:
        return "|".join(self._sequence(depth) for _ in range(self._dice.choice([1, 1, 1, 2, 3])))

    def _sequence(self, depth: int) -> str:
        return "".join(self._repeated(depth) for _ in range(self._dice.choice([0, 1, 1, 2, 2, 3, 4])))

    def _repeated(self, depth: int) -> str:
        again = self._pick(_REPEATS, _ODD_REPEATS) if self._dice.random() < 0.35 else ""
        return self._atom(depth) + again

    def _atom(self, depth: int) -> str:
        kind = self._dice.random()
        if kind < 0.3:
            return self._dice.choice("aabbcAB01_- é\u00c9\u017f\u212a\u4e2d")
        if kind < 0.4:
            return "."
        if kind < 0.5:
            return self._pick(_ESCAPES, _ODD_ESCAPES)
        if kind < 0.65:
            return self._set()
        if kind < 0.72:
            return self._dice.choice(["^", "$", r"\b", r"\B", r"\A", r"\z"])
        if kind < 0.76:
            return self._pick(_FLAGS, _ODD_FLAGS)
        if kind < 0.79:
            return rf"\Q{self._dice.choice(['a.b', '[', 'a', '', '*', chr(92), '(?i)', 'é', '$'])}\E"
        if depth == 0:
            return self._dice.choice("abc")
        if kind < 0.82:
            self._names += 1
            mark = self._dice.choice(["P<", "<"]) if self._named else "P<"
            return f"(?{mark}n{self._names}>{self._alternatives(depth - 1)})"
        return self._pick(_OPENINGS, _ODD_OPENINGS) + self._alternatives(depth - 1) + ")"

    def _set(self) -> str:
        items = "".join(self._pick(_SET_ITEMS, _ODD_SET_ITEMS) for _ in range(self._dice.randrange(1, 4)))
        edges = self._dice.choice(["[{}]", "[{}]", "[^{}]", "[]{}]", "[{}-]", "[-{}]", "[^]{}]", "[^-{}]"])
        return edges.replace("{}", items)


def texts(seed: int, count: int, *, line_breaks: bool = True) -> list[str]:
    """Texts of up to eight characters, all different, the empty one among them."""
    dice = random.Random(seed)
    alphabet = CHARACTERS + "\n\n\r" * line_breaks
    made = {"", *CHARACTERS}
    while len(made) < count:
        letters = dice.choice([alphabet, "aab", "abAB01 _-", "a\u00e9\u00c9\u017f\u212aKks"])
        made.add("".join(dice.choices(letters, k=dice.choice([1, 2, 2, 3, 3, 4, 5, 8]))))
    return sorted(made)


def samples(given: Sequence[str]) -> dict[Any, list[tuple[float, float]]]:
    """A series for each text, whose label `x` has it."""
    return {make_labels({"i": str(number), "x": text}, "t"): [(AT, 1.0)] for number, text in enumerate(given)}


def quoted(text: str) -> str:
    """A text as PromQL writes it."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(f"\\x{ord(each):02x}" if ord(each) < 32 else each for each in plain) + '"'


def matched(given: Sequence[str], pattern: str) -> Found:
    """What a matcher of ours takes."""
    try:
        matches = Matcher("x", "=~", pattern).matches
    except PromqlError:
        return None
    return {number: "" for number, text in enumerate(given) if matches(text)}


class _Given(VectorPlan):
    """Elements that are there already."""

    def __init__(self, elements: Elements) -> None:
        self._elements = elements

    def run(self, moment: EvaluationContext) -> Elements:
        return self._elements


def replaced(given: Sequence[str], pattern: str, replacement: str) -> Found:
    """What our `label_replace` makes."""
    elements = [(make_labels({"i": str(number), "x": text}), 1.0) for number, text in enumerate(given)]
    try:
        regex = replace_regex(pattern)
        space, budget = LabelSpace(), Budget()
        space.begin(budget)
        plan = label_replace(space, _Given(elements), target="r", replacement=replacement, source="x", regex=regex)
        found = plan.run(EvaluationContext(Storage(), lambda *_: [], 0, 0, budget))
    except (PromqlError, RegexError, EvaluationError):
        return None
    return _made(dict(labels) for labels, _ in found)


def _made(elements: Any) -> Found:
    return {int(labels["i"]): labels["r"] for labels in elements if "r" in labels}


def their_matched(oracle: Any, pattern: str) -> Found:
    answer = oracle.ask(f"t{{x=~{quoted(pattern)}}}", AT + 1)
    return None if isinstance(answer, str) else {int(each["metric"]["i"]): "" for each in answer["result"]}


def their_replaced(oracle: Any, pattern: str, replacement: str) -> Found:
    answer = oracle.ask(f'label_replace(t, "r", {quoted(replacement)}, "x", {quoted(pattern)})', AT + 1)
    return None if isinstance(answer, str) else _made(each["metric"] for each in answer["result"])


def differences(oracle: Any, given: Sequence[str], patterns: Patterns, count: int) -> Iterator[str]:
    """Where we and a Prometheus that has `samples(given)` answer differently."""
    for _ in range(count):
        pattern, replacement = patterns.one(), patterns.replacement()
        ours, theirs = matched(given, pattern), their_matched(oracle, pattern)
        if ours != theirs:
            yield f"{pattern!r} matches {_shown(given, ours)} here and {_shown(given, theirs)} there"
        ours, theirs = replaced(given, pattern, replacement), their_replaced(oracle, pattern, replacement)
        if ours != theirs:
            how = f"{pattern!r} with {replacement!r}"
            yield f"{how} makes {_shown(given, ours)} here and {_shown(given, theirs)} there"


def _shown(given: Sequence[str], found: Found) -> str:
    return "nothing: refused" if found is None else str({given[number]: made for number, made in found.items()})


def main(program: str, count: int, seed: int) -> int:
    from tests.promql import oracle as running

    given = texts(seed, 250)
    with tempfile.TemporaryDirectory() as folder, running.running(program, Path(folder)) as oracle:
        oracle.write(samples(given))
        found = list(differences(oracle, given, Patterns(seed), count))
    print(json.dumps({"expressions": count, "texts": len(given), "differences": found}, indent=1, ensure_ascii=False))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1))
