"""The breakers of a rack: when one trips at a load, its heat, and what is saved of it across a restart.

The model is an inverse-time curve with one time constant, as used by a thermal image.

Heat is a share of what trips the breaker. At a steady load it tends to (load / hold)², with the time constant
of the class, where load is current over rating and `hold` the most that is carried continuously. So 101% for 3 s is
negligible, and 130% trips it after minutes: sooner if it was warm.

Standards bound a breaker from one side: it must hold so much, and must trip within so long at so much. The curve
here is the slowest of its kind that passes those tests from cold, and takes `hold` from what must be held:

* UL 489: holds 100%, trips at 135% within 1 h (up to 50 A) and at 200% within 2 min (up to 30 A), by a maker's summary
  (https://optifuse.com/blog/ul-circuit-breakers). Larger ones may take longer: the smallest's row is used for all.
* IEC 60898-1: holds 1.13 times the rating for 1 h, trips at 1.45 within 1 h, and at 2.55 within 60 s up to 32 A
  (120 s above: 60 s is used for all). From 3 (B), 5 (C) and 10 (D) times on it may trip instantly. By a maker's manual
  (https://manualshive.com/en/manual/iek/va47-100/620093?page=10); B from memory.
* IEC 60947-2, thermal-magnetic: holds 1.05, trips at 1.30 within 1 h or 2 h
  (https://www.se.com/in/en/faqs/FA369327/). That test starts warm and does not determine the time constant, which is
  therefore chosen as for UL 489, by whose tests many of these breakers are sold as well.
* Electronic trip units with an I²t long delay trip between 1.05 and 1.20 by IEC 60947-2. The delay is their setting at
  6 times the rating, with a tolerance of -20%. This is the fastest curve that Schneider Electric publishes for
  Micrologic (S1A1576900, table 1), which a first-order image reproduces to the digits shown.

A real breaker may be faster than the slowest allowed one, especially in a hot cabinet: the time is not a guarantee."""

from collections.abc import Mapping
from math import exp, inf, log

import msgspec
from msgspec import Struct

from agent.model import Instant

LONG_DELAY_SECONDS = 12.0
"""Seconds at 6 times the rating if an electronic trip unit's setting is not configured: half of the range's end."""
FORMER_LOAD = 0.9
"""The load that a breaker is assumed to have carried before it was watched: racks are not planned for more."""


class Curve(Struct, frozen=True):
    """`hold` and `instant` are shares of the rating, `constant` is in seconds. At `instant` it may open at once."""

    hold: float
    constant: float
    instant: float = inf


def through(hold: float, load: float, seconds: float, instant: float = inf) -> Curve:
    """Return the curve that carries `hold` forever, and opens at `load` after `seconds` from cold."""
    return Curve(hold, seconds / log(load**2 / (load**2 - hold**2)), instant)


def electronic(long_delay: float = LONG_DELAY_SECONDS) -> Curve:
    """Return a trip unit whose long delay is set to these seconds at 6 times its rating; the earliest in tolerance."""
    return through(1.05, 6.0, 0.8 * long_delay)


CLASSES = {
    "ul489": through(1.0, 2.0, 120.0),
    "iec60947-2": through(1.05, 2.0, 120.0),
    "iec60898-b": through(1.13, 2.55, 60.0, 3.0),
    "iec60898-c": through(1.13, 2.55, 60.0, 5.0),
    "iec60898-d": through(1.13, 2.55, 60.0, 10.0),
    "electronic": electronic(),
}


def warmed(curve: Curve, heat: float, load: float, seconds: float) -> float:
    """Return the heat after `seconds` at a load.

    It stops at 1: a breaker that still carries power then has not opened.
    """
    end = (load / curve.hold) ** 2
    return min(end + (heat - end) * exp(-max(seconds, 0.0) / curve.constant), 1.0)


def unknown_heat(curve: Curve, load: float) -> float:
    """Return the heat assumed of a breaker that was not watched: rather warm, but short of opening."""
    return (min(load, FORMER_LOAD) / curve.hold) ** 2


def trip_seconds(curve: Curve, heat: float, load: float) -> float | None:
    """Return how long until it opens if the load stays; None if it never does."""
    if load >= curve.instant:
        return 0.0
    end = (load / curve.hold) ** 2
    if end <= 1:
        return None
    return curve.constant * log((end - min(heat, 1.0)) / (end - 1))


WORTH = 0.02
"""By how much some breaker's heat must have changed to be worth saving."""
AT_LEAST_SECONDS = 600.0
"""Seconds after which it is saved anyway: what does not change must not become too old."""
KEPT_FOR_SECONDS = 3600.0
"""Seconds after which saved heat means nothing any more."""


class Breaker(Struct, frozen=True):
    """`rating` in watts. `share` is the part of the rack's power that it carries, and `split` how that is known."""

    name: str
    curve: Curve
    rating: float
    share: float = 1.0
    split: str = "whole"


class State(Struct, frozen=True):
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
        """Return whether this was saved for `breaker`, and has possible values."""
        now = (breaker.curve.hold, breaker.curve.constant, breaker.rating, breaker.share)
        return (
            (self.hold, self.constant, self.rating, self.share) == now and 0 <= self.heat <= 1 and 0 <= self.load < 1e3
        )


class KeptHeats(msgspec.Struct, frozen=True):
    """The content of the state file: the time in wall seconds, and each breaker by name."""

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
        names = {breaker.name for breaker in breakers}
        self._known = {name: heat for name, heat in self._known.items() if name in names}

    def restore(self, body: bytes, now: Instant) -> bool:
        """Take over what an earlier run saved, as if the load had stayed since; returns whether it could be used."""
        try:
            kept = _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        down = now.wall - kept.at
        if kept.rack != self._rack or not 0 <= down <= KEPT_FOR_SECONDS:
            return False
        for breaker in self._breakers:
            saved = kept.breakers.get(breaker.name)
            if saved is not None and saved.is_of(breaker):
                self._known[breaker.name] = (warmed(breaker.curve, saved.heat, saved.load, down), saved.load)
        self._at = now.mono
        return True

    def update(self, watts: float | None, now: float) -> list[State]:
        """Return all breakers, at the rack's power and a monotonic time.

        While it is not known, the last power is assumed.
        """
        seconds = 0.0 if self._at is None else now - self._at
        self._at = now
        states = []
        for breaker in self._breakers:
            breaker_heat = self._known.get(breaker.name)
            if watts is None and breaker_heat is None:
                continue
            load = (
                breaker_heat[1]
                if watts is None and breaker_heat is not None
                else (watts or 0.0) * breaker.share / breaker.rating
            )
            heat = (
                unknown_heat(breaker.curve, load)
                if breaker_heat is None
                else warmed(breaker.curve, breaker_heat[0], load, seconds)
            )
            self._known[breaker.name] = (heat, load)
            if watts is not None:
                states.append(State(breaker, load, heat, trip_seconds(breaker.curve, heat, load)))
        return states

    def worth_keeping(self, wall: float) -> bytes | None:
        """Return what to save, if it has changed since the last save, or that was long ago."""
        written = self._written
        changed = any(abs(heat - written.get(name, (9.0, 0.0))[0]) > WORTH for name, (heat, _) in self._known.items())
        late = bool(self._known) and abs(wall - self._written_at) >= AT_LEAST_SECONDS
        return self.saved(wall) if changed or late else None

    def saved(self, wall: float) -> bytes:
        """Return all that is known, to be saved."""
        self._written, self._written_at = dict(self._known), wall
        saved = {}
        for breaker in self._breakers:
            if heat := self._known.get(breaker.name):
                saved[breaker.name] = KeptBreaker(
                    *heat, breaker.curve.hold, breaker.curve.constant, breaker.rating, breaker.share
                )
        return msgspec.json.encode(KeptHeats(wall, self._rack, saved))
