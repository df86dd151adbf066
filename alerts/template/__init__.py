"""The Go templates of labels and annotations: the subset that rules really use.

A template is compiled when its file is read; whatever is not supported is refused then, by name and place.
No Go, no HTML, and no `define`: those are for Prometheus's consoles.
"""

from __future__ import annotations

from alerts.promql.budget import Budget
from alerts.template.errors import RenderError, TemplateError
from alerts.template.foreseen import questions
from alerts.template.nodes import Node, Text
from alerts.template.parser import parse
from alerts.template.render import Ask, render
from alerts.template.values import Element, Root

__all__ = ["Ask", "Element", "RenderError", "Root", "Template", "TemplateError", "compile_template"]


class Template:
    """A compiled template. `queries` are the PromQL texts that it may ask, see `alerts.template.foreseen`."""

    __slots__ = ("_nodes", "_text", "queries", "source")

    def __init__(self, source: str, nodes: tuple[Node, ...]) -> None:
        is_text = all(isinstance(each, Text) for each in nodes)
        self.source = source
        self.queries = () if is_text else questions(nodes)
        self._nodes = () if is_text else nodes
        self._text = "".join(each.text for each in nodes if isinstance(each, Text)) if is_text else None

    def render(self, root: Root, ask: Ask, budget: Budget | None = None) -> str:
        """The text for one alert. Raises RenderError, and LimitError when the budget is used up."""
        return self._text if self._text is not None else render(self._nodes, root, ask, budget or Budget())


def compile_template(source: str) -> Template:
    """Compiles a template. Raises TemplateError."""
    return Template(source, parse(source))
