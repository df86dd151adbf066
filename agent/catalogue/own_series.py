"""Frames of the agent's own series, which are made again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent.model import EMPTY_LAYOUT, Frame, Layout, Series


class OwnLayout:
    """The layout of such a frame, made again only when its shape changes."""

    def __init__(self) -> None:
        self._shape: tuple[object, ...] | None = None
        self._layout = EMPTY_LAYOUT

    def frame(
        self, shape: tuple[object, ...], series: Callable[[], Iterable[Series]], values: Iterable[float]
    ) -> Frame:
        """The frame of these values. `series` gives their series, in the same order, and depends only on the shape."""
        if shape != self._shape:
            self._layout, self._shape = Layout(tuple(series())), shape
        return Frame(self._layout, tuple(values))
