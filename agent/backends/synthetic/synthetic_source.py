"""The source of a synthetic node: one channel for each GPU and one for everything else.

It reads no clock: `epoch` is the monotonic second at which the scenario started, and every read passes its
own time. A second source for the same scenario and epoch, in another process, continues where the first
one stopped, including counters, because there is no state to lose.
"""

import threading
from collections.abc import Sequence

from agent.backends.protocol import Channel, DeviceError, Roster, SourceError, Unidentified
from agent.backends.synthetic.activity import hash64
from agent.backends.synthetic.machines import MachineType
from agent.backends.synthetic.non_gpu_channel import NonGpuChannel
from agent.backends.synthetic.scenario import Scenario
from agent.backends.synthetic.synthetic_faults import ReadGate, XidFeed
from agent.backends.synthetic.synthetic_gpu import SyntheticGpuChannel
from agent.model import Gpu, GpuIdentity, Instant, Labels, Xid

DRIVER = "570.172.08"


class SyntheticSource:
    """The node described by a scenario, as a source of readings."""

    name = "synthetic"

    def __init__(self, scenario: Scenario, epoch: float) -> None:
        self._scenario = scenario
        self._epoch = epoch
        self._released = threading.Event()
        self._gate = ReadGate(scenario, None, self._released)
        self._hangs = scenario.faults_of("hang")
        self._feed: XidFeed | None = None
        self._waiting: dict[int, GpuIdentity] = {}
        """GPUs that have not identified themselves yet, by number."""
        self._joined: tuple[Channel, ...] = ()

    def open(self, now: Instant) -> Sequence[Channel]:
        """Return the channels. XID errors from before `now` are not reported."""
        t = max(0.0, now.mono - self._epoch)
        self._gate.source(t)
        scenario = self._scenario
        identities = [identity_of(scenario, number) for number in range(scenario.topology.gpus)]
        gpus = tuple(identity.gpu for identity in identities)
        self._feed = feed = XidFeed(scenario, tuple(gpu.uuid for gpu in gpus), t)
        self._waiting = dict(enumerate(identities))
        rest = NonGpuChannel(scenario, gpus, self._epoch, self._released, feed=feed, waiting=self._waiting)
        self._joined = (*self._arrivals(t), rest)
        return self._joined

    def roster(self, now: Instant) -> Roster:
        """Return the GPUs that have joined; one that hangs or is lost at first joins when that is over."""
        t = max(0.0, now.mono - self._epoch)
        self._joined += self._arrivals(t)
        silent = ((number, self._silence(number, t)) for number in self._waiting)
        missing = (Unidentified(str(number), error.reason, error.detail) for number, error in silent if error)
        return Roster(self._joined, tuple(missing))

    def is_hanging(self, channel: Channel, now: Instant) -> bool:
        """Return whether a read of the channel would not return: for callers that cannot leave a thread behind."""
        if not self._hangs or channel.identity is None:
            return False
        number = int(channel.identity.gpu.index)
        t = max(0.0, now.mono - self._epoch)
        return any(number in fault.gpus and fault.window.holds(t) for fault in self._hangs)

    def _arrivals(self, t: float) -> tuple[Channel, ...]:
        """Return channels of the GPUs that identify themselves at `t` for the first time."""
        scenario, epoch, released, feed = self._scenario, self._epoch, self._released, self._feed
        assert feed is not None
        return tuple(
            SyntheticGpuChannel(scenario, number, self._waiting.pop(number), epoch, released=released, feed=feed)
            for number in list(self._waiting)
            if self._silence(number, t) is None
        )

    def _silence(self, number: int, t: float) -> DeviceError | None:
        return ReadGate(self._scenario, number, self._released).silence(t)

    def events(self, timeout: float) -> Sequence[Xid]:
        """Return XID errors that have become due at a read since the last call."""
        if self._released.is_set():
            raise SourceError("the synthetic source is closed")
        if self._feed is None:
            raise SourceError("the synthetic source is not open")
        return self._feed.wait(timeout)

    def close(self) -> None:
        """Release every read that hangs, and every thread that waits for events."""
        self._released.set()
        if self._feed is not None:
            self._feed.close()


def identity_of(scenario: Scenario, number: int) -> GpuIdentity:
    """Return what the GPU of this number says of itself."""
    machine = scenario.topology
    digits = f"{hash64(scenario.seed, number, 71):016x}{hash64(scenario.seed, number, 72):016x}"
    uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return GpuIdentity(
        Gpu(str(number), uuid),
        machine.slots[number],
        f"165{hash64(scenario.seed, number, 73) % 10**10:010d}",
        machine.model,
        _facts(machine, number),
    )


def _facts(machine: MachineType, number: int) -> Labels:
    """Return the further labels of coldplate_gpu_info that a real GPU has, too."""
    return (
        ("driver_version", DRIVER),
        ("vbios", "96.00.99.00.01"),
        ("architecture", machine.architecture),
        ("compute_capability", machine.capability),
        ("minor", str(number)),
        ("numa_node", str(2 * number // machine.gpus)),
        ("board_part", "synthetic"),
    )


SETTLING_SECONDS = 20.0
"""Seconds from the last fault's beginning until it shows in full: heat takes a while."""


def settled_at(scenario: Scenario) -> float:
    """Return seconds from the scenario's beginning until the last of its faults has shown."""
    return max((fault.window.at for fault in scenario.faults), default=0.0) + SETTLING_SECONDS


def past_xids(scenario: Scenario, t: float, now: Instant) -> list[Xid]:
    """Return the XIDs of the first `t` seconds, as the kernel log of such a node would have them at `now`."""
    uuids = tuple(identity_of(scenario, number).gpu.uuid for number in range(scenario.topology.gpus))
    feed = XidFeed(scenario, uuids, 0.0)
    feed.advance(t, now)
    return feed.wait(0.0)
