"""The endpoints, one file each: a file in this folder is found. Each has a constant ENDPOINT."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from exporters.endpoint import Endpoint


def _discover() -> tuple[Endpoint, ...]:
    found: list[Endpoint] = [import_module(f"{__name__}.{each.name}").ENDPOINT for each in iter_modules(__path__)]
    return tuple(sorted(found, key=lambda endpoint: endpoint.path))


ENDPOINTS = _discover()
