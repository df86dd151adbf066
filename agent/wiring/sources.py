"""Builds the sampling engine from the configuration and the command line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from agent.backends.host import HostBackend
from agent.backends.infiniband import InfinibandBackend
from agent.backends.jobs import JobsBackend, refuse_unknown
from agent.backends.kmsg import DeviceReader, KmsgBackend, inherited
from agent.backends.power import PowerBackend
from agent.backends.power.redfish import SILENCE_SECONDS, Redfish, check_address
from agent.backends.protocol import BackendProtocol
from agent.backends.topology import TopologyBackend
from agent.config.schema import BackendsConfig, Config, ConfigError
from agent.daemon.hub import Hub
from agent.daemon.sampling import SamplingLoop, Teller
from agent.lib.clock import clock
from agent.lib.http_target import HttpTarget
from agent.lib.threads import Threads
from agent.model import GpuIdentity, Reading
from agent.sampler.estimate import Coefficients
from agent.sampler.inventory import Inventory, Save
from agent.sampler.sampler import Sampler
from agent.sampler.settings import Settings
from agent.wiring.command_line import DEFAULT_SCENARIO, CommandLineOptions, scenario_of
from agent.wiring.state_directory import state_file
from agent.worker.supervisor import Supervisor, WorkerOptions

log = logging.getLogger("coldplate")


def load_settings(config: Config) -> Settings:
    """The sampler's part of the configuration."""
    sampling = config.sampling
    wanted = config.backends.estimate
    return Settings(
        fast=sampling.fast,
        slow=sampling.slow,
        cold=sampling.cold,
        deadline=sampling.deadline,
        window=sampling.window,
        expected_gpus=config.backends.expected_gpus,
        estimate=Coefficients(wanted.factor, wanted.per_gpu) if "estimate" in config.backends.power else None,
    )


def make_sampling_loop(
    config: Config,
    options: CommandLineOptions,
    hub: Hub,
    tellers: Mapping[str, Teller],
    save: Save | None = None,
    threads: Threads | None = None,
) -> SamplingLoop:
    """The loop over all sources of the configuration; `save` has the inventory written. Raises ConfigError."""
    has_driver = config.backends.devices not in ("synthetic", "none")
    kept = state_file(config, "inventory.state") if has_driver else None
    if kept is None and has_driver:
        log.info("no state directory: GPUs that go missing while the agent is down will not be noticed")
    inventory = Inventory(kept, save)
    sampler = Sampler(load_settings(config), inventory, worker_source(config))
    backends = _backends(config, options, lambda: list(inventory.gpus.values()))
    if has_driver and config.jobs.sources:
        backends.append(_jobs(config, options, hub, sampler))
    return SamplingLoop(sampler, _supervisor(config, options), backends, clock, hub, tellers, threads)


def worker_source(config: Config) -> str:
    """The name of what the device worker opens."""
    return "synthetic" if config.backends.devices == "synthetic" else "nvml"


def _supervisor(config: Config, options: CommandLineOptions) -> Supervisor | None:
    """Who keeps the device worker; None where no devices are read."""
    if config.backends.devices == "none":
        return None
    source = worker_source(config)
    return Supervisor(
        WorkerOptions(
            source=source,
            scenario=checked_scenario(config) if source == "synthetic" else "",
            epoch=clock().mono,
            log_level=options.log_level,
            log_format=options.log_format,
        )
    )


def _backends(
    config: Config, options: CommandLineOptions, gpus: Callable[[], list[GpuIdentity]]
) -> list[BackendProtocol]:
    """The sources of the main process. A synthetic node brings its own ports, power and kernel log."""
    wanted = config.backends
    made: list[BackendProtocol] = []
    if wanted.host:
        made.append(HostBackend(str(options.procfs), str(options.sysfs)))
    if wanted.devices == "synthetic":
        return made
    if wanted.infiniband:
        made.append(InfinibandBackend(options.sysfs))
    if wanted.devices != "none":
        made.append(_kernel_log())
        made.append(TopologyBackend(options.sysfs, gpus))
    if set(wanted.power) - {"estimate"}:
        made.append(PowerBackend(wanted.power, str(options.sysfs), redfish=_redfish(wanted)))
    return made


def _jobs(config: Config, options: CommandLineOptions, hub: Hub, sampler: Sampler) -> JobsBackend:
    """Attribution of GPUs to jobs, from what the worker last saw running on them. Raises ConfigError."""

    def readings() -> Sequence[Reading]:
        return () if hub.latest is None else hub.latest.readings

    jobs = config.jobs
    check_jobs(config)
    return JobsBackend(
        options.procfs,
        sampler.processes,
        readings,
        sources=jobs.sources,
        mapping_dir=jobs.mapping_dir,
        trust_environment=jobs.trust_environment,
    )


def check_jobs(config: Config) -> None:
    """Refuse sources and schedulers that do not exist. Raises ConfigError."""
    try:
        refuse_unknown(config.jobs.sources, config.jobs.trust_environment)
    except ValueError as error:
        raise ConfigError(f"jobs.{error}") from error


def _kernel_log() -> KmsgBackend:
    """The kernel log: handed over as standard input by systemd, else opened."""
    if inherited(0):
        return KmsgBackend("standard input", lambda path: DeviceReader(path, 0))
    return KmsgBackend()


def _redfish(wanted: BackendsConfig) -> Redfish | None:
    target = bmc_of(wanted)
    if target is None or wanted.redfish is None:
        return None
    return Redfish(target, wanted.redfish.chassis, lambda: clock().mono)


def bmc_of(wanted: BackendsConfig) -> HttpTarget | None:
    """The BMC to ask, if one is configured. Raises ConfigError."""
    if wanted.redfish is None or "redfish" not in wanted.power:
        return None
    address = msgspec.structs.asdict(wanted.redfish)
    del address["chassis"]
    try:
        target = HttpTarget(**address, timeout=SILENCE_SECONDS)
        check_address(target)
    except ValueError as error:
        raise ConfigError(f"backends.redfish: {error}") from error
    return target


def faults_to_come(scenario: str, wall: float) -> list[str]:
    """What goes wrong in a scenario that begins at `wall` (seconds since the epoch), and when. Raises ScenarioError."""
    from agent.backends.synthetic.announcement import announced
    from agent.backends.synthetic.loader import load_scenario

    return list(announced(load_scenario(scenario), wall))


def checked_scenario(config: Config) -> str:
    """The scenario's name or file, after seeing that the worker will be able to read it."""
    from agent.backends.synthetic import ScenarioError, load_scenario

    name = scenario_of(config) or DEFAULT_SCENARIO
    try:
        load_scenario(name)
    except ScenarioError as error:
        raise ConfigError(str(error)) from error
    return name
