"""What to query instead of a neighbour's metric: our row, and how to get their value from it."""

from __future__ import annotations

from collections.abc import Sequence

from agent.catalogue import BY_NAME
from exporters.compatibility.foreign_names import ForeignName, Term

_LONGEST_SUM = 2


def our_words(name: ForeignName) -> str:
    """A query for the neighbour's value; for one that is put together of many series, the row that they are of."""
    if name.newest:
        return name.terms[-1].row
    if len(name.terms) > _LONGEST_SUM:
        return name.terms[0].row
    above = _summed(name.terms)
    return f"{above} / {_summed(name.divisor)}" if name.divisor else above


def _summed(terms: Sequence[Term]) -> str:
    text = " + ".join(_term(term) for term in terms)
    factors = {term.factor for term in terms}
    factor = factors.pop() if len(factors) == 1 else 1.0
    if factor == 1.0:
        return text
    scale = f" * {factor:g}" if factor > 1 or not (1 / factor).is_integer() else f" / {_number(1 / factor)}"
    return f"({text}){scale}" if len(terms) > 1 else f"{text}{scale}"


def _number(value: float) -> str:
    return {2.0**20: "2^20", 1e6: "1e6"}.get(value, f"{value:g}")


def _term(term: Term) -> str:
    pairs = ", ".join(f'{label}="{value}"' for label, value in zip(BY_NAME[term.row].labels, term.labels, strict=False))
    series = f"{term.row}{{{pairs}}}" if pairs else term.row
    return f"rate({series}[1m])" if term.rate else series
