"""Shared by all commands: options, errors in one line with a suggestion, help, and progress on a terminal.

Showing help imports no logging.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

from agent.lib.wording import nearest


def takes_colour(stream: TextIO) -> bool:
    """Return whether this is a terminal that shows colours, and whose user has not refused them (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "dumb")


LEVELS = ("debug", "info", "warn", "error")
FORMATS = ("logfmt", "json")


def add_log_options(parser: argparse.ArgumentParser, level: str = "info") -> None:
    """Add `--log.level`, with its default, and `--log.format`."""
    for name, choices, default, text in (
        ("level", LEVELS, level, "lowest level of log lines to print"),
        ("format", FORMATS, "logfmt", "format of log lines"),
    ):
        parser.add_argument(
            f"--log.{name}", dest=f"log_{name}", choices=choices, default=default, help=f"{text} (default %(default)s)"
        )


MISUSED = 2
INVALID = {MISUSED: "the command line or the configuration is invalid; one line says why"}
"""The exit status that all commands share, unless what they stand for has taken this number."""


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line and suggests the nearest valid word.

    `examples` are pairs of a whole command line and what it is for; `exit_statuses` has the meaning of each. One that
    `acts` changes something on the node, and is never suggested in place of an unknown word.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[tuple[str, str]] = (),
        exit_statuses: Mapping[int, str] | None = None,
        acts: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)
        self.exit_statuses = dict(exit_statuses or {})
        self.acts = acts
        self.set_defaults(program=self.prog)  # the innermost parser's stays: coldplate rules backtest

    def format_help(self) -> str:
        """Return the help as the base class, with the examples and the exit statuses behind it."""
        return "\n".join((super().format_help(), *self.format_end()))

    def format_end(self) -> list[str]:
        """Return the examples and the exit statuses, as far as there are any."""
        parts = []
        if self.examples:
            parts.append("examples:\n" + "".join(f"  {line}\n      {meaning}\n" for line, meaning in self.examples))
        if self.exit_statuses:
            lines = [listed(f"{status:<3} ", text) for status, text in sorted(self.exit_statuses.items())]
            parts.append("exit status:\n" + "".join(lines))
        return parts

    misused = MISUSED
    """The exit status of a mistake; a command whose status 2 means something else has another."""

    def error(self, message: str) -> NoReturn:
        """End with the message and where to read more."""
        print_error(self.prog, f"{message}; see {self.prog} --help")
        self.exit(self.misused)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as the base class, but nothing is left over: each command's own parser knows best what was meant."""
        parsed, unparsed = super().parse_known_args(args, namespace)
        if unparsed:
            word = unparsed[0].partition("=")[0]
            problem = "unknown option" if word.startswith("-") else "unexpected argument"
            self.error(f"{problem} {word!r}{nearest(word, self._option_string_actions)}")
        return parsed, unparsed

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        words = [str(choice) for choice in action.choices]
        parsers = action.choices if isinstance(action.choices, Mapping) else {}
        offered = [word for word in words if not getattr(parsers.get(word), "acts", False)]
        hint = nearest(str(value), offered) or f"; choose from {', '.join(words)}"
        raise argparse.ArgumentError(action, f"invalid choice {value!r}{hint}")


def listed(word: str, meaning: str) -> str:
    """Return a line of a list, indented, of as many lines as it takes; `word` is padded to its column."""
    from textwrap import fill

    return fill(meaning, 79, initial_indent=f"  {word}", subsequent_indent=" " * (2 + len(word))) + "\n"


def print_error(program: str, text: str) -> None:
    """Print a line on standard error, which may be closed, after the whole name of the command, `coldplate report`."""
    if sys.stderr is not None:
        print(f"{program}: {text}", file=sys.stderr, flush=True)


def warn(command: str, text: str) -> int:
    """Print a line as `print_error`; return the exit status of a command that fails for this reason."""
    print_error(f"coldplate {command}", text)
    return 1


class OutputError(Exception):
    """Standard output does not take what is written to it; the text says why."""


class Output(io.TextIOWrapper):
    """Standard output that raises OutputError, unlike the files that a command writes."""

    def write(self, text: str) -> int:
        """Write as the base class. Raises OutputError, or BrokenPipeError where the reader has gone."""
        with _refusing():
            return super().write(text)

    def flush(self) -> None:
        """Flush as the base class. Raises as `write`."""
        with _refusing():
            super().flush()


class NoOutput(io.TextIOBase):
    """Stands in for a standard output that was closed before the command began."""

    def write(self, text: str) -> int:  # noqa: ARG002 the name is the base class's
        """Write the text. Raises OutputError."""
        raise OutputError("standard output is closed; redirect it, at least to /dev/null")


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: {error.strerror}") from error


def guard_output() -> None:
    """Put one of these in the place of standard output."""
    if sys.stdout is None:
        sys.stdout = NoOutput()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        encoding, lines = sys.stdout.encoding, sys.stdout.line_buffering
        # Names of files may be no text at all.
        sys.stdout = Output(sys.stdout.detach(), encoding, "backslashreplace", line_buffering=lines)


def abandon_output() -> None:
    """Discard the output that is not written yet; the interpreter would fail again to write it when it exits."""
    if sys.stdout is None or isinstance(sys.stdout, NoOutput):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


FIRST_LINE_SECONDS = 1.0
"""Seconds before the first line: most work is done by then."""
EVERY_SECONDS = 0.2
"""Seconds between two lines."""


class Progress:
    """One line that is written over itself and gone at the end; nothing where `stream` is no terminal.

    `now` gives seconds, `total` is the number of steps, 0 if unknown, and the clock is read once in `every` steps. Use
    it in a `with` statement.
    """

    def __init__(
        self, subject: str, total: int, now: Callable[[], float], stream: TextIO | None = None, every: int = 64
    ) -> None:
        self._every = every
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream is not None and self._stream.isatty()
        self._what, self._total, self._now = subject, total, now
        self._done = 0
        self._next = now() + FIRST_LINE_SECONDS
        self._width = 0

    def __enter__(self) -> Progress:  # noqa: PYI034 Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("")

    def step(self, where: Callable[[], str] = str) -> None:
        """Count a step as done; `where` gives more words, if it is time to say anything."""
        self._done += 1
        if self._done % self._every == 0 and self._is_due():
            share = f"{100 * self._done // self._total} %" if self._total else str(self._done)
            self._write(f"{self._what}: {share} {where()}".rstrip()[:78])

    def reached(self, share: float) -> None:
        """Note that this share of everything is done, 0 to 1: for what counts its steps itself."""
        if self._is_due():
            self._write(f"{self._what}: {share:.0%}")

    def grown(self, size: Callable[[], str]) -> None:
        """Note that a piece is written to a file that is this large now."""
        if self._is_due():
            self._write(f"{self._what}: {size()}")

    def _is_due(self) -> bool:
        if not self._is_shown or (now := self._now()) < self._next:
            return False
        self._next = now + EVERY_SECONDS
        return True

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text:<{self._width}}" + ("" if text else "\r"))
        self._stream.flush()
        self._width = max(self._width, len(text))
