"""How the configuration says that the agent's HTTP clients log in."""

from __future__ import annotations

from typing import Any

import msgspec

from agent.config.schema import LoginConfig, OtlpConfig

LOGIN = LoginConfig.__struct_fields__


def login_of(config: LoginConfig | OtlpConfig) -> dict[str, Any]:
    """Return the keys of every HTTP client, as `HttpLogin` takes them."""
    return {name: value for name, value in msgspec.structs.asdict(config).items() if name in LOGIN}
