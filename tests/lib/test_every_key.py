"""The configuration with every key, from which inputs are made (tests/lab/fuzz)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import msgspec
import yaml

from agent.config import reading as config
from agent.config.schema import Config, Section

HERE = Path(__file__).parent
NAMED = (".rules.override", ".rack.breakers", ".rack.equipment", ".push.remote_write")
"""Where the names of the sections are the author's."""


def test_the_example_has_every_key() -> None:
    """Without this, a key that is added would never be tried."""

    def within(kind: object) -> Iterator[object]:
        """A type, and those that it is made of."""
        yield kind
        for each in get_args(kind):
            yield from within(each)

    def keys(struct: type[msgspec.Struct], path: str = "") -> set[str]:
        found = set()
        for field in msgspec.structs.fields(struct):
            inner = f"{path}.{field.encode_name}"
            found.add(inner)
            parts = list(within(field.type))
            for each in parts:
                if isinstance(each, type) and issubclass(each, Section):
                    found |= keys(each, f"{inner}.*" if any(get_origin(part) is dict for part in parts) else inner)
        return found

    def given(raw: object, path: str = "") -> set[str]:
        found = {path}
        for key, value in raw.items() if isinstance(raw, dict) else ():
            found |= given(value, f"{path}.*" if path in NAMED else f"{path}.{key}")
        return found

    example = HERE / "every-key.yaml"
    assert keys(Config) - {"."} <= given(yaml.safe_load(example.read_text()))
    assert config.load(example).rules.override["Hot"].thresholds == {80.0: 85.0, 100.0: 90.5}
