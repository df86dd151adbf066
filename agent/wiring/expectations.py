"""The expectations that the configuration or the command line names."""

from __future__ import annotations

from pathlib import Path

from agent.config.places import with_places
from agent.config.schema import Config, ConfigError
from agent.health.expectation_files import ExpectationError, load_expectations
from agent.health.expectation_series import ExpectationChoice
from agent.health.expected_node import GENERIC, Expected

AUTO = "auto"
"""Whatever is shipped for the GPUs that the node shows."""
NONE = "none"
"""Nothing but what holds for any node."""


def load_expected(source: str, folder: Path) -> Expected:
    """Shipped expectations by name, or a file, whose relative path begins in `folder`. Raises ExpectationError."""
    if source == NONE:
        return GENERIC
    is_file = "/" in source or source.endswith((".yaml", ".yml"))
    return load_expectations(str(folder / source) if is_file else source)


@with_places
def load_choice(config: Config, folder: Path) -> ExpectationChoice:
    """What the running agent expects of its node. Raises ConfigError."""
    if config.expectations == AUTO:
        return ExpectationChoice()
    if config.expectations == NONE:
        return ExpectationChoice(by_gpus=False)
    try:
        return ExpectationChoice(named=load_expected(config.expectations, folder))
    except ExpectationError as error:
        raise ConfigError(f"expectations: {error}") from error
