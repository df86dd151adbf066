"""Queries as a board needs them: each metric narrowed by the board's variables, and a legend that distinguishes series.

A board writes `max by (gpu) (coldplate_gpu_power_watts)`; the matchers that its variables ask for are put in here,
for the labels that each metric has. Queries are text here: the tests show that they parse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.catalogue import BY_NAME
from agent.model import Gpu, NvLink, Rack
from dashboards import terms
from dashboards.rulebook import recorded

TOKEN = re.compile(r'"[^"]*"|\$?\{\w[^}]*\}|\$\w+|[a-zA-Z_:][a-zA-Z0-9_:]*')
BUILTIN = {"up": ("cluster", "instance"), "ALERTS": ("instance",)}
"""Series that Prometheus itself makes, with the labels by which they can be narrowed."""
_LEVELS = {
    "cluster": ("cluster",), "node": ("cluster", "instance"), "gpu": ("instance", "gpu"), "port": ("instance",),
    "job": ("instance", "job_id"), "rack": ("rack",), "feed": ("rack",),
}  # fmt: skip
_BY = re.compile(r"\bby \(([^)]*)\)")
_BARE = re.compile(r"\s*(?:(?:i?rate|increase|changes|\w+_over_time)\()?(coldplate_\w+)(\{[^}]*\})?(?:\[[^\]]*\]\))?"
                   r"(?:\s*(?:==|!=|>|<)\s*\d+)?\s*")  # fmt: skip


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One query of a panel; without a legend, one is found."""

    expr: str
    legend: str | None = None


def is_series(token: str) -> bool:
    """Whether a token names a series that exists: in the catalogue, in the rule files, or Prometheus's own."""
    return token in BY_NAME or token in recorded() or token in BUILTIN


def names_in(expr: str) -> list[str]:
    """The series that a query reads, in order."""
    return [each[0] for each in TOKEN.finditer(expr) if is_series(each[0])]


def labels_of(name: str) -> tuple[str, ...]:
    """The labels of a series by which a board may narrow it."""
    row = BY_NAME.get(name)
    if row is not None:
        own = ("gpu",) if row.entity in (Gpu, NvLink) else ("rack",) if row.entity is Rack else ()
        return ("cluster", "instance", *own, *(each for each in row.labels if each == "job_id"))
    if name in BUILTIN:
        return BUILTIN[name]
    level = _LEVELS[name.split(":")[0]]
    return (*level, "job_id") if name.startswith("gpu:") and _knows_job(name) else level


def _knows_job(name: str) -> bool:
    """Whether a recorded series of GPUs has the label of their job, going by its query or the series that it reads."""
    expr = recorded().get(name, "")
    return "job_id" in expr or any(_knows_job(each) for each in names_in(expr) if each in recorded())


def narrowed(expr: str, matchers: Mapping[str, str]) -> str:
    """The query with each series narrowed by the matchers for the labels that it has."""
    made, last = [], 0
    for token in TOKEN.finditer(expr):
        if not is_series(token[0]) or expr[token.end() :].lstrip()[:1] == "(":
            continue
        rest = expr[token.end() :]
        given = rest[1 : rest.index("}")] if rest.startswith("{") else ""
        wanted = [
            matchers[label]
            for label in labels_of(token[0])
            if label in matchers and not re.search(rf"(^|[\s,]){label}\s*[=!]", given)
        ]
        end = token.end() + (len(given) + 2 if rest.startswith("{") else 0)
        inside = ", ".join(filter(None, [*wanted, given]))
        made += [expr[last : token.end()], f"{{{inside}}}" if inside else ""]
        last = end
    return "".join((*made, expr[last:]))


def legend_for(query: PanelQuery, title: str, pinned: frozenset[str]) -> str:
    """The query's legend: the given one, or one made from the labels of its result."""
    if query.legend is not None:
        return query.legend
    bare = _BARE.fullmatch(query.expr)
    if bare is not None:
        return terms.legend_of(BY_NAME[bare[1]], pinned) or title
    by = _BY.search(query.expr)
    labels = tuple(each.strip() for each in by[1].split(",")) if by else ()
    return terms.legend_by(labels, pinned) or title
