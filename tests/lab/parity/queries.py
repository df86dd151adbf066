"""Generated queries, answered here and by Prometheus from the same samples.

Most of them are such as can be evaluated; some try the grammar. Values are compared, and whether both fail; never the
texts of errors.
"""

import argparse
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.lab.parity.dataset import END, samples
from tests.lab.parity.oracles import DIFFERS, Judged, Recent
from tests.lab.parity.speech import Speaker
from tests.promql import oracle
from tests.promql.answers import Answer, Refusal, ours, same, theirs

_CHOOSES = re.compile(r"\s*(topk|bottomk)\b")
_ORDERS = re.compile(r"\s*(sort|sort_desc) ?\(")
# A label without name and value means all series to the storage there, which it then refuses.
_ALL_SERIES = re.compile(r"""(?:""|''|``)\s*[=!][=~]?\s*(?:""|''|``)""")
_NATIVE = re.compile(r"function histogram_\w+\(\) is not supported here")


class Asked(NamedTuple):
    """A query at an instant, with both answers."""

    query: str
    at: float
    own: Answer
    other: Answer

    def agree(self) -> bool:
        if same(self.own, self.other) or same(_rounded(self.own), _rounded(self.other)):
            return not _ORDERS.match(self.query) or _values(self.own) == _values(self.other)
        # Which of several equal elements are chosen is left to chance there.
        own, other = _values(self.own), _values(self.other)
        return (
            bool(_CHOOSES.match(self.query)) and own is not None and other is not None and sorted(own) == sorted(other)
        )

    @property
    def verdict(self) -> str:
        if not self.agree():
            native = isinstance(self.own, Refusal) and _NATIVE.search(self.own.text)
            return "out of scope: native histograms" if native else DIFFERS
        if isinstance(self.own, Refusal):
            return "refused by both" if self.own.at_load else "fail in both"
        return "answer alike" if self.own != [] else "answer alike, with nothing"

    @property
    def words(self) -> str:
        return f"{self.query!r} at {self.at}\n    ours   {self.own}\n    theirs {self.other}"


def _rounded(answer: Answer) -> Answer:
    """The answer with the numbers in its labels rounded: `count_values` shows the last bit, where libraries differ."""
    if not isinstance(answer, list):
        return answer
    return [({name: _shorter(text) for name, text in labels.items()}, value) for labels, value in answer]


def _shorter(text: str) -> str:
    return f"{float(text):.12g}" if re.fullmatch(r"-?[0-9.]{13,}", text) else text


def _values(answer: Answer) -> list[str] | None:
    return [f"{value:.9g}" for _, value in answer] if isinstance(answer, list) else None


def asked(prometheus: str, folder: Path, seed: int, count: int) -> Iterator[Asked]:
    held = samples()
    storage = oracle.filled(held)
    with oracle.running(prometheus, folder) as server:
        server.write(held)
        for query, at in said(seed, count):
            yield Asked(query, at, ours(storage, query, at), theirs(server.ask(query, at)))


def said(seed: int, count: int) -> Iterator[tuple[str, float]]:
    speaker = Speaker(seed)
    for number in range(count):
        text = '""=""'
        while _ALL_SERIES.search(text):
            text = (speaker.query, speaker.damaged, speaker.odd)[(number % 10 == 9) + (number % 20 == 9)]()
        yield text, END if "absent" in text else speaker.instant()


def judged(recent: Recent, options: argparse.Namespace) -> Judged:
    """Whether both answer alike, or fail both, for `options.queries` queries."""
    with tempfile.TemporaryDirectory() as folder:
        for each in asked(recent.prometheus, Path(folder), options.seed, options.queries):
            yield each.verdict, each.words
