"""Draw the live screen: wait for keys, signals and data, draw, and restore the terminal at any end."""

import contextlib
import io
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from types import FrameType
from typing import Any

from rich.console import Console

from agent.commands.top.screen.frame import Painter, draw
from agent.commands.top.screen.key_input import KeyReader, OnScreen, Press, UiState, press
from agent.commands.top.screen.text_layout import TextLayout, glyphs_for
from agent.commands.top.screen.view_builder import ScreenData
from agent.lib.clock import clock
from agent.lib.wakeups import WakePipe

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The alternate screen, no cursor, no wrapping (xterm, ECMA-48)."""
_LEAVE = b"\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
_MOUSE_ON, _MOUSE_OFF = b"\x1b[?1000h\x1b[?1006h", b"\x1b[?1006l\x1b[?1000l"
"""Buttons and wheel, reported in the SGR form, which has no limit of columns."""


class TerminalGoneError(Exception):
    """The terminal was closed: there is no screen to draw on."""


class TerminalModes:
    """Takes a terminal over and gives it back as it was; both may be called again, and in any state."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._before: list[object] | None = None
        self._mouse = False

    def enter_screen(self, mouse: bool) -> None:
        """Have keys come one by one and unechoed; Ctrl-C and Ctrl-Z still are signals."""
        if self._before is None:
            self._before = termios.tcgetattr(self._source)
        tty.setcbreak(self._source, termios.TCSADRAIN)
        self.write(_ENTER)
        self._mouse = False
        self.use_mouse(mouse)

    def use_mouse(self, is_on: bool) -> None:
        """Decide whether the terminal reports its mouse; if not, it selects text with it."""
        if is_on != self._mouse:
            self.write(_MOUSE_ON if is_on else _MOUSE_OFF)
            self._mouse = is_on

    def leave_screen(self) -> None:
        """Leave the terminal as it was before. A terminal that is gone is no error."""
        before, self._before = self._before, None
        if before is None:
            return
        with contextlib.suppress(TerminalGoneError):
            self.write(_MOUSE_OFF + _LEAVE)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._source, termios.TCSADRAIN, before)  # type: ignore[arg-type]  # as tcgetattr gave it

    def write(self, data: bytes) -> None:
        """Write all of it. Raises TerminalGoneError."""
        try:
            while data:
                data = data[os.write(self._sink, data) :]
        except OSError as error:
            raise TerminalGoneError from error

    def read(self) -> bytes:
        """Return what was typed. Raises TerminalGoneError."""
        try:
            data = os.read(self._source, 4096)
        except OSError as error:
            raise TerminalGoneError from error
        if not data:
            raise TerminalGoneError
        return data

    def size(self) -> os.terminal_size:
        """Return columns and lines. Raises TerminalGoneError."""
        try:
            return os.get_terminal_size(self._sink)
        except OSError as error:
            raise TerminalGoneError from error


ESCAPE_SECONDS = 0.05
"""Seconds after which an escape without more bytes was the key."""
BREATH_SECONDS = 0.1
"""Seconds between two pictures that only data asked for: many nodes answer at about the same time."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTED = (*_ENDING, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class LiveLoop:
    """Runs until the person leaves or a signal ends it. For the main thread, on the terminal of standard input."""

    def __init__(self, make_scene: Callable[[], ScreenData], pipe: WakePipe, *, is_ascii: bool) -> None:
        """`pipe` wakes when there is another scene to make."""
        self._make_scene, self._pipe = make_scene, pipe
        self._source = sys.stdin.fileno()
        self._modes = TerminalModes(self._source, sys.stdout.fileno())
        # The console styles; this loop writes.
        console = Console(file=io.StringIO(), force_terminal=True, highlight=False)
        self._painter = Painter(console, sys.stdout.encoding)
        self._glyphs = glyphs_for(sys.stdout.encoding, os.environ, is_ascii=is_ascii)
        self._keys = KeyReader()
        self._on_screen = OnScreen()
        self._scene: ScreenData | None = None
        self._noted: list[int] = []
        self._ending = 0
        self.state = UiState()

    def run(self, *, mouse: bool) -> int:
        """Return the exit status: 0 if the person left, else 128 and the number of the signal."""
        self.state = UiState(mouse=mouse)
        before = {number: signal.signal(number, self._record_signal) for number in _NOTED}
        wakeup = signal.set_wakeup_fd(self._pipe.into, warn_on_full_buffer=False)
        try:
            self._modes.enter_screen(mouse)
            self._loop()
        except TerminalGoneError:
            self._ending = self._ending or signal.SIGHUP
        finally:
            self._modes.leave_screen()
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
        return 128 + self._ending if self._ending else 0

    def _loop(self) -> None:
        drawn = -BREATH_SECONDS
        self._draw(fresh=True)
        is_stale = False
        while not self.state.has_quit and not self._ending:
            wait = None
            if is_stale:
                wait = max(drawn + BREATH_SECONDS - clock().mono, 0.0)
            if self._keys.is_waiting:
                wait = ESCAPE_SECONDS
            typed, has_data = self._wait(wait)
            for event in typed:
                self.state = press(self.state, event, self._on_screen)
                self._modes.use_mouse(self.state.mouse)
                self._draw(fresh=False)
            is_stale = is_stale or has_data
            if self._handle_signals() or (is_stale and clock().mono - drawn >= BREATH_SECONDS):
                self._draw(fresh=True)
                drawn, is_stale = clock().mono, False

    def _wait(self, seconds: float | None) -> tuple[list[Press], bool]:
        """Return what was typed, and whether there is news."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        has_news = self._pipe.fileno() in ready
        if has_news:
            self._pipe.drain()
        if self._source not in ready:
            return (self._keys.flush() if not ready else []), has_news
        return self._keys.feed(self._modes.read()), has_news

    def _record_signal(self, number: int, _frame: FrameType | None) -> None:
        self._noted.append(number)

    def _handle_signals(self) -> bool:
        """Do what signals ask for; whether everything has to be drawn again."""
        signals, self._noted = self._noted, []
        self._ending = next((number for number in signals if number in _ENDING), self._ending)
        if self._ending:
            return False
        if signal.SIGTSTP in signals:
            self._suspend()
        elif signal.SIGCONT in signals:  # stopped by a signal that cannot be handled
            self._modes.enter_screen(self.state.mouse)
        if signals:
            self._painter.forget()
        return bool(signals)

    def _suspend(self) -> None:
        """Give the terminal back, stop as if this program handled nothing, and take the terminal again afterwards."""
        self._modes.leave_screen()
        handler: Any = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._noted = [number for number in self._noted if number != signal.SIGCONT]
        self._modes.enter_screen(self.state.mouse)

    def _draw(self, *, fresh: bool) -> None:
        if self._scene is None or (fresh and not self.state.is_frozen):
            self._scene = self._make_scene()
        size = self._modes.size()
        layout = TextLayout(max(size.columns, 1), max(size.lines, 1), self._glyphs)
        lines, self._on_screen = draw(self._scene, self.state, layout)
        self._modes.write(self._painter.paint(lines))
