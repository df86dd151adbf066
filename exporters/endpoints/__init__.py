"""The endpoints, one file each: a file in this folder is found. Each has a constant ENDPOINT."""

from __future__ import annotations

from agent.lib.discovery import modules_in
from exporters.endpoint import Endpoint


def _discover() -> tuple[Endpoint, ...]:
    found: list[Endpoint] = [module.ENDPOINT for module in modules_in(__name__, __path__)]
    return tuple(sorted(found, key=lambda endpoint: endpoint.path))


ENDPOINTS = _discover()
