"""Where agents are, as a person names them: `node7`, `node7:19400`, `https://node7:443`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.lib.http_target import TLS_KEYS, HttpTarget

PORT = 19400
TIMEOUT_SECONDS = 3.0
"""Seconds after which an agent that has not answered counts as silent."""


def target_of(text: str, login: Mapping[str, Any] | None = None) -> HttpTarget:
    """The agent of this name or URL, by https if the login has something of TLS. Raises ValueError with the remedy."""
    scheme = "https" if login and any(login.get(key) for key in TLS_KEYS) else "http"
    url = text if "://" in text else f"{scheme}://{text}"
    if "://" not in text and not _has_port(text):
        url = f"{url}:{PORT}"
    target = HttpTarget(url, timeout=TIMEOUT_SECONDS, **(login or {}))
    if target.path:
        raise ValueError(f"url {target.shown!r}: give the agent alone, without a path")
    return target


def name_of_target(target: HttpTarget) -> str:
    """What a line calls it: its host, with the port where that is not the usual one."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == PORT else f"{host}:{target.port}"


def _has_port(text: str) -> bool:
    tail = text.rpartition("]")[2] if text.startswith("[") else text
    return ":" in tail
