"""The protocol between the device worker and the main process: one message per line, in each direction; and its limits.

A line of the worker is a checksum and a JSON value. JSON, because a worker whose library corrupted
its memory may write anything: the reader must be able to reject any byte string safely. The
checksum, because a line that was truncated, or has a flipped bit, is often still valid JSON.

What seldom changes (the channels, the series of a channel's lane, its gaps) is sent when it changes, with an
edition; a sample is then a list of numbers, and one of processes, with the editions that it refers to. So a reader
that missed a change notices it at the next sample, and requests everything again.

Worker to main: `alive`, `hello`, `absent`, `failed`, `layout`, `gaps`, `sample`, `error`, `xid`.
Main to worker: a number, and the lanes of a tick such as `17 fast slow`, or `17 anew`, `17 stop`, or nothing. The
worker answers each with `alive` and its number, before anything else.

Its limits are far above the largest node, and far below what would hurt the main process. The largest node has 72
GPUs, each with 18 NVLinks that offer every type of error, and MIG on all. That is 28,000 series, each of which costs
the main process 2.5 KB from the pipe to the page. Anything beyond these limits is garbage.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from agent.backends.protocol import ChannelError, GpuProcess, LaneSample, Unidentified
from agent.catalogue import BY_NAME
from agent.model import Entity, Gap, Gpu, GpuIdentity, IbPort, Node, NvLink, Reason, Series, Xid

MAX_LINE = 256 * 2**10
"""Bytes of a message. The longest is a layout of a GPU with all its links: 60 KB."""
CHANNELS = 80
SERIES = 30_000
"""Of all layouts together."""
SERIES_OF_LANE = 1024
GAPS = 8192
"""Of all channels together."""
GAPS_OF_LANE = 512
PROCESSES = 4096
"""On one GPU."""
EVENTS = 1024
"""XID errors in one message."""
CALLS = 1_000_000
"""Driver calls of one sample."""
LINKS = 64
"""NVLinks of one GPU: those of 2026 have 18."""
PORTS = 64
FACTS = 16
"""Facts about a GPU beside its slot, serial and model."""

NAME = 64
"""Characters of a key, an index, a slot, the name of a port or of a fact."""
LABEL = 256
"""Characters of a label's value."""
TEXT = 512
"""Characters of the detail of a reason, or of the kernel's text about an XID."""
DURATION_SECONDS = 1e6
"""Seconds that a sample may have taken."""
CODE = 2**31
"""XIDs are below this: NVIDIA's catalogue ends at some 170."""
PID = 2**32


ANEW, STOP = "anew", "stop"
"""Orders beside the lanes: send everything again that is remembered; end."""
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
"""Names of labels in Prometheus's data model, but for those that it reserves."""
_TAKEN_LABELS = frozenset({"gpu", "uuid", *BY_NAME["coldplate_gpu_info"].labels})


class MessageError(ValueError):
    """The line is not a valid message."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The worker's main thread received the order with this number."""

    order: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The source is open: its channels, in the order of their numbers, and the devices that are missing.

    Sent when the source is open, and again when a device joins or the missing ones change.
    """

    source: str
    channels: tuple[tuple[str, GpuIdentity | None], ...]
    unidentified: tuple[Unidentified, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no device can be read: the source could not be opened (`absent`: there is nothing to open) or failed as a
    whole, or its worker ended or does not answer.
    """

    absent: bool
    detail: str
    reason: Reason = Reason.LOST


Message = Hello | Refusal | LaneSample | ChannelError | tuple[Xid, ...]
"""The messages for the main process; `Alive` is only for the supervisor."""


def encode(kind: str, *parts: object) -> bytes:
    body = _ENCODE([kind, *parts]).encode()
    return b"%08x %b\n" % (crc32(body), body)


def unseal(line: bytes) -> bytes:
    """Return the message of a line, without its checksum and its end. Raises MessageError."""
    body = line[9:].removesuffix(b"\n")
    if line[:9] != b"%08x " % crc32(body):
        raise MessageError(f"the checksum is wrong: {line[:60]!r}")
    return body


def clean(text: str, limit: int) -> str:
    """Return a text that the reader will accept: without unprintable characters, and no longer than the limit."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


def encode_entity(entity: Entity) -> list[object]:
    if isinstance(entity, Gpu):
        return ["gpu", entity.index, entity.uuid]
    if isinstance(entity, NvLink):
        return ["nvlink", entity.gpu.index, entity.gpu.uuid, entity.link]
    if isinstance(entity, IbPort):
        return ["ib", entity.device, entity.port]
    if isinstance(entity, Node):
        return ["node"]
    raise MessageError(f"a worker cannot have readings of {entity}")


def encode_series(series: Sequence[Series]) -> list[list[object]]:
    rows: list[list[object]] = []
    for s in series:
        labels = [(name, clean(value, LABEL)) for name, value in s.labels]
        rows.append([s.metric.name, encode_entity(s.entity), labels])
    return rows


def encode_gaps(gaps: Sequence[Gap]) -> list[list[object]]:
    return [[gap.metric.name, encode_entity(gap.entity), gap.reason.value, clean(gap.detail, TEXT)] for gap in gaps]


def encode_processes(processes: Sequence[GpuProcess] | None) -> list[list[object]] | None:
    return None if processes is None else [[p.pid, p.memory, p.instance, p.sm] for p in processes]


def encode_identity(key: str, identity: GpuIdentity | None) -> list[object]:
    if identity is None:
        return [key, None]
    facts = [(name, clean(value, LABEL)) for name, value in identity.facts]
    texts = (clean(fact, LABEL) for fact in (identity.slot, identity.serial, identity.model))
    return [key, [identity.gpu.index, *texts, facts]]


def check_channels(channels: Sequence[tuple[str, GpuIdentity | None]]) -> None:
    """Check keys, indexes and names of facts. Raises MessageError.

    A worker does so before it sends them, so that a device with strange values loses its own samples and not the trust
    in the worker.
    """
    gpus = [identity for _, identity in channels if identity is not None]
    keys, slots = [key for key, _ in channels], [gpu.slot for gpu in gpus if gpu.slot]
    if len(set(keys)) != len(keys) or len(set(slots)) != len(slots):
        raise MessageError("two channels with the same key or slot")
    if len(channels) > CHANNELS:
        raise MessageError(f"more than {CHANNELS} channels")
    for name in (*keys, *(gpu.gpu.index for gpu in gpus)):
        if not name or len(name) > NAME or not name.isprintable():
            raise MessageError(f"not a name of at most {NAME} characters: {name!r:.60}")
    for key, identity in channels:
        if identity is None:
            continue
        if key != identity.gpu.uuid:
            raise MessageError(f"the channel {key!r:.40} is the GPU {identity.gpu.uuid!r:.40}")
        facts = {name for name, _ in identity.facts}
        if len(facts) != len(identity.facts) or len(facts) > FACTS or not all(map(_may_be_fact, facts)):
            raise MessageError(f"facts that cannot be labels: {sorted(facts)!r:.80}")


def _may_be_fact(name: str) -> bool:
    """Return whether coldplate_gpu_info may have a label of this name beside its own."""
    return len(name) <= NAME and name not in _TAKEN_LABELS and _LABEL_NAME.fullmatch(name) is not None


def encode_unidentified(missing: Sequence[Unidentified]) -> list[list[object]]:
    return [[gpu.index, gpu.reason.value, clean(gpu.detail, TEXT)] for gpu in missing]


def encode_events(number: int, events: Sequence[Xid]) -> bytes:
    """Return XID events as one message, the `number`th of its kind."""
    rows = []
    for event in events:
        device, code = clean(event.device, NAME) or "?", min(event.code, CODE - 1)
        rows.append([device, code, event.wall, event.reporter, clean(event.text, TEXT)])
    return encode("xid", number, rows)
