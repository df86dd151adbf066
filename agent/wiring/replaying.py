"""Build what plays the readings of another time: a recording, or a trace of driver calls in place of NVML's library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.catalogue import BY_NAME
from agent.config.reading import with_places
from agent.config.schema import Config, ConfigError
from agent.lib.clock import clock
from agent.lib.wording import nearest, one_line, shown, utc
from agent.model import Frame, Instant, Layout, Node, Series
from agent.recording.file_records import RecordingHeader
from agent.sampler.schedule import Settings

if TYPE_CHECKING:
    from agent.daemon.replayed_node import ReplayedNode

FACTS = ("GPUs", "driver", "date")
MOST = 200
"""Characters of each."""


class PlayedTrace:
    """Marks the page of a node that shows the GPUs of another, traced one. `facts` say whose they are."""

    def __init__(self, path: Path, facts: Mapping[str, str]) -> None:
        self.path, self.facts = path, facts
        labels = (("node", one_line(path.name)), ("recorded", facts["date"]))
        self._frame = Frame(Layout((Series(BY_NAME["coldplate_replay_info"], Node(), labels),)), (1.0,))

    def frame(self, _now: Instant) -> Frame:
        return self._frame


@with_places
def played_trace(config: Config, folder: Path) -> PlayedTrace | None:
    """Return the trace to play; None for other devices. A relative path begins at `folder`. Raises ConfigError."""
    if config.backends.devices != "trace":
        return None
    from agent.backends.nvml.trace_replay import DriverTrace, DriverTraceError

    if config.backends.trace is None:
        raise ConfigError("backends.trace: is not set; name a trace or a bundle, or start with --backend trace:FILE")
    path = folder / config.backends.trace
    try:
        provenance = DriverTrace(path).provenance
    except DriverTraceError as error:
        raise ConfigError(f"backends.trace: {error}") from error
    return PlayedTrace(path, {name: one_line(str(provenance.get(name, "?")), MOST) for name in FACTS})


MOST_NAMES = 20
"""Nodes that a message lists."""


def faster_clock(speed: float, real: Callable[[], Instant] = clock) -> Callable[[], Instant]:
    """Return a clock that begins now and goes `speed` times as fast."""
    began = real()

    def read() -> Instant:
        now = real()
        return Instant(began.mono + (now.mono - began.mono) * speed, began.wall + (now.wall - began.wall) * speed)

    return read


def is_replay(config: Config) -> bool:
    """Return whether all readings come from a recording."""
    return config.backends.devices == "replay"


def clock_of(config: Config) -> Callable[[], Instant]:
    """Return the clock by which this agent samples, evaluates its rules and shows ages."""
    speed = config.backends.replay.speed
    return faster_clock(speed) if is_replay(config) and speed != 1.0 else clock


def recording_file(config: Config, folder: Path) -> Path:
    """Return the file that is replayed; relative ones begin at `folder`. Raises ConfigError."""
    if config.backends.replay.file is None:
        raise ConfigError("backends.replay.file: is not set; name a recording, or start with --backend replay:FILE")
    return folder / config.backends.replay.file


@with_places
def replayed_header(config: Config, folder: Path) -> RecordingHeader:
    """Return whose recording it is, after seeing that it can be read. Raises ConfigError."""
    from agent.recording.file_records import RecordingError  # all of this is for replays only
    from agent.recording.recording_reader import Recording

    name = config.backends.replay.node
    try:
        with Recording(recording_file(config, folder)) as recording:
            if name is None:
                return recording.header
            headers = {span.header.node: span.header for span in reversed(recording.survey())}
    except RecordingError as error:
        raise ConfigError(f"backends.replay.file: {error}") from error
    if name not in headers:
        names = sorted(headers)
        hint = nearest(name, names) or f"; it has {', '.join(map(one_line, names[:MOST_NAMES]))}"
        raise ConfigError(f"backends.replay.node: the recording has no node {shown(name)}{hint}")
    return headers[name]


def make_replayed_node(config: Config, folder: Path, settings: Settings) -> ReplayedNode:
    """Return what takes the sampler's place. Raises ConfigError."""
    from agent.backends.replay import RecordingPlayer
    from agent.daemon.replayed_node import ReplayedNode
    from agent.recording.recording_reader import Recording

    header = replayed_header(config, folder)
    replay = config.backends.replay
    player = RecordingPlayer(partial(Recording, recording_file(config, folder)), node=replay.node, loop=replay.loop)
    return ReplayedNode(settings, player, header.node, utc(header.wall))
