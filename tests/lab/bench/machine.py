"""What machine this is."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from tests.lab.bench.rig import NODE_EXPORTER


def description() -> str:
    """The machine, for who reads the figures."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    load = ", ".join(f"{each:.2f}" for each in os.getloadavg())
    return (
        f"{os.cpu_count()} processors ({model[0] if model else 'unknown'}), Linux {platform.release()}, "
        f"Python {platform.python_version()}; load average at the end {load}"
    )


def peers() -> str:
    """The peers and their versions."""
    others = [f"{name} {_version(name)}" for name in ("nvitop-exporter", "prometheus_client")]
    return f"beside {', '.join(others)}, node_exporter {_node_exporter()}"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "(missing)"


def _node_exporter() -> str:
    program = shutil.which(NODE_EXPORTER)
    if program is None:
        return "(missing)"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version ([0-9.]+)", done.stdout + done.stderr)
    return found[1] if found else "of unknown version"
