"""Checks of a configuration beyond its schema, at start and at each reload, and the expectations that it names."""

from pathlib import Path

from agent.backends.jobs import check_jobs
from agent.backends.power import bmc_of
from agent.config.checks import listen_address
from agent.config.reading import with_places
from agent.config.schema import Config, ConfigError, parse_value
from agent.health.examination import ExpectationChoice
from agent.health.expectations import GENERIC, ExpectationError, Expected, load_expectations
from agent.wiring.peering import load_rack
from agent.wiring.replaying import is_replay, played_trace, replayed_header
from agent.wiring.sources import read_scenario
from exporters.routes import is_reserved
from exporters.selection import SeriesSelection


@with_places
def check(config: Config) -> SeriesSelection:
    """Check everything except the rules; returns the selection of series, a by-product. Raises ConfigError."""
    for address in config.web.listen:
        parse_value("web.listen", listen_address, address)
    if is_reserved(config.web.telemetry_path):
        raise ConfigError(f"web.telemetry_path: {config.web.telemetry_path} is reserved; choose another path")
    bmc_of(config.backends)
    if config.rack.equipment:
        from agent.backends.equipment.rack_equipment_backend import services_of

        services_of(config.rack)
    load_rack(config, Path())
    check_jobs(config.jobs)
    if config.backends.devices == "synthetic":
        read_scenario(config)
    try:
        metrics = config.metrics
        return SeriesSelection(metrics.profile, metrics.include, metrics.exclude, metrics.disable)
    except ValueError as error:
        raise ConfigError(f"metrics.{error}") from error


@with_places
def check_sources(config: Config, folder: Path) -> None:
    """Check what a start reads of the node's devices and of its expectations. Raises ConfigError.

    Relative paths start at `folder`. No device is touched.
    """
    check(config)
    load_choice(config, folder)
    played_trace(config, folder)
    if is_replay(config):
        replayed_header(config, folder)


AUTO = "auto"
"""Whatever is shipped for the GPUs that the node shows."""
NONE = "none"
"""Nothing but what holds for any node."""


def load_expected(source: str, folder: Path) -> Expected | None:
    """Return expectations by name or from a file, relative to `folder`; None if the GPUs decide. Raises ConfigError."""
    if source == AUTO:
        return None
    if source == NONE:
        return GENERIC
    try:
        return load_expectations(source, folder)
    except ExpectationError as error:
        raise ConfigError(f"expectations: {error}") from error


@with_places
def load_choice(config: Config, folder: Path) -> ExpectationChoice:
    """Return what the running agent expects of its node. Raises ConfigError."""
    if config.expectations == NONE:
        return ExpectationChoice(by_gpus=False)
    return ExpectationChoice(named=load_expected(config.expectations, folder))
