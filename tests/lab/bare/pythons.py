"""The Pythons of this machine that coldplate supports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

SUPPORTED = tuple(f"3.{minor}" for minor in range(10, 15))


def installed() -> dict[str, Path]:
    """One by each supported minor version, as far as there is one: on the PATH, or where pyenv keeps them."""
    found: dict[str, Path] = {}
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in SUPPORTED:
        candidates = [
            shutil.which(f"python{minor}"),
            *(str(each) for each in sorted(kept.glob(f"{minor}.*/bin/python{minor}"))),
        ]
        for each in (Path(candidate) for candidate in candidates if candidate):
            if version(each) == minor:
                found[minor] = each
                break
    return found


def version(python: Path) -> str:
    """What it says of itself, since a shim is there for versions that are not."""
    try:
        done = subprocess.run([str(python), "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    told = re.match(r"Python (3\.\d+)\.", done.stdout)
    return told[1] if told else ""
