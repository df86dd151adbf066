"""Regular expressions and replacements from a seed, of every construct that RE2 or Go reads in a way of its own."""

import random
import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from alerts.promql import EvaluationError, Matcher, PromqlError, Storage, make_labels
from alerts.promql.budget import Budget
from alerts.promql.instant_functions import label_replace, replace_regex
from alerts.promql.plan import Elements, EvaluationContext, LabelSpace, VectorPlan
from alerts.regex import RegexError
from tests.grammar import Grammar

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


_USUAL = {
    "alternatives": (*("<sequence>",) * 3, "<sequence>|<sequence>", "<sequence>|<sequence>|<sequence>"),
    "sequence": ("", *("<repeated>" * count for count in (1, 1, 2, 2, 3, 4))),
    "repeated": ("<atom>", "<atom>", "<atom><repeat>"),
    "atom": (*("<letter>", "<group>") * 6, ".", ".", "<escape>", "<escape>", "<set>", "<set>", "<set>", "<edge>",
             "<flag>", "<quoted>"),
    "letter": tuple("aabbcAB01_-\u00e9\u00c9\u017f\u212a\u4e2d"),
    "group": ("<letter>", "<opening><alternatives>)", "<opening><alternatives>)", "<mark><alternatives>)"),
    "mark": ("(?P<n#>",),
    "edge": ("^", "$", r"\b", r"\B", r"\A", r"\z"),
    "quoted": (r"\Qa.b\E", r"\Q[\E", r"\Qa\E", r"\Q\E", r"\Q*\E", r"\Q\\E", r"\Q(?i)\E", r"\Q\u00e9\E", r"\Q$\E"),
    "set": tuple(shape.replace("{}", items) for items in ("<item>", "<item><item>", "<item><item><item>")
                 for shape in ("[{}]", "[{}]", "[^{}]", "[]{}]", "[{}-]", "[-{}]", "[^]{}]", "[^-{}]")),
    "escape": _ESCAPES, "item": _SET_ITEMS, "repeat": _REPEATS, "flag": _FLAGS, "opening": _OPENINGS,
    "shape": [shape.replace("{}", "<words>") for shape in _SHAPES],
    "words": ("<word>", "<word>|<word>", "<word>|<word>|<word>", "<word>|<word>|<word>|<word>"),
    "word": ("", "<plain>", "<plain><plain>"),
    "plain": tuple("abAB0-_"),
}  # fmt: skip
_ODD = {"escape": _ODD_ESCAPES, "item": _ODD_SET_ITEMS, "repeat": _ODD_REPEATS, "flag": _ODD_FLAGS,
        "opening": _ODD_OPENINGS}  # fmt: skip


class Patterns(Grammar):
    """Makes expressions, without the groups `(?<n>...)`, which Prometheus 2 does not know."""

    def __init__(self, seed: int) -> None:
        super().__init__(_USUAL, random.Random(seed), _ODD)

    def one(self) -> str:
        r"""One expression; one in seven has something that may be refused.

        None ends inside of \Q: Prometheus refuses that or not depending on its version, and on the brackets around it.
        """
        while _OPEN_QUOTE.search(made := self._one()):
            pass
        return made

    def _one(self) -> str:
        self.oddness = 0.15 if self.dice.random() < 0.15 else 0.0
        if self.dice.random() < 0.1:  # what is usual in rules: words, beginnings and ends
            return self.say("shape", 0)
        names = count(1)
        made = re.sub("n#", lambda _: f"n{next(names)}", self.say("alternatives", 19))
        if self.oddness and self.dice.random() < 0.3:  # a bracket too many, or one too few
            place = self.dice.randrange(len(made) + 1)
            made = made[:place] + self.dice.choice(["(", ")", "[", "]", "\\", "*", "{", ""]) + made[place + 1 :]
        return made

    def replacement(self) -> str:
        """A text with references to groups."""
        return "".join(self.dice.choices(_REFERENCES, k=self.dice.randrange(6)))


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

    elements: Elements

    def run(self, moment: EvaluationContext) -> Elements:
        return self.elements


def replaced(given: Sequence[str], pattern: str, replacement: str) -> Found:
    """What our `label_replace` makes."""
    elements = [(make_labels({"i": str(number), "x": text}), 1.0) for number, text in enumerate(given)]
    try:
        regex = replace_regex(pattern)
        space, budget, source = LabelSpace(), Budget(), Storage()
        space.begin(source, budget)
        plan = label_replace(space, _Given(elements), target="r", replacement=replacement, source="x", regex=regex)
        found = plan.run(EvaluationContext(source, 0, 0, budget))
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
