"""The manual pages and the completion of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shtab

from agent import __version__
from agent.cli import make_parser
from agent.lib.commandline import Parser


@dataclass(frozen=True, slots=True)
class UsageArgument:
    """An option, or a positional argument, which has no `flags`. `metavar` is empty if it takes no value."""

    flags: tuple[str, ...]
    metavar: str
    help: str
    required: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class CommandUsage:
    """A command with its actions, which are commands in turn. `words` are how it is called: `coldplate rules check`."""

    words: tuple[str, ...]
    help: str
    description: str
    arguments: tuple[UsageArgument, ...]
    actions: tuple[CommandUsage, ...]
    examples: tuple[tuple[str, str], ...]
    exit_statuses: tuple[tuple[int, str], ...]
    choose: str = ""
    """What stands for its actions in a synopsis."""

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def options(self) -> tuple[UsageArgument, ...]:
        return tuple(each for each in self.arguments if each.flags)

    @property
    def places(self) -> tuple[UsageArgument, ...]:
        """The arguments that are no options."""
        return tuple(each for each in self.arguments if not each.flags)


def tree_of(parser: Parser, what: str = "") -> CommandUsage:
    """The command that a parser parses; `what` is its line in the help of the one above."""
    arguments, actions, choose = [], [], ""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines = {each.dest: each.help or "" for each in action._choices_actions}
            actions = [tree_of(each, lines.get(name, "")) for name, each in action.choices.items()]
            choose = str(action.metavar or "COMMAND")
        elif action.help != argparse.SUPPRESS:
            arguments.append(_argument(parser, action))
    return CommandUsage(
        tuple(parser.prog.split()),
        what,
        parser.description or "",
        tuple(arguments),
        tuple(actions),
        parser.examples,
        tuple(sorted(parser.exit_statuses.items())),
        choose,
    )


def _argument(parser: Parser, action: argparse.Action) -> UsageArgument:
    known: dict[str, Any] = {**vars(action), "prog": parser.prog}
    metavar = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    return UsageArgument(
        tuple(action.option_strings),
        metavar,
        (action.help or "") % known,
        action.required if action.option_strings else action.nargs not in ("?", "*", argparse.REMAINDER),
        action.nargs in ("+", "*", argparse.REMAINDER) or isinstance(action, argparse._AppendAction),
    )


FILES = (
    ("/etc/coldplate/coldplate.yaml", "the configuration, if there is one; every key has a default"),
    ("/var/lib/coldplate", "state that outlives the agent"),
)


def pages(tree: CommandUsage) -> dict[str, str]:
    """Return file name and text of each page: the whole command's, and one for each command with its actions."""
    made = {"coldplate.1": _page(tree, [f"coldplate-{each.words[1]}" for each in tree.actions], whole=True)}
    for each in tree.actions:
        made[f"{'-'.join(each.words)}.1"] = _page(each, ["coldplate"], whole=False)
    return made


def _page(node: CommandUsage, others: Iterable[str], *, whole: bool) -> str:
    title = "-".join(node.words)
    summary = "GPU node agent" if whole else node.help
    lines = [
        f'.TH {_text(title.upper())} 1 "" "coldplate {__version__}" "User Commands"',
        ".SH NAME",
        f"{_text(title)} \\- {_text(summary)}",
        ".SH SYNOPSIS",
        *_synopsis(node),
        ".SH DESCRIPTION",
        _text(node.description),
        *_arguments(node, ".SH"),
    ]
    if whole:
        lines += [".SH COMMANDS", *_list((f"\\fB{_text(each.words[-1])}\\fR", each.help) for each in node.actions)]
    else:
        lines += [line for each in node.actions for line in _action(each)]
    lines += [".SH EXIT STATUS", *_list((f"\\fB{status}\\fR", what) for status, what in node.exit_statuses)]
    lines += [".SH FILES", *_list((f"\\fI{_text(path)}\\fR", what) for path, what in FILES)] if whole else []
    lines += [".SH EXAMPLES", *_examples(node)]
    seen = ", ".join(f"\\fB{_text(each)}\\fR(1)" for each in others)
    return "\n".join([*lines, ".SH SEE ALSO", seen, ""])


def _action(node: CommandUsage) -> Iterator[str]:
    """An action has a section of its own in its command's page."""
    yield f".SH {_text(node.name.upper())}"
    yield from _synopsis(node)
    yield ".PP"
    yield _text(node.description)
    yield from _arguments(node, ".SS")
    yield ".SS Exit status"
    yield from _list((f"\\fB{status}\\fR", what) for status, what in node.exit_statuses)
    yield ".SS Examples"
    yield from _examples(node)


def _synopsis(node: CommandUsage) -> Iterator[str]:
    yield f".B {_text(node.name)}"
    for option in node.options:
        shown = f"{_flag(option.flags[-1])}{_value(option)}"
        yield f"{shown if option.required else f'[{shown}]'}{' ...' if option.repeats else ''}"
    if node.choose:
        yield f"\\fI{_text(node.choose)}\\fR ..."
    for place in node.places:
        name = f"\\fI{_text(place.metavar)}\\fR{' ...' if place.repeats else ''}"
        yield name if place.required else f"[{name}]"


def _arguments(node: CommandUsage, heading: str) -> Iterator[str]:
    if node.places:
        yield f"{heading} {'ARGUMENTS' if heading == '.SH' else 'Arguments'}"
        yield from _list((f"\\fI{_text(each.metavar)}\\fR", each.help) for each in node.places)
    yield f"{heading} {'OPTIONS' if heading == '.SH' else 'Options'}"
    named = ((", ".join(f"{_flag(flag)}{_value(each)}" for flag in each.flags), each.help) for each in node.options)
    yield from _list(named)


def _list(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, what in items:
        yield f".TP\n{name}\n{_text(what)}"


def _examples(node: CommandUsage) -> Iterator[str]:
    return _list((f"\\fB{_text(line)}\\fR", what) for line, what in node.examples)


def _flag(flag: str) -> str:
    return f"\\fB{_text(flag)}\\fR"


def _value(option: UsageArgument) -> str:
    return f" \\fI{_text(option.metavar)}\\fR" if option.metavar else ""


def _text(text: str) -> str:
    """A text in which nothing is a request, an escape or a dash of another width."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped.replace("~", "\\(ti").replace("^", "\\(ha")


SCRIPTS = {"bash": "coldplate.bash", "zsh": "_coldplate"}


def script(shell: str) -> str:
    """Return the script for one of `SCRIPTS`."""
    parser = make_parser()
    _prepare(parser)
    return shtab.complete(parser, shell=shell) + "\n"


def _prepare(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments that are paths, and give each command its line of help where shtab shows its description."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines = {each.dest: each.help for each in action._choices_actions}
            for name, command in action.choices.items():
                command.description = lines[name]
                _prepare(command)
        elif action.nargs != 0 and not action.choices:
            metavar = str(action.metavar)
            if "DIR" in metavar:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif action.type is Path or "FILE" in metavar:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
