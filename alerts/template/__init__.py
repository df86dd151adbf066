"""The Go templates of labels and annotations, as in Prometheus.

A template is compiled when its file is loaded. What Prometheus rejects then is rejected, by name and place; what it
notices only when an alert fires is a warning, and then yields Prometheus's own error. Only the text is kept: few
alerts fire at a time, and a tree takes ten times the memory.
"""

from functools import lru_cache

from msgspec import Struct

from alerts.promql.budget import Budget
from alerts.template.nodes import TextNode
from alerts.template.parser import parse
from alerts.template.query_reads import read_template
from alerts.template.render import render
from alerts.template.template_functions import RunQuery
from alerts.template.values import LONGEST_TEMPLATE, Element, RenderError, Root, TemplateError, UnknownQueryError

__all__ = [
    "Ask", "Element", "RenderError", "Root", "Template", "TemplateError", "UnknownQueryError", "broken_template",
    "compile_template",
]  # fmt: skip

MAX_PARSED = 256
"""Most templates whose trees are kept, so that those of a firing alert are not parsed at each evaluation."""


class Template(Struct, frozen=True, eq=False):
    """A compiled template of an alert, which is named in errors.

    `queries` are the PromQL texts that it may evaluate (`alerts.template.query_reads`), and `unwise` are mistakes that
    show only when an alert fires. One that prints the same for any alert is `plain`, and has neither. `broken` is the
    error of one that is not a template.
    """

    source: str
    alert: str
    queries: tuple[str, ...] = ()
    unwise: tuple[str, ...] = ()
    plain: str | None = None
    broken: str = ""

    def render(self, root: Root, run_query: RunQuery, budget: Budget | None = None, at: float = 0.0) -> str:
        """Return the text for one alert at a wall second.

        Raises RenderError, and LimitError if the budget is used up.
        """
        if self.plain is not None:
            return self.plain
        name = _name_of(self.alert)
        if self.broken:
            raise RenderError(f"error parsing template {name}: template: {name}:{self.broken}")
        return render(_parsed(self.source, name), name, self.source, root, run_query, budget=budget or Budget(), at=at)


_parsed = lru_cache(maxsize=MAX_PARSED)(parse)


def _name_of(alert: str) -> str:
    """Return the name that Prometheus gives to the templates of an alert."""
    return f"__alert_{alert}"


def broken_template(source: str, alert: str, error: TemplateError) -> Template:
    """Return a group's label that is no valid template: as in Prometheus, it fails when an alert fires."""
    return Template(source, alert, unwise=(str(error),), broken=error.prometheus_message)


def compile_template(source: str, alert: str = "") -> Template:
    """Compile a template of an alert, whose name is in the errors. Raises TemplateError."""
    if "{{" not in source and len(source) <= LONGEST_TEMPLATE:
        return Template(source, alert, plain=source)
    tree = parse(source, _name_of(alert))
    texts = [node.text for node in tree.body if isinstance(node, TextNode)]
    if len(texts) == len(tree.body):
        return Template(source, alert, plain="".join(texts))
    return Template(source, alert, *read_template(source, tree))
