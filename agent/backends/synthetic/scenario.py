"""A parsed and checked scenario: its faults announced, and its jobs as processes, one on each GPU that a job holds.

Nothing here reads a file or knows YAML.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from math import floor, inf

from msgspec import Struct, field

from agent.backends.protocol import GpuProcess
from agent.backends.synthetic.machines import MachineType

EDGE = 1e-6
"""Two moments closer than this are the same moment: an edge must not be lost to rounding."""


class Window(Struct, frozen=True):
    """When something holds: from `at`, for `duration` (None: forever), again every `repeat` seconds."""

    at: float = 0.0
    duration: float | None = None
    repeat: float | None = None

    def started(self, t: float) -> int:
        """Return how often it has begun by `t`."""
        if t < self.at - EDGE:
            return 0
        return 1 if self.repeat is None else floor((t - self.at + EDGE) / self.repeat) + 1

    def onset(self, times: int) -> float:
        """Return when it begins for the nth time."""
        return self.at + (times - 1) * (self.repeat or 0.0)

    def begun(self, t: float) -> float | None:
        """Return when the occurrence that holds at `t` began; None if none does."""
        times = self.started(t)
        if not times:
            return None
        start = self.onset(times)
        return start if self.duration is None or t < start + self.duration - EDGE else None

    def holds(self, t: float) -> bool:
        return self.begun(t) is not None

    def elapsed(self, t: float) -> float:
        """Return the time, up to `t`, in which it held."""
        times = self.started(t)
        if not times:
            return 0.0
        start = self.onset(times)
        now = max(0.0, t - start)
        return now if self.duration is None else (times - 1) * self.duration + min(now, self.duration)

    def next_edge(self, t: float) -> float:
        """Return the first moment after `t` at which it begins or ends."""
        times = self.started(t)
        if not times:
            return self.at
        start = self.onset(times)
        if self.duration is not None and start + self.duration > t + EDGE:
            return start + self.duration
        return inf if self.repeat is None else start + self.repeat


class ScenarioPhase(Struct, frozen=True):
    """A stretch of a job: what its GPUs do. `parameters` are those of the kind, all of them present."""

    kind: str
    window: Window
    parameters: Mapping[str, float] = field(default_factory=dict)


class ScenarioJob(Struct, frozen=True):
    """A job on some of the node's GPUs. `memory` is its share of each GPU's memory."""

    id: str
    gpus: tuple[int, ...]
    phases: tuple[ScenarioPhase, ...]
    window: Window
    name: str = ""
    user: str = ""
    scheduler: str = "slurm"
    parallelism: str = "data"
    memory: float = 0.8
    account: str = ""
    partition: str = ""


class ScenarioFault(Struct, frozen=True):
    """Something that goes wrong, or is done to the node, while its window holds.

    `gpus`, `port` and `link` are set if the kind needs them, and `part`: an optical interface, a leak detector, a pump
    or a feed.
    `parameters` are numbers, `options` words.
    """

    kind: str
    window: Window
    gpus: tuple[int, ...] = ()
    port: str = ""
    link: int = 0
    parameters: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    part: str = ""


class AwaitedFault(Struct, frozen=True):
    """A fault for which a job that spans nodes waits on this one, wherever in the job it is.

    `job` is the place of the job among the scenario's. The fault's `gpus` are those of this node that have it
    themselves, and do not wait; there are none if it is a fault of other nodes.
    """

    job: int
    fault: ScenarioFault


class Scenario(Struct, frozen=True):
    """What happens on one node: which machine it is, what runs on it, and what goes wrong."""

    name: str
    description: str
    topology: MachineType
    seed: int = 1
    jobs: tuple[ScenarioJob, ...] = ()
    faults: tuple[ScenarioFault, ...] = ()
    expect: tuple[str, ...] = ()
    awaited: tuple[AwaitedFault, ...] = ()
    """Set for a node of a simulated site whose jobs span nodes; no file has it."""

    def faults_of(self, kind: str, gpu: int | None = None) -> tuple[ScenarioFault, ...]:
        """Return the faults of a kind, or those of them that are done to a GPU."""
        return tuple(fault for fault in self.faults if fault.kind == kind and (gpu is None or gpu in fault.gpus))


MOST = 12
"""Most faults that are announced one by one."""


def announced(scenario: Scenario, wall: float) -> Iterator[str]:
    """Return a line for each fault, by its time; the scenario begins at `wall`, in seconds since the epoch.

    Viewers of a demonstration must know when and where to look.
    """
    faults = sorted(scenario.faults, key=lambda fault: fault.window.at)
    for fault in faults[:MOST]:
        code = f" {fault.parameters['code']:g}" if "code" in fault.parameters else ""
        yield f"{fault.kind}{code}{_where(fault)}{_when(fault, wall)}"
    if len(faults) > MOST:
        yield f"and {len(faults) - MOST} more faults"


def _where(fault: ScenarioFault) -> str:
    part = fault.port or fault.part
    if part:
        return f" of {part}"
    if not fault.gpus:
        return ""
    gpus = f"GPU {', '.join(map(str, fault.gpus))}"
    return f" of link {fault.link} of {gpus}" if fault.kind.startswith("nvlink") else f" of {gpus}"


def _when(fault: ScenarioFault, wall: float) -> str:
    window = fault.window
    again = "" if window.repeat is None else f", repeated every {window.repeat:g} s"
    if window.at <= 0.0:
        return f" from the start{again}"
    at = datetime.fromtimestamp(wall + window.at, timezone.utc)
    return f" starts at {at:%H:%M:%S} UTC, in {window.at:g} s{again}"


FIRST_PID = 2**22 + 1
"""Linux gives no process an id above 2^22 (PID_MAX_LIMIT), so a synthetic one is never that of a real process."""
COMMAND = "python3"
"""The program of every job."""
_GPU_IDS = 1024
"""Ids that each job has, one for each GPU."""


def processes_of(scenario: Scenario, job: ScenarioJob | None, gpu: int, memory: float) -> tuple[GpuProcess, ...]:
    """Return the process of the job that holds the GPU, with the bytes of memory in use; none without a job."""
    if job is None:
        return ()
    return (GpuProcess(FIRST_PID + scenario.jobs.index(job) * _GPU_IDS + gpu, int(memory)),)


def owner_of(scenario: Scenario, pid: int) -> tuple[str, str]:
    """Return user and command of a synthetic process; empty where the scenario has none of that id."""
    place = (pid - FIRST_PID) // _GPU_IDS
    if not 0 <= place < len(scenario.jobs):
        return "", ""
    return scenario.jobs[place].user, COMMAND
