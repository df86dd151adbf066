"""The modes of a terminal while a picture is on it, and their way back."""

from __future__ import annotations

import contextlib
import os
import termios

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The alternate screen, no cursor, no wrapping (xterm, ECMA-48)."""
_LEAVE = b"\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
_MOUSE_ON, _MOUSE_OFF = b"\x1b[?1000h\x1b[?1006h", b"\x1b[?1006l\x1b[?1000l"
"""Buttons and wheel, reported in the SGR form, which has no limit of columns."""
_LOCAL, _CONTROLS = 3, 6


class TerminalGoneError(Exception):
    """The terminal was closed: there is nobody to draw for."""


class TerminalModes:
    """Takes a terminal over and gives it back as it was; both may be called again, and in any state."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._before: list[object] | None = None
        self._mouse = False

    def enter(self, mouse: bool) -> None:
        """Keys come one by one and unechoed; Ctrl-C and Ctrl-Z still are signals."""
        if self._before is None:
            self._before = termios.tcgetattr(self._source)
        modes = termios.tcgetattr(self._source)
        modes[_LOCAL] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        controls = list(modes[_CONTROLS])
        controls[termios.VMIN], controls[termios.VTIME] = 1, 0
        modes[_CONTROLS] = controls
        termios.tcsetattr(self._source, termios.TCSADRAIN, modes)
        self.write(_ENTER)
        self._mouse = False
        self.use_mouse(mouse)

    def use_mouse(self, wanted: bool) -> None:
        """Whether the terminal reports its mouse; if not, it selects text with it."""
        if wanted != self._mouse:
            self.write(_MOUSE_ON if wanted else _MOUSE_OFF)
            self._mouse = wanted

    def leave(self) -> None:
        """As it was before. A terminal that is gone is no error."""
        before, self._before = self._before, None
        if before is None:
            return
        with contextlib.suppress(TerminalGoneError):
            self.write(_MOUSE_OFF + _LEAVE)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._source, termios.TCSADRAIN, before)  # type: ignore[arg-type]  # as tcgetattr gave it

    def write(self, data: bytes) -> None:
        """All of it. Raises TerminalGoneError."""
        try:
            while data:
                data = data[os.write(self._sink, data) :]
        except OSError as error:
            raise TerminalGoneError from error

    def read(self) -> bytes:
        """What was typed. Raises TerminalGoneError."""
        try:
            data = os.read(self._source, 4096)
        except OSError as error:
            raise TerminalGoneError from error
        if not data:
            raise TerminalGoneError
        return data

    def size(self) -> os.terminal_size:
        """Columns and lines. Raises TerminalGoneError."""
        try:
            return os.get_terminal_size(self._sink)
        except OSError as error:
            raise TerminalGoneError from error
