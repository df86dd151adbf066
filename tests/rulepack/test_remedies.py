"""One fault has one remedy, whatever text names it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests import warm

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    *(ROOT / "alerts" / "rules").glob("*.yml"),
    *(ROOT / "alerts" / "runbooks").glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "agent" / "health").glob("*.py"),
    *(ROOT / "agent" / "commands").rglob("*.py"),
    ROOT / "README.md",
]


def test_a_gpu_is_reset_while_the_agent_is_paused_and_not_stopped() -> None:
    found = 0
    for path in TEXTS:
        text = " ".join(path.read_text().split())
        for reset in re.finditer("--gpu-reset", text):
            before = text[max(reset.start() - 300, 0) : reset.start()]
            assert "coldplate pause --for" in before, (path.name, text[reset.start() - 100 : reset.end()])
            assert "stop coldplate" not in before, path.name
            found += 1
    assert found > 10


def test_check_names_the_gpu_whose_row_remap_failed(tmp_path: Path) -> None:
    scenario = tmp_path / "remap.yaml"
    scenario.write_text(
        "description: A row remap of one GPU fails.\ntopology: dgx-h100\nseed: 1\n"
        "faults: [{kind: row-remap, gpu: 3, at: 1s, failure: true}]\n"
    )
    ended = warm.command(["check", "--agent", "none", "--timeout", "20s", "--json", "--scenario", str(scenario)])
    findings = {each["name"]: each for each in json.loads(ended.output)["findings"]}
    assert re.search(r"GPU 3 \(\S+\) slot \S+ serial \S+", findings["row-remaps"]["remedy"])
