"""Builds the HTTP server: which series its pages show, what protects them, and where it listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent import __version__
from agent.config.checks import listen_address
from agent.config.reading import placed, with_places
from agent.config.schema import Config, ConfigError
from agent.daemon.hub import Hub, RecentReadings
from agent.daemon.reloading import Reloader, WebFileRejectedError
from agent.daemon.rule_manager import RuleManager
from agent.daemon.self_report import Readiness
from agent.daemon.service import hurry
from agent.lib.threads import Threads
from agent.lib.wording import UserError, show_address
from agent.model import Instant, Snapshot
from agent.rack.monitor import RackMonitor
from agent.wiring.command_line import scenario_of
from agent.wiring.identity import node_name, title
from alerts import packs
from exporters.endpoint import RouteContext
from exporters.routes import Routes
from exporters.selection import SeriesSelection
from exporters.server import HttpServer

if TYPE_CHECKING:
    from exporters.compatibility.translation import Translation
    from exporters.protection.web_gate import WebTerms, WebWatch


@with_places
def watch_web_file(config: Config, wall: Callable[[], float], threads: Threads) -> WebWatch | None:
    """Return what protects the pages by the web configuration file; None where no file is named.

    `wall` gives Unix seconds. Raises ConfigError for a file that cannot be used.
    """
    if config.web.config_file is None:
        return None
    from exporters.protection.web_gate import WebWatch  # only where the configuration names a web file

    try:
        return WebWatch(Path(config.web.config_file), time.monotonic, wall, threads)
    except UserError as error:
        raise ConfigError(f"web.config_file: {error}") from error


def load_terms(config: Config, watch: WebWatch) -> WebTerms:
    """Return the terms as the files are now, for a configuration that was just read. Raises WebFileRejectedError."""
    try:
        return watch.load()
    except UserError as error:
        raise WebFileRejectedError(str(placed(config, f"web.config_file: {error}"))) from error


class Exposed:
    """The last snapshot with the series that the configuration selects; on the metrics page, also those of neighbours.

    `selection` and `neighbours` may be replaced at any time.
    """

    def __init__(self, hub: Hub, selection: SeriesSelection, neighbours: Translation | None = None) -> None:
        self.selection = selection
        self.neighbours = neighbours
        self._hub = hub
        self._scraped: tuple[Snapshot | None, Translation | None, Snapshot | None] = (None, None, None)
        self._selecting = threading.Lock()

    def expose(self, selection: SeriesSelection, neighbours: Translation | None) -> None:
        """Show other series from now on."""
        if selection.terms != self.selection.terms:
            self.selection = selection
        self.neighbours = neighbours

    def latest(self) -> Snapshot | None:
        """Return the last snapshot; None before the first one. For any thread."""
        snapshot = self._hub.latest
        return None if snapshot is None else self._selected(snapshot)

    def scraped(self) -> Snapshot | None:
        """Return the same with the neighbours' series, which do not depend on the selection.

        For the server's thread.
        """
        whole, neighbours = self._hub.latest, self.neighbours
        if whole is None or neighbours is None:
            return None if whole is None else self._selected(whole)
        selected = self._selected(whole)
        if self._scraped[0] is not selected or self._scraped[1] is not neighbours:
            self._scraped = (selected, neighbours, with_neighbours(selected, whole, neighbours))
        return self._scraped[2]

    def _selected(self, snapshot: Snapshot) -> Snapshot:
        with self._selecting:
            return self.selection.apply(snapshot)

    def observe(self, snapshot: Snapshot) -> None:
        """Have the neighbours take note of a snapshot. For the thread that publishes it."""
        if self.neighbours is not None:
            self.neighbours.observe(snapshot)


def neighbours_of(config: Config) -> Translation | None:
    """Return what the configuration asks for under other exporters' names; None if nothing."""
    metrics = config.metrics
    if not metrics.compatibility:
        return None
    from exporters.compatibility.translation import Translation  # its tables are for those who ask for them

    return Translation(metrics.compatibility, node_name(config), metrics.hostname_label, metrics.dcgm_labels)


def with_neighbours(selected: Snapshot, whole: Snapshot, neighbours: Translation) -> Snapshot:
    """Return a selection of a snapshot, and the neighbours' series from all of it."""
    return replace(selected, frames=(*selected.frames, *neighbours.frames(whole)))


def make_server(
    config: Config,
    hub: Hub,
    exposed: Exposed,
    readiness: Readiness,
    *,
    recent: RecentReadings,
    ledger: RecentReadings,
    rack: RackMonitor,
    rules: RuleManager,
    reloads: Reloader,
    threads: Threads,
    watch: WebWatch | None,
    now: Callable[[], Instant],
) -> HttpServer:
    """Return the server with all its pages; `now` is the samples' clock. Raises ConfigError."""

    def health() -> tuple[bool, str]:
        trouble = threads.trouble()
        return not trouble, trouble or "healthy"

    web = config.web
    site = Routes(
        RouteContext(
            node=title(config),
            node_name=node_name(config),
            version=__version__,
            synthetic=scenario_of(config),
            telemetry_path=web.telemetry_path,
            rules=rules.reports,
            rack=rack.report,
            readiness=readiness,
            health=health,
            reload=reloads.ask if web.enable_lifecycle else None,
            clock=lambda: now().mono,
            runbooks=packs.runbooks(),
            all_series=lambda: hub.latest,
            scraped=exposed.scraped,
            history=recent.moments,
            ledger=ledger.moments,
        )
    )
    server = HttpServer(
        [listen_address(address) for address in web.listen],
        site,
        clock=time.monotonic,
        press=hurry,
        threads=threads,
        gate=None if watch is None else watch.gate,
        max_connections=web.max_connections,
    )
    if watch is not None:
        watch.changed = server.nudge
        watch.reloaded = reloads.web_file_accepted
    return server


def urls_of(server: HttpServer, path: str, watch: WebWatch | None) -> list[str]:
    """Return the addresses at which the pages can be asked for; `path` is that of the metrics."""
    scheme = "http" if watch is None or watch.gate.terms.context is None else "https"
    places = [("localhost" if host in ("::", "0.0.0.0") else host, port) for host, port in server.addresses]  # noqa: S104
    return [f"{scheme}://{show_address(*place)}{path}" for place in places]
