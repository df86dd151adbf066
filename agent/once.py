"""`coldplate once`: one sample of every lane, to standard output or to a file."""

from __future__ import annotations

import logging
import platform
import sys
import time
from pathlib import Path

from agent import __version__
from agent.assembly import Options, build_engine, check
from agent.catalogue import BY_NAME
from agent.clock import clock
from agent.config import Config, ConfigError
from agent.model import Snapshot
from agent.sampler.health import OwnFacts
from exporters.encoder import Encoder, Format
from exporters.page import age_of
from exporters.snapshot_json import success

log = logging.getLogger("coldplate.once")

UP = BY_NAME["coldplate_gpu_up"]


def sample_once(config: Config, options: Options, style: str, textfile: Path | None) -> int:
    """Take the sample and show it as `style`: text, openmetrics or json; its exit status. Raises ConfigError."""
    selection = check(config)
    facts = OwnFacts(__version__, platform.python_version(), options.scenario_name, reload_at=clock().wall)
    engine = build_engine(config, options, clock, lambda: facts)
    try:
        whole = engine.once()
    finally:
        engine.stop()
        engine.close(time.sleep)
    status = _devices(config, whole)
    snapshot = selection.apply(whole)
    if textfile is not None:
        _write_textfile(snapshot, textfile)
        return status
    if style == "json":
        sys.stdout.write(b"".join(success(snapshot, age_of(snapshot, clock().mono))).decode())
    else:
        form = Format.OPENMETRICS if style == "openmetrics" else Format.TEXT
        sys.stdout.write(Encoder().render(snapshot, form, age_of(snapshot, clock().mono)).decode())
    sys.stdout.flush()
    return status


def _devices(config: Config, snapshot: Snapshot) -> int:
    """Say why no GPU was found where one was looked for; the exit status, 1 where GPUs were asked for by name."""
    wanted = config.backends.devices
    if wanted not in ("auto", "nvml") or any(each.metric is UP for each in snapshot.readings):
        return 0
    told = [report.detail for report in snapshot.reports if report.backend == "nvml" and report.detail]
    log.warning("no GPU in this sample: %s", told[0] if told else "the driver has none")
    return 1 if wanted == "nvml" else 0


def _write_textfile(snapshot: Snapshot, path: Path) -> None:
    from exporters.collector import write_textfile

    try:
        write_textfile(snapshot, path)
    except OSError as error:
        raise ConfigError(f"--textfile: {path}: {error.strerror}") from error
