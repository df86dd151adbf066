"""A worker that a test speaks for, and a supervisor over such workers."""

import signal
from collections.abc import Callable

from agent.model import Lane, Reason
from agent.worker.supervisor import Supervisor, WorkerOptions
from agent.worker.worker_messages import Message, encode
from agent.worker.worker_process import ChildProcess

HELLO = encode("hello", "nvml", [["fabric", None]], [])
STEP = 0.25


class FakeProcess(ChildProcess):
    """A worker that a test speaks for. It answers every order while `answers`, and dies as it is told to."""

    descriptor = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.answers = True
        self.mortal = {signal.SIGTERM, signal.SIGKILL}
        self.orders: list[str] = []
        self.signals: list[int] = []
        self.said: list[bytes] = []
        self.ended: int | None = None
        self.held: int | None = 30 * 2**20
        self.closed = False

    def status(self) -> int | None:
        return self.ended

    def order(self, line: bytes) -> bool:
        self.orders.append(line.decode().strip())
        if self.answers:
            self.said.append(encode("alive", int(line.split()[0])))
        return True

    def lines(self, now: float) -> list[bytes]:
        said, self.said = self.said, []
        return [line.rstrip(b"\n") for line in said]

    def resident(self) -> int | None:
        return self.held

    def signal(self, *numbers: int) -> None:
        for number in numbers:
            self.signals.append(number)
            if number in self.mortal and self.ended is None:
                self.ended = -number

    def close(self, now: float) -> None:
        self.closed = True


class Rig:
    """A supervisor over fake processes, whose clock the test turns in steps of a quarter of a second."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.started: list[FakeProcess] = []
        self.arguments: list[str] = []
        self.refuse: Exception | None = None
        self.heard: list[Message] = []
        self.exit_reasons: list[tuple[float, Reason, str]] = []
        self.born: Callable[[FakeProcess], None] = lambda process: None
        self.supervisor = Supervisor(WorkerOptions("nvml"), self._start)

    def _start(self, argument: str) -> FakeProcess:
        if self.refuse is not None:
            raise self.refuse
        assert not self.started or self.started[-1].ended is not None, "two workers"
        self.arguments.append(argument)
        self.started.append(FakeProcess(100 + len(self.started)))
        self.born(self.started[-1])
        return self.started[-1]

    @property
    def worker(self) -> FakeProcess:
        return self.started[-1]

    def turn(self, step: float = STEP) -> None:
        self.now += step
        self.heard += self.supervisor.receive(self.now)
        self.supervisor.step(self.now)
        if self.supervisor.ended is not None:
            self.exit_reasons.append((self.now, self.supervisor.ended.reason, self.supervisor.ended.detail))
            self.supervisor.ended = None

    def run(self, seconds: float, ask: bool = False) -> None:
        until = self.now + seconds
        while self.now < until - 1e-9:
            if ask:
                self.supervisor.ask([Lane.FAST], self.now)
            self.turn()

    def until(self, holds: Callable[[], bool], limit: float, ask: bool = False) -> float:
        """How long it took, in the seconds of the rig."""
        began = self.now
        while not holds():
            assert self.now - began < limit, "not in time"
            self.run(STEP, ask)
        return self.now - began

    def open(self) -> None:
        """A worker that runs."""
        self.turn()
        self.worker.said += [HELLO, HELLO]
        self.run(1.5)
        assert self.supervisor.running
        assert self.worker.orders

    def sample(self) -> None:
        self.worker.said.append(encode("error", 0, "fast", self.now, "lost", "why"))
