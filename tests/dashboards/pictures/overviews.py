"""Pages at `/` of synthetic nodes on which something goes wrong, as files that a browser can draw.

`python -m tests.dashboards.pictures.overviews FOLDER SECONDS`; overviews.mjs beside this file draws them.
The faults of the shipped scenarios come within seconds here, and the minutes of the rules are seconds.
"""

import re
import sys
import tempfile
import time
from pathlib import Path

from agent.backends.synthetic.loader import SHIPPED
from tests.dashboards.conftest import ROOT
from tests.dashboards.rig import hurried, started
from tests.servers import fetch, free_ports

SCENARIOS = ("straggler", "thermal-throttle", "driver-hang")
_CONFIG = """
node: {{name: node-17}}
sampling: {{fast: 1s, slow: 2s, cold: 4s, window: 10s}}
rules: {{files: ["{rules}/*.yml"]}}
"""


def early(text: str, seconds: int = 25) -> str:
    """A scenario whose faults come after so many seconds, since GpuImbalance needs ten of common work here."""
    return re.sub(r"\bat: \d+s", f"at: {seconds}s", text)


def pages(folder: Path, seconds: float) -> dict[str, str]:
    """The page of each scenario after so many seconds."""
    (folder / "rules").mkdir()
    for path in (ROOT / "alerts" / "rules").glob("*.yml"):
        (folder / "rules" / path.name).write_text(hurried(path.read_text()))
    (folder / "node.yaml").write_text(_CONFIG.format(rules=folder / "rules"))
    played = []
    for name, port in zip(SCENARIOS, free_ports(len(SCENARIOS)), strict=True):
        scenario = folder / f"{name}.yaml"
        scenario.write_text(early((SHIPPED / scenario.name).read_text()))
        played.append((scenario, folder / "node.yaml", port))
    with started(played) as running:
        time.sleep(seconds)
        found = {name: fetch(f"{each.url}/?refresh=0", 10) for name, each in zip(SCENARIOS, running, strict=True)}
    return {name: page.replace(f"{folder}/", "") for name, page in found.items()}


def main() -> None:
    """Let the nodes run for so many seconds, then keep their pages."""
    out, seconds = Path(sys.argv[1]), float(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in pages(Path(folder), seconds).items():
            (out / f"{name}.html").write_text(text)


if __name__ == "__main__":
    main()
