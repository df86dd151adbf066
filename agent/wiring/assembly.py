"""Builds the whole daemon from its configuration."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from agent.config.schema import Config
from agent.daemon.governing import Governing
from agent.daemon.hub import Hub
from agent.daemon.pausing import REQUEST, PauseWatch, boot_of
from agent.daemon.readiness import Readiness, Signs
from agent.daemon.recent_readings import RecentReadings
from agent.daemon.reloading import LastReload, Reloader
from agent.daemon.sampling import Teller
from agent.daemon.self_metrics import SelfMetrics
from agent.daemon.service import Parts, Service
from agent.daemon.systemd import Notifier
from agent.health.expectation_series import ExpectationSeries
from agent.lib.clock import clock
from agent.lib.statefiles import StateFiles
from agent.lib.threads import Threads
from agent.lib.timestamps import utc
from agent.recording.file_records import RecordingHeader
from agent.wiring.alerting import Receivers, load_alerting, make_rule_manager
from agent.wiring.command_line import CommandLineOptions, scenario_of
from agent.wiring.expectations import load_choice
from agent.wiring.flight import make_flight_recorder
from agent.wiring.peering import make_rack_monitor
from agent.wiring.protecting import protect
from agent.wiring.pushing import make_pushes
from agent.wiring.reconfiguration import Reconfiguration, rack_options
from agent.wiring.replaying import clock_of, is_replay, replayed_header
from agent.wiring.rule_ranges import ranges_of
from agent.wiring.sources import family_of, faults_to_come, make_sampling_loop
from agent.wiring.start_checks import check
from agent.wiring.state_directory import drill_file
from agent.wiring.web import Exposed, make_server, neighbours_of

RACK_STATE = "rack.state"

log = logging.getLogger("coldplate")


def make_service(options: CommandLineOptions, read_config: Callable[[], Config], notifier: Notifier) -> Service:
    """All parts, each built from those before it. `read_config` reads the configuration again. Raises ConfigError."""
    config = read_config()
    now = clock_of(config)
    hub = Hub()
    exposed = Exposed(hub, check(config), neighbours_of(config))
    threads = Threads(time.monotonic)
    files = StateFiles(threads, time.monotonic, time.time)
    receivers = Receivers(now, threads)
    alerting = load_alerting(config, options.folder, receivers)
    rack = make_rack_monitor(
        config, rack_options(config, options), now, threads, drill_file(config, RACK_STATE), files.put
    )
    scenario = scenario_of(config)
    _announce(scenario)
    if is_replay(config):
        _announce_replay(replayed_header(config, options.folder))
    hub.follow("recording the node's power for the rack", rack.observe)
    hub.follow("taking note of what neighbours show as rates", exposed.observe)
    rules = make_rule_manager(config, alerting, hub, files, rack.foreign, threads, now)
    last = LastReload(clock().wall)
    expectations = ExpectationSeries(lambda: hub.latest, load_choice(config, options.folder), family_of(config))
    protection = protect(config, lambda: clock().wall)
    own = SelfMetrics(scenario, last, threads.states, files.states, protection.last, protection.refused)
    flight = make_flight_recorder(config, threads)
    pushes = make_pushes(config, exposed.latest, now, threads)
    governing = Governing()
    recent = RecentReadings()
    hub.follow("remembering readings for viewers", recent.observe)
    tellers: dict[str, Teller] = {
        "reporting the agent's own metrics": own,
        "reporting what the agent costs": governing,
        "adding up the rack's power": rack,
        "holding the node against expectations": expectations,
        "reporting rule metrics": rules,
    }
    if flight is not None:
        tellers["reporting the flight recorder"] = flight
        hub.follow("keeping the last minutes", flight.observe)
    if pushes is not None:
        tellers["reporting pushes"] = pushes
    request = drill_file(config, REQUEST)
    pause = PauseWatch(request.parent if request else None, boot_of(options.procfs), clock, threads)
    ranges = ranges_of(alerting.rules.groups)
    sampling = make_sampling_loop(
        config, options, hub, tellers, files.put, threads, pause, now, governing, ranges, rack.is_my_turn
    )
    change = Reconfiguration(
        options, read_config, config, alerting, receivers, exposed, sampling, rack, rules, expectations, protection
    )
    reloads = Reloader(change, last, clock, notifier, threads)
    readiness = Readiness(hub, sampling.sampler, now, Signs(threads.troubles, rules.failing, files.states))
    server = make_server(config, hub, exposed, readiness, recent, rack, rules, reloads, threads, protection, now)
    synthetic = scenario is not None
    path = config.web.telemetry_path
    return Service(
        Parts(
            hub,
            threads,
            files,
            sampling,
            rack,
            rules,
            reloads,
            server,
            notifier,
            path,
            synthetic,
            flight,
            protection.watch,
            protection.passwords,
            pushes,
            exposed.latest,
        )
    )


def _announce_replay(header: RecordingHeader) -> None:
    """Log whose past is shown."""
    facts = {"node": header.node, "recorded": utc(header.wall), "made_by": header.maker}
    log.warning("REPLAY of a recording: nothing it shows is of this moment", extra={"facts": facts})


def _announce(scenario: str | None) -> None:
    """Log that the devices are synthetic, and their scheduled faults."""
    if scenario is None:
        return
    facts = {"facts": {"scenario": scenario}}
    log.warning("SYNTHETIC devices: nothing they show is real", extra=facts)
    for fault in faults_to_come(scenario, clock().wall):
        log.info("scheduled fault: %s", fault)
