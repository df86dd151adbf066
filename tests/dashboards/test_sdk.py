"""Grafana's own model of a dashboard, generated from its schemas, keeps every field that is set here."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboards.conftest import NAMES, load


def sdk() -> None:
    try:
        import grafana_foundation_sdk  # noqa: F401 - only whether it is there
    except ImportError:
        if os.environ.get("CI") == "true" and sys.version_info >= (3, 11):
            pytest.fail("grafana-foundation-sdk is missing, and CI=true")
        pytest.skip("grafana-foundation-sdk is not installed: NOTHING shows here that Grafana knows every field")


def dropped(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where a value of ours is gone or another one after the round trip."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                yield f"{path}.{key}"
            else:
                yield from dropped(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from dropped(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


def round_trip(board: dict[str, Any]) -> Any:
    sdk()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it would rather have the second version of the schema
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

        register_default_plugins()
    return json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))


@pytest.mark.parametrize("name", NAMES)
def test_a_round_trip_loses_nothing(name: str) -> None:
    board = load()[name].json
    assert sorted(set(dropped(board, round_trip(board)))) == []
