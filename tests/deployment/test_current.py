"""What the chart has from elsewhere is current, and its values, their schema and their description agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from agent.config.reading import entries
from tests.deployment.chart_files import CHART, SOURCES, contents
from tests.deployment.config_schema import OF_THE_CHART

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def test_generated_files_are_current() -> None:
    stale = [name for name, text in contents().items() if not same(CHART / name, text)]
    assert stale == [], "run `make generate`"
    copies = {f"{folder}/{path.name}" for folder in SOURCES for path in (CHART / folder).iterdir()}
    assert copies <= contents().keys(), "run `make generate`"


def same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def keys(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, bool, bool]]:
    """Each key, whether the values have it, and whether the schema knows it."""
    known = schema.get("properties", {})
    for name in dict.fromkeys([*values, *known]):
        inner = f"{path}.{name}".lstrip(".")
        yield inner, name in values, name in known
        below = values.get(name)
        if isinstance(below, dict) and "properties" in known.get(name, {}):
            yield from keys(below, known[name], inner)


def test_every_value_has_a_default_and_a_place_in_the_schema() -> None:
    unlike = [path for path, valued, known in keys(VALUES, SCHEMA) if not (valued and known)]
    assert set(unlike) == {
        "global",
        "resources.claims",
        *(f"seLinuxOptions.{each}" for each in ("type", "level", "role", "user")),
    }


def test_only_what_is_somebody_elses_is_open_in_the_schema() -> None:
    """`affinity` and its like are Kubernetes's own; everywhere else a misspelt key is refused."""
    opened = [
        path for path, schema in walk(SCHEMA) if schema.get("type") == "object" and "additionalProperties" not in schema
    ]
    theirs = (
        *("affinity", "tolerations", "extra", "claims", "relabelings", "metricRelabelings"),
        *("tlsConfig", "basicAuth", "authorization", "from", "global", "groups"),
    )
    assert [path for path in opened if not any(f".{each}" in path for each in theirs)] == []


def walk(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if "type" in schema:
            yield path, schema
        for name, below in schema.items():
            yield from walk(below, path if name in ("properties", "items", "$defs") else f"{path}.{name}")


def test_the_schema_knows_every_key_of_the_configuration_file() -> None:
    for each in OF_THE_CHART:
        assert each in {entry.path for entry in entries()}, f"{each} is no key"
    for entry in entries():
        if entry.path not in OF_THE_CHART:
            assert reached(SCHEMA["$defs"]["config"], entry.path.split(".")), entry.path


def reached(schema: dict[str, Any], path: list[str]) -> bool:
    for part in path:
        below = schema["additionalProperties"] if part == "*" else schema.get("properties", {}).get(part)
        if not below:
            return False
        schema = below
    return True
