"""NVLink domains of a rack's GPUs, as each node reports them.

Between trays, NVLink is one domain: a cluster, and within it a clique of GPUs that reach each other. A GPU of another
clique, or of none, fails every job that spans the rack, although its own node looks well.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from agent.catalogue import BY_NAME
from agent.lib.layout_columns import RoundMemo
from agent.model import Frame, Layout

FABRIC_INFO = BY_NAME["coldplate_gpu_fabric_info"]
FABRIC_STATE = BY_NAME["coldplate_gpu_fabric_state"]
_JOINING = frozenset({"not_started", "in_progress", "failed"})
_Label = Annotated[str, msgspec.Meta(max_length=64)]


class DomainShare(NamedTuple):
    """How many GPUs of a node are in a domain; an empty `cluster_uuid` stands for those that have joined none.

    Agents send it to each other as an array of three: what a later version adds goes into a key of its own.
    """

    cluster_uuid: _Label
    clique: _Label
    gpus: Annotated[int, msgspec.Meta(ge=0, le=1024)]


_NOWHERE = ("", "")


class DomainCounter:
    """Counts the GPUs of this node by domain. A machine whose NVLinks end at its own switches has no domain."""

    def __init__(self) -> None:
        self._places = RoundMemo(_places)

    def of(self, frames: Sequence[Frame]) -> tuple[DomainShare, ...]:
        """Return the shares of a snapshot; none if the node has no fabric."""
        counts: Counter[tuple[str, str]] = Counter()
        places_of = self._places.of([frame.layout for frame in frames])
        for (_, values), places in zip(frames, places_of, strict=True):
            for place, domain in places:
                counts[domain] += int(values[place] == 1)
        return tuple(DomainShare(*domain, gpus) for domain, gpus in sorted(counts.items()) if gpus)


def _places(layout: Layout) -> tuple[tuple[int, tuple[str, str]], ...]:
    """Return the places of a layout whose series name a domain, each with its domain."""
    places = []
    for place, series in enumerate(layout.series):
        if series.metric is FABRIC_INFO:
            labels = dict(series.labels)
            if labels["cluster_uuid"].strip("0-"):
                places.append((place, (labels["cluster_uuid"], labels["clique"])))
        elif series.metric is FABRIC_STATE and dict(series.labels)["state"] in _JOINING:
            places.append((place, _NOWHERE))
    return tuple(places)
