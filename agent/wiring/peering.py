"""Builds the rack monitor from the configuration."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from agent.config.reading import with_places
from agent.config.schema import BreakerConfig, Config, ConfigError, parse_value
from agent.daemon.reloading import LastReload
from agent.daemon.sampling import FrameProvider
from agent.daemon.self_report import SelfMetrics
from agent.lib.state_files import load_state, seal, unseal
from agent.lib.threads import Threads, ThreadState
from agent.model import Instant, Lane
from agent.rack.breakers import CLASSES, Breaker, electronic
from agent.rack.finder import MOST, Entry, parse_entry
from agent.rack.monitor import RackMonitor
from agent.rack.peer_messages import Access
from agent.rack.peers import Member
from agent.rack.rack_options import RackOptions
from agent.rack.series import ConfiguredRack
from agent.sampler.schedule import slowest
from agent.wiring.command_line import scenario_of
from agent.wiring.identity import SCRAPE_JOB, instance, login_of, rack_name
from agent.wiring.sources import equipment_of, load_settings

log = logging.getLogger("coldplate.rack")

FORM = "coldplate-rack/1"
"""The form in the first line of the breakers' state file."""


@with_places
def load_rack(config: Config, folder: Path) -> RackOptions:
    """Return the rack's part of the configuration; relative paths start at `folder`. Raises ConfigError.

    A sample counts as the node's power until it is stale with the slowest sampling.
    """
    rack, peer, shelves = config.rack, config.rack.peer, config.rack.shelves
    if len(rack.peers) > MOST:
        raise ConfigError(f"rack.peers: has {len(rack.peers)} entries; the limit is {MOST}, list one rack only")
    entries: dict[Entry, None] = {}
    for number, item in enumerate(rack.peers):
        entries[parse_value(f"rack.peers[{number}]", parse_entry, item, folder)] = None
    access = parse_value("rack.peer", Access, tls=peer.scheme == "https", **login_of(peer))
    parse_value("rack.peer", access.check, tuple(entries))
    return RackOptions(
        rack_name(config),
        rack.nodes_expected,
        rack.node_nameplate,
        tuple(entries),
        access,
        slowest(load_settings(config)).stale_after(Lane.FAST),
        rack.power_budget,
        tuple(rack.feeds.items()),
        tuple(_breaker(name, breaker, rack.feeds) for name, breaker in rack.breakers.items()),
        None if shelves is None else (shelves.count - shelves.spare) * shelves.rating,
        rack.nvlink_domains,
    )


def providers_of_one_run(
    config: Config, folder: Path, wall: float, states: Callable[[], Iterable[ThreadState]] = tuple
) -> dict[str, FrameProvider]:
    """Return what a command that samples the node itself reports of the rack and of itself. Raises ConfigError.

    `states` gives the states of the command's threads.
    """
    return {
        "reporting the rack's configuration": ConfiguredRack(load_rack(config, folder)),
        "reporting the agent's own metrics": SelfMetrics(scenario_of(config), LastReload(wall), states),
    }


def _breaker(name: str, config: BreakerConfig, feeds: Mapping[str, float]) -> Breaker:
    """Return a breaker named like a feed carries an even share of the rack: the real share is not known."""
    delay = config.long_delay
    curve = CLASSES[config.kind] if delay is None else electronic(delay)
    if config.share is not None:
        return Breaker(name, curve, config.rating, config.share, "configured")
    if name in feeds:
        return Breaker(name, curve, config.rating, 1 / len(feeds), "assumed")
    return Breaker(name, curve, config.rating)


def make_rack_monitor(
    config: Config,
    options: RackOptions,
    clock: Callable[[], Instant],
    threads: Threads,
    *,
    path: Path | None,
    put: Callable[[Path, bytes], None],
) -> RackMonitor:
    """Return the rack monitor, with an identity of its own that no other agent and no later run has.

    It takes over what an earlier run saved at `path`; `put` writes there what it saves.
    """
    member = Member(rack_name(config), config.node.cluster or "", os.urandom(12).hex(), instance(config), SCRAPE_JOB)
    monitor = RackMonitor(
        member,
        options,
        clock,
        lambda: os.urandom(1)[0] / 256,
        threads=threads,
        keep=None if path is None else lambda body: put(path, seal(FORM, body)),
        equipment=equipment_of(config),
    )
    if path is not None and options.breakers:
        body = load_state(path, partial(unseal, FORM), log, "assuming that breakers are warm")
        if body is not None and not monitor.restore(body):
            log.info("saved breaker heat ignored: %s is of another rack or too old; breakers assumed warm", path)
    return monitor
