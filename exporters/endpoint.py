"""An endpoint: a path with its handler, and the facts about the daemon that handlers get."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus

from msgspec import Struct

from agent.model import GroupReport, PastMoment, Snapshot
from exporters import envelope
from exporters.deferred import Answer, ReloadRequests, StartReload
from exporters.encoder import Encoder
from exporters.http_messages import Request, Response
from exporters.pages import PageCache
from exporters.runbook_pages import RunbookPages


class RouteContext(Struct, frozen=True):
    """What pages use of the daemon. Its functions are called in the server's thread, and must be quick."""

    node: str
    """The node with its rack and cluster, for people."""
    node_name: str
    version: str
    synthetic: str | None
    """The scenario, if the devices are synthetic."""
    telemetry_path: str
    clock: Callable[[], float]
    """The clock of the snapshots' `mono`."""
    scraped: Callable[[], Snapshot | None]
    """Returns the last sample with the selected series and the names of other exporters; None before the first."""
    all_series: Callable[[], Snapshot | None]
    """Returns the same with all series, for the overview and viewers, where none may look missing."""
    history: Callable[[], Sequence[PastMoment]]
    """Returns the samples of the last minutes, the oldest first."""
    ledger: Callable[[], Sequence[PastMoment]]
    """Returns the ledger's counters during the last minute, the oldest first."""
    rules: Callable[[], tuple[GroupReport, ...]]
    """Returns the state of every group of rules."""
    rack: Callable[[], bytes | None]
    """Returns the report to the rack's other agents, in JSON; None if no rack is configured."""
    readiness: Callable[[], tuple[bool, str]]
    """Returns whether the agent is ready, and why not."""
    health: Callable[[], tuple[bool, str]]
    """Returns whether the process works, and what is wrong."""
    runbooks: Mapping[str, str]
    """HTML of the runbooks, by the alert's name."""
    reload: StartReload | None
    """Requests a reload; None if reloading over HTTP is not enabled."""


READ_METHODS = ("GET", "HEAD")
WRITE_METHODS = ("POST", "PUT")
JSON = "application/json"
NO_SAMPLE_YET = "no sample yet: the first one is in progress"


class EndpointContext:
    """The state that all endpoints of one server share, and the renderers and caches of their pages.

    `listed` has the paths that the overview lists, with their descriptions. For the server's thread only.
    """

    def __init__(self, view: RouteContext, listed: Sequence[tuple[str, str]] = ()) -> None:
        self.view = view
        self.listed = listed
        self.encoder = Encoder()
        self.runbooks = RunbookPages(view.runbooks, view.node)
        self.reloads = None if view.reload is None else ReloadRequests(view.reload)
        self.pages = PageCache(view.clock)


class Endpoint(Struct, frozen=True):
    """One path with its handler.

    The handler is called in the server's thread and must be quick: it returns what the cache
    `EndpointContext.pages` has of a `PageSource`, or a `Deferred` for what another thread does.
    """

    path: str
    handler: Callable[[EndpointContext, Request], Answer]
    methods: tuple[str, ...] = READ_METHODS
    description: str = ""
    """What the overview says of the path; an endpoint without one is not listed there."""
    subpaths: Callable[[EndpointContext], Iterable[str]] | None = None
    """Returns further paths, below `path`, that the handler answers."""


def failure(status: HTTPStatus, kind: str, words: str) -> Response:
    """Return an error in JSON; `kind` is one of Prometheus's error types, such as `bad_data` and `unavailable`."""
    return Response(status, envelope.dump({"status": "error", "errorType": kind, "error": words}) + b"\n", JSON)


def text(status: HTTPStatus, words: str, *headers: tuple[str, str]) -> Response:
    return Response(status, f"{words}\n".encode("utf-8", "replace"), headers=headers)
