"""What recordings in tests share."""

from __future__ import annotations

import pytest

from agent.recording import recording_file


@pytest.fixture
def long_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of full length from the beginning on: a test that breaks them wants to know where they end."""
    monkeypatch.setattr(recording_file, "EARLY_SHARE", 1e9)
