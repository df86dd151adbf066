"""Renders a parsed template for one alert, in the steps and with the errors of Go's text/template."""

from collections.abc import Iterable, Mapping
from typing import NoReturn

from alerts.go_literals import octets, printable, quoted
from alerts.limits import LONGEST_TEXT
from alerts.promql.budget import Budget
from alerts.promql.labels import LimitError
from alerts.template.nodes import (
    ActionNode,
    Body,
    BranchNode,
    ChainNode,
    CommandNode,
    ConstantNode,
    FieldNode,
    IdentifierNode,
    Located,
    NilNode,
    Operand,
    PipeNode,
    TemplateNode,
    TextNode,
    VariableNode,
    written,
)
from alerts.template.parser import PREDECLARED_VARIABLES, Parsed
from alerts.template.printf import show
from alerts.template.template_functions import ANY, FUNCTIONS, METHODS, RenderContext, RunQuery
from alerts.template.values import (
    DEEPEST_NESTING,
    FIELDS,
    MOST_TURNS,
    Arguments,
    Boxed,
    Element,
    Moment,
    RenderError,
    Root,
    Span,
    Typed,
    Value,
    truth,
    type_name,
    unboxed,
)

_NODE = 8
"""Units of work of a node of a template, or of a turn of a `range`."""
_PREFIX = (
    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
)
"""What Prometheus writes before each template: errors count from its beginning."""


class Leaving(Exception):  # noqa: N818 no error
    """A `break` or `continue` on its way to the surrounding `range`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


_Final = tuple[Value, ...]
"""The value that a pipeline passes to its next command, if there is one: nil would be a value."""


def render(
    parsed: Parsed, name: str, source: str, root: Root, run_query: RunQuery, *, budget: Budget, at: float
) -> str:
    """Return the text of a template at a time. Raises RenderError, and LimitError when the budget is used up."""
    renderer = _Renderer(parsed.defined, name, source, root, run_query, budget=budget, at=at)
    try:
        return renderer.text(parsed.body)
    except RecursionError:  # Python's own limit, which comes first if the caller is already deep in the stack
        raise RenderError("is nested too deep") from None


class _Renderer:
    """One rendering. `_node` is the node that an error would refer to, and `_tree` the name of its template.

    `_dot` is the value of `.` now.
    """

    def __init__(
        self,
        defined: Mapping[str, Body],
        name: str,
        source: str,
        root: Root,
        run_query: RunQuery,
        *,
        budget: Budget,
        at: float,
    ) -> None:
        self._defined = defined
        self._name = name
        self._source = source
        self._root = root
        self._dot: Value | Boxed = root
        self._context = RenderContext(run_query, root, at, budget.spend)
        self._budget = budget
        self._out: list[str] = []
        self._remaining = LONGEST_TEXT
        self._turns = MOST_TURNS
        self._depth = 0
        self._assigned = False
        self._node: Located | None = None
        self._tree = name
        values: tuple[Value, ...] = (root.labels, root.external_labels, root.external_url, root.value)
        self._variables: list[tuple[str, Value | Boxed]] = [
            ("$", root),
            *zip(PREDECLARED_VARIABLES, values, strict=True),
        ]

    def text(self, body: Body) -> str:
        self._run(body, self._root)
        return printable("".join(self._out))

    def _error(self, problem: str) -> RenderError:
        assert self._node is not None, "whatever fails is at a node"
        # Line and column as Go counts them: bytes, with what Prometheus writes before the text.
        at, source = self._node.at, self._source
        line = source.count("\n", 0, at) + 1
        column = len(octets(source[source.rfind("\n", 0, at) + 1 : at])) + (len(_PREFIX) if line == 1 else 0)
        where = f"{self._name}:{line}:{column}: executing {quoted(self._tree)} at <{written(self._node)}>"
        return RenderError(printable(f"error executing template {self._name}: template: {where}: {problem}"))

    # nodes

    def _run(self, body: Body, dot: Value | Boxed) -> None:
        self._enter_level()
        outside, self._dot = self._dot, dot
        for node in body:
            self._budget.spend(_NODE)
            if isinstance(node, TextNode):
                self._write(node.text)
            elif isinstance(node, ActionNode):
                value = self._pipeline(node.pipeline)
                if not node.pipeline.declares:
                    self._node = node
                    self._write(show(value))
            elif isinstance(node, BranchNode):
                mark = len(self._variables)
                if node.kind == "range":
                    self._range(node)
                else:
                    self._branch(node)
                del self._variables[mark:]
            elif isinstance(node, TemplateNode):
                self._template(node)
            else:
                raise Leaving(node.kind)
        self._dot = outside
        self._depth -= 1

    def _enter_level(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST_NESTING + 2:  # the template itself, and an action in the deepest branch
            raise RenderError(f"is nested more than {DEEPEST_NESTING} templates, branches and parentheses deep")

    def _write(self, text: str) -> None:
        self._remaining -= len(text)
        if self._remaining < 0:
            raise RenderError(f"is longer than {LONGEST_TEXT} characters")
        self._out.append(text)

    def _branch(self, node: BranchNode) -> None:
        for arm in node.arms:
            value = self._pipeline(arm.pipeline)
            if truth(value):
                self._run(arm.body, value if node.kind == "with" else self._dot)
                return
        self._run(node.otherwise, self._dot)

    def _range(self, node: BranchNode) -> None:
        (arm,) = node.arms
        value = self._pipeline(arm.pipeline)
        declares, assigns = arm.pipeline.declares, arm.pipeline.assigns
        mark, before, has_turned = len(self._variables), self._budget.held, False
        for key, item in self._pairs(value, len(declares)):
            has_turned = True
            self._budget.spend(_NODE)
            self._turns -= 1
            if self._turns < 0:
                self._node = arm.pipeline
                raise self._too_many_turns()
            for name, element in zip(declares, (key, item) if len(declares) == 2 else (item,), strict=False):
                if assigns:
                    self._assign(name, element)
                else:
                    self._variables[mark - len(declares) + declares.index(name)] = name, element
            depth, dot = self._depth, self._dot
            try:
                self._run(arm.body, item)
            except Leaving as leaving:
                self._depth, self._dot = depth, dot
                if leaving.kind == "break":
                    break
            finally:
                del self._variables[mark:]
            if not self._assigned:  # else a query's result may still be a variable's value
                self._budget.held = before
        if not has_turned:
            self._run(node.otherwise, self._dot)

    def _pairs(self, value: Value, count: int) -> Iterable[tuple[Value, Value | Boxed]]:
        if isinstance(value, Arguments):
            return [(name, Boxed(value[name])) for name in sorted(value)]
        if isinstance(value, Mapping):
            return [(name, value[name]) for name in sorted(value)]
        if isinstance(value, list):
            return enumerate(list(value))
        if value is None:
            return ()
        if isinstance(value, int) and not isinstance(value, bool):
            if count > 1:
                raise self._error(f"can't use {show(value)} to iterate over more than one variable")
            if value > self._turns:
                raise self._too_many_turns()
            kind = value.kind if isinstance(value, Typed) else ""
            return ((turn, Typed(turn, kind) if kind else turn) for turn in range(value))
        raise self._error(f"range can't iterate over {show(value)}")

    def _too_many_turns(self) -> LimitError:
        return LimitError(str(self._error(f"more than {MOST_TURNS} turns of range in one text; range over less")))

    def _template(self, node: TemplateNode) -> None:
        self._node = node
        body = self._defined.get(node.name)
        if node.name == self._name:
            raise RenderError(f"the template {quoted(node.name)} calls itself endlessly")
        if body is None:
            raise self._error(f"template {quoted(node.name)} not defined")
        value = self._pipeline(node.pipeline) if node.pipeline is not None else None
        outside, tree = self._variables, self._tree
        self._variables, self._tree = [("$", value)], node.name
        self._run(body, value)
        self._variables, self._tree = outside, tree

    # pipelines

    def _pipeline(self, pipeline: PipeNode) -> Value:
        self._enter_level()
        self._node = pipeline
        final: _Final = ()
        for command in pipeline.commands:
            final = (unboxed(self._command(command, final)),)
        (value,) = final
        self._depth -= 1
        for name in pipeline.declares:
            if pipeline.assigns:
                self._assign(name, value)
            else:
                self._variables.append((name, value))
        return value

    def _assign(self, name: str, value: Value | Boxed) -> None:
        self._assigned = True
        for place in range(len(self._variables) - 1, -1, -1):
            if self._variables[place][0] == name:
                self._variables[place] = name, value
                return
        raise self._error(f"undefined variable: {name}")

    def _variable(self, name: str) -> Value | Boxed:
        for variable, value in reversed(self._variables):
            if variable == name:
                return value
        raise self._error(f"undefined variable: {name}")

    def _command(self, command: CommandNode, final: _Final) -> Value | Boxed:
        self._budget.spend(1)
        head, arguments = command.operands[0], command.operands[1:]
        if isinstance(head, IdentifierNode):
            self._node = head
            return self._call(head.name, None, command, arguments, final)
        if isinstance(head, (FieldNode, ChainNode, VariableNode)):
            return self._chain(head, arguments, final)
        if not isinstance(head, PipeNode):
            self._node = head
        if arguments or final:
            raise self._error(f"can't give argument to non-function {written(head)}")
        if isinstance(head, PipeNode):
            return self._pipeline(head)
        if isinstance(head, NilNode):
            raise self._error("nil is not a command")
        return self._constant(head)

    def _constant(self, node: ConstantNode) -> Value:
        self._node = node
        if node.value is None:
            raise self._error(f"{node.text} overflows int")
        return node.value

    # fields

    def _chain(
        self, node: FieldNode | ChainNode | VariableNode, arguments: tuple[Operand, ...] = (), final: _Final = ()
    ) -> Value | Boxed:
        self._node = node
        names = node.fields
        value: Value | Boxed
        if isinstance(node, VariableNode):
            value = self._variable(node.name)
        elif isinstance(node, ChainNode):
            if isinstance(node.operand, NilNode):
                raise self._error(f"indirection through explicit nil in {written(node)}")
            value = self._argument(node.operand, ANY)
        else:
            value = self._dot
        if not names:
            if arguments or final:
                raise self._error(f"can't give argument to non-function {written(node)}")
            return value
        for name in names[:-1]:
            value = self._field(value, name, node)
        return self._field(value, names[-1], node, arguments, final)

    def _field(
        self, target: Value | Boxed, name: str, node: Located, arguments: tuple[Operand, ...] = (), final: _Final = ()
    ) -> Value | Boxed:
        value = unboxed(target)
        if value is None:
            if isinstance(target, Boxed):
                raise self._error(f"nil pointer evaluating interface {{}}.{name}")
            return None
        if name in METHODS.get(type(value), {}):
            return self._call(name, value, node, arguments, final)
        has_arguments = bool(arguments or final)
        if isinstance(value, (Element, Root)) and FIELDS.get(name) in value._fields:
            if has_arguments:
                raise self._error(f"{name} has arguments but cannot be invoked as function")
            field_value: Value = getattr(value, FIELDS[name])
            return Boxed(field_value) if name == "Value" else field_value
        if isinstance(value, Mapping):
            if has_arguments:
                raise self._error(f"{name} is not a method but has arguments")
            return Boxed(value.get(name)) if isinstance(value, Arguments) else value.get(name, "")
        raise self._error(
            f"can't evaluate field {name} in type {'interface {}' if isinstance(target, Boxed) else type_name(value)}"
        )

    # calls

    def _call(
        self, name: str, receiver: Value, node: Located, arguments: tuple[Operand, ...] = (), final: _Final = ()
    ) -> Value:
        function = FUNCTIONS[name] if receiver is None else METHODS[type(receiver)][name]
        fixed, count = len(function.takes), len(arguments) + len(final)
        if function.rest:
            if count < fixed:
                raise self._error(f"wrong number of args for {name}: want at least {fixed} got {len(arguments)}")
        elif count != fixed:
            raise self._error(f"wrong number of args for {name}: want {fixed} got {count}")
        if name in ("and", "or") and receiver is None:
            value: Value = None
            for operand in arguments:
                value = self._argument(operand, ANY)
                if truth(value) == (name == "or"):
                    return value
            return final[0] if final else value
        types = (*function.takes, *(function.rest for _ in range(count - fixed)))
        values = []
        for argument, kind in zip(arguments, types, strict=False):  # a comprehension would be one more nested call
            values.append(self._argument(argument, kind))
        if final:
            values.append(self._converted(final[0], types[-1]))
        if receiver is not None:
            values.insert(0, receiver)
        try:
            if name == "call" and receiver is None:
                self._refuse_call(values[0], arguments)
            value = function.call(*((self._context, *values) if function.in_context else values))
        except RenderError as error:
            self._node = node
            raise self._error(f"error calling {name}: {error}") from None
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise RenderError(f"error calling {name}: a text is longer than {LONGEST_TEXT} characters")
        return value

    def _refuse_call(self, value: Value, arguments: tuple[Operand, ...]) -> NoReturn:
        """Fail, as `call` always does: no value is a function."""
        if value is None:
            raise RenderError("call of nil")
        kind = type_name(value)
        name = value if isinstance(value, str) else f"<{kind} Value>"
        if arguments:
            name = written(arguments[0])
        raise RenderError(f"non-function {name} of type {kind}")

    def _argument(self, node: Operand, kind: str) -> Value:
        """Return the value of an argument; `kind` is the type that the function expects."""
        self._node = node
        if isinstance(node, NilNode):
            if kind in ("string", "time.Duration", "time.Time"):
                raise self._error(f"cannot assign nil to {kind}")
            return [] if kind == "template.queryResult" else None
        if isinstance(node, (FieldNode, ChainNode, VariableNode)):
            return self._converted(self._chain(node), kind)
        if isinstance(node, PipeNode):
            return self._converted(self._pipeline(node), kind)
        if isinstance(node, IdentifierNode):
            return self._converted(self._call(node.name, None, node), kind)
        if kind == "string":
            if not isinstance(node.value, str):
                raise self._error(f"expected string; found {written(node)}")
            return node.value
        if kind == ANY:
            return self._constant(node)
        raise self._error(f"can't handle {written(node)} for arg of type {kind}")

    def _converted(self, argument: Value | Boxed, kind: str) -> Value:
        """Return a value in the form in which a function takes it: converted where Go would convert it."""
        value = unboxed(argument)
        if kind == ANY:
            return value
        if value is None:
            if kind not in ("template.queryResult", "*template.sample"):
                raise self._error(f"invalid value; expected {kind}")
            return [] if kind == "template.queryResult" else None
        if type_name(value) == kind or (isinstance(value, (Moment, Span)) and type_name(value) == f"*{kind}"):
            return value
        raise self._error(f"wrong type for value; expected {kind}; got {type_name(value)}")
