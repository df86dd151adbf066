"""The state of the worker's devices: which are present, which are missing, and why one delivers nothing.

No GPU may be counted twice: a GPU that is known and silent is one GPU, even while it is unidentified. So the remembered
GPUs are matched with those that the driver counts but that have not identified themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from agent.backends.protocol import ChannelError, Unidentified
from agent.catalogue import BY_NAME
from agent.lib.wording import no_answer_for
from agent.model import Gap, GpuIdentity, Lane, Reason
from agent.sampler.presence import Inventory, Presence, stranger


def recognise(
    unidentified: Sequence[Unidentified], absent: Sequence[GpuIdentity]
) -> tuple[dict[str, Unidentified], list[Unidentified]]:
    """Return the unidentified GPU that each absent one must be, by UUID, and those that must be unknown GPUs.

    `absent` are the GPUs of the inventory that the driver does not name. The driver counts GPUs along the bus, so an
    unidentified GPU with the index of an absent one is that one; of the others, as many are known GPUs as are absent.
    If more are absent than unidentified, it is not known which of them are only silent.
    """
    known: dict[str, Unidentified] = {}
    by_index = {identity.gpu.index: identity for identity in absent}
    strangers = []
    for each in unidentified:
        identity = by_index.pop(each.index, None)
        if identity is None:
            strangers.append(each)
        else:
            known[identity.gpu.uuid] = each
    rest = [identity for identity in absent if identity.gpu.uuid not in known]
    if len(rest) > len(strangers):
        return known, []
    known.update({identity.gpu.uuid: each for identity, each in zip(rest, strangers, strict=False)})
    return known, strangers[len(rest) :]


log = logging.getLogger("coldplate.devices")

AGE = BY_NAME["coldplate_gpu_sample_age_seconds"]
EXAMPLES = 4
"""How many GPUs' reasons are listed if none has identified itself."""


class Trouble(Struct, frozen=True):
    """Why readings are withdrawn."""

    reason: Reason
    detail: str


GONE = Trouble(Reason.LOST, "the driver does not show the device")


def _silence(seconds: float) -> Trouble:
    return Trouble(Reason.TIMEOUT, no_answer_for(seconds))


class Devices:
    """The channels of the worker, compared with the inventory. Times in seconds on the monotonic clock."""

    def __init__(self, inventory: Inventory, presence: Presence) -> None:
        self._inventory = inventory
        self._presence = presence
        self.channels: dict[str, GpuIdentity | None] = {}
        self._joined_at: dict[str, float] = {}
        self._unidentified: Sequence[Unidentified] = ()
        self._absent: dict[str, Trouble] = {}
        """By UUID, why a GPU of the inventory is not among the channels, if that is known."""
        self._trouble: dict[str, Trouble] = {}
        self._refusal: Trouble | None = None
        self._open = False
        """Whether a worker has shown its devices since the last one failed."""
        self._logged: dict[str, bool] = {}
        self._logged_strangers: set[str] = set()

    @property
    def identities(self) -> list[GpuIdentity]:
        return [identity for identity in self.channels.values() if identity is not None]

    def enlist(
        self, channels: Sequence[tuple[str, GpuIdentity | None]], unidentified: Sequence[Unidentified], now: float
    ) -> bool:
        """Take in a worker's channels, and the GPUs that have not identified themselves. Call it for each change.

        True if the channels have changed.
        """
        joined = [identity.model for key, identity in channels if identity is not None and key not in self.channels]
        for model in dict.fromkeys(joined):
            log.info("sampling %d GPUs: %s", joined.count(model), model)
        changed = dict(channels) != self.channels
        self.channels = dict(channels)
        self._joined_at = {key: self._joined_at.get(key, now) for key in self.channels}
        self._unidentified = unidentified
        self._refusal, self._open, self._presence.paused = None, True, False
        return changed

    def enumerate(self, expected: int | None) -> None:
        """Compare what the driver shows with the inventory; `expected` is the configured number of GPUs, if any."""
        if self.channels:
            self._inventory.enumerate(self.identities, expected)
            for identity in self._inventory.gpus.values():
                if identity.gpu.uuid not in self.channels:
                    self._presence.lost(identity.gpu.uuid)

    def recognise(self) -> None:
        """Find out which GPUs those are that have not identified themselves."""
        absent = [each for each in self._inventory.gpus.values() if each.gpu.uuid not in self.channels]
        known, strangers = recognise(self._unidentified, absent)
        self._absent = {uuid: Trouble(each.reason, each.detail) for uuid, each in known.items()}
        self._presence.strangers = strangers
        self._log_strangers(strangers)

    def why_no_channels(self) -> str:
        """Return why a worker shows no channel at all; empty if it shows any."""
        if self.channels or not self._open:
            return ""
        examples = "; ".join(f"GPU {each.index}: {each.detail}" for each in self._unidentified[:EXAMPLES])
        return f"none of the {len(self._unidentified)} GPUs of this node has identified itself ({examples})"

    def refused(self, reason: Reason, detail: str) -> None:
        """Record that the devices cannot be read at all, for this reason."""
        self._refusal = Trouble(reason, detail)
        self._open = self._presence.paused = False
        self._joined_at.clear()
        self._trouble.clear()

    def pause(self, detail: str) -> None:
        """Stop showing devices for a while, because the driver is needed elsewhere: which are up is not shown."""
        self.refused(Reason.PAUSED, detail)
        self._presence.rest()

    def failed(self, error: ChannelError) -> None:
        """Record that one device could not be read as a whole."""
        if error.reason is Reason.LOST or error.lane is Lane.FAST:
            self._trouble[error.channel] = Trouble(error.reason, error.detail)
        if error.reason is Reason.LOST:
            self._presence.lost(error.channel)

    def good(self, channel: str, at: float) -> bool:
        """Record a complete fast sample of one device; returns whether it was in trouble before."""
        self._presence.good(channel, at)
        return self._trouble.pop(channel, None) is not None

    def forget(self, known: AbstractSet[str]) -> None:
        """Forget the devices that are not among these."""
        self._logged = {uuid: up for uuid, up in self._logged.items() if uuid in known}
        self._presence.forget(known)

    def in_trouble(self, channel: str) -> bool:
        """Return whether the device's last answer was an error."""
        return channel in self._trouble

    def expects(self, channel: str, now: float, patience: float) -> bool:
        """Return whether the channel answered lately, so that a tick may wait for it."""
        at = self._presence.last_good(channel)
        return channel not in self._trouble and (at is None or now - at <= patience)

    def trouble(self, channel: str, since: float, now: float, patience: float) -> Trouble | None:
        """Return why the readings of a device are not shown any more; `since` is when it was last read, in any lane."""
        if channel in self._trouble or channel not in self.channels:
            return self._why_down(channel, now, patience)
        at = self._presence.last_good(channel)
        silent = now - (since if at is None else at)
        if silent > patience:
            return self._refusal or _silence(silent)
        return None

    def unseen(self, now: float, patience: float) -> list[Gap]:
        """Return a gap with the reason for each GPU that never gave a sample, since it has no reading to withdraw."""
        gaps = [Gap(AGE, stranger(each), each.reason, each.detail) for each in self._presence.strangers]
        for identity in self._inventory.gpus.values():
            gpu = identity.gpu
            if self._presence.last_good(gpu.uuid) is None:
                trouble = self._why_down(gpu.uuid, now, patience)
                if trouble is not None:
                    gaps.append(Gap(AGE, gpu, trouble.reason, trouble.detail))
        return gaps

    def _why_down(self, channel: str, now: float, patience: float) -> Trouble | None:
        """Return what is known of why a device gives nothing; None if its first sample may still come."""
        if channel in self._trouble:
            return self._trouble[channel]
        if channel not in self.channels:
            return self._absent.get(channel) or self._refusal or (GONE if self._open else None)
        at, joined = self._presence.last_good(channel), self._joined_at.get(channel, now)
        waited = now - (joined if at is None else max(at, joined))
        if self._refusal is None and waited > patience:
            return _silence(waited)
        return self._refusal

    def _log_strangers(self, strangers: Sequence[Unidentified]) -> None:
        """Log each GPU that does not identify itself once, and once when it has."""
        for each in strangers:
            if each.index not in self._logged_strangers:
                facts = {"gpu": each.index, "reason": each.reason.value, "detail": each.detail}
                log.warning("GPU not identified", extra={"facts": facts})
        indexes = {each.index for each in strangers}
        for index in sorted(self._logged_strangers - indexes):
            log.info("GPU identified", extra={"facts": {"gpu": index}})
        self._logged_strangers = indexes

    def log_changes(self, now: float, patience: float) -> None:
        """Log each GPU that went down or came back."""
        if self._presence.paused:
            return
        for identity in self._inventory.gpus.values():
            uuid = identity.gpu.uuid
            up = self._presence.is_up(uuid, now, patience)
            if up is self._logged.get(uuid, True):
                continue
            trouble = None if up else self._why_down(uuid, now, patience)
            if not up and trouble is None and self._presence.last_good(uuid) is None:
                continue  # its first sample is still to come
            self._logged[uuid] = up
            facts = {"gpu": identity.gpu.index, "uuid": uuid, "slot": identity.slot}
            if up:
                log.info("GPU is back", extra={"facts": facts})
                continue
            trouble = trouble or Trouble(Reason.TIMEOUT, "no answer in time")
            facts.update(reason=trouble.reason.value, detail=trouble.detail)
            log.warning("GPU is down", extra={"facts": facts})
