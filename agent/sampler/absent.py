"""Which of the remembered GPUs are those that the driver counts but that have not identified themselves.

No GPU may be counted twice: a GPU that is known and silent is one GPU, even while it is unidentified.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.backends.protocol import Unidentified
from agent.model import GpuIdentity


def recognise(
    unidentified: Sequence[Unidentified], absent: Sequence[GpuIdentity]
) -> tuple[dict[str, Unidentified], list[Unidentified]]:
    """The unidentified GPU that each absent one must be, by UUID, and those that must be unknown GPUs.

    `absent` are the GPUs of the inventory that the driver does not name. The driver counts GPUs along the bus, so an
    unidentified GPU with the index of an absent one is that one; of the others, as many are known GPUs as are absent.
    If more are absent than unidentified, it is not known which of them are only silent.
    """
    known: dict[str, Unidentified] = {}
    by_index = {identity.gpu.index: identity for identity in absent}
    strangers = []
    for each in unidentified:
        identity = by_index.pop(each.index, None)
        if identity is None:
            strangers.append(each)
        else:
            known[identity.gpu.uuid] = each
    rest = [identity for identity in absent if identity.gpu.uuid not in known]
    if len(rest) > len(strangers):
        return known, []
    known.update({identity.gpu.uuid: each for identity, each in zip(rest, strangers, strict=False)})
    return known, strangers[len(rest) :]
