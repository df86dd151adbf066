"""A simulated site under test: asked at any second, without a server and without a clock."""

import textwrap
from collections.abc import Callable
from pathlib import Path

from agent.backends.synthetic.loader import ScenarioError
from agent.commands.simulate.simulated_node import SimulatedNode
from agent.commands.simulate.simulated_site import SimulatedSite
from agent.commands.simulate.site_reader import SiteReader
from agent.commands.simulate.site_service import make_nodes
from agent.lib import yamltree
from agent.lib.typed_yaml import YamlFile
from agent.model import Labels, Snapshot
from exporters.encoder import Format

BEGAN = 1_700_000_000


def site_of(text: str) -> SimulatedSite:
    file = YamlFile.parse(textwrap.dedent(text), "site.yaml", ScenarioError, yamltree.Bounds(depth=16))
    return SiteReader(file, Path()).site()


class PlayedSite:
    """The nodes of a site, by name. Seconds are those of the simulation."""

    def __init__(self, text: str, stride: int = 15, profile: str = "default") -> None:
        self.site = site_of(text)
        nodes = make_nodes(self.site, stride, BEGAN, profile)
        self.nodes: dict[str, SimulatedNode] = {node.plan.name: node for node in nodes}

    def sample(self, name: str, t: int) -> Snapshot:
        """What a node shows at a second. It must not be down."""
        node = self.nodes[name]
        assert not node.is_down(t)
        node.agent.sample(t)
        assert node.agent.latest is not None
        return node.agent.latest

    def page(self, name: str, t: int, fmt: Format = Format.TEXT) -> bytes:
        assert not self.nodes[name].is_down(t)
        return self.nodes[name].render(fmt, t)

    def values(self, name: str, t: int, metric: str, keep: Callable[[Labels], bool] = lambda _: True) -> list[float]:
        return [
            value
            for series, value in self.sample(name, t)
            if series.metric.name == f"coldplate_{metric}" and keep(series.all_labels)
        ]

    def one(self, name: str, t: int, metric: str) -> float:
        (value,) = self.values(name, t, metric)
        return value
