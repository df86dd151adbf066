"""Completion of the command line for bash and zsh, by shtab."""

from __future__ import annotations

import argparse
from pathlib import Path

import shtab

from agent.cli import make_parser

FILES = {"bash": "coldplate.bash", "zsh": "_coldplate"}
"""The name of each shell's script in packaging/completion."""


def script(shell: str) -> str:
    """Return the script for one of `FILES`."""
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
