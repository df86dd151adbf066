"""The pages of a simulated site: each node's metrics below its name, and all nodes for Prometheus's discovery.

Nodes are sampled here, in the server's thread, when their page is rendered.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from agent.backends.synthetic.scenario import ScenarioFault
from agent.commands.simulate.simulated_node import SimulatedNode
from agent.commands.simulate.simulated_site import SimulatedSite
from agent.lib.wording import index_runs
from exporters.deferred import Answer
from exporters.encoder import Format
from exporters.endpoint import JSON, READ_METHODS, text
from exporters.http_messages import Request, Response
from exporters.markup import PAGE_END, TABLE_END, Tone, badge, cell, escape, page_head, page_headers, row, table_head
from exporters.negotiation import choose_format
from exporters.pages import PageCache, PageSource

PREFIX, SUFFIX = "/nodes/", "/metrics"
HTML = "text/html; charset=utf-8"
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_VARY = ("Vary", "Accept, Accept-Encoding")


class SitePages:
    """The server's handler.

    `clock` gives seconds of the simulation. `address` is what the server listens on, for clients that do not say how
    they reached it.
    """

    def __init__(self, site: SimulatedSite, nodes: Sequence[SimulatedNode], clock: Callable[[], float]) -> None:
        self._site = site
        self._nodes = {node.plan.name: node for node in nodes}
        self._clock = clock
        self._cache = PageCache(clock)
        self._discovered: tuple[str, bytes] | None = None
        self.address = "localhost"
        self._fixed: dict[str, Callable[[Request], Answer]] = {
            "/": self._landing,
            "/sd": self._discovery,
            "/api/v1/nodes": self._list,
            "/-/healthy": lambda _: text(HTTPStatus.OK, "healthy"),
            "/-/ready": lambda _: text(HTTPStatus.OK, f"ready: {len(self._nodes)} simulated nodes"),
        }

    def __call__(self, request: Request) -> Answer:
        if request.method not in READ_METHODS:
            return text(
                HTTPStatus.METHOD_NOT_ALLOWED, f"use {', '.join(READ_METHODS)}", ("Allow", ", ".join(READ_METHODS))
            )
        fixed = self._fixed.get(request.path)
        if fixed is not None:
            return fixed(request)
        path = request.path
        if path.startswith(PREFIX) and path.endswith(SUFFIX):
            node = self._nodes.get(path[len(PREFIX) : -len(SUFFIX)])
            if node is not None:
                return self._metrics(node, request)
        words = f"not found; the metrics of a node are at {PREFIX}NAME{SUFFIX}, and all nodes are listed at /"
        return text(HTTPStatus.NOT_FOUND, words)

    def prepare(self, step: Callable[[], None]) -> None:
        """Sample and lay out every node once, which takes ten times as long as later; `step` after each."""
        for node in self._nodes.values():
            if not node.is_down(self._clock()):
                node.render(Format.OPENMETRICS, self._clock())
            step()

    @property
    def agents(self) -> int:
        """How many agents there have been: nodes that come back have another one."""
        return sum(node.agents for node in self._nodes.values())

    def _metrics(self, node: SimulatedNode, request: Request) -> Answer:
        name = node.plan.name
        if node.is_down(self._clock()):
            return text(HTTPStatus.SERVICE_UNAVAILABLE, f"{name} is down in this simulation")
        fmt = choose_format(request.headers.get("accept", ""))

        source = PageSource(name, fmt, (node.agent,), lambda now: node.render(fmt, now), fmt.value, (_VARY,))
        return self._cache.get(source, request)

    def _discovery(self, request: Request) -> Answer:
        """Return targets as Prometheus's http_sd_configs read them, at the address at which this request came in."""
        requested_host = request.headers.get("host", "")
        host = requested_host if _HOST.fullmatch(requested_host) else self.address
        if self._discovered is None or self._discovered[0] != host:
            groups = [{"targets": [host], "labels": labels} for labels in map(self._labels, self._nodes.values())]
            self._discovered = (host, json.dumps(groups).encode())
        return Response(HTTPStatus.OK, self._discovered[1], JSON)

    def _labels(self, node: SimulatedNode) -> dict[str, str]:
        plan = node.plan
        return {
            "__metrics_path__": f"{PREFIX}{plan.name}{SUFFIX}",
            "instance": plan.name,
            "cluster": self._site.cluster,
            "rack": plan.rack,
            "topology": plan.scenario.topology.name,
        }

    def _list(self, request: Request) -> Answer:
        del request
        content = {"cluster": self._site.cluster, "nodes": self._facts()}
        return Response(HTTPStatus.OK, json.dumps(content).encode(), JSON)

    def _facts(self) -> list[dict[str, Any]]:
        """Return what both lists of the nodes say of each, as it is now."""
        now = self._clock()
        return [
            {
                "name": node.plan.name,
                "rack": node.plan.rack,
                "topology": node.plan.scenario.topology.name,
                "scenario": node.plan.scenario.name,
                "jobs": [job.id for job in node.plan.scenario.jobs if job.window.holds(now)],
                "faults": [_fault_text(fault) for fault in node.plan.scenario.faults if fault.window.holds(now)],
                "up": not node.is_down(now),
                "path": f"{PREFIX}{node.plan.name}{SUFFIX}",
            }
            for node in self._nodes.values()
        ]

    def _landing(self, request: Request) -> Answer:
        del request
        name = escape(self._site.cluster)
        parts = [
            page_head(f"{name}: simulated site"),
            _HEAD.format(name=name),
            table_head(f"{len(self._nodes)} nodes", _HEADS, "cards"),
            *map(_node_row, sorted(self._facts(), key=lambda facts: (facts["up"], not facts["faults"]))),
            TABLE_END,
            PAGE_END,
        ]
        return Response(HTTPStatus.OK, "".join(parts).encode(), HTML, page_headers("no-store"))


_HEAD = """\
<header><h1>{name}</h1></header>
<p class="banner" role="alert">A simulated site: nothing it shows is real.</p>
<p><a href="/sd">/sd</a>: all nodes, for http_sd_configs of Prometheus; <a href="/api/v1/nodes">/api/v1/nodes</a>:
all nodes, and which are up</p>
<p>A simulated node has metrics alone, at the link of its name: no page, no alerts, and nothing for <code>coldplate
top</code>. <code>coldplate run --scenario NAME</code> has all of them for one synthetic node.</p>
"""
_HEADS = ("node", "state", "faults now", "rack", "topology", "plays", "jobs")


def _fault_text(fault: ScenarioFault) -> str:
    """Return the kind of a fault of the scenario, and the device that has it."""
    gpus = f"GPU {index_runs(map(str, fault.gpus))}" if fault.gpus else ""
    return " ".join(filter(None, (fault.kind, gpus, fault.port, fault.part)))


def _node_row(facts: Mapping[str, Any]) -> str:
    tone, state = Tone.BAD, "down"
    if facts["up"]:
        tone, state = Tone.GOOD, "up"
    if facts["up"] and facts["faults"]:
        tone = Tone.WARN
    link = f'<a href="{facts["path"]}">{facts["name"]}</a>'
    faults = ", ".join(facts["faults"]) or "none"
    texts = (faults, facts["rack"], facts["topology"], facts["scenario"], ", ".join(facts["jobs"]))
    first, *further_cells = zip(_HEADS, (link, badge(tone, state), *map(escape, texts)), strict=True)
    return row(tone, "".join((cell(*first, "first"), *(cell(*head_and_text) for head_and_text in further_cells))))
