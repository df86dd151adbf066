"""Poll running agents, each in a thread of its own: one that does not answer delays no other."""

from __future__ import annotations

import threading

from agent.commands.top.screen.node_samples import Sighting, SightingBoard
from agent.lib.threads import KeptThread, Threads
from agent.wiring.agent_client import AgentClient, AgentResponse

ORIGIN = "from its agent"
END_SECONDS = 1.0
"""Seconds for which those that end are waited for, all together."""


def sighting_of(name: str, response: AgentResponse) -> Sighting:
    """Return a node as its agent's response shows it."""
    return Sighting(
        name,
        ORIGIN,
        response.snapshot,
        response.alerts,
        response.problem,
        response.age,
        response.mono,
        response.past,
    )


class AgentPoller:
    """Asks any number of agents again and again, `interval` seconds apart, until `stop`."""

    def __init__(self, board: SightingBoard, interval: float, threads: Threads) -> None:
        self._board = board
        self._interval = interval
        self._threads = threads
        self._stopping = threading.Event()
        self._polls: dict[str, tuple[AgentClient, KeptThread]] = {}

    def begin(self, poll: AgentClient) -> None:
        """Ask this one, too, unless one of its name is asked already."""
        if poll.name in self._polls:
            return
        self._board.expect(poll.name)
        self._polls[poll.name] = poll, self._threads.begin(f"top-{poll.name}", lambda: self._run(poll))

    def _run(self, poll: AgentClient) -> None:
        try:
            while not self._stopping.is_set():
                self._board.put(sighting_of(poll.name, poll.fetch()))
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
