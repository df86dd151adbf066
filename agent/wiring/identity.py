"""This node's identity for people, Prometheus servers and receivers; and its state directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from agent.config.schema import Config
from agent.config.words import NOT_OF_NODE
from agent.model import Labels

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
    from agent.wiring.own_agent import serves_tls

    return f"{'https' if serves_tls(config) else 'http'}://{instance(config)}"


def external_labels(config: Config) -> dict[str, str]:
    """Return the labels that alerts get when they leave the node: cluster, rack, and what the configuration adds."""
    node = {"cluster": config.node.cluster or "", "rack": config.node.rack or config.rack.name or ""}
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
    rack = config.node.rack or config.rack.name
    parts = [node_name(config), f"rack {rack}" if rack else "", config.node.cluster or ""]
    return ", ".join(part for part in parts if part)


STATE_DIRECTORY = Path("/var/lib/coldplate")


def state_file(config: Config, name: str) -> Path | None:
    """Return the path of a state file: in `state_dir`, systemd's state directory, or the default one; None without
    any.
    """
    if config.state_dir is not None:
        return Path(config.state_dir) / name
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given) / name
    return STATE_DIRECTORY / name if os.access(STATE_DIRECTORY, os.W_OK) else None


def drill_file(config: Config, name: str) -> Path | None:
    """Return the same for files that a drill writes, too; None for a drill unless `state_dir` is configured."""
    is_drill = config.backends.devices in NOT_OF_NODE
    return None if is_drill and config.state_dir is None else state_file(config, name)
