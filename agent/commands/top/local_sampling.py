"""Reads the devices of this machine for the view, where no agent is attached to, and the owners of GPU processes."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.backends.jobs.environments import UserNames
from agent.backends.jobs.process_table import REAL_USER, number_after
from agent.backends.protocol import GpuProcess
from agent.backends.synthetic.scenario import Scenario, owner_of
from agent.commands.top.screen.node_samples import NodeSample, ProcessRow, SampleBoard
from agent.config.schema import Config
from agent.daemon.hub import Hub
from agent.lib.clock import clock
from agent.lib.proc_stat import parse_stat
from agent.lib.textfile import ReadError, read_bytes
from agent.lib.threads import Threads
from agent.model import Gpu, Snapshot
from agent.wiring.alerting import load_rules
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.local_rules import LocalRules
from agent.wiring.peering import providers_of_one_run
from agent.wiring.sources import make_sampling_loop, read_scenario, sampled_every

MOST_PROCESSES = 64
"""Processes of one GPU that are looked into, those with the most memory."""
_MOST_BYTES = 8192
OwnerOf = Callable[[int, float], tuple[str, str]]
"""Return user and command of a process at a monotonic second; each is empty if it is not known."""


def procfs_owners(procfs: Path) -> OwnerOf:
    """Return what reads below `procfs`: the user's name, or number without one, and the command as the kernel has it.

    /proc/PID/stat and status are world-readable, and never wait for the process.
    """
    names = UserNames(timeout=0.0)  # a name that a directory server is slow to give comes with a later look

    def owner(pid: int, mono: float) -> tuple[str, str]:
        folder = procfs / str(pid)
        try:
            uid = number_after(read_bytes(folder / "status", _MOST_BYTES), REAL_USER)
            command = parse_stat(read_bytes(folder / "stat", _MOST_BYTES)).command
        except (ReadError, ValueError):
            return "", ""  # it has ended, or is one that this user may not see
        return names.name(uid, mono) or str(uid), command

    return owner


def scenario_owners(scenario: Scenario) -> OwnerOf:
    return lambda pid, _: owner_of(scenario, pid)


def list_processes(
    listed: Mapping[Gpu, Sequence[GpuProcess]], owner: OwnerOf, mono: float
) -> dict[Gpu, Sequence[ProcessRow]]:
    """Return the processes of each GPU, those with the most memory first."""
    rows_by_gpu: dict[Gpu, Sequence[ProcessRow]] = {}
    for gpu, processes in listed.items():
        ranked = sorted(processes, key=lambda process: (-(process.memory or 0), process.pid))[:MOST_PROCESSES]
        rows_by_gpu[gpu] = [ProcessRow(process.pid, process.memory, *owner(process.pid, mono)) for process in ranked]
    return rows_by_gpu


ORIGIN = "sampled here"
FIRST_SECONDS = 5.0
"""Seconds after which the node is shown though some GPU has not answered."""
END_SECONDS = 2.0
"""Seconds for which the sampling thread may continue after a request to stop."""


class LocalSampler:
    """The sampling loop of a daemon, in a thread, for one viewer. It keeps no state and serves no pages."""

    def __init__(
        self,
        name: str,
        config: Config,
        options: CommandLineOptions,
        interval: float,
        board: SampleBoard,
        threads: Threads,
    ) -> None:
        self._name = name
        self._is_whole = False
        self._board = board
        config = sampled_every(interval, config)
        providers = providers_of_one_run(config, options.folder, clock().wall)
        hub = Hub()
        self._loop = make_sampling_loop(config, options, hub, providers)
        self._owner = _owners(config, options)
        self._rules = LocalRules(config, load_rules(config, options.folder), clock()) if config.rules.files else None
        hub.follow("showing the node", self._show)
        self._until = clock().mono + FIRST_SECONDS
        board.expect(name)
        self._thread = threads.begin("top-sampling", self._loop.run)

    def stop(self) -> None:
        self._loop.stop()
        self._thread.join(END_SECONDS)
        self._loop.close(time.sleep)

    def _show(self, snapshot: Snapshot) -> None:
        mono = clock().mono
        if not self._is_whole and mono < self._until:
            self._is_whole = self._loop.sampler.all_devices_answered
            if not self._is_whole:
                return  # a GPU that has not been read yet is not one that does not answer
        processes = None  # a recording has none
        if self._owner is not None:
            processes = list_processes(self._loop.sampler.listed_processes(), self._owner, mono)
        conditions, unjudged = None, ""
        if self._rules is not None:
            conditions = self._rules.evaluate(snapshot, snapshot.at)
            unjudged = self._rules.why_unjudged(snapshot.at)
        self._board.store_sample(
            NodeSample(self._name, ORIGIN, snapshot, conditions, mono=mono, processes=processes, unjudged=unjudged)
        )


def _owners(config: Config, options: CommandLineOptions) -> OwnerOf | None:
    """Return what knows whose a process is; None for those of another machine. Raises ConfigError."""
    if config.backends.devices in ("replay", "trace"):
        return None
    if config.backends.devices == "synthetic":
        return scenario_owners(read_scenario(config))
    return procfs_owners(options.procfs)
