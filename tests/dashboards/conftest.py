"""The generated dashboards as JSON, and ways into them."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "dashboards" / "generated"
NAMES = ("agents", "fabric", "fleet", "job", "node", "rack")
Json = dict[str, Any]

GRAFANA = {"__rate_interval": "20s", "__interval": "5s", "__range": "1m", "__interval_ms": "5000"}
"""Grafana's own variables, with the values that fit a Prometheus that has run for a minute."""


class Dashboard:
    """One generated dashboard."""

    def __init__(self, board: Json) -> None:
        self.json = board
        self.uid: str = board["uid"]

    def panels(self, rows: bool = False) -> Iterator[Json]:
        for panel in self.json["panels"]:
            if rows or panel["type"] != "row":
                yield panel
            yield from panel.get("panels", ())  # of a collapsed row

    def queries(self) -> Iterator[tuple[str, str]]:
        """Where each query stands, and the query."""
        for panel in self.panels():
            for target in panel.get("targets", ()):
                yield f"{self.uid}: {panel['title']} {target['refId']}", target["expr"]
        for annotation in self.json["annotations"]["list"]:
            if "expr" in annotation:
                yield f"{self.uid}: annotation {annotation['name']}", annotation["expr"]

    def variables(self) -> dict[str, Json]:
        return {each["name"]: each for each in self.json["templating"]["list"]}


def filled(expr: str, values: dict[str, str]) -> str:
    """The query with variables replaced, as Grafana replaces them."""
    values = {**GRAFANA, **values}
    return re.sub(r"\$\{?([a-z_]\w*)\}?", lambda each: values[each[1]], expr)


@functools.cache
def load(folder: Path = GENERATED) -> dict[str, Dashboard]:
    return {name: Dashboard(json.loads((folder / f"{name}.json").read_text())) for name in NAMES}
