"""A real Prometheus for the whole package's tests, and the same samples in our own storage."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.servers import need


def _module(name: str) -> ModuleType:
    full = f"promql_tests_{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def oracle_module() -> ModuleType:
    return _module("oracle")


@pytest.fixture(scope="session")
def corpus() -> ModuleType:
    return _module("corpus")


@pytest.fixture(scope="session")
def storage(oracle_module: ModuleType) -> Any:
    return oracle_module.filled(oracle_module.samples())


@pytest.fixture(scope="session")
def prometheus(oracle_module: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    program = need("prometheus", left_out="nothing compares our answers with its own")
    with oracle_module.running(program, tmp_path_factory.mktemp("prometheus")) as oracle:
        oracle.write(oracle_module.samples())
        yield oracle
