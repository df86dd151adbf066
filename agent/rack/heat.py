"""The breakers of a rack, their heat, and what is saved of it across a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from agent.model import Instant
from agent.rack.breaker import Curve, trip_seconds, unknown_heat, warmed

WORTH = 0.02
"""By how much some breaker's heat must have changed to be worth saving."""
AT_LEAST_SECONDS = 600.0
"""Seconds after which it is saved anyway: what does not change must not become too old."""
KEPT_FOR_SECONDS = 3600.0
"""Seconds after which saved heat means nothing any more."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """`rating` in watts. `share` is the part of the rack's power that it carries, and `split` how that is known."""

    name: str
    curve: Curve
    rating: float
    share: float = 1.0
    split: str = "whole"


@dataclass(frozen=True, slots=True)
class State:
    """A breaker at a moment: load as a share of the rating, heat as a share of what opens it, seconds until then."""

    breaker: Breaker
    load: float
    heat: float
    opens_in: float | None


class KeptBreaker(msgspec.Struct, frozen=True):
    """A breaker's heat and load, and its configuration: for another breaker they mean nothing."""

    heat: float
    load: float
    hold: float
    constant: float
    rating: float
    share: float

    def is_of(self, breaker: Breaker) -> bool:
        """Whether this was saved for `breaker`, and has possible values."""
        curve = breaker.curve
        same = (self.hold, self.constant, self.rating, self.share) == (
            curve.hold, curve.constant, breaker.rating, breaker.share,
        )  # fmt: skip
        return same and 0 <= self.heat <= 1 and 0 <= self.load < 1e3


class KeptHeats(msgspec.Struct, frozen=True):
    """What is saved: the time in wall seconds, and each breaker by name."""

    at: float
    rack: str
    breakers: dict[str, KeptBreaker]


_decoder = msgspec.json.Decoder(KeptHeats)


class Heats:
    """Belongs to one thread at a time."""

    def __init__(self, rack: str, breakers: tuple[Breaker, ...] = ()) -> None:
        self._rack = rack
        self._breakers = breakers
        self._known: dict[str, tuple[float, float]] = {}
        self._at: float | None = None
        self._written: Mapping[str, tuple[float, float]] = {}
        self._written_at = 0.0

    def configure(self, breakers: tuple[Breaker, ...]) -> None:
        """Watch these breakers from now on; what is known of those with the same name stays."""
        self._breakers = breakers
        names = {each.name for each in breakers}
        self._known = {name: known for name, known in self._known.items() if name in names}

    def restore(self, body: bytes, now: Instant) -> bool:
        """Take over what an earlier run saved, as if the load had stayed since; returns whether it could be used."""
        try:
            kept = _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        down = now.wall - kept.at
        if kept.rack != self._rack or not 0 <= down <= KEPT_FOR_SECONDS:
            return False
        for each in self._breakers:
            known = kept.breakers.get(each.name)
            if known is not None and known.is_of(each):
                self._known[each.name] = (warmed(each.curve, known.heat, known.load, down), known.load)
        self._at = now.mono
        return True

    def look(self, watts: float | None, now: float) -> list[State]:
        """All breakers, at the rack's power and a monotonic time. While it is not known, the last power is assumed."""
        seconds = 0.0 if self._at is None else now - self._at
        self._at = now
        found = []
        for each in self._breakers:
            known = self._known.get(each.name)
            if watts is None and known is None:
                continue
            load = known[1] if watts is None and known is not None else (watts or 0.0) * each.share / each.rating
            heat = unknown_heat(each.curve, load) if known is None else warmed(each.curve, known[0], load, seconds)
            self._known[each.name] = (heat, load)
            if watts is not None:
                found.append(State(each, load, heat, trip_seconds(each.curve, heat, load)))
        return found

    def worth_keeping(self, wall: float) -> bytes | None:
        """What to save, if it has changed since the last save, or that was long ago."""
        written = self._written
        changed = any(abs(heat - written.get(name, (9.0, 0.0))[0]) > WORTH for name, (heat, _) in self._known.items())
        late = bool(self._known) and abs(wall - self._written_at) >= AT_LEAST_SECONDS
        return self.kept(wall) if changed or late else None

    def kept(self, wall: float) -> bytes:
        """All that is known, to be saved."""
        self._written, self._written_at = dict(self._known), wall
        found = {
            each.name: KeptBreaker(
                *self._known[each.name], each.curve.hold, each.curve.constant, each.rating, each.share
            )
            for each in self._breakers
            if each.name in self._known
        }
        return msgspec.json.encode(KeptHeats(wall, self._rack, found))
