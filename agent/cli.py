"""The command line: finds the commands in `agent/commands`, and ends with the exit status of the one asked for."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from agent import __version__, commands
from agent.lib.commandline import INVALID, OutputError, Parser, abandon_output, guard_output, listed, print_error
from agent.lib.wording import UserError

EXIT_USAGE = 2
HELP_LINES = {"help [COMMAND]": "explain a command, or list them all", "version": "print the version"}
"""What `_spelled_out` makes options of."""


def make_parser(command_name: str = "") -> CommandLineParser:
    """Return the whole command line: what parses it, and the source of the help, the manual pages and the completion.

    If `asked` is the name of a command, the others are neither there nor imported: the daemon holds what it imports.
    """
    parser = CommandLineParser(
        prog="coldplate",
        description="Samples the GPUs, links, fabric ports and power of one node, and serves Prometheus. "
        "Without a configuration file, every key has its default.",
        examples=(
            ("coldplate run", "sample this node, and serve its metrics on port 19400"),
            ("coldplate once --backend synthetic", "what a node with eight GPUs would show, without one"),
            ("coldplate help COMMAND", "what a command does, with examples; so does coldplate COMMAND --help"),
        ),
        exit_statuses={
            0: "success; also help and version",
            1: "failure; some commands have more statuses",
            2: "no command given; also " + INVALID[2],
        },
    )
    python = ".".join(map(str, sys.version_info[:3]))
    version = f"coldplate {__version__} (Python {python}, {os.uname().machine})"
    parser.add_argument("--version", action="version", version=version)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    modules = {_word(name): name for name in sorted(name for _, name, _ in iter_modules(commands.__path__))}
    for name in [command_name] if command_name in modules else modules:
        command = import_module(f"{commands.__name__}.{modules[name]}")
        one = subparsers.add_parser(
            name,
            help=command.HELP,
            description=command.DESCRIPTION or None,
            examples=getattr(command, "EXAMPLES", ()),
            exit_statuses=getattr(command, "EXIT_STATUSES", {}),
            acts=getattr(command, "ACTS", False),
        )
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return parser


class CommandLineParser(Parser):
    """Lists the commands by what a user wants to do."""

    def format_help(self) -> str:
        """Return the usage, the commands, the options, the examples and the exit statuses."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        head = formatter.format_help()
        formatter = self._get_formatter()
        formatter.start_section(self._optionals.title)
        formatter.add_arguments(self._optionals._group_actions)  # as argparse itself does
        formatter.end_section()
        return "\n".join((head, self.format_commands(), formatter.format_help(), *self.format_end()))

    def format_commands(self) -> str:
        """Return the commands below the tasks of `commands.TASKS`, with `help` and `version` at the end."""
        subparsers = next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        lines = {action.dest: action.help or "" for action in subparsers._choices_actions}
        tasks = dict(commands.TASKS)
        more = lines.keys() - {name for names in tasks.values() for name in names}
        tasks[commands.OTHER] = (*sorted(more), *HELP_LINES)
        lines |= HELP_LINES
        return "\n".join(
            f"{task}:\n" + "".join(listed(f"{name:<15} ", lines[name]) for name in names if name in lines)
            for task, names in tasks.items()
        )

    def format_short_help(self) -> str:
        """Return what `coldplate` alone prints: the commands, and where to read more."""
        return f"{self.format_usage()}\n{self.format_commands()}\ncoldplate help COMMAND explains a command.\n"


def _word(module: str) -> str:
    return module.rstrip("_").replace("_", "-")  # import_ is `import`


def _run_command(words: Sequence[str], parsed: argparse.Namespace) -> int:
    """Parse the words into `parsed` and run the command; return its exit status."""
    if not words:
        print(make_parser().format_short_help(), end="", file=sys.stderr)
        return EXIT_USAGE
    try:
        make_parser(words[0]).parse_args(words, parsed)
    except SystemExit:  # behind --help and --version, too, something is still to be written
        _flush()
        raise
    status: int = parsed.run(parsed)
    _flush()
    return status


def _spelled_out(words: Sequence[str]) -> Sequence[str]:
    """Return the options behind `help`, `help COMMAND` and `version`, which other programs have as commands."""
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    return ["--version"] if words == ["version"] else words


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status. A user's mistake is one line on standard error and status 2."""
    words = _spelled_out(list(sys.argv[1:] if arguments is None else arguments))
    parsed = argparse.Namespace(program="coldplate")
    try:
        return _run_command(words, parsed)
    except UserError as error:
        print_error(parsed.program, str(error))
        return EXIT_USAGE
    except OutputError as error:
        print_error(parsed.program, str(error))
        abandon_output()
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output has exited, so no message can reach it
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print_error(parsed.program, f"{os.fsdecode(error.filename)}: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        return 130


def entry() -> None:
    """Run the console script."""
    guard_output()
    if isinstance(sys.stderr, io.TextIOWrapper):  # not so where it was closed
        sys.stderr.reconfigure(errors="backslashreplace")  # names of files may be no text at all
    sys.exit(main())


if __name__ == "__main__":
    entry()
