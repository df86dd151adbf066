"""What the agents of a rack send each other, in JSON, how they are reached, and how a request can fail.

A reader trusts nothing that it has not checked.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Annotated

import msgspec

from agent.catalogue.node import NODE_POWER
from agent.lib.http_target import LOOPBACK, TLS_KEYS, HttpLogin
from agent.rack.agreement import NODES
from agent.rack.finder import Entry, HostEntry
from agent.rack.nvlink_domain import DomainShare


class PeerFault(Enum):
    """Why a peer's answer is missing or does not count."""

    CONNECT = "connect"  # its port is closed, its name unknown, its certificate not trusted
    TIMEOUT = "timeout"  # no complete answer in time
    HTTP = "http"  # a status other than 200
    INVALID = "invalid"  # an answer that no agent gives
    OTHER_RACK = "other_rack"  # an agent of another rack
    CLOCK = "clock"  # its clock does not run like ours, so that its seconds cannot be matched to ours
    OVER_NAMEPLATE = "over_nameplate"  # more power than a node can draw


class Access(HttpLogin, frozen=True):
    """The access as configured. Raises ValueError."""

    tls: bool = False

    def __post_init__(self) -> None:
        HttpLogin.__post_init__(self)
        for key in TLS_KEYS:
            if getattr(self, key) and not self.tls:
                raise ValueError(f"{key} needs https; set scheme: https, or remove {key}")

    def check(self, entries: Iterable[Entry]) -> None:
        """Refuse to send credentials unencrypted over a network. Raises ValueError."""
        if self.tls or not self.is_secret:
            return
        if not all(isinstance(entry, HostEntry) and entry.host in LOOPBACK for entry in entries):
            raise ValueError("would send the credentials in clear text; set scheme: https")


PATH = "/api/v1/rack"
VERSION = 1
MOST_SECONDS = 64
MOST_LIMITS = 64
MOST_NAME = 255
MOST_SHARES = 16
"""Most NVLink domains that the GPUs of one node may be in."""
MOST_EQUIPMENT = 32
"""Most services of rack equipment that an agent may be ready to ask."""
MOST_NODES = 1000
"""Most nodes that a report may give a rack: as many as the configuration allows."""

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_NAME)]
_Watts = Annotated[float, msgspec.Meta(ge=NODE_POWER.span[0], le=NODE_POWER.span[1])]
_Limit = Annotated[float, msgspec.Meta(gt=0, le=1e8)]
_Second = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Report(msgspec.Struct, frozen=True):
    """One agent's answer, as of its wall second `now`.

    `run` identifies one run of one agent. `watts` are those of the seconds up to `last`, the newest one last; None
    where its node's power was not known. `source` is what measures it now. `limits` are the numbers that its rack is
    configured with, by name (see `agreement`); None if the agent does not report them. `domains` are the NVLink domains
    of its GPUs; none where NVLink ends at the node. `equipment` names the services of the rack that it could ask.
    """

    version: int
    rack: _Name
    cluster: Annotated[str, msgspec.Meta(max_length=255)]
    run: Annotated[str, msgspec.Meta(min_length=8, max_length=64)]
    instance: _Name
    job: _Name
    now: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    last: _Second
    watts: Annotated[tuple[_Watts | None, ...], msgspec.Meta(max_length=MOST_SECONDS)]
    source: _Name | None = None
    limits: Annotated[dict[_Name, _Limit], msgspec.Meta(max_length=MOST_LIMITS)] | None = None
    domains: Annotated[tuple[DomainShare, ...], msgspec.Meta(max_length=MOST_SHARES)] = ()
    equipment: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=MOST_EQUIPMENT)] = ()

    def seconds(self) -> list[tuple[int, float]]:
        """Return each second whose power is known."""
        first = self.last - len(self.watts) + 1
        return [(second, watts) for second, watts in enumerate(self.watts, first) if watts is not None]


class GarbageError(Exception):
    """Not an agent's answer, or one that contradicts itself. The text says why."""


_decoder = msgspec.json.Decoder(Report)


def encode(report: Report) -> bytes:
    return msgspec.json.encode(report) + b"\n"


def decode(body: bytes) -> Report:
    """Return a peer's report. Raises GarbageError. Unknown keys come from later versions, and are ignored."""
    try:
        report = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GarbageError(str(error)) from error
    if report.version != VERSION:
        raise GarbageError(f"format version {report.version}; this agent supports {VERSION}")
    if not 0 <= report.now - report.last < 2:
        raise GarbageError(f"the second {report.last} is not the last one before {report.now:.0f}")
    limits = report.limits or {}
    if limits.get(NODES, 1) > MOST_NODES:
        raise GarbageError(f"a rack of {limits[NODES]:g} nodes; the limit is {MOST_NODES}")
    names = (report.rack, report.cluster, report.run, report.instance, report.job, report.source or "")
    domains = (text for share in report.domains for text in share[:2])
    if not all(text.isprintable() for text in (*names, *limits, *report.equipment, *domains)):
        raise GarbageError("a name with unprintable characters")
    return report
