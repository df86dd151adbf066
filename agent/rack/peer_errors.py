"""The ways in which a request to a peer can fail."""

from __future__ import annotations

from enum import Enum


class PeerFault(Enum):
    """Why a peer's answer is missing or does not count."""

    CONNECT = "connect"  # its port is closed, its name unknown, its certificate not trusted
    TIMEOUT = "timeout"  # no complete answer in time
    HTTP = "http"  # a status other than 200
    GARBAGE = "garbage"  # an answer that no agent gives
    FOREIGN = "foreign"  # an agent of another rack
    CLOCK = "clock"  # its clock does not run like ours, so that its seconds cannot be matched to ours
    EXCESS = "excess"  # more power than a node can draw
