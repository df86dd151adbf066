"""Where the agent keeps state that outlives the process."""

from __future__ import annotations

import os
from pathlib import Path

from agent.config.schema import Config

STATE_DIRECTORY = Path("/var/lib/coldplate")


def state_file(config: Config, name: str) -> Path | None:
    """The path of a state file: in `state_dir`, systemd's state directory, or the default one; None without any."""
    if config.state_dir is not None:
        return Path(config.state_dir) / name
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given) / name
    return STATE_DIRECTORY / name if os.access(STATE_DIRECTORY, os.W_OK) else None


def drill_file(config: Config, name: str) -> Path | None:
    """The same for files that a drill has, too: it writes nothing to the node's own state unless told to."""
    is_drill = config.backends.devices in ("synthetic", "replay")
    return None if is_drill and config.state_dir is None else state_file(config, name)
