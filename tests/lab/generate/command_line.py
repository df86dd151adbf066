"""The manual pages and the completion of the command line."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import shtab

from agent import __version__
from agent.cli import make_parser
from agent.lib.commandline import Parser

FILES = (
    ("/etc/coldplate/coldplate.yaml", "the configuration, if there is one; every key has a default"),
    ("/var/lib/coldplate", "state that outlives the agent"),
)


def pages(parser: Parser) -> dict[str, str]:
    """Return file name and text of each page: the whole command's, and one for each command with its actions."""
    commands = _commands(parser)
    made = {"coldplate.1": _page(parser, "GPU node agent", [f"coldplate-{name}" for name in commands], whole=True)}
    for name, (summary, command) in commands.items():
        made[f"coldplate-{name}.1"] = _page(command, summary, ["coldplate"], whole=False)
    return made


def _commands(parser: Parser) -> dict[str, tuple[str, Parser]]:
    """Return the commands of a parser by name, each with its line in the help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {each.dest: each.help or "" for each in action._choices_actions}
            return {name: (summaries.get(name, ""), command) for name, command in action.choices.items()}
    return {}


def _arguments(parser: Parser) -> tuple[list[argparse.Action], list[argparse.Action]]:
    """Return the options of a command, and its other arguments."""
    shown = [
        each
        for each in parser._actions
        if each.help != argparse.SUPPRESS and not isinstance(each, argparse._SubParsersAction)
    ]
    return [each for each in shown if each.option_strings], [each for each in shown if not each.option_strings]


def _page(parser: Parser, summary: str, others: Iterable[str], *, whole: bool) -> str:
    title = parser.prog.replace(" ", "-")
    commands = _commands(parser)
    lines = [
        f'.TH {_text(title.upper())} 1 "" "coldplate {__version__}" "User Commands"',
        ".SH NAME",
        f"{_text(title)} \\- {_text(summary)}",
        ".SH SYNOPSIS",
        *_synopsis(parser),
        ".SH DESCRIPTION",
        _text(parser.description or ""),
        *_described(parser, ".SH"),
    ]
    if whole:
        lines += [".SH COMMANDS", *_list((f"\\fB{_text(name)}\\fR", what) for name, (what, _) in commands.items())]
    else:
        lines += [line for _, action in commands.values() for line in _action(action)]
    lines += [".SH EXIT STATUS", *_exit_statuses(parser)]
    lines += [".SH FILES", *_list((f"\\fI{_text(path)}\\fR", what) for path, what in FILES)] if whole else []
    lines += [".SH EXAMPLES", *_examples(parser)]
    seen = ", ".join(f"\\fB{_text(each)}\\fR(1)" for each in others)
    return "\n".join([*lines, ".SH SEE ALSO", seen, ""])


def _action(parser: Parser) -> Iterator[str]:
    """An action has a section of its own in its command's page."""
    yield f".SH {_text(parser.prog.upper())}"
    yield from _synopsis(parser)
    yield ".PP"
    yield _text(parser.description or "")
    yield from _described(parser, ".SS")
    yield ".SS Exit status"
    yield from _exit_statuses(parser)
    yield ".SS Examples"
    yield from _examples(parser)


def _synopsis(parser: Parser) -> Iterator[str]:
    options, others = _arguments(parser)
    yield f".B {_text(parser.prog)}"
    for option in options:
        shown = f"{_flag(option.option_strings[-1])}{_value(option)}"
        repeats = " ..." if isinstance(option, argparse._AppendAction) or option.nargs in MANY else ""
        yield f"{shown if option.required else f'[{shown}]'}{repeats}"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield f"\\fI{_text(str(action.metavar or 'COMMAND'))}\\fR ..."
    for each in others:
        name = f"\\fI{_text(_metavar(each))}\\fR{' ...' if each.nargs in MANY else ''}"
        yield f"[{name}]" if each.nargs in ("?", "*", argparse.REMAINDER) else name


def _described(parser: Parser, heading: str) -> Iterator[str]:
    options, others = _arguments(parser)
    if others:
        yield f"{heading} {'ARGUMENTS' if heading == '.SH' else 'Arguments'}"
        yield from _list((f"\\fI{_text(_metavar(each))}\\fR", _help(parser, each)) for each in others)
    yield f"{heading} {'OPTIONS' if heading == '.SH' else 'Options'}"
    yield from _list(
        (", ".join(f"{_flag(flag)}{_value(each)}" for flag in each.option_strings), _help(parser, each))
        for each in options
    )


MANY = ("+", "*", argparse.REMAINDER)
"""What argparse calls an argument that may have several values."""


def _metavar(action: argparse.Action) -> str:
    """Return what stands for the value; empty if it takes none."""
    return "" if action.nargs == 0 else str(action.metavar or action.dest.upper())


def _help(parser: Parser, action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def _list(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, what in items:
        yield f".TP\n{name}\n{_text(what)}"


def _exit_statuses(parser: Parser) -> Iterator[str]:
    return _list((f"\\fB{status}\\fR", what) for status, what in sorted(parser.exit_statuses.items()))


def _examples(parser: Parser) -> Iterator[str]:
    return _list((f"\\fB{_text(line)}\\fR", what) for line, what in parser.examples)


def _flag(flag: str) -> str:
    return f"\\fB{_text(flag)}\\fR"


def _value(option: argparse.Action) -> str:
    metavar = _metavar(option)
    return f" \\fI{_text(metavar)}\\fR" if metavar else ""


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
