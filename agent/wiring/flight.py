"""Builds the flight recorder."""

from __future__ import annotations

import logging
from pathlib import Path

from agent import __version__
from agent.config.schema import Config
from agent.daemon.flight_recorder import MAKER, FlightRecorder, FlightSettings
from agent.lib.threads import Threads
from agent.recording.file_records import RecordingHeader
from agent.wiring.command_line import scenario_of
from agent.wiring.node_identity import node_name
from agent.wiring.replaying import is_replay
from agent.wiring.state_directory import drill_file

log = logging.getLogger("coldplate.flight")


def make_flight_recorder(config: Config, threads: Threads) -> FlightRecorder | None:
    """None where none is wanted, where its files have no place, and in a replay: what it shows is recorded already."""
    recorder = config.recorder
    if recorder.flight == 0 or not recorder.dump_on or is_replay(config):
        return None
    folder = Path(recorder.directory) if recorder.directory is not None else drill_file(config, "flight")
    if folder is None:
        log.info("no state directory: there is no flight recorder")
        return None
    scenario = scenario_of(config) or ""
    header = RecordingHeader(__version__, node_name(config), 0.0, 0.0, config.sampling.fast, MAKER, scenario=scenario)
    return FlightRecorder(
        FlightSettings(recorder.flight, frozenset(recorder.dump_on), folder, recorder.keep), header, threads
    )
