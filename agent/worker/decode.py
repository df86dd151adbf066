"""Turns a worker's lines into messages, and believes none of them.

A worker shares its memory with a driver library that may have scribbled over it. So every name, label,
number and text is held against the catalogue and the bounds of `limits` before it is kept or shown, and what
was said once by mistake is outlived: a sample that goes by another edition of its layout is refused, and who
is there is believed when it was said twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import repeat
from typing import Any

from agent.backends.protocol import ChannelError, GpuProcess, LaneSample
from agent.model import Gap, GpuIdentity, Lane, Reading, Series, Xid
from agent.worker import checks, limits
from agent.worker.entities import Entities
from agent.worker.rows import missable, rows_of
from agent.worker.wire import Alive, Hello, Message, Refusal, WireError, unseal

Place = tuple[int, Lane]
"""A channel's number, and a lane."""

_LANES = {lane.value: lane for lane in (Lane.FAST, Lane.SLOW, Lane.COLD)}
_NUMBERS = {int, float}
_ENDLESS = re.compile(rb"[0-9]{25}")
"""No counter of 64 bits has so many digits, nor a float as Python spells it; one could not be reckoned with."""
# Readings are made by the hundred at each tick: this makes them without a call of Python code for each.
_MAKE_READING = tuple.__new__
_OF_READING = repeat(Reading)


class Decoder:
    """Reads one worker's lines, remembering the layouts, gaps and processes of each channel's lanes."""

    def __init__(self, source: str) -> None:
        """`source` is what the worker was told to open: it decides which rows it may speak of."""
        self._source = source
        self._rows, self._missable = rows_of(source), missable(source)
        self._hello: Hello | None = None
        self._said: object = None
        """Who is there as it was said last, believed or not."""
        self._channels: tuple[tuple[str, GpuIdentity | None], ...] = ()
        self._entities = Entities()
        self._layouts: dict[Place, tuple[int, tuple[Series, ...]]] = {}
        self._gaps: dict[Place, tuple[int, tuple[Gap, ...]]] = {}
        self._processes: dict[Place, tuple[int, tuple[GpuProcess, ...] | None]] = {}
        self._owners: dict[Series, Place] = {}
        self._newest: dict[Place, float] = {}
        self._events = 0
        self._kinds: dict[str, Callable[..., Message | Alive | None]] = {
            "sample": self._sample, "alive": self._alive, "layout": self._layout, "gaps": self._take_gaps,
            "processes": self._take_processes, "error": self._error, "xid": self._xid, "hello": self._take_hello,
            "absent": self._absent, "failed": self._failed,
        }  # fmt: skip

    def decode(self, line: bytes) -> Message | Alive | None:
        """The message of a line; None if it only changed what is remembered. Raises WireError."""
        body = unseal(line)
        try:
            kind, *parts = json.loads(body)
            if kind == "sample" and _ENDLESS.search(body):
                raise WireError("a number without end")
            return self._kinds[kind](*parts)
        except WireError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise WireError(f"{type(error).__name__}: {error}"[: limits.TEXT]) from error

    def _alive(self, order: Any) -> Alive:
        return Alive(checks.whole(order, 2**63))

    def _absent(self, detail: Any) -> Refusal:
        return Refusal(True, checks.text(detail, limits.TEXT))

    def _failed(self, detail: Any) -> Refusal:
        return Refusal(False, checks.text(detail, limits.TEXT))

    def _take_hello(self, source: Any, channels: Any, unidentified: Any) -> Hello | None:
        """Believed when it is said twice in a row; a worker's channels stay, and others may only join them."""
        before, self._said = self._said, [source, channels, unidentified]
        if source != self._source:
            raise WireError(f"this is the source {source!r:.40}, and not {self._source}")
        made = checks.roster(channels), checks.unidentified(unidentified)
        checks.indexes(*made)
        known = self._channels
        if made[0][: len(known)] != known:
            raise WireError("a channel is not the one that it was")
        hello = Hello(self._source, *made)
        if self._said != before or hello == self._hello:
            return None
        self._hello, self._channels = hello, hello.channels
        self._entities.enlist(hello.channels)
        return hello

    def _place(self, channel: Any, lane: Any) -> Place:
        number = checks.whole(channel, len(self._channels))
        return number, _LANES[lane]

    def _layout(self, channel: Any, lane: Any, edition: Any, rows: Any) -> None:
        place, edition = self._place(channel, lane), checks.whole(edition, 2**63)
        made = tuple(self._series(place[0], row) for row in checks.rows(rows, limits.SERIES_OF_LANE))
        if len(set(made)) != len(made):
            raise WireError("a series is there twice")
        if any(self._owners.get(series, place) != place for series in made):
            raise WireError("a series is another lane's already")
        _, old = self._layouts.get(place, (0, ()))
        if len(self._owners) - len(old) + len(made) > limits.SERIES:
            raise WireError(f"more than {limits.SERIES} series")
        if made != old:
            for series in old:
                del self._owners[series]
            self._owners.update(dict.fromkeys(made, place))
            old = made  # the same series are kept as they are: others know them by identity
        self._layouts[place] = (edition, old)

    def _series(self, channel: int, row: Any) -> Series:
        name, parts, pairs = row
        metric = self._rows[name]
        entity = self._entities.of(channel, parts)
        if type(entity) is not metric.entity:
            raise WireError(f"{name} is not of {entity}")
        return Series(metric, entity, checks.labels(metric, pairs))

    def _take_gaps(self, channel: Any, lane: Any, edition: Any, rows: Any) -> None:
        place = self._place(channel, lane)
        made = tuple(self._gap(place[0], row) for row in checks.rows(rows, limits.GAPS_OF_LANE))
        others = sum(len(gaps) for where, (_, gaps) in self._gaps.items() if where != place)
        if others + len(made) > limits.GAPS:
            raise WireError(f"more than {limits.GAPS} gaps")
        self._gaps[place] = (checks.whole(edition, 2**63), made)

    def _gap(self, channel: int, row: Any) -> Gap:
        name, parts, reason, detail = row
        return Gap(
            self._missable[name],
            self._entities.of(channel, parts),
            checks.reason(reason),
            checks.text(detail, limits.TEXT),
        )

    def _take_processes(self, channel: Any, lane: Any, edition: Any, rows: Any) -> None:
        place = self._place(channel, lane)
        self._processes[place] = (checks.whole(edition, 2**63), checks.processes(rows))

    def _xid(self, number: Any, rows: Any) -> tuple[Xid, ...]:
        """Numbered, so that what comes twice counts once."""
        made = tuple(checks.xid(row) for row in checks.rows(rows, limits.EVENTS))
        if checks.whole(number, 2**63) <= self._events:
            raise WireError("XID errors that were told before")
        self._events = number
        return made

    def _error(self, channel: Any, lane: Any, mono: Any, reason: Any, detail: Any) -> ChannelError:
        place = self._place(channel, lane)
        error = ChannelError(
            self._channels[place[0]][0],
            place[1],
            checks.moment(mono),
            checks.reason(reason),
            checks.text(detail, limits.TEXT),
        )
        self._advance(place, error.mono)
        return error

    def _sample(
        self, channel: Any, lane: Any, editions: Any, mono: Any, duration: Any, calls: Any, values: Any
    ) -> LaneSample:
        place = self._place(channel, lane)
        layout, gaps, processes = self._remembered(place, editions)
        if len(layout) != len(values):
            raise WireError(f"{len(values)} values for {len(layout)} series")
        if not _NUMBERS.issuperset(map(type, values)):
            raise WireError("a value that is no number")
        sample = LaneSample(
            self._channels[place[0]][0],
            place[1],
            checks.moment(mono),
            checks.moment(duration, limits.DURATION),
            checks.whole(calls, limits.CALLS),
            tuple(map(_MAKE_READING, _OF_READING, zip(layout, values, strict=True))),
            gaps,
            processes,
        )
        self._advance(place, sample.mono)
        return sample

    def _remembered(
        self, place: Place, editions: Any
    ) -> tuple[tuple[Series, ...], tuple[Gap, ...], tuple[GpuProcess, ...] | None]:
        """What the sample goes by, if that is what was said last."""
        layout = self._layouts.get(place, (0, ()))
        gaps = self._gaps.get(place, (0, ()))
        processes = self._processes.get(place, (0, None))
        if editions != [layout[0], gaps[0], processes[0]]:
            raise WireError(f"a sample by editions {editions!r:.60}, which are not the ones that were said last")
        return layout[1], gaps[1], processes[1]

    def _advance(self, place: Place, mono: float) -> None:
        if mono <= self._newest.get(place, -1.0):
            raise WireError("a sample that is not newer than the one before")
        self._newest[place] = mono
