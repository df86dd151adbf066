"""Address and login of this node's agent, from its configuration, for the commands that query it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.config.checks import listen_address
from agent.lib.wording import UserError

if TYPE_CHECKING:
    from agent.config.schema import Config
    from exporters.protection.web_file import WebFile

DEFAULT_PORT = 19400
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
"""The address to use for an agent that listens on all addresses."""


class OwnAgent(NamedTuple):
    """`urls` are those of its addresses, in their order; `login` is for `HttpLogin`."""

    urls: tuple[str, ...]
    login: Mapping[str, Any]


def own_agent(config: Config, given: Mapping[str, Any] | None = None) -> OwnAgent:
    """Return the agent with this configuration; `given` is how to log in, if not as a peer of the rack would."""
    file, encrypted = _web_file(config)
    scheme = "https" if encrypted else "http"
    places = [place for place in map(listen_address, config.web.listen) if place[1]] or [("", DEFAULT_PORT)]
    return OwnAgent(tuple(_url(scheme, *place) for place in places), _login(config, file, encrypted, given))


def serves_tls(config: Config) -> bool:
    """Return whether the agent with this configuration speaks TLS.

    Where this process may not read the file, it will.
    """
    return _web_file(config)[1]


def _web_file(config: Config) -> tuple[WebFile | None, bool]:
    """Return what the web configuration file says, if this process can read it, and whether it asks for TLS."""
    if config.web.config_file is None:
        return None, False
    from exporters.protection.web_file import read_web_file

    try:
        file = read_web_file(Path(config.web.config_file))
    except UserError:
        return None, True
    return file, file.tls is not None


def _url(scheme: str, host: str, port: int) -> str:
    host = _EVERYWHERE.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _login(config: Config, file: WebFile | None, encrypted: bool, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    from agent.lib.http_target import TLS_KEYS
    from agent.wiring.logins import login_of

    login = dict(given if given is not None else login_of(config.rack.peer))
    if not encrypted:
        if given is None and (file is None or not file.users):
            return {}  # the agent needs no password, and another program that has bound the port must not get it
        return {key: value for key, value in login.items() if key not in (*TLS_KEYS, "key_file")}
    certificate = None if file is None or file.tls is None else file.tls.cert_file
    if certificate and (given is None or not login.get("ca_file")):
        login |= {"ca_file": certificate, "server_name": None, "pinned": True}
    return login
