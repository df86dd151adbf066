"""Loads rule files in Prometheus's format, strictly, and rejects what cannot be evaluated before anything runs.

All errors of a file are reported at once, each with file, line, group, rule and remedy. Queries and
templates are compiled here. A file that Prometheus 3 rejects is rejected here too, and one that it loads is loaded,
with a warning about doubtful content.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Union

from msgspec import Struct
from msgspec.structs import replace

from agent.lib import textfile, yamltree
from agent.lib.wording import one_line, shown
from agent.lib.yamltree import Bounds, Node
from alerts.lifecycle import RuleTiming
from alerts.limits import CHARACTERS_OF_TOKEN, MAX_RULE_TOKENS, MAX_RULES
from alerts.promql import PromqlError, Query, compile_query, count_tokens
from alerts.template import Template, TemplateError, UnknownQueryError, broken_template, compile_template
from alerts.template.query_reads import reads_of
from alerts.yamlnodes import MOST_PROBLEMS, FileError, Problem, Reader, TooManyError, line_of

GROUP_KEYS = ("name", "interval", "limit", "query_offset", "labels", "rules")
DEFAULT_STEP_SECONDS = 60.0
RULE_KEYS = ("record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations")

_PLAIN_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Names in the exposition format's older versions; since 3.0, Prometheus accepts any text."""
_OLDER = "Prometheus before 3.0 rejects the file, and Alertmanager before 0.28 the label"

BOUNDS = Bounds(depth=16, nodes=150_000, characters=8 * 2**20)

Pairs = tuple[tuple[str, str], ...]
Templates = tuple[tuple[str, Template], ...]
_Texts = Mapping[str, tuple[str, Node]]
Identity = tuple[str, Pairs]
"""The identity of a rule across changes of its file: its name, and its labels as written."""


def is_label_name(name: str) -> bool:
    """Return whether a label may have this name: any Unicode text except that of the metric's name."""
    return bool(name) and name != "__name__" and not any("\ud800" <= letter <= "\udfff" for letter in name)


class RuleFileError(FileError):
    """A rule file cannot be used."""


class TooManyRulesError(RuleFileError):
    """The rules of a site are more than a node evaluates."""

    def __init__(self, file: str, line: int, limit: str) -> None:
        text = f"here the rules of this site exceed {limit}, the most on a node; give the rest to a Prometheus server"
        super().__init__([Problem(file, line, "", text)])


class RuleCount:
    """Counts rules and their tokens, over all files that it is passed to."""

    def __init__(self) -> None:
        self._rules = 0
        self._tokens = 0

    def add_rule(self, file: str, line: int) -> None:
        """Count a rule before it is compiled. Raises TooManyRulesError."""
        self._rules += 1
        if self._rules > MAX_RULES:
            raise TooManyRulesError(file, line, f"{MAX_RULES}")

    def add_tokens(self, file: str, line: int, tokens: int) -> None:
        """Count the tokens of a rule. Raises TooManyRulesError."""
        self._tokens += tokens
        if self._tokens > MAX_RULE_TOKENS:
            raise TooManyRulesError(file, line, f"{MAX_RULE_TOKENS} words and signs")


class RecordingRule(Struct, frozen=True, eq=False):
    """A rule that writes the result of its query as new series."""

    name: str
    query: Query
    expression: str
    labels: Pairs
    line: int

    @property
    def identity(self) -> Identity:
        return self.name, self.labels


class AlertingRule(Struct, frozen=True, eq=False):
    """A rule whose query's results are alerts."""

    name: str
    query: Query
    expression: str
    terms: RuleTiming
    labels: Templates
    annotations: Templates
    line: int

    @property
    def identity(self) -> Identity:
        return self.name, tuple((name, template.source) for name, template in self.labels)


Rule = Union[RecordingRule, AlertingRule]


def tokens_of(rule: Rule) -> int:
    """Return the words, numbers and signs of a rule's queries, and one for each 100 characters of all its texts."""
    texts = [rule.expression]
    queries = [rule.expression]
    if isinstance(rule, AlertingRule):
        for _, template in (*rule.labels, *rule.annotations):
            texts.append(template.source)
            queries += template.queries
    else:
        texts += [text for _, text in rule.labels]
    return sum(map(count_tokens, queries)) + sum(map(len, texts)) // CHARACTERS_OF_TOKEN


class RuleGroup(Struct, frozen=True, eq=False):
    """Rules evaluated in order, at one time. `interval` in seconds, None if the file has none; `limit` 0: no limit."""

    name: str
    file: str
    rules: tuple[Rule, ...]
    line: int
    interval: float | None = None
    limit: int = 0
    query_offset: float = 0.0


class RuleFile(Struct, frozen=True, eq=False):
    """The groups of a file. `warnings` are about doubtful content that Prometheus loads, too."""

    path: str
    groups: tuple[RuleGroup, ...]
    warnings: tuple[Problem, ...] = ()

    @property
    def rule_count(self) -> int:
        return sum(len(group.rules) for group in self.groups)

    def with_groups(self, change: Callable[[RuleGroup], RuleGroup]) -> RuleFile:
        """Return the file with each group changed."""
        return replace(self, groups=tuple(map(change, self.groups)))


def load(
    path: Path, *, default_step: float = DEFAULT_STEP_SECONDS, count: RuleCount | None = None, handed: bool = False
) -> RuleFile:
    """Return the rules of a file; `default_step` is that of subqueries without one. Raises RuleFileError.

    `count` counts the rules together with those of other files, if it is shared. `handed` allows a pipe of the command
    line (see `read_text`).
    """
    reader = Reader(str(path))
    loader = _RuleFileLoader(reader, default_step, count or RuleCount())
    return loader.file(reader.load(path, textfile.RULES, handed=handed))


def parse(text: str, name: str, *, default_step: float = DEFAULT_STEP_SECONDS) -> RuleFile:
    """Return the rules of a text; `name` is its name in errors. Raises RuleFileError."""
    return _RuleFileLoader(Reader(name), default_step, RuleCount()).file(text)


class _RuleFileLoader:
    def __init__(self, reader: Reader, default_step: float, count: RuleCount) -> None:
        self.reader = reader
        self._default_step = default_step
        self._count = count
        self._seen: dict[int, int] = {}
        self.warnings: list[Problem] = []

    def file(self, text: str) -> RuleFile:
        """Return the rules of a text. Raises RuleFileError."""
        reader = self.reader
        groups: tuple[RuleGroup, ...] = ()
        with contextlib.suppress(TooManyError):
            groups = self.groups(reader.compose(text, BOUNDS, lone=False))
            if reader.rest:
                unread = "is ignored after the end of a document: Prometheus reads only the first; merge them into one"
                self.warn(reader.rest, "", unread)
        if reader.problems:
            raise RuleFileError(reader.in_order())
        return RuleFile(reader.file, groups, tuple(self.warnings))

    def groups(self, tree: Node | None) -> tuple[RuleGroup, ...]:
        if tree is None:
            return ()
        reader = self.reader
        by_name: dict[str, RuleGroup] = {}
        for node in reader.items(reader.fields(tree, ("groups",), "").get("groups"), "groups"):
            group = self._group(node)
            if not group.name:
                reader.fail(node, "group", "name: is missing; give every group a name")
            elif group.name in by_name:
                text = f"name: is repeated in the same file (line {by_name[group.name].line}); give it another name"
                reader.fail(node, f"group {shown(group.name)}", text)
            by_name[group.name] = group
        return tuple(by_name.values())

    def _group(self, node: Node) -> RuleGroup:
        reader = self.reader
        name = self._group_name(node)
        where = f"group {shown(name)}"
        fields = reader.fields(node, GROUP_KEYS, where)
        labels = self._labels(fields.get("labels"), where)
        rules = [
            self._rule(rule_node, f"{where}, rule {number}", labels)
            for number, rule_node in enumerate(reader.items(fields.get("rules"), f"{where}, rules"), 1)
        ]
        return RuleGroup(
            name=name,
            file=reader.file,
            rules=tuple(rule for rule in rules if rule is not None),
            line=line_of(node),
            interval=reader.duration(fields.get("interval"), f"{where}, interval") or None,
            limit=reader.integer(fields.get("limit"), f"{where}, limit"),
            query_offset=reader.duration(fields.get("query_offset"), f"{where}, query_offset") or 0.0,
        )

    def _group_name(self, node: Node) -> str:
        """Return only the name, before anything is checked, because every message needs it."""
        pairs = yamltree.pairs_of(node, lambda *_: None) if isinstance(node, yamltree.YamlMapping) else ()
        for key, value in pairs:
            if key.text == "name" and isinstance(value, yamltree.YamlScalar) and not yamltree.is_null(value):
                return value.text
        return ""

    def _rule(self, node: Node, where: str, shared: _Texts) -> Rule | None:
        reader = self.reader
        self._count.add_rule(reader.file, line_of(node))
        before = len(reader.problems)
        fields = reader.fields(node, RULE_KEYS, where)
        record = reader.text(fields.get("record"), f"{where}, record")
        alert = reader.text(fields.get("alert"), f"{where}, alert")
        if record and alert:
            reader.fail(node, where, "only one of 'record' and 'alert' must be set; make two rules of it")
        elif not record and not alert:
            reader.fail(node, where, "one of 'record' or 'alert' must be set")
        if alert:
            where += f", alert {shown(alert)}"
        elif record:
            where += f", record {shown(record)}"
        query = self._query(fields.get("expr"), node, where)
        labels = {**shared, **self._labels(fields.get("labels"), where)}
        rule = (
            self._alerting(alert, query, fields, labels, where=where, shared=shared)
            if alert and not record
            else self._recording(record, query, fields, labels, where)
        )
        if rule is None or len(reader.problems) > before:
            return None
        self._check_identity(rule, node, labels, where)
        self._count.add_tokens(reader.file, line_of(node), tokens_of(rule))
        return rule

    def _query(self, node: Node | None, rule: Node, where: str) -> Query | None:
        text = self.reader.text(node, f"{where}, expr")
        if not text:
            self.reader.fail(node or rule, where, "expr: is missing; give the rule an expression")
            return None
        try:
            query = compile_query(text, default_step=self._default_step)
        except PromqlError as error:
            self.reader.fail(node, where, f"expr: {error}")
            return None
        if query.inevitable_error:
            self.warn(node or rule, where, f"expr: will fail at every evaluation: {query.inevitable_error}")
        return query

    def _labels(self, node: Node | None, where: str) -> _Texts:
        labels = self.reader.strings(node, f"{where}, labels")
        for name, (_, value) in labels.items():
            if not is_label_name(name):
                self.reader.fail(value, where, f"labels: invalid label name {shown(name)}; use letters, digits and _")
            elif not _PLAIN_LABEL.fullmatch(name):
                self.warn(value, where, f"labels: the name {shown(name)} needs Prometheus 3: {_OLDER}")
        return labels

    def _recording(
        self, name: str, query: Query | None, fields: Mapping[str, Node], labels: _Texts, where: str
    ) -> RecordingRule | None:
        for key in ("for", "keep_firing_for", "annotations"):
            if key in fields and name:
                self._check_idle(key, fields[key], where)
        if name and ("{" in name or "}" in name):
            self.reader.fail(fields["record"], where, f"record: {shown(name)} has braces; selectors belong in expr")
        elif name and not _PLAIN_METRIC.fullmatch(name):
            text = f"record: the name {shown(name)} needs Prometheus 3: Prometheus before 3.0 rejects the file"
            self.warn(fields["record"], where, text)
        if query is None:
            return None
        pairs = tuple(sorted((label, text) for label, (text, _) in labels.items()))
        return RecordingRule(name, query, query.text, pairs, line_of(fields.get("record")))

    def _check_idle(self, key: str, node: Node, where: str) -> None:
        """Check a key that recording rules do not have: Prometheus accepts it if it is empty."""
        if key == "annotations":
            is_idle = not self.reader.strings(node, f"{where}, annotations")
        else:
            is_idle = self.reader.duration(node, f"{where}, {key}") in (None, 0.0)
        if is_idle:
            self.warn(node, where, f"{key}: has no effect in a recording rule; remove it")
        else:
            self.reader.fail(node, where, f"{key}: invalid in a recording rule; remove it")

    def _alerting(
        self, name: str, query: Query | None, fields: Mapping[str, Node], labels: _Texts, *, where: str, shared: _Texts
    ) -> AlertingRule | None:
        reader = self.reader
        hold = reader.duration(fields.get("for"), f"{where}, for") or 0.0
        keep_firing = reader.duration(fields.get("keep_firing_for"), f"{where}, keep_firing_for") or 0.0
        annotations = reader.strings(fields.get("annotations"), f"{where}, annotations")
        for label, (_, node) in annotations.items():
            if not label:
                reader.fail(node, where, "annotations: an annotation has no name; give it one")
            elif not _PLAIN_LABEL.fullmatch(label):
                self.warn(node, where, f"annotations: the name {shown(label)} needs Prometheus 3: {_OLDER}")
        compiled_labels = self._templates(name, labels, f"{where}, label", shared)
        compiled_annotations = self._templates(name, annotations, f"{where}, annotation", {})
        if query is None:
            return None
        terms, line = RuleTiming(name, hold, keep_firing), line_of(fields.get("alert"))
        return AlertingRule(name, query, query.text, terms, compiled_labels, compiled_annotations, line)

    def _templates(self, alert: str, texts: _Texts, where: str, shared: _Texts) -> Templates:
        compiled = []
        for name, (text, node) in sorted(texts.items()):
            try:
                template = compile_template(text, alert)
            except TemplateError as error:
                if isinstance(error, UnknownQueryError) or shared.get(name, ("", None))[1] is not node:
                    self.reader.fail(node, f"{where} {shown(name)}", f"template: {error}")
                    continue
                template = broken_template(text, alert, error)  # a group's labels are read when an alert fires
            for problem in template.unwise:
                self.warn(node, f"{where} {shown(name)}", f"template: {problem}")
            for reads in map(reads_of, template.queries):
                if reads.problem:  # what reads something unknown is refused; what is invalid, Prometheus loads
                    report = self.reader.fail if reads.is_unknown else self.warn
                    report(node, f"{where} {shown(name)}", f"template: {reads.problem}")
            compiled.append((name, template))
        return tuple(compiled)

    def warn(self, node: Node | int, where: str, text: str) -> None:
        """Record what is unwise at a node, or a line."""
        if len(self.warnings) < MOST_PROBLEMS:
            line = node if isinstance(node, int) else line_of(node)
            self.warnings.append(Problem(self.reader.file, line, one_line(where), one_line(text)))

    def _check_identity(self, rule: Rule, node: Node, labels: _Texts, where: str) -> None:
        is_alert = isinstance(rule, AlertingRule)
        # A hash of 64 bits, because the labels themselves may be many.
        identity_hash = hash((is_alert, rule.name, *sorted((name, text) for name, (text, _) in labels.items())))
        first = self._seen.get(identity_hash)
        if first is None:
            self._seen[identity_hash] = line_of(node)
            return
        if is_alert:
            text = (
                f"has the name and labels of the alert on line {first}: receivers take both for one alert; rename one"
            )
        else:
            text = f"records the same metric with the same labels as line {first}; results may collide"
        self.warn(node, where, text)
