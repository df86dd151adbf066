"""Data for pictures of the dashboards: what a real Prometheus answers to each query of each panel, as one file.

`python -m tests.dashboards.pictures.collect FILE SECONDS`; shoot.mjs beside this file draws it (`make screenshots`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.dashboards.conftest import NAMES, filled, load
from tests.dashboards.rig import Server, scraped, values


def answers(server: Server, nodes: list[str], seconds: int) -> dict[str, Any]:
    """Each board with the answers to its queries, by panel and target."""
    made = {}
    for name in NAMES:
        board = load()[name]
        results: dict[int, dict[str, Any]] = {}
        for panel in board.panels():
            for target in panel["targets"]:
                expr = filled(target["expr"], values(nodes, name))
                found = server.instant(expr) if target["instant"] else server.range(expr, seconds, 2)
                results.setdefault(panel["id"], {})[target["refId"]] = found
        made[name] = {"board": board.json, "results": results}
    return made


def main() -> None:
    """Let the nodes run for so many seconds, then ask."""
    out, seconds = Path(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder, scraped(Path(folder)) as (server, nodes):
        time.sleep(seconds)
        out.write_text(json.dumps(answers(server, nodes, seconds)))


if __name__ == "__main__":
    main()
