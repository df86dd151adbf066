"""What the configuration says of the rack and its peers, made into the part that watches it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from agent.alerting import SCRAPE_JOB, instance
from agent.config import Config, ConfigError
from agent.model import Instant
from agent.rack.access import Access
from agent.rack.peers import Member
from agent.rack.targets import MOST, parse_entry
from agent.rack.watch import Options, Watch
from agent.threads import Threads


def rack_name(config: Config) -> str:
    """The rack that feeds this node; empty where it is not configured."""
    return config.rack.name or config.node.rack or ""


def load_rack(config: Config, folder: Path, patience: float) -> Options:
    """The configuration's part; relative paths begin at `folder`. Raises ConfigError."""
    rack, peer = config.rack, config.rack.peer
    if len(rack.peers) > MOST:
        raise ConfigError(f"rack.peers: has {len(rack.peers)} entries, and {MOST} are the most; list one rack's nodes")
    try:
        entries = tuple(dict.fromkeys(parse_entry(each, folder) for each in rack.peers))
    except ValueError as error:
        raise ConfigError(f"rack.peers: {error}") from error
    try:
        access = Access(
            tls=peer.scheme == "https",
            username=peer.username,
            password_file=peer.password_file,
            bearer_token_file=peer.bearer_token_file,
            ca_file=peer.ca_file,
            verify=peer.verify,
        )
        access.check(entries)
    except ValueError as error:
        raise ConfigError(f"rack.peer: {error}") from error
    return Options(
        rack_name(config),
        rack.nodes_expected,
        rack.node_nameplate,
        entries,
        access,
        patience,
        rack.power_budget,
        tuple(rack.feeds.items()),
    )


def make_watch(config: Config, options: Options, clock: Callable[[], Instant], threads: Threads) -> Watch:
    """The part itself, with an identity of its own that no other agent and no later run has."""
    member = Member(rack_name(config), config.node.cluster or "", os.urandom(12).hex(), instance(config), SCRAPE_JOB)
    return Watch(member, options, clock, lambda: os.urandom(1)[0] / 256, threads)
