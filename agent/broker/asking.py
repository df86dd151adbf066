"""The agent's side: asks the broker, and checks everything that it answers.

Each request has its own connection, which is always closed, so that a late answer has nowhere
to go. A broker that is absent, hangs or sends nonsense is an OSError, within the caller's timeout.
"""

import errno
import os
import socket

from agent.broker.questions import LONGEST_ANSWER, IpmiDevice, ask_power, ask_variables, parse_answer

SOCKET = "/run/coldplate-broker.sock"
REMEDY = "systemctl enable --now coldplate-broker.socket lets the agent ask coldplate's broker for it"
VARIABLES_TIMEOUT_SECONDS = 2.0
"""Seconds: the broker may have to be started first, or may be waiting for the management controller."""
POWER_TIMEOUT_SECONDS = 4.0


class BrokerError(OSError):
    """The broker itself cannot be asked, or does not answer as it should; its file name is the socket's."""


def explained(error: OSError) -> str:
    """Return a text with the reason why the broker did not answer, and the remedy if one is known."""
    if not isinstance(error, BrokerError):
        return str(error.strerror)
    unreachable = error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.EACCES, errno.EPERM)
    return f"{error.filename}: {error.strerror}; {REMEDY if unreachable else 'see journalctl -u coldplate-broker'}"


class BrokerClient(IpmiDevice):
    """Asks one question at a time. `socket_path` is where the broker listens."""

    def __init__(self, socket_path: str = SOCKET) -> None:
        self._path = socket_path

    @property
    def installed(self) -> bool:
        """Whether there is a socket to connect to."""
        return os.path.exists(self._path)  # noqa: PTH110 - one call, no object

    def variables(self, pid: int, started: int) -> bytes:
        """Return the job variables of the process with this start time, in the form of its /proc/PID/environ.

        Raises BrokerError, or the OSError that the broker got when it read them.
        """
        return self._ask(ask_variables(pid, started), VARIABLES_TIMEOUT_SECONDS)

    def power_reading(self) -> bytes:
        """Return the management controller's response, completion code first. Raises as `variables` does."""
        return self._ask(ask_power(), POWER_TIMEOUT_SECONDS)

    def _ask(self, question: bytes, timeout: float) -> bytes:
        try:
            message = self._exchange(question, timeout)
            error, content = parse_answer(question, message)
        except TimeoutError as problem:
            raise BrokerError(errno.ETIMEDOUT, f"no answer within {timeout:g} s", self._path) from problem
        except OSError as problem:
            number = problem.errno or errno.EIO
            raise BrokerError(number, os.strerror(number), self._path) from problem
        except ValueError as problem:
            raise BrokerError(errno.EBADMSG, str(problem), self._path) from problem
        if error:
            raise OSError(error, f"the broker got the error: {os.strerror(error)}")
        return content

    def _exchange(self, question: bytes, timeout: float) -> bytes:
        """Send one message and receive one; again if the broker just exited, since a new request starts it again."""
        for last in (False, True):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as connection:
                connection.settimeout(timeout)
                try:
                    connection.connect(self._path)
                    connection.send(question)
                    message = connection.recv(LONGEST_ANSWER + 1)
                except (ConnectionResetError, BrokenPipeError):
                    if last:
                        raise
                    continue
                if message or last:
                    return message
        return b""
