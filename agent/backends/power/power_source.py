"""A source of node power, and what it cannot answer."""

from __future__ import annotations

from typing import Protocol

from agent.backends.pacing import PacedSource
from agent.backends.protocol import DeviceError
from agent.model import Reason

MOST_WATTS = 1e6


class PowerSource(PacedSource, Protocol):
    """One way to learn the power of the whole node."""

    def watts(self) -> float:
        """The power now. Raises AbsentError if this node has no such source, and DeviceError if it does not answer."""


def plausible_watts(source: PowerSource) -> float:
    """What it answers. Raises DeviceError as well where that cannot be: a node that runs this code draws power.

    Some controllers answer 0 when they do not measure.
    """
    watts = source.watts()
    if not 0 < watts < MOST_WATTS:
        raise DeviceError(Reason.IMPLAUSIBLE, f"reported {watts:g} W for a running node")
    return watts
