"""Completion for zsh: a function for each command, with `_arguments`."""

from __future__ import annotations

from collections.abc import Iterator

from agent.lib.command_tree import ArgumentKind, CommandUsage, UsageArgument

HEAD = "#compdef coldplate\n# Completion of coldplate for zsh: made by `coldplate render completion zsh`.\n\n"
TAIL = """\
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _coldplate "$@"
else
    compdef _coldplate coldplate
fi
"""
CHOICE = """\
    case $state in
    action)
        local -a actions=(
{actions}
        )
        _describe -t commands {what} actions ;;
    rest)
        case $line[1] in
{functions}
        esac ;;
    esac
"""


def write(tree: CommandUsage) -> str:
    """The script."""
    return HEAD + "".join(f"{each}\n" for each in _functions(tree)) + TAIL


def _functions(node: CommandUsage) -> Iterator[str]:
    for action in node.actions:
        yield from _functions(action)
    specs = [spec for option in node.options for spec in _option(option)]
    if node.actions:
        specs += ["'1: :->action'", "'*:: :->rest'"]
    specs += [_place(number, place) for number, place in enumerate(node.places, 1)]
    lines = " \\\n".join(f"        {spec}" for spec in specs)
    body = '    local curcontext="$curcontext" state line\n    local -A opt_args\n' if node.actions else ""
    body += f"    _arguments {'-C ' if node.actions else ''}-s -S \\\n{lines}\n"
    if node.actions:
        body += CHOICE.format(
            actions="\n".join(f"            {_quoted(f'{each.words[-1]}:{each.help}')}" for each in node.actions),
            what=node.choose.lower(),
            functions="\n".join(f"        {each.words[-1]}) {_function(each)} ;;" for each in node.actions),
        )
    yield f"{_function(node)}() {{\n{body}}}\n"


def _function(node: CommandUsage) -> str:
    return "_" + "_".join(node.words).replace("-", "_")


def _option(option: UsageArgument) -> Iterator[str]:
    """One for each flag, the others of the same option being excluded, unless it may be repeated."""
    for flag in option.flags:
        excluded = "*" if option.repeats else f"({' '.join(option.flags)})"
        takes = "" if option.takes is ArgumentKind.NOTHING else f":{_plain(option.metavar)}:{_completer(option)}"
        equals = "=" if takes and flag.startswith("--") else ""
        yield _quoted(f"{excluded}{flag}{equals}[{_plain(option.help)}]{takes}")


def _place(number: int, place: UsageArgument) -> str:
    which = "*" if place.repeats else str(number)
    return _quoted(f"{which}:{_plain(place.metavar.lower())}:{_completer(place)}")


def _completer(argument: UsageArgument) -> str:
    if argument.words:
        return f"({' '.join(argument.words)})"
    return {ArgumentKind.FILE: "_files", ArgumentKind.DIRECTORY: "_files -/"}.get(argument.takes, " ")


def _plain(text: str) -> str:
    """A text in which nothing ends the part of a specification that it stands in."""
    for each in "\\[]:":
        text = text.replace(each, f"\\{each}")
    return text


def _quoted(text: str) -> str:
    escaped = text.replace("'", "'\\''")
    return f"'{escaped}'"
