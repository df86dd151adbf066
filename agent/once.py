"""`coldplate once`: one sample of every lane, to standard output or to a file."""

from __future__ import annotations

import platform
import sys
import time
from pathlib import Path

from agent import __version__
from agent.assembly import Options, build_engine, check
from agent.clock import clock
from agent.config import Config, ConfigError
from agent.model import Snapshot
from agent.sampler.health import OwnFacts
from exporters.encoder import Encoder, Format
from exporters.page import age_of
from exporters.snapshot_json import success


def sample_once(config: Config, options: Options, style: str, textfile: Path | None) -> int:
    """Take the sample and show it as `style`: text, openmetrics or json. Raises ConfigError."""
    selection = check(config)
    facts = OwnFacts(__version__, platform.python_version(), options.scenario_name, reload_at=clock().wall)
    engine = build_engine(config, options, clock, lambda: facts)
    try:
        snapshot = selection.apply(engine.once())
    finally:
        engine.stop()
        engine.close(time.sleep)
    if textfile is not None:
        _write_textfile(snapshot, textfile)
        return 0
    if style == "json":
        sys.stdout.write(success(snapshot, age_of(snapshot, clock().mono)).decode().rstrip("\n") + "\n")
    else:
        form = Format.OPENMETRICS if style == "openmetrics" else Format.TEXT
        sys.stdout.write(Encoder().render(snapshot, form, age_of(snapshot, clock().mono)).decode())
    sys.stdout.flush()
    return 0


def _write_textfile(snapshot: Snapshot, path: Path) -> None:
    from exporters.collector import write_textfile

    try:
        write_textfile(snapshot, path)
    except OSError as error:
        raise ConfigError(f"--textfile: {path}: {error.strerror}") from error
