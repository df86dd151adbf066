"""Build the whole daemon from its configuration, all parts in order, and apply a changed one to the running parts; or
check that it could be built, without a start.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent import __version__
from agent.config.reading import keys_for_a_restart, with_places
from agent.config.schema import Config, ConfigError
from agent.daemon.costs import Governing
from agent.daemon.flight_recorder import MAKER, FlightRecorder, FlightSettings
from agent.daemon.hub import Hub, RecentReadings
from agent.daemon.pausing import REQUEST, GpuRemovals, PauseWatch, boot_of
from agent.daemon.reloading import LastReload, Notifier, Reloader
from agent.daemon.rule_manager import AlertingSettings, RuleManager
from agent.daemon.sampling import FrameProvider, SamplingLoop
from agent.daemon.self_report import Readiness, SelfMetrics
from agent.daemon.service import Service
from agent.health.examination import ExpectationSeries
from agent.health.ledger_states import MOMENTS, SPACING_SECONDS, STATE_SECONDS
from agent.lib.clock import clock
from agent.lib.directory_lock import FILE, DirectoryInUseError, DirectoryLock, lock_directory
from agent.lib.state_files import StateFiles
from agent.lib.threads import Part, Threads
from agent.lib.wording import utc
from agent.rack.monitor import RackMonitor
from agent.recording.file_records import RecordingHeader
from agent.wiring.alerting import Receivers, check_receivers, load_alerting, load_rules, make_rule_manager, ranges_of
from agent.wiring.command_line import CommandLineOptions, scenario_of
from agent.wiring.identity import drill_file, node_name
from agent.wiring.peering import load_rack, make_rack_monitor
from agent.wiring.replaying import clock_of, is_replay, played_trace, replayed_header
from agent.wiring.sources import family_of, load_settings, make_sampling_loop, read_scenario
from agent.wiring.start_checks import check, check_sources, load_choice
from agent.wiring.web_serving import Exposed, load_terms, make_server, neighbours_of, urls_of, watch_web_file

if TYPE_CHECKING:
    from exporters.protection.web_gate import WebWatch

flight_log = logging.getLogger("coldplate.flight")


def make_flight_recorder(config: Config, threads: Threads) -> FlightRecorder | None:
    """Return None without a recorder or a place for its files, and in a replay, which is recorded already."""
    recorder = config.recorder
    if not _has_flight_recorder(config):
        return None
    folder = Path(recorder.directory) if recorder.directory is not None else drill_file(config, "flight")
    if folder is None:
        flight_log.info("no state directory: there is no flight recorder")
        return None
    scenario = scenario_of(config) or ""
    header = RecordingHeader(__version__, node_name(config), 0.0, 0.0, config.sampling.fast, MAKER, scenario=scenario)
    return FlightRecorder(
        FlightSettings(recorder.history, frozenset(recorder.dump_on), folder, recorder.max_size), header, threads
    )


def _has_flight_recorder(config: Config) -> bool:
    return config.recorder.history > 0 and bool(config.recorder.dump_on) and not is_replay(config)


RACK_STATE = "rack.state"


@with_places
def lock_directories(config: Config) -> list[DirectoryLock]:
    """Keep other agents from the state directory and the flight recorder's own one, as far as there are any.

    Raises ConfigError if another agent has one of them.
    """
    file, recorder = drill_file(config, FILE), config.recorder.directory
    folders = {} if file is None else {file.parent.resolve(): ("state_dir", file.parent)}
    if recorder is not None and _has_flight_recorder(config):  # the default one is in the state directory
        folders.setdefault(Path(recorder).resolve(), ("recorder.directory", Path(recorder)))
    locks: list[DirectoryLock] = []
    for key, folder in folders.values():
        try:
            lock = lock_directory(folder, f"process {os.getpid()} on {node_name(config)}", time.sleep)
        except DirectoryInUseError as error:
            for directory_lock in locks:
                directory_lock.stop()
            remedy = f"stop it, or give each agent a {key} of its own"
            raise ConfigError(f"{key}: {folder} is in use by another agent, {error}; {remedy}") from error
        locks += [] if lock is None else [lock]
    return locks


log = logging.getLogger("coldplate")


def make_service(options: CommandLineOptions, read_config: Callable[[], Config], notifier: Notifier) -> Service:
    """Make all parts, each of those before it. `read_config` reads the configuration again. Raises ConfigError."""
    config = read_config()
    locks = lock_directories(config)  # before anything reads its state
    now = clock_of(config)
    hub, threads = Hub(), Threads(time.monotonic)
    exposed = Exposed(hub, check(config), neighbours_of(config))
    receivers = Receivers(now, threads)
    alerting = load_alerting(config, options.folder, receivers)
    last = LastReload(clock().wall)
    governing, recent = Governing(), RecentReadings()
    ledger = RecentReadings({STATE_SECONDS}, MOMENTS, SPACING_SECONDS)
    request = drill_file(config, REQUEST)
    removals, boot = GpuRemovals(options.procfs, clock), boot_of(options.procfs)
    pause = PauseWatch(request.parent if request else None, boot, clock, threads, removals)

    files = StateFiles(threads, time.monotonic, time.time)
    watch = watch_web_file(config, lambda: clock().wall, threads)
    rack = make_rack_monitor(
        config, load_rack(config, options.folder), now, threads, path=drill_file(config, RACK_STATE), put=files.put
    )
    _announce(config, options)
    flight = make_flight_recorder(config, threads)
    rules = make_rule_manager(config, alerting, hub, files, foreign=rack.foreign, threads=threads, now=now)
    expectations = ExpectationSeries(lambda: hub.latest, load_choice(config, options.folder), family_of(config))
    own = SelfMetrics(
        scenario_of(config),
        last,
        threads.states,
        files.states,
        web=lambda: None if watch is None else watch.last,
        refused=lambda: {} if watch is None else watch.gate.refused,
    )
    providers: dict[str, FrameProvider | None] = {
        "reporting the agent's own metrics": own,
        "reporting what the agent costs": governing,
        "adding up the rack's power": rack,
        "holding the node against expectations": expectations,
        "reporting rule metrics": rules,
        "reporting the flight recorder": flight,
    }
    ranges = ranges_of(alerting.rules.groups)
    sampling = make_sampling_loop(
        config, options, hub, {purpose: teller for purpose, teller in providers.items() if teller is not None},
        save=files.put, threads=threads, pause=pause, now=now, governing=governing, ranges=ranges,
        is_my_turn=rack.is_my_turn,
    )  # fmt: skip
    reload = reloading(
        read_config, config, options, alerting, receivers, exposed=exposed, sampling=sampling, rack=rack, rules=rules,
        expectations=expectations, watch=watch,
    )  # fmt: skip
    reloads = Reloader(reload, last, clock, notifier, threads)
    readiness = Readiness(hub, sampling.sampler, now, threads=threads.troubles, rules=rules.failing, files=files.states)
    server = make_server(
        config, hub, exposed, readiness, recent=recent, ledger=ledger, rack=rack, rules=rules, reloads=reloads,
        threads=threads, watch=watch, now=now,
    )  # fmt: skip
    hub.follow("recording the node's power for the rack", rack.observe)
    hub.follow("taking note of what neighbours show as rates", exposed.observe)
    hub.follow("remembering readings for viewers", recent.observe)
    hub.follow("remembering the ledger for viewers", ledger.observe)
    if flight is not None:
        hub.follow("keeping the last minutes", flight.observe)
    # Started in this order and stopped in the reverse: reloads end first, rules see the last snapshot, state files are
    # written after all who have state. The sources, whose driver may hang, are ended after all of them.
    parts: tuple[Part | None, ...] = (*locks, files, watch, server, rack, flight, rules, sampling, reloads)
    return Service(
        [part for part in parts if part is not None],
        hub=hub,
        threads=threads,
        sampling=sampling,
        reloads=reloads,
        notifier=notifier,
        page=exposed.latest,
        urls=lambda: urls_of(server, config.web.telemetry_path, watch),
        synthetic=scenario_of(config) is not None,
    )


def reloading(
    read_config: Callable[[], Config],
    booted: Config,
    options: CommandLineOptions,
    alerting: AlertingSettings,
    receivers: Receivers,
    *,
    exposed: Exposed,
    sampling: SamplingLoop,
    rack: RackMonitor,
    rules: RuleManager,
    expectations: ExpectationSeries,
    watch: WebWatch | None,
) -> Callable[[], Sequence[str]]:
    """Return what reloads the configuration. It raises ConfigError, and then nothing has changed.

    It returns the changed keys that need a restart. `booted` is the configuration that the agent was started with,
    and `alerting` what is in force of it.
    """
    running = alerting.rules

    def reload() -> Sequence[str]:
        nonlocal running
        config = read_config()
        selection = check(config)
        new = load_alerting(config, options.folder, receivers, running)
        settings = load_settings(config, ranges_of(new.rules.groups))  # not slower than the rules can bear
        of_rack, choice = load_rack(config, options.folder), load_choice(config, options.folder)
        # Last: this failure alone is repaired without another request for a reload.
        terms = None if watch is None else load_terms(config, watch)
        # All of it can be used: from here on nothing fails.
        exposed.expose(selection, neighbours_of(config))
        running = new.rules
        sampling.reconfigure(settings)
        rules.reconfigure(new)
        rack.reconfigure(of_rack)
        expectations.reconfigure(choice)
        if watch is not None and terms is not None:
            watch.enforce(terms)
        return keys_for_a_restart(booted, config)

    return reload


def _announce(config: Config, options: CommandLineOptions) -> None:
    """Log which of the devices are not real, and their scheduled faults."""
    if is_replay(config):
        header = replayed_header(config, options.folder)
        facts = {"node": header.node, "recorded": utc(header.wall), "made_by": header.maker}
        log.warning("REPLAY of a recording: nothing it shows is of this moment", extra={"facts": facts})
    played = played_trace(config, options.folder)
    if played is not None:
        log.warning(
            "TRACE of another machine: the GPUs that are shown are not this node's", extra={"facts": played.facts}
        )
    scenario = scenario_of(config)
    if scenario is not None:
        from agent.backends.synthetic.scenario import announced  # what a real node need not load

        log.warning("SYNTHETIC devices: nothing they show is real", extra={"facts": {"scenario": scenario}})
        for fault in announced(read_scenario(config), clock().wall):
            log.info("scheduled fault: %s", fault)


@with_places
def dry_start(config: Config, folder: Path) -> int:
    """Check all that a start reads and that is not the node's, and return the number of rules. Raises ConfigError.

    Relative paths start at `folder`. No device, socket or server is touched.
    """
    check_sources(config, folder)
    check_receivers(config)
    watch_web_file(config, lambda: clock().wall, Threads())
    return sum(file.rule_count for file in load_rules(config, folder).files)
