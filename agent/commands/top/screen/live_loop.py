"""The live picture: waits for keys, signals and data, and draws. Whatever ends it, the terminal is restored."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from rich.console import Console

from agent.commands.top.screen.frame_layout import draw
from agent.commands.top.screen.glyphs import Glyphs
from agent.commands.top.screen.keys import KeyReader, Press
from agent.commands.top.screen.look import Look
from agent.commands.top.screen.painter import Painter
from agent.commands.top.screen.scene import Scene
from agent.commands.top.screen.tty_modes import TerminalGoneError, TerminalModes
from agent.commands.top.screen.ui_state import OnScreen, UiState, press
from agent.commands.top.screen.wake_pipe import WakePipe

ESCAPE_SECONDS = 0.05
"""Seconds after which an escape without more bytes was the key."""
BREATH_SECONDS = 0.1
"""Seconds between two pictures that only data asked for: many nodes answer at about the same time."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTED = (*_ENDING, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class LiveLoop:
    """Runs until the person leaves or a signal ends it. `clock` tells monotonic seconds; for the main thread."""

    def __init__(
        self,
        terminal: tuple[int, int],
        console: Console,
        encoding: str,
        glyphs: Glyphs,
        scene: Callable[[], Scene],
        clock: Callable[[], float],
        pipe: WakePipe,
    ) -> None:
        self._source = terminal[0]
        self._modes = TerminalModes(*terminal)
        self._painter = Painter(console, encoding)
        self._glyphs = glyphs
        self._make_scene = scene
        self._clock = clock
        self._pipe = pipe
        self._keys = KeyReader()
        self._on_screen = OnScreen()
        self._scene: Scene | None = None
        self._noted: list[int] = []
        self._ending = 0
        self.state = UiState()

    def run(self, state: UiState) -> int:
        """The exit status: 0 if the person left, else 128 and the number of the signal."""
        self.state = state
        before = {number: signal.signal(number, self._note) for number in _NOTED}
        wakeup = signal.set_wakeup_fd(self._pipe.into, warn_on_full_buffer=False)
        try:
            self._modes.enter(state.mouse)
            self._loop()
        except TerminalGoneError:
            self._ending = self._ending or signal.SIGHUP
        finally:
            self._modes.leave()
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
                wait = max(drawn + BREATH_SECONDS - self._clock(), 0.0)
            if self._keys.is_waiting:
                wait = ESCAPE_SECONDS
            typed, has_data = self._wait(wait)
            for event in typed:
                self.state = press(self.state, event, self._on_screen)
                self._modes.use_mouse(self.state.mouse)
                self._draw(fresh=False)
            is_stale = is_stale or has_data
            if self._take_signals() or (is_stale and self._clock() - drawn >= BREATH_SECONDS):
                self._draw(fresh=True)
                drawn, is_stale = self._clock(), False

    def _wait(self, seconds: float | None) -> tuple[list[Press], bool]:
        """What was typed, and whether there is news."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._pipe.out, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if self._pipe.out in ready:
            self._pipe.drain()
        if self._source not in ready:
            return (self._keys.flush() if not ready else []), self._pipe.out in ready
        return self._keys.feed(self._modes.read()), self._pipe.out in ready

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._noted.append(number)

    def _take_signals(self) -> bool:
        """Do what signals ask for; whether everything has to be drawn again."""
        noted, self._noted = self._noted, []
        self._ending = next((number for number in noted if number in _ENDING), self._ending)
        if self._ending:
            return False
        if signal.SIGTSTP in noted:
            self._suspend()
        elif signal.SIGCONT in noted:  # stopped by a signal that nobody can handle
            self._modes.enter(self.state.mouse)
        if noted:
            self._painter.forget()
        return bool(noted)

    def _suspend(self) -> None:
        """Give the terminal back, stop as if this program handled nothing, and take the terminal again afterwards."""
        self._modes.leave()
        handler: Any = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._noted = [number for number in self._noted if number != signal.SIGCONT]
        self._modes.enter(self.state.mouse)

    def _draw(self, *, fresh: bool) -> None:
        if self._scene is None or (fresh and not self.state.is_frozen):
            self._scene = self._make_scene()
        size = self._modes.size()
        look = Look(max(size.columns, 1), max(size.lines, 1), self._glyphs)
        lines, self._on_screen = draw(self._scene, self.state, look)
        self._modes.write(self._painter.paint(lines))
