"""What the targets hand on when nothing is said: make has variables of its own that look set."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("given", "handed_on"),
    [
        ([], "--suites bookworm trixie sid --as root user"),
        (["SUITES=sid", "AS=user"], "--suites sid --as user"),
    ],
)
def test_bare_roots_are_tried_for_all_unless_told_otherwise(given: list[str], handed_on: str) -> None:
    command = ["make", "--dry-run", "--no-print-directory", "test-bare", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert handed_on in done.stdout
