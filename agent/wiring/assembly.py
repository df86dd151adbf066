"""Builds the whole daemon from its configuration."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from agent.config.schema import Config
from agent.daemon.hub import Hub
from agent.daemon.pausing import REQUEST, PauseWatch, boot_of
from agent.daemon.readiness import Readiness
from agent.daemon.reloading import LastReload, Reloader
from agent.daemon.sampling import Teller
from agent.daemon.self_metrics import SelfMetrics
from agent.daemon.service import Parts, Service
from agent.daemon.systemd import Notifier
from agent.lib.clock import clock
from agent.lib.statefiles import StateFiles
from agent.lib.threads import Threads
from agent.wiring.alerting import Receivers, load_alerting, make_rule_manager
from agent.wiring.command_line import CommandLineOptions, scenario_of
from agent.wiring.peering import make_rack_monitor
from agent.wiring.reconfiguration import Reconfiguration, rack_options
from agent.wiring.sources import faults_to_come, make_sampling_loop
from agent.wiring.start_checks import check
from agent.wiring.state_directory import drill_file
from agent.wiring.web import Exposed, make_server

RACK_STATE = "rack.state"

log = logging.getLogger("coldplate")


def make_service(options: CommandLineOptions, read_config: Callable[[], Config], notifier: Notifier) -> Service:
    """All parts, each made of those before it. `read_config` reads the configuration anew. Raises ConfigError."""
    config = read_config()
    hub = Hub()
    exposed = Exposed(hub, check(config))
    threads = Threads(time.monotonic)
    files = StateFiles(threads)
    receivers = Receivers(clock, threads)
    alerting = load_alerting(config, options.folder, receivers)
    rack = make_rack_monitor(
        config, rack_options(config, options), clock, threads, drill_file(config, RACK_STATE), files.put
    )
    scenario = scenario_of(config)
    _announce(scenario)
    hub.follow("recording the node's power for the rack", rack.observe)
    rules = make_rule_manager(config, alerting, hub, files, rack.foreign, threads)
    last = LastReload(clock().wall)
    own = SelfMetrics(scenario, last, threads.states, files.states)
    tellers: dict[str, Teller] = {
        "reporting the agent's own metrics": own,
        "adding up the rack's power": rack,
        "reporting rule metrics": rules,
    }
    request = drill_file(config, REQUEST)
    pause = PauseWatch(request.parent if request else None, boot_of(options.procfs), clock, threads)
    sampling = make_sampling_loop(config, options, hub, tellers, files.put, threads, pause)
    change = Reconfiguration(options, read_config, config, alerting, receivers, exposed, sampling, rack, rules)
    reloads = Reloader(change, last, clock, notifier, threads)
    readiness = Readiness(hub, sampling.sampler, clock)
    server = make_server(config, hub, exposed, readiness, rack, rules, reloads, threads)
    synthetic = scenario is not None
    path = config.web.telemetry_path
    return Service(Parts(hub, threads, files, sampling, rack, rules, reloads, server, notifier, path, synthetic))


def _announce(scenario: str | None) -> None:
    """Log that the devices are synthetic, and their scheduled faults."""
    if scenario is None:
        return
    facts = {"facts": {"scenario": scenario}}
    log.warning("SYNTHETIC devices: nothing they show is real", extra=facts)
    for fault in faults_to_come(scenario, clock().wall):
        log.info("scheduled fault: %s", fault)
