"""`coldplate render completion`: completion for shells, as scripts that know the whole command line.

A script that asked the program at each press of Tab would start a Python each time. They are written by code of our
own because a library would have to be installed on every node for it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.lib.commandline import INVALID
from agent.lib.user_error import UserError

if TYPE_CHECKING:
    from agent.lib.command_tree import CommandUsage

SHELLS = ("bash", "zsh", "fish")


def add_to(kinds: Any) -> None:
    """Its parser."""
    parser = kinds.add_parser(
        "completion",
        help="write completion for a shell",
        description="Write the script that completes the command line in a shell. make install installs all of them.",
        examples=(
            (
                "coldplate render completion bash --out ~/.local/share/bash-completion/completions/coldplate",
                "for one user",
            ),
            ("coldplate render completion fish > ~/.config/fish/completions/coldplate.fish", "the same for fish"),
        ),
        exit_statuses={0: "written", 1: "standard output could not be written", **INVALID},
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"the shell: {', '.join(SHELLS)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of standard output")
    parser.set_defaults(render=render)


def render(arguments: argparse.Namespace) -> int:
    """Write the script. Raises UserError."""
    from agent.lib.command_tree import tree_of

    script = script_of(arguments.shell)(tree_of(arguments.whole()))
    if arguments.out is None:
        sys.stdout.write(script)
        return 0
    try:
        arguments.out.write_text(script, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out: {arguments.out}: {error.strerror}") from error
    return 0


def script_of(shell: str) -> Callable[[CommandUsage], str]:
    """What writes the script of a shell."""
    from agent.commands.render import bash_completion, fish_completion, zsh_completion

    return {"bash": bash_completion.write, "zsh": zsh_completion.write, "fish": fish_completion.write}[shell]
