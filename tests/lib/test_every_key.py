"""The configuration with every key, from which inputs are made (tests/lab/fuzz)."""

from pathlib import Path

import yaml

from agent.config import reading as config
from tests.lab.generate.configuration_table import entries

EXAMPLE = Path(__file__).with_name("every-key.yaml")


def test_the_example_has_every_key() -> None:
    """Without this, a key that is added would never be tried."""
    named = {path for path, field in entries() if field.named}

    def given(raw: object, path: str = "") -> set[str]:
        found = {path}
        for key, value in raw.items() if isinstance(raw, dict) else ():
            found |= given(value, f"{path}.{'*' if path in named else key}".lstrip("."))
        return found

    assert {path for path, _ in entries()} <= given(yaml.safe_load(EXAMPLE.read_text()))
    assert config.load(EXAMPLE).rules.override["Hot"].thresholds == {80.0: 85.0, 100.0: 90.5}
