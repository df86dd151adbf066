"""Decides whose data are shown: named agents, those of the rack, the agent of this node, or its devices themselves.

Each agent is polled in a thread of its own: one that does not answer delays no other.
"""

import argparse
import logging
import socket
import threading
from collections.abc import Callable

from agent.commands.top.screen.node_samples import NodeSample, SampleBoard
from agent.config.schema import Config, ConfigError, parse_value
from agent.lib.clock import clock
from agent.lib.http_target import HttpTarget
from agent.lib.threads import KeptThread, Threads
from agent.lib.wording import show_address
from agent.rack.finder import Finder, PeerTarget
from agent.wiring.agent_client import TIMEOUT_SECONDS, AgentClient, AgentResponse, name_of_target, target_of
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.http_access import given_login
from agent.wiring.identity import login_of, node_name, own_agent
from agent.wiring.peering import load_rack

ORIGIN = "from its agent"
END_SECONDS = 1.0
"""Seconds for which those that end are waited for, all together."""


def node_sample_of(name: str, response: AgentResponse) -> NodeSample:
    """Return the answer of an agent as the last sample of its node."""
    return NodeSample(name, ORIGIN, response.snapshot, response.alerts, response.problem, response.age, response.mono,
                    response.past, unjudged=response.unjudged, node=response.node, states=response.states)  # fmt: skip


class AgentPoller:
    """Asks any number of agents again and again, `interval` seconds apart, until `stop`."""

    def __init__(self, board: SampleBoard, interval: float, threads: Threads) -> None:
        self._board = board
        self._interval = interval
        self._threads = threads
        self._stopping = threading.Event()
        self._polls: dict[str, tuple[AgentClient, KeptThread]] = {}

    def start_polling(self, poll: AgentClient) -> None:
        """Ask this one, too, unless one of its name is asked already."""
        if poll.name in self._polls:
            return
        self._board.expect(poll.name)
        self._polls[poll.name] = poll, self._threads.begin(f"top-{poll.name}", lambda: self._run(poll))

    def _run(self, poll: AgentClient) -> None:
        try:
            while not self._stopping.is_set():
                self._board.store_sample(node_sample_of(poll.name, poll.fetch()))
                self._stopping.wait(self._interval)
        finally:
            poll.close()

    def stop(self) -> None:
        """Stop polling. Do not wait for a pending DNS lookup."""
        self._stopping.set()
        for poll, _ in self._polls.values():
            poll.abort()
        for _, thread in self._polls.values():
            thread.join(END_SECONDS / len(self._polls))


log = logging.getLogger("coldplate.top")

ATTACH_SECONDS = 1.0
"""Seconds that the agent of this node may take for its first answer."""
_REFUSED = "Connection refused"


class NodeSources:
    """Puts samples of the nodes on the board, in threads. Raises ConfigError for what cannot be asked."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        config: Config,
        options: CommandLineOptions,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.board = SampleBoard(changed)
        self.note = ""
        self._threads = Threads(lambda: clock().mono)
        self._polling = AgentPoller(self.board, arguments.interval, self._threads)
        self._ends: list[Callable[[], None]] = [self._polling.stop]
        self._finder: Finder | None = None
        self._config = config
        self._options = options
        self._interval: float = arguments.interval
        self._login = given_login(arguments)
        if arguments.url:
            for url in arguments.url:
                target = parse_value("--url", target_of, url, self._login)
                self._polling.start_polling(AgentClient(name_of_target(target), target, clock))
            return
        if arguments.rack:
            self._begin_rack()
        if arguments.no_attach or arguments.backend or arguments.scenario or not self._attach():
            self._sample()

    def add_new_peers(self) -> None:
        """Ask the peers that were found since. To be called now and then."""
        self._threads.tend()
        if self._finder is not None:
            for peer in self._finder.targets:
                if not self._is_this_node(peer):
                    self._polling.start_polling(
                        AgentClient(peer.name.removesuffix(":19400"), self._target(peer), clock)
                    )

    def close(self) -> None:
        for end in self._ends:
            end()

    def _attach(self) -> bool:
        """Return whether an agent runs here and answers; it is asked from then on."""
        name, own = node_name(self._config), own_agent(self._config, self._login)
        for url in own.urls:
            poll = AgentClient(name, HttpTarget(url, timeout=ATTACH_SECONDS, **own.login), clock, with_past=False)
            first = poll.fetch()
            poll.close()
            if first.snapshot is not None:
                self.board.store_sample(node_sample_of(name, first))
                self._polling.start_polling(
                    AgentClient(name, HttpTarget(url, timeout=TIMEOUT_SECONDS, **own.login), clock)
                )
                return True
            if _REFUSED not in first.problem:
                self.note = f"not attached to {url}: {first.problem}"
        return False

    def _sample(self) -> None:
        from agent.commands.top.local_sampling import LocalSampler

        name = node_name(self._config)
        own = LocalSampler(name, self._config, self._options, self._interval, self.board, self._threads)
        self._ends.append(own.stop)

    def _begin_rack(self) -> None:
        rack = load_rack(self._config, self._options.folder)
        if not rack.entries:
            raise ConfigError("--rack: no peers are configured; set rack.peers, or name nodes with --url")
        self._finder = Finder(rack.entries, lambda: clock().mono, threads=self._threads)
        self._finder.start()
        self._ends.append(self._finder.stop)
        self.add_new_peers()

    def _is_this_node(self, peer: PeerTarget) -> bool:
        """Return whether a peer is this node, which is shown anyway: peers may be listed once for the whole rack."""
        names = {node_name(self._config), socket.gethostname()}
        ports = {listen.rpartition(":")[2] for listen in self._config.web.listen}
        is_named = peer.host in names or peer.host.partition(".")[0] in names
        return str(peer.port) in ports and (is_named or _is_own_address(peer.host))

    def _target(self, peer: PeerTarget) -> HttpTarget:
        access = self._config.rack.peer
        url = f"{access.scheme}://{show_address(peer.host, peer.port)}"
        return HttpTarget(url, timeout=TIMEOUT_SECONDS, **(self._login or login_of(access)))


def _is_own_address(host: str) -> bool:
    """Return whether this is an IP address of this machine: only to those can a socket be bound. Looks up no name."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
