"""Decide whether coldplate has what queries name: under its own names, under another exporter's, or not at all."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from agent.catalogue import BY_NAME
from agent.catalogue.groups import Profile, profile_of
from agent.catalogue.infiniband import PREFIX as DRIVERS_PREFIX
from agent.commands.compat_check.query_extraction import (
    OPEN,
    ExtractedQuery,
    NoQueriesError,
    read_queries,
    without_variables,
)
from agent.lib.wording import one_line
from alerts.promql import Matcher, PromqlError
from alerts.promql.labels import METRIC_NAME, only_metric_name
from alerts.promql.syntax import parse
from alerts.promql.syntax.tree import (
    AggregateExpr,
    BinaryExpr,
    Expression,
    FunctionCall,
    StringLiteral,
    VectorSelector,
    parts_of,
)
from exporters.compatibility import PROFILES
from exporters.compatibility.foreign_names import our_words

OURS, SERVER, RECORDED = "coldplate", "prometheus", "recorded"
_OF_SERVERS = frozenset({"up", "ALERTS", "ALERTS_FOR_STATE"})
_OF_TARGETS = frozenset(
    {"instance", "job", "node", "rack", "cluster", "namespace", "pod", "container", "service", "endpoint", "le"}
)
"""Labels that scraping may give to every series."""
ANY_LABEL = frozenset({"coldplate_alert", "coldplate_alert_text_info", "coldplate_metric_missing"})
"""Metrics whose series have labels of another entity."""

_MAKERS = frozenset({"label_replace", "label_join", "count_values"})
"""What makes labels, whose names are among its texts."""
_MOST_CHOICES = 64

FOREIGN = {foreign.name: (profile, foreign) for profile in PROFILES.values() for foreign in reversed(profile.names)}
MISSING = {missing.name: missing for profile in PROFILES.values() for missing in profile.not_served}


class MetricVerdict(Struct, frozen=True, rename={"reason": "why"}):
    """A metric of a query. `source` is coldplate, a profile's word, prometheus, recorded, or empty if unknown.

    `instead` is what to query on coldplate, `reason` a remark or a reason (`why` in JSON); either may be empty. `spare`
    means that the query does without it.
    """

    name: str
    source: str
    instead: str = ""
    reason: str = ""
    spare: bool = False


class QueryVerdict(Struct, frozen=True):
    """A query, its metrics, and remarks about labels. `open` means that only Grafana knows a metric's name.

    `unread` says why the query was not judged.
    """

    place: str
    query: str
    metrics: tuple[MetricVerdict, ...] = ()
    remarks: tuple[str, ...] = ()
    unread: str = ""
    open: bool = False

    @property
    def finds_data(self) -> bool:
        """Whether every metric that it names is there under some name, and every label that must have a value."""
        return not self.unread and all(metric.source or metric.spare for metric in self.metrics)

    @property
    def word(self) -> str:
        """OK, NONE for a query without data, OPEN if only Grafana knows it, or UNREAD if it was not judged."""
        if self.unread:
            return "UNREAD"
        if not self.finds_data:
            return "NONE"
        return "OPEN" if self.open else "OK"


def evaluate_query(query: ExtractedQuery, recorded: Collection[str] = ()) -> QueryVerdict:
    """Return a verdict on a query; `recorded` are names of metrics that rules record."""
    verdict = QueryVerdict(query.place, query.text, unread=query.unread)
    if query.unread:
        return verdict
    try:
        parts = list(parts_of(parse(without_variables(query.text))))
    except PromqlError as error:
        return replace(verdict, unread=str(error))
    metrics: dict[str, MetricVerdict] = {}
    remarks: list[str] = []
    selectors = [part for part in parts if isinstance(part, VectorSelector)]
    names = [(selector.matchers, name) for selector in selectors if (name := _name_matcher(selector.matchers))]
    for matchers, name in names:
        if OPEN not in name.value:
            metric = verdict_on(name.value, recorded) if name.operator == "=" else _any_of(name)
            metrics.setdefault(metric.name, metric)
            needed = [matcher.name for matcher in matchers if _needs_label(matcher)]
            remarks += [f"{metric.name} has no label {label}" for label in _absent_labels([metric], needed)]
    absent = _absent_labels(list(metrics.values()), (*_grouping(parts), *query.labels))
    remarks += [f"no metric of the query has the label {label}" for label in absent]
    spare = set(_spare(parts, {metric.name for metric in metrics.values() if metric.source}))
    return replace(
        verdict,
        metrics=tuple(replace(metric, spare=metric.name in spare) for metric in metrics.values()),
        remarks=tuple(dict.fromkeys(remarks)),
        open=any(OPEN in name.value for _, name in names),
    )


def _name_matcher(matchers: Iterable[Matcher]) -> Matcher | None:
    """Return what says which metrics are selected; None if nothing does."""
    of_name = [
        matcher
        for matcher in matchers
        if matcher.name == METRIC_NAME and matcher.operator in ("=", "=~") and matcher.value
    ]
    return min(of_name, key=lambda matcher: matcher.operator, default=None)


def _needs_label(matcher: Matcher) -> bool:
    """Return whether a matcher of a label leaves out series without it."""
    return matcher.name != METRIC_NAME and OPEN not in matcher.value and not matcher.matches("")


def _grouping(parts: Iterable[Expression]) -> Iterator[str]:
    """Yield the labels to group or join by, without those that the query makes itself."""
    labels: list[str] = []
    made_labels: set[str] = set()
    for part in parts:
        texts: Sequence[Expression | None] = ()
        if isinstance(part, AggregateExpr):
            labels += part.grouping.labels
            texts = (part.parameter,) if part.operator in _MAKERS else ()
        elif isinstance(part, BinaryExpr):
            labels += (*part.matching.labels, *part.matching.include)
        elif isinstance(part, FunctionCall):
            texts = part.arguments if part.name in _MAKERS else ()
        made_labels |= {text.value for text in texts if isinstance(text, StringLiteral)}
    yield from (label for label in labels if label not in made_labels and OPEN not in label)


def _spare(parts: Iterable[Expression], present: AbstractSet[str]) -> Iterator[str]:
    """Yield names that are one side of an `or` whose other side is all there."""
    choices = (part for part in parts if isinstance(part, BinaryExpr) and part.operator == "or")
    for choice in islice(choices, _MOST_CHOICES):
        sides = _names(choice.lhs), _names(choice.rhs)
        for side, other in (sides, sides[::-1]):
            if side and side <= present:
                yield from other


def _names(tree: Expression) -> set[str]:
    return {only_metric_name(part.matchers) or "" for part in parts_of(tree) if isinstance(part, VectorSelector)}


def verdict_on(name: str, recorded: Collection[str] = ()) -> MetricVerdict:
    metric = BY_NAME.get(name)
    if metric is not None:
        hint = f"not by default: metrics: {{include: [{name}]}}" if profile_of(metric) > Profile.DEFAULT else ""
        return MetricVerdict(name, OURS, reason=hint)
    if name.startswith(DRIVERS_PREFIX):
        return MetricVerdict(name, OURS, reason="if the port's driver has such a counter")
    if name in recorded:
        return MetricVerdict(name, RECORDED)
    if name in _OF_SERVERS or name.startswith("scrape_"):
        return MetricVerdict(name, SERVER)
    if name in FOREIGN:
        profile, foreign = FOREIGN[name]
        return MetricVerdict(name, profile.word, our_words(foreign), foreign.note)
    if name in MISSING:
        return MetricVerdict(name, "", MISSING[name].instead, MISSING[name].reason)
    return MetricVerdict(name, "", reason=_unknown(name))


def _unknown(name: str) -> str:
    if name.startswith("coldplate_"):
        return "coldplate has no metric of this name; docs/metrics.md lists them"
    if ":" in name:
        return "a recording rule's name; give the file with the rule as well"
    foreign_profile = next((profile for profile in PROFILES.values() if name.startswith(profile.prefixes)), None)
    if foreign_profile is None:
        return "not a coldplate metric; keep its exporter"
    return f"{foreign_profile.title} may have it, coldplate has nothing for it"


def _any_of(pattern: Matcher) -> MetricVerdict:
    """Return where the metrics are whose names match a regular expression: the first table that has one."""
    selector = f"{{__name__=~{pattern.value!r}}}"
    if any(map(pattern.matches, BY_NAME)):
        return MetricVerdict(selector, OURS)
    for profile in PROFILES.values():
        if any(pattern.matches(foreign.name) for foreign in profile.names):
            return MetricVerdict(selector, profile.word)
    return MetricVerdict(selector, "", reason="no name of coldplate's or of a neighbour's matches")


def labels_on(metric: MetricVerdict) -> frozenset[str] | None:
    """Return the labels that the metric's series may have; None if that is not known."""
    ours = BY_NAME.get(metric.name)
    if ours is not None and ours.name not in ANY_LABEL:
        return _OF_TARGETS.union(ours.label_names)
    profile = PROFILES.get(metric.source)
    return None if profile is None else frozenset(profile.labels) | _OF_TARGETS


def _absent_labels(metrics: Sequence[MetricVerdict], labels: Iterable[str]) -> Iterator[str]:
    """Yield the labels that are on none of the metrics, with what to use instead; none unless all of them are known."""
    label_sets = [labels_on(metric) for metric in metrics]
    present = frozenset().union(*(label_set for label_set in label_sets if label_set is not None))
    if metrics and None not in label_sets:
        yield from (f"{label}{_better(metrics[0], label)}" for label in labels if label not in present)


def _better(metric: MetricVerdict, label: str) -> str:
    """Return what to use instead, by the profile's table."""
    profile = PROFILES.get(metric.source)
    better = profile.renamed.get(label) if profile is not None else _OURS_FOR.get(label)
    if better is None:
        return ""
    if label.startswith("exported_"):
        return f"; it is {better}, unless scraping adds a {better} of its own without honor_labels"
    return f"; it is {better}"


_OURS_FOR = {
    "UUID": "uuid",
    "index": "gpu",
    "Hostname": "instance, or a label that scraping adds",
    "hostname": "instance, or a label that scraping adds",
    "modelName": "model, on coldplate_gpu_info",
    "hpc_job": "job_id, on coldplate_gpu_job_info",
    "GPU_I_ID": "gpu_instance, on the metrics of MIG",
}
"""Neighbours' labels, and where the same is with our names."""


_GREEN, _YELLOW, _RED, _PLAIN = "\033[32m", "\033[33m", "\033[1;31m", "\033[0m"
_COLOURS = {"OK": _GREEN, "OPEN": _YELLOW, "NONE": _RED, "UNREAD": _YELLOW}
_LONGEST = 1000


class CheckedFile(Struct, frozen=True):
    """A file, and what became of its queries; `problem` says why none could be read."""

    name: str
    queries: tuple[QueryVerdict, ...] = ()
    problem: str = ""


def check_files(paths: Sequence[Path]) -> list[CheckedFile]:
    """Return the verdicts on each file. All are read first: what the rules of one record, the others may ask for."""
    read: list[tuple[Path, tuple[ExtractedQuery, ...], str]] = []
    for path in paths:
        try:
            read.append((path, read_queries(path), ""))
        except NoQueriesError as error:
            read.append((path, (), str(error)))
    recorded = {query.record for _, queries, _ in read for query in queries if query.record}
    return [
        CheckedFile(str(path), tuple(evaluate_query(query, recorded) for query in queries), problem)
        for path, queries, problem in read
    ]


def profiles_of(files: Sequence[CheckedFile]) -> list[str]:
    """Return the profiles that the queries need, in the order of the table."""
    sources = {metric.source for file in files for query in file.queries for metric in query.metrics}
    return [word for word in PROFILES if word in sources]


def lines(files: Sequence[CheckedFile], coloured: bool) -> Iterator[str]:
    """Yield what a person reads."""
    for file in files:
        name = one_line(file.name, _LONGEST)
        if file.problem:
            continue
        words = [query.word for query in file.queries]
        unread = words.count("UNREAD")
        answered = len(words) - words.count("NONE") - unread
        yield f"{name}: {answered} of {len(words)} queries find data" + (f", {unread} unread" if unread else "")
        for query in file.queries:
            yield from _query(query, coloured)
    needed = profiles_of(files)
    if needed:
        yield f"\nto serve these names, set  metrics: {{compatibility: [{', '.join(needed)}]}}"


def _query(query: QueryVerdict, coloured: bool) -> Iterator[str]:
    word = f"{_COLOURS[query.word]}{query.word:6}{_PLAIN}" if coloured else f"{query.word:6}"
    summary = (
        query.unread
        or ", ".join(f"{metric.name} ({metric.source or 'nowhere'})" for metric in query.metrics)
        or ("a name that only Grafana knows" if query.word == "OPEN" else "no metric is needed")
    )
    yield f"  {word}  {query.place}: {one_line(summary, _LONGEST)}"
    for metric in query.metrics:
        if metric.spare:
            continue
        if not metric.source:
            use = f"; use {metric.instead}" if metric.instead else ""
            yield f"          {one_line(metric.name)}: {metric.reason}{use}"
        elif metric.instead:
            yield f"          {one_line(metric.name)} is {metric.instead}" + (
                f" ({metric.reason})" if metric.reason else ""
            )
        elif metric.reason:
            yield f"          {one_line(metric.name)}: {metric.reason}"
    yield from (f"          label: {one_line(remark, _LONGEST)}" for remark in query.remarks)


def document(files: Sequence[CheckedFile]) -> str:
    """Return the same in JSON."""
    listed = [
        {
            "file": file.name,
            "problem": file.problem,
            "queries": [{**to_builtins(query), "verdict": query.word} for query in file.queries],
        }
        for file in files
    ]
    return json.dumps({"compatibility": profiles_of(files), "files": listed}, indent=2)
