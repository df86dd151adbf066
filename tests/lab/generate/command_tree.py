"""A command line as data, for the manual pages.

argparse prints its own help differently from one version of Python to the next; what is made of this is the same with
all of them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

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
