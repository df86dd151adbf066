"""What the least and the most loaded NVLink of each GPU carry, from one slow sample to the next.

Links of a GPU share its traffic evenly where the fabric is whole: one that carries less than the others is slow or
takes errors. Two series show that, where the counters of all links would be 36.
"""

from __future__ import annotations

from operator import add, sub

from agent.catalogue import BY_NAME
from agent.lib.layout_columns import picker
from agent.model import EMPTY_LAYOUT, Frame, Layout, NvLink, Series

_SENT, _RECEIVED = (BY_NAME[f"coldplate_nvlink_{way}_bytes_total"] for way in ("transmit", "receive"))
_ROWS = tuple(BY_NAME[f"coldplate_gpu_nvlink_traffic_{end}_bytes_per_second"] for end in ("lowest", "highest"))


class LinkRates:
    """Compares the links of one GPU. Its counters come conditioned: they never fall, and garbage is left out."""

    def __init__(self) -> None:
        self._layout = EMPTY_LAYOUT
        self._shown = EMPTY_LAYOUT
        self._has_links = False
        self._before: tuple[float, tuple[float, ...]] | None = None

    def beside(self, at: float, frame: Frame, shortest: float, longest: float) -> Frame:
        """Return the frame with the rates since the one before. `at`, `shortest` and `longest` are in seconds.

        Without them if that one had other links, or is not `shortest` to `longest` ago: a driver that is asked twice
        in a row says nothing of a rate, nor does a mean over a time of which nothing is known.
        """
        if frame.layout is not self._layout:
            self._find(frame.layout)
        if not self._has_links:
            return frame
        counts = tuple(map(add, self._pick_sent(frame.values), self._pick_received(frame.values)))
        seconds = at - self._before[0] if self._before is not None else longest + 1.0
        if seconds < shortest:
            return frame
        before, self._before = self._before, (at, counts)
        if before is None or seconds > longest:
            return frame
        grown = tuple(map(sub, counts, before[1]))
        return Frame(self._shown, (*frame.values, min(grown) / seconds, max(grown) / seconds))

    def _find(self, layout: Layout) -> None:
        """Note where the counters of the links are; a link that has only one of them is not compared."""
        sent, received = (
            {each.entity: place for place, each in enumerate(layout.series) if each.metric is counter}
            for counter in (_SENT, _RECEIVED)
        )
        links = [link for link in sent if link in received and isinstance(link, NvLink)]
        self._pick_sent, self._pick_received = (picker([places[link] for link in links]) for places in (sent, received))
        self._layout, self._has_links, self._before = layout, bool(links), None
        if links:
            self._shown = Layout((*layout.series, *(Series(row, links[0].gpu) for row in _ROWS)))
