"""Node power estimated from GPU power, if nothing measures the node; always labelled as an estimate.

On 8-GPU H100 nodes a BMC showed 1.1 times the sum of the GPUs' power plus 1.5 to 1.9 kW, with a
residual of about 1 kW (standard deviation): fans, processors, NICs and the loss in the supplies. The
constant is spread over the eight GPUs, so that smaller boards of the same kind get their share. Other machines
have other coefficients, which can be configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.catalogue import BY_NAME
from agent.model import Node, Reading, Series

SERIES = Series(BY_NAME["coldplate_node_power_watts"], Node(), (("source", "estimate"),))


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Node power is `factor` times the sum of the GPUs' power, plus a number of watts for each GPU."""

    factor: float = 1.1
    watts_per_gpu: float = 1700.0 / 8


DEFAULT = Coefficients()


def estimate(powers: Sequence[float | None], of: Coefficients) -> Reading | None:
    """The node's power from that of each of its GPUs, in watts; None unless all of them are known.

    A sum without one of the GPUs would be too low, just when something is wrong with the node.
    """
    known = [power for power in powers if power is not None]
    if not known or len(known) < len(powers):
        return None
    return Reading(SERIES, of.factor * sum(known) + of.watts_per_gpu * len(known))
