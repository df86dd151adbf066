"""What the pages know about the daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.model import GroupReport, PastMoment, Snapshot
from exporters.reloads import Begin


@dataclass(frozen=True, slots=True)
class RouteContext:
    """What the pages get to know about the daemon.

    `health` gives whether the process works, and what is wrong; `readiness` whether the last sample is fresh, and why
    not. `reload` starts a reload and returns at once; it calls its argument exactly once, in any thread, when the
    reload is over, with whether it succeeded and a text. It is None if reloading over HTTP is not enabled. `clock` is
    the clock of the snapshots' `mono`. `synthetic` names the scenario if the devices are not real. `rules` gives the
    state of every group of rules; it is None if there is no rule engine. `rack` gives the answer to the agents of the
    rack's other nodes, in JSON; None if no rack is configured. All of them are called in the server's thread and must
    be quick. `runbooks` has the Markdown of each alert's runbook, by the alert's name. `latest` gives the last sample
    with the series that a page of metrics shows; `whole` the same with all series, for the overview and viewers, where
    a series that scrapes leave out must not look missing. It is None if nothing is left out. `history` gives what is
    remembered of the last minutes, the oldest first; None if nothing ever is. `scraped` gives the last sample as the
    page of metrics shows it, if that is not `latest`.
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
    history: Callable[[], Sequence[PastMoment]] | None = None
    scraped: Callable[[], Snapshot | None] | None = None

    def on_the_page(self) -> Snapshot | None:
        """The last sample as the page of metrics shows it; None before the first."""
        return self.latest() if self.scraped is None else self.scraped()
