"""Builds the HTTP server: which series its pages show, what they know of the other parts, and where it listens."""

from __future__ import annotations

import time
from collections.abc import Callable

from agent import __version__
from agent.config.schema import Config
from agent.daemon.hub import Hub
from agent.daemon.readiness import Readiness
from agent.daemon.reloading import Reloader
from agent.daemon.rule_manager import RuleManager
from agent.daemon.service import hurry
from agent.lib.threads import Threads
from agent.model import Instant, Snapshot
from agent.rack.monitor import RackMonitor
from agent.wiring.command_line import scenario_of
from agent.wiring.node_identity import title
from agent.wiring.protecting import Protection
from agent.wiring.start_checks import parse_address
from alerts import packs
from exporters.route_context import RouteContext
from exporters.routes import Routes
from exporters.selection import SeriesSelection
from exporters.server import HttpServer


class Exposed:
    """The last snapshot with the series that the configuration selects. `selection` may be replaced at any time."""

    def __init__(self, hub: Hub, selection: SeriesSelection) -> None:
        self.selection = selection
        self._hub = hub

    def latest(self) -> Snapshot | None:
        """The last snapshot; None before the first one. For the server's thread."""
        snapshot = self._hub.latest
        return None if snapshot is None else self.selection.apply(snapshot)


def make_server(
    config: Config,
    hub: Hub,
    exposed: Exposed,
    readiness: Readiness,
    rack: RackMonitor,
    rules: RuleManager,
    reloads: Reloader,
    threads: Threads,
    protection: Protection,
    now: Callable[[], Instant],
) -> HttpServer:
    """The server with all its pages; `now` is the samples' clock. Raises ConfigError."""

    def health() -> tuple[bool, str]:
        trouble = threads.trouble()
        return not trouble, trouble or "healthy"

    web = config.web
    site = Routes(
        RouteContext(
            node=title(config),
            version=__version__,
            synthetic=scenario_of(config),
            telemetry_path=web.telemetry_path,
            latest=exposed.latest,
            rules=rules.reports,
            rack=rack.report,
            readiness=readiness,
            health=health,
            reload=reloads.ask if web.enable_lifecycle else None,
            clock=lambda: now().mono,
            runbooks=packs.runbooks(),
            whole=lambda: hub.latest,
        )
    )
    watch = protection.watch
    server = HttpServer(
        [parse_address(each) for each in web.listen],
        site,
        clock=time.monotonic,
        work=site.work,
        press=hurry,
        threads=threads,
        gate=None if watch is None else watch.gate,
        max_connections=web.max_connections,
    )
    if watch is not None:
        watch.changed = server.nudge
    return server
