"""Reads one module, a page at a time: who it is, once what it measures and its limits, and what it measures now.

The serial is read again at the end: a module that was swapped in between, or whose bytes change, gives nothing rather
than one module's values under another's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from agent.backends.optics.ethtool_requests import RequestFailure, explain_failure
from agent.backends.optics.modules import cmis, sff8636
from agent.backends.optics.modules.cmis import Places, VdmSample
from agent.backends.optics.modules.module_types import (
    MemoryMap,
    ModuleCapabilities,
    ModuleIdentity,
    ModuleLimits,
    ModuleSpan,
    ModuleValues,
    malformed,
)
from agent.backends.optics.netlink import NetlinkFormatError
from agent.backends.protocol import DeviceError
from agent.model import Reason

HEAD = ModuleSpan(0, 0, 3)
"""Identifier, revision and status, in both maps."""
_UNWRITTEN = 0xFF
"""What an open bus reads as."""

_Read = TypeVar("_Read")
Memory = Callable[[ModuleSpan], bytes]
"""Reads bytes of a module. Raises OSError, and NetlinkFormatError."""


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """Facts that are read once for each module. `limits` is None if the module has no page of limits.

    `limits` and `diagnosed`, the places of its diagnostics, may be the failure to read them.
    """

    layout: MemoryMap
    head: bytes
    upper: bytes
    identity: ModuleIdentity
    traits: ModuleCapabilities
    limits: ModuleLimits | RequestFailure | None
    diagnosed: Places | RequestFailure

    @property
    def complete(self) -> bool:
        """Whether no read of it failed, so that none must be repeated."""
        return not isinstance(self.limits, RequestFailure) and not isinstance(self.diagnosed, RequestFailure)


class ModuleReading(NamedTuple):
    """A module with its present values; `diagnostics` may be the failure to read them."""

    known: ModuleFacts
    values: ModuleValues
    diagnostics: Mapping[VdmSample, float] | RequestFailure


def read_module(memory: Memory, known: ModuleFacts | None) -> ModuleReading:
    """Return the module behind `memory`, of which `known` was read before. Raises as `memory`, and DeviceError."""
    head = _read(memory, HEAD)
    layout = _layout_of(head[0])
    upper = _read(memory, layout.identity)
    if upper[0] != head[0]:
        raise malformed(f"changes while it is read: byte 0 is {head[0]:#04x}, and byte 128 {upper[0]:#04x}")
    if known is None or (head[:2], upper) != (known.head, known.upper) or not known.complete:
        known = _know(memory, layout, head, upper)
    parts = [_read(memory, span) for span in layout.values_spans(known.traits)]
    values = layout.values(known.traits, parts)
    diagnosed = _diagnose(memory, known.diagnosed) if values.ready else {}
    at = layout.serial.offset - layout.identity.offset
    if _read(memory, layout.serial, blank=True) != upper[at : at + layout.serial.length]:
        raise malformed("changes while it is read: two serials")
    return ModuleReading(known, values, diagnosed)


def _know(memory: Memory, layout: MemoryMap, head: bytes, upper: bytes) -> ModuleFacts:
    identity = layout.identify(head, upper)
    traits = layout.traits(head, upper, [_read(memory, span) for span in layout.traits_spans(head, upper)])
    limits: ModuleLimits | RequestFailure | None = None
    span = layout.limits_span(head)
    if span is not None:
        limits = _tried(lambda: layout.limits(traits, _read(memory, span, blank=True)))
    diagnosed = _tried(lambda: _places(memory, traits)) if traits.diagnosed else {}
    return ModuleFacts(layout, head[:2], upper, identity, traits, limits, diagnosed)


def _places(memory: Memory, traits: ModuleCapabilities) -> Places:
    groups = _read(memory, cmis.VDM_GROUPS)
    pages = [_read(memory, span, blank=True) for span in cmis.description_spans(groups)]
    return cmis.find_samples(pages, traits.lanes, traits.host_lanes)


def _diagnose(memory: Memory, places: Places | RequestFailure) -> Mapping[VdmSample, float] | RequestFailure:
    if isinstance(places, RequestFailure):
        return places
    spans = cmis.value_spans(places)
    return _tried(lambda: cmis.decode_samples(places, [_read(memory, span) for span in spans]))


def _tried(read: Callable[[], _Read]) -> _Read | RequestFailure:
    """Return what is read, or why it cannot be, which costs the module nothing else."""
    try:
        return read()
    except (OSError, NetlinkFormatError) as error:
        return explain_failure(error)
    except DeviceError as error:
        return RequestFailure(error.reason, error.detail)


def _layout_of(identifier: int) -> MemoryMap:
    if identifier in sff8636.FORM_FACTORS:
        return sff8636.Sff8636()
    if identifier in cmis.FORM_FACTORS:
        return cmis.Cmis()
    raise DeviceError(Reason.UNSUPPORTED, f"a module whose memory map is not known: identifier {identifier:#04x}")


def _read(memory: Memory, span: ModuleSpan, *, blank: bool = False) -> bytes:
    """Return all bytes of a span. Only `blank` ones may be memory that was never written."""
    data = memory(span)
    if len(data) != span.length:
        raise malformed(f"{span}: {len(data)} bytes, asked for {span.length}")
    if not blank and span.length > 1 and not data.strip(bytes((_UNWRITTEN,))):
        raise malformed(f"{span}: all bytes are 0xff, as where no module answers")
    return data
