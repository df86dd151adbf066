"""The privileged side: what is answered, to whom, and for how long a client may keep it busy.

One client at a time, one request per connection. An unknown user gets no answer at all.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable

from agent.broker import ipmidev
from agent.broker.questions import POWER, QUESTION, IpmiDevice, answer_to, job_variables, joined, parse_question

STAT, ENVIRON = 1024, 256 * 1024
"""Most bytes read of each file."""
TIMEOUT_SECONDS = 1.0
"""Seconds that a client has to ask, and to take its answer."""
DEADLINE_SECONDS = 4.0
"""Seconds that an answer may take: a process stuck in a driver may hold the lock on its environment."""
POWER_PERIOD_SECONDS = 1.0
"""Seconds between two requests to the management controller, no matter who asks for them."""

_CREDENTIALS = struct.Struct("=3i")  # struct ucred of unix(7): pid, uid, gid


class Broker:
    """Answers questions. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        procfs: str = "/proc",
        device: Callable[[], str | None] = ipmidev.device,
        open_device: Callable[[str], IpmiDevice] = ipmidev.DeviceTransport,
    ) -> None:
        self._clock = clock
        self._procfs = procfs
        self._device = device
        self._open_device = open_device
        self._power_due = float("-inf")

    def answer(self, question: bytes) -> bytes:
        """Return the answer; empty for an invalid question."""
        request = parse_question(question)
        if request is None:
            return b""
        kind, pid, started = request
        try:
            content = self._power() if kind == POWER else joined(variables_of(self._procfs, pid, started))
        except OSError as error:
            return answer_to(question, error.errno or errno.EIO)
        return answer_to(question, 0, content)

    def _power(self) -> bytes:
        path = self._device()
        if path is None:
            raise OSError(errno.ENODEV, "no IPMI device")
        now = self._clock()
        if now < self._power_due:
            raise OSError(errno.EBUSY, "asked too often")
        self._power_due = now + POWER_PERIOD_SECONDS
        device = self._open_device(path)
        try:
            return device.power_reading()
        finally:
            device.close()


def variables_of(procfs: str, pid: int, started: int) -> dict[bytes, bytes]:
    """Return the job variables of the process with this start time. Raises OSError, with ESRCH if it is another
    process.

    Both files are opened through one open directory, which stays that of the same process, even if a later one gets the
    same number.
    """
    directory = os.open(f"{procfs}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _started(_content(directory, "stat", STAT)) != started:
            raise ProcessLookupError(errno.ESRCH, "another process")
        return job_variables(_content(directory, "environ", ENVIRON))
    finally:
        os.close(directory)


def _started(stat: bytes) -> int:
    """Return when a process was started: field 22 of /proc/PID/stat; the command (2) may have blanks and brackets."""
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 20 or not fields[19].isdigit():
        raise ProcessLookupError(errno.ESRCH, "no start in stat")
    return int(fields[19])


def _content(directory: int, name: str, most: int) -> bytes:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        parts = []
        while most > 0 and (part := os.read(file, most)):
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    finally:
        os.close(file)


def serve(
    listener: socket.socket,
    broker: Broker,
    peers: frozenset[int],
    idle: float,
    deadline: Callable[[float], object] = lambda _: None,
) -> None:
    """Answer the users `peers` until there was no request for `idle` seconds.

    `deadline` is called before an answer with the seconds that it may take, and afterwards with 0.
    """
    listener.settimeout(idle)
    while True:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            return
        with connection:
            if user_of(connection) in peers:
                _converse(connection, broker, deadline)


def user_of(connection: socket.socket) -> int:
    """Return the user who opened the connection, according to the kernel."""
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)


def _converse(connection: socket.socket, broker: Broker, deadline: Callable[[float], object]) -> None:
    """Handle one question and its answer. A client that is slow or gone is dropped."""
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        question = connection.recv(QUESTION.size + 1)
        deadline(DEADLINE_SECONDS)
        answer = broker.answer(question)
        deadline(0)
        if answer:
            connection.send(answer)
    except OSError:
        return
