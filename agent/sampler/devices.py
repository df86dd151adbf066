"""The state of the worker's devices: which are present, which are missing, and why one delivers nothing.

No GPU may be counted twice: a GPU that is known and silent is one GPU, even while it is unidentified. So the remembered
GPUs are matched with those that the driver counts but that have not identified themselves.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from agent.backends.protocol import ChannelError, Unidentified
from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.logs import LogOnce
from agent.lib.wording import no_answer_for
from agent.model import Frame, Gap, Gpu, GpuIdentity, Lane, Reason
from agent.sampler.inventory import Inventory


def recognise(
    unidentified: Sequence[Unidentified], absent: Sequence[GpuIdentity]
) -> tuple[dict[str, Unidentified], list[Unidentified]]:
    """Return the unidentified GPU that each absent one must be, by UUID, and those that must be unknown GPUs.

    `absent` are the GPUs of the inventory that the driver does not name. The driver counts GPUs along the bus, so an
    unidentified GPU with the index of an absent one is that one; of the others, as many are known GPUs as are absent.
    If more are absent than unidentified, it is not known which of them are only silent.
    """
    identified: dict[str, Unidentified] = {}
    by_index = {identity.gpu.index: identity for identity in absent}
    strangers = []
    for gpu in unidentified:
        identity = by_index.pop(gpu.index, None)
        if identity is None:
            strangers.append(gpu)
        else:
            identified[identity.gpu.uuid] = gpu
    rest = [identity for identity in absent if identity.gpu.uuid not in identified]
    if len(rest) > len(strangers):
        return identified, []
    identified.update({identity.gpu.uuid: unknown_gpu for identity, unknown_gpu in zip(rest, strangers, strict=False)})
    return identified, strangers[len(rest) :]


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


def stranger(missing: Unidentified) -> Gpu:
    """Return a GPU of which only the index is known."""
    return Gpu(missing.index, "")


class _Device(Struct):
    """What is known of one device of the worker, or of the inventory. Times in seconds on the monotonic clock."""

    joined_at: float | None = None
    """Since when a worker has shown it."""
    good_at: float | None = None
    """When its last complete fast sample was read."""
    is_lost: bool = False
    """Whether the driver says that it is gone or needs a reset."""
    trouble: Trouble | None = None
    """Why its last answer was an error."""
    was_up: bool = True
    """Whether it was up by the last log line about it."""

    def is_up(self, now: float, timeout: float) -> bool:
        return self.good_at is not None and not self.is_lost and now - self.good_at <= timeout


FindUnclaimed = Callable[[AbstractSet[str]], Sequence[str]]
"""Returns the PCI addresses of the GPUs on the bus that no driver has; its argument has those of the known GPUs."""


class Devices:
    """The channels of the worker, compared with the inventory. Times in seconds on the monotonic clock."""

    def __init__(
        self, inventory: Inventory, gpus_on_bus: int = 0, find_unclaimed: FindUnclaimed = lambda _: ()
    ) -> None:
        """`gpus_on_bus`: how many to expect if nothing else says. `find_unclaimed` is called for each enumeration."""
        self._inventory = inventory
        self._on_bus = gpus_on_bus
        self._find_unclaimed = find_unclaimed
        self._unclaimed: Sequence[str] = ()
        """PCI addresses of the GPUs on the bus that the driver did not take."""
        self.channels: dict[str, GpuIdentity | None] = {}
        self._devices = defaultdict[str, _Device](_Device)
        self._unidentified: Sequence[Unidentified] = ()
        self.strangers: Sequence[Unidentified] = ()
        """GPUs that the driver counts but that are not known: they have not identified themselves."""
        self._absent: dict[str, Trouble] = {}
        """By UUID, why a GPU of the inventory is not among the channels, if that is known."""
        self._refusal: Trouble | None = None
        self._open = False
        """Whether a worker has shown its devices since the last one failed."""
        self._paused = False
        """Whether the driver has been released on request: which GPUs are up is not known, and not an alarm."""
        self._once = LogOnce(log)
        self._own = OwnSeries()

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
        before, self.channels = self.channels, dict(channels)
        for key in self.channels:
            device = self._devices[key]
            if key not in before or device.joined_at is None:
                device.joined_at = now
        self._unidentified = unidentified
        self._compare_with_bus()
        self._refusal, self._open, self._paused = None, True, False
        return before != self.channels

    def enumerate(self, expected: int | None) -> None:
        """Compare what the driver shows with the inventory; `expected` is the configured number of GPUs, if any."""
        if self.channels:
            self._inventory.enumerate(self.identities, expected)
            for identity in self._inventory.gpus.values():
                if identity.gpu.uuid not in self.channels:
                    self._devices[identity.gpu.uuid].is_lost = True

    def _compare_with_bus(self) -> None:
        """Find the GPUs on the bus that the driver did not take; log each once."""
        slots = {identity.slot for identity in (*self.identities, *self._inventory.gpus.values())}
        before, self._unclaimed = self._unclaimed, self._find_unclaimed(slots)
        for slot in self._unclaimed:
            self._once.problem(slot, "GPU on the PCI bus has no driver: its probe failed", facts={"slot": slot})
        for slot in set(before) - set(self._unclaimed):
            self._once.over(slot, "GPU on the PCI bus has a driver", facts={"slot": slot})

    def recognise(self) -> None:
        """Find out which GPUs those are that have not identified themselves."""
        absent = [identity for identity in self._inventory.gpus.values() if identity.gpu.uuid not in self.channels]
        before = self.strangers
        identified, self.strangers = recognise(self._unidentified, absent)
        self._absent = {uuid: Trouble(identity.reason, identity.detail) for uuid, identity in identified.items()}
        for unknown_gpu in self.strangers:
            facts = {"gpu": unknown_gpu.index, "reason": unknown_gpu.reason.value, "detail": unknown_gpu.detail}
            self._once.problem(unknown_gpu.index, "GPU not identified", facts=facts)
        for index in sorted({u.index for u in before} - {u.index for u in self.strangers}):
            self._once.over(index, "GPU identified", facts={"gpu": index})

    def why_no_channels(self) -> str:
        """Return why a worker shows no channel at all; empty if it shows any."""
        if self.channels or not self._open:
            return ""
        examples = "; ".join(f"GPU {u.index}: {u.detail}" for u in self._unidentified[:EXAMPLES])
        return f"none of the {len(self._unidentified)} GPUs of this node has identified itself ({examples})"

    def refused(self, reason: Reason, detail: str) -> None:
        """Record that the devices cannot be read at all, for this reason."""
        self._refusal = Trouble(reason, detail)
        self._open = self._paused = False
        for device in self._devices.values():
            device.joined_at = device.trouble = None

    def pause(self, detail: str) -> None:
        """Stop showing devices for a while, because the driver is needed elsewhere. Afterwards they start like new."""
        self.refused(Reason.PAUSED, detail)
        self._paused = True
        were_up = {uuid: _Device(was_up=device.was_up) for uuid, device in self._devices.items()}
        self._devices = defaultdict(_Device, were_up)

    def failed(self, error: ChannelError) -> None:
        """Record that one device could not be read as a whole."""
        device = self._devices[error.channel]
        device.is_lost |= error.reason is Reason.LOST
        if error.reason is Reason.LOST or error.lane is Lane.FAST:
            device.trouble = Trouble(error.reason, error.detail)

    def good(self, channel: str, at: float) -> bool:
        """Record a complete fast sample of one device; returns whether it was in trouble before."""
        device = self._devices[channel]
        recovered = device.trouble is not None
        device.good_at, device.is_lost, device.trouble = at, False, None
        return recovered

    def forget(self, uuids: AbstractSet[str]) -> None:
        """Forget the devices that are not among these."""
        for uuid in self._devices.keys() - uuids:
            del self._devices[uuid]

    def in_trouble(self, channel: str) -> bool:
        """Return whether the device's last answer was an error. For any thread."""
        device = self._devices.get(channel)
        return device is not None and device.trouble is not None

    def expects(self, channel: str, now: float, timeout: float) -> bool:
        """Return whether the channel answered lately, so that a tick may wait for it."""
        device = self._devices[channel]
        return device.trouble is None and (device.good_at is None or now - device.good_at <= timeout)

    def trouble(self, channel: str, since: float, now: float, timeout: float) -> Trouble | None:
        """Return why the readings of a device are not shown any more; `since` is when it was last read, in any lane."""
        device = self._devices[channel]
        if device.trouble is not None or channel not in self.channels:
            return self._why_down(channel, now, timeout)
        silent = now - (since if device.good_at is None else device.good_at)
        if silent > timeout:
            return self._refusal or _silence(silent)
        return None

    def unseen(self, now: float, timeout: float) -> list[Gap]:
        """Return a gap with the reason for each GPU that never gave a sample, since it has no reading to withdraw."""
        gaps = [Gap(AGE, stranger(u), u.reason, u.detail) for u in self.strangers]
        for identity in self._inventory.gpus.values():
            gpu = identity.gpu
            if self._devices[gpu.uuid].good_at is None:
                trouble = self._why_down(gpu.uuid, now, timeout)
                if trouble is not None:
                    gaps.append(Gap(AGE, gpu, trouble.reason, trouble.detail))
        return gaps

    def _why_down(self, channel: str, now: float, timeout: float) -> Trouble | None:
        """Return what is known of why a device gives nothing; None if its first sample may still come."""
        device = self._devices[channel]
        if device.trouble is not None:
            return device.trouble
        if channel not in self.channels:
            return self._absent.get(channel) or self._refusal or (GONE if self._open else None)
        joined = now if device.joined_at is None else device.joined_at
        waited = now - (joined if device.good_at is None else max(device.good_at, joined))
        if self._refusal is None and waited > timeout:
            return _silence(waited)
        return self._refusal

    def frame(self, now: float, timeout: float, expected: int | None) -> Frame:
        """Return presence, age and facts of every known GPU, and how many there should be."""
        return self._own.frame(self._readings(now, timeout, expected))

    def _readings(self, now: float, timeout: float, expected: int | None) -> Iterator[OwnReading]:
        for slot, identity in self._inventory.gpus.items():
            gpu, device = identity.gpu, self._devices[identity.gpu.uuid]
            if not self._paused:
                yield OwnReading("coldplate_gpu_up", int(device.is_up(now, timeout)), (), gpu)
                if device.good_at is not None:
                    yield OwnReading("coldplate_gpu_sample_age_seconds", max(now - device.good_at, 0.0), (), gpu)
            owns = (("slot", slot), ("serial", identity.serial))
            yield OwnReading("coldplate_gpu_info", 1, (*owns, ("model", identity.model), *identity.facts), gpu)
            if slot in self._inventory.replaced:
                uuid, serial = self._inventory.replaced[slot]
                previous = (("previous_uuid", uuid), ("previous_serial", serial))
                yield OwnReading("coldplate_gpu_replaced_info", 1, (*owns, *previous), gpu)
        if self._paused:
            return
        for missing in self.strangers:
            yield OwnReading("coldplate_gpu_up", 0, (), stranger(missing))
        # Without a driver, or if it shows none of them, those on the bus are expected.
        count = len(self._inventory.gpus) + len(self.strangers) + len(self._unclaimed) or self._on_bus
        if expected is not None or count:
            yield OwnReading("coldplate_gpus_expected", count if expected is None else expected)

    def log_changes(self, now: float, timeout: float) -> None:
        """Log each GPU that went down or came back."""
        if self._paused:
            return
        for identity in self._inventory.gpus.values():
            uuid = identity.gpu.uuid
            device = self._devices[uuid]
            up = device.is_up(now, timeout)
            if up is device.was_up:
                continue
            trouble = None if up else self._why_down(uuid, now, timeout)
            if not up and trouble is None and device.good_at is None:
                continue  # its first sample is still to come
            device.was_up = up
            facts = {"gpu": identity.gpu.index, "uuid": uuid, "slot": identity.slot}
            if up:
                log.info("GPU is back", extra={"facts": facts})
                continue
            trouble = trouble or Trouble(Reason.TIMEOUT, "no answer in time")
            facts.update(reason=trouble.reason.value, detail=trouble.detail)
            log.warning("GPU is down", extra={"facts": facts})
