"""What the pages know about the daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.model import GroupReport, Snapshot
from exporters.reloads import Begin


@dataclass(frozen=True, slots=True)
class RouteContext:
    """What the site may know of the daemon.

    `health` gives whether the process is of any use, and what is wrong; `readiness` whether the last sample is
    fresh, and why not. `reload` begins a reload and returns at once; it has what it is given called exactly once, in
    any thread, when the reload is over, with whether it went well and a text. It is None where reloading over HTTP is
    not enabled. `clock` is the clock of the snapshots' `mono`. `synthetic` names the scenario when the devices are not
    real. `rules` gives how every group of rules is doing; it is None where there is no rules engine. `rack` gives what
    the agents of the rack's other nodes are told, in JSON; None where no rack is configured. All of them are called in
    the server's thread and must be quick. `runbooks` has the Markdown of each alert's runbook, by the alert's name.
    `latest` gives the last sample with what a page of metrics shows of it; `whole` the same with everything, for the
    overview: what a scrape leaves out is no trouble of the node. It is None where nothing is left out.
    """

    latest: Callable[[], Snapshot | None]
    readiness: Callable[[], tuple[bool, str]]
    clock: Callable[[], float]
    node: str
    version: str
    reload: Begin | None = None
    synthetic: str | None = None
    telemetry_path: str = "/metrics"
    rules: Callable[[], tuple[GroupReport, ...]] | None = None
    rack: Callable[[], bytes | None] | None = None
    health: Callable[[], tuple[bool, str]] = lambda: (True, "healthy")
    runbooks: Mapping[str, str] = field(default_factory=dict)
    whole: Callable[[], Snapshot | None] | None = None
