"""The ways in which a request to a peer can fail."""

from __future__ import annotations

from enum import Enum


class PeerFault(Enum):
    """Why a peer's answer is not there, or does not count."""

    CONNECT = "connect"  # its port is closed, its name unknown, its certificate not trusted
    TIMEOUT = "timeout"  # no whole answer in time
    HTTP = "http"  # another status than 200
    GARBAGE = "garbage"  # an answer that no agent gives
    FOREIGN = "foreign"  # an agent of another rack
    CLOCK = "clock"  # its clock does not go as ours does, so that nobody knows which of our seconds its are
    EXCESS = "excess"  # more power than a node can draw
