"""Who this node is: its names, labels and state directory, and the address and login of its agent."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agent.config.checks import listen_address
from agent.config.schema import Config, LoginConfig
from agent.config.words import NOT_OF_NODE
from agent.lib.wording import UserError, show_address
from agent.model import Labels

if TYPE_CHECKING:
    from exporters.protection.web_file import WebFile

SCRAPE_JOB = "coldplate"
"""The job that the Prometheus configuration in the documentation scrapes this agent with."""


def node_name(config: Config) -> str:
    return config.node.name or socket.gethostname()


def target_labels(config: Config) -> Labels:
    """Return the labels that a Prometheus server would give this agent, so that rules see the same here as there."""
    from alerts.promql.labels import make_labels  # loads all of PromQL, which commands without rules can do without

    return make_labels({"instance": instance(config), "job": SCRAPE_JOB})


def instance(config: Config) -> str:
    """Host and port, as a Prometheus server names the target that it scrapes by the host's name."""
    port = config.web.listen[0].rpartition(":")[2]
    return f"{node_name(config)}:{port}" if port not in ("", "0") else node_name(config)


def external_url(config: Config) -> str:
    """Return where the agent's own pages are."""
    return f"{'https' if serves_tls(config) else 'http'}://{instance(config)}"


def serves_tls(config: Config) -> bool:
    """Return whether the agent's pages are encrypted, by the web configuration file."""
    return _web_file(config)[1]


def external_labels(config: Config) -> dict[str, str]:
    """Return the labels that alerts get when they leave the node: cluster, rack, and what the configuration adds."""
    node = {"cluster": config.node.cluster or "", "rack": rack_name(config)}
    return {name: value for name, value in {**node, **config.notify.labels}.items() if value}


def source_of(config: Config) -> str:
    """Return which devices alerts are about: those of a drill are not the node's."""
    backends = config.backends
    if backends.devices in ("replay", "trace"):
        return f"{backends.devices} {(backends.replay.file if backends.devices == 'replay' else backends.trace) or ''}"
    return f"synthetic {backends.scenario or ''}".strip() if backends.devices == "synthetic" else "devices"


def rack_name(config: Config) -> str:
    """Return the rack that feeds this node; empty if not configured."""
    return config.rack.name or config.node.rack or ""


def title(config: Config) -> str:
    """Return the node's name, rack and cluster, for people."""
    rack = rack_name(config)
    parts = [node_name(config), f"rack {rack}" if rack else "", config.node.cluster or ""]
    return ", ".join(part for part in parts if part)


STATE_DIRECTORY = Path("/var/lib/coldplate")


def state_file(config: Config, name: str) -> Path | None:
    """Return the path of a state file: in `state_dir`, systemd's directory, or the default one; None without any."""
    if config.state_dir is not None:
        return Path(config.state_dir) / name
    directory = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if directory:
        return Path(directory) / name
    return STATE_DIRECTORY / name if os.access(STATE_DIRECTORY, os.W_OK) else None


def drill_file(config: Config, name: str) -> Path | None:
    """Return the same for files that a drill writes, too; None for a drill unless `state_dir` is configured."""
    is_drill = config.backends.devices in NOT_OF_NODE
    return None if is_drill and config.state_dir is None else state_file(config, name)


LOGIN = LoginConfig.__struct_fields__


def login_of(config: LoginConfig) -> dict[str, Any]:
    """Return the keys of every HTTP client, as `HttpLogin` takes them."""
    return {name: value for name, value in msgspec.structs.asdict(config).items() if name in LOGIN}


DEFAULT_PORT = 19400
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
"""The address to use for an agent that listens on all addresses."""


class OwnAgent(NamedTuple):
    """`urls` are those of its addresses, in their order; `login` is for `HttpLogin`."""

    urls: tuple[str, ...]
    login: Mapping[str, Any]


def own_agent(config: Config, login: Mapping[str, Any] | None = None) -> OwnAgent:
    """Return the agent with this configuration; `given` is how to log in, if not as a peer of the rack would."""
    file, encrypted = _web_file(config)
    scheme = "https" if encrypted else "http"
    places = [place for place in map(listen_address, config.web.listen) if place[1]] or [("", DEFAULT_PORT)]
    urls = tuple(f"{scheme}://{show_address(_EVERYWHERE.get(host, host), port)}" for host, port in places)
    return OwnAgent(urls, _login(config, file, encrypted, login))


def _web_file(config: Config) -> tuple[WebFile | None, bool]:
    """Return what the web configuration file says, and whether it asks for TLS: yes if only the agent may read it."""
    if config.web.config_file is None:
        return None, False
    from exporters.protection.web_file import read_web_file

    try:
        file = read_web_file(Path(config.web.config_file))
    except UserError:
        return None, True
    return file, file.tls is not None


def _login(
    config: Config, file: WebFile | None, encrypted: bool, own_login: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    from agent.lib.http_target import TLS_KEYS

    login = dict(own_login if own_login is not None else login_of(config.rack.peer))
    if not encrypted:
        if own_login is None and (file is None or not file.users):
            return {}  # the agent needs no password, and another program that has bound the port must not get it
        return {key: value for key, value in login.items() if key not in (*TLS_KEYS, "key_file")}
    certificate = None if file is None or file.tls is None else file.tls.cert_file
    if certificate and (own_login is None or not login.get("ca_file")):
        login |= {"ca_file": certificate, "server_name": None, "pinned": True}
    return login
