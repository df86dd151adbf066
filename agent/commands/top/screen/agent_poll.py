"""Asks running agents for what they know, each in a thread of its own: one that does not answer delays no other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from agent.commands.top.screen.agent_answers import ForeignAnswerError, SnapshotReader, read_alerts, read_history
from agent.commands.top.screen.sightings import Sighting, SightingBoard
from agent.lib.http_answers import AnswerBounds, HttpError
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.lib.threads import KeptThread, Threads
from agent.lib.wording import one_line
from agent.model import Alert, Instant, PastMoment

ORIGIN = "from its agent"
MOST_BODY = 64 * 1024 * 1024
"""Bytes of a snapshot: that of the largest node has about 10 MiB."""
END_SECONDS = 1.0
"""Seconds for which those that end are waited for, all together."""
_OK, _NO_RULES = 200, 404


class AgentPoll:
    """The way to one agent. `clock` tells both clocks; it is asked in one thread.

    The first answer has the minutes before, too, if they are wanted.
    """

    def __init__(self, name: str, target: HttpTarget, clock: Callable[[], Instant], *, with_past: bool = True) -> None:
        self.name = name
        self._timeout = target.timeout
        self._clock = clock
        self._client = HttpClient(target, AnswerBounds(MOST_BODY), lambda: clock().mono)
        self._reader = SnapshotReader()
        self._past: list[PastMoment] | None = None if with_past else []

    def ask(self) -> Sighting:
        """What it tells now, or why nothing came. Takes no longer than the target's timeout."""
        until = self._clock().mono + self._timeout
        try:
            body = self._get("/api/v1/snapshot", until)
            assert body is not None
            snapshot, age = self._reader.read(body)
            alerts = self._alerts(until)
            if self._past is None:
                self._past = self._history(until)
        except HttpError as error:
            return self._silent(f"no answer: {self._client.masked(str(error))}")
        except ForeignAnswerError as error:
            return self._silent(str(error))
        return Sighting(self.name, ORIGIN, snapshot, alerts, "", age, self._clock().mono, self._past)

    def close(self) -> None:
        """Hang up; the next question opens another connection."""
        self._client.close()

    def abort(self) -> None:
        """End a question under way, from another thread."""
        self._client.abort()

    def _alerts(self, until: float) -> list[Alert] | None:
        body = self._get("/api/v1/alerts", until, optional=True)
        return None if body is None else read_alerts(body)

    def _history(self, until: float) -> list[PastMoment]:
        """Empty if nothing usable comes: a picture without it is better than none."""
        try:
            body = self._get("/api/v1/history", until, optional=True)
            return [] if body is None else read_history(body)
        except (HttpError, ForeignAnswerError):
            self._client.close()
            return []

    def _get(self, path: str, until: float, *, optional: bool = False) -> bytes | None:
        answer = self._client.exchange(HttpRequest("GET", path), until)
        if answer.closes:
            self._client.close()
        if optional and answer.status == _NO_RULES:
            return None
        if answer.status != _OK or answer.cut:
            raise ForeignAnswerError(f"answers {path} with status {answer.status}")
        return answer.body

    def _silent(self, problem: str) -> Sighting:
        return Sighting(self.name, ORIGIN, problem=one_line(problem), mono=self._clock().mono)


class Polling:
    """Asks any number of agents again and again, `interval` seconds apart, until `stop`."""

    def __init__(self, board: SightingBoard, interval: float, threads: Threads) -> None:
        self._board = board
        self._interval = interval
        self._threads = threads
        self._stopping = threading.Event()
        self._polls: dict[str, tuple[AgentPoll, KeptThread]] = {}

    def begin(self, poll: AgentPoll) -> None:
        """Ask this one, too, unless one of its name is asked already."""
        if poll.name in self._polls:
            return
        self._board.expect(poll.name)
        self._polls[poll.name] = poll, self._threads.begin(f"top-{poll.name}", lambda: self._run(poll))

    def _run(self, poll: AgentPoll) -> None:
        try:
            while not self._stopping.is_set():
                self._board.put(poll.ask())
                self._stopping.wait(self._interval)
        finally:
            poll.close()

    def stop(self) -> None:
        """Ask nobody any more. A name server that does not answer is not waited for."""
        self._stopping.set()
        for poll, _ in self._polls.values():
            poll.abort()
        for _, thread in self._polls.values():
            thread.join(END_SECONDS / len(self._polls))
