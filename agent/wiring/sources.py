"""Builds the sampling engine from the configuration and the command line."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from agent.backends.host import HostBackend
from agent.backends.infiniband import InfinibandBackend
from agent.backends.jobs import JobsBackend, JobsConfig
from agent.backends.kmsg import DeviceReader, KmsgBackend, inherited
from agent.backends.power import PowerBackend, RedfishConfig
from agent.backends.protocol import Backend
from agent.backends.topology import TopologyBackend
from agent.config.schema import BackendsConfig, Config, ConfigError
from agent.config.values import listen_address
from agent.daemon.sampling import Engine, Facts
from agent.lib.threads import Threads
from agent.model import GpuIdentity, Instant, Reading
from agent.sampler.estimate import Coefficients
from agent.sampler.inventory import Inventory, Save
from agent.sampler.settings import RackSettings, Settings
from agent.wiring.command_line import DEFAULT_SCENARIO, Options, scenario_of
from agent.wiring.rack import load_rack, rack_name
from agent.worker.supervisor import Supervisor, WorkerOptions
from exporters.selection import Selection
from exporters.site import is_reserved

log = logging.getLogger("coldplate")

STATE_DIRECTORY = Path("/var/lib/coldplate")


def load_settings(config: Config) -> Settings:
    """The sampler's part of the configuration."""
    sampling, rack = config.sampling, config.rack
    name = rack_name(config)
    wanted = config.backends.estimate
    return Settings(
        fast=sampling.fast,
        slow=sampling.slow,
        cold=sampling.cold,
        deadline=sampling.deadline,
        window=sampling.window,
        expected_gpus=config.backends.expected_gpus,
        estimate=Coefficients(wanted.factor, wanted.per_gpu) if "estimate" in config.backends.power else None,
        rack=RackSettings(name, rack.power_budget, rack.nodes_expected, tuple(rack.feeds.items())) if name else None,
    )


def check(config: Config) -> Selection:
    """Everything that a start would refuse; a reload must refuse it too. Raises ConfigError."""
    for address in config.web.listen:
        parse_address(address)
    if is_reserved(config.web.telemetry_path):
        raise ConfigError(f"web.telemetry_path: {config.web.telemetry_path} has another use; choose another path")
    _bmc(config.backends)
    load_rack(config, Path(), 0.0)
    _jobs_config(config)
    if config.backends.devices == "synthetic":
        _checked_scenario(config)
    try:
        return Selection(config.metrics.include, config.metrics.exclude)
    except ValueError as error:
        raise ConfigError(f"metrics.{error}") from error


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` or `[address]:port`. Raises ConfigError."""
    try:
        return listen_address(text)
    except ValueError as error:
        raise ConfigError(f"web.listen: {error}") from error


def build_engine(
    config: Config,
    options: Options,
    clock: Callable[[], Instant],
    facts: Facts,
    published: Callable[[], None] = lambda: None,
    save: Save | None = None,
    threads: Threads | None = None,
) -> Engine:
    """All sources that the configuration asks for; `save` has the inventory written. Raises ConfigError."""
    synthetic = config.backends.devices == "synthetic"
    devices = "synthetic" if synthetic else "nvml"
    supervisor = None
    if config.backends.devices != "none":
        worker = WorkerOptions(
            source=devices,
            scenario=_checked_scenario(config) if synthetic else "",
            epoch=clock().mono,
            log_level=options.log_level,
            log_format=options.log_format,
        )
        supervisor = Supervisor(worker)
    kept = None if synthetic or supervisor is None else state_file(config, "inventory.state")
    if kept is None and not synthetic and supervisor is not None:
        log.info("no state directory: GPUs that go missing while the agent is down will not be noticed")
    inventory = Inventory(kept, save)
    backends = _backends(config, options, synthetic, lambda: list(inventory.gpus.values()))
    if supervisor is not None and not synthetic and config.jobs.sources:
        backends.append(_jobs(config, options, lambda: engine))
    engine = Engine(load_settings(config), supervisor, devices, backends, inventory, clock, facts, published, threads)
    return engine


def _backends(
    config: Config, options: Options, synthetic: bool, gpus: Callable[[], list[GpuIdentity]]
) -> list[Backend]:
    """The sources of the main process. A synthetic node brings its own ports, power and kernel log."""
    wanted = config.backends
    made: list[Backend] = []
    if wanted.host:
        made.append(HostBackend(str(options.procfs), str(options.sysfs)))
    if synthetic:
        return made
    if wanted.infiniband:
        made.append(InfinibandBackend(options.sysfs))
    if wanted.devices != "none":
        made.append(_kernel_log())
        made.append(TopologyBackend(options.sysfs, gpus))
    if set(wanted.power) - {"estimate"}:
        made.append(PowerBackend(wanted.power, str(options.sysfs), redfish=_bmc(wanted)))
    return made


def _jobs(config: Config, options: Options, engine: Callable[[], Engine]) -> JobsBackend:
    """Attribution of GPUs to jobs, from what the worker last saw running on them. Raises ConfigError."""

    def readings() -> Sequence[Reading]:
        latest = engine().latest
        return () if latest is None else latest.readings

    return JobsBackend(options.procfs, lambda: engine().sampler.processes(), readings, _jobs_config(config))


def _jobs_config(config: Config) -> JobsConfig:
    folder = config.jobs.mapping_dir
    try:
        found = None if folder is None else Path(folder)
        return JobsConfig(config.jobs.sources, found, config.jobs.trust_environment)
    except ValueError as error:
        raise ConfigError(f"jobs.{error}") from error


def _kernel_log() -> KmsgBackend:
    """The kernel log: handed over as standard input by systemd, else opened."""
    if inherited(0):
        return KmsgBackend("standard input", lambda path: DeviceReader(path, 0))
    return KmsgBackend()


def _bmc(wanted: BackendsConfig) -> RedfishConfig | None:
    """The BMC to ask, if one is configured. Raises ConfigError."""
    redfish = wanted.redfish
    if redfish is None or "redfish" not in wanted.power:
        return None
    try:
        return RedfishConfig(**msgspec.structs.asdict(redfish))
    except ValueError as error:
        raise ConfigError(f"backends.redfish: {error}") from error


def faults_to_come(scenario: str, wall: float) -> list[str]:
    """What goes wrong in a scenario that begins at `wall` (seconds since the epoch), and when. Raises ScenarioError."""
    from agent.backends.synthetic.announcement import announced
    from agent.backends.synthetic.loader import load_scenario

    return list(announced(load_scenario(scenario), wall))


def _checked_scenario(config: Config) -> str:
    """The scenario's name or file, after seeing that the worker will be able to read it."""
    from agent.backends.synthetic import ScenarioError, load_scenario

    name = scenario_of(config) or DEFAULT_SCENARIO
    try:
        load_scenario(name)
    except ScenarioError as error:
        raise ConfigError(str(error)) from error
    return name


def state_file(config: Config, name: str) -> Path | None:
    """Where a file that outlives the process is kept: `state_dir`, systemd's state directory, or the default one."""
    if config.state_dir is not None:
        return Path(config.state_dir) / name
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given) / name
    return STATE_DIRECTORY / name if os.access(STATE_DIRECTORY, os.W_OK) else None
