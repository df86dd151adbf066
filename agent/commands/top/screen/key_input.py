"""Decode the keys and mouse reports of a terminal, and change the screen's state by them.

The bytes are ECMA-48 sequences, xterm's keys and SGR mouse mode. The next state is a pure function of state and key.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, Union

from msgspec import Struct
from msgspec.structs import replace


class Press(NamedTuple):
    """One key: a character, or a name such as `up`, `enter` and `page-down`; or what the mouse did.

    `click`: its first button went down on this line of the screen, counted from 0. `scroll`: its wheel was turned by
    these lines, below 0 upwards.
    """

    name: str
    line: int = 0


_SEQUENCE = re.compile(r"\x1b(?:\[(?P<csi>[0-?]*[ -/]*[@-~])|O(?P<ss3>.))", re.DOTALL)
_MOUSE = re.compile(r"<(\d{1,4});\d{1,5};(\d{1,5})([Mm])", re.ASCII)
_CSI = {
    "A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "1~": "home", "7~": "home",
    "4~": "end", "8~": "end", "5~": "page-up", "6~": "page-down",
}  # fmt: skip
_PLAIN = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", " ": "space", "\x1b": "escape"}
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_WHEEL_UP, _WHEEL_DOWN = 64, 65
_WHEEL_LINES = 3


class KeyReader:
    """Takes bytes as they come; a sequence may arrive in pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """Whether a sequence has begun: without more bytes soon, it was the escape key."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Press]:
        """Return what the bytes say, with those before."""
        presses: list[Press] = []
        text, self._rest = self._rest + self._decoder.decode(data), ""
        while text:
            if _BEGUN.fullmatch(text):
                self._rest = text
                break
            sequence = _SEQUENCE.match(text)
            event = _key(text[0]) if sequence is None else _sequence(sequence)
            if event is not None:
                presses.append(event)
            text = text[1 if sequence is None else sequence.end() :]
        return presses

    def flush(self) -> list[Press]:
        """Return what was left as it stands: nothing more came."""
        rest, self._rest = self._rest, ""
        return [Press("escape")] if rest else []


def _key(character: str) -> Press | None:
    """Return the key of a character; None for one that means nothing here."""
    name = _PLAIN.get(character, character)
    return Press(name) if name.isprintable() else None


def _sequence(sequence: re.Match[str]) -> Press | None:
    csi = sequence["csi"] or sequence["ss3"]
    mouse = _MOUSE.fullmatch(csi)
    if mouse is None:
        name = _CSI.get(csi)
        return None if name is None else Press(name)
    button, line = int(mouse[1]), int(mouse[2])
    if button in (_WHEEL_UP, _WHEEL_DOWN):
        return Press("scroll", -_WHEEL_LINES if button == _WHEEL_UP else _WHEEL_LINES)
    return Press("click", line - 1) if button == 0 and mouse[3] == "M" else None


GpuKey = tuple[str, str]
"""The node of a GPU, and its uuid; a node that does not answer has an empty one."""
MOST_FILTER = 80


class Sort(Enum):
    """What the rows are sorted by; the names are those of the columns."""

    TROUBLE = "trouble"
    INDEX = "index"
    BUSY = "busy"
    MEMORY = "memory"
    POWER = "power"
    TEMPERATURE = "temp"
    JOB = "job"


class OneGpu(Struct, frozen=True):
    """Zoomed into one GPU."""

    key: GpuKey


class OneJob(Struct, frozen=True):
    """Zoomed into the GPUs of one job, on whatever nodes."""

    scheduler: str
    job: str


Zoom = Union[OneGpu, OneJob]


class UiState(Struct, frozen=True):
    """`is_typing` while the filter is written. `selected` None selects nothing, as before the first key."""

    sort: Sort = Sort.TROUBLE
    reverse: bool = False
    filter: str = ""
    is_typing: bool = False
    selected: GpuKey | None = None
    zoom: Zoom | None = None
    is_frozen: bool = False
    is_helping: bool = False
    mouse: bool = True
    has_quit: bool = False


class OnScreen(Struct, frozen=True):
    """What keys act upon: the rows from top to bottom, each with the job that holds it, and those on the screen.

    `lines` has the row that is on a line of the screen.
    """

    rows: Mapping[GpuKey, OneJob | None] = {}
    lines: Mapping[int, GpuKey] = {}

    def or_first(self, key: GpuKey | None) -> GpuKey | None:
        """Return this row, or the first one if it is not there."""
        return key if key in self.rows else next(iter(self.rows), None)


def press(state: UiState, event: Press, screen: OnScreen) -> UiState:
    """Return the state after a key, a click or a turn of the wheel."""
    if event.name == "click":
        return _click_line(state, event.line, screen)
    if event.name == "scroll":
        return state if state.is_helping else _move_selection(state, screen, event.line)
    if state.is_typing:
        return _type_key(state, event.name)
    if state.is_helping:
        return replace(state, is_helping=False, has_quit=event.name == "q")
    if event.name in _MOVES:
        return _move_selection(state, screen, _MOVES[event.name])
    act = _ACTS.get(event.name)
    return state if act is None else act(state, screen)


def _type_key(state: UiState, key: str) -> UiState:
    if key == "enter":
        return replace(state, is_typing=False)
    if key == "escape":
        return replace(state, is_typing=False, filter="")
    if key == "backspace":
        return replace(state, filter=state.filter[:-1])
    character = " " if key == "space" else key
    return replace(state, filter=(state.filter + character)[:MOST_FILTER]) if len(character) == 1 else state


def _move_selection(state: UiState, screen: OnScreen, lines: int) -> UiState:
    if not screen.rows:
        return state
    rows = list(screen.rows)
    outside = -1 if lines > 0 else len(rows)
    start = next((place for place, key in enumerate(rows) if key == state.selected), outside)
    key = rows[min(max(start + lines, 0), len(rows) - 1)]
    return replace(state, selected=key, zoom=OneGpu(key) if isinstance(state.zoom, OneGpu) else state.zoom)


def _click_line(state: UiState, line: int, screen: OnScreen) -> UiState:
    """Select the row; a click on the one that is selected zooms into it."""
    key = screen.lines.get(line)
    if key is None or state.is_helping:
        return replace(state, is_helping=False)
    return _zoom_in(state, screen) if key == state.selected else replace(state, selected=key)


def _zoom_in(state: UiState, screen: OnScreen) -> UiState:
    key = screen.or_first(state.selected)
    if key is None or not key[1]:
        return state
    return replace(state, selected=key, zoom=OneGpu(key))


def _into_job(state: UiState, screen: OnScreen) -> UiState:
    if isinstance(state.zoom, OneJob):
        return replace(state, zoom=None)
    key = screen.or_first(state.zoom.key if isinstance(state.zoom, OneGpu) else state.selected)
    job = None if key is None else screen.rows[key]
    return state if job is None else replace(state, zoom=job)


def _back(state: UiState, _screen: OnScreen) -> UiState:
    """Return one step back: out of the zoom, then out of the filter, then out of the selection."""
    if state.zoom is not None:
        return replace(state, zoom=None)
    return replace(state, filter="") if state.filter else replace(state, selected=None)


def _next_sort(state: UiState, _screen: OnScreen) -> UiState:
    orders = list(Sort)
    return replace(state, sort=orders[(orders.index(state.sort) + 1) % len(orders)], reverse=False)


_Act = Callable[[UiState, OnScreen], UiState]
_MOVES = {"up": -1, "down": 1, "k": -1, "j": 1, "page-up": -10, "page-down": 10, "home": -(10**6), "end": 10**6}
_ACTS: dict[str, _Act] = {
    "q": lambda state, _: replace(state, has_quit=True),
    "?": lambda state, _: replace(state, is_helping=True),
    "h": lambda state, _: replace(state, is_helping=True),
    "s": _next_sort,
    "r": lambda state, _: replace(state, reverse=not state.reverse),
    "/": lambda state, _: replace(state, is_typing=True, zoom=None),
    "space": lambda state, _: replace(state, is_frozen=not state.is_frozen),
    "enter": _zoom_in,
    "right": _zoom_in,
    "g": _into_job,
    "m": lambda state, _: replace(state, mouse=not state.mouse),
    "escape": _back,
    "left": _back,
    "backspace": _back,
}
