"""Reloads the configuration and applies it to the running parts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agent.config.reading import fields_of
from agent.config.schema import Config, Section
from agent.daemon.rule_manager import AlertingSettings, RuleManager
from agent.daemon.sampling import SamplingLoop
from agent.health.examination import ExpectationSeries
from agent.model import Lane
from agent.rack.monitor import RackMonitor
from agent.rack.rack_options import RackOptions
from agent.sampler.schedule import slowest
from agent.wiring.alerting import Receivers, load_alerting, ranges_of
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.peering import load_rack
from agent.wiring.sources import load_settings
from agent.wiring.start_checks import load_choice
from agent.wiring.web_serving import Exposed, load_terms

if TYPE_CHECKING:
    from exporters.protection.web_gate import WebWatch

log = logging.getLogger("coldplate")


Apply = Callable[[], None]
Prepare = Callable[[Config], Apply]
"""Takes its part out of a new configuration, and returns what puts that in force. Raises ConfigError."""


def reconfigure(read_config: Callable[[], Config], booted: Config, steps: Sequence[Prepare]) -> None:
    """Reload the configuration: every step prepares its part before the first one is applied.

    `booted` is the configuration that the agent was started with. Raises ConfigError, and then nothing has changed.
    """
    config = read_config()
    prepared = [prepare(config) for prepare in steps]
    for key in keys_for_a_restart(booted, config):
        log.warning("%s has changed: the change takes effect at the next restart", key)
    for apply in prepared:
        apply()


def steps_of(
    options: CommandLineOptions,
    alerting: AlertingSettings,
    receivers: Receivers,
    *,
    exposed: Exposed,
    sampling: SamplingLoop,
    rack: RackMonitor,
    rules: RuleManager,
    expectations: ExpectationSeries,
    watch: WebWatch | None,
) -> list[Prepare]:
    """Return the steps of a reload, one for each part that can change while it runs; `alerting` is in force."""
    in_force = [alerting]

    def rules_and_sampling(config: Config) -> Apply:
        """Rules and receivers, and the lanes, which may not be slower than the rules can bear."""
        new = load_alerting(config, options.folder, receivers, in_force[0].rules)
        settings = load_settings(config, ranges_of(new.rules.groups))

        def apply() -> None:
            in_force[0] = new
            sampling.reconfigure(settings)
            rules.reconfigure(new)

        return apply

    steps: list[Prepare] = [
        exposed.prepare,
        rules_and_sampling,
        lambda config: partial(rack.reconfigure, rack_options(config, options)),
        lambda config: partial(expectations.reconfigure, load_choice(config, options.folder)),
    ]
    if watch is not None:
        steps.append(lambda config: partial(watch.enforce, load_terms(config, watch)))
    return steps


def rack_options(config: Config, options: CommandLineOptions) -> RackOptions:
    """Return the rack's part of the configuration, with the staleness of the slowest sampling. Raises ConfigError."""
    return load_rack(config, options.folder, slowest(load_settings(config)).patience(Lane.FAST))


def keys_for_a_restart(old: Section, new: Section, path: str = "") -> list[str]:
    """Return keys that differ but that a reload cannot apply: they determine processes, sockets and files."""
    changed = []
    for field in fields_of(type(old)).values():
        before, after = getattr(old, field.attribute), getattr(new, field.attribute)
        if field.key is not None and field.key.restart and before != after:
            changed.append(f"{path}{field.name}")
        elif isinstance(before, Section) and isinstance(after, Section):
            changed += keys_for_a_restart(before, after, f"{path}{field.name}.")
    return changed
