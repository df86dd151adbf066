"""Changes that the configuration makes to alerts of rule files, so that shipped files need no editing.

An override applies to every rule of its name, and what it has below `severity` to those whose severity this is in
their file. An invalid one is an error that starts with the key below `rules.`: a name that no alert has, a number that
the query does not contain, a query or template that cannot be compiled. A recording rule is never changed or left out,
because other rules read it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from agent.config.schema import OverrideConfig, RuleChangeConfig
from agent.lib.wording import format_value, meant, one_line
from alerts.limits import MAX_RULE_TOKENS
from alerts.promql import PromqlError, Query, compile_query
from alerts.promql.query import number_literals
from alerts.rulefile import AlertingRule, RecordingRule, Rule, RuleFile, RuleGroup, Templates, is_label_name, tokens_of
from alerts.template import Template, TemplateError, compile_template
from alerts.template.query_reads import reads_of

_LONGEST_PROBLEM = 2000  # characters: it may list all existing alerts


class OverrideError(ValueError):
    """An override cannot be applied; the text begins with its key below `rules.` and names the remedy."""

    def __init__(self, problem: str) -> None:
        super().__init__(one_line(problem, _LONGEST_PROBLEM))


def apply(
    files: Sequence[RuleFile], disable: Sequence[str], overrides: Mapping[str, OverrideConfig], *, default_step: float
) -> tuple[RuleFile, ...]:
    """Return the files with alerts changed or left out; `default_step` is for changed queries. Raises OverrideError.

    `disable` has names of alerts, and patterns with `*`. A group left without rules is removed, too. Labels and
    annotations with an empty value are removed, the label even from the query's results; a threshold replaces every
    number of the query that equals it.
    """
    rules = [rule for file in files for group in file.groups for rule in group.rules]
    _refuse_unknown_names(rules, disable, overrides)
    alerts = [rule for rule in rules if isinstance(rule, AlertingRule)]
    changes = {
        name: _Override(name, [rule for rule in alerts if rule.name == name], override, default_step)
        for name, override in overrides.items()
    }
    tokens = 0

    def changed(rule: Rule) -> Rule:
        nonlocal tokens
        if not isinstance(rule, AlertingRule) or rule.name not in changes:
            return rule
        changed_rule = changes[rule.name].apply(rule)
        tokens += tokens_of(changed_rule)
        if tokens > MAX_RULE_TOKENS:
            problem = f"here overridden alerts exceed {MAX_RULE_TOKENS} words and signs, the most on a node"
            raise OverrideError(f"override.{rule.name}: {problem}; override fewer")
        return changed_rule

    applied = []
    for file in files:
        groups = _groups(file, [[changed(rule) for rule in group.rules] for group in file.groups])
        file = replace(file, groups=groups)
        _refuse_same_identity(file, overrides)
        kept = [
            [rule for rule in group.rules if isinstance(rule, RecordingRule) or not _is_disabled(rule.name, disable)]
            for group in file.groups
        ]
        applied.append(replace(file, groups=_groups(file, kept)))
    return tuple(applied)


def _groups(file: RuleFile, rules: Sequence[Sequence[Rule]]) -> tuple[RuleGroup, ...]:
    """Return the groups of a file with other rules; those without any are left out."""
    pairs = zip(file.groups, rules, strict=True)
    return tuple(replace(group, rules=tuple(rules_of_group)) for group, rules_of_group in pairs if rules_of_group)


def _is_disabled(name: str, disable: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in disable)


def _refuse_unknown_names(rules: Sequence[Rule], disable: Sequence[str], overridden: Collection[str]) -> None:
    alerts = {rule.name for rule in rules if isinstance(rule, AlertingRule)}
    records = {rule.name for rule in rules if isinstance(rule, RecordingRule)} - alerts
    for pattern in disable:
        if not any(fnmatchcase(name, pattern) for name in alerts):
            raise OverrideError(f"disable: {_unknown(pattern, alerts, records)}")
    for name in overridden:
        if name not in alerts:
            raise OverrideError(f"override.{name}: {_unknown(name, alerts, records)}")


def _unknown(name: str, alerts: Collection[str], records: Collection[str]) -> str:
    if name in records:
        return f"{name!r} is a recording rule, which other rules may read; name alerts only"
    return f"the rule files have no alert {name!r}{meant(name, sorted(alerts))}"


def _severity(rule: AlertingRule) -> str:
    label = dict(rule.labels).get("severity")
    return label.source if label else ""


class _Override:
    """Applies one override to the rules of its name: to all, or with more to those of one severity."""

    def __init__(self, name: str, rules: Sequence[AlertingRule], override: OverrideConfig, default_step: float) -> None:
        key, severities = f"override.{name}", sorted(set(map(_severity, rules)))
        self._for_all = _Change(key, rules, override, default_step)
        self._by_severity: dict[str, _Change] = {}
        for severity, rule_change in override.severity.items():
            matching_rules = [rule for rule in rules if _severity(rule) == severity]
            if not matching_rules:
                raise OverrideError(f"{key}.severity: no rule has {severity!r}; use one of {', '.join(severities)}")
            change = _Change(f"{key}.severity.{severity}", matching_rules, rule_change, default_step, self._for_all)
            self._by_severity[severity] = change

    def apply(self, rule: AlertingRule) -> AlertingRule:
        """Return the rule with the override applied."""
        return self._by_severity.get(_severity(rule), self._for_all).apply(rule)


class _Change:
    """Changes rules of one name; what it does not change, `base` does."""

    def __init__(
        self,
        key: str,
        rules: Sequence[AlertingRule],
        rule_change: RuleChangeConfig,
        default_step: float,
        base: _Change | None = None,
    ) -> None:
        self._key = key
        self._name = rules[0].name
        self._default_step = default_step
        expression = rule_change.expr
        self._expression: str | None = expression if expression is not None or base is None else base._expression
        if self._expression is not None and rule_change.thresholds:
            raise OverrideError(f"{key}.expr: cannot be combined with thresholds; edit the numbers in the query")
        self._query = None if self._expression is None else self._compiled(self._expression, "expr")
        self._refuse_unknown_numbers(rules, rule_change.thresholds)
        self._numbers: dict[float, float] = {**(base._numbers if base else {}), **rule_change.thresholds}
        self._hold: float | None = rule_change.hold if rule_change.hold is not None or base is None else base._hold
        keep_firing = rule_change.keep_firing_for
        self._keep_firing: float | None = keep_firing if keep_firing is not None or base is None else base._keep_firing
        texts = self._templates(rule_change.labels, "labels")
        self._labels: dict[str, Template] = {**(base._labels if base else {}), **texts}
        texts = self._templates(rule_change.annotations, "annotations")
        self._annotations: dict[str, Template] = {**(base._annotations if base else {}), **texts}
        if rule_change.expr is not None and len(rules) > 1:
            remedy = "choose one by its severity, or disable the alert and write a rule of your own"
            raise OverrideError(f"{key}.expr: would be the query of {len(rules)} rules; {remedy}")

    def apply(self, rule: AlertingRule) -> AlertingRule:
        """Return the rule with the changes applied."""
        expression, query = self._expression, self._query
        if expression is None or query is None:
            expression = self._with_numbers(rule.expression)
            query = rule.query if expression == rule.expression else self._compiled(expression, "thresholds")
        hold = rule.terms.hold if self._hold is None else self._hold
        keep_firing = rule.terms.keep_firing if self._keep_firing is None else self._keep_firing
        return replace(
            rule,
            query=query,
            expression=expression,
            terms=replace(rule.terms, hold=hold, keep_firing=keep_firing),
            labels=_in_order({**dict(rule.labels), **self._labels}),
            annotations=tuple(
                pair
                for pair in _in_order({**dict(rule.annotations), **self._annotations})
                if pair[1].source or pair[0] not in self._annotations
            ),
        )

    def _refuse_unknown_numbers(self, rules: Sequence[AlertingRule], thresholds: Mapping[float, float]) -> None:
        """Reject a threshold that occurs in no query of the rules, and one that is no number."""
        if any(new != new for new in thresholds.values()):
            raise OverrideError(f"{self._key}.thresholds: nan is never reached; give a number")
        there = {value: text for rule in rules for _, text, value in number_literals(rule.expression)}
        for old in thresholds:
            if old not in there:
                has = f"its numbers are {', '.join(there.values())}" if there else "it has none; override expr instead"
                sign = ", without a sign" if old < 0 and there else ""
                raise OverrideError(f"{self._key}.thresholds: the query has no number {format_value(old)}; {has}{sign}")

    def _with_numbers(self, expression: str) -> str:
        """Return the query with numbers replaced, and everything else unchanged."""
        pieces, end = [], 0
        for offset, text, value in number_literals(expression):
            if value in self._numbers:
                pieces += [expression[end:offset], _literal(self._numbers[value])]
                end = offset + len(text)
        return "".join(pieces) + expression[end:]

    def _compiled(self, expression: str, key: str) -> Query:
        try:
            return compile_query(expression, default_step=self._default_step)
        except PromqlError as error:
            raise OverrideError(f"{self._key}.{key}: {error}") from error

    def _templates(self, texts: Mapping[str, str], key: str) -> dict[str, Template]:
        return {name: self._template(name, text, f"{self._key}.{key}") for name, text in texts.items()}

    def _template(self, name: str, text: str, key: str) -> Template:
        if not is_label_name(name):
            remedy = "use letters, digits and _"
            raise OverrideError(f"{key}: {name!r} is not a valid label or annotation name; {remedy}")
        try:
            template = compile_template(text, self._name)
        except TemplateError as error:
            raise OverrideError(f"{key}.{name}: template: {error}") from error
        for problem in template.unwise:
            raise OverrideError(f"{key}.{name}: template: {problem}")
        for query in template.queries:
            problem = reads_of(query).problem
            if problem:
                raise OverrideError(f"{key}.{name}: template: {problem}")
        return template


def _in_order(templates: Mapping[str, Template]) -> Templates:
    """Return labels or annotations in the order of a loaded rule file."""
    return tuple(sorted(templates.items(), key=lambda pair: pair[0]))


def _literal(value: float) -> str:
    """Return a number as written in a query; a negative one in parentheses, since a power binds tighter than a sign."""
    text = format_value(value)
    return f"({text})" if text.startswith(("-", "+")) else text


def _refuse_same_identity(file: RuleFile, overridden: Collection[str]) -> None:
    """Reject two alerts with the same name and labels: to receivers they would be one that contradicts itself."""
    first_of_identity: dict[object, AlertingRule] = {}
    for group in file.groups:
        for rule in group.rules:
            if not isinstance(rule, AlertingRule) or rule.name not in overridden:
                continue
            identity = (rule.name, tuple((name, t.source) for name, t in rule.labels if t.source))
            first = first_of_identity.setdefault(identity, rule)
            if first is not rule:
                raise OverrideError(
                    f"override.{rule.name}: its rules at lines {first.line} and {rule.line} of {file.path} "
                    "would have the same labels; keep one label that differs, such as severity"
                )
