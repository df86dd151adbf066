"""The targets of the `runbook_url` of the pack's alerts: the agent that the alert is about, or a site's own address.

The shipped rule files link to the agents, which serve the runbooks themselves. A site that sets its own address gives
it to its agents and to `coldplate render rules`, so that node and server agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from alerts.rulefile import AlertingRule, Rule, RuleFile, Templates
from alerts.template import compile_template

ANNOTATION = "runbook_url"
_OF_AN_AGENT = re.compile(r"(?:.*\}\})?/runbooks/(\w+)", re.DOTALL)
"""An address whose host comes from a template, or is missing. A complete one is the author's own, and stays."""


def lead_to(base: str, files: Sequence[RuleFile]) -> tuple[RuleFile, ...]:
    """The files with links that lead below `base`, a URL without a slash at its end: BASE/GpuLost."""
    return tuple(
        replace(
            file,
            groups=tuple(
                replace(group, rules=tuple(_led(rule, base) for rule in group.rules)) for group in file.groups
            ),
        )
        for file in files
    )


def _led(rule: Rule, base: str) -> Rule:
    if not isinstance(rule, AlertingRule):
        return rule
    changed = _with_link(rule.annotations, base)
    return rule if changed is None else replace(rule, annotations=changed)


def _with_link(annotations: Templates, base: str) -> Templates | None:
    """The annotations with another link; None if there is none to change."""
    found = _OF_AN_AGENT.fullmatch(dict(annotations)[ANNOTATION].source) if ANNOTATION in dict(annotations) else None
    if found is None:
        return None
    link = compile_template(f"{base}/{found[1]}")
    return tuple((name, link if name == ANNOTATION else template) for name, template in annotations)
