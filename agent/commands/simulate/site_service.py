"""One run of `coldplate simulate`: builds the nodes, and serves them until a signal arrives."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from itertools import chain, count, islice
from math import floor, inf
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agent.backends.synthetic.loader import ScenarioError
from agent.backends.synthetic.scenario import ScenarioFault, announced
from agent.commands.simulate import ADDRESS
from agent.commands.simulate.simulated_node import SimulatedNode, SimulatedRack
from agent.commands.simulate.simulated_site import Outage, SimulatedSite
from agent.commands.simulate.site_pages import SitePages
from agent.commands.simulate.site_reader import SITE, SiteReader, document, read_site
from agent.config import quantities
from agent.config.checks import listen_address
from agent.config.schema import Config, WebConfig, parse_value
from agent.daemon.service import GARBAGE, hurry
from agent.lib import logs
from agent.lib.commandline import Progress
from agent.lib.threads import Threads
from agent.lib.typed_yaml import YamlFile
from agent.lib.wakeups import SignalWaker
from agent.lib.wording import UserError
from agent.wiring.web_serving import urls_of, watch_web_file
from exporters.listeners import open_listeners
from exporters.server import HttpServer

if TYPE_CHECKING:
    from exporters.protection.web_gate import WebWatch

log = logging.getLogger("coldplate.simulate")

ANNOUNCED = 12
"""Upcoming faults that are listed at most."""
NODES_PER_LOG_LINE = 50
"""Nodes between two lines of a log that say how many are made."""
TEND_SECONDS = 1.0
"""Seconds between two looks at the server's thread."""
CONNECTIONS = 256
"""Connections at once. Prometheus keeps as many as it makes scrapes at the same moment, not one for each target."""


def serve(arguments: argparse.Namespace) -> int:
    """Serve until stopped; the exit status. Raises UserError."""
    site = describe(arguments)
    stride = _interval(arguments.interval)
    duration_text = arguments.duration
    duration = inf if duration_text is None else parse_value("--duration", quantities.duration, duration_text)
    listen = [parse_value("--web.listen-address", listen_address, address) for address in arguments.listen or [ADDRESS]]
    web = WebConfig(config_file=arguments.web_config_file)
    threads = Threads(time.monotonic)
    watch = watch_web_file(Config(web=web), time.time, threads)
    for listener in open_listeners(listen):  # report a mistake before the nodes are made
        listener.close()
    logs.set_up(arguments.log_level, arguments.log_format, sys.stderr)
    _silence_agents(arguments.log_level)
    waker = SignalWaker((signal.SIGTERM, signal.SIGINT))
    now = time.time()
    wall, began = floor(now), time.monotonic() - now % 1.0  # seconds of the simulation begin with those of the clock
    for line in upcoming_faults(site, wall):
        log.info("scheduled fault: %s", line)
    nodes = make_nodes(site, stride, wall, arguments.profile)
    pages = SitePages(site, nodes, lambda: time.monotonic() - began)
    gc.disable()  # until the nodes are made: it would look through all of them again and again
    log.info("making nodes; they are served when all are made", extra={"facts": {"nodes": len(site.nodes)}})
    with Progress("making nodes", len(site.nodes), time.monotonic, every=1) as progress:
        pages.prepare(_logging_step(progress.step, len(site.nodes)))
    return _serve(pages, listen, waker, began + duration, threads=threads, watch=watch)


def _logging_step(step: Callable[[], None], nodes: int) -> Callable[[], None]:
    """Return the step of a progress that only a terminal shows, with a log line after this many nodes elsewhere."""
    if sys.stderr.isatty():
        return step
    numbers = count(1)

    def step_and_log() -> None:
        step()
        number = next(numbers)
        if number % NODES_PER_LOG_LINE == 0 and number < nodes:
            log.info("making nodes", extra={"facts": {"made": number, "nodes": nodes}})

    return step_and_log


def describe(arguments: argparse.Namespace) -> SimulatedSite:
    """Return the site of the file, or that of the options. Raises UserError."""
    try:
        if arguments.file is None:
            return SiteReader(YamlFile("the command line", ScenarioError, document(arguments)), Path()).site()
        options = [name for name in (*SITE, "seed") if getattr(arguments, name) is not None]
        if options:
            option = options[0].replace("_", "-")
            raise UserError(
                f"--{option}: the site is described by {arguments.file}; say it there, or leave out the file"
            )
        return read_site(arguments.file)
    except ScenarioError as error:
        raise UserError(str(error)) from error


def upcoming_faults(site: SimulatedSite, began: int) -> Iterator[str]:
    """Yield a line for each loss of nodes and each fault of a node, as many as a person reads."""
    lines = chain(
        (
            f"{_nodes_text(outage.nodes)}: {line}"
            for outage in site.outages
            for line in _outage_lines(outage, site, began)
        ),
        (f"{node.name}: {line}" for node in site.nodes for line in announced(node.scenario, began)),
    )
    yield from islice(lines, ANNOUNCED)
    if next(lines, None) is not None:
        yield "and more"


def _outage_lines(outage: Outage, site: SimulatedSite, began: int) -> Iterator[str]:
    fault = ScenarioFault(outage.loss.value, outage.window)
    return announced(replace(site.nodes[0].scenario, faults=(fault,)), began)


def _nodes_text(nodes: Collection[str]) -> str:
    return next(iter(nodes)) if len(nodes) == 1 else f"{len(nodes)} nodes"


def make_nodes(site: SimulatedSite, stride: int, began: int, profile: str = "default") -> list[SimulatedNode]:
    """Return the nodes of a site whose simulation begins at `began`, in seconds since the epoch."""
    racks = {rack.name: SimulatedRack(rack, site.outages, began) for rack in site.racks}
    return [SimulatedNode(plan, racks[plan.rack], stride, began, profile) for plan in site.nodes]


def _serve(
    pages: SitePages,
    listen: list[tuple[str, int]],
    waker: SignalWaker,
    until: float,
    *,
    threads: Threads,
    watch: WebWatch | None,
) -> int:
    server = HttpServer(
        listen,
        pages,
        clock=time.monotonic,
        press=hurry,
        threads=threads,
        gate=None if watch is None else watch.gate,
        max_connections=CONNECTIONS,
    )
    server.start()
    if watch is not None:
        watch.changed = server.nudge
        watch.start()
    for url in urls_of(server, "/", watch):
        pages.address = url.split("/")[2]
        log.info("serving", extra={"facts": {"nodes": pages.agents, "url": url, "discovery": f"{url}sd"}})
    frozen = 0
    stopped: list[int] = []
    remaining = until - time.monotonic()
    while not stopped and remaining > 0:
        if frozen != pages.agents:
            frozen = _freeze(pages)
        stopped = waker.wait(min(TEND_SECONDS, remaining))
        threads.tend()
        remaining = until - time.monotonic()
    server.stop()
    if watch is not None:
        watch.stop()
    log.info("stopped")
    return 0


def _freeze(pages: SitePages) -> int:
    """Let the collector pass over the nodes that there are: a second of standstill for each GiB. How many agents."""
    gc.freeze()
    gc.set_threshold(GARBAGE)
    gc.enable()
    return pages.agents


def _silence_agents(level: str) -> None:
    """Log only our own lines: what the sampler of one agent logs of its GPUs, thousands would, and none with a name."""
    logging.getLogger("coldplate").setLevel(logging.CRITICAL)
    for name in ("coldplate.simulate", "exporters"):
        logging.getLogger(name).setLevel({"warn": "WARNING"}.get(level, level.upper()))


def _interval(text: str) -> int:
    seconds = parse_value("--interval", quantities.duration_between, text, "1s", "60s")
    if seconds != int(seconds):
        raise UserError(f"--interval: {text} is not a whole number of seconds")
    return int(seconds)
