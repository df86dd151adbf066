"""The broker's process. systemd starts it with its socket on a request, and it exits when idle."""

import os
import signal
import socket
import sys
import time

from agent.broker.answering import Broker, serve

FIRST_DESCRIPTOR = 3
"""SD_LISTEN_FDS_START of sd_listen_fds(3)."""
IDLE_SECONDS = 60.0
"""Seconds: longer than the period of requests to the management controller, so that not each one starts the broker."""
ROOT = 0


def main() -> int:
    """Serve the socket that systemd passed on; returns the exit status."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        print("coldplate-broker: started without its socket; systemctl start coldplate-broker.socket", file=sys.stderr)
        return 2
    with socket.socket(fileno=FIRST_DESCRIPTOR) as listener:
        # The socket's file belongs to the agent's user: this avoids looking up that user's number.
        agent = os.stat(listener.getsockname()).st_uid  # noqa: PTH116 - pathlib costs memory
        serve(listener, Broker(time.monotonic), frozenset({ROOT, agent}), IDLE_SECONDS, end_in)
    return 0


def end_in(seconds: float) -> None:
    """Have the kernel end this process then, whatever it waits for; 0 for never. The next request starts another."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    sys.exit(main())
