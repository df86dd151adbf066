"""Builds the sampling engine from the configuration and the command line."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import msgspec

from agent.backends.registration import BackendContext, make_backends
from agent.backends.sysfs import nvidia_gpus, unclaimed_gpus
from agent.config.reading import with_places
from agent.config.schema import Config, ConfigError
from agent.daemon.costs import Governing
from agent.daemon.hub import Hub
from agent.daemon.pausing import PauseWatch
from agent.daemon.sampling import FrameProvider, SamplingLoop
from agent.lib.clock import clock
from agent.lib.threads import Threads
from agent.model import Instant
from agent.sampler.inventory import Inventory, Save
from agent.sampler.node_sums import Coefficients
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Ranges, Settings
from agent.wiring.command_line import DEFAULT_SCENARIO, CommandLineOptions, scenario_of
from agent.wiring.identity import state_file
from agent.wiring.replaying import make_replayed_node, played_trace
from agent.worker.supervisor import Supervisor, WorkerOptions, without_worker

if TYPE_CHECKING:
    from agent.backends.redfish_service import RedfishSource
    from agent.backends.synthetic import Scenario

log = logging.getLogger("coldplate")


def load_settings(config: Config, ranges: Ranges = Ranges()) -> Settings:  # noqa: B008 - it is frozen
    """Return the sampler's part of the configuration; `ranges` is what the rules read."""
    sampling = config.sampling
    estimate = config.backends.estimate
    return Settings(
        fast=sampling.fast,
        slow=sampling.slow,
        cold=sampling.cold,
        deadline=sampling.deadline,
        window=sampling.window,
        expected_gpus=config.backends.expected_gpus,
        estimate=Coefficients(estimate.factor, estimate.per_gpu) if "estimate" in config.backends.power else None,
        cpu_budget=config.overhead.cpu_cores or inf,
        ranges=ranges,
    )


def sampled_every(interval: float, config: Config) -> Config:
    """Return the configuration with this period of the fast lane, in seconds, and no lane that is faster."""
    slow, cold = max(config.sampling.slow, interval), max(config.sampling.cold, interval)
    sampling = msgspec.structs.replace(config.sampling, fast=interval, slow=slow, cold=cold)
    return msgspec.structs.replace(config, sampling=sampling)


def make_sampling_loop(
    config: Config,
    options: CommandLineOptions,
    hub: Hub,
    providers: Mapping[str, FrameProvider],
    *,
    save: Save | None = None,
    threads: Threads | None = None,
    pause: PauseWatch | None = None,
    now: Callable[[], Instant] = clock,
    governing: Governing | None = None,
    ranges: Ranges = Ranges(),  # noqa: B008 - it is frozen
    is_my_turn: Callable[[str], bool] = lambda _: False,
) -> SamplingLoop:
    """Return the loop over all configured sources. Raises ConfigError.

    `save` writes the inventory; `pause` knows when the driver is to be released; `now` is the clock. `governing` slows
    lanes down within the `ranges` of the rules. `is_my_turn` says which equipment of the rack to ask; none without it.
    """
    if config.backends.devices == "replay":
        node = make_replayed_node(config, options.folder, load_settings(config))
        return SamplingLoop(node, without_worker(), (), now, hub=hub, providers=providers, threads=threads)
    played = played_trace(config, options.folder)
    if played is not None:
        providers = {**providers, "saying whose trace is played": played}
    has_driver = config.backends.devices not in ("synthetic", "trace", "none")
    kept = state_file(config, "inventory.state") if has_driver else None
    if kept is None and has_driver:
        log.info("no state directory: GPUs lost while the agent is down are not detected")
    inventory = Inventory(kept, save)
    settings = load_settings(config, ranges)
    if has_driver:  # at least one GPU where the configuration asks for NVML by name
        on_bus = max(len(nvidia_gpus(options.sysfs)), int(config.backends.devices == "nvml"))
        find_unclaimed = partial(unclaimed_gpus, options.sysfs)
        sampler = Sampler(settings, inventory, family_of(config), on_bus, find_unclaimed)
    else:
        sampler = Sampler(settings, inventory, family_of(config))
    began = clock().mono - options.scenario_age
    context = BackendContext(
        config,
        options.sysfs,
        options.procfs,
        gpus=lambda: list(inventory.gpus.values()),
        processes=sampler.processes,
        reader_of=hub.reader_of,
        clock=clock,
        is_my_turn=is_my_turn,
        rack_services=_services_of_scenario(config, began),
        announce_removal=(lambda _: None) if pause is None else pause.removals.announce,
    )
    if config.backends.devices == "none":
        supervisor, pause = without_worker(), None
    else:
        worker = WorkerOptions(
            source=family_of(config),
            scenario=scenario_of(config) or "",
            epoch=began,
            trace="" if played is None else str(played.path),
            log_level=options.log_level,
            log_format=options.log_format,
        )
        supervisor = Supervisor(worker)
    backends = make_backends(context)
    return SamplingLoop(
        sampler, supervisor, backends, clock, hub=hub, providers=providers, threads=threads, pause=pause,
        governing=governing,
    )  # fmt: skip


def family_of(config: Config) -> str:
    """Return the family of devices that is read: NVML's if none is named."""
    devices = config.backends.devices
    return "nvml" if devices in ("auto", "trace", "none") else devices


def equipment_of(config: Config) -> tuple[str, ...]:
    """Return the names of the rack's services: configured ones, or else the scenario's. Raises ConfigError."""
    return tuple(config.rack.equipment or _services_of_scenario(config, 0.0))


def age_scenario(options: CommandLineOptions, config: Config, at: float | None) -> CommandLineOptions:
    """Return the options, with the scenario `at` seconds old, or as old as it takes its faults to show.

    Raises ConfigError.
    """
    if scenario_of(config) is None:
        if at is not None:
            raise ConfigError("--at: needs --scenario")
        return options
    from agent.backends.synthetic.synthetic_source import settled_at

    return dataclasses.replace(options, scenario_age=settled_at(read_scenario(config)) if at is None else at)


def _services_of_scenario(config: Config, began: float) -> dict[str, Callable[[], RedfishSource]]:
    """Return how those of a scenario's rack are opened that began at this monotonic second. Raises ConfigError."""
    if config.backends.devices != "synthetic":
        return {}
    from agent.backends.synthetic.rack_service import services_of_scenario

    return {**services_of_scenario(read_scenario(config), lambda: clock().mono - began)}


@with_places
def read_scenario(config: Config) -> Scenario:
    """Return the scenario of synthetic devices, as the worker will read it. Raises ConfigError."""
    from agent.backends.synthetic import ScenarioError, load_scenario

    try:
        return load_scenario(scenario_of(config) or DEFAULT_SCENARIO)
    except ScenarioError as error:
        raise ConfigError(f"backends.scenario: {error}") from error
