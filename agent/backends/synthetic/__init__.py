"""Synthetic devices: a scenario played on a small physical model, for tests, demos and drills."""

from agent.backends.protocol import SourceOptions
from agent.backends.synthetic.loader import ScenarioError, load_scenario, shipped_names
from agent.backends.synthetic.scenario import Scenario
from agent.backends.synthetic.synthetic_source import SyntheticSource

__all__ = ["Scenario", "ScenarioError", "SyntheticSource", "load_scenario", "make_source", "shipped_names"]


def make_source(options: SourceOptions) -> SyntheticSource:
    """Return the node of a scenario. Raises ScenarioError."""
    return SyntheticSource(load_scenario(options.scenario), options.epoch)
