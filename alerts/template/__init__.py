"""The Go templates of labels and annotations, as in Prometheus.

A template is compiled when its file is loaded. What Prometheus rejects then is rejected, by name and place; what it
notices only when an alert fires is a warning, and then yields Prometheus's own error. Only the text is kept: few of
thousands of alerts fire at a time, and a tree takes ten times the memory (see `alerts.template.bodies`).
"""

from __future__ import annotations

from alerts.promql.budget import Budget
from alerts.sharing import Sharing
from alerts.template.bodies import defines, parsed
from alerts.template.foreseen import questions
from alerts.template.nodes import TextNode
from alerts.template.parser import parse
from alerts.template.render import Ask, TemplateSource, render
from alerts.template.template_errors import RenderError, TemplateError
from alerts.template.template_limits import LONGEST_TEMPLATE
from alerts.template.template_values import Element, Root
from alerts.template.unwise import mistakes

__all__ = ["Ask", "Element", "RenderError", "Root", "Template", "TemplateError", "broken_template", "compile_template"]


class Template:
    """A compiled template that prints the same text for any alert.

    `queries` are the PromQL texts that it may evaluate, see `alerts.template.foreseen`, and `unwise` are mistakes that
    show only when an alert fires: such a template has neither.
    """

    __slots__ = ("_plain", "source")

    def __init__(self, source: str, plain: str) -> None:
        self.source = source
        self._plain = plain

    @property
    def queries(self) -> tuple[str, ...]:
        return ()

    @property
    def unwise(self) -> tuple[str, ...]:
        return ()

    def render(self, root: Root, ask: Ask, budget: Budget | None = None, at: float = 0.0) -> str:  # noqa: ARG002
        """The text for one alert at a wall second. Raises RenderError, and LimitError if the budget is used up."""
        return self._plain


class TemplateText:
    """What templates with the same text have in common; `broken` is the error if it is not a template."""

    __slots__ = ("broken", "queries", "source", "unwise")

    def __init__(self, source: str, queries: tuple[str, ...], unwise: tuple[str, ...], broken: str = "") -> None:
        self.source = source
        self.queries = queries
        self.unwise = unwise
        self.broken = broken


class _OfAlert(Template):
    """A template whose text depends on the alert."""

    __slots__ = ("_alert", "_text")

    def __init__(self, alert: str, text: TemplateText) -> None:
        super().__init__(text.source, "")
        self._alert = alert
        self._text = text

    @property
    def queries(self) -> tuple[str, ...]:
        return self._text.queries

    @property
    def unwise(self) -> tuple[str, ...]:
        return self._text.unwise

    def render(self, root: Root, ask: Ask, budget: Budget | None = None, at: float = 0.0) -> str:
        text, name = self._text, _name_of(self._alert)
        if text.broken:
            raise RenderError(f"error parsing template {name}: template: {name}:{text.broken}")
        body = parsed(text.source, name)
        return render(body, TemplateSource(name, text.source), root, ask, budget or Budget(), at)


def _name_of(alert: str) -> str:
    """The name that Prometheus gives to the templates of an alert."""
    return f"__alert_{alert}"


def broken_template(source: str, alert: str, error: TemplateError) -> Template:
    """A group's label that is not a valid template: as in Prometheus, it is read, and fails, when an alert fires."""
    return _OfAlert(alert, TemplateText(source, (), (str(error),), error.there))


def compile_template(source: str, alert: str = "", sharing: Sharing | None = None) -> Template:
    """Compile a template of an alert, whose name is in the errors. Raises TemplateError.

    Templates that are compiled with the same `sharing` share what they can.
    """
    sharing = sharing or Sharing()
    if "{{" not in source and len(source) <= LONGEST_TEMPLATE:
        return sharing.made(lambda: Template(source, source), Template, source)
    name = _name_of(alert)
    own = name if defines(source) else ""  # its own name matters only if it may define others
    text = sharing.made(lambda: _compiled(source, name), TemplateText, (source, own))
    return text if isinstance(text, Template) else _OfAlert(alert, text)


def _compiled(source: str, name: str) -> Template | TemplateText:
    tree = parse(source, name)
    texts = [each.text for each in tree.body if isinstance(each, TextNode)]
    if len(texts) == len(tree.body):
        return Template(source, "".join(texts))
    return TemplateText(source, questions(tree), mistakes(source, tree))
