"""The endpoints: every `Endpoint` that a file of this folder defines is found."""

from agent.lib.discovery import modules_in
from exporters.endpoint import Endpoint


def _discover() -> tuple[Endpoint, ...]:
    defined = (value for module in modules_in(__name__, __path__) for value in vars(module).values())
    found = [value for value in defined if isinstance(value, Endpoint)]
    return tuple(sorted(found, key=lambda endpoint: endpoint.path))


ENDPOINTS = _discover()
