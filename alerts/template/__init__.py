"""The Go templates of labels and annotations, as in Prometheus.

A template is compiled when its file is loaded. What Prometheus rejects then is rejected, by name and place; what it
notices only when an alert fires is a warning, and then yields Prometheus's own error.
"""

from __future__ import annotations

from alerts.promql.budget import Budget
from alerts.template.foreseen import questions
from alerts.template.nodes import TextNode
from alerts.template.parser import Parsed, parse
from alerts.template.render import Ask, TemplateSource, render
from alerts.template.template_errors import RenderError, TemplateError
from alerts.template.template_values import Element, Root
from alerts.template.unwise import mistakes

__all__ = ["Ask", "Element", "RenderError", "Root", "Template", "TemplateError", "broken_template", "compile_template"]


class Template:
    """A compiled template. `queries` are the PromQL texts that it may ask, see `alerts.template.foreseen`.

    `unwise` are mistakes that show only when an alert fires.
    """

    __slots__ = ("_broken", "_name", "_parsed", "_text", "queries", "source", "unwise")

    def __init__(self, source: str, name: str, parsed: Parsed) -> None:
        texts = [each.text for each in parsed.body if isinstance(each, TextNode)]
        is_text = len(texts) == len(parsed.body)
        self.source = source
        self.queries = () if is_text else questions(parsed)
        self.unwise = () if is_text else mistakes(source, parsed)
        self._broken = ""
        self._name = name
        self._parsed = None if is_text else parsed
        self._text = "".join(texts) if is_text else ""

    def render(self, root: Root, ask: Ask, budget: Budget | None = None, at: float = 0.0) -> str:
        """The text for one alert at a wall second. Raises RenderError, and LimitError when the budget is used up."""
        if self._broken:
            raise RenderError(self._broken)
        if self._parsed is None:
            return self._text
        return render(self._parsed, TemplateSource(self._name, self.source), root, ask, budget or Budget(), at)


def broken_template(source: str, alert: str, error: TemplateError) -> Template:
    """What Prometheus makes of a group's label that is no template: it is read when an alert fires, and fails then."""
    name = f"__alert_{alert}"
    made = Template(source, name, Parsed((), {}))
    made._broken = f"error parsing template {name}: template: {name}:{error.there}"
    made.unwise = (str(error),)
    return made


def compile_template(source: str, alert: str = "") -> Template:
    """Compiles a template of an alert, whose name is in the errors. Raises TemplateError."""
    name = f"__alert_{alert}"
    return Template(source, name, parse(source, name))
