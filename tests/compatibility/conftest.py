"""The page of a synthetic DGX H100 with every name that it can have, ours and the neighbours'."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
        self.types: dict[str, str] = {}
        self.samples: dict[str, dict[Labels, float]] = {}
        for line in text.splitlines():
            typed = re.fullmatch(r"# TYPE (\S+) (\w+)", line)
            sample = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if typed:
                self.types[typed[1]] = typed[2]
            elif sample:
                labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2] or "")))
                assert labels not in self.samples.setdefault(sample[1], {}), line
                self.samples[sample[1]][labels] = float(sample[3])

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """The values of a metric by one label, of series with these labels."""
        return dict(self._by(label, name, labels))

    def _by(self, label: str, name: str, labels: dict[str, str]) -> Iterator[tuple[str, float]]:
        for pairs, value in self.samples.get(name, {}).items():
            if labels.items() <= dict(pairs).items():
                yield dict(pairs)[label], value


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
