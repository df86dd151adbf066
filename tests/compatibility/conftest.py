"""The page of a synthetic DGX H100 with every name that it can have, ours and the neighbours'."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.conftest import samples
from tests.largest import machine

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """\
{description: a job on all GPUs, topology: dgx-h100,
 jobs: [{id: "4711", user: ada, gpus: 0-7, phases: [{kind: training}]}]}
"""

Labels = tuple[tuple[str, str], ...]


class ParsedPage:
    """The families of a page by name: their types, and their samples by labels.

    The official parser renames counters that do not end in _total.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.types = dict(re.findall(r"(?m)^# TYPE (\S+) (\w+)$", text))
        self.samples: dict[str, dict[Labels, float]] = {}
        for name, labels, value in samples(text):
            held = self.samples.setdefault(name, {})
            key = tuple(sorted(labels.items()))
            assert key not in held, f"{name} {labels} appears twice"
            held[key] = value

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """The values of a metric by one label, of series with these labels."""
        held = self.samples.get(name, {}).items()
        return {dict(pairs)[label]: value for pairs, value in held if labels.items() <= dict(pairs).items()}


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> ParsedPage:
    folder = tmp_path_factory.mktemp("compatibility")
    (folder / "c.yaml").write_text(
        f"state_dir: {folder}/state\nnode: {{name: node-1}}\n"
        "metrics: {profile: full, compatibility: [dcgm, node_infiniband, nvitop, nvidia_smi, opentelemetry]}\n"
    )
    (folder / "s.yaml").write_text(SCENARIO)
    machine.write_host(folder / "proc", folder / "sys", 1000.0, 0)
    command = [sys.executable, "-m", "agent.cli", "once", "--backend", "synthetic", f"--scenario={folder}/s.yaml",
               f"--config.file={folder}/c.yaml", f"--path.procfs={folder}/proc",
               f"--path.sysfs={folder}/sys"]  # fmt: skip
    for _ in range(10):
        page = ParsedPage(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        if 'reason="timeout"' not in page.text:
            return page
    raise AssertionError(page.text)
