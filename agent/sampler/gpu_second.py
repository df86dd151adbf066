"""Divides one second of one GPU among the ledger's states.

A GPU is busy for the share of a second that the driver's utilization says, and idle for the rest. Busy means computing
where power, tensor cores, multiprocessors or memory show work, else waiting: a GPU that spins in a collective is fully
busy. What an idle second was depends on the job's other GPUs on this node, and on what the node reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.catalogue.gpu import WORKING_POWER
from agent.model import Labels

SPINNING_POWER = 0.25
"""Share of the default power limit below which a busy GPU without activity counters waits.

Spinning reaches 24%, decoding falls to 27%. Reported of spinning GPUs: H100 100 to 157 W of 700 W (NeMo issue 9291,
nccl issue 1550), V100 40 to 47 W of 250 W (horovod issue 3611).
"""
ABOVE_IDLE = 0.05
"""Share of it by which spinning exceeds the GPU's own idle power, at most. PCIe boards idle above `SPINNING_POWER`.

Beside 129 to 137 W of idle H100 whose memory a job holds, one that spins draws 152 W (nccl issue 1550): 3%.
"""
WORKING_TENSOR, WORKING_SM, WORKING_DRAM = 0.05, 0.3, 0.1
"""Activities from which a busy GPU computes."""
HELD_BYTES = 2**30
"""Memory in use from which a GPU is held though no job is known: a process outside of the agent's view has it.

A driver that reports no reserved memory counts it as used: 0.5 GiB on an H100 (nvmlMemory_v1_t).
"""


class GpuHolder(NamedTuple):
    """Who holds a GPU: a job that has it whole and alone, others (`is_shared`), or no job."""

    job: Labels | None
    is_shared: bool


NOBODY = GpuHolder(None, False)


class GpuSecond(NamedTuple):
    """One GPU between two ticks. `busy` is a share of the time; `works`: it computes and does not only spin."""

    up: bool
    busy: float
    works: bool
    is_throttled: bool
    is_loading: bool
    is_fed: bool = False
    """Whether much data arrives over PCIe."""
    activity: float | None = None
    """Activity of the tensor cores, else power as a share of the default limit; None where the device shows neither."""
    used: float | None = None
    """Bytes of its memory in use; None where the device does not show them."""
    has_worked: bool = True
    """Whether it computed in its job at any time. One that did not, and holds little memory, is still to be loaded."""
    is_known: bool = True
    """Whether it shows its utilization or its power. Without either, nothing says what it did."""


class JobPeers(NamedTuple):
    """How many other GPUs of a job here show what they do, and how many of them wait or compute most of the time.

    `used` is the most memory that one of the job's GPUs has in use, in bytes.
    """

    up: int = 0
    waiting: int = 0
    computing: int = 0
    used: float = 0.0

    def without(self, second: GpuSecond) -> JobPeers:
        """Return the same without one of them."""
        if not (second.up and second.is_known):
            return self
        mostly = second.busy >= 0.5
        return JobPeers(
            self.up - 1,
            self.waiting - (mostly and not second.works),
            self.computing - (mostly and second.works),
            self.used,
        )


NO_PEERS = JobPeers()
UNKNOWN_SECOND = GpuSecond(True, 0.0, False, False, False, is_known=False)


def peers_of(seconds: Iterable[GpuSecond]) -> JobPeers:
    """Count the GPUs of one job."""
    up = [second for second in seconds if second.up and second.is_known]
    busy = [gpu.works for gpu in up if gpu.busy >= 0.5]
    return JobPeers(len(up), busy.count(False), busy.count(True), max((gpu.used or 0.0 for gpu in up), default=0.0))


def shares_of(
    second: GpuSecond, held: GpuHolder, peers: JobPeers, *, writes: bool, reads: bool
) -> tuple[tuple[str, float], ...]:
    """Divide the time of one GPU. `peers` are the other GPUs of its job here; the host `writes` or `reads` much."""
    if not second.up:
        return (("lost", 1.0),)
    if not second.is_known:
        return ()
    if not second.works and second.used is not None and _is_unused(second, held):
        # Nothing on it can spin: without persistence mode a driver reports up to 100 % of an unused GPU.
        return (("free", 1.0),)
    saves = writes and not peers.computing and held.job is not None
    working, spinning = "throttled" if second.is_throttled else "computing", "saving" if saves else "waiting"
    busy = working if second.works else spinning
    if second.busy == 1.0:
        return ((busy, 1.0),)
    return ((busy, second.busy), (_idle(second, held, peers, saves, reads and not peers.computing), 1.0 - second.busy))


def _is_unused(second: GpuSecond, held: GpuHolder) -> bool:
    """Return True if no job holds the GPU and none outside of the agent's view shows in its memory."""
    return held == NOBODY and (second.used or 0.0) < HELD_BYTES


def _idle(second: GpuSecond, held: GpuHolder, peers: JobPeers, saves: bool, reads: bool) -> str:
    if held.is_shared:
        return "held"
    if held.job is None:
        return "free" if _is_unused(second, held) else "held"
    if second.is_loading or (not second.has_worked and 2 * (second.used or 0.0) < peers.used):
        return "loading"
    if saves:
        return "saving"
    if peers.waiting and 2 * peers.waiting >= peers.up:
        return "awaited"
    return "starved" if (reads or second.is_fed) and not peers.waiting else "held"


def is_working(read: Mapping[str, float], power: float | None, idle: float = 0.0) -> bool:
    """Return whether a busy GPU or instance computes.

    `power` is a share of the default limit, None if unknown; `idle` is what the GPU draws when idle, 0 if unknown.
    """
    spinning = max(SPINNING_POWER, idle + ABOVE_IDLE)
    if power is not None and power >= max(WORKING_POWER, spinning):
        return True
    activities = ("tensor", WORKING_TENSOR), ("sm", WORKING_SM), ("dram", WORKING_DRAM)
    if any(name in read for name, _ in activities):
        return any(read.get(name, 0.0) >= least for name, least in activities)
    return power is None or power >= spinning
