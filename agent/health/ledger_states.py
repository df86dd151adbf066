"""The state in which each GPU spent most of the last minute, by the ledger's counters."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from agent.catalogue import BY_NAME
from agent.model import Gpu, PastMoment

STATE_SECONDS = "coldplate_gpu_state_seconds_total"
_METRIC = BY_NAME[STATE_SECONDS]
MOMENTS, SPACING_SECONDS = 13, 4.95
"""Moments of the counters that are kept, and how far apart they are: a minute in all."""


def main_states(moments: Sequence[PastMoment]) -> dict[Gpu, str]:
    """Return, by GPU, the state whose counter grew most from the first of these moments to the last.

    A GPU of which no state grew, or that is missing in one of the two, is left out: what it does is not known.
    """
    if len(moments) < 2:
        return {}
    first = dict(_seconds(moments[0]))
    growth: dict[Gpu, dict[str, float]] = defaultdict(dict)
    for (gpu, state), seconds in _seconds(moments[-1]):
        if (gpu, state) in first:
            growth[gpu][state] = seconds - first[gpu, state]
    return {gpu: max(states, key=states.__getitem__) for gpu, states in growth.items() if any(states.values())}


def _seconds(moment: PastMoment) -> Iterator[tuple[tuple[Gpu, str], float]]:
    for layout, values in moment.parts:
        for series, value in zip(layout.series, values, strict=True):
            if series.metric is _METRIC and isinstance(series.entity, Gpu):
                yield (series.entity, dict(series.labels)["state"]), value
