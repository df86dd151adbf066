"""Builds what a replay needs: the recording as it is configured, and a clock as fast as it is to be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.backends.replay.player import Player
from agent.config.schema import Config, ConfigError
from agent.daemon.replayed_node import ReplayedNode
from agent.lib.clock import clock
from agent.lib.timestamps import utc
from agent.model import Instant
from agent.recording.file_records import RecordingError
from agent.recording.provenance import Provenance
from agent.recording.recording_reader import Recording
from agent.sampler.settings import Settings


class FasterClock:
    """A clock that begins now and goes `speed` times as fast."""

    def __init__(self, speed: float, real: Callable[[], Instant] = clock) -> None:
        self._speed, self._real = speed, real
        self._began = real()

    def __call__(self) -> Instant:
        now, began = self._real(), self._began
        return Instant(
            began.mono + (now.mono - began.mono) * self._speed, began.wall + (now.wall - began.wall) * self._speed
        )


def is_replay(config: Config) -> bool:
    """Whether all readings come from a recording."""
    return config.backends.devices == "replay"


def clock_of(config: Config) -> Callable[[], Instant]:
    """The clock by which this agent samples, evaluates its rules and shows ages."""
    speed = config.backends.replay.speed
    return FasterClock(speed) if is_replay(config) and speed != 1.0 else clock


def recording_file(config: Config, folder: Path) -> Path:
    """The file that is replayed; relative ones begin at `folder`. Raises ConfigError."""
    if config.backends.replay.file is None:
        raise ConfigError("backends.replay.file: is not set; name a recording, or start with --backend replay:FILE")
    return folder / config.backends.replay.file


def replayed_header(config: Config, folder: Path) -> Provenance:
    """Whose recording it is, after seeing that it can be read. Raises ConfigError."""
    try:
        with Recording(recording_file(config, folder)) as recording:
            return recording.header
    except RecordingError as error:
        raise ConfigError(f"backends.replay.file: {error}") from error


def make_replayed_node(config: Config, folder: Path, settings: Settings) -> ReplayedNode:
    """What takes the sampler's place. Raises ConfigError."""
    header = replayed_header(config, folder)
    player = Player(partial(Recording, recording_file(config, folder)), loop=config.backends.replay.loop)
    return ReplayedNode(settings, player, header.node, utc(header.wall))
