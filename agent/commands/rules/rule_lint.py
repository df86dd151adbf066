"""Advice of `rules check` on valid rule files: unknown names, metrics that are not exposed, names of
other exporters, queries that return nothing when they should, and ranges that the daemon has no memory for."""

import difflib
from collections.abc import Container, Iterable, Iterator

from agent.catalogue import BY_NAME
from agent.catalogue.groups import Profile, profile_of
from agent.catalogue.infiniband import PREFIX as DRIVERS_PREFIX
from agent.commands.compat_check.query_verdicts import ANY_LABEL, MISSING, verdict_on
from agent.lib import wording
from agent.model import Gpu, IbPort, Metric, NvLink
from alerts.engine import INTERVAL_SECONDS
from alerts.promql import Matcher, Query
from alerts.promql.labels import only_metric_name
from alerts.promql.syntax import parse
from alerts.promql.syntax.tree import Expression, FunctionCall, VectorSelector, parts_of
from alerts.rule_inputs import SUMS
from alerts.rulefile import RecordingRule, Rule, RuleFile, RuleGroup
from alerts.windows.needs import range_of, selectors_of
from alerts.windows.store import CAPACITY, price_of, too_long
from alerts.yamlnodes import Problem
from exporters.compatibility import PROFILES

PREFIX = "coldplate_"
OF_TARGETS = frozenset({"rack", "node", "cluster", "instance", "job"})
"""Labels that scraping may give to every series."""
OF_GROWTH = frozenset({"increase", "rate", "irate", "delta", "idelta", "deriv", "changes"})
FOREIGN_PREFIXES = tuple(
    prefix for profile in PROFILES.values() for prefix in profile.prefixes if profile.word != "nvitop"
)
"""Prefixes that only one other exporter's names have; nvitop's are words that many exporters begin a name with."""
GPUS = 8
"""The GPUs of a node, where a range is judged without one."""
PER_GPU = (Gpu, NvLink, IbPort)
_LABELS = {label for row in BY_NAME.values() for label in row.label_names} - OF_TARGETS
_STEMS = [name.removeprefix(PREFIX) for name in BY_NAME]


def lint_file(file: RuleFile, profile: Profile = Profile.DEFAULT) -> Iterator[Problem]:
    """Yield a problem for each doubtful expression, in the order of the rules; none makes the file invalid.

    `profile` is that of the pages that a server scrapes.
    """
    recorded = {rule.name for group in file.groups for rule in group.rules if isinstance(rule, RecordingRule)}
    for _, rule, place in _rules(file):
        for text in dict.fromkeys(lint_query(rule.query, recorded, profile)):
            yield Problem(file.path, rule.line, place, text)


def too_long_ranges(file: RuleFile) -> Iterator[Problem]:
    """Yield a problem for each rule whose range needs more memory than a node has: the daemon refuses that rule."""
    for group, rule, place in _rules(file):
        worst = 0.0
        for selector in selectors_of(rule):
            row = BY_NAME.get(only_metric_name(selector.matchers) or "")
            count = GPUS if row is not None and row.entity in PER_GPU else 1
            history = range_of(selector, group)
            if count * price_of(history, INTERVAL_SECONDS) > CAPACITY:
                worst = max(worst, history)
        if worst:
            text = too_long(worst, price_of(worst, INTERVAL_SECONDS), CAPACITY)
            yield Problem(file.path, rule.line, place, text)


def _rules(file: RuleFile) -> Iterator[tuple[RuleGroup, Rule, str]]:
    """Yield each rule with its group, and what the reader of rule files calls it."""
    for group in file.groups:
        for number, rule in enumerate(group.rules, 1):
            kind = "record" if isinstance(rule, RecordingRule) else "alert"
            yield group, rule, f"group {wording.shown(group.name)}, rule {number}, {kind} {wording.shown(rule.name)}"


def lint_query(query: Query, recorded: Container[str] = (), profile: Profile = Profile.DEFAULT) -> Iterator[str]:
    """Yield a sentence for each doubtful part; `recorded` are names of metrics that rules record."""
    for selector in query.selectors:
        name = only_metric_name(selector.matchers) or ""
        if name in recorded:
            continue
        if not name.startswith(PREFIX):
            yield from _of_neighbours(name)
            continue
        metric = BY_NAME.get(name)
        if metric is not None:
            yield from _of_row(metric, [matcher.name for matcher in selector.matchers], profile)
            yield from _of_values(metric, selector.matchers)
        elif not name.startswith(DRIVERS_PREFIX):  # drivers have counters of their own names
            near = difflib.get_close_matches(name.removeprefix(PREFIX), _STEMS, 1, 0.6)
            hint = f"did you mean '{PREFIX}{near[0]}'?" if near else "see docs/metrics.md for the names"
            yield f"coldplate has no metric {name}; {hint}"
    yield from _of_growth(parse(query.text))


def _of_neighbours(name: str) -> Iterator[str]:
    """Yield names of other exporters, which a page has where they are asked for, and a rule on the node never finds."""
    verdict = verdict_on(name)
    theirs = PROFILES.get(verdict.source)
    if theirs is not None:
        yield (
            f"{name} is a name of {theirs.title}: a Prometheus server finds it on coldplate's page only with "
            f"metrics: {{compatibility: [{theirs.word}]}}, a rule on the node never; use {verdict.instead}"
        )
    elif name in MISSING or name.startswith(FOREIGN_PREFIXES):
        instead = f"; use {verdict.instead}" if verdict.instead else ""
        yield f"coldplate does not serve {name}: {verdict.reason}{instead}"


def _of_growth(tree: Expression) -> Iterator[str]:
    """Warn that growth misses the first sample of a counted series, which is already the error."""
    for call in parts_of(tree):
        if not isinstance(call, FunctionCall) or call.name not in OF_GROWTH:
            continue
        for part in parts_of(call):
            row = BY_NAME.get(only_metric_name(part.matchers) or "") if isinstance(part, VectorSelector) else None
            if row is not None and row.name in SUMS:
                yield (
                    f"{call.name}() of {row.name} misses the first error of each series, which starts with it; "
                    f"use {SUMS[row.name]}, or compare with > 0"
                )


def _of_values(metric: Metric, matchers: Iterable[Matcher]) -> Iterator[str]:
    """Yield values that the row's label never has, if the row's origins list all of them."""
    known_labels: list[tuple[str, ...]] = [getattr(origin, "labels", ()) for origin in metric.origin]
    if not metric.labels or not all(len(values) == len(metric.labels) for values in known_labels):
        return
    for matcher in matchers:
        if matcher.name not in metric.labels or matcher.operator != "=" or not matcher.value:
            continue
        values = sorted({values[metric.labels.index(matcher.name)] for values in known_labels})
        if matcher.value not in values:
            yield f"{metric.name} has no {matcher.name} {matcher.value!r}; it has {', '.join(values)}"


def _of_row(metric: Metric, labels: Iterable[str], profile: Profile) -> Iterator[str]:
    needed = profile_of(metric)
    if needed > profile:
        where = "by default" if profile is Profile.DEFAULT else f"in the {profile.word} profile"
        yield (
            f"{metric.name} is not exposed {where}, so a Prometheus server does not see it; "
            f"expose it with metrics: {{include: [{metric.name}]}}, or with metrics: {{profile: {needed.word}}}"
        )
    has = metric.label_names
    for label in labels:
        if label in has or label in OF_TARGETS or metric.name in ANY_LABEL or label == "__name__":
            continue
        near = difflib.get_close_matches(label, has, 1, 0.7)
        if near or label in _LABELS:
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(has) or 'none'}"
            yield f"{metric.name} has no label {label}{hint}"
