"""Checks of a worker's messages against the bounds, piece by piece. Each raises MessageError, or a built-in exception.

A worker applies the same checks before sending, so that a device with strange values loses its own
sample and not the trust in the worker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from agent.backends.protocol import GpuProcess, Unidentified
from agent.catalogue import BY_NAME
from agent.model import Gpu, GpuIdentity, Labels, Metric, Reason, Xid
from agent.worker import worker_messages
from agent.worker.worker_messages import MessageError

_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
"""Names of labels in Prometheus's data model, but for those that it reserves."""
_INFO = BY_NAME["coldplate_gpu_info"]
WALL_SECONDS = 1e11
"""Seconds since the epoch, in the year 5138."""


def whole(value: Any, below: int) -> int:
    """Return a whole number from 0."""
    if type(value) is not int or not 0 <= value < below:
        raise MessageError(f"not a whole number below {below}: {value!r:.40}")
    return value


def moment(value: Any, most: float = 1e15) -> float:
    """Return seconds, finite: any other time would never become old."""
    if type(value) not in (int, float) or not isfinite(value) or not 0 <= value <= most:
        raise MessageError(f"not a time: {value!r:.40}")
    return float(value)


def text(value: Any, limit: int) -> str:
    """Return a text that may become a label's value or part of a log line."""
    if type(value) is not str or len(value) > limit or not value.isprintable():
        raise MessageError(f"not a text of at most {limit} characters: {value!r:.60}")
    return value


def name(value: Any) -> str:
    """Return a text that identifies something."""
    if not text(value, worker_messages.NAME):
        raise MessageError("an empty name")
    return str(value)


def rows(value: Any, most: int) -> list[Any]:
    """Return a list with a bound."""
    if type(value) is not list or len(value) > most:
        raise MessageError(f"not a list of at most {most} items")
    return value


def labels(metric: Metric, pairs: Any) -> Labels:
    """Return the row's own labels, all of them and in order."""
    if [each[0] for each in pairs] != list(metric.labels):
        raise MessageError(f"{metric.name} has the labels {metric.labels}, not {pairs!r:.80}")
    return tuple(
        (known, text(each, worker_messages.LABEL)) for known, (_, each) in zip(metric.labels, pairs, strict=True)
    )


def roster(value: Any) -> tuple[tuple[str, GpuIdentity | None], ...]:
    """Return the channels, no two of them equal."""
    made = tuple(identity(row) for row in rows(value, worker_messages.CHANNELS))
    gpus = [each for _, each in made if each is not None]
    slots = [each.slot for each in gpus if each.slot]
    if len({key for key, _ in made}) != len(made) or len(set(slots)) != len(slots):
        raise MessageError("two channels with the same key or slot")
    return made


def identity(row: Any) -> tuple[str, GpuIdentity | None]:
    """Return a channel's key, and the GPU's identity if it is one."""
    if len(rows(row, 7)) == 1:
        return name(row[0]), None
    key, index, uuid, slot, serial, model, facts = row
    if key != uuid:
        raise MessageError(f"the channel {key!r:.40} is the GPU {uuid!r:.40}")
    slot, serial, model = (text(each, worker_messages.LABEL) for each in (slot, serial, model))
    return name(key), GpuIdentity(Gpu(name(index), uuid), slot, serial, model, _facts(facts))


def _facts(pairs: Any) -> Labels:
    """Return facts, which become labels of coldplate_gpu_info: none with the name of its own labels, and each once."""
    made = tuple(
        (name(known), text(value, worker_messages.LABEL)) for known, value in rows(pairs, worker_messages.FACTS)
    )
    names = [known for known, _ in made]
    taken = {"gpu", "uuid", *_INFO.labels}
    if len(set(names)) != len(names) or taken & set(names) or not all(map(_LABEL_NAME.fullmatch, names)):
        raise MessageError(f"facts that cannot be labels: {names!r:.80}")
    return made


def unidentified(value: Any) -> tuple[Unidentified, ...]:
    """Return the devices that have not identified themselves."""
    return tuple(
        Unidentified(name(index), Reason(why), text(detail, worker_messages.TEXT))
        for index, why, detail in rows(value, worker_messages.CHANNELS)
    )


def indexes(channels: Sequence[tuple[str, GpuIdentity | None]], missing: Sequence[Unidentified]) -> None:
    """Check that every index belongs to one device, and that there is a device."""
    taken = [each.gpu.index for _, each in channels if each is not None] + [each.index for each in missing]
    if len(set(taken)) != len(taken) or not (channels or missing):
        raise MessageError("no device at all, or two with the same index")


def processes(value: Any) -> tuple[GpuProcess, ...] | None:
    """Return all processes that compute on a GPU; None if they are not known."""
    return None if value is None else tuple(_process(row) for row in rows(value, worker_messages.PROCESSES))


def _process(row: Any) -> GpuProcess:
    pid, memory, instance, sm = row
    return GpuProcess(
        whole(pid, worker_messages.PID),
        None if memory is None else whole(memory, 2**64),
        None if instance is None else whole(instance, 2**32),
        None if sm is None else moment(sm, 1.0),
    )


def xid(row: Any) -> Xid:
    device, code, wall, reporter, words = row
    if reporter != "nvml":
        raise MessageError(f"a worker cannot have reports from {reporter!r:.20}")
    return Xid(
        name(device),
        whole(code, worker_messages.CODE),
        moment(wall, WALL_SECONDS),
        "nvml",
        text(words, worker_messages.TEXT),
    )
