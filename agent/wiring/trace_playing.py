"""The trace of driver calls that stands in for NVML's library: its file, and what the page says about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent.catalogue import metric
from agent.config.places import with_places
from agent.config.schema import Config, ConfigError
from agent.lib.wording import one_line
from agent.model import Frame, Instant, Layout, Node, Series

FACTS = ("GPUs", "driver", "date")
MOST = 200
"""Characters of each."""


class PlayedTrace:
    """Marks the page of a node that shows the GPUs of another, traced one. `facts` say whose they are."""

    def __init__(self, path: Path, facts: Mapping[str, str]) -> None:
        self.path, self.facts = path, facts
        labels = (("node", one_line(path.name)), ("recorded", facts["date"]))
        self._frame = Frame(Layout((Series(metric("coldplate_replay_info"), Node(), labels),)), (1.0,))

    def frame(self, _now: Instant) -> Frame:
        """Return the mark."""
        return self._frame


@with_places
def played_trace(config: Config, folder: Path) -> PlayedTrace | None:
    """Return the trace to play, after seeing that it can be; None for other devices. A relative path begins at
    `folder`. Raises ConfigError.
    """
    if config.backends.devices != "trace":
        return None
    from agent.backends.nvml.trace_file import DriverTrace, DriverTraceError  # no other node needs it

    if config.backends.trace is None:
        raise ConfigError("backends.trace: is not set; name a trace or a bundle, or start with --backend trace:FILE")
    path = folder / config.backends.trace
    try:
        provenance = DriverTrace(path).provenance
    except DriverTraceError as error:
        raise ConfigError(f"backends.trace: {error}") from error
    return PlayedTrace(path, {name: one_line(str(provenance.get(name, "?")), MOST) for name in FACTS})
